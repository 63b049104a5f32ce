//! Where a message's bytes lie on the caller's side: one piece, or several.

use corewire_layout::pair::PAIR_INLINE_BYTES_MAX;
use corewire_ring::pair::{Fragment, Source};

/// The memory of an operation that goes on while its caller does something else: one piece, or several
/// that are sent, or filled, one after the other. It is lent to the endpoint, and comes back when the
/// operation has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer(Parts);

impl Default for Buffer {
    fn default() -> Self {
        Self(Parts::One(Vec::new()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Parts {
    One(Vec<u8>),
    Many(Vec<Vec<u8>>),
}

impl Buffer {
    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Parts::One(part) => part.len(),
            Parts::Many(parts) => parts.iter().map(Vec::len).sum(),
        }
    }

    /// Has it no byte?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes, if they are so few that they travel in slots.
    pub(super) fn short(&self) -> Option<([u8; PAIR_INLINE_BYTES_MAX], usize)> {
        gather_short(self.parts(), self.len())
    }

    /// Its pieces.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let parts = match &self.0 {
            Parts::One(part) => std::slice::from_ref(part),
            Parts::Many(parts) => parts,
        };
        parts.iter().map(Vec::as_slice)
    }

    /// Its bytes in one piece; copied if there are several.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Parts::One(part) => part,
            Parts::Many(parts) => parts.concat(),
        }
    }

    /// Its pieces, as they were given.
    #[must_use]
    pub fn into_parts(self) -> Vec<Vec<u8>> {
        match self.0 {
            Parts::One(part) => vec![part],
            Parts::Many(parts) => parts,
        }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Parts::One(bytes))
    }
}

impl From<Vec<Vec<u8>>> for Buffer {
    fn from(parts: Vec<Vec<u8>>) -> Self {
        Self(Parts::Many(parts))
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Self {
        Self(Parts::One(bytes.to_vec()))
    }
}

impl Source for Buffer {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn fill(&self, offset: u64, target: &mut Fragment) {
        match &self.0 {
            Parts::One(part) => part.as_slice().fill(offset, target),
            Parts::Many(_) => fill_from(self.parts(), offset, target),
        }
    }
}

/// Several pieces that are sent as one message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gathered<'a>(pub(super) &'a [&'a [u8]]);

impl Gathered<'_> {
    pub(super) fn short(&self) -> Option<([u8; PAIR_INLINE_BYTES_MAX], usize)> {
        let bytes = self.0.iter().map(|part| part.len()).sum();
        gather_short(self.0.iter().copied(), bytes)
    }

    pub(super) fn to_vec(self) -> Vec<u8> {
        self.0.concat()
    }
}

impl Source for Gathered<'_> {
    fn bytes(&self) -> u64 {
        self.0.iter().map(|part| part.len() as u64).sum()
    }

    fn fill(&self, offset: u64, target: &mut Fragment) {
        fill_from(self.0.iter().copied(), offset, target);
    }
}

fn gather_short<'a>(
    parts: impl Iterator<Item = &'a [u8]>,
    length: usize,
) -> Option<([u8; PAIR_INLINE_BYTES_MAX], usize)> {
    if length > PAIR_INLINE_BYTES_MAX {
        return None;
    }
    let mut bytes = [0; PAIR_INLINE_BYTES_MAX];
    let mut at = 0;
    for part in parts {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    Some((bytes, length))
}

fn fill_from<'a>(parts: impl Iterator<Item = &'a [u8]>, offset: u64, target: &mut Fragment) {
    let mut skip = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut done = 0;
    for part in parts {
        let from = skip.min(part.len());
        skip -= from;
        done += target.put(done, &part[from..]);
    }
}

/// Where a receive's bytes go.
pub(super) trait Target {
    /// How many fit.
    fn capacity(&self) -> usize;

    /// Calls `fill` with the pieces that hold the bytes from `offset` on, in order, each with how many
    /// bytes lie between it and `offset`; as long as `fill` wants more.
    fn each_from(&mut self, offset: usize, fill: &mut dyn FnMut(usize, &mut [u8]) -> bool);
}

impl Target for Buffer {
    fn capacity(&self) -> usize {
        self.len()
    }

    fn each_from(&mut self, offset: usize, fill: &mut dyn FnMut(usize, &mut [u8]) -> bool) {
        match &mut self.0 {
            Parts::One(part) => {
                if let Some(rest) = part.get_mut(offset..) {
                    fill(0, rest);
                }
            }
            Parts::Many(parts) => each_of(parts.iter_mut().map(Vec::as_mut_slice), offset, fill),
        }
    }
}

impl Target for &mut [u8] {
    fn capacity(&self) -> usize {
        self.len()
    }

    fn each_from(&mut self, offset: usize, fill: &mut dyn FnMut(usize, &mut [u8]) -> bool) {
        if let Some(rest) = self.get_mut(offset..) {
            fill(0, rest);
        }
    }
}

impl Target for &mut [&mut [u8]] {
    fn capacity(&self) -> usize {
        self.iter().map(|part| part.len()).sum()
    }

    fn each_from(&mut self, offset: usize, fill: &mut dyn FnMut(usize, &mut [u8]) -> bool) {
        each_of(self.iter_mut().map(|part| &mut **part), offset, fill);
    }
}

fn each_of<'a>(
    parts: impl Iterator<Item = &'a mut [u8]>,
    offset: usize,
    fill: &mut dyn FnMut(usize, &mut [u8]) -> bool,
) {
    let (mut skip, mut done) = (offset, 0);
    for part in parts {
        let from = skip.min(part.len());
        skip -= from;
        let rest = &mut part[from..];
        let length = rest.len();
        if length > 0 && !fill(done, rest) {
            return;
        }
        done += length;
    }
}

/// Writes `bytes` at `offset`.
pub(super) fn put(target: &mut dyn Target, offset: usize, bytes: &[u8]) {
    target.each_from(offset, &mut |skip, part| {
        let Some(rest) = bytes.get(skip..) else { return false };
        let count = rest.len().min(part.len());
        part[..count].copy_from_slice(&rest[..count]);
        skip + count < bytes.len()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_filled_one_after_the_other() {
        let mut buffer = Buffer::from(vec![vec![0; 3], vec![], vec![0; 4]]);
        put(&mut buffer, 1, &[1, 2, 3, 4]);
        assert_eq!(buffer.clone().into_vec(), [0, 1, 2, 3, 4, 0, 0]);
        put(&mut buffer, 6, &[9]);
        assert_eq!(buffer.into_parts(), [vec![0, 1, 2], vec![], vec![3, 4, 0, 9]]);
    }
}
