//! Sends.

use core::ffi::c_void;

use corewire::{Endpoint, Envelope, Memory, MessageError, Options, Peer, Report, Until};
use corewire_ofi::FiAddr;
use corewire_ofi::flags::{
    FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_INJECT, FI_INJECT_COMPLETE, FI_MATCH_COMPLETE, FI_MORE,
    FI_REMOTE_CQ_DATA, FI_TRANSMIT_COMPLETE,
};

use super::Ep;
use super::ends::{Kind, sent};
use super::interrupted;
use crate::errors::{AGAIN, BAD_FLAGS, BAD_STATE, Errno, Outcome, TOO_LONG, of_message};
use crate::limits::{INJECT_BYTES_MAX, IOV_MAX, MESSAGE_BYTES_MAX};
use crate::memory::{Buffer, Buffers};
use crate::object::Link;

/// What a send may be asked for.
pub(crate) const FLAGS: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE
    | FI_MORE
    | FI_REMOTE_CQ_DATA;

/// How a send ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// Only sends with `FI_COMPLETION` give an entry.
    pub(super) is_selective: bool,
    /// It gives an entry.
    pub(super) is_told: bool,
    until: Until,
    /// The buffer is free when the call returns.
    pub(super) is_injected: bool,
}

impl Manner {
    pub(super) fn new(is_selective: bool, flags: u64) -> Self {
        let until = if flags & FI_MATCH_COMPLETE != 0 {
            Until::Matched
        } else if flags & FI_DELIVERY_COMPLETE != 0 {
            Until::Delivered
        } else {
            Until::Copied
        };
        let is_told = !is_selective || flags & FI_COMPLETION != 0;
        Self { is_selective, is_told, until, is_injected: flags & FI_INJECT != 0 }
    }

    /// Whether a message may have this length.
    #[inline(always)]
    fn check(self, bytes: usize) -> Outcome {
        let most = if self.is_injected { INJECT_BYTES_MAX } else { MESSAGE_BYTES_MAX };
        if bytes > most { Err(TOO_LONG) } else { Ok(()) }
    }

    /// Whether a short message may end in its call: when it is copied, to a peer of which is known that it is there.
    #[inline(always)]
    fn ends_in_its_call(self, endpoint: &Endpoint, peer: Peer) -> bool {
        self.until == Until::Copied && endpoint.is_linked(peer)
    }

    /// The same for a call with these flags.
    pub(super) fn with(self, flags: u64) -> Outcome<Self> {
        if flags & !FLAGS != 0 {
            return Err(BAD_FLAGS);
        }
        Ok(Self::new(self.is_selective, flags))
    }
}

/// A send as a call describes it.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) to: FiAddr,
    pub(super) envelope: Envelope,
    pub(super) context: *mut c_void,
    pub(super) kind: Kind,
}

impl Ep {
    /// Sends a message whose buffer is free when the call returns, and that gives no entry.
    #[inline(always)]
    pub(super) fn inject(
        &mut self,
        to: FiAddr,
        envelope: Envelope,
        buffer: Buffer,
        kind: Kind,
    ) -> Outcome {
        if buffer.bytes > INJECT_BYTES_MAX {
            return Err(TOO_LONG);
        }
        let peer = self.peer(to)?;
        let Some(endpoint) = &mut self.endpoint else { return Err(BAD_STATE) };
        // SAFETY: the program passes memory that it does not write during the call.
        let bytes = unsafe { buffer.as_slice() };
        match endpoint.try_send(peer, envelope, bytes) {
            Ok(()) => {
                if self.ends.tx_counter.is_some() {
                    self.ends.count(kind, true);
                }
                Ok(())
            }
            Err(error) => Err(self.refuse(&error)),
        }
    }

    /// A message was not sent.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, error: &MessageError) -> Errno {
        let error = of_message(error);
        if error == AGAIN
            && let Some(endpoint) = &mut self.endpoint
            // The program may try again without another call in between, and asks for nothing meanwhile: all that has
            // arrived is taken in, and its peer goes on.
            && let Err(error) = endpoint.progress()
            && let Err(error) = interrupted(&error)
        {
            return error;
        }
        error
    }

    /// Sends one buffer.
    #[inline(always)]
    pub(super) fn send(&mut self, buffer: Buffer, request: &Request) -> Outcome {
        self.send_as(buffer, request, self.sending)
    }

    /// Sends one buffer, in a manner of the call's own.
    pub(super) fn send_as(&mut self, buffer: Buffer, request: &Request, manner: Manner) -> Outcome {
        manner.check(buffer.bytes)?;
        let peer = self.peer(request.to)?;
        let endpoint = self.endpoint()?;
        if buffer.bytes <= INJECT_BYTES_MAX && manner.ends_in_its_call(endpoint, peer) {
            // SAFETY: the program passes memory that it does not write during the call.
            let bytes = unsafe { buffer.as_slice() };
            let ended = endpoint.try_send(peer, request.envelope, bytes);
            if let Some(outcome) = self.end_of(ended, request, manner) {
                return outcome;
            }
        }
        let memory = if manner.is_injected {
            // SAFETY: as above.
            Memory::from(unsafe { buffer.as_slice() })
        } else {
            // SAFETY: the program keeps the memory as it is until the operation has ended.
            unsafe { buffer.pinned() }
        };
        self.begin(peer, memory, request, manner)
    }

    /// Sends several buffers as one message.
    pub(super) fn send_several(
        &mut self,
        buffers: &Buffers,
        request: &Request,
        manner: Manner,
    ) -> Outcome {
        if let Some(buffer) = buffers.single() {
            return self.send_as(buffer, request, manner);
        }
        manner.check(buffers.bytes)?;
        let peer = self.peer(request.to)?;
        let endpoint = self.endpoint()?;
        if buffers.bytes <= INJECT_BYTES_MAX && manner.ends_in_its_call(endpoint, peer) {
            let mut parts = [&[][..]; IOV_MAX];
            for (part, buffer) in parts.iter_mut().zip(buffers.parts()) {
                // SAFETY: the program passes memory that it does not write during the call.
                *part = unsafe { buffer.as_slice() };
            }
            let parts = &parts[..buffers.parts().len()];
            let ended = endpoint.now().send_gather(peer, request.envelope, parts);
            if let Some(outcome) = self.end_of(ended, request, manner) {
                return outcome;
            }
        }
        let memory = if manner.is_injected {
            // SAFETY: as above.
            unsafe { buffers.copy() }.into()
        } else {
            // SAFETY: the program keeps the memory as it is until the operation has ended.
            unsafe { buffers.pinned() }
        };
        self.begin(peer, memory, request, manner)
    }

    /// The outcome of a send that was tried in its call; `None` if it must be pending.
    #[inline(always)]
    fn end_of(
        &mut self,
        ended: Result<(), MessageError>,
        request: &Request,
        manner: Manner,
    ) -> Option<Outcome> {
        match ended {
            Ok(()) => {
                self.ends.count(request.kind, true);
                if manner.is_told
                    && let Some(cq) = self.ends.tx
                {
                    // SAFETY: the gate of the domain is that of its queues, and none is being read.
                    unsafe { Link::get(cq) }.push_entry(sent(request.context, request.kind));
                }
                Some(Ok(()))
            }
            Err(error) => self.failed(&error, request),
        }
    }

    #[cold]
    fn failed(&mut self, error: &MessageError, request: &Request) -> Option<Outcome> {
        match of_message(error) {
            AGAIN => None,
            // Not an error of this operation.
            other if matches!(error, MessageError::Forked) => Some(Err(other)),
            _ => {
                self.ends.fail(request.kind, request.context, error);
                Some(Ok(()))
            }
        }
    }

    /// Begins a send that goes on after its call.
    fn begin(&mut self, peer: Peer, memory: Memory, request: &Request, manner: Manner) -> Outcome {
        let Request { envelope, context, kind, .. } = *request;
        let report = if manner.is_told || self.ends.tx_counter.is_some() {
            Report::Queue
        } else {
            Report::ErrorsOnly
        };
        let until = manner.until;
        let number = kind.number(context, manner.is_told);
        let options = Options { context: number, report, until, ..Options::default() };
        let endpoint = self.endpoint()?;
        match endpoint.isend_with(peer, envelope, memory, options) {
            Ok(handle) => {
                if manner.is_told {
                    super::receive::lend(context, handle, std::ptr::null_mut());
                }
                Ok(())
            }
            Err(error) => match of_message(&error) {
                AGAIN => Err(self.refuse(&error)),
                other if matches!(error, MessageError::Forked) => Err(other),
                _ => {
                    self.ends.fail(kind, context, &error);
                    Ok(())
                }
            },
        }
    }
}
