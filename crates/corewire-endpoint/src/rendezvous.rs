//! Rendezvous: a large message stays in its sender's memory until a receive asks for it.
//!
//! # Data path
//!
//! 1. The sender makes its memory readable under a number, and sends an [`Offer`] with it, in its place among the other
//!    messages (`peers/offers.rs`). What it sends afterwards goes on at once.
//! 2. The offer is matched like a message (`incoming/offers.rs`). Until a receive asks for it, a record of it is kept. Of a
//!    sender that does nothing else the message is fetched into the budget.
//! 3. The receiver pulls the message (`incoming/pulls.rs`). If the memory it goes to allows it, an *answer* invites the
//!    sender, which copies from the end whenever it is in a call.
//! 4. The receiver checks that the offer was valid to the end, and says *done*: the sender's memory is free.
//!
//! A sender never needs its receiver to get its memory back: it takes the number out of its table. If the receiver had
//! not begun by then, the message was never sent (*cancelled*), or follows as *data* through the transport. If it had
//! begun, the message counts as sent: the sender copies it and sends the copy as data.
//!
//! A receiver that cannot read the sender's memory says *push*, and gets the rest of the message as data.
//! If no other message could be read, either, it says *refuse*, and the sender offers nothing more to this peer.
//!
//! A sender that is about to sleep sends as data what nobody has begun to read, if it fits in the transport. So a
//! message of medium length needs no receiver to be sent.
//!
//! If the sender dies, the receive waits for another message. Before that, the kernel has reported the end of every
//! thread that could still write to the receive's memory.
//!
//! What comes as data is in `incoming/data.rs`, what ends before it has come in `incoming/ends.rs`.
//!
//! # Why data may follow later
//!
//! Data has the place in the order that its offer had: it goes to the receive that has matched the offer, or to the
//! record of it. It passes messages that wait for room at its sender; and while it is awaited, messages before it in
//! the ring are kept whatever the budget, so that nothing unexpected keeps it from a receive that waits.
//!
//! # Cost
//!
//! Two slots for the offer, one for the end; a record of 100 bytes, and up to 4 KiB for a message in many parts,
//! until the match: outside the budget, but at most 1024 for each peer. The message is copied once.
//!
//! Sources: Buntinas and others, "Data Transfers between Processes in a SMP System", IV-A; Yamagiwa and others, "Active
//! Zero-copy", 2.

use corewire_layout::rendezvous::{Offer, OfferWants, OfferedSpace, Stretch};
use corewire_layout::slot::INLINE_BYTES_MAX;
use corewire_ring::message::{Envelope, Fragment, Memory, Source, Space, Wants};
use smallvec::SmallVec;

use crate::error::MessageError;
use crate::list::Key;
use crate::selector::{Peer, Status};

/// The bytes of a notice between two engines: few of them lie here.
pub(crate) type NoticeBytes = SmallVec<[u8; INLINE_BYTES_MAX]>;

/// A message that this endpoint has offered.
#[derive(Debug)]
pub(crate) struct Offered {
    /// `None` if nobody waits for it, or a call does.
    pub(crate) operation: Option<u32>,
    pub(crate) envelope: Envelope,
    /// `None` if a call has it.
    pub(crate) memory: Option<Memory>,
    pub(crate) total: u64,
    pub(crate) stretches: Vec<Stretch>,
    /// For the call that has the memory: what it must do.
    pub(crate) todo: Todo,
}

/// What a call must do whose message was offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Todo {
    /// Wait.
    Wait,
    /// Send the message from this byte on as data, of which the second number of bytes has been sent.
    Push(u64, u64),
    /// Return.
    End(Result<(), MessageError>),
}

/// An offer that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArrivedOffer {
    pub(crate) number: u64,
    /// Where the transport finds the message. Empty once it cannot be read any more: it follows as data, or is
    /// cancelled.
    pub(crate) place: Vec<u8>,
}

/// A message that was offered and arrives as data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArrivingData {
    pub(crate) status: Status,
    /// The number of its offer, if its sender waits until it has arrived.
    pub(crate) done: Option<u64>,
    /// Its place among the messages.
    pub(crate) order: u64,
}

/// A message that is being pulled, or will be.
#[derive(Debug)]
pub(crate) struct Transfer<P> {
    pub(crate) source: Peer,
    pub(crate) offer: ArrivedOffer,
    pub(crate) envelope: Envelope,
    pub(crate) total: u64,
    /// Its place among the unexpected messages, if it goes back there.
    pub(crate) order: u64,
    pub(crate) to: Destination,
    pub(crate) stage: Stage<P>,
    /// The sender was invited to copy, too.
    pub(crate) is_invited: bool,
    /// It waits for the sender, and this side may sleep meanwhile.
    pub(crate) may_sleep: bool,
    /// How many of its bytes come.
    pub(crate) awaited: u64,
    /// Bytes of its sender's messages that were kept when a receive asked for it.
    pub(crate) kept_before: u64,
}

impl<P> Transfer<P> {
    /// Of a message with this envelope and length, which goes there. Its sender has not been invited.
    pub(crate) fn new(
        source: Peer,
        offer: ArrivedOffer,
        (envelope, total): (Envelope, u64),
        (order, to): (u64, Destination),
        stage: Stage<P>,
        kept_before: u64,
    ) -> Self {
        let (is_invited, may_sleep, awaited) = (false, false, total);
        Self {
            source,
            offer,
            envelope,
            total,
            order,
            to,
            stage,
            is_invited,
            may_sleep,
            awaited,
            kept_before,
        }
    }

    pub(crate) fn row(&self) -> u32 {
        self.source.row()
    }

    pub(crate) fn status(&self) -> Status {
        let Envelope { tag, immediate, .. } = self.envelope;
        Status { source: self.source, tag, bytes: self.total, immediate }
    }

    pub(crate) fn holds_row(&self) -> bool {
        !matches!(self.stage, Stage::Awaited(_))
    }
}

/// Where a message goes that is pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    /// To a receive that goes on by itself.
    Operation(u32),
    /// To the receive that is being called.
    Caller,
    /// To where it is kept until a receive asks for it.
    Kept(Key),
    /// Nowhere: the receive has ended. The memory is kept until the sender writes nothing more there.
    Nobody,
}

#[derive(Debug)]
pub(crate) enum Stage<P> {
    /// Waits for its turn: one message of each peer is pulled at a time.
    Queued,
    /// Is pulled.
    Pulling(P),
    /// Is pulled to this memory, before a receive asks for it.
    Fetching(P, Vec<u8>),
    /// Nothing is read any more, and the sender may still be writing: then data follows, and if the receiver could
    /// not read on, it says from which byte on, and whether any other message could be read.
    Stopping(P, Option<(u64, bool)>),
    /// Nothing is read any more. The sender may still be writing to this memory.
    Closing(P, #[expect(dead_code, reason = "kept until it may be freed")] Vec<u8>),
    /// Data follows. So many bytes, from the beginning, are there.
    Awaited(u64),
}

/// The rest of a message.
pub(crate) struct Tail<'a, S: ?Sized> {
    pub(crate) source: &'a S,
    pub(crate) from: u64,
}

impl<S: Source + ?Sized> Source for Tail<'_, S> {
    fn bytes(&self) -> u64 {
        self.source.bytes() - self.from
    }

    fn fill(&self, offset: u64, target: &mut Fragment<'_>) {
        self.source.fill(self.from + offset, target);
    }

    fn stretches(&self, each: &mut dyn FnMut(Stretch)) {
        let mut skipped = self.from;
        self.source.stretches(&mut |Stretch { address, bytes }| {
            let gone = skipped.min(bytes);
            skipped -= gone;
            if gone < bytes {
                each(Stretch { address: address + gone, bytes: bytes - gone });
            }
        });
    }
}

/// The envelope of the message of an offer with this tag.
pub(crate) fn envelope_of(offer: &Offer, tag: u64) -> Envelope {
    let space = match offer.space {
        OfferedSpace::Tagged => Space::Tagged,
        OfferedSpace::Untagged => Space::Untagged,
        OfferedSpace::Request => Space::Request,
    };
    let wants = match offer.wants {
        OfferWants::Nothing => Wants::Nothing,
        OfferWants::Delivery => Wants::Delivery,
        OfferWants::Match => Wants::Match,
    };
    Envelope { space, tag, immediate: offer.immediate, wants }
}

/// The offer of a message of `total` bytes. `None` if such messages are not offered.
pub(crate) fn offer_of(
    number: u64,
    envelope: &Envelope,
    total: u64,
    is_blocking: bool,
) -> Option<Offer> {
    let space = match envelope.space {
        Space::Tagged => OfferedSpace::Tagged,
        Space::Untagged => OfferedSpace::Untagged,
        Space::Request => OfferedSpace::Request,
        _ => return None,
    };
    let wants = match envelope.wants {
        Wants::Nothing => OfferWants::Nothing,
        Wants::Delivery => OfferWants::Delivery,
        Wants::Match => OfferWants::Match,
    };
    Some(Offer { number, total, space, wants, immediate: envelope.immediate, is_blocking })
}
