//! `fi_cq_read`: the data path of receives.

use core::ffi::{c_int, c_void};
use std::collections::HashSet;

use corewire::Peer;
use corewire_ofi::cq::TaggedEntry;
use corewire_ofi::errors::FI_EAVAIL;
use corewire_ofi::flags::{FI_MSG, FI_RECV};
use corewire_ofi::{FI_ADDR_NOTAVAIL, FiAddr};

use super::entry::Format;
use super::{Cq, Item, Queue, Reads, Source};
use crate::errors::{AGAIN, Errno, INVALID};
use crate::fork;
use crate::member::{Bound, Member};
use crate::object::Link;

/// The flags of a receive of a message without a tag.
const UNTAGGED: u64 = FI_RECV | FI_MSG;

/// Where a read writes entries.
pub(crate) struct Sink {
    at: *mut c_void,
    /// Entries for which there is room.
    left: usize,
    count: usize,
    /// Where sources go; null if nobody asks.
    from: *mut FiAddr,
    format: c_int,
    takes_one_untagged: bool,
}

impl Sink {
    /// Entries for which there is room.
    #[inline(always)]
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Nothing more goes there: what follows must come after what waits in the queue.
    pub(crate) fn close(&mut self) {
        self.left = 0;
    }

    /// Whether the program asks for sources.
    #[inline(always)]
    pub(crate) fn wants_sources(&self) -> bool {
        !self.from.is_null()
    }

    /// Writes an entry. There must be room.
    #[inline(always)]
    pub(crate) fn write<F: Format>(&mut self, entry: &TaggedEntry) {
        debug_assert!(self.left > 0);
        // SAFETY: the program passes room for as many entries as it says.
        unsafe { F::write(self.format, self.at, entry) };
        self.at = self.at.wrapping_byte_add(F::bytes(self.format));
        self.count += 1;
        self.left -= 1;
    }

    /// Writes an entry that is not the usual one, if there is room.
    pub(crate) fn write_other<F: Format>(
        &mut self,
        entry: &TaggedEntry,
        source: Source,
        queue: &mut Queue,
    ) -> bool {
        if self.left == 0 {
            return false;
        }
        self.write::<F>(entry);
        if self.wants_sources() {
            self.tell_source(source, queue);
        }
        if self.takes_one_untagged && entry.flags & UNTAGGED == UNTAGGED {
            self.close();
        }
        true
    }

    /// Writes the source of the last entry.
    #[cold]
    pub(crate) fn tell_source(&mut self, source: Source, queue: &mut Queue) {
        let index = self.count - 1;
        let number = match source {
            Source::Known(number) => number,
            Source::None => FI_ADDR_NOTAVAIL,
            Source::Unknown(peer, endpoint) => {
                queue.unknown.push((index, peer, endpoint));
                FI_ADDR_NOTAVAIL
            }
        };
        self.put_source(index, number);
    }

    fn put_source(&self, index: usize, number: FiAddr) {
        // SAFETY: the program passes room for as many sources as entries.
        let at = unsafe { self.from.add(index) };
        // SAFETY: as above.
        unsafe { at.write(number) };
    }

    /// Looks up the sources that the address vector may have, now that no endpoint is in use.
    #[cold]
    fn look_up(&mut self, unknown: &mut Vec<(usize, Peer, Bound<dyn Member>)>) {
        for (index, peer, endpoint) in unknown.drain(..) {
            // SAFETY: the gate of the domain is that of its endpoints.
            let number = unsafe { endpoint.get() }.number_of(peer);
            self.put_source(index, number.unwrap_or(FI_ADDR_NOTAVAIL));
        }
    }
}

impl Cq {
    /// Reads entries into the program's array; returns their number, or an error.
    #[inline(always)]
    pub(super) fn read<F: Format>(
        &mut self,
        me: Link<Self>,
        at: *mut c_void,
        count: usize,
        from: *mut FiAddr,
    ) -> isize {
        if at.is_null() && count > 0 {
            return INVALID.negative();
        }
        let Self { format, takes_one_untagged, .. } = *self;
        let mut sink = Sink { at, left: count, count: 0, from, format, takes_one_untagged };
        let mut looks = 1;
        if self.queue.items.is_empty() {
            looks = self.looks();
        } else if let Some(end) = self.read_items::<F>(&mut sink) {
            return end;
        }
        loop {
            for endpoint in &self.endpoints {
                // SAFETY: the gate of the domain is that of its endpoints, and no other reference to it is in use.
                let endpoint = unsafe { endpoint.get() };
                let polled = if F::IS_TAGGED {
                    endpoint.poll_tagged(&mut self.queue, me, &mut sink)
                } else {
                    endpoint.poll_shorter(&mut self.queue, me, &mut sink)
                };
                if let Err(error) = polled {
                    return error.negative();
                }
            }
            if sink.count > 0 {
                return self.found(&mut sink);
            }
            looks -= 1;
            if looks == 0 || !self.queue.items.is_empty() {
                return self.found_nothing().negative();
            }
            std::hint::spin_loop();
        }
    }

    #[inline(always)]
    fn found(&mut self, sink: &mut Sink) -> isize {
        self.idle.found();
        if sink.wants_sources() {
            sink.look_up(&mut self.queue.unknown);
        }
        sink.count as isize
    }

    /// How often this read looks.
    #[inline(always)]
    fn looks(&self) -> u32 {
        let looks = self.idle.looks();
        if looks > 1 && !self.has_posted() { 1 } else { looks }
    }

    /// Whether an endpoint waits for a message with a tag.
    fn has_posted(&self) -> bool {
        // SAFETY: the gate of the domain is that of its endpoints, and no other reference to it is in use.
        self.endpoints.iter().any(|endpoint| unsafe { endpoint.get() }.has_posted())
    }

    #[inline(always)]
    fn found_nothing(&mut self) -> Errno {
        if !self.queue.items.is_empty() {
            return self.queue.head();
        }
        if self.endpoints.is_empty()
            && let Err(error) = fork::check()
        {
            return error;
        }
        if self.idle.found_nothing() {
            let Self { idle, endpoints, .. } = self;
            idle.pause(|| ranks(endpoints), super::idle::yields);
        }
        AGAIN
    }

    /// Reads entries that wait, up to the first failure: they are older than what arrives now. `None` if the endpoints must
    /// be looked at.
    #[cold]
    fn read_items<F: Format>(&mut self, sink: &mut Sink) -> Option<isize> {
        if let Err(error) = fork::check() {
            return Some(error.negative());
        }
        let mut items = std::mem::take(&mut self.queue.items);
        while let Some(Item::Done { entry, source }) = items.front() {
            if !sink.write_other::<F>(entry, *source, &mut self.queue) {
                break;
            }
            items.pop_front();
        }
        self.queue.items = items;
        if sink.count > 0 {
            return Some(self.found(sink));
        }
        match self.queue.items.front() {
            Some(Item::Failed(_)) => Some(Errno(FI_EAVAIL).negative()),
            // There is no room for an entry: the program only wants progress.
            _ => None,
        }
    }
}

impl Queue {
    /// What a read says that has met the head of the queue and returns nothing.
    #[cold]
    fn head(&self) -> Errno {
        match self.items.front() {
            Some(Item::Failed(_)) => Errno(FI_EAVAIL),
            _ => AGAIN,
        }
    }

    /// Adds an entry while the queue is being read.
    pub(crate) fn push(&mut self, item: Item) {
        self.items.push_back(item);
    }
}

/// Number of processes that these endpoints are linked with, and this one.
fn ranks(endpoints: &[Bound<dyn Reads>]) -> usize {
    let mut processes = HashSet::new();
    for endpoint in endpoints {
        // SAFETY: the gate of the domain is that of its endpoints, and no other reference to it is in use.
        unsafe { endpoint.get() }.add_processes(&mut processes);
    }
    processes.len().max(1)
}
