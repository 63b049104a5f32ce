//! Builds results from a journal.

use crate::study::failure::Failure;
use crate::study::journal::{Entry, Header};
use crate::study::mechanisms::{Id, Shape};
use crate::study::model;
use crate::study::plan::Effort;
use crate::study::results::{Count, FORMAT, Latency, Mechanism, Point, Results};

/// Everything that a journal holds, and the figures of the model.
pub(crate) fn results(header: &Header, entries: &[Entry]) -> Result<Results, Failure> {
    let plan = &header.plan;
    let mechanisms = plan.mechanisms.iter().map(|&id| mechanism(id));
    let each = |&shape: &Shape| plan.mechanisms.iter().map(move |&id| (id, shape));
    let points = plan.shapes.iter().flat_map(each);
    let one = |&bytes: &usize| Shape { bytes, receivers: 1, senders: 1 };
    let latencies = plan.latency_sizes.iter().map(one).collect::<Vec<_>>();
    let counted =
        plan.counted.iter().map(|&(bytes, receivers)| Shape { bytes, receivers, senders: 1 });
    let counted = counted.collect::<Vec<_>>();
    Ok(Results {
        format: FORMAT,
        study: "zimp".to_owned(),
        version: header.version.clone(),
        began: header.began.clone(),
        effort: match plan.effort {
            Effort::Quick => "quick",
            Effort::Default => "default",
            Effort::Full => "full",
        }
        .to_owned(),
        run_s: plan.run.as_secs_f64(),
        runs: plan.runs,
        machine: header.machine.clone(),
        mechanisms: mechanisms.collect(),
        points: points.map(|(id, shape)| point(id, shape, plan.cores, entries)).collect(),
        latencies: latencies
            .iter()
            .flat_map(each)
            .map(|(id, shape)| latency(id, shape, plan.cores, entries))
            .collect(),
        counts: counted
            .iter()
            .flat_map(each)
            .map(|(id, shape)| counts(id, shape, entries))
            .collect(),
        system_call: entries.iter().find_map(|entry| match entry {
            Entry::SystemCall(found) => Some(found.clone()),
            _ => None,
        }),
        model: model::count()?,
    })
}

/// What is said of a mechanism in results.
pub(crate) fn mechanism(id: Id) -> Mechanism {
    let about = id.about();
    Mechanism {
        id: id.text(),
        name: about.name.to_owned(),
        kind: about.kind,
        has_many_senders: about.has_many_senders,
        settings: about.settings,
    }
}

fn is_oversubscribed(shape: Shape, cores: usize) -> bool {
    (shape.receivers + shape.senders) as usize > cores
}

fn point(id: Id, shape: Shape, cores: usize, entries: &[Entry]) -> Point {
    let mut point = Point {
        mechanism: id.text(),
        bytes: shape.bytes as u64,
        receivers: shape.receivers,
        senders: shape.senders,
        oversubscribed: is_oversubscribed(shape, cores),
        impossible: id.limit(shape),
        failures: Vec::new(),
        runs: Vec::new(),
    };
    for entry in entries {
        if let Entry::Stream { mechanism, shape: other, found, .. } = entry
            && (*mechanism, *other) == (id, shape)
        {
            match found {
                Ok(run) => point.runs.push(run.clone()),
                Err(failure) => point.failures.push(failure.clone()),
            }
            // The study ran it, so the limit that is found now did not apply where and when it ran.
            point.impossible = None;
        }
    }
    point
}

fn latency(id: Id, shape: Shape, cores: usize, entries: &[Entry]) -> Latency {
    let mut latency = Latency {
        mechanism: id.text(),
        bytes: shape.bytes as u64,
        oversubscribed: is_oversubscribed(shape, cores),
        impossible: id.limit(shape),
        p50_ns: Vec::new(),
        p99_ns: Vec::new(),
    };
    for entry in entries {
        if let Entry::RoundTrip { mechanism, bytes, found, .. } = entry
            && (*mechanism, *bytes) == (id, shape.bytes)
        {
            match found {
                Ok([p50, p99]) => {
                    latency.p50_ns.push(*p50);
                    latency.p99_ns.push(*p99);
                    latency.impossible = None;
                }
                Err(failure) if latency.p50_ns.is_empty() => {
                    latency.impossible = Some(failure.clone());
                }
                Err(_) => {}
            }
        }
    }
    latency
}

fn counts(id: Id, shape: Shape, entries: &[Entry]) -> Count {
    let of = |entry: &Entry| match entry {
        Entry::Count { mechanism, shape: other, found } if (*mechanism, *other) == (id, shape) => {
            Some(found.clone())
        }
        _ => None,
    };
    let none = || "not counted".to_owned();
    let missing = |reason| Count {
        mechanism: id.text(),
        bytes: shape.bytes as u64,
        receivers: shape.receivers,
        impossible: Some(reason),
        send_copies: 0.0,
        receive_copies: 0.0,
        send_calls: 0.0,
        receive_calls: 0.0,
        yields: 0.0,
    };
    match entries.iter().find_map(of) {
        Some(Ok(count)) => count,
        Some(Err(failure)) => missing(failure),
        None => missing(id.limit(shape).unwrap_or_else(none)),
    }
}
