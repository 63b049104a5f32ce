//! A window's data: bytes that are copied, and words that are loaded, stored and changed in place.
//!
//! Any participant may write any byte at any time. So there is never a reference to the bytes: a copy may be any mixture
//! of what was there before and after, and the words are atomics.
//!
//! Proofs: `proof/models/tests/models/windows.rs`.

use core::marker::PhantomData;

use crate::region::Region;
use crate::sync::Ordering::Relaxed;
use crate::{fence_at, order};

/// The data of a window, as this process has it mapped.
#[derive(Debug, Clone)]
pub struct Data {
    region: Region,
    bytes: u64,
    is_writable: bool,
}

/// A number in a window, of 32 or 64 bits: `u32`, `i32`, `f32`, `u64`, `i64`, `f64`.
pub trait Number: Copy + PartialEq + sealed::Bits {}

mod sealed {
    use super::order;
    use crate::sync::{AtomicU32, AtomicU64, Ordering};

    /// The atomic word of a number's width.
    pub trait Cell {
        type Bits: Copy;
        fn load(&self, order: Ordering) -> Self::Bits;
        fn store(&self, bits: Self::Bits, order: Ordering);
        fn swap(&self, bits: Self::Bits) -> Self::Bits;
        fn compare_exchange(
            &self,
            current: Self::Bits,
            new: Self::Bits,
        ) -> Result<Self::Bits, Self::Bits>;
        fn add(&self, bits: Self::Bits) -> Self::Bits;
    }

    macro_rules! cell {
        ($cell:ty, $bits:ty) => {
            impl Cell for $cell {
                type Bits = $bits;
                #[inline(always)]
                fn load(&self, order: Ordering) -> $bits {
                    self.load(order)
                }
                #[inline(always)]
                fn store(&self, bits: $bits, order: Ordering) {
                    self.store(bits, order);
                }
                #[inline(always)]
                fn swap(&self, bits: $bits) -> $bits {
                    // ORDER(X22): as below.
                    self.swap(bits, order!(X22: AcqRel))
                }
                #[inline(always)]
                fn compare_exchange(&self, current: $bits, new: $bits) -> Result<$bits, $bits> {
                    // ORDER(X22): pairs with itself and X20; ORDER(X21): pairs with X20 and X22.
                    self.compare_exchange(current, new, order!(X22: AcqRel), order!(X21: Acquire))
                }
                #[inline(always)]
                fn add(&self, bits: $bits) -> $bits {
                    // ORDER(X22): as above.
                    self.fetch_add(bits, order!(X22: AcqRel))
                }
            }
        };
    }
    cell!(AtomicU32, u32);
    cell!(AtomicU64, u64);

    pub trait Bits: Sized {
        type Cell: Cell + 'static;
        /// Whether a sum is that of the bits.
        const IS_INTEGER: bool;
        fn to_bits(self) -> <Self::Cell as Cell>::Bits;
        fn of_bits(bits: <Self::Cell as Cell>::Bits) -> Self;
        fn cell(region: &super::Region, offset: usize) -> &Self::Cell;
        fn sum(self, other: Self) -> Self;
        fn least(self, other: Self) -> Self;
        fn greatest(self, other: Self) -> Self;
    }

    macro_rules! bits {
        ($number:ty, $cell:ty, $word:ident, $is_integer:literal, $to:expr, $of:expr, $sum:expr) => {
            impl Bits for $number {
                type Cell = $cell;
                const IS_INTEGER: bool = $is_integer;
                #[inline(always)]
                fn to_bits(self) -> <$cell as Cell>::Bits {
                    $to(self)
                }
                #[inline(always)]
                fn of_bits(bits: <$cell as Cell>::Bits) -> Self {
                    $of(bits)
                }
                #[inline(always)]
                fn cell(region: &super::Region, offset: usize) -> &$cell {
                    region.$word(offset)
                }
                #[inline(always)]
                fn sum(self, other: Self) -> Self {
                    $sum(self, other)
                }
                #[inline(always)]
                fn least(self, other: Self) -> Self {
                    self.min(other)
                }
                #[inline(always)]
                fn greatest(self, other: Self) -> Self {
                    self.max(other)
                }
            }
            impl super::Number for $number {}
        };
    }
    bits!(u32, AtomicU32, word32, true, |it| it, |it| it, u32::wrapping_add);
    bits!(i32, AtomicU32, word32, true, i32::cast_unsigned, u32::cast_signed, i32::wrapping_add);
    bits!(f32, AtomicU32, word32, false, f32::to_bits, f32::from_bits, |a: f32, b: f32| a + b);
    bits!(u64, AtomicU64, word64, true, |it| it, |it| it, u64::wrapping_add);
    bits!(i64, AtomicU64, word64, true, i64::cast_unsigned, u64::cast_signed, i64::wrapping_add);
    bits!(f64, AtomicU64, word64, false, f64::to_bits, f64::from_bits, |a: f64, b: f64| a + b);
}

use sealed::Cell as _;

impl Data {
    /// The first `bytes` bytes of this memory. `is_writable` says that it is mapped for writing.
    ///
    /// # Panics
    /// If it is smaller.
    #[must_use]
    pub fn new(region: Region, bytes: u64, is_writable: bool) -> Self {
        assert!(region.bytes() as u64 >= bytes, "own sizes");
        Self { region, bytes, is_writable }
    }

    /// Its length in bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where it is mapped in this process, as a number.
    #[cfg(not(loom))]
    #[must_use]
    pub fn address(&self) -> u64 {
        self.region.address().0.as_ptr().expose_provenance() as u64
    }

    /// Where `bytes` bytes from `offset` begin; `None` if they reach beyond the data.
    #[inline]
    #[must_use]
    pub fn find(&self, offset: u64, bytes: u64) -> Option<usize> {
        let is_inside = offset <= self.bytes && bytes <= self.bytes - offset;
        is_inside.then(|| usize::try_from(offset).ok()).flatten()
    }

    /// Copies `source` to the data from `offset` on.
    ///
    /// # Panics
    /// If the data is not writable, or too short.
    #[inline]
    pub fn put(&self, offset: usize, source: &[u8]) {
        assert!(self.is_writable, "own rights");
        self.region.put(offset, source);
    }

    /// As [`put`](Self::put), to data that is in no cache near this core.
    ///
    /// # Panics
    /// As for [`put`](Self::put).
    pub fn put_far(&self, offset: usize, source: &[u8]) {
        assert!(self.is_writable, "own rights");
        self.region.put_far(offset, source);
    }

    /// Copies the data from `offset` on to `target`.
    ///
    /// # Panics
    /// If the data is too short.
    #[inline]
    pub fn get(&self, offset: usize, target: &mut [u8]) {
        self.region.get(offset, target);
    }

    /// The number at `offset`, in place; `None` if it is not aligned, or reaches beyond the data, or the data is not
    /// writable.
    #[inline]
    #[must_use]
    pub fn at<T: Number>(&self, offset: u64) -> Option<Word<'_, T>> {
        let size = size_of::<T>() as u64;
        let is_right = self.is_writable && offset.is_multiple_of(size);
        let at = self.find(offset, size).filter(|_| is_right)?;
        Some(Word { cell: T::cell(&self.region, at), _number: PhantomData })
    }

    /// Loads the number at `offset`; `None` if it is not aligned, or reaches beyond the data.
    #[inline]
    #[must_use]
    pub fn load<T: Number>(&self, offset: u64) -> Option<T> {
        let size = size_of::<T>() as u64;
        let at = self.find(offset, size).filter(|_| offset.is_multiple_of(size))?;
        // The memory may be mapped read-only, where some processors cannot execute an acquire load.
        let bits = T::cell(&self.region, at).load(Relaxed);
        // ORDER(X23): pairs with X20 and X22.
        fence_at!(X23: Acquire);
        Some(T::of_bits(bits))
    }
}

/// A number in a window, located once: each operation is that of the processor, without a check.
///
/// Loads acquire and stores release: who loads what another participant has stored sees everything that it had stored
/// before. Atomic operations do both. Each is one step for all participants that use the number by this type, whatever
/// their language, and for nobody who puts bytes over it at the same time.
#[derive(Debug)]
pub struct Word<'w, T: Number> {
    cell: &'w T::Cell,
    _number: PhantomData<T>,
}

impl<T: Number> Clone for Word<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Number> Copy for Word<'_, T> {}

impl<T: Number> Word<'_, T> {
    /// Loads it.
    #[inline(always)]
    #[must_use]
    pub fn load(self) -> T {
        // ORDER(X21): as in `compare_exchange`.
        T::of_bits(self.cell.load(order!(X21: Acquire)))
    }

    /// Stores a number.
    #[inline(always)]
    pub fn store(self, number: T) {
        // ORDER(X20): pairs with X21, X22 and X23; what was stored before is visible with the number.
        self.cell.store(number.to_bits(), order!(X20: Release));
    }

    /// Stores a number. Returns the one before.
    #[inline(always)]
    pub fn swap(self, number: T) -> T {
        T::of_bits(self.cell.swap(number.to_bits()))
    }

    /// Stores `new` if it holds `current`, bit for bit.
    ///
    /// # Errors
    /// What it holds instead.
    #[inline(always)]
    pub fn compare_exchange(self, current: T, new: T) -> Result<T, T> {
        let done = self.cell.compare_exchange(current.to_bits(), new.to_bits());
        done.map(T::of_bits).map_err(T::of_bits)
    }

    /// Adds a number, an integer going round. Returns the number before.
    #[inline(always)]
    pub fn fetch_add(self, number: T) -> T {
        if T::IS_INTEGER {
            T::of_bits(self.cell.add(number.to_bits()))
        } else {
            self.fetch_update(|before| before.sum(number))
        }
    }

    /// Stores the smaller one of the two. Returns the number before.
    #[inline]
    pub fn fetch_min(self, number: T) -> T {
        self.fetch_update(|before| before.least(number))
    }

    /// Stores the greater one of the two. Returns the number before.
    #[inline]
    pub fn fetch_max(self, number: T) -> T {
        self.fetch_update(|before| before.greatest(number))
    }

    /// Stores what `change` makes of it, which may be called several times. Returns the number before.
    #[inline]
    pub fn fetch_update(self, mut change: impl FnMut(T) -> T) -> T {
        let mut before = self.cell.load(Relaxed);
        loop {
            let new = change(T::of_bits(before)).to_bits();
            match self.cell.compare_exchange(before, new) {
                Ok(before) => return T::of_bits(before),
                Err(found) => before = found,
            }
        }
    }
}

macro_rules! bitwise {
    ($($number:ty),*) => {$(
        impl Word<'_, $number> {
            /// Clears the bits that are not set in `mask`. Returns the number before.
            #[inline]
            pub fn fetch_and(self, mask: $number) -> $number {
                self.fetch_update(|before| before & mask)
            }

            /// Sets the bits that are set in `mask`. Returns the number before.
            #[inline]
            pub fn fetch_or(self, mask: $number) -> $number {
                self.fetch_update(|before| before | mask)
            }

            /// Changes the bits that are set in `mask`. Returns the number before.
            #[inline]
            pub fn fetch_xor(self, mask: $number) -> $number {
                self.fetch_update(|before| before ^ mask)
            }
        }
    )*};
}
bitwise!(u32, i32, u64, i64);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn data(is_writable: bool) -> Data {
        Data::new(Region::private(4096).unwrap(), 100, is_writable)
    }

    #[test]
    fn bytes_are_put_and_got_within_the_data() {
        let data = data(true);
        data.put(data.find(90, 10).unwrap(), &[7; 10]);
        let mut got = [0; 12];
        data.get(88, &mut got);
        assert_eq!(got, [0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert_eq!([(91, 10), (101, 0), (u64::MAX, 2)].map(|(at, n)| data.find(at, n)), [None; 3]);
        assert_eq!(data.find(100, 0), Some(100));
    }

    #[test]
    fn numbers_change_as_their_type_says() {
        let data = data(true);
        let signed = data.at::<i32>(4).unwrap();
        assert_eq!((signed.fetch_add(-5), signed.load()), (0, -5));
        assert_eq!((signed.fetch_max(-7), signed.fetch_min(-7), signed.load()), (-5, -5, -7));
        assert_eq!((data.at::<u32>(4).unwrap().fetch_max(3), signed.load()), (u32::MAX - 6, -7));
        let float = data.at::<f64>(8).unwrap();
        assert_eq!((float.fetch_add(0.5), float.fetch_add(0.25), float.load()), (0.0, 0.5, 0.75));
        assert_eq!(
            (float.fetch_min(-1.0), float.swap(2.0), data.load::<f64>(8).unwrap()),
            (0.75, -1.0, 2.0)
        );
        let bits = data.at::<u64>(16).unwrap();
        assert_eq!((bits.fetch_or(6), bits.fetch_and(3), bits.fetch_xor(1)), (0, 6, 2));
        assert_eq!((bits.compare_exchange(2, 9), bits.compare_exchange(3, 9)), (Err(3), Ok(3)));
        assert_eq!(bits.load(), 9);
    }

    #[test]
    fn a_number_is_where_it_fits() {
        let writable = data(true);
        assert!(writable.at::<u64>(88).is_some() && writable.at::<u32>(96).is_some());
        assert!(
            [92, 96, 104, u64::MAX - 7].map(|at| writable.at::<u64>(at).is_some()) == [false; 4]
        );
        let read_only = data(false);
        assert!(read_only.at::<u64>(0).is_none() && read_only.load::<u64>(0) == Some(0));
        assert!([4, 96].map(|at| read_only.load::<u64>(at)) == [None; 2]);
    }
}
