//! A trace of everybody who has a link with this monitor: who asks for one, and where the others record.
//!
//! ```text
//!  corewire trace --Trace--> monitor --Trace--> program
//!                 <--Ready--         <--Traced, with its memory--
//!        ... until it asks for the memory, or its connection ends ...
//!                 --Ask-->
//!                 <--Traced, once for each-- <--Answer--
//! ```

use super::closer::{Handed, Whose};
use super::state::{Monitor, Tracing};
use crate::link::trace;
use crate::node::{LinkId, Neighbour};
use crate::wire::packet::Packet;

/// Programs whose memory is kept.
const KEPT_MAX: usize = 512;

impl Monitor {
    /// Somebody asks for a trace, or wants no more.
    pub(crate) fn trace(&mut self, key: u64, is_on: bool) {
        self.tracing.askers.insert(key, is_on);
        self.set_tracing();
    }

    /// A connection has ended, and with it the trace that it has asked for.
    pub(crate) fn end_trace_of(&mut self, key: u64) {
        if self.tracing.askers.remove(&key).is_some() {
            self.set_tracing();
        }
    }

    fn set_tracing(&mut self) {
        let is_on = self.tracing.askers.values().any(|is_on| *is_on);
        if self.tracing.askers.is_empty() {
            self.tracing.memory.clear();
            self.tracing.own = None;
        }
        if is_on == std::mem::replace(&mut self.out.traced.is_on, is_on) {
            return;
        }
        if is_on {
            let memory = trace::start(&format!("monitor {}", self.id()));
            self.tracing.is_recording = memory.is_ok();
            let closer = self.out.closers.of(Whose::User(corewire_os::process::effective_uid()));
            // A process that records again does so in the same memory.
            self.tracing.own = Handed::all(memory.into_iter().collect(), &closer).pop();
        } else if std::mem::take(&mut self.tracing.is_recording) {
            trace::stop();
        }
        let programs = self.node.links().filter(|one| is_program(one.neighbour));
        for link in programs.map(|one| one.link).collect::<Vec<_>>() {
            self.send_trace(link, is_on);
        }
    }

    /// A program has become a neighbour.
    pub(crate) fn trace_too(&mut self, link: LinkId, neighbour: Neighbour) {
        if self.out.traced.is_on && is_program(neighbour) {
            self.send_trace(link, true);
        }
    }

    fn send_trace(&mut self, link: LinkId, is_on: bool) {
        if let Some(key) = self.out.link(link).map(|link| link.control) {
            self.out.send(key, &Packet::Trace { is_on }, Vec::new());
        }
    }

    /// A program records in this memory. Without a trace it is closed: the trace may have ended meanwhile.
    pub(crate) fn traced(&mut self, link: LinkId, memory: Vec<Handed>) {
        let Tracing { memory: all, .. } = &mut self.tracing;
        let is_known = all.iter().any(|(of, _)| *of == Some(link));
        if self.out.traced.is_on && !is_known && all.len() < KEPT_MAX {
            all.extend(memory.into_iter().take(1).map(|one| (Some(link), one)));
        }
    }

    /// A program that may have recorded is no neighbour any more.
    pub(crate) fn keep_trace_of(&mut self, link: LinkId) {
        for (of, _) in &mut self.tracing.memory {
            of.take_if(|of| *of == link);
        }
    }

    /// Gives an asker the memory of everybody.
    pub(crate) fn show_traces(&mut self, key: u64) {
        let Tracing { memory, own, .. } = &self.tracing;
        let all = own.iter().chain(memory.iter().map(|(_, memory)| memory));
        let copies = all.filter_map(Handed::copy);
        for memory in copies.collect::<Vec<_>>() {
            self.out.send(key, &Packet::Traced, vec![memory]);
        }
        self.out.send(key, &Packet::Answer { is_last: true, part: Vec::new() }, Vec::new());
    }
}

const fn is_program(neighbour: Neighbour) -> bool {
    matches!(neighbour, Neighbour::Program(_))
}
