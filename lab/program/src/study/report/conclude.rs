//! Conclusions in plain words. They are computed, and can be unfavourable to corewire.

use corewire_harness::statistics::Spread;

use crate::study::results::{Kind, Mechanism, Results};

use super::facts::{self, Standing, fastest};
use super::model;
use super::units::{and, bytes, gain, nanoseconds, plural, rate, round};

/// The sizes that the summary mentions.
const SHORT: [u64; 2] = [64, 4096];

/// corewire's mechanisms and their kinds.
const OWN: [(&str, Kind); 2] =
    [("corewire_copy", Kind::Copying), ("corewire_in_place", Kind::InPlace)];

/// One paragraph with the most important figures.
pub(crate) fn summary(results: &Results) -> String {
    let machine = &results.machine;
    let intro = format!(
        "This repeats the micro-benchmark of the paper \u{201c}ZIMP: Efficient Inter-core Communications \
         on Manycore Machines\u{201d} (Aublin and others) with {} on {} ({}).",
        plural(results.mechanisms.len(), "mechanism"),
        machine.processor,
        plural(machine.cores, "core"),
    );
    let size = SHORT.into_iter().find(|size| facts::sizes(results, 1).contains(size));
    let Some(size) = size else { return intro };
    let kinds = [
        (Kind::InPlace, "in place"),
        (Kind::Copying, "copying out"),
        (Kind::Kernel, "through the kernel"),
    ];
    let leaders = kinds.into_iter().filter_map(|(kind, words)| {
        let (mechanism, figure) = fastest(results, kind, size, 1)?;
        Some(format!("{} {words} ({})", rate(figure), facts::name(results, &mechanism.id)))
    });
    let leaders = and(&leaders.collect::<Vec<_>>());
    format!(
        "{intro} With {} messages and 1 receiver, the fastest mechanisms carry {leaders}.",
        bytes(size)
    )
}

/// A few sentences for the top of the page.
pub(crate) fn in_short(results: &Results) -> Vec<String> {
    let own = OWN.into_iter().flat_map(|(id, kind)| own_kind(results, id, kind, &[1]));
    let zimp = SHORT.into_iter().filter_map(|size| over(results, "zimp", size, 1)).next();
    own.chain(zimp).chain(kernel_cost(results)).collect()
}

/// All conclusions.
pub(crate) fn in_full(results: &Results) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for (id, kind) in OWN {
        all.extend(own_kind(results, id, kind, &facts::receiver_counts(results)));
    }
    all.extend(SHORT.into_iter().filter_map(|size| over(results, "zimp", size, 1)));
    all.extend(fan_out(results));
    all.extend(modelled(results));
    all.extend(kernel_cost(results));
    all.extend(latency(results));
    all
}

/// Compares corewire with the mechanisms of its kind: one sentence for all numbers of receivers with
/// the same outcome. Oversubscribed points are left out: there the result depends on how many messages
/// fit into one turn on the core.
fn own_kind(results: &Results, id: &str, kind: Kind, counts: &[u32]) -> Vec<String> {
    let mut outcomes: Vec<(String, Vec<String>)> = Vec::new();
    let have_cores = counts.iter().filter(|count| !facts::is_oversubscribed(results, **count));
    for receivers in have_cores {
        let Some(outcome) = outcome(results, id, kind, *receivers) else { continue };
        let count = receivers.to_string();
        match outcomes.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, counts)) => counts.push(count),
            None => outcomes.push((outcome, vec![count])),
        }
    }
    let among = match kind {
        Kind::Kernel => "the kernel\u{2019}s mechanisms",
        Kind::Copying => "the mechanisms that copy messages out",
        Kind::InPlace => "the mechanisms that read messages in place",
    };
    let name = facts::name(results, id);
    let sentence = |(outcome, counts): (String, Vec<String>)| {
        let ending = if counts == ["1"] { "" } else { "s" };
        format!("Among {among}, {name} {outcome}, with {} receiver{ending}.", and(&counts))
    };
    outcomes.into_iter().map(sentence).collect()
}

/// Compares corewire with its best rival, size by size.
fn outcome(results: &Results, id: &str, kind: Kind, receivers: u32) -> Option<String> {
    let (mut ahead, mut level, mut behind) = (Vec::new(), Vec::new(), Vec::new());
    let mut missing = Vec::new();
    for size in facts::sizes(results, receivers) {
        let Some(own) = results.point(id, size, receivers, 1) else { continue };
        let rivals = results.mechanisms.iter().filter(|rival| rival.kind == kind && rival.id != id);
        let best =
            rivals.filter_map(|rival| Some((rival, results.rate(&rival.id, size, receivers)?)));
        let Some((best, _)) = best.max_by(|(_, one), (_, other)| one.total_cmp(other)) else {
            continue;
        };
        let rival = results.point(&best.id, size, receivers, 1)?;
        match facts::standing(own, rival) {
            Some(Standing::Ahead) => ahead.push(bytes(size)),
            Some(Standing::Level) => level.push(format!("{} ({})", bytes(size), best.name)),
            Some(Standing::Behind) => behind.push(lag(results, (id, best), size, receivers)?),
            None => missing.push(bytes(size)),
        }
    }
    let words = words(&[ahead, level, behind])?;
    Some(match missing.is_empty() {
        true => words,
        false => format!("{words}; it was not measured at {}", and(&missing)),
    })
}

fn lag(
    results: &Results,
    (id, best): (&str, &Mechanism),
    size: u64,
    receivers: u32,
) -> Option<String> {
    let ratio = facts::ratio(results, id, &best.id, size, receivers)?;
    Some(format!("{} ({}, {})", bytes(size), best.name, gain(ratio)))
}

fn words([ahead, level, behind]: &[Vec<String>; 3]) -> Option<String> {
    let all = level.is_empty() && behind.is_empty();
    let lead = (!ahead.is_empty()).then(|| match all {
        true => "leads at every size measured".to_owned(),
        false => format!("leads at {}", and(ahead)),
    });
    let level =
        (!level.is_empty()).then(|| format!("is level with the best rival at {}", and(level)));
    let behind = (!behind.is_empty()).then(|| format!("is behind at {}", and(behind)));
    let parts: Vec<String> = [lead, level, behind].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; it "))
}

/// Compares corewire, copying out, with another mechanism.
fn over(results: &Results, under: &str, size: u64, receivers: u32) -> Option<String> {
    let own = results.point("corewire_copy", size, receivers, 1)?;
    let other = results.point(under, size, receivers, 1)?;
    let (fast, slow) = (own.messages_per_s()?.median, other.messages_per_s()?.median);
    let words = match facts::standing(own, other)? {
        Standing::Ahead => "ahead of",
        Standing::Level => "level with",
        Standing::Behind => "behind",
    };
    Some(format!(
        "With {} messages and {}, {} is {words} {}: {} against {}, {}.",
        bytes(size),
        plural(receivers, "receiver"),
        facts::name(results, "corewire_copy"),
        facts::name(results, under),
        rate(fast),
        rate(slow),
        gain(facts::ratio(results, "corewire_copy", under, size, receivers)?),
    ))
}

/// The cost of more receivers: for the largest number of receivers that each had a core, or for the
/// largest number if there is none.
fn fan_out(results: &Results) -> Vec<String> {
    let counts = facts::receiver_counts(results);
    let mut several = counts.into_iter().rev().filter(|count| *count > 1).peekable();
    let last = several.peek().copied();
    let fitting = several.find(|count| !facts::is_oversubscribed(results, *count));
    let Some(most) = fitting.or(last) else { return Vec::new() };
    let ids = ["corewire_copy", "corewire_in_place", "zimp", "barrelfish_mp", "unix_datagram"];
    SHORT.into_iter().filter_map(|size| fan_out_at(results, &ids, size, most)).collect()
}

fn fan_out_at(results: &Results, ids: &[&str], size: u64, most: u32) -> Option<String> {
    let kept: Vec<String> = ids
        .iter()
        .filter_map(|id| {
            let (one, many) = (results.rate(id, size, 1)?, results.rate(id, size, most)?);
            let percent = Some(many / one * 100.0).filter(|percent| percent.is_finite())?;
            Some(format!("{} {} %", facts::name(results, id), round(percent)))
        })
        .collect();
    let crowd = if facts::is_oversubscribed(results, most) {
        " There were fewer cores than processes, so most of the loss is due to processes taking turns."
    } else {
        ""
    };
    (!kept.is_empty()).then(|| {
        format!(
            "With {} messages and {}, each receiver still gets this share of the throughput with 1 \
             receiver: {}.{crowd}",
            bytes(size),
            plural(most, "receiver"),
            and(&kept)
        )
    })
}

fn modelled(results: &Results) -> Option<String> {
    let most = results.model.iter().map(|row| row.receivers).max()?;
    let rings = [("corewire", "corewire"), ("zimp", "ZIMP"), ("barrelfish_mp", "Barrelfish MP")];
    let costs: Vec<String> = rings
        .iter()
        .filter_map(|(ring, name)| {
            let row = model::row(results, ring, most)?;
            Some(format!("{name} takes {}", nanoseconds(row.stream_ns)))
        })
        .collect();
    (!costs.is_empty()).then(|| {
        format!(
            "In the coherence model, for a 48-byte message to {}, each on its own core, {}.",
            plural(most, "receiver"),
            and(&costs)
        )
    })
}

fn kernel_cost(results: &Results) -> Option<String> {
    let parts: Vec<String> = SHORT
        .into_iter()
        .filter_map(|size| {
            let (kernel, slow) = fastest(results, Kind::Kernel, size, 1)?;
            let ratio = facts::ratio(results, "corewire_copy", &kernel.id, size, 1)?;
            let (times, size) = (round(ratio), bytes(size));
            Some(format!("{times} with {size} messages ({}, {})", kernel.name, rate(slow)))
        })
        .collect();
    let call = results.system_call.as_ref().map(|call| {
        let (entry, function) = (nanoseconds(call.system_call_ns), nanoseconds(call.function_ns));
        format!(" A system call that does nothing takes {entry} here, a function call {function}.")
    });
    (!parts.is_empty()).then(|| {
        format!(
            "The cost of the kernel, with 1 receiver: the throughput of {}, divided by that of the fastest \
             mechanism of the kernel, is {}.{}",
            facts::name(results, "corewire_copy"),
            and(&parts),
            call.unwrap_or_default()
        )
    })
}

fn latency(results: &Results) -> Option<String> {
    let median = |mechanism: &str| {
        let own = results.latencies.iter();
        let mut own =
            own.filter(|latency| (latency.mechanism.as_str(), latency.bytes) == (mechanism, 64));
        Spread::of(own.next()?.p50_ns.iter().copied())
            .map(|spread| spread.median)
            .filter(|median| median.is_finite())
    };
    let ids = ["corewire_in_place", "corewire_copy", "zimp", "unix_datagram", "pipe"];
    let found: Vec<String> = ids
        .iter()
        .filter_map(|id| Some(format!("{} {}", facts::name(results, id), nanoseconds(median(id)?))))
        .collect();
    (!found.is_empty()).then(|| format!("One way, a 64 B message takes: {}.", and(&found)))
}
