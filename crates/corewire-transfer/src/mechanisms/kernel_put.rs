//! Kernel copy as a put: the sender copies the message into the receiver's memory (`process_vm_writev`).
//!
//! One-sided for the bytes: the receiver copies nothing. But it must be able to take its memory back, so it agrees with
//! the sender before and after each chunk: the sender claims chunk after chunk in the words of a copy from both ends
//! (`corewire_ring::pair::rendezvous`), of which the receiver claims none. When the sender has written all, it says so.
//! The receiver that deregisters claims everything that is left, and waits for the chunk that is being written, at most
//! 256 KiB, or for the sender's death. After a death was reported nothing is written any more.
//!
//! The sender needs the right to write to the receiver's memory, and to read it: before the first chunk it checks that
//! the token is there. A process number may name another process by then.
//!
//! Source: Buntinas and others, II-D (Kaput, put).
//!
//! | | cost of a message of n bytes |
//! |---|---|
//! | register, deregister | no system call |
//! | source | n bytes copied once; a system call for each chunk of 32 to 256 KiB and one to see that the peer lives |
//! | target | one short message |

use corewire_ring::message::Memory;

use crate::mechanisms::link::{Link, is_registered};
use crate::mechanisms::mechanism::{Busy, Mechanism, Peer};
use crate::mechanisms::outcome::{CopyError, NotRegistered, RegisterError, Role, Step};
use crate::mechanisms::permission::{Call, Reason, may_read, may_write};
use crate::mechanisms::piece::{
    self, Copying, Described, Description, Extra, Kind, Piece, Registry,
};
use crate::pull::{Help, HelpStep, Pull, PullStep, chunks_of};
use crate::thresholds::PIECES_MAX;

/// Copies by the kernel, made by the sender.
///
/// # Example
/// It takes two processes: a process does not write to itself in this way.
/// ```
/// use corewire_transfer::mechanisms::{KernelPut, Mechanism, PairLink, Peer, Reason, Role};
///
/// let (link, _) = PairLink::between_threads(16, 16 << 10)?;
/// let put = KernelPut::initialise(Peer::own()?, Role::Source, link);
/// assert_eq!(put.unwrap_err(), Reason::SameProcess);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct KernelPut<L> {
    peer: Peer,
    registry: Registry,
    link: L,
    /// The number of the last source from which the target has copied.
    last: u64,
}

const KIND: Kind = Kind::KernelPut;

impl<L: Link> Mechanism for KernelPut<L> {
    const NAME: &'static str = "kernel put";
    const LOCAL: Role = Role::Source;
    type Link = L;
    type Memory = Memory;

    fn initialise(peer: Peer, role: Role, link: L) -> Result<Self, Reason> {
        let put = Self { peer, registry: Registry::new(KIND, role)?, link, last: 0 };
        put.possible()?;
        Ok(put)
    }

    fn finalise(self) -> L {
        self.link
    }

    fn possible(&self) -> Result<(), Reason> {
        match self.registry.role() {
            Role::Source => {
                may_write(self.peer.pid())?;
                may_read(self.peer.pid())
            }
            Role::Target if self.peer.is_here() => Err(Reason::SameProcess),
            Role::Target => Ok(()),
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
        let Self { peer, link, .. } = self;
        piece.check(KIND, Role::Source)?;
        if let Copying::Nothing = piece.copying {
            let target = Described::parse(other, KIND, Role::Target)?;
            piece::check_room(piece.bytes(), target.bytes)?;
            if !is_registered(link, target.number) {
                return Err(if peer.has_ended() {
                    CopyError::PeerEnded
                } else {
                    CopyError::Deregistered
                });
            }
            if piece.bytes() == 0 {
                return Ok(Step::Done(0));
            }
            let number = target.number;
            let Some(help) = start_help(peer, link, piece, target) else { return Ok(Step::Wait) };
            piece.copying = Copying::Helping { help, target: number, steps: 0 };
        }
        let Copying::Helping { help, steps, .. } = &mut piece.copying else {
            return Ok(Step::Wait);
        };
        match help.step() {
            HelpStep::More => {
                *steps += 1;
                Ok(Step::More)
            }
            HelpStep::Over if *steps < chunks_of(piece.bytes).into() => {
                piece.copying = Copying::Spent;
                Err(CopyError::Deregistered)
            }
            HelpStep::Over if link.send_tag(piece.number)? => {
                piece.copying = Copying::Spent;
                Ok(Step::Done(piece.bytes))
            }
            HelpStep::Over => Ok(Step::Wait),
            HelpStep::Refused(refusal) => {
                piece.copying = Copying::Spent;
                Err(peer.refused(Call::Write, refusal))
            }
        }
    }

    fn copy_remote(&mut self, piece: &mut Piece, other: &Description) -> Result<Step, CopyError> {
        let Self { peer, link, last, .. } = self;
        piece.check(KIND, Role::Target)?;
        if let Copying::Nothing = piece.copying {
            let source = Described::parse(other, KIND, Role::Source)?;
            piece::check_room(source.bytes, piece.bytes())?;
            if source.bytes == 0 && is_registered(link, source.number) {
                return Ok(Step::Done(0));
            }
            piece.copying = start_pull(peer, link, source, last, true)?;
            return Ok(Step::Wait);
        }
        let Copying::Pulling { pull, number, is_told } = &mut piece.copying else {
            return Ok(Step::Wait);
        };
        while !*is_told && let Some(arrival) = link.arrival()? {
            *is_told = arrival.envelope.tag == *number;
            link.pass(&arrival);
        }
        if !*is_told {
            if pull.is_valid() || !pull.close() {
                return Ok(Step::Wait);
            }
            piece.copying = Copying::Nothing;
            return Err(CopyError::Deregistered);
        }
        // It finds that the source has claimed and copied everything. If the source has lied, this side copies the rest.
        finish_pull(peer, piece)
    }
}

/// Registers memory, with an offer's number.
pub(crate) fn register_offer<L: Link>(
    registry: &mut Registry,
    link: &mut L,
    memory: Memory,
) -> Result<Piece, NotRegistered<Memory>> {
    let role = registry.role();
    registry.register(memory, |memory| {
        if role == Role::Target && memory.is_pooled() {
            return Err(RegisterError::Pooled);
        }
        let number = link.make_offer().ok_or(RegisterError::Numbers { max: PIECES_MAX })?;
        Ok(Extra { number: Some(number), ..Extra::default() })
    })
}

/// Takes memory back, once the other side does not write to it any more.
pub(crate) fn deregister_offer<L: Link>(
    registry: &mut Registry,
    link: &mut L,
    peer: &Peer,
    mut piece: Piece,
) -> Result<Memory, Busy<Memory>> {
    link.end_offer(piece.number);
    if let Copying::Pulling { pull, .. } = &mut piece.copying
        && !pull.close()
        && !peer.has_ended()
    {
        return Err(Busy(Box::new(piece)));
    }
    Ok(registry.deregister(piece))
}

/// The source's side of a copy to `target`; `None` while the other side has not begun.
pub(crate) fn start_help<L: Link>(
    peer: &Peer,
    link: &L,
    piece: &Piece,
    target: Described,
) -> Option<Help> {
    if !link.has_begun(piece.number) {
        return None;
    }
    let helper = link.helper(piece.number, chunks_of(piece.bytes()))?;
    let source = piece.stretches().to_vec();
    let remote = peer.remote(target.token);
    Some(Help::new(helper, remote, source, target.place, piece.bytes()))
}

/// Begins the target's side of a copy from `source`, which is not `last`, the previous one.
pub(crate) fn start_pull<L: Link>(
    peer: &Peer,
    link: &L,
    source: Described,
    last: &mut u64,
    has_helper: bool,
) -> Result<Copying, CopyError> {
    let Described { number, bytes, token, place } = source;
    if !is_registered(link, number) {
        let has_ended = peer.has_ended();
        return Err(if has_ended { CopyError::PeerEnded } else { CopyError::Deregistered });
    }
    if *last == number {
        // The source's word still says what it has copied for the first message.
        let what = "the number of a piece that has served";
        return Err(CopyError::Unexpected { what, found: number });
    }
    let puller = link.puller(number, chunks_of(bytes));
    let puller =
        puller.ok_or(CopyError::Unexpected { what: "an offer's number", found: number })?;
    let has_helper = has_helper && !peer.is_here();
    let mut pull = Pull::new(puller, peer.remote(token), place, bytes, has_helper);
    if pull.invite() {
        *last = number;
    }
    if !pull.begin() {
        // The drop waits until the source writes nothing.
        return Err(CopyError::Deregistered);
    }
    Ok(Copying::Pulling { pull, number, is_told: false })
}

/// The target's next step.
pub(crate) fn finish_pull(peer: &Peer, piece: &mut Piece) -> Result<Step, CopyError> {
    let Piece { copying, memory, .. } = piece;
    let Copying::Pulling { pull, .. } = copying else { return Ok(Step::Wait) };
    let bytes = pull.bytes();
    match pull.step(memory) {
        PullStep::More => Ok(Step::More),
        PullStep::Busy if peer.has_ended() => Err(CopyError::PeerEnded),
        PullStep::Busy => Ok(Step::Wait),
        PullStep::Done => {
            piece.copying = Copying::Nothing;
            Ok(Step::Done(bytes))
        }
        PullStep::Void => {
            piece.copying = Copying::Nothing;
            Err(CopyError::Deregistered)
        }
        // The piece stays as it is: the source may still write to it.
        PullStep::Refused { why, .. } => Err(peer.refused(Call::Read, why)),
    }
}
