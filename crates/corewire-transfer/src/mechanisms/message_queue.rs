//! Message queue: the sender copies the message into cells, each of which is a message of its own, and the receiver copies
//! them out one by one.
//!
//! The cells come from the pool that serves all peers, the one that was unused the longest first, as from the paper's
//! free queue. So they cost as little memory as the pool, whatever the number of peers; but a message of more than a
//! cache goes through cells that no cache holds any more. (The paper links cells into a queue that all senders share.
//! Here each pair has its own ring, because a sender that stops between two stores must hold up nobody else.)
//!
//! Both sides must be in a call. No right over the other process is needed, and nothing reaches its memory.
//!
//! Source: Buntinas and others, II-B.
//!
//! | | cost of a message of n bytes |
//! |---|---|
//! | register, deregister | no system call |
//! | source | n bytes copied; a slot and an envelope for each cell; no system call |
//! | target | n bytes copied; n/64 line transfers |

use corewire_ring::message::Memory;

use crate::mechanisms::link::{Cells, Link};
use crate::mechanisms::mechanism::{Busy, Mechanism, Peer};
use crate::mechanisms::outcome::{CopyError, NotRegistered, RegisterError, Role, Step};
use crate::mechanisms::permission::Reason;
use crate::mechanisms::piece::{self, Description, Kind, Piece, Registry};
use crate::mechanisms::shared_buffer::{Part, Pipe};

/// Copies into and out of cells.
///
/// # Example
/// ```
/// use corewire_ring::message::Memory;
/// use corewire_transfer::mechanisms::{MessageQueue, Mechanism, PairLink, Peer, Role, Step};
///
/// let (near, far) = PairLink::between_threads(16, 4 << 10)?;
/// let own = Peer::own()?;
/// let mut sender = MessageQueue::initialise(own.clone(), Role::Source, near)?;
/// let mut receiver = MessageQueue::initialise(own, Role::Target, far)?;
/// let mut source = sender.register(Memory::from(vec![7; 10_000]))?;
/// let mut target = receiver.register(Memory::from(vec![0; 10_000]))?;
/// let (from, to) = (source.description(), target.description());
/// assert_eq!(sender.copy_remote(&mut source, &to)?, Step::Done(10_000));
/// assert_eq!(receiver.copy_local(&mut target, &from)?, Step::Done(10_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MessageQueue<L> {
    pipe: Pipe<L>,
}

const KIND: Kind = Kind::MessageQueue;

impl<L: Link> Mechanism for MessageQueue<L> {
    const NAME: &'static str = "message queue";
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
        let cell_bytes = self.pipe.link.cell_bytes();
        self.pipe.take(KIND, piece, other, |message, _| message <= cell_bytes)
    }

    fn copy_remote(&mut self, piece: &mut Piece, other: &Description) -> Result<Step, CopyError> {
        let cell_bytes = self.pipe.link.cell_bytes();
        let total = piece.bytes();
        self.pipe.put(KIND, piece, other, |link, number, memory, from| {
            let bytes = cell_bytes.min(total - from);
            link.send(number, &Part { of: memory, from, bytes }, 0, Cells::InTurn)
        })
    }
}
