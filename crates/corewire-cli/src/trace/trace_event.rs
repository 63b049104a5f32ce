//! The Trace Event Format, in JSON, which Chromium, speedscope and others read.

use serde_json::{Value, json};

use super::timeline::{Slice, Timeline, arrow_of, name_of};
use crate::failure::Failure;

/// The timeline as a file in the Trace Event Format.
pub(super) fn encode(timeline: &Timeline) -> Result<Vec<u8>, Failure> {
    let mut events = Vec::new();
    for party in &timeline.parties {
        events.push(json!({
            "ph": "M", "name": "process_name", "pid": party.pid, "tid": 0,
            "args": { "name": party.name },
        }));
        for slice in &party.events {
            add(party.pid, slice, &mut events);
        }
    }
    let all = json!({ "traceEvents": events, "displayTimeUnit": "ns" });
    serde_json::to_vec(&all).map_err(Failure::other)
}

fn add(pid: u32, slice: &Slice, events: &mut Vec<Value>) {
    let Slice { event, began_ns, ended_ns } = *slice;
    let (name, thread) = (name_of(event.kind), event.thread);
    let (began, took) = (microseconds(began_ns), microseconds(ended_ns - began_ns));
    events.push(json!({
        "ph": "X", "cat": "circuit", "name": name, "pid": pid, "tid": thread, "ts": began, "dur": took,
        "args": { "ordinal": event.ordinal, "bytes": event.bytes },
    }));
    // An arrow begins where a frame went, and ends where it came.
    for (point, phase) in [(event.went, "s"), (event.came, "f")] {
        if let Some(point) = point {
            events.push(json!({
                "ph": phase, "bp": "e", "cat": "circuit", "name": "frame", "pid": pid, "tid": thread,
                "ts": began, "id": format!("{:x}", arrow_of(point)),
            }));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53 nanoseconds")]
fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1000.0
}
