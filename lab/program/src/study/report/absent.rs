//! Lists what could not be measured, without repeating the same reason for each point.

use std::collections::BTreeSet;

use crate::study::results::Results;

use super::facts;
use super::units::{bytes, plural};

/// A reason why results are missing, and where it applies.
struct Gap<'a> {
    mechanism: &'a str,
    what: &'static str,
    reason: &'a str,
    sizes: BTreeSet<u64>,
    receivers: BTreeSet<u32>,
    senders: BTreeSet<u32>,
}

/// One sentence for each mechanism and reason, in the order of the mechanisms.
pub(crate) fn of(results: &Results) -> Vec<String> {
    let mut gaps = Vec::new();
    for mechanism in &results.mechanisms {
        collect(&mut gaps, results, &mechanism.id);
    }
    gaps.iter().map(|gap| sentence(results, gap)).collect()
}

fn collect<'a>(gaps: &mut Vec<Gap<'a>>, results: &'a Results, id: &'a str) {
    for point in results.points.iter().filter(|point| point.mechanism == id) {
        let place = (point.bytes, Some(point.receivers), Some(point.senders));
        if let Some(reason) = &point.impossible {
            add(gaps, (id, "throughput", reason), place);
        }
        for failure in &point.failures {
            add(gaps, (id, "runs of throughput that failed", failure), place);
        }
    }
    for latency in results.latencies.iter().filter(|latency| latency.mechanism == id) {
        if let Some(reason) = &latency.impossible {
            add(gaps, (id, "latency", reason), (latency.bytes, None, None));
        }
    }
    for count in results.counts.iter().filter(|count| count.mechanism == id) {
        if let Some(reason) = &count.impossible {
            add(
                gaps,
                (id, "counts of Table I", reason),
                (count.bytes, Some(count.receivers), None),
            );
        }
    }
}

fn add<'a>(
    gaps: &mut Vec<Gap<'a>>,
    (mechanism, what, reason): (&'a str, &'static str, &'a str),
    (size, receivers, senders): (u64, Option<u32>, Option<u32>),
) {
    let same = |gap: &Gap<'_>| (gap.mechanism, gap.what, gap.reason) == (mechanism, what, reason);
    let at = gaps.iter().position(same).unwrap_or_else(|| {
        let (sizes, receivers) = (BTreeSet::new(), BTreeSet::new());
        gaps.push(Gap { mechanism, what, reason, sizes, receivers, senders: BTreeSet::new() });
        gaps.len() - 1
    });
    gaps[at].sizes.insert(size);
    gaps[at].receivers.extend(receivers);
    gaps[at].senders.extend(senders.filter(|senders| *senders > 1));
}

fn sentence(results: &Results, gap: &Gap<'_>) -> String {
    let sizes: Vec<String> = gap.sizes.iter().map(|size| bytes(*size)).collect();
    let mut places = vec![sizes.join(", ")];
    if !gap.receivers.is_empty() {
        places.push(counted(&gap.receivers, "receiver"));
    }
    if !gap.senders.is_empty() {
        places.push(counted(&gap.senders, "sender"));
    }
    let name = facts::name(results, gap.mechanism);
    let (what, places) = (gap.what, places.join("; "));
    format!("{name}, {what} ({places}): {}.", gap.reason.trim_end_matches('.'))
}

fn counted(counts: &BTreeSet<u32>, one: &str) -> String {
    match (counts.first(), counts.last()) {
        (Some(first), Some(last)) if first == last => plural(*first, one),
        _ => {
            let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
            format!("{} {one}s", counts.join(", "))
        }
    }
}
