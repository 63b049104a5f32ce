//! The copy of one message by the kernel, from its beginning by the receiver and from its end by the sender.
//!
//! Who copies which chunk is decided by [`Puller`] and [`Helper`]: see `corewire_ring::pair::rendezvous`. If the sender is
//! not in a call, the receiver copies everything, in longer pieces. Each call of the kernel also reads the cookie of the
//! other process, so that it is that process which is read or written.
//!
//! The receiver's memory is not given back while the sender may still write there: until it has claimed all chunks and
//! the sender has finished its own, or the kernel has reported the end of every thread of the sender.
//!
//! Source: the two kinds of copy are those of Buntinas and others, II-D; to make both at once is corewire's own.

use corewire_layout::rendezvous::{MemoryPlace, Stretch};
use corewire_ring::message::Sink;
use corewire_ring::pair::{Claim, Helper, Puller};

use crate::kernel_copy::{Refusal, Remote};
use crate::thresholds::{ALONE_BYTES, chunk_bytes};

/// The receiver's side.
#[derive(Debug)]
pub struct Pull {
    puller: Puller,
    remote: Remote,
    source: MemoryPlace,
    /// Bytes that are copied: of the whole message, or as many as there is room for.
    bytes: u64,
    /// Chunks of the next claim.
    count: u32,
    alone_count: u32,
    has_helper: bool,
    /// The sender may write to the target: the process that has allowed it.
    invited: Option<u32>,
}

/// What a step of a receiver has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullStep {
    /// It has copied a piece.
    More,
    /// It waits for the sender, which is copying.
    Busy,
    /// Everything is there.
    Done,
    /// The sender has taken the offer back: the message comes in another way, or not at all.
    Void,
    /// No more can be copied. The first `bytes` bytes are there.
    Refused {
        /// Bytes from the beginning that this side has copied.
        bytes: u64,
        /// Why.
        why: Refusal,
    },
}

/// Number of chunks of a message of `bytes` bytes.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "thresholds.rs")]
pub fn chunks_of(bytes: u64) -> u16 {
    bytes.div_ceil(chunk_bytes(bytes)) as u16
}

/// Offset and length of the chunks from `first` up to `end`.
fn extent_of(bytes: u64, first: u64, end: u64) -> (u64, u64) {
    let chunk = chunk_bytes(bytes);
    let from = first * chunk;
    (from, bytes.min(end * chunk) - from)
}

impl Pull {
    /// For the first `bytes` bytes of the message at `source`, of which `puller` has [`chunks_of`] chunks. `has_helper` if
    /// the sender may copy, too.
    #[must_use]
    pub fn new(
        puller: Puller,
        remote: Remote,
        source: MemoryPlace,
        bytes: u64,
        has_helper: bool,
    ) -> Self {
        let alone = (ALONE_BYTES / chunk_bytes(bytes)).max(1);
        let alone_count = u32::try_from(alone).unwrap_or(u32::MAX);
        let count = if has_helper { 1 } else { alone_count };
        let invited = None;
        Self { puller, remote, source, bytes, count, alone_count, has_helper, invited }
    }

    /// Invites the sender to copy, too: the places of the target are about to be sent to it. False if it must not. After
    /// that the target stays where it is, until this value has been dropped.
    pub fn invite(&mut self) -> bool {
        if self.has_helper {
            self.invited = Some(std::process::id());
            self.puller.invite();
        }
        self.has_helper
    }

    /// Bytes that are copied.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the sender's offer is still valid.
    pub(crate) fn is_valid(&self) -> bool {
        self.puller.is_valid()
    }

    /// Begins: see [`Puller::begin`].
    #[must_use]
    pub fn begin(&mut self) -> bool {
        self.puller.begin()
    }

    /// Copies the next piece to `target`, which must be the same in every step. Never waits.
    pub fn step(&mut self, target: &mut (impl Sink + ?Sized)) -> PullStep {
        match self.puller.claim(self.count) {
            Claim::Busy => PullStep::Busy,
            Claim::Chunks(chunks) => {
                let (from, bytes) = extent_of(self.bytes, chunks.start.into(), chunks.end.into());
                let Self { remote, source, .. } = self;
                let landing = target.landing();
                match remote.read(source.cookie, &source.stretches, &landing, from, bytes) {
                    Ok(()) => {}
                    Err((done, why)) => {
                        let bytes = from + done;
                        // SAFETY: this side has copied them.
                        unsafe { landing.set_written(usize::try_from(bytes).unwrap_or(0)) };
                        return PullStep::Refused { bytes, why };
                    }
                }
                let is_alone = !self.puller.has_helper();
                self.count = if is_alone { (2 * self.count).min(self.alone_count) } else { 1 };
                PullStep::More
            }
            Claim::Over if self.puller.is_valid() => {
                let bytes = usize::try_from(self.bytes).unwrap_or(usize::MAX);
                // SAFETY: this side and the sender have copied all chunks, and the sender says so with a release store
                // that the puller has acquired. If the sender lies, its chunks hold what was there before: memory that it
                // is invited to write is initialized (`Landing::of_vector`).
                unsafe { target.landing().set_written(bytes) };
                self.invited = None;
                PullStep::Done
            }
            Claim::Over => PullStep::Void,
        }
    }

    /// Ends between two steps, without a sender that copies, too. Returns the number of bytes, from the beginning, that are
    /// in `target`.
    #[must_use]
    pub fn stop(&mut self, target: &mut (impl Sink + ?Sized)) -> u64 {
        let bytes = self.bytes.min(u64::from(self.puller.taken()) * chunk_bytes(self.bytes));
        // SAFETY: this side has copied them: each step has copied what it claimed.
        unsafe { target.landing().set_written(usize::try_from(bytes).unwrap_or(0)) };
        bytes
    }

    /// Ends before everything has been copied. True once the sender writes nothing more to the target.
    #[must_use]
    pub fn close(&mut self) -> bool {
        let is_over = self.puller.close() == Claim::Over;
        if is_over {
            self.invited = None;
        }
        is_over
    }
}

/// Waits until the sender writes nothing more to the target, which is freed after this.
impl Drop for Pull {
    fn drop(&mut self) {
        // A forked child has neither the words nor the target.
        if self.invited == Some(std::process::id()) {
            while !self.close() && !self.remote.wait_for_end() {}
        }
    }
}

/// The sender's side.
#[derive(Debug)]
pub struct Help {
    helper: Helper,
    remote: Remote,
    source: Vec<Stretch>,
    target: MemoryPlace,
    bytes: u64,
}

/// What a step of a sender has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelpStep {
    /// It has copied a piece.
    More,
    /// There is nothing more to copy for it.
    Over,
    /// It cannot copy; the receiver does all of it.
    Refused(Refusal),
}

impl Help {
    /// For a message at `source`, whose first `bytes` bytes go to `target`.
    #[must_use]
    pub fn new(
        helper: Helper,
        remote: Remote,
        source: Vec<Stretch>,
        target: MemoryPlace,
        bytes: u64,
    ) -> Self {
        Self { helper, remote, source, target, bytes }
    }

    /// Copies the next piece. Never waits. The source's memory must be unchanged.
    pub fn step(&mut self) -> HelpStep {
        let Some(chunk) = self.helper.claim() else { return HelpStep::Over };
        let (from, bytes) = extent_of(self.bytes, chunk.into(), u64::from(chunk) + 1);
        let Self { remote, source, target, .. } = self;
        match remote.write(target.cookie, source, &target.stretches, from, bytes) {
            Ok(()) => {
                self.helper.finish();
                HelpStep::More
            }
            Err(why) => {
                self.helper.give_up();
                HelpStep::Refused(why)
            }
        }
    }
}
