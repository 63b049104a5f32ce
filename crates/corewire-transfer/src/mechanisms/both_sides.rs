//! One message, copied from its beginning by the receiver and from its end by the sender.
//!
//! It is [`Pull`](crate::Pull) and [`Help`](crate::Help), which endpoints use with their own offers and answers, behind
//! the interface that all mechanisms have.
//!
//! | | cost of a message of n bytes |
//! |---|---|
//! | register, deregister | no system call |
//! | target | about half of the bytes copied, once; one system call for each chunk of 32 to 256 KiB; one short message |
//! | source | the rest; a system call for each chunk and one to see that the peer lives |

use corewire_ring::message::Memory;

use crate::mechanisms::kernel_put::{
    deregister_offer, finish_pull, register_offer, start_help, start_pull,
};
use crate::mechanisms::link::{Link, is_registered};
use crate::mechanisms::mechanism::{Busy, Mechanism, Peer};
use crate::mechanisms::outcome::{CopyError, NotRegistered, RegisterError, Role, Step};
use crate::mechanisms::permission::{Reason, may_read};
use crate::mechanisms::piece::{self, Copying, Described, Description, Kind, Piece, Registry};
use crate::pull::HelpStep;
use crate::thresholds::BOTH_FROM_BYTES;

/// Copies by the kernel, made by both sides: the receiver begins at the beginning, the sender at the end.
///
/// The receiver needs the right to read the sender's memory. Without the right to write to the receiver's memory, the
/// sender leaves all of it to the receiver, as it does with messages of less than [`BOTH_FROM_BYTES`].
///
/// # Example
/// ```
/// use corewire_ring::message::Memory;
/// use corewire_transfer::mechanisms::{BothSides, Mechanism, PairLink, Peer, Role, Step};
///
/// let (near, far) = PairLink::between_threads(16, 16 << 10)?;
/// let own = Peer::own()?;
/// let mut sender = BothSides::initialise(own.clone(), Role::Source, near)?;
/// let mut receiver = BothSides::initialise(own, Role::Target, far)?;
/// let source = sender.register(Memory::from(vec![7; 100]))?;
/// let mut target = receiver.register(Memory::from(vec![0; 100]))?;
/// let from = source.description();
/// while receiver.copy_local(&mut target, &from)? != Step::Done(100) {}
/// assert_eq!(receiver.deregister(target)?.into_vec(), [7; 100]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BothSides<L> {
    peer: Peer,
    registry: Registry,
    link: L,
    /// The number of the last source from which the target has copied.
    last: u64,
}

const KIND: Kind = Kind::BothSides;

impl<L: Link> Mechanism for BothSides<L> {
    const NAME: &'static str = "both sides at once";
    const LOCAL: Role = Role::Target;
    type Link = L;
    type Memory = Memory;

    fn initialise(peer: Peer, role: Role, link: L) -> Result<Self, Reason> {
        let both = Self { peer, registry: Registry::new(KIND, role)?, link, last: 0 };
        both.possible()?;
        Ok(both)
    }

    fn finalise(self) -> L {
        self.link
    }

    fn possible(&self) -> Result<(), Reason> {
        match self.registry.role() {
            // The source may write, or leaves it to the target.
            Role::Source => Ok(()),
            Role::Target => may_read(self.peer.pid()),
        }
    }

    fn allocate(&mut self, parts: &[usize]) -> Result<Memory, RegisterError> {
        Ok(piece::allocate(parts))
    }

    fn register(&mut self, memory: Memory) -> Result<Piece, NotRegistered<Memory>> {
        register_offer(&mut self.registry, &mut self.link, memory)
    }

    fn deregister(&mut self, piece: Piece) -> Result<Memory, Busy<Memory>> {
        deregister_offer(&mut self.registry, &mut self.link, &self.peer, piece)
    }

    fn copy_local(&mut self, piece: &mut Piece, other: &Description) -> Result<Step, CopyError> {
        let Self { peer, link, last, .. } = self;
        piece.check(KIND, Role::Target)?;
        if let Copying::Nothing = piece.copying {
            let source = Described::parse(other, KIND, Role::Source)?;
            piece::check_room(source.bytes, piece.bytes())?;
            let is_helped = is_helped(peer, source.bytes);
            piece.copying = start_pull(peer, link, source, last, is_helped)?;
        }
        if let Copying::Pulling { number, .. } = piece.copying {
            let step = finish_pull(peer, piece)?;
            let Step::Done(bytes) = step else { return Ok(step) };
            if !is_helped(peer, bytes) {
                return Ok(step);
            }
            piece.copying = Copying::Telling { number, bytes };
        }
        let Copying::Telling { number, bytes } = piece.copying else { return Ok(Step::Wait) };
        // Without room the source has not read what it was told before.
        if !link.send_tag(number)? && !peer.has_ended() {
            return Ok(Step::Wait);
        }
        piece.copying = Copying::Nothing;
        Ok(Step::Done(bytes))
    }

    fn copy_remote(&mut self, piece: &mut Piece, other: &Description) -> Result<Step, CopyError> {
        let Self { peer, link, .. } = self;
        piece.check(KIND, Role::Source)?;
        if let Copying::Nothing = piece.copying {
            let target = Described::parse(other, KIND, Role::Target)?;
            piece::check_room(piece.bytes(), target.bytes)?;
            if !is_helped(peer, piece.bytes()) {
                return Ok(Step::Done(piece.bytes()));
            }
            let number = target.number;
            match start_help(peer, link, piece, target) {
                Some(help) => piece.copying = Copying::Helping { help, target: number, steps: 0 },
                None => return await_end(peer, link, piece, number),
            }
        }
        if let Copying::Helping { help, target, .. } = &mut piece.copying {
            match help.step() {
                HelpStep::More => return Ok(Step::More),
                // The target copies what this side has not copied, or may not copy.
                HelpStep::Over | HelpStep::Refused(_) => {
                    piece.copying = Copying::Awaiting { target: *target };
                }
            }
        }
        let Copying::Awaiting { target } = piece.copying else { return Ok(Step::Wait) };
        await_end(peer, link, piece, target)
    }
}

/// Whether the source may copy, too. Both sides come to the same answer.
fn is_helped(peer: &Peer, bytes: u64) -> bool {
    bytes >= BOTH_FROM_BYTES && !peer.is_here()
}

/// Looks whether the target has said that it has everything. It may have copied it before the source looked.
fn await_end(
    peer: &Peer,
    link: &mut impl Link,
    piece: &mut Piece,
    target: u64,
) -> Result<Step, CopyError> {
    // Before the messages are read: a target that has what it wants may take its memory back.
    let is_there = is_registered(link, target);
    while let Some(arrival) = link.arrival()? {
        link.pass(&arrival);
        if arrival.envelope.tag == piece.number {
            piece.copying = Copying::Spent;
            return Ok(Step::Done(piece.bytes()));
        }
    }
    if is_there {
        return Ok(Step::Wait);
    }
    Err(if peer.has_ended() { CopyError::PeerEnded } else { CopyError::Deregistered })
}
