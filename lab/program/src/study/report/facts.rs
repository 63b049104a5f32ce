//! Queries on the results, in the terms of the report.

use std::collections::BTreeSet;

use crate::study::results::{Kind, Mechanism, Point, Results};

/// How one mechanism compares to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Ahead,
    /// Within 10 %, or their runs overlap.
    Level,
    Behind,
}

/// The sizes measured with this number of receivers and one sender, in ascending order.
pub(crate) fn sizes(results: &Results, receivers: u32) -> Vec<u64> {
    let points = measured(results).filter(|point| point.receivers == receivers);
    sorted(points.map(|point| point.bytes))
}

/// The sizes measured with one sender and any number of receivers.
pub(crate) fn all_sizes(results: &Results) -> Vec<u64> {
    sorted(measured(results).map(|point| point.bytes))
}

/// The numbers of receivers measured with one sender, in ascending order.
pub(crate) fn receiver_counts(results: &Results) -> Vec<u32> {
    sorted(measured(results).map(|point| point.receivers))
}

/// The numbers of receivers for which a size was measured, in ascending order.
pub(crate) fn receivers_of(results: &Results, bytes: u64) -> Vec<u32> {
    let points = measured(results).filter(|point| point.bytes == bytes);
    sorted(points.map(|point| point.receivers))
}

/// The throughput of `over` divided by that of `under`.
pub(crate) fn ratio(
    results: &Results,
    over: &str,
    under: &str,
    bytes: u64,
    receivers: u32,
) -> Option<f64> {
    let ratio = results.rate(over, bytes, receivers)? / results.rate(under, bytes, receivers)?;
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

/// The ratios at the sizes that satisfy `wanted`.
pub(crate) fn ratios(
    results: &Results,
    (over, under): (&str, &str),
    receivers: u32,
    wanted: impl Fn(u64) -> bool,
) -> Vec<f64> {
    let sizes = sizes(results, receivers).into_iter().filter(|bytes| wanted(*bytes));
    sizes.filter_map(|bytes| ratio(results, over, under, bytes, receivers)).collect()
}

/// Compares two points, if both were measured.
pub(crate) fn standing(one: &Point, other: &Point) -> Option<Standing> {
    let (one, other) = (one.messages_per_s()?, other.messages_per_s()?);
    let is_near = one.median <= other.median * 1.1 && other.median <= one.median * 1.1;
    let do_overlap = one.min <= other.max && other.min <= one.max;
    Some(match one.median > other.median {
        _ if is_near || do_overlap => Standing::Level,
        true => Standing::Ahead,
        false => Standing::Behind,
    })
}

/// The fastest mechanism of a kind, and its median throughput.
pub(crate) fn fastest(
    results: &Results,
    kind: Kind,
    bytes: u64,
    receivers: u32,
) -> Option<(&Mechanism, f64)> {
    results
        .mechanisms
        .iter()
        .filter(|mechanism| mechanism.kind == kind)
        .filter_map(|mechanism| Some((mechanism, results.rate(&mechanism.id, bytes, receivers)?)))
        .max_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// Whether any point with this number of receivers had too few cores.
pub(crate) fn is_oversubscribed(results: &Results, receivers: u32) -> bool {
    measured(results).any(|point| point.receivers == receivers && point.oversubscribed)
}

/// The display name of a mechanism, in the form for use in a sentence.
pub(crate) fn name(results: &Results, id: &str) -> String {
    let known = results.mechanisms.iter().find(|mechanism| mechanism.id == id);
    known.map_or(id, |mechanism| &mechanism.name).replace(", ", " ")
}

/// The points with runs and one sender.
fn measured(results: &Results) -> impl Iterator<Item = &Point> {
    results.points.iter().filter(|point| point.senders == 1 && !point.runs.is_empty())
}

/// Each value once, in ascending order.
pub(crate) fn sorted<T: Ord>(figures: impl IntoIterator<Item = T>) -> Vec<T> {
    figures.into_iter().collect::<BTreeSet<T>>().into_iter().collect()
}

/// The mean; `None` without figures.
pub(crate) fn mean(figures: &[f64]) -> Option<f64> {
    let count = u32::try_from(figures.len()).ok().filter(|count| *count > 0)?;
    Some(figures.iter().sum::<f64>() / f64::from(count))
}

/// The smallest and the largest; `None` without figures.
pub(crate) fn extremes(figures: &[f64]) -> Option<(f64, f64)> {
    let low = figures.iter().copied().min_by(f64::total_cmp)?;
    let high = figures.iter().copied().max_by(f64::total_cmp)?;
    Some((low, high))
}
