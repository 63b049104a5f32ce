//! The memory that a message goes to, for a writer that does not copy it through a slice: the kernel, or another process.

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use corewire_layout::rendezvous::Stretch;

/// Memory that a message may be written to, one part after the other. It is writable as long as this value lives, and
/// belongs to nobody else.
pub struct Landing<'a> {
    parts: Parts,
    /// The vector whose capacity it is.
    vector: Option<&'a mut Vec<u8>>,
    _lent: PhantomData<&'a mut [u8]>,
}

type Part = (NonNull<u8>, usize);

/// Most messages have one part, which needs no allocation.
enum Parts {
    One(Part),
    Many(Vec<Part>),
}

impl fmt::Debug for Landing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Landing").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

fn part_of(bytes: &mut [u8]) -> Part {
    let count = bytes.len();
    (NonNull::from(bytes).cast(), count)
}

impl<'a> Landing<'a> {
    /// This slice.
    #[must_use]
    pub fn of_slice(bytes: &'a mut [u8]) -> Self {
        Self { parts: Parts::One(part_of(bytes)), vector: None, _lent: PhantomData }
    }

    /// These slices, one after the other.
    #[must_use]
    pub fn of_slices(slices: impl Iterator<Item = &'a mut [u8]>) -> Self {
        Self { parts: Parts::Many(slices.map(part_of).collect()), vector: None, _lent: PhantomData }
    }

    /// The whole capacity of this vector. A program that invites another process to write there has initialized it.
    #[must_use]
    pub fn of_vector(vector: &'a mut Vec<u8>) -> Self {
        // Also what has been written: a message that comes again comes from its beginning.
        let at = NonNull::new(vector.as_mut_ptr()).unwrap_or(NonNull::dangling());
        let parts = Parts::One((at, vector.capacity()));
        Self { parts, vector: Some(vector), _lent: PhantomData }
    }

    /// These parts, one after the other.
    ///
    /// # Safety
    /// They are writable for `'a`, and nobody else accesses them.
    #[must_use]
    pub unsafe fn of_pins(parts: &[(NonNull<u8>, usize)]) -> Self {
        Self { parts: Parts::Many(parts.to_vec()), vector: None, _lent: PhantomData }
    }

    /// Its parts, in order: their first bytes and their lengths.
    #[must_use]
    pub fn parts(&self) -> &[(NonNull<u8>, usize)] {
        match &self.parts {
            Parts::One(part) => core::slice::from_ref(part),
            Parts::Many(parts) => parts,
        }
    }

    /// Number of bytes that fit.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts().iter().map(|(_, bytes)| *bytes as u64).sum()
    }

    /// Where it lies, as numbers.
    pub fn stretches_all(&self) -> impl Iterator<Item = Stretch> {
        self.parts().iter().map(|&(at, bytes)| {
            let address = at.as_ptr().expose_provenance() as u64;
            Stretch { address, bytes: bytes as u64 }
        })
    }

    /// Where its first `bytes` bytes lie, as numbers.
    #[must_use]
    pub fn stretches(&self, bytes: u64) -> Vec<Stretch> {
        let mut left = bytes;
        let cut = self.stretches_all().map(|part| {
            let bytes = left.min(part.bytes);
            left -= bytes;
            Stretch { bytes, ..part }
        });
        cut.filter(|part| part.bytes > 0).collect()
    }

    /// How many of its first bytes have been written before.
    #[must_use]
    pub fn written(&self) -> usize {
        match &self.vector {
            Some(vector) => vector.len(),
            None => usize::try_from(self.bytes()).unwrap_or(usize::MAX),
        }
    }

    /// Its first `bytes` bytes have been written.
    ///
    /// # Safety
    /// They have, by any process, and everything that was written is visible to this thread.
    pub unsafe fn set_written(self, bytes: usize) {
        if let Some(vector) = self.vector {
            let bytes = bytes.min(vector.capacity());
            // SAFETY: within the capacity, and initialized as the caller guarantees.
            unsafe { vector.set_len(bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::message::{Memory, Sink};

    #[test]
    fn stretches_end_with_the_message() {
        let mut memory = Memory::from(vec![vec![0; 3], vec![], vec![0; 4]]);
        let landing = memory.landing();
        assert_eq!(landing.bytes(), 7);
        let lengths = |bytes| -> Vec<u64> {
            landing.stretches(bytes).iter().map(|stretch| stretch.bytes).collect()
        };
        assert_eq!((lengths(2), lengths(5), lengths(9)), (vec![2], vec![3, 2], vec![3, 4]));
    }

    #[test]
    fn a_vector_has_the_length_that_was_written() {
        let mut bytes = Vec::with_capacity(8);
        let landing = bytes.landing();
        let (at, room) = landing.parts()[0];
        assert!(room >= 8);
        for i in 0..5 {
            // SAFETY: within the capacity.
            let at = unsafe { at.add(i) };
            // SAFETY: as above; nothing but the landing writes there.
            unsafe { at.write(7) };
        }
        // SAFETY: written above.
        unsafe { landing.set_written(5) };
        assert_eq!(bytes, [7; 5]);
    }
}
