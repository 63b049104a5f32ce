//! What is reported to a `tracing` subscriber. A process of its own: it has one subscriber.

mod scratch;

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corewire::{ReceiveError, SendError};
use scratch::Scratch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Records a line for each span and event.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = match field.name() {
            "message" => format!("{value:?}"),
            name => format!(" {name}={value:?}"),
        };
        self.0.push_str(&text);
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "corewire"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(format!("span {}", span.metadata().name()));
        span.record(&mut line);
        self.0.lock().unwrap().push(line.0);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} ", event.metadata().level()));
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Listener {
    fn await_line(&self, parts: &[&str]) {
        let is_it = |line: &String| parts.iter().all(|part| line.contains(part));
        while !self.0.lock().unwrap().iter().any(is_it) {
            std::thread::yield_now();
        }
    }
}

// Keeps P61.
#[test]
fn joins_leaves_evictions_and_refusals_are_told() {
    let listener = Listener::default();
    // Global, so that it covers the control thread too.
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let scratch = Scratch::new("tracing");
    let domain = scratch.domain();
    let channel = domain.sender("told").slots(16).receivers(1);
    let mut sender = channel.evict(Duration::from_millis(1)).create().unwrap();
    let receiver = domain.receiver("told").snapshots().join().unwrap();
    listener.await_line(&["span join", "channel=told"]);
    listener.await_line(&["INFO a receiver joined", "channel=told", "row=0", "pid="]);
    assert!(domain.receiver("told").snapshots().join().is_err());
    listener.await_line(&["INFO a receiver was refused", "channel=told", "reason="]);
    drop(receiver);
    listener.await_line(&["INFO a receiver left", "channel=told", "row=0"]);
    let mut stalled = loop {
        match domain.receiver("told").snapshots().join() {
            Ok(receiver) => break receiver,
            Err(_) => std::thread::yield_now(),
        }
    };
    for _ in 0..32 {
        assert_ne!(sender.send(b"who reads?"), Err(SendError::Forked));
    }
    listener.await_line(&["WARN a receiver was evicted", "channel=told", "row=0"]);
    drop(sender);
    listener.await_line(&["INFO the sender is gone", "channel=told"]);
    let end = loop {
        if let Err(error) = stalled.receive().map(drop) {
            break error;
        }
    };
    assert_eq!(end, ReceiveError::Evicted);
}
