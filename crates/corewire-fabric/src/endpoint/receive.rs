//! Receives.

use core::ffi::c_void;

use corewire::{MessageError, OperationHandle, Options, Report, Selector};
use corewire_ofi::errors::FI_ENOENT;
use corewire_ofi::fid::Context;
use corewire_ofi::flags::{FI_COMPLETION, FI_MORE, FI_MULTI_RECV};
use corewire_ofi::{FI_ADDR_UNSPEC, FiAddr};

use super::Ep;
use super::ends::{Kind, context_of};
use crate::errors::{BAD_FLAGS, BAD_STATE, Errno, INVALID, Outcome, of_message};
use crate::memory::{Buffer, Buffers, as_usize};

/// What a receive may be asked for.
pub(crate) const FLAGS: u64 = FI_COMPLETION | FI_MORE | FI_MULTI_RECV;

/// How a receive ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// Only receives with `FI_COMPLETION` give an entry.
    pub(super) is_selective: bool,
    /// It gives an entry.
    pub(super) is_told: bool,
    /// Its buffer takes many messages.
    pub(super) is_multi: bool,
}

impl Manner {
    pub(super) fn new(is_selective: bool, flags: u64) -> Self {
        let is_told = !is_selective || flags & FI_COMPLETION != 0;
        Self { is_selective, is_told, is_multi: flags & FI_MULTI_RECV != 0 }
    }

    /// The same for a call with these flags.
    pub(super) fn with(self, flags: u64) -> Outcome<Self> {
        if flags & !FLAGS != 0 { Err(BAD_FLAGS) } else { Ok(Self::new(self.is_selective, flags)) }
    }
}

/// Writes what a later call needs into the context that the program lends: the operation, to cancel it, and where its
/// buffer is.
#[inline(always)]
pub(super) fn lend(context: *mut c_void, handle: OperationHandle, buffer: *mut c_void) {
    if context.is_null() {
        return;
    }
    let handle = std::ptr::without_provenance_mut(as_usize(handle.to_bits()));
    // SAFETY: with mode FI_CONTEXT the context of an operation that is told of is such a structure.
    let lent = unsafe { &mut (*context.cast::<Context>()).internal };
    lent[0] = handle;
    if !buffer.is_null() {
        lent[1] = buffer;
    }
}

impl Ep {
    /// The receives of a call: their messages, and whose.
    #[inline(always)]
    pub(super) fn selector(&mut self, selector: Selector, from: FiAddr) -> Outcome<Selector> {
        if from == FI_ADDR_UNSPEC || !self.is_directed {
            return Ok(selector);
        }
        Ok(selector.from(self.peer(from)?))
    }

    #[inline(always)]
    fn options(&self, kind: Kind, context: *mut c_void, is_told: bool) -> Options {
        let is_counted = self.ends.rx_counter.is_some();
        let report = if is_told || is_counted { Report::Queue } else { Report::ErrorsOnly };
        let context = kind.number(context, is_told);
        Options { context, report, truncates: true, ..Options::default() }
    }

    /// Posts a receive of one message with a tag into one buffer.
    #[inline(always)]
    pub(super) fn receive_tagged(
        &mut self,
        selector: Selector,
        buffer: Buffer,
        context: *mut c_void,
    ) -> Outcome {
        let is_told = self.receiving.is_told;
        let options = self.options(Kind::TaggedReceive, context, is_told);
        let Some(endpoint) = &mut self.endpoint else { return Err(BAD_STATE) };
        // SAFETY: the program leaves the memory to the operation until it has ended.
        let memory = unsafe { buffer.pinned() };
        match endpoint.ireceive_with(selector, memory, options) {
            Ok(handle) => {
                self.ends.posted += 1;
                if is_told {
                    lend(context, handle, std::ptr::null_mut());
                }
                Ok(())
            }
            Err(error) => Err(of_message(&error)),
        }
    }

    /// Posts a receive of one message, or of many if the manner says so.
    pub(super) fn receive(
        &mut self,
        selector: Selector,
        buffers: &Buffers,
        context: *mut c_void,
        kind: Kind,
        manner: Manner,
    ) -> Outcome {
        if manner.is_multi {
            return self.receive_many(selector, buffers, context, kind, manner);
        }
        let options = self.options(kind, context, manner.is_told);
        // SAFETY: the program leaves the memory to the operation until it has ended.
        let memory = unsafe { buffers.pinned() };
        let begun = self.endpoint()?.ireceive_with(selector, memory, options);
        if kind == Kind::TaggedReceive && begun.is_ok() {
            self.ends.posted += 1;
        }
        self.begun(begun, context, manner.is_told, std::ptr::null_mut())
    }

    /// Posts a buffer that takes one message after the other.
    fn receive_many(
        &mut self,
        selector: Selector,
        buffers: &Buffers,
        context: *mut c_void,
        kind: Kind,
        manner: Manner,
    ) -> Outcome {
        let buffer = buffers.single().ok_or(INVALID)?;
        if kind != Kind::Receive || buffer.bytes == 0 || context.is_null() {
            return Err(INVALID);
        }
        // The release is told in any case.
        let mut options = self.options(Kind::MultiReceive, context, manner.is_told);
        options.report = Report::Queue;
        let least = self.min_multi_recv.max(1);
        // SAFETY: the program leaves the memory to the operation until it is released.
        let memory = unsafe { buffer.pinned() };
        let begun = self.endpoint()?.ireceive_many(selector, memory, least, options);
        self.begun(begun, context, true, buffer.at.as_ptr().cast())
    }

    fn begun(
        &mut self,
        begun: Result<OperationHandle, MessageError>,
        context: *mut c_void,
        is_told: bool,
        buffer: *mut c_void,
    ) -> Outcome {
        let handle = begun.map_err(|error| of_message(&error))?;
        if is_told {
            lend(context, handle, buffer);
        }
        Ok(())
    }

    /// `fi_cancel`.
    pub(super) fn cancel(&mut self, context: *mut c_void) -> Outcome {
        if context.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the program names the context of an operation that is told of.
        let at = unsafe { &raw const (*context.cast::<Context>()).internal[0] };
        // SAFETY: as above.
        let handle = OperationHandle::from_bits(unsafe { at.read() }.addr() as u64);
        let endpoint = self.endpoint()?;
        // A context that was never lent may hold anything.
        let number = endpoint.context_of(handle).map_err(|error| of_message(&error))?;
        if context_of(number) != context {
            return Err(Errno(FI_ENOENT));
        }
        endpoint.cancel(handle).map_err(|error| of_message(&error))
    }
}
