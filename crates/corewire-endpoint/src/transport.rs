//! What carries an engine's messages.

use std::fmt;

use corewire_layout::access::Part;
use corewire_layout::counters::EndpointCounter;
use corewire_layout::name::ChannelName;
use corewire_layout::rendezvous::Stretch;
use corewire_ring::message::{Arrival, Envelope, Exposed, Held, Sink, Source, Space, Wanted};
use corewire_ring::pair::{ExposedPlace, PairViolation};
pub use corewire_ring::pair::{Polling, Short};

use crate::budget::Kept;
use crate::selector::Peer;

/// Carries messages between this endpoint and its peers, each of which has a *row*. An engine calls it
/// from one thread. No call waits, except [`sleep`](Self::sleep), which the engine itself never calls.
///
/// Messages from one peer arrive in the order in which they were sent. A long message arrives in
/// fragments, between which no other message of that peer arrives.
pub trait Transport {
    // Peers.

    /// Whether [`take_notices`](Self::take_notices) has something to tell. Cheap: called in every poll.
    fn has_notice(&self) -> bool;

    /// Adds the peers that have come or gone to `changes`, in order. A peer that comes is reported before
    /// anything of it arrives.
    fn take_notices(&mut self, changes: &mut Vec<Change>) -> Attention;

    /// Lets messages go the short way to and from the peer of `row`, which the caller knows by
    /// `generation`; no longer if that is 0.
    fn open(&mut self, row: u32, generation: u32);

    /// The peer of `row`, of which only the name is known, is needed now: [`Change::Came`] or [`Change::Gone`] follows. Only
    /// for transports that give out such rows.
    fn link(&mut self, row: u32) {
        let _ = row;
    }

    /// Disconnects a peer whose memory contains an impossible value.
    fn cut_off(&mut self, row: u32, violation: PeerViolation);

    /// Forgets a peer that has gone: its row may be given to another.
    fn remove(&mut self, row: u32);

    // Sending.

    /// Sends a short message at once, if this peer is open and nothing stands in the
    /// way. False if the message must go the long way; nothing was done then.
    fn try_inject(&mut self, peer: Peer, envelope: &Envelope, message: &[u8]) -> bool;

    /// Sends as much of a message as there is room for, from byte `sent` on, and counts `sent` up. True if
    /// all of it has been sent.
    ///
    /// # Errors
    /// [`SendError`].
    fn try_send(
        &mut self,
        row: u32,
        envelope: &Envelope,
        source: &impl Source,
        sent: &mut u64,
    ) -> Result<bool, SendError>;

    /// More messages follow at once: those that are sent from now on may be kept back until [`flush`](Self::flush), to
    /// leave together. A transport that gains nothing by that sends each at once.
    #[inline(always)]
    fn gather(&mut self) {}

    /// Nothing follows for the time being: all that was kept back leaves.
    #[inline(always)]
    fn flush(&mut self) {}

    /// Whether something that was sent has not left yet: it does so by itself, in later calls.
    fn has_unsent(&self) -> bool {
        false
    }

    // Receiving.

    /// Takes the next message, if it is `wanted`, is short and whole, requests no acknowledgement, fits in
    /// `target`, and comes from an open peer.
    fn try_take(&mut self, polling: Polling, wanted: &Wanted, target: &mut [u8]) -> Short;

    /// Takes the next message, if it is short and whole, requests no acknowledgement, comes from an open peer, receives ask
    /// for messages of its space, and `find` returns memory for it: it is told space, source, tag and length.
    #[inline(always)]
    fn try_take_matched<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        find: impl FnOnce(Space, u64, u64, usize) -> Option<&'a mut S>,
    ) -> Short {
        let _ = find;
        self.poll().map_or(Short::Nothing, Short::Other)
    }

    /// Whether another message lies behind the one that was taken last, as far as that can be told at once.
    #[inline(always)]
    fn has_another(&mut self) -> bool {
        false
    }

    /// The same as [`try_take_matched`](Self::try_take_matched), of the peer of `row`, of which something else was found:
    /// for a message of any space that may be longer.
    fn try_take_whole<'a, S: Sink + ?Sized + 'a>(
        &mut self,
        row: u32,
        find: impl FnOnce(Space, u64, u64, usize) -> Option<&'a mut S>,
    ) -> Short {
        let _ = find;
        Short::Other(row)
    }

    /// The row of a peer of which something has arrived. Fair: no peer keeps others from being returned.
    fn poll(&mut self) -> Option<u32>;

    /// What has arrived of the peer of `row`: a message, or a fragment.
    ///
    /// # Errors
    /// A violation: the peer must be cut off.
    fn arrival(&mut self, row: u32) -> Result<Option<Arrival>, PeerViolation>;

    /// Whether something of the peer of `row` is left to arrive.
    ///
    /// # Errors
    /// As for [`arrival`](Self::arrival).
    fn has_arrival(&mut self, row: u32) -> Result<bool, PeerViolation>;

    /// Copies an arrival to where the bytes of its message from `at` on go, as far as there is room.
    fn copy(&self, row: u32, arrival: &Arrival, at: usize, sink: &mut (impl Sink + ?Sized));

    /// Finishes with an arrival, which is then gone.
    fn pass(&mut self, row: u32, arrival: &Arrival);

    /// Leaves what has arrived of the peer of `row` where it is: [`poll`](Self::poll) does not return that
    /// row before [`release`](Self::release).
    fn hold(&mut self, row: u32);

    /// Ends [`hold`](Self::hold).
    fn release(&mut self, row: u32);

    /// Makes [`poll`](Self::poll) look at the peer of `row` once, even if nothing indicates an arrival.
    fn look_at(&mut self, row: u32);

    // Large messages.

    /// A message that is being read where its sender has it. If its sender was [invited](Self::answer) to copy, too,
    /// dropping it waits until that writes nothing more to the target.
    type Pull;
    /// A message that is being copied to its receiver.
    type Help;

    /// Whether a message of `bytes` bytes to the peer of `row` is offered now, because no other way is faster.
    fn is_offered(&mut self, row: u32, envelope: &Envelope, bytes: u64) -> bool;

    /// Lets the peer of `row` read a message. Returns the offer's number, and appends the message's place to
    /// `place`. `None` if there are too many offers.
    fn register(&mut self, row: u32, source: &impl Source, place: &mut Vec<u8>) -> Option<u64>;

    /// Lets the peer read it no more: whatever it reads from now on, it does not take it for the message.
    fn deregister(&mut self, row: u32, number: u64);

    /// The same. True if the peer has not begun to read, and never will.
    fn withdraw(&mut self, row: u32, number: u64) -> bool;

    /// Whether it is the latest message that the peer has begun to read.
    fn has_begun(&self, row: u32, number: u64) -> bool;

    /// Whether a message of `bytes` bytes could be sent to the peer of `row` now although that takes nothing.
    fn has_room_for_data(&mut self, row: u32, bytes: u64) -> bool;

    /// Gets ready to read the first `bytes` bytes of a message of `total` bytes that the peer of `row` has offered.
    /// `is_helped` if the sender may copy, too.
    ///
    /// # Errors
    /// A violation if the place is impossible: the peer must be cut off.
    fn start_pull(
        &mut self,
        row: u32,
        number: u64,
        place: &[u8],
        total: u64,
        bytes: u64,
        is_helped: bool,
    ) -> Result<Self::Pull, PeerViolation>;

    /// How many bytes of other messages the peer of `row` may send before what is awaited of it, `awaited` bytes of offered messages, has
    /// come; `None` if what it can send before is little in any case.
    fn before_awaited_max(&self, row: u32, awaited: u64) -> Option<u64> {
        let _ = (row, awaited);
        None
    }

    /// Begins to read. False if the sender has taken the offer back.
    fn begin_pull(&mut self, pull: &mut Self::Pull) -> bool;

    /// The place of the target, for a sender that may copy, too. False if it should not.
    fn answer(
        &mut self,
        row: u32,
        pull: &mut Self::Pull,
        target: &mut dyn Sink,
        place: &mut Vec<u8>,
    ) -> bool;

    /// Copies the next piece.
    fn pull(&mut self, pull: &mut Self::Pull, target: &mut dyn Sink) -> Pulled;

    /// Ends a pull of which the sender was not invited to copy, between two steps. Returns the number of bytes, from
    /// the beginning, that are in the target.
    fn stop_pull(&mut self, pull: &mut Self::Pull, target: &mut dyn Sink) -> u64;

    /// Ends a pull before it is complete. True once the sender writes nothing more to the target.
    fn close_pull(&mut self, pull: &mut Self::Pull) -> bool;

    /// Gets ready to copy a message that lies at `source` to the place of the target of the peer of `row`, of
    /// `bytes` bytes. `None` if that is not possible.
    fn start_help(
        &mut self,
        row: u32,
        number: u64,
        source: &[Stretch],
        place: &[u8],
        bytes: u64,
    ) -> Option<Self::Help>;

    /// Copies the next piece.
    fn help(&mut self, row: u32, help: &mut Self::Help) -> Helped;

    /// Whether these stretches of this process's memory, which their owner may have unmapped, can be read.
    fn is_readable(&self, stretches: &[Stretch]) -> bool {
        let _ = stretches;
        true
    }

    /// The same for a stretch that is to be written.
    fn is_writable(&self, stretch: Stretch) -> bool {
        let _ = stretch;
        true
    }

    /// Counts a message of `bytes` bytes to the peer of `row` that was offered.
    fn count_sent(&mut self, row: u32, bytes: u64) {
        let _ = (row, bytes);
    }

    /// Counts a message of `bytes` bytes of the peer of `row` that was offered.
    fn count_received(&mut self, row: u32, bytes: u64) {
        let _ = (row, bytes);
    }

    // Messages that stay in their sender's heap while they are read.

    /// The peer of `row` grants `limit` bytes. If it `refuses`, a message that fits there waits while they are
    /// spent, and is not sent in another way.
    fn set_grant(&mut self, row: u32, limit: u64, refuses: bool) {
        let _ = (row, limit, refuses);
    }

    /// Bytes that the peer of `row` has not released.
    fn spent(&mut self, row: u32) -> u64 {
        let _ = row;
        0
    }

    /// The length of the last message that did not fit in what the peer of `row` grants, if one did not since this was
    /// called last.
    fn take_shortage(&mut self, row: u32) -> Option<u64> {
        let _ = row;
        None
    }

    /// Gets ready for messages of the peer of `row` that stay where they are. False if that is not possible.
    fn start_granting(&mut self, row: u32) -> bool {
        let _ = row;
        false
    }

    /// Takes an arrival that is [in place](Arrival::is_in_place). It must then be passed.
    fn keep(&mut self, row: u32, arrival: &Arrival) -> Option<Held> {
        let _ = (row, arrival);
        None
    }

    /// As [`try_take_whole`](Self::try_take_whole), for a message that stays where it is.
    fn try_keep(&mut self, row: u32, wanted: &Wanted) -> Option<(Short, Held)> {
        let _ = (row, wanted);
        None
    }

    // Exposed memory.

    /// Lets peers copy to and from this memory by themselves, as long as it is not [concealed](Self::conceal), under `key`, or
    /// under a key that no other memory ever has. Returns where they find it, and its key; `None` if they cannot.
    fn expose(
        &mut self,
        key: Option<u64>,
        place: &ExposedPlace,
        memory: &Exposed,
    ) -> Option<(u16, u64)> {
        let _ = (key, place, memory);
        None
    }

    /// Ends that. Copies may be under way: the transport keeps the memory until they are over.
    fn conceal(&mut self, entry: u16) {
        let _ = entry;
    }

    /// Whether copies to the memory of the peer of `row`, or from it, are possible, as far as is known.
    fn can_copy(&self, row: u32, is_put: bool) -> bool {
        let _ = (row, is_put);
        false
    }

    /// Takes requests `first` to `last` of this endpoint to the peer of `row` back. True if the peer has begun none of
    /// them, and never will. Otherwise it carries out those that it has begun, and none of the others.
    fn take_back(&mut self, row: u32, first: u64, last: u64) -> bool {
        let _ = (row, first, last);
        false
    }

    /// Begins to carry out request `number` of the peer of `row`. False if that was taken back.
    fn serve(&mut self, row: u32, number: u64) -> bool {
        let _ = (row, number);
        true
    }

    /// Request `number` of the peer of `row` is done: tells so by a word, where that polls, if it may not sleep. False if a
    /// word has told it.
    fn finish(&mut self, row: u32, number: u64) -> bool {
        let _ = (row, number);
        true
    }

    /// The last request to the peer of `row` that a word has told to be done; 0 if none.
    fn last_done(&self, row: u32) -> u64 {
        let _ = row;
        0
    }

    /// Whether a thread may be waiting for this endpoint's descriptor, which a word does not make readable.
    fn is_announced(&self) -> bool {
        false
    }

    /// Copies to the memory of the peer of `row`. False if it must be asked instead; a part may have been copied.
    fn copy_to(&mut self, row: u32, parts: &[Part], source: &impl Source) -> bool {
        let _ = (row, parts, source);
        false
    }

    /// Copies from the memory of the peer of `row`. False as for [`copy_to`](Self::copy_to).
    fn copy_from(&mut self, row: u32, parts: &[Part], target: &mut dyn Sink) -> bool {
        let _ = (row, parts, target);
        false
    }

    // Waiting.

    /// Whether the peer of `row` last ran on this processor. A hint.
    fn is_here(&self, row: u32) -> bool;

    /// The row from which something arrived last.
    fn last_found(&self) -> u32;

    /// Sleeps until something arrives, a notice comes, one of `wanted` has room, or `limit_ns` has passed.
    /// May return early.
    fn sleep(&mut self, limit_ns: u64, wanted: &[Room]);

    /// Announces that the caller is about to wait for the endpoint's descriptor. False if there is
    /// something to look at already.
    fn arm(&mut self, wanted: &[Room]) -> bool;

    // Observers.

    /// Counts one more.
    fn count(&self, counter: EndpointCounter) {
        let _ = counter;
    }

    /// Shows how much is kept of the peer of `row`.
    fn show_kept(&self, row: u32, kept: Kept) {
        let _ = (row, kept);
    }
}

/// What a receiver's step has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulled {
    /// It has copied a piece.
    More,
    /// It waits for the sender, which is copying.
    Busy,
    /// It waits for the sender, and what comes of it ends a sleep.
    Later,
    /// Everything is there.
    Done,
    /// The sender has taken the offer back.
    Void,
    /// No more can be copied.
    Refused {
        /// Bytes, from the beginning, that are there.
        bytes: u64,
        /// No other message of this peer could be read, either.
        is_final: bool,
    },
}

/// What a sender's step has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helped {
    /// It has copied a piece.
    More,
    /// It has nothing more to copy.
    Over,
}

/// Something that happened outside of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A peer has come and has this row.
    Came {
        /// Its row.
        row: u32,
        /// Its name.
        name: ChannelName,
        /// Which endpoint of that name it is.
        incarnation: u128,
    },
    /// A request of a peer will never be replied to: the process that was to reply has dropped it.
    Dropped {
        /// Who sent the request.
        peer: Peer,
        /// The number of its call.
        number: u64,
    },
    /// A peer has gone. Its row stays its own until [`Transport::remove`].
    Gone {
        /// Its row.
        row: u32,
        /// Why.
        how: Gone,
    },
}

/// Why a peer has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// Its process died.
    Died,
    /// It was closed.
    Left,
    /// What connects it with this endpoint has ended. Nobody can tell whether its process lives.
    Lost(Loss),
    /// It has sent an impossible value, or its memory contains one.
    CutOff(PeerViolation),
}

/// How what connected a peer with this endpoint has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Why.
    pub reason: LossReason,
    /// The number of messages to the peer that it is known to have received, from the first one on. Others may have arrived,
    /// or not.
    pub delivered: u64,
}

/// Why a connection has ended that no side has closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// There never was one: the peer was [addressed](crate::Engine::address), and cannot be linked.
    NotLinked,
    /// It has ended without a word of the peer.
    Ended,
    /// It was reset, by the peer's host or by what lies between.
    Reset,
    /// The peer's host has not acknowledged anything for too long.
    Silent,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotLinked => "it cannot be linked",
            Self::Ended => "it has ended",
            Self::Reset => "it was reset",
            Self::Silent => "the other host is silent",
        })
    }
}

/// A peer has sent an impossible value, or its memory contains one: the peer is disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerViolation {
    /// Which word.
    pub word: &'static str,
    /// What it holds.
    pub found: u64,
    /// The position of the slot that holds it; 0 also for what is in no slot.
    pub position: u64,
}

impl fmt::Display for PeerViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { word, found, position } = self;
        match position {
            0 => write!(f, "{found:#x} is impossible as {word}"),
            _ => write!(f, "the peer's memory holds {found:#x} as {word} of slot {position}"),
        }
    }
}

impl std::error::Error for PeerViolation {}

impl From<PairViolation> for PeerViolation {
    fn from(PairViolation { word, found, position }: PairViolation) -> Self {
        Self { word, found, position }
    }
}

/// What else a transport has to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attention {
    /// Nothing.
    None,
    /// Another thread interrupts the call.
    Interrupted,
    /// This process is a forked child.
    Forked,
}

/// Why a transport cannot send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendError {
    /// The peer's memory contains an impossible value: the peer must be cut off.
    Violation(PeerViolation),
    /// A system call failed. The text names it and its error.
    System(String),
}

impl From<PairViolation> for SendError {
    fn from(violation: PairViolation) -> Self {
        Self::Violation(violation.into())
    }
}

/// Room that somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Towards the peer of this row.
    pub row: u32,
    /// For a message with this envelope.
    pub envelope: Envelope,
    /// The length of the message in bytes.
    pub bytes: u64,
    /// For a loan, in what the peer grants; or, if it has no bytes, until no more is used than the peer grants.
    pub is_in_place: bool,
    /// A part of the message has been sent.
    pub is_begun: bool,
}
