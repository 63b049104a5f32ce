//! Completion queues.
//!
//! A queue holds almost nothing: a read handles what has arrived at its endpoints, and each end goes straight into the
//! program's array. What ends in other calls waits in `items`: sends that ended at once, failures, what another queue's
//! read has met, and what did not fit.

mod entry;
mod errors;
mod idle;
mod read;
mod read_error;
mod source;
mod tables;

use core::ffi::{CStr, c_int, c_void};
use std::collections::VecDeque;
use std::ffi::CString;

use corewire::Peer;
use corewire_ofi::cq::{
    CqAttr, FI_CQ_COND_THRESHOLD, FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_TAGGED, FI_CQ_FORMAT_UNSPEC,
    FidCq, TaggedEntry,
};
use corewire_ofi::fid::{FI_CLASS_CQ, FI_WAIT_NONE, Ops};
use corewire_ofi::flags::FI_AFFINITY;

pub(crate) use self::entry::{Format, Item, Shorter, Tagged};
pub(crate) use self::errors::Failure;
use self::idle::Idle;
pub(crate) use self::read::Sink;
pub(crate) use self::source::Source;
use crate::domain::DomainLink;
use crate::errors::{BAD_FLAGS, INVALID, NOT_SUPPORTED, Outcome};
use crate::host;
use crate::member::{Bound, Member, each};
use crate::memory::{get, put};
use crate::object::{self, Closed, Link, Object, fid_of};
use crate::refusals::{no_bind, ops};
use crate::wait::Waiter;

/// An endpoint whose ends go to a queue.
pub(crate) trait Reads: Member {
    /// Handles what has arrived, for the queue `me`, which is being read: entries have the format with tags.
    fn poll_tagged(&mut self, queue: &mut Queue, me: Link<Cq>, sink: &mut Sink) -> Outcome;

    /// The same, with entries of another format.
    fn poll_shorter(&mut self, queue: &mut Queue, me: Link<Cq>, sink: &mut Sink) -> Outcome;
}

/// A completion queue.
pub(crate) struct Cq {
    pub(crate) domain: DomainLink,
    endpoints: Vec<Bound<dyn Reads>>,
    /// Sets of [`poll`](crate::poll) that it is in.
    pub(crate) sets: usize,
    queue: Queue,
    idle: Idle,
    /// One of `FI_CQ_FORMAT_*`.
    format: c_int,
    /// One read ends one receive of a message without a tag.
    takes_one_untagged: bool,
    waiter: Option<Waiter>,
    /// A thread that waits shall return.
    is_signaled: bool,
    /// The version of the interface that the program asked for.
    api_version: u32,
    /// The text of the failure that was read last.
    text: CString,
}

/// The entries of a queue.
#[derive(Default)]
pub(crate) struct Queue {
    /// Those that wait.
    items: VecDeque<Item>,
    /// Sources to look up of those that are being read: their places in the program's array.
    unknown: Vec<(usize, Peer, Bound<dyn Member>)>,
}

impl Object for Cq {
    type Head = FidCq;
    const CLASS: usize = FI_CLASS_CQ;

    fn ops() -> &'static Ops {
        static OPS: Ops = ops(tables::close, no_bind, tables::control);
        &OPS
    }

    fn closed() -> &'static Closed<Self> {
        static CLOSED: Closed<Cq> = Closed::new();
        &CLOSED
    }
}

/// `fi_cq_open`.
///
/// # Safety
/// The pointers are what the program passed: attributes, and room for a pointer.
pub(crate) unsafe fn open(
    domain: DomainLink,
    attr: *mut CqAttr,
    cq: *mut *mut FidCq,
    context: *mut c_void,
) -> Outcome {
    // SAFETY: the caller guarantees that.
    let given = unsafe { get(attr.cast_const()) }?;
    if !(FI_CQ_FORMAT_UNSPEC..=FI_CQ_FORMAT_TAGGED).contains(&given.format) {
        return Err(INVALID);
    }
    if given.flags & corewire_ofi::flags::FI_PEER != 0 {
        return Err(NOT_SUPPORTED);
    }
    if given.flags & !FI_AFFINITY != 0 {
        return Err(BAD_FLAGS);
    }
    // Only a queue that somebody waits for reads the condition.
    if given.wait_obj != FI_WAIT_NONE && !(0..=FI_CQ_COND_THRESHOLD).contains(&given.wait_cond) {
        return Err(INVALID);
    }
    let format = match given.format {
        FI_CQ_FORMAT_UNSPEC => FI_CQ_FORMAT_CONTEXT,
        format => format,
    };
    let waiter = Waiter::open(given.wait_obj)?;
    // SAFETY: the attributes are the program's; libfabric lets providers set the format.
    unsafe { (*attr).format = format };
    // SAFETY: the caller has entered the domain.
    let shared = unsafe { domain.share() };
    shared.add();
    let mpi = host::mpi();
    let body = Cq {
        domain,
        endpoints: Vec::new(),
        sets: 0,
        queue: Queue::default(),
        idle: Idle::new(mpi),
        format,
        takes_one_untagged: mpi.takes_one_untagged(),
        waiter,
        is_signaled: false,
        api_version: shared.api_version,
        text: CString::default(),
    };
    let head = FidCq { fid: fid_of::<Cq>(context), ops: tables::table(format, domain.gate()) };
    // SAFETY: the caller guarantees that there is room.
    unsafe { put(cq, object::open(head, domain.gate(), body)) }
}

impl Cq {
    /// Reads ends of an endpoint's operations from now on.
    pub(crate) fn bind(&mut self, endpoint: Bound<dyn Reads>) {
        if !self.endpoints.iter().any(|bound| bound.is(endpoint)) {
            self.endpoints.push(endpoint);
        }
    }

    pub(crate) fn unbind(&mut self, endpoint: Bound<dyn Reads>) {
        self.endpoints.retain(|bound| !bound.is(endpoint));
        for item in &mut self.queue.items {
            item.forget(endpoint);
        }
    }

    /// Waits for an endpoint that has begun, too.
    pub(crate) fn watch(&self, endpoint: &corewire::Endpoint) -> Outcome {
        self.waiter.as_ref().map_or(Ok(()), |waiter| waiter.add(endpoint.readiness()))
    }

    pub(crate) fn unwatch(&self, endpoint: &corewire::Endpoint) {
        if let Some(waiter) = &self.waiter {
            waiter.remove(endpoint.readiness());
        }
    }

    /// Adds an entry that another call than this queue's read has met.
    #[inline]
    pub(crate) fn push(&mut self, item: Item) {
        self.queue.items.push_back(item);
        if let Some(waiter) = &self.waiter {
            waiter.wake();
        }
    }

    /// Adds the entry of an operation that ended in its call.
    #[inline]
    pub(crate) fn push_entry(&mut self, entry: TaggedEntry) {
        self.push(Item::Done { entry, source: Source::None });
    }

    /// The text of the failure that was read last.
    fn text(&self) -> &CStr {
        &self.text
    }
}

/// A queue, whose endpoints add entries while it looks at them: nothing refers to its state meanwhile.
impl Link<Cq> {
    /// Whether there is an entry, after what has arrived was handled.
    ///
    /// # Safety
    /// As for [`each`].
    pub(crate) unsafe fn has_something(self) -> Outcome<bool> {
        // SAFETY: the caller guarantees that.
        let is_empty = || unsafe { self.share() }.queue.items.is_empty();
        if is_empty() {
            // SAFETY: as above.
            unsafe {
                each(self, |it: &Cq| &it.endpoints, |endpoint| endpoint.progress().map(|()| true))
            }?;
        }
        Ok(!is_empty())
    }

    /// For `fi_trywait`.
    ///
    /// # Safety
    /// As for [`each`].
    pub(crate) unsafe fn may_wait(self) -> Outcome<bool> {
        // SAFETY: the caller guarantees that.
        unsafe { self.share() }.waiter.as_ref().ok_or(INVALID)?.silence();
        // SAFETY: as above.
        if unsafe { self.has_something() }? {
            return Ok(false);
        }
        // SAFETY: as above.
        unsafe { each(self, |it: &Cq| &it.endpoints, |endpoint| endpoint.arm()) }
    }
}
