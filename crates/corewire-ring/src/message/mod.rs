//! The bytes of messages on the side of the program: where they come from, and where they go.
//!
//! A transport copies a message in pieces, at most once in each direction. [`Source`] and [`Sink`] name the two ends of
//! such a copy without a slice of the whole: a message may lie in several parts, or in memory that other threads write
//! meanwhile, which Rust does not allow as a slice.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the two ends of a copy, for slices |
//! | `envelope.rs` | what a message is matched by, and what a receive asks for |
//! | `memory.rs` | the memory that a program lends to an operation |
//! | `held.rs` | a message that is read where its sender wrote it |
//! | `exposed.rs` | memory that peers may access |
//! | `landing.rs` | the memory that a message goes to, for a writer that does not copy it through a slice |

use core::fmt;

use corewire_layout::rendezvous::Stretch;

use crate::copying::{self, NextReader};
use crate::pair::LentBlock;
use crate::region::Payload;

mod envelope;
mod exposed;
mod held;
mod landing;
mod memory;

pub use envelope::{Arrival, Envelope, Place, Space, Wanted, Wants};
pub use exposed::Exposed;
pub use held::{Held, Home};
pub use landing::Landing;
pub use memory::Memory;

/// A message to be sent, wherever its bytes lie.
pub trait Source {
    /// Its length in bytes.
    fn bytes(&self) -> u64;

    /// Writes its bytes from `offset` on, as many as `target` takes.
    fn fill(&self, offset: u64, target: &mut Fragment<'_>);

    /// Where its bytes lie, as numbers, one stretch after the other.
    fn stretches(&self, each: &mut dyn FnMut(Stretch));

    /// The block of the sender's heap in which it lies already, if it does.
    fn block(&self) -> Option<&LentBlock> {
        None
    }
}

/// Room for a part of a message.
pub struct Fragment<'a>(Room<'a>);

enum Room<'a> {
    /// In shared memory, which no other process reads before the part is published.
    Shared(Payload),
    Private(&'a mut [u8]),
}

impl fmt::Debug for Fragment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fragment").field("bytes", &self.bytes()).finish()
    }
}

impl<'a> Fragment<'a> {
    /// Room that an outbox has claimed, and publishes after this.
    #[inline(always)]
    pub(crate) fn shared(payload: Payload) -> Self {
        Self(Room::Shared(payload))
    }

    /// Room in private memory.
    #[must_use]
    pub fn private(bytes: &'a mut [u8]) -> Self {
        Self(Room::Private(bytes))
    }

    /// Number of bytes that fit.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Room::Shared(payload) => payload.bytes(),
            Room::Private(bytes) => bytes.len(),
        }
    }

    /// Writes as much of `source` as fits at `at`. Returns the number of bytes written.
    pub fn put(&mut self, at: usize, source: &[u8]) -> usize {
        match &mut self.0 {
            // SAFETY: it was claimed, and is not published yet.
            Room::Shared(payload) => unsafe { payload.put(at, source) },
            Room::Private(bytes) => put(bytes, at, source),
        }
    }
}

/// Where the bytes of a message go.
pub trait Sink {
    /// Number of bytes that fit, from the beginning on.
    fn room(&self) -> usize;

    /// Writes as much of `source` as fits at `at`, which is 0 or where the previous call ended.
    /// Returns the number of bytes written.
    fn put(&mut self, at: usize, source: &[u8]) -> usize;

    /// The same as [`put`](Self::put) at 0, for a message of at most 48 bytes.
    #[inline(always)]
    fn put_short(&mut self, source: &[u8]) {
        self.put(0, source);
    }

    /// The memory itself, from the beginning on.
    fn landing(&mut self) -> Landing<'_>;
}

impl<S: Sink + ?Sized> Sink for &mut S {
    #[inline(always)]
    fn room(&self) -> usize {
        (**self).room()
    }

    #[inline(always)]
    fn put(&mut self, at: usize, source: &[u8]) -> usize {
        (**self).put(at, source)
    }

    fn landing(&mut self) -> Landing<'_> {
        (**self).landing()
    }
}

impl Sink for [u8] {
    #[inline(always)]
    fn room(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn put(&mut self, at: usize, source: &[u8]) -> usize {
        put(self, at, source)
    }

    fn landing(&mut self) -> Landing<'_> {
        Landing::of_slice(self)
    }
}

impl Sink for [&mut [u8]] {
    fn room(&self) -> usize {
        self.iter().map(|part| part.len()).sum()
    }

    fn put(&mut self, at: usize, source: &[u8]) -> usize {
        scatter(self.iter_mut().map(|part| &mut **part), at, source)
    }

    fn landing(&mut self) -> Landing<'_> {
        Landing::of_slices(self.iter_mut().map(|part| &mut **part))
    }
}

impl Source for &[u8] {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn fill(&self, offset: u64, target: &mut Fragment<'_>) {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        target.put(0, self.get(offset..).unwrap_or_default());
    }

    fn stretches(&self, each: &mut dyn FnMut(Stretch)) {
        each(stretch_of(self));
    }
}

impl Source for &[&[u8]] {
    fn bytes(&self) -> u64 {
        self.iter().map(|part| part.len() as u64).sum()
    }

    fn fill(&self, offset: u64, target: &mut Fragment<'_>) {
        gather(self.iter().copied(), offset, target);
    }

    fn stretches(&self, each: &mut dyn FnMut(Stretch)) {
        self.iter().for_each(|part| each(stretch_of(part)));
    }
}

/// Where these bytes lie.
fn stretch_of(bytes: &[u8]) -> Stretch {
    Stretch { address: bytes.as_ptr().expose_provenance() as u64, bytes: bytes.len() as u64 }
}

#[inline(always)]
fn put(target: &mut [u8], at: usize, source: &[u8]) -> usize {
    let room = target.get_mut(at..).unwrap_or_default();
    let count = room.len().min(source.len());
    copying::copy_slice(NextReader::Own, &source[..count], &mut room[..count]);
    count
}

fn scatter<'a>(parts: impl Iterator<Item = &'a mut [u8]>, at: usize, source: &[u8]) -> usize {
    let (mut skip, mut done) = (at, 0);
    for part in parts {
        if done == source.len() {
            break;
        }
        let from = skip.min(part.len());
        skip -= from;
        done += put(&mut part[from..], 0, &source[done..]);
    }
    done
}

fn gather<'a>(parts: impl Iterator<Item = &'a [u8]>, offset: u64, target: &mut Fragment<'_>) {
    let mut skip = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut done = 0;
    for part in parts {
        let from = skip.min(part.len());
        skip -= from;
        done += target.put(done, &part[from..]);
    }
}
