//! Memory that an endpoint exposes to its peers, and what its owner does there for them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ptr;

use corewire_layout::access::{Change, Kind, Number, Relation};

use crate::copying::{NextReader, copy_anywhere};
use crate::sync::Ordering::Relaxed;
use crate::sync::{StaticU8, StaticU16, StaticU32, StaticU64};

/// Memory that peers may access: of its own, which clones share, or the caller's.
///
/// Any process that may do so can write any byte of it at any time. So there is never a reference to the bytes: what is
/// copied may be any mixture of what was there before and after.
#[derive(Clone)]
pub struct Exposed {
    address: usize,
    bytes: usize,
    own: Option<Arc<Vec<StaticU64>>>,
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposed").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Exposed {
    /// New memory of `bytes` bytes, all zero. `None` if there is none.
    ///
    /// It is freed when all clones have been dropped, and no peer copies to it or from it.
    #[must_use]
    pub fn new(bytes: usize) -> Option<Self> {
        let (mut own, words) = (Vec::new(), bytes.div_ceil(size_of::<StaticU64>()));
        own.try_reserve_exact(words).ok()?;
        own.resize_with(words, || StaticU64::new(0));
        let address = own.as_ptr().expose_provenance();
        Some(Self { address, bytes, own: Some(Arc::new(own)) })
    }

    /// Memory that the caller keeps: `bytes` bytes at `at`. It is only accessed through pointers, and only where a peer
    /// says: the whole address space is `bytes` of [`usize::MAX`] at null.
    ///
    /// # Safety
    /// Until the endpoint that exposes it conceals it or is dropped, and no peer copies to it or from it any more, whatever
    /// of it peers access is mapped, writable if they may write, its provenance exposed, and no part of it is seen through a Rust reference.
    #[must_use]
    pub unsafe fn pinned(at: *mut u8, bytes: usize) -> Self {
        Self { address: at.expose_provenance(), bytes, own: None }
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of its first byte, for peers.
    #[must_use]
    pub fn address(&self) -> usize {
        self.address
    }

    /// Whether the caller keeps it.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.own.is_none()
    }

    /// The `bytes` bytes from `offset` on. `None` if it does not reach there.
    fn at(&self, offset: usize, bytes: usize) -> Option<*mut u8> {
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        is_inside.then(|| ptr::with_exposed_provenance_mut(self.address.wrapping_add(offset)))
    }

    /// Copies bytes to the place at `offset`. False if it does not reach there; nothing was done then.
    #[must_use]
    pub fn put(&self, offset: usize, source: &[u8]) -> bool {
        let Some(to) = self.at(offset, source.len()) else { return false };
        // SAFETY: mapped and writable, as `new` and the caller of `pinned` see to; both have this length, and no reference
        // to the memory exists.
        unsafe { copy_anywhere(NextReader::Own, source.as_ptr(), to, source.len()) };
        true
    }

    /// Copies bytes from the place at `offset`. False if it does not reach there; nothing was done then.
    #[must_use]
    pub fn get(&self, offset: usize, target: &mut [u8]) -> bool {
        let Some(from) = self.at(offset, target.len()) else { return false };
        // SAFETY: as in `put`.
        unsafe { copy_anywhere(NextReader::Own, from, target.as_mut_ptr(), target.len()) };
        true
    }

    /// Does to `bytes` bytes at `offset` what `kind` says, with operands of the right length. Appends what was there before
    /// to `found`, if the kind tells it. Each number is changed at once if it is aligned, also for threads that change it by
    /// atomic operations. False if the memory does not reach there; nothing was done then.
    #[must_use]
    pub fn apply(
        &self,
        kind: Kind,
        offset: usize,
        bytes: usize,
        operands: &[u8],
        found: &mut Vec<u8>,
    ) -> bool {
        let Some(at) = self.at(offset, bytes) else { return false };
        let begin = found.len();
        match kind {
            Kind::Put => return self.put(offset, operands),
            Kind::Signal => return true,
            Kind::Get => {
                found.resize(begin + bytes, 0);
                return self.get(offset, &mut found[begin..]);
            }
            Kind::Update(change, number) | Kind::Fetch(change, number) => {
                self.each(at, bytes, number, found, |index, bits| {
                    let operand = operand_of(operands, index, number);
                    changed(change, number, bits, operand)
                });
            }
            Kind::Compare(relation, number) => {
                let (expected, new) = operands.split_at(bytes.min(operands.len()));
                self.each(at, bytes, number, found, |index, bits| {
                    let is_so =
                        relates(relation, number, operand_of(expected, index, number), bits);
                    if is_so { operand_of(new, index, number) } else { bits }
                });
            }
            Kind::Mask(number) => {
                let (mask, new) = operands.split_at(bytes.min(operands.len()));
                self.each(at, bytes, number, found, |index, bits| {
                    let mask = operand_of(mask, index, number);
                    operand_of(new, index, number) & mask | bits & !mask
                });
            }
        }
        if !kind.tells() {
            found.truncate(begin);
        }
        true
    }

    /// Changes each number, and appends what it was.
    fn each(
        &self,
        at: *mut u8,
        bytes: usize,
        number: Number,
        found: &mut Vec<u8>,
        change: impl Fn(usize, u64) -> u64,
    ) {
        let width = number.bytes();
        for index in 0..bytes / width {
            // SAFETY: within the memory, as `at` has checked.
            let place = unsafe { at.add(index * width) };
            // SAFETY: mapped and writable, as `new` and the caller of `pinned` see to.
            let before = unsafe { change_at(place, width, |bits| change(index, bits)) };
            found.extend_from_slice(&before.to_le_bytes()[..width]);
        }
    }
}

/// Changes the number of `width` bytes at `place`, and returns what it was.
///
/// # Safety
/// It is mapped and writable, and no reference to it exists.
unsafe fn change_at(place: *mut u8, width: usize, change: impl Fn(u64) -> u64) -> u64 {
    macro_rules! change_word {
        ($word:ty, $bits:ty) => {{
            // SAFETY: the caller guarantees that; it is aligned.
            let word = unsafe { <$word>::from_ptr(place.cast()) };
            #[allow(clippy::cast_possible_truncation, clippy::unnecessary_cast, reason = "bits")]
            let change = |bits: $bits| Some(change(bits.into()) as $bits);
            word.fetch_update(Relaxed, Relaxed, change).unwrap_or_default().into()
        }};
    }
    match width {
        8 if place.cast::<u64>().is_aligned() => change_word!(StaticU64, u64),
        4 if place.cast::<u32>().is_aligned() => change_word!(StaticU32, u32),
        2 if place.cast::<u16>().is_aligned() => change_word!(StaticU16, u16),
        1 => change_word!(StaticU8, u8),
        // Byte by byte: another thread may find a part of it.
        _ => {
            let byte_at = |index| {
                // SAFETY: within the number.
                let at = unsafe { place.add(index) };
                // SAFETY: the caller guarantees that.
                unsafe { StaticU8::from_ptr(at) }
            };
            let mut bits = [0; 8];
            for (index, byte) in bits.iter_mut().enumerate().take(width) {
                *byte = byte_at(index).load(Relaxed);
            }
            let before = u64::from_le_bytes(bits);
            let after = change(before).to_le_bytes();
            for (index, byte) in after.into_iter().enumerate().take(width) {
                byte_at(index).store(byte, Relaxed);
            }
            before
        }
    }
}

/// The bits of the operand of this index; 0 if there is none.
fn operand_of(operands: &[u8], index: usize, number: Number) -> u64 {
    let width = number.bytes();
    let mut bits = [0; 8];
    if let Some(operand) = operands.get(index * width..(index + 1) * width) {
        bits[..width].copy_from_slice(operand);
    }
    u64::from_le_bytes(bits)
}

/// A number, by its bits.
trait Value: Copy + PartialOrd {
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
    fn changed(self, change: Change, operand: Self) -> Self;
}

/// What changes all kinds of numbers alike.
macro_rules! changed {
    ($a:expr, $change:expr, $b:expr, $zero:expr, $one:expr, $($special:tt)*) => {{
        let (a, b) = ($a, $b);
        let truth = |it: bool| if it { $one } else { $zero };
        let (is_a, is_b) = (a != $zero, b != $zero);
        match $change {
            Change::Replace => b,
            Change::Min => if b < a { b } else { a },
            Change::Max => if b > a { b } else { a },
            Change::LogicalAnd => truth(is_a && is_b),
            Change::LogicalOr => truth(is_a || is_b),
            Change::LogicalXor => truth(is_a != is_b),
            $($special)*
        }
    }};
}

macro_rules! integers {
    ($($type:ty)*) => { $(
        impl Value for $type {
            #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "bits")]
            fn of(bits: u64) -> Self {
                bits as Self
            }
            #[allow(clippy::cast_sign_loss, clippy::cast_lossless, reason = "bits")]
            fn bits(self) -> u64 {
                self as u64
            }
            fn changed(self, change: Change, operand: Self) -> Self {
                changed!(self, change, operand, 0, 1,
                    Change::Keep => self,
                    Change::Add => self.wrapping_add(operand),
                    Change::Multiply => self.wrapping_mul(operand),
                    Change::And => self & operand,
                    Change::Or => self | operand,
                    Change::Xor => self ^ operand,
                )
            }
        }
    )* };
}
integers!(i8 u8 i16 u16 i32 u32 i64 u64);

macro_rules! floats {
    ($($type:ty: $bits:ty),*) => { $(
        impl Value for $type {
            #[allow(clippy::cast_possible_truncation, reason = "bits")]
            fn of(bits: u64) -> Self {
                Self::from_bits(bits as $bits)
            }
            fn bits(self) -> u64 {
                self.to_bits().into()
            }
            fn changed(self, change: Change, operand: Self) -> Self {
                changed!(self, change, operand, 0.0, 1.0,
                    Change::Add => self + operand,
                    Change::Multiply => self * operand,
                    // Bits of floats are changed by no request.
                    Change::Keep | Change::And | Change::Or | Change::Xor => self,
                )
            }
        }
    )* };
}
floats!(f32: u32, f64: u64);

macro_rules! with_type {
    ($number:expr, $function:ident($($argument:expr),*)) => {
        match $number {
            Number::I8 => $function::<i8>($($argument),*),
            Number::U8 => $function::<u8>($($argument),*),
            Number::I16 => $function::<i16>($($argument),*),
            Number::U16 => $function::<u16>($($argument),*),
            Number::I32 => $function::<i32>($($argument),*),
            Number::U32 => $function::<u32>($($argument),*),
            Number::I64 => $function::<i64>($($argument),*),
            Number::U64 => $function::<u64>($($argument),*),
            Number::F32 => $function::<f32>($($argument),*),
            Number::F64 => $function::<f64>($($argument),*),
        }
    };
}

/// The bits of a number after a change.
fn changed(change: Change, number: Number, bits: u64, operand: u64) -> u64 {
    fn of<V: Value>(change: Change, bits: u64, operand: u64) -> u64 {
        V::of(bits).changed(change, V::of(operand)).bits()
    }
    with_type!(number, of(change, bits, operand))
}

/// Whether an operand relates so to a number.
fn relates(relation: Relation, number: Number, operand: u64, bits: u64) -> bool {
    fn of<V: Value>(relation: Relation, operand: u64, bits: u64) -> bool {
        let (operand, number) = (V::of(operand), V::of(bits));
        match relation {
            Relation::Equal => operand == number,
            Relation::Unequal => operand != number,
            Relation::AtMost => operand <= number,
            Relation::Less => operand < number,
            Relation::AtLeast => operand >= number,
            Relation::Greater => operand > number,
        }
    }
    with_type!(number, of(relation, operand, bits))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn with(bytes: &[u8]) -> Exposed {
        let memory = Exposed::new(bytes.len()).unwrap();
        assert!(memory.put(0, bytes));
        memory
    }

    fn apply(memory: &Exposed, kind: Kind, at: usize, bytes: usize, operands: &[u8]) -> Vec<u8> {
        let mut found = Vec::new();
        assert!(memory.apply(kind, at, bytes, operands, &mut found));
        found
    }

    fn of_i32(memory: &Exposed) -> i32 {
        let mut bytes = [0; 4];
        assert!(memory.get(0, &mut bytes));
        i32::from_le_bytes(bytes)
    }

    #[test]
    fn integers_are_changed() {
        let all = [
            (Change::Keep, -7),
            (Change::Replace, 3),
            (Change::Add, -4),
            (Change::Multiply, -21),
            (Change::Min, -7),
            (Change::Max, 3),
            (Change::LogicalAnd, 1),
            (Change::LogicalOr, 1),
            (Change::LogicalXor, 0),
            (Change::And, -7 & 3),
            (Change::Or, -7 | 3),
            (Change::Xor, -7 ^ 3),
        ];
        for (change, expected) in all {
            let memory = with(&(-7i32).to_le_bytes());
            let kind = Kind::Fetch(change, Number::I32);
            let operand = if change == Change::Keep { vec![] } else { 3i32.to_le_bytes().to_vec() };
            assert_eq!(apply(&memory, kind, 0, 4, &operand), (-7i32).to_le_bytes());
            assert_eq!(of_i32(&memory), expected, "{change:?}");
        }
    }

    #[test]
    fn sums_of_all_numbers_wrap_or_are_those_of_floats() {
        for &number in Number::ALL {
            let width = number.bytes();
            let one = match number {
                Number::F32 => 1f32.to_le_bytes().to_vec(),
                Number::F64 => 1f64.to_le_bytes().to_vec(),
                _ => 1u64.to_le_bytes()[..width].to_vec(),
            };
            // Not aligned, and two of them.
            let memory = with(&[0; 17]);
            let kind = Kind::Update(Change::Add, number);
            for _ in 0..3 {
                assert!(
                    apply(&memory, kind, 1, 2 * width, &[one.clone(), one.clone()].concat())
                        .is_empty()
                );
            }
            let mut found = vec![0; 2 * width];
            assert!(memory.get(1, &mut found));
            let three = match number {
                Number::F32 => 3f32.to_le_bytes().to_vec(),
                Number::F64 => 3f64.to_le_bytes().to_vec(),
                _ => 3u64.to_le_bytes()[..width].to_vec(),
            };
            assert_eq!(found, [three.clone(), three].concat(), "{number:?}");
        }
        let memory = with(&[255]);
        apply(&memory, Kind::Update(Change::Add, Number::U8), 0, 1, &[2]);
        assert_eq!(apply(&memory, Kind::Get, 0, 1, &[]), [1]);
    }

    #[test]
    fn a_number_is_swapped_if_it_relates() {
        use Relation::{AtLeast, AtMost, Equal, Greater, Less, Unequal};
        for (relation, swaps) in [
            (Equal, [false, true, false]),
            (Unequal, [true, false, true]),
            (AtMost, [true, true, false]),
            (Less, [true, false, false]),
            (AtLeast, [false, true, true]),
            (Greater, [false, false, true]),
        ] {
            for (operand, swaps) in [-1f64, 2.0, 5.0].into_iter().zip(swaps) {
                let memory = with(&2f64.to_le_bytes());
                let operands = [operand.to_le_bytes(), 9f64.to_le_bytes()].concat();
                let kind = Kind::Compare(relation, Number::F64);
                assert_eq!(apply(&memory, kind, 0, 8, &operands), 2f64.to_le_bytes());
                let expected = if swaps { 9f64 } else { 2.0 };
                assert_eq!(apply(&memory, Kind::Get, 0, 8, &[]), expected.to_le_bytes());
            }
        }
        let memory = with(&[0b1100]);
        assert_eq!(apply(&memory, Kind::Mask(Number::U8), 0, 1, &[0b0110, 0b1010]), [0b1100]);
        assert_eq!(apply(&memory, Kind::Get, 0, 1, &[]), [0b1010]);
    }

    #[test]
    fn nothing_beyond_the_memory_is_touched() {
        let memory = with(&[7; 8]);
        let mut found = Vec::new();
        for (at, bytes) in [(1, 8), (8, 8), (usize::MAX, 8), (9, 0)] {
            assert!(!memory.apply(Kind::Get, at, bytes, &[], &mut found));
            assert!(!memory.put(at, &[1; 8][..bytes]) && !memory.get(at, &mut [0; 8][..bytes]));
        }
        assert_eq!(apply(&memory, Kind::Get, 0, 8, &[]), [7; 8]);
        assert!(found.is_empty());
    }
}
