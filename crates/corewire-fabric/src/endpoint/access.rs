//! Access to a peer's memory.
//!
//! A copy that the kernel makes ends in its call. Everything else, atomic operations above all, goes on after it, and ends
//! when the peer has answered: see [`Endpoint::expose`](corewire::Endpoint::expose).

use core::ffi::c_void;

use corewire::{Memory, MessageError, Options, Peer, RemoteChange, RemotePart, Report};
use corewire_ofi::FiAddr;
use corewire_ofi::flags::{
    FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_FENCE, FI_INJECT, FI_INJECT_COMPLETE,
    FI_MATCH_COMPLETE, FI_MORE, FI_TRANSMIT_COMPLETE,
};
use corewire_ofi::rma::RmaIov;

use super::ends::{Kind, sent};
use super::{Ep, send};
use crate::errors::{AGAIN, BAD_FLAGS, INVALID, Outcome, TOO_LONG, of_message};
use crate::limits::{INJECT_BYTES_MAX, IOV_MAX};
use crate::memory::Buffers;
use crate::object::Link;

/// What an access may be asked for. It ends when it is done at the peer, whatever is asked for, and after those before it.
const FLAGS: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE
    | FI_FENCE
    | FI_MORE;

/// Accesses to one peer that may be under way: a program that begins another one tries again.
const UNDER_WAY_MAX: usize = 1024;

/// An access as a call describes it.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub(super) to: FiAddr,
    pub(super) context: *mut c_void,
    pub(super) kind: Kind,
    /// It gives an entry.
    pub(super) is_told: bool,
    /// Its operands are free when the call returns.
    pub(super) is_injected: bool,
}

impl Access {
    /// One that gives no entry, and whose operands are free when its call returns.
    pub(super) const fn silent(to: FiAddr, kind: Kind) -> Self {
        let context = std::ptr::null_mut();
        Self { to, context, kind, is_told: false, is_injected: true }
    }
}

/// Parts of a peer's memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    parts: [RemotePart; IOV_MAX],
    count: usize,
    bytes: u64,
}

const NOTHING: RemotePart = RemotePart { key: 0, offset: 0, bytes: 0 };

impl Parts {
    #[inline]
    pub(super) fn one(key: u64, offset: u64, bytes: usize) -> Self {
        let mut parts = [NOTHING; IOV_MAX];
        parts[0] = RemotePart { key, offset, bytes: bytes as u64 };
        Self { parts, count: 1, bytes: bytes as u64 }
    }

    /// Those that a program listed.
    pub(super) fn listed(listed: impl ExactSizeIterator<Item = RemotePart>) -> Outcome<Self> {
        let mut all = Self { parts: [NOTHING; IOV_MAX], count: listed.len(), bytes: 0 };
        if all.count > IOV_MAX {
            return Err(INVALID);
        }
        for (to, part) in all.parts.iter_mut().zip(listed) {
            all.bytes = all.bytes.checked_add(part.bytes).ok_or(TOO_LONG)?;
            *to = part;
        }
        Ok(all)
    }

    /// The stretches that a program listed.
    ///
    /// # Safety
    /// `iov` is null or has `count` entries.
    pub(super) unsafe fn new(iov: *const RmaIov, count: usize) -> Outcome<Self> {
        if count > IOV_MAX || (iov.is_null() && count > 0) {
            return Err(INVALID);
        }
        let part = |index| {
            // SAFETY: the caller guarantees that there are `count` entries.
            let at = unsafe { iov.add(index) };
            // SAFETY: as above.
            let RmaIov { addr: offset, len, key } = unsafe { at.read() };
            RemotePart { key, offset, bytes: len as u64 }
        };
        Self::listed((0..count).map(part))
    }

    fn parts(&self) -> &[RemotePart] {
        &self.parts[..self.count]
    }
}

/// The buffers of an atomic operation.
pub(super) struct Operands<'a> {
    /// What numbers are changed by, or replaced with.
    pub(super) operands: &'a Buffers,
    /// What they are compared with.
    pub(super) compared: &'a Buffers,
    /// Where those go that were there before.
    pub(super) results: &'a Buffers,
}

impl Ep {
    /// How an access ends whose call has no flags.
    #[inline]
    pub(super) fn access(&self, to: FiAddr, context: *mut c_void, kind: Kind) -> Access {
        let send::Manner { is_told, is_injected, .. } = self.sending;
        let is_injected = is_injected && kind == Kind::Write;
        Access { to, context, kind, is_told, is_injected }
    }

    /// The same with these flags.
    pub(super) fn access_with(
        &self,
        to: FiAddr,
        context: *mut c_void,
        kind: Kind,
        flags: u64,
    ) -> Outcome<Access> {
        if flags & !FLAGS != 0 {
            return Err(BAD_FLAGS);
        }
        let is_told = !self.sending.is_selective || flags & FI_COMPLETION != 0;
        let is_injected = flags & FI_INJECT != 0 && kind == Kind::Write;
        Ok(Access { to, context, kind, is_told, is_injected })
    }

    /// Copies the program's buffers to a peer's memory.
    pub(super) fn put(&mut self, buffers: &Buffers, parts: &Parts, access: &Access) -> Outcome {
        check_lengths(buffers, parts, access)?;
        let peer = self.peer(access.to)?;
        // SAFETY: the program passes memory that it does not write during the call.
        let slices = unsafe { buffers.slices() };
        let put = self.endpoint()?.try_put(peer, parts.parts(), &slices[..buffers.parts().len()]);
        if let Some(outcome) = self.end_of_access(put, access) {
            return outcome;
        }
        self.make_room(peer)?;
        let (memory, options) = (Self::memory_of(buffers, access), self.access_options(access));
        let began = self.endpoint()?.iput(peer, parts.parts(), memory, options);
        self.begun_access(began.map(drop), access)
    }

    /// The same, and gives the peer `data` with an entry, if there is any.
    pub(super) fn put_with_data(
        &mut self,
        buffers: &Buffers,
        parts: &Parts,
        access: &Access,
        data: Option<u64>,
    ) -> Outcome {
        let Some(data) = data else { return self.put(buffers, parts, access) };
        check_lengths(buffers, parts, access)?;
        let peer = self.peer(access.to)?;
        self.make_room(peer)?;
        let (memory, options) = (Self::memory_of(buffers, access), self.access_options(access));
        let endpoint = self.endpoint()?;
        let began = endpoint.iput_and_signal(peer, parts.parts(), memory, data, options);
        self.begun_access(began.map(drop), access)
    }

    /// The program's buffers, for a copy that goes on after its call.
    fn memory_of(buffers: &Buffers, access: &Access) -> Memory {
        if access.is_injected {
            // SAFETY: the program passes memory that it does not write during the call.
            unsafe { buffers.copy() }.into()
        } else {
            // SAFETY: the program keeps the memory as it is until the operation has ended.
            unsafe { buffers.pinned() }
        }
    }

    /// Copies from a peer's memory to the program's buffers.
    pub(super) fn get(&mut self, buffers: &Buffers, parts: &Parts, access: &Access) -> Outcome {
        check_lengths(buffers, parts, access)?;
        let peer = self.peer(access.to)?;
        let count = buffers.parts().len();
        // SAFETY: the program lends the memory for the call.
        let mut slices = unsafe { buffers.slices_mut() };
        let got = self.endpoint()?.try_get(peer, parts.parts(), &mut slices[..count]);
        if let Some(outcome) = self.end_of_access(got, access) {
            return outcome;
        }
        self.make_room(peer)?;
        // SAFETY: the program lends it until the operation has ended.
        let memory = unsafe { buffers.pinned() };
        let options = self.access_options(access);
        let began = self.endpoint()?.iget(peer, parts.parts(), memory, options);
        self.begun_access(began.map(drop), access)
    }

    /// Changes numbers in a peer's memory.
    pub(super) fn change(
        &mut self,
        change: RemoteChange,
        buffers: &Operands<'_>,
        parts: &Parts,
        access: &Access,
    ) -> Outcome {
        let peer = self.peer(access.to)?;
        self.make_room(peer)?;
        // Operands are short, or the call is slow anyway.
        let copy = |buffers: &Buffers, is_used: bool| -> Memory {
            if !is_used {
                return Memory::default();
            }
            // SAFETY: the program passes memory that it does not write during the call.
            unsafe { buffers.copy() }.into()
        };
        let count = change.operand_bytes(1);
        let operands = (copy(buffers.compared, count > 1), copy(buffers.operands, count > 0));
        let target = if change.tells() {
            // SAFETY: the program lends the memory until the operation has ended.
            unsafe { buffers.results.pinned() }
        } else {
            Memory::default()
        };
        let options = self.access_options(access);
        let endpoint = self.endpoint()?;
        let began = endpoint.ichange(peer, change, parts.parts(), operands, target, options);
        self.begun_access(began.map(drop), access)
    }

    /// Whether another access to this peer may begin. If too many are under way, goes on with them first.
    #[inline]
    fn make_room(&mut self, peer: Peer) -> Outcome {
        if self.endpoint()?.pending_accesses(peer) < UNDER_WAY_MAX {
            return Ok(());
        }
        if let Err(error) = self.endpoint()?.progress() {
            super::interrupted(&error)?;
        }
        if self.endpoint()?.pending_accesses(peer) < UNDER_WAY_MAX { Ok(()) } else { Err(AGAIN) }
    }

    fn access_options(&self, access: &Access) -> Options {
        let is_counted = self.ends.counter_of(access.kind).is_some();
        let report = if access.is_told || is_counted { Report::Queue } else { Report::ErrorsOnly };
        let context = access.kind.number(access.context, access.is_told);
        Options { context, report, ..Options::default() }
    }

    /// The outcome of an access that was tried in its call; `None` if it must be pending.
    #[inline]
    fn end_of_access(
        &mut self,
        ended: Result<bool, MessageError>,
        access: &Access,
    ) -> Option<Outcome> {
        match ended {
            Ok(true) => {
                self.ends.count(access.kind, true);
                if access.is_told
                    && let Some(cq) = self.ends.tx
                {
                    // SAFETY: the gate of the domain is that of its queues, and none is being read.
                    unsafe { Link::get(cq) }.push_entry(sent(access.context, access.kind));
                }
                Some(Ok(()))
            }
            Ok(false) => None,
            Err(error) => Some(self.begun_access(Err(error), access)),
        }
    }

    /// The outcome of a call that has begun an access, or has not.
    fn begun_access(&mut self, began: Result<(), MessageError>, access: &Access) -> Outcome {
        let Err(error) = began else { return Ok(()) };
        match (of_message(&error), &error) {
            (AGAIN, _) => Err(AGAIN),
            (
                other,
                MessageError::Forked
                | MessageError::PartsDiffer { .. }
                | MessageError::PartOfNumber { .. },
            ) => Err(other),
            _ => {
                self.ends.fail(access.kind, access.context, &error);
                Ok(())
            }
        }
    }
}

fn check_lengths(buffers: &Buffers, parts: &Parts, access: &Access) -> Outcome {
    if buffers.bytes as u64 != parts.bytes {
        Err(INVALID)
    } else if access.is_injected && buffers.bytes > INJECT_BYTES_MAX {
        Err(TOO_LONG)
    } else {
        Ok(())
    }
}
