//! Looking for messages: peek, claim, discard.

use core::ffi::c_void;

use corewire::{Matched, MessageError, Options, Report, Selector, Status};
use corewire_ofi::errors::{FI_ENOENT, FI_ENOMSG};
use corewire_ofi::flags::{FI_CLAIM, FI_COMPLETION, FI_DISCARD, FI_MORE, FI_PEEK};

use super::Ep;
use super::ends::{Kind, received};
use super::receive::lend;
use crate::cq::{Failure, Item};
use crate::errors::{BAD_FLAGS, Errno, INVALID, Outcome, of_message};
use crate::memory::Buffers;

const KIND: Kind = Kind::TaggedReceive;
const FLAGS: u64 = FI_PEEK | FI_CLAIM | FI_DISCARD | FI_COMPLETION | FI_MORE;

/// Whether a receive looks for a message, or is about one that was found.
pub(super) fn is_peek(flags: u64) -> bool {
    flags & (FI_PEEK | FI_CLAIM | FI_DISCARD) != 0
}

impl Ep {
    /// Looks for a message, or receives or discards a claimed one.
    pub(super) fn peek(
        &mut self,
        selector: Selector,
        buffers: &Buffers,
        context: *mut c_void,
        flags: u64,
    ) -> Outcome {
        if flags & !FLAGS != 0 || flags & (FI_PEEK | FI_CLAIM) == 0 {
            return Err(BAD_FLAGS);
        }
        let (claims, discards) = (flags & FI_CLAIM != 0, flags & FI_DISCARD != 0);
        if claims && context.is_null() {
            return Err(INVALID);
        }
        if flags & FI_PEEK == 0 {
            return self.take_claimed(buffers, context, discards);
        }
        self.endpoint()?;
        let looked = match self.look(selector, context, claims, discards) {
            Err(error @ (MessageError::Forked | MessageError::Interrupted)) => {
                return Err(of_message(&error));
            }
            looked => looked,
        };
        let item = match looked {
            Ok(Some(status)) => self.found(context, &status),
            Ok(None) => Item::Failed(Failure::plain(context, KIND.flags(), Errno(FI_ENOMSG))),
            Err(error) => Item::Failed(Failure::new(context, KIND.flags(), &error)),
        };
        self.tell(item);
        Ok(())
    }

    fn look(
        &mut self,
        selector: Selector,
        context: *mut c_void,
        claims: bool,
        discards: bool,
    ) -> Result<Option<Status>, MessageError> {
        let Ok(endpoint) = self.endpoint() else { return Ok(None) };
        if !claims && !discards {
            return endpoint.now().probe(selector);
        }
        let Some(matched) = endpoint.now().claim(selector)? else { return Ok(None) };
        let status = matched.status;
        if discards {
            endpoint.discard_claimed(matched);
        } else if let Some(before) = endpoint.store_claim(number(context), matched) {
            // The program has used one context twice: the first claim is void.
            endpoint.give_back(before);
        }
        Ok(Some(status))
    }

    /// Receives or discards the message that was claimed with this context.
    fn take_claimed(&mut self, buffers: &Buffers, context: *mut c_void, discards: bool) -> Outcome {
        let options = Options {
            context: KIND.number(context, true),
            report: Report::Queue,
            truncates: true,
            ..Options::default()
        };
        let endpoint = self.endpoint()?;
        let matched: Matched = endpoint.take_claim(number(context)).ok_or(Errno(FI_ENOENT))?;
        if discards {
            let status = matched.status;
            endpoint.discard_claimed(matched);
            let item = self.found(context, &status);
            self.tell(item);
            return Ok(());
        }
        // SAFETY: the program leaves the memory to the operation until it has ended.
        let memory = unsafe { buffers.pinned() };
        let handle = endpoint.ireceive_claimed_with(matched, memory, options);
        self.ends.posted += 1;
        lend(context, handle, std::ptr::null_mut());
        Ok(())
    }

    /// The entry of a message that was found.
    fn found(&mut self, context: *mut c_void, status: &Status) -> Item {
        let entry = received(KIND.number(context, true), KIND.flags(), status);
        let label = self.endpoint.as_ref().map_or(0, |it| it.label_of(status.source));
        let source = self.ends.source_of(label, status);
        Item::Done { entry, source }
    }

    fn tell(&mut self, item: Item) {
        if let Some(cq) = self.ends.rx {
            // SAFETY: the gate of the domain is that of its queues, and none is being read.
            unsafe { cq.get() }.push(item);
        }
    }
}

/// The number under which a claim is stored.
fn number(context: *mut c_void) -> u64 {
    context.addr() as u64
}
