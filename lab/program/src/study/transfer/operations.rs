//! The paper's interface of six operations (III-A), over which each mechanism is measured by one program.
//!
//! | the paper | here |
//! |---|---|
//! | `init`, `finalize` | [`open`], and the end of the value |
//! | `register_mem`, `deregister_mem` | [`Operations::register`], [`Operations::deregister`] |
//! | `copy_local`, `copy_remote` | the same |
//!
//! The mechanisms of `corewire-transfer` have this interface themselves
//! ([`Mechanism`](corewire_transfer::mechanisms::Mechanism)), in steps that never wait. Here each call does all of it,
//! because the study has only one transfer at a time, and mechanisms are added that the library has no need of: those
//! that the paper printed, a window, and a network interface.

use corewire_harness::rounds::nanoseconds;
use corewire_transfer::mechanisms::{
    BothSides, KernelGet, KernelPut, MessageQueue, Ptrace, Role, SharedBuffer,
};

use super::arena::{Contents, Place};
use super::clock::clock;
use super::library::Library;
use super::mapped::MappedBuffers;
use super::network::Network;
use super::pair::{Home, Pair};
use super::printed::{Buffers, PrintedBuffer, PrintedQueue, QUEUE};
use super::ways::Id;
use super::window::{Nothing, Window};
use crate::study::failure::Failure;

/// The two leave a barrier within this time, if their clocks are the same.
const APART_NS: f64 = 2000.0;

/// One side of a mechanism.
pub(super) trait Operations {
    /// The side that starts the copy: the receiver, except for a put.
    fn local(&self) -> Role;

    /// Where messages lie at their sender.
    fn home(&self) -> Home {
        Home::Private
    }

    /// Prepares transfers of so many bytes. Both sides call it.
    fn prepare(&mut self, _pair: &mut Pair<'_>, _bytes: usize) -> Result<(), Failure> {
        Ok(())
    }

    /// Writes the message of the next transfer, which lies at `place`. Returns how many ticks it took.
    fn write(&mut self, pair: &mut Pair<'_>, place: Place, contents: Contents) -> u64 {
        let home = self.home();
        pair.write(home, place, contents)
    }

    /// Registers the buffer of the next transfer, and tells the other side where it is. Both sides call it.
    fn register(&mut self, pair: &mut Pair<'_>, place: Place) -> Result<(), Failure>;

    /// Ends the registration.
    fn deregister(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure>;

    /// The local side's part of the transfer.
    fn copy_local(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure>;

    /// The remote side's part.
    fn copy_remote(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure>;

    /// Does what this side can do at once before it computes: begins its part, or agrees to the other side's.
    fn begin(&mut self, _pair: &mut Pair<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// The part of this side.
    fn copy(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        if self.local() == pair.role { self.copy_local(pair) } else { self.copy_remote(pair) }
    }
}

/// Initialises a mechanism in both processes. The inner result is why it is not possible here.
pub(super) fn open(
    id: Id,
    pair: &mut Pair<'_>,
) -> Result<Result<Box<dyn Operations>, String>, Failure> {
    fn boxed<O: Operations + 'static>(
        opened: Result<O, String>,
    ) -> Result<Box<dyn Operations>, String> {
        opened.map(|opened| Box::new(opened) as _)
    }
    let (peer, role, link) = (pair.peer.clone(), pair.role, pair.link.clone());
    let opened = match id {
        Id::Nothing => Ok(Box::new(Nothing) as _),
        Id::PrintedBuffer => Ok(Box::new(PrintedBuffer::open(pair, Buffers::PAPER)?) as _),
        Id::PrintedStreaming => match Buffers::past_caches() {
            Some(form) => Ok(Box::new(PrintedBuffer::open(pair, form)?) as _),
            None => Err("the processor has no stores past the caches".to_owned()),
        },
        Id::SharedBuffer => boxed(Library::<SharedBuffer<_>>::open(peer, role, link)),
        Id::PrintedQueue => Ok(Box::new(PrintedQueue::open(pair, QUEUE)?) as _),
        Id::MessageQueue => boxed(Library::<MessageQueue<_>>::open(peer, role, link)),
        Id::Ptrace => boxed(Library::<Ptrace>::open(peer, role, ())),
        Id::KernelPut => boxed(Library::<KernelPut<_>>::open(peer, role, link)),
        Id::KernelGet => boxed(Library::<KernelGet>::open(peer, role, ())),
        Id::BothSides => boxed(Library::<BothSides<_>>::open(peer, role, link)),
        Id::Window => Ok(Box::new(Window::default()) as _),
        Id::Mapped => boxed(MappedBuffers::open(peer, role)),
        Id::NetworkPut => boxed(Network::open(pair, Role::Source)?),
        Id::NetworkGet => boxed(Network::open(pair, Role::Target)?),
    };
    let why = opened.as_ref().err().cloned();
    let whys = pair.swap_notes(why.clone().unwrap_or_default().as_bytes())?;
    Ok(match why {
        Some(why) => Err(why),
        None if whys.is_empty() => opened,
        None => Err(String::from_utf8_lossy(&whys).into_owned()),
    })
}

/// One transfer, whose every byte is compared.
pub(super) fn check(
    way: &mut dyn Operations,
    pair: &mut Pair<'_>,
    bytes: usize,
) -> Result<(), Failure> {
    let contents = Contents::Checked(bytes as u64);
    transfer(way, pair, bytes, Some(contents)).map(drop)
}

/// One transfer, of a message that is written before and read after it, or not. Returns its time in ticks at the receiver:
/// from the moment when both have reached the barrier until everything is there, and has been read, with that of writing
/// it.
#[inline(always)]
pub(super) fn transfer(
    way: &mut dyn Operations,
    pair: &mut Pair<'_>,
    bytes: usize,
    contents: Option<Contents>,
) -> Result<u64, Failure> {
    let place = pair.next(way.home(), bytes);
    let is_source = pair.is_source();
    let mut written = 0;
    if let Some(contents) = contents
        && is_source
    {
        written = way.write(pair, place, contents);
    }
    way.register(pair, place)?;
    if contents.is_some() {
        written = pair.swap_numbers(written)?;
    }
    pair.barrier()?;
    let start = clock();
    way.copy(pair)?;
    if let Some(contents) = contents
        && !is_source
    {
        contents.read(pair.private.slice(place))?;
    }
    let end = clock();
    let other = pair.swap_numbers(start)?;
    let took = end - first(start, other) + written;
    way.deregister(pair)?;
    Ok(took)
}

/// When the first of the two left the barrier. The one that reached it last leaves it at once, and the other one when the
/// line with this news has come, so that a time from there would be too short. Processors whose clocks differ have only
/// their own.
fn first(own: u64, other: u64) -> u64 {
    let is_near = own > other && nanoseconds(own - other) < APART_NS;
    if is_near { other } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_begins_when_the_last_of_the_two_has_come() {
        assert_eq!(first(1000, 990), 990);
        assert_eq!(first(1000, 1010), 1000);
        assert_eq!(first(u64::MAX, 5), u64::MAX, "another clock");
    }
}
