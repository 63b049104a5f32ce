//! Shared buffer: the sender copies the message into few buffers that both share, one after the other, and the receiver
//! copies it out of them.
//!
//! The buffers are the pipe of the pair ring: as many cells as make 256 KiB, used again and again, so that they stay in
//! the caches of both sides. While the receiver copies out of one, the sender fills the next. (The paper has two of
//! 8 KiB; the pair's stamps and cursor take the place of its full and empty flags.)
//!
//! Both sides must be in a call. No right over the other process is needed, and nothing reaches its memory.
//!
//! Source: Buntinas and others, II-A.
//!
//! | | cost of a message of n bytes |
//! |---|---|
//! | register, deregister | no system call |
//! | source | n bytes copied; a slot for each cell; no system call |
//! | target | n bytes copied; n/64 line transfers |

use corewire_ring::message::{Memory, Source};

use crate::mechanisms::kernel_put::register_offer;
use crate::mechanisms::link::{Cells, Link, is_registered};
use crate::mechanisms::mechanism::{Busy, Mechanism, Peer};
use crate::mechanisms::outcome::{CopyError, NotRegistered, RegisterError, Role, Step};
use crate::mechanisms::permission::Reason;
use crate::mechanisms::piece::{self, Copying, Described, Description, Kind, Piece, Registry};
use crate::thresholds::STEP_BYTES;

/// Copies into and out of a reused pipe.
///
/// # Example
/// ```
/// use corewire_ring::message::Memory;
/// use corewire_transfer::mechanisms::{Mechanism, PairLink, Peer, Role, SharedBuffer, Step};
///
/// let (near, far) = PairLink::between_threads(16, 16 << 10)?;
/// let own = Peer::own()?;
/// let mut sender = SharedBuffer::initialise(own.clone(), Role::Source, near)?;
/// let mut receiver = SharedBuffer::initialise(own, Role::Target, far)?;
/// let mut source = sender.register(Memory::from(vec![7; 1 << 20]))?;
/// let mut target = receiver.register(Memory::from(vec![0; 1 << 20]))?;
/// let (from, to) = (source.description(), target.description());
/// loop {
///     sender.copy_remote(&mut source, &to)?;
///     if receiver.copy_local(&mut target, &from)? == Step::Done(1 << 20) {
///         break;
///     }
/// }
/// assert!(receiver.deregister(target)?.into_vec().iter().all(|byte| *byte == 7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SharedBuffer<L> {
    pub(crate) pipe: Pipe<L>,
}

const KIND: Kind = Kind::SharedBuffer;

impl<L: Link> Mechanism for SharedBuffer<L> {
    const NAME: &'static str = "shared buffer";
    const LOCAL: Role = Role::Target;
    type Link = L;
    type Memory = Memory;

    fn initialise(peer: Peer, role: Role, link: L) -> Result<Self, Reason> {
        Ok(Self { pipe: Pipe { peer, registry: Registry::new(KIND, role)?, link } })
    }

    fn finalise(self) -> L {
        self.pipe.link
    }

    fn possible(&self) -> Result<(), Reason> {
        self.pipe.possible()
    }

    fn allocate(&mut self, parts: &[usize]) -> Result<Memory, RegisterError> {
        Ok(piece::allocate(parts))
    }

    fn register(&mut self, memory: Memory) -> Result<Piece, NotRegistered<Memory>> {
        self.pipe.register(memory)
    }

    fn deregister(&mut self, piece: Piece) -> Result<Memory, Busy<Memory>> {
        self.pipe.deregister(piece)
    }

    fn copy_local(&mut self, piece: &mut Piece, other: &Description) -> Result<Step, CopyError> {
        // One message, in as many fragments as there are cells.
        self.pipe.take(KIND, piece, other, |message, total| message == total)
    }

    fn copy_remote(&mut self, piece: &mut Piece, other: &Description) -> Result<Step, CopyError> {
        self.pipe.put(KIND, piece, other, |link, number, memory, done| {
            link.send(number, memory, done, Cells::Recent)
        })
    }
}

/// What the two mechanisms that go through cells have in common.
#[derive(Debug)]
pub(crate) struct Pipe<L> {
    pub(crate) peer: Peer,
    pub(crate) registry: Registry,
    pub(crate) link: L,
}

impl<L: Link> Pipe<L> {
    /// Both sides have the pipe already. It is of use as long as the peer lives.
    pub(crate) fn possible(&self) -> Result<(), Reason> {
        if self.peer.has_ended() { Err(Reason::Ended) } else { Ok(()) }
    }

    pub(crate) fn register(&mut self, memory: Memory) -> Result<Piece, NotRegistered<Memory>> {
        register_offer(&mut self.registry, &mut self.link, memory)
    }

    pub(crate) fn deregister(&mut self, piece: Piece) -> Result<Memory, Busy<Memory>> {
        if self.registry.role() == Role::Source
            && let Copying::Piping { done: 1.., .. } = piece.copying
            && !self.peer.has_ended()
        {
            // What the pair has of a message must be followed by the rest.
            return Err(Busy(Box::new(piece)));
        }
        self.link.end_offer(piece.number);
        Ok(self.registry.deregister(piece))
    }

    /// The source's next part: `send` sends some bytes more of its memory, and says how many.
    pub(crate) fn put(
        &mut self,
        kind: Kind,
        piece: &mut Piece,
        other: &Description,
        mut send: impl FnMut(
            &mut L,
            u64,
            &Memory,
            u64,
        ) -> Result<u64, corewire_ring::pair::PairViolation>,
    ) -> Result<Step, CopyError> {
        let Self { peer, link, .. } = self;
        piece.check(kind, Role::Source)?;
        if let Copying::Nothing = piece.copying {
            let target = Described::parse(other, kind, Role::Target)?;
            piece::check_room(piece.bytes(), target.bytes)?;
            let (number, bytes) = (target.number, piece.bytes());
            piece.copying = Copying::Piping { number, bytes, done: 0 };
        }
        let Piece { copying, memory, number: own, .. } = &mut *piece;
        let Copying::Piping { number, bytes, done } = copying else { return Ok(Step::Wait) };
        // Once begun, the message goes to its end: the other side drops what it does not want.
        if *done == 0 && !is_registered(link, *number) {
            let has_ended = peer.has_ended();
            piece.copying = Copying::Nothing;
            return Err(if has_ended { CopyError::PeerEnded } else { CopyError::Deregistered });
        }
        let (bytes, before) = (*bytes, *done);
        while *done < bytes && *done - before < STEP_BYTES {
            let sent = send(link, *own, memory, *done)?;
            if sent == 0 {
                return Ok(if *done == before { Step::Wait } else { Step::More });
            }
            *done += sent;
        }
        if *done < bytes {
            return Ok(Step::More);
        }
        piece.copying = Copying::Nothing;
        Ok(Step::Done(bytes))
    }

    /// The target's next part. `may_have` says whether a message of so many bytes can be a part of one of so many.
    pub(crate) fn take(
        &mut self,
        kind: Kind,
        piece: &mut Piece,
        other: &Description,
        may_have: impl Fn(u64, u64) -> bool,
    ) -> Result<Step, CopyError> {
        let Self { link, .. } = self;
        piece.check(kind, Role::Target)?;
        if let Copying::Nothing = piece.copying {
            let source = Described::parse(other, kind, Role::Source)?;
            piece::check_room(source.bytes, piece.bytes())?;
            piece.copying = Copying::Piping { number: source.number, bytes: source.bytes, done: 0 };
        }
        let Piece { copying, memory, .. } = &mut *piece;
        let Copying::Piping { number, bytes, done } = copying else { return Ok(Step::Wait) };
        let (total, mut taken) = (*bytes, 0);
        while *done < total && taken < STEP_BYTES {
            let Some(arrival) = link.arrival()? else {
                if taken > 0 {
                    return Ok(Step::More);
                }
                // What was sent before it was deregistered has arrived before this is seen, or is not needed.
                if *done == 0 && !is_registered(link, *number) && link.arrival()?.is_none() {
                    piece.copying = Copying::Nothing;
                    return Err(CopyError::Deregistered);
                }
                return Ok(Step::Wait);
            };
            let bytes = arrival.bytes as u64;
            taken += bytes.max(1);
            // Others are the rest of a message that this side did not want any more.
            if arrival.envelope.tag == *number {
                if !may_have(arrival.total, total) || bytes == 0 || bytes > total - *done {
                    let found = arrival.total;
                    piece.copying = Copying::Nothing;
                    return Err(CopyError::Unexpected { what: "the length of a part", found });
                }
                let at = usize::try_from(*done).unwrap_or(usize::MAX);
                link.copy(&arrival, at, memory);
                *done += bytes;
            }
            link.pass(&arrival);
        }
        if *done < total {
            return Ok(Step::More);
        }
        if total == 0 && !is_registered(link, *number) {
            piece.copying = Copying::Nothing;
            return Err(CopyError::Deregistered);
        }
        piece.copying = Copying::Nothing;
        Ok(Step::Done(total))
    }
}

/// A part of a message, as a message.
pub(crate) struct Part<'a> {
    pub(crate) of: &'a Memory,
    pub(crate) from: u64,
    pub(crate) bytes: u64,
}

impl Source for Part<'_> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn fill(&self, offset: u64, target: &mut corewire_ring::message::Fragment<'_>) {
        self.of.fill(self.from + offset, target);
    }

    fn stretches(&self, each: &mut dyn FnMut(corewire_layout::rendezvous::Stretch)) {
        let (mut skip, mut left) = (self.from, self.bytes);
        self.of.stretches(&mut |stretch| {
            let from = skip.min(stretch.bytes);
            skip -= from;
            let bytes = left.min(stretch.bytes - from);
            left -= bytes;
            if bytes > 0 {
                let address = stretch.address + from;
                each(corewire_layout::rendezvous::Stretch { address, bytes });
            }
        });
    }
}
