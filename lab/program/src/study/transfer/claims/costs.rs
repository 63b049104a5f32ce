//! Set-up, caches, and use in MPI (II-A, III-E to IV-B).

use super::{ALIKE, KERNEL, KIB, NETWORK, claim, said};
use crate::study::page::units::{and, nanoseconds, round};
use crate::study::transfer::plan::{LONG_BYTES, MIDDLE_BYTES};
use crate::study::transfer::queries::impact;
use crate::study::transfer::results::{Claim, Key, Measure, State, Transfer};
use crate::study::transfer::set_up::{PRIVATE, SHARABLE, SYSTEM_V};
use crate::study::transfer::ways::Id;

const MIDDLE: u64 = MIDDLE_BYTES as u64;
const LONG: u64 = LONG_BYTES as u64;

pub(super) fn of(found: &Transfer) -> Vec<Claim> {
    [set_up(found), cache(found), two_sided(found), one_sided(found)].concat()
}

/// III-E, Table III, and II-A.
fn set_up(found: &Transfer) -> Vec<Claim> {
    let up = |way: &str| found.cost(Measure::SetUp, way);
    let down = |way: &str| found.cost(Measure::TearDown, way);
    let (get, ptrace, network) = (Id::KernelGet.text(), Id::Ptrace.text(), Id::NetworkGet.text());
    let highest = || {
        let own = up(SYSTEM_V)?;
        let others = [&get, &ptrace, &network].map(|way| up(way));
        let most = others.into_iter().flatten().max_by(f64::total_cmp)?;
        let here = format!(
            "a System V segment of 20 KiB: {}; at most {} for the others",
            nanoseconds(own),
            nanoseconds(most)
        );
        Some((here, own > most))
    };
    let conceivable = || {
        let (both, latency) = (up(&get)? + down(&get)?, found.latency(Id::KernelGet)?);
        let here = format!(
            "{} for both, {} % of a transfer of 1 B",
            nanoseconds(both),
            round(100.0 * both / latency)
        );
        Some((here, both < 0.25 * latency))
    };
    let deregister = || {
        let (up, down) = (up(&network)?, down(&network)?);
        let here = format!("{} to register, {} to deregister", nanoseconds(up), nanoseconds(down));
        Some((here, down > 10.0 * up))
    };
    let nothing = || {
        let (both, latency) = (up(&ptrace)? + down(&ptrace)?, found.latency(Id::Ptrace)?);
        let share = round(100.0 * both / latency);
        let here = format!("{} for both, {share} % of a transfer of 1 B", nanoseconds(both));
        Some((here, both < 0.05 * latency))
    };
    let demand = || {
        let way = Id::SharedBuffer.text();
        let made = found.median(&Key::new(Measure::OnDemand, way, MIDDLE, State::Cold))?;
        let ready = found.time(Id::SharedBuffer, MIDDLE, State::Cold)?;
        let here = format!(
            "1 MiB takes {} if its rings are made for it, {} if they are there",
            nanoseconds(made),
            nanoseconds(ready)
        );
        Some((here, made > 1.1 * ready))
    };
    let table = "III-E, Table III";
    vec![
        claim(
            table,
            "The shared buffer and the message queue cost the most to set up.",
            "10.9 µs; 2.8 µs for Kaput, 4.5 µs for the network interface",
            highest(),
        ),
        claim(
            "III-E",
            "A kernel copy that needs no registration is conceivable.",
            "Kaput: 2.8 and 1.4 µs",
            conceivable(),
        ),
        claim(
            table,
            "To deregister memory from the network interface costs far more than to register it.",
            "212.4 and 4.5 µs",
            deregister(),
        ),
        claim(table, "Ptrace needs no set-up and no tear-down.", "0 and 0 µs", nothing()),
        claim(
            "II-A, III-E",
            "Buffers should be made once for each pair, or the set-up be shared by several transfers.",
            "",
            demand(),
        ),
    ]
}

/// III-F, Figure 5, Table IV.
fn cache(found: &Transfer) -> Vec<Claim> {
    let words = |id: Id| {
        let [source, target] = found.shares(id)?;
        Some([impact(source), impact(target)])
    };
    let here = |ids: &[Id]| {
        let of = |id: &Id| {
            let [source, target] = found.shares(*id)?.map(|share| round(100.0 * share));
            Some(format!("{}: {source} and {target} % of the lines", id.name()))
        };
        ids.iter().map(of).collect::<Option<Vec<_>>>().map(|all| all.join("; "))
    };
    let is = |ids: &[Id], expected: [&str; 2]| {
        let all = ids.iter().map(|&id| words(id)).collect::<Option<Vec<_>>>()?;
        Some((here(ids)?, all.into_iter().all(|words| words == expected)))
    };
    let high = || {
        let ids =
            [Id::PrintedStreaming, Id::PrintedQueue, Id::KernelPut, Id::KernelGet, Id::Ptrace];
        let all = ids.map(|id| Some((id, words(id)?)));
        let all = all.into_iter().flatten().collect::<Vec<_>>();
        let low = all.iter().filter(|(_, words)| !words.contains(&"high"));
        let low: Vec<String> = low.map(|(id, _)| id.name().to_owned()).collect();
        let here = match &low[..] {
            [] => "high on a side with each of them".to_owned(),
            some => format!("on no side high with {}", and(some)),
        };
        (!all.is_empty()).then_some((here, low.is_empty()))
    };
    let reused = || {
        let share = |id| found.share(Measure::TargetLines, id, LONG);
        let (queue, pipe) = (share(Id::PrintedQueue)?, share(Id::SharedBuffer)?);
        let here = format!(
            "the library\u{2019}s pipe, which reuses its cells, takes {} % of the lines at the destination, the queue {} %",
            round(100.0 * pipe),
            round(100.0 * queue)
        );
        Some((here, pipe * ALIKE < queue))
    };
    let figure = "III-F, Figure 5";
    vec![
        claim(
            figure,
            "With the network interface the impact is low on both sides.",
            "",
            is(&NETWORK, ["low", "low"]),
        ),
        claim(figure, "With all others it is high on at least one side.", "", high()),
        claim(
            figure,
            "With the shared buffer it is high at the source and low at the destination.",
            "2050 and 225 of 4096 lines",
            is(&[Id::PrintedStreaming], ["high", "low"]),
        ),
        claim(
            figure,
            "With the message queue it is high on both sides.",
            "",
            is(&[Id::PrintedQueue], ["high", "high"]),
        ),
        claim("III-F", "It would be lower if the queue reused the same cells.", "", reused()),
        claim(
            figure,
            "Kaput\u{2019}s put affects only the source.",
            "",
            is(&[Id::KernelPut], ["high", "low"]),
        ),
        claim(
            figure,
            "Kaput\u{2019}s get affects only the destination.",
            "",
            is(&[Id::KernelGet], ["low", "high"]),
        ),
        claim(
            figure,
            "With ptrace it is high at the destination and medium at the source.",
            "1060 of 4096 lines at the source",
            is(&[Id::Ptrace], ["medium", "high"]),
        ),
    ]
}

/// IV-A.
fn two_sided(found: &Transfer) -> Vec<Claim> {
    let part = |measure, id: Id| {
        let share = found.hidden(measure, id)?;
        Some((format!("{}: {} % hidden", id.name(), round(100.0 * share)), share))
    };
    let all = |measure, ids: &[Id], holds: fn(f64) -> bool| {
        let parts = ids.iter().map(|&id| part(measure, id)).collect::<Option<Vec<_>>>()?;
        let is_so = parts.iter().all(|(_, share)| holds(*share));
        let words: Vec<String> = parts.into_iter().map(|(words, _)| words).collect();
        Some((words.join("; "), is_so))
    };
    let both = || {
        let (remote, is_remote) = all(Measure::RemoteOverlap, &NETWORK, |share| share >= 0.5)?;
        let (local, is_local) = all(Measure::LocalOverlap, &NETWORK, |share| share >= 0.5)?;
        Some((format!("remote: {remote}; local: {local}"), is_remote && is_local))
    };
    let none = |ids: &[Id]| {
        let (remote, is_remote) = all(Measure::RemoteOverlap, ids, |share| share < 0.5)?;
        let (local, is_local) = all(Measure::LocalOverlap, ids, |share| share < 0.5)?;
        Some((format!("remote: {remote}; local: {local}"), is_remote && is_local))
    };
    let highest = || {
        let ids = KERNEL.into_iter().chain(NETWORK).chain([Id::Ptrace]);
        let times = ids.filter_map(|id| Some((id, found.time(id, MIDDLE, State::Cold)?)));
        let (id, time) = times.min_by(|one, other| one.1.total_cmp(&other.1))?;
        Some((format!("1 MiB: {}", said(id, time)), KERNEL.contains(&id)))
    };
    let best = || {
        let shared = [Id::PrintedBuffer, Id::PrintedStreaming];
        let is_wanted = |id: &Id| id.is_in_paper() || shared.contains(id);
        let papers = Id::all().filter(|id| is_wanted(id) && !NETWORK.contains(id));
        let all = papers.map(|id| {
            let [source, target] = found.shares(id)?;
            Some((id, found.time(id, MIDDLE, State::Cold)?, source + target))
        });
        let all = all.flatten().collect::<Vec<_>>();
        let first = all.iter().min_by(|one, other| one.1.total_cmp(&other.1))?;
        let least = all.iter().min_by(|one, other| one.2.total_cmp(&other.2))?;
        let here = format!("fastest: {}; least impact: {}", first.0.name(), least.0.name());
        Some((here, shared.contains(&first.0) && shared.contains(&least.0)))
    };
    let place = "IV-A, Table V";
    vec![
        claim(
            place,
            "A kernel copy can be overlapped with computation on the remote side.",
            "",
            all(Measure::RemoteOverlap, &KERNEL, |share| share >= 0.5),
        ),
        claim(place, "The network interface overlaps on both sides.", "", both()),
        claim(
            place,
            "The shared buffer, the message queue and ptrace cannot be overlapped.",
            "",
            none(&[Id::PrintedBuffer, Id::PrintedQueue, Id::Ptrace]),
        ),
        claim(
            "IV-A",
            "Of the one-sided mechanisms Kaput has the highest throughput.",
            "",
            highest(),
        ),
        claim(
            "IV-A",
            "Shared buffers that are there already have the best throughput, and the least cache impact except for the \
             network interface.",
            "",
            best(),
        ),
    ]
}

/// IV-B and V.
fn one_sided(found: &Transfer) -> Vec<Claim> {
    let small = || {
        let least = |ids: [Id; 2]| {
            let times = ids.into_iter().filter_map(|id| Some((id, found.latency(id)?)));
            times.min_by(|one, other| one.1.total_cmp(&other.1))
        };
        let (kernel, network) = (least(KERNEL)?, least(NETWORK)?);
        let here = format!("{}; {}", said(kernel.0, kernel.1), said(network.0, network.1));
        Some((here, kernel.1 < network.1))
    };
    let price = |way, bytes| found.median(&Key::new(Measure::Allocate, way, bytes, State::Touched));
    let dear = || {
        let (own, shared) = (price(PRIVATE, 4 * KIB)?, price(SHARABLE, 4 * KIB)?);
        let here = format!(
            "4 KiB made, touched and freed: {}; of the process alone {}",
            nanoseconds(shared),
            nanoseconds(own)
        );
        Some((here, shared > 2.0 * own))
    };
    let pays = || {
        let size = 64 * KIB;
        let more = price(SHARABLE, size)? - price(PRIVATE, size)?;
        let gain = found.time(Id::KernelGet, size, State::Cold)?
            - found.time(Id::Window, size, State::Cold)?;
        if gain <= 0.0 {
            return Some(("a window is not faster than a kernel get of 64 KiB".to_owned(), false));
        }
        let count = (more / gain).ceil().max(0.0);
        let here = format!("a window of 64 KiB has paid after {} gets of all of it", round(count));
        Some((here, count <= 100.0))
    };
    vec![
        claim(
            "IV-B",
            "For short messages without the other process\u{2019}s help Kaput is preferable to the network interface.",
            "2.1 and 11.6 µs",
            small(),
        ),
        claim(
            "IV-B",
            "Memory that can be shared costs much more to allocate and to free.",
            "10.9 and 5.1 µs",
            dear(),
        ),
        claim(
            "IV-B",
            "If there are more transfers than allocations, this price is recovered.",
            "",
            pays(),
        ),
        claim(
            "V",
            "A faster network interface would perform as well as the shared buffer and Kaput.",
            "495 MB/s, 2.6 µs",
            None,
        ),
    ]
}
