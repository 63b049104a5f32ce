//! Buffers, copy routines, latency and bandwidth (II-A, III-B to III-D).

use corewire_harness::statistics::Spread;

use super::{ALIKE, KERNEL, KIB, NETWORK, claim, said};
use crate::study::page::units::{and, bytes, round};
use crate::study::transfer::plan::MIDDLE_BYTES;
use crate::study::transfer::results::{Claim, Measure, State, Transfer};
use crate::study::transfer::ways::Id;

const MIDDLE: u64 = MIDDLE_BYTES as u64;

pub(super) fn of(found: &Transfer) -> Vec<Claim> {
    [buffers(found), copies(found), latency(found), bandwidth(found)].concat()
}

/// II-A, III-C, Figure 3.
fn buffers(found: &Transfer) -> Vec<Claim> {
    let printed = Id::PrintedBuffer.text();
    let eight = 8 * KIB;
    let two = || {
        let (one, two) =
            (found.pipe(&printed, Some(1), eight)?, found.pipe(&printed, Some(2), eight)?);
        Some((
            format!("4 MiB through two buffers of 8 KiB is {} times as fast", round(one / two)),
            one > two * ALIKE,
        ))
    };
    let best = || {
        let sizes = found.parts_of(&printed, Some(2));
        let times =
            sizes.into_iter().filter_map(|size| Some((found.pipe(&printed, Some(2), size)?, size)));
        let (least, size) = times.min_by(|one, other| one.0.total_cmp(&other.0))?;
        let ours = found.pipe(&printed, Some(2), eight)?;
        let here = format!(
            "two buffers are fastest with {}; 8 KiB reach {} % of that",
            bytes(size),
            round(100.0 * least / ours)
        );
        Some((here, ours <= least * ALIKE))
    };
    let queue = Id::PrintedQueue.text();
    let cells = || {
        let sizes = found.parts_of(&queue, None);
        let times = sizes.iter().map(|&size| found.pipe(&queue, None, size));
        let times = times.collect::<Option<Vec<f64>>>()?;
        let (first, last) = (*times.first()?, *times.last()?);
        let rises = times.windows(2).all(|pair| pair[1] <= pair[0] * ALIKE);
        let best = times.iter().zip(&sizes).min_by(|one, other| one.0.total_cmp(other.0))?.1;
        let here = format!(
            "1 MiB cells are {} times as fast as 4 KiB ones; cells of {} are fastest",
            round(first / last),
            bytes(*best)
        );
        Some((here, rises && last < first))
    };
    let knee = || {
        let [small, middle, large] = [4, 32, 1024].map(|kib| found.pipe(&queue, None, kib * KIB));
        let (before, after) = (small? / middle?, middle? / large?);
        let here = format!(
            "from 4 to 32 KiB {} times as fast, from 32 KiB to 1 MiB {} times",
            round(before),
            round(after)
        );
        Some((here, before > ALIKE && before > after))
    };
    vec![
        claim("II-A", "Two buffers in turn are better than one.", "", two()),
        claim("III-C, Figure 3", "The shared buffer is fastest with buffers of 8 KiB.", "", best()),
        claim(
            "III-C, Figure 3",
            "The throughput of the message queue rises with the size of its cells, up to 1 MiB.",
            "",
            cells(),
        ),
        claim("III-C", "32 KiB is around the knee of that curve.", "", knee()),
    ]
}

/// III-B, Figure 2.
fn copies(found: &Transfer) -> Vec<Claim> {
    let string = || {
        let sizes = found.sizes_of(Measure::Copy).into_iter().filter(|size| *size <= 2 * KIB);
        let winners = sizes.map(|size| Some(found.best_copy(size, State::Cold, |_| true)?.0));
        let winners = winners.collect::<Option<Vec<String>>>()?;
        let (all, won) = (winners.len(), winners.iter().filter(|it| *it == "string").count());
        let here = format!("it is fastest at {won} of {all} sizes");
        (all > 0).then_some((here, won == all))
    };
    let past = || {
        let sizes = found.sizes_of(Measure::Copy).into_iter().filter(|size| *size > 2 * KIB);
        let ratios = sizes.map(|size| {
            let is_past = |way: &str| way.ends_with("streaming");
            let past = found.best_copy(size, State::Cold, is_past)?.1;
            Some(found.best_copy(size, State::Cold, |way| !is_past(way))?.1 / past)
        });
        let ratios = ratios.collect::<Option<Vec<f64>>>()?;
        let spread = Spread::of(ratios)?;
        let here = format!(
            "they are {} to {} times as fast as the best other routine",
            round(spread.min),
            round(spread.max)
        );
        Some((here, spread.min > 1.1))
    };
    vec![
        claim(
            "III-B, Figure 2",
            "Up to about 2 KB the string instruction copies fastest.",
            "",
            string(),
        ),
        claim(
            "III-B, Figure 2",
            "Beyond 2 KB non-temporal stores copy much faster than the other routines.",
            "",
            past(),
        ),
    ]
}

/// III-D, Table II.
fn latency(found: &Transfer) -> Vec<Claim> {
    let buffer = || found.latency(Id::PrintedBuffer);
    let times = |ids: &[Id]| {
        let all = ids.iter().filter_map(|&id| Some((id, found.latency(id)?)));
        all.collect::<Vec<_>>()
    };
    let least = |ids: &[Id]| times(ids).into_iter().min_by(|one, other| one.1.total_cmp(&other.1));
    let papers: Vec<Id> = Id::all().filter(|id| id.is_in_paper()).collect();
    let first = || {
        let (id, time) = least(&papers)?;
        let here = format!("{}; {}", said(Id::PrintedBuffer, buffer()?), said(id, time));
        let here = if id == Id::PrintedBuffer { said(id, time) } else { here };
        Some((here, id == Id::PrintedBuffer))
    };
    let kernel = || {
        let (id, time) = least(&KERNEL)?;
        let times = time / buffer()?;
        Some((format!("{}: {} times as long", said(id, time), round(times)), times <= 2.0))
    };
    let network = || {
        let (id, time) = least(&NETWORK)?;
        let times = time / buffer()?;
        Some((format!("{}: {} times as long", said(id, time), round(times)), times >= 7.0))
    };
    let last = || {
        let ptrace = found.latency(Id::Ptrace)?;
        let (id, time) =
            times(&papers).into_iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
        let here = match id {
            Id::Ptrace => said(id, time),
            _ => format!("{}; {}", said(Id::Ptrace, ptrace), said(id, time)),
        };
        Some((here, id == Id::Ptrace))
    };
    let table = "III-D, Table II";
    vec![
        claim(table, "The shared buffer has the lowest latency.", "1.5 µs", first()),
        claim(
            table,
            "Kaput performs well too, although it needs system calls.",
            "2.1 µs: 1.4 times as long as the shared buffer",
            kernel(),
        ),
        claim(
            table,
            "The network interface takes an order of magnitude longer.",
            "11.6 µs: 7.7 times as long as the shared buffer",
            network(),
        ),
        claim(table, "Ptrace has the highest latency.", "20.2 µs", last()),
    ]
}

/// III-D, Figure 4.
fn bandwidth(found: &Transfer) -> Vec<Claim> {
    let cold = |id, size| found.time(id, size, State::Cold);
    let sizes = || found.sizes_of(Measure::Transfer);
    let papers: Vec<Id> = Id::all().filter(|id| id.is_in_paper()).collect();
    let ranked = || {
        let mut all: Vec<_> =
            papers.iter().filter_map(|&id| Some((id, cold(id, MIDDLE)?))).collect();
        all.sort_by(|one, other| one.1.total_cmp(&other.1));
        all
    };
    let slowest = || {
        let all = ranked();
        let slowest: Vec<Id> = all.iter().rev().take(2).map(|(id, _)| *id).collect();
        NETWORK.iter().all(|id| cold(*id, MIDDLE).is_some()).then(|| {
            let names: Vec<String> = slowest.iter().map(|id| id.name().to_owned()).collect();
            (
                format!("slowest at 1 MiB: {}", and(&names)),
                NETWORK.iter().all(|id| slowest.contains(id)),
            )
        })
    };
    // The least size from which on one mechanism is faster than others at all sizes.
    let ahead_from = |id: Id, others: &[Id]| {
        let is_ahead = |size: u64| {
            let own = cold(id, size)?;
            let all = others.iter().map(|&other| cold(other, size)).collect::<Option<Vec<_>>>()?;
            Some(all.into_iter().all(|other| own < other))
        };
        let behind = sizes().into_iter().rev().map(|size| Some((size, is_ahead(size)?)));
        let behind = behind.collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())?;
        Some(behind.into_iter().take_while(|(_, ahead)| *ahead).last().map(|(size, _)| size))
    };
    let ptrace = || {
        Some(match ahead_from(Id::Ptrace, &NETWORK)? {
            Some(size) => (format!("from {} on", bytes(size)), size <= 8 * KIB),
            None => ("never".to_owned(), false),
        })
    };
    let queue = || {
        let is_first = |size: u64| Some(cold(Id::PrintedQueue, size)? < cold(Id::Ptrace, size)?);
        let here = match ahead_from(Id::Ptrace, &[Id::PrintedQueue])? {
            Some(size) => format!("ptrace is faster from {} on", bytes(size)),
            None => "ptrace is not faster at the longest size".to_owned(),
        };
        let all = sizes().into_iter().map(|size| Some((size, is_first(size)?)));
        let all = all.collect::<Option<Vec<_>>>()?;
        (!all.is_empty())
            .then(|| (here, all.iter().all(|(size, first)| *first == (*size <= 512 * KIB))))
    };
    let best = || {
        let best: Vec<Id> = ranked().into_iter().take(3).map(|(id, _)| id).collect();
        let names: Vec<String> = best.iter().map(|id| id.name().to_owned()).collect();
        let holds = KERNEL.iter().chain([&Id::PrintedBuffer]).all(|id| best.contains(id));
        (best.len() == 3).then(|| (format!("fastest at 1 MiB: {}", and(&names)), holds))
    };
    let buffer = || {
        let sizes = sizes().into_iter().filter(|size| *size > 32 * KIB);
        let ratios = sizes.map(|size| {
            let kernel = KERNEL.iter().filter_map(|&id| cold(id, size)).min_by(f64::total_cmp);
            Some(kernel? / cold(Id::PrintedBuffer, size)?)
        });
        let ratios = ratios.collect::<Option<Vec<f64>>>()?;
        let spread = Spread::of(ratios)?;
        let here = format!(
            "{} to {} times as fast as the faster kernel copy",
            round(spread.min),
            round(spread.max)
        );
        Some((here, spread.min > 1.0))
    };
    let figure = "III-D, Figure 4";
    vec![
        claim(
            figure,
            "The network interface has the lowest throughput.",
            "172 to 227 MB/s",
            slowest(),
        ),
        claim(
            figure,
            "Ptrace is faster than the network interface for more than about 4 KB.",
            "",
            ptrace(),
        ),
        claim(
            figure,
            "Message queues are faster than ptrace up to about 512 KB; then ptrace is slightly faster.",
            "437 and 460 MB/s in the end",
            queue(),
        ),
        claim(
            figure,
            "Kaput and the shared buffer are the best.",
            "496 to 500 and 514 MB/s",
            best(),
        ),
        claim(
            figure,
            "For more than about 32 KB the shared buffer is slightly faster than the kernel copies.",
            "1.03 times in the end",
            buffer(),
        ),
    ]
}
