//! The bytes of messages, and memory that shows what was written beside its parts.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::OnceLock;

use corewire::Memory;

use super::plan::{Mixer, Parts};

/// Length of the pattern. It is prime, so that no piece of a message has the bytes of another.
const PATTERN_BYTES: usize = 1_048_573;
/// What nobody may write over.
const CANARY: u8 = 0xa5;
/// Canaries before the first part and behind the last.
const MARGIN_BYTES: usize = 4096;
const GAP_BYTES_MAX: usize = 64;

fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut random = Mixer(1);
        (0..PATTERN_BYTES).map(|_| u8::try_from(random.below(256)).unwrap_or_default()).collect()
    })
}

/// The pieces of the pattern that are the bytes `range` of message `seed`.
fn pieces(seed: u64, range: Range<usize>) -> impl Iterator<Item = &'static [u8]> {
    let begin = usize::try_from(seed * 7919 % PATTERN_BYTES as u64).unwrap_or_default();
    let (mut at, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        let from = (begin + at) % PATTERN_BYTES;
        let length = (end - at).min(PATTERN_BYTES - from);
        at += length;
        (length > 0).then(|| &pattern()[from..from + length])
    })
}

/// Where `found` is not message `seed`, from its byte `from` on.
fn difference(seed: u64, from: usize, found: &[u8]) -> Option<usize> {
    let mut at = 0;
    for piece in pieces(seed, from..from + found.len()) {
        let there = &found[at..at + piece.len()];
        if there != piece {
            let equal = there.iter().zip(piece).take_while(|(one, other)| one == other);
            return Some(from + at + equal.count());
        }
        at += piece.len();
    }
    None
}

/// Fails unless `found` is message `seed`.
pub(super) fn check(seed: u64, bytes: usize, found: &[u8]) -> Result<(), String> {
    if found.len() != bytes {
        return Err(format!("message {seed} has {} bytes instead of {bytes}", found.len()));
    }
    difference(seed, 0, found).map_or(Ok(()), |at| Err(format!("message {seed} is torn at {at}")))
}

/// Memory in parts, with canaries around each of them.
#[derive(Debug)]
pub(super) struct Arena {
    bytes: Vec<u8>,
    parts: Vec<Range<usize>>,
}

impl Arena {
    pub(super) fn new(bytes: usize, parts: &Parts) -> Self {
        let mut random = Mixer(parts.seed ^ 1);
        let mut at = MARGIN_BYTES;
        let place = |length: usize| {
            let part = at..at + length;
            // Some parts touch each other.
            at += length + if random.below(4) == 0 { 0 } else { random.below(GAP_BYTES_MAX) };
            part
        };
        let parts = parts.lengths(bytes).into_iter().map(place).collect();
        Self { bytes: vec![CANARY; at + MARGIN_BYTES], parts }
    }

    /// Length of all parts together.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(Range::len).sum()
    }

    pub(super) fn slices(&mut self) -> Vec<&mut [u8]> {
        let (mut rest, mut at) = (&mut self.bytes[..], 0);
        let cut = |part: &Range<usize>| {
            let (_, behind) = std::mem::take(&mut rest).split_at_mut(part.start - at);
            let (slice, behind) = behind.split_at_mut(part.len());
            (rest, at) = (behind, part.end);
            slice
        };
        self.parts.iter().map(cut).collect()
    }

    /// Lends the parts to an operation.
    ///
    /// # Safety
    /// Until the operation has ended, or its endpoint was dropped, nothing else is done with this value.
    pub(super) unsafe fn lend(&mut self) -> Memory {
        let pin = |slice: &mut [u8]| (NonNull::from(&mut *slice).cast::<u8>(), slice.len());
        let pins: Vec<_> = self.slices().into_iter().map(pin).collect();
        // SAFETY: the caller's promise; the vector stays where it is.
        unsafe { Memory::pinned_parts(&pins) }
    }

    /// Puts message `seed` into the parts.
    pub(super) fn fill(&mut self, seed: u64) {
        let mut from = 0;
        for part in self.slices() {
            let mut at = 0;
            for piece in pieces(seed, from..from + part.len()) {
                part[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
            from += part.len();
        }
    }

    /// Fills all of it with the canary: from now on nobody may write there.
    pub(super) fn reset(&mut self) {
        self.bytes.fill(CANARY);
    }

    /// Fails unless the parts begin with the first `written` bytes of message `seed`, and nothing else was written.
    pub(super) fn check(&self, seed: u64, written: usize) -> Result<(), String> {
        let (mut from, mut at) = (0, 0);
        for part in &self.parts {
            let here = part.len().min(written - from);
            let found = &self.bytes[part.start..part.start + here];
            if let Some(at) = difference(seed, from, found) {
                return Err(format!("message {seed} is torn at {at} of {written}"));
            }
            if here > 0 {
                self.check_canaries(seed, at..part.start)?;
                at = part.start + here;
            }
            from += here;
        }
        self.check_canaries(seed, at..self.bytes.len())
    }

    fn check_canaries(&self, seed: u64, range: Range<usize>) -> Result<(), String> {
        let begin = range.start;
        let wrong = self.bytes[range].iter().position(|&byte| byte != CANARY);
        wrong.map_or(Ok(()), |at| {
            let at = begin + at;
            let parts = self.parts.iter().filter(|part| part.start <= at && at < part.end);
            Err(format!(
                "beside message {seed}: byte {at} of {} was written, in {} parts",
                self.bytes.len(),
                parts.count()
            ))
        })
    }
}
