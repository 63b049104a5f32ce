//! A trace of everybody who has a link with this monitor: who asks for one, and where the others record.
//!
//! ```text
//!  corewire trace --Trace--> monitor --Trace--> program
//!                 <--Ready--         <--Traced, with its memory--
//!        ... until it asks for the memory, or its connection ends ...
//!                 --Ask-->
//!                 <--Traced, once for each-- <--Answer--
//! ```

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};

use corewire_bind::circuit::trace;
use corewire_layout::circuit::packet::Packet;
use corewire_route::{LinkId, Neighbour};

use crate::connections::What;
use crate::monitor::Monitor;

/// Programs whose memory is kept.
const KEPT_MAX: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct Tracing {
    /// Connections that have asked for a trace.
    askers: BTreeSet<u64>,
    memory: Vec<OwnedFd>,
}

impl Monitor {
    /// Somebody asks for a trace, or wants no more.
    pub(crate) fn trace(&mut self, key: u64, is_on: bool) {
        let was_on = !self.tracing.askers.is_empty();
        let has_changed = match is_on {
            true => self.tracing.askers.insert(key) && !was_on,
            false => self.tracing.askers.remove(&key) && self.tracing.askers.is_empty(),
        };
        if !has_changed {
            return;
        }
        self.out.traced.is_on = is_on;
        if is_on {
            self.tracing.memory =
                trace::start(&format!("monitor {}", self.id())).into_iter().collect();
        } else {
            trace::stop();
        }
        let programs = self.node.links().filter(|one| is_program(one.neighbour));
        for link in programs.map(|one| one.link).collect::<Vec<_>>() {
            self.tell_trace(link, is_on);
        }
    }

    /// A program has become a neighbour.
    pub(crate) fn trace_too(&mut self, link: LinkId, neighbour: Neighbour) {
        if self.out.traced.is_on && is_program(neighbour) {
            self.tell_trace(link, true);
        }
    }

    fn tell_trace(&mut self, link: LinkId, is_on: bool) {
        if let Some(key) = self.out.link(link).map(|link| link.control) {
            self.out.send(key, &Packet::Trace { is_on }, Vec::new());
        }
    }

    /// A program records in this memory.
    pub(crate) fn traced(&mut self, memory: Vec<OwnedFd>) {
        if self.tracing.memory.len() < KEPT_MAX {
            self.tracing.memory.extend(memory.into_iter().take(1));
        }
    }

    /// Gives an asker the memory of everybody.
    pub(crate) fn show_traces(&mut self, key: u64) {
        let copies = |memory: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(memory.as_fd(), 0).ok();
        let all: Vec<OwnedFd> = self.tracing.memory.iter().filter_map(copies).collect();
        for memory in all {
            self.out.send(key, &Packet::Traced, vec![memory]);
        }
        self.out.send(key, &Packet::Answer { is_last: true, part: Vec::new() }, Vec::new());
    }

    /// A connection has ended: so does the trace that it has asked for.
    pub(crate) fn end_trace_of(&mut self, key: u64) {
        if matches!(self.out.connections.get(&key).map(|one| one.what), Some(What::Asking) | None) {
            self.trace(key, false);
        }
    }
}

const fn is_program(neighbour: Neighbour) -> bool {
    matches!(neighbour, Neighbour::Program(_))
}
