//! The mechanisms of `corewire-transfer`.

use corewire_ring::message::Memory;
use corewire_transfer::mechanisms::{Description, Mechanism, Peer, Piece, Reason, Role, Step};

use super::arena::Place;
use super::operations::Operations;
use super::pair::Pair;
use crate::study::failure::{Doing, Failure};

/// After so many steps that had to wait, a side looks whether the other process has ended.
const LOOK_EVERY: u32 = 1 << 16;

/// One side of a mechanism of the library.
pub(super) struct Library<M: Mechanism> {
    mechanism: M,
    peer: Peer,
    now: Option<(Piece<M::Memory>, Description)>,
    /// This side's part of the transfer is over already.
    is_done: bool,
}

impl<M: Mechanism> Library<M> {
    pub(super) fn open(peer: Peer, role: Role, link: M::Link) -> Result<Self, String> {
        let mechanism = M::initialise(peer.clone(), role, link).map_err(said)?;
        Ok(Self { mechanism, peer, now: None, is_done: false })
    }

    /// Registers memory, and tells the other side where it is.
    pub(super) fn enter(
        &mut self,
        pair: &mut Pair<'_>,
        memory: M::Memory,
        describe: impl FnOnce(Vec<u8>) -> Description,
    ) -> Result<(), Failure> {
        let piece = self.mechanism.register(memory).doing("register memory")?;
        let other = pair.swap_notes(&piece.description().bytes)?;
        (self.now, self.is_done) = (Some((piece, describe(other))), false);
        Ok(())
    }

    /// Ends a registration.
    pub(super) fn leave(&mut self) -> Result<Option<M::Memory>, Failure> {
        let Some((mut piece, _)) = self.now.take() else { return Ok(None) };
        loop {
            match self.mechanism.deregister(piece) {
                Ok(memory) => return Ok(Some(memory)),
                Err(busy) if self.peer.has_ended() => return Err(busy).doing("deregister memory"),
                Err(busy) => piece = *busy.0,
            }
        }
    }

    /// Makes steps until this side's part is done.
    #[inline(always)]
    pub(super) fn steps(&mut self, pair: &Pair<'_>, is_local: bool) -> Result<(), Failure> {
        if self.is_done {
            return Ok(());
        }
        let Self { mechanism, peer, now, .. } = self;
        let (piece, other) = now.as_mut().ok_or_else(unregistered)?;
        let mut waits = 0u32;
        loop {
            let step = match is_local {
                true => mechanism.copy_local(piece, other),
                false => mechanism.copy_remote(piece, other),
            };
            match step.doing("copy")? {
                Step::Done(_) => return Ok(()),
                Step::More => {}
                Step::Wait => {
                    waits = waits.wrapping_add(1);
                    if waits.is_multiple_of(64) {
                        pair.worker().relax();
                    }
                    if waits.is_multiple_of(LOOK_EVERY) && peer.has_ended() {
                        return Err(Failure::other("the other process has ended"));
                    }
                }
            }
        }
    }

    /// Makes the first step of the remote side. The local side's would copy.
    pub(super) fn first_step(&mut self, pair: &Pair<'_>) -> Result<(), Failure> {
        if M::LOCAL != pair.role {
            let (piece, other) = self.now.as_mut().ok_or_else(unregistered)?;
            let step = self.mechanism.copy_remote(piece, other).doing("copy")?;
            self.is_done = matches!(step, Step::Done(_));
        }
        Ok(())
    }

    pub(super) fn mechanism(&mut self) -> &mut M {
        &mut self.mechanism
    }
}

/// A reason as a text.
fn said(reason: Reason) -> String {
    reason.to_string()
}

fn unregistered() -> Failure {
    Failure::other("no memory is registered")
}

impl<M: Mechanism<Memory = Memory>> Operations for Library<M> {
    fn local(&self) -> Role {
        M::LOCAL
    }

    fn register(&mut self, pair: &mut Pair<'_>, place: Place) -> Result<(), Failure> {
        let memory = pair.private.lend(place);
        self.enter(pair, memory, |bytes| Description { bytes, descriptor: None })
    }

    fn deregister(&mut self, _: &mut Pair<'_>) -> Result<(), Failure> {
        self.leave().map(drop)
    }

    #[inline(always)]
    fn copy_local(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        self.steps(pair, true)
    }

    #[inline(always)]
    fn copy_remote(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        self.steps(pair, false)
    }
    fn begin(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        self.first_step(pair)
    }
}
