//! Encoding and decoding of arguments, for generated code.
//!
//! A message is its fixed part, in which every number has an offset that the generator knows, and the bytes of strings
//! and vectors behind it, in the order of the interface file. All numbers are little-endian. Their lengths are numbers
//! of 32 bits in the fixed part.
//!
//! An element of a vector that has strings or vectors of its own is its fixed part, and those behind it, in the same way.
//!
//! Decoding never panics. What a peer sends is checked: the length of the whole, bounds, UTF-8, and the values of `bool`,
//! enumerations and unions. A number of elements is at most its bound, and at most as many as fit into what has arrived,
//! before memory is allocated for them. Elements of variable size take several times the memory in which they arrive, an
//! empty string 24 bytes for 4: for messages with such elements, a [`Reader::limited`] counts the memory before it is
//! allocated, against a limit of the binding.
//!
//! ```
//! use corewire_bind::codec::{self, Reader};
//!
//! let mut message = Vec::new();
//! codec::begin(&mut message, 8);
//! codec::put_i32(&mut message, 0, -5);
//! codec::put_str(&mut message, 4, "log: line", "hello", 256).unwrap();
//!
//! let (mut reader, fixed) = Reader::new::<8>("log", &message).unwrap();
//! assert_eq!(codec::get_i32(fixed, 0), -5);
//! assert_eq!(reader.str(4, "log: line", 256).unwrap(), "hello");
//! reader.finish().unwrap();
//!
//! let short = Reader::new::<8>("log", &message[..7]).unwrap_err();
//! assert_eq!(short.to_string(), "log: 7 bytes arrived where at least 8 are necessary");
//! ```

use crate::error::{DecodeError, EncodeError, Problem};

macro_rules! numbers {
    ($($type:ident $put:ident $get:ident;)*) => {
        $(
            #[doc = concat!("Stores a `", stringify!($type), "` at an offset of the fixed part.")]
            #[inline(always)]
            pub fn $put(fixed: &mut [u8], at: usize, value: $type) {
                if let Some(place) = fixed.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
                    *place = value.to_le_bytes();
                }
            }

            #[doc = concat!("Reads a `", stringify!($type), "`; 0 beyond the end, which the check of the length excludes.")]
            #[inline(always)]
            #[must_use]
            pub fn $get(fixed: &[u8], at: usize) -> $type {
                fixed
                    .get(at..)
                    .and_then(<[u8]>::first_chunk)
                    .map_or_else(Default::default, |bytes| $type::from_le_bytes(*bytes))
            }
        )*
    };
}

numbers! {
    u8 put_u8 get_u8;
    u16 put_u16 get_u16;
    u32 put_u32 get_u32;
    u64 put_u64 get_u64;
    i8 put_i8 get_i8;
    i16 put_i16 get_i16;
    i32 put_i32 get_i32;
    i64 put_i64 get_i64;
    f32 put_f32 get_f32;
    f64 put_f64 get_f64;
}

/// Stores a `bool`, as 0 or 1.
#[inline(always)]
pub fn put_bool(fixed: &mut [u8], at: usize, value: bool) {
    put_u8(fixed, at, u8::from(value));
}

/// Reads a `bool`.
///
/// # Errors
/// The byte is neither 0 nor 1.
#[inline(always)]
pub fn get_bool(fixed: &[u8], at: usize, place: &'static str) -> Result<bool, DecodeError> {
    match get_u8(fixed, at) {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(DecodeError { place, problem: Problem::Bool { found } }),
    }
}

/// The value of an enumeration or union is not one of those declared.
#[cold]
#[must_use]
pub const fn unknown_value(place: &'static str, found: i64) -> DecodeError {
    DecodeError { place, problem: Problem::Value { found } }
}

/// A message that has a fixed size.
///
/// # Errors
/// Another number of bytes arrived.
#[inline(always)]
pub fn exactly<'a, const N: usize>(
    place: &'static str,
    bytes: &'a [u8],
) -> Result<&'a [u8; N], DecodeError> {
    let found = bytes.len();
    bytes.try_into().map_err(|_| DecodeError { place, problem: Problem::Length { found, due: N } })
}

/// Begins a message: its fixed part, all zeros. Replaces what was in `out`, and keeps its memory.
#[inline]
pub fn begin(out: &mut Vec<u8>, fixed_bytes: usize) {
    out.clear();
    out.resize(fixed_bytes, 0);
}

/// Adds the bytes of a string, and stores their number at an offset of the fixed part.
///
/// # Errors
/// The string is longer than its bound.
#[inline]
pub fn put_str(
    out: &mut Vec<u8>,
    at: usize,
    place: &'static str,
    value: &str,
    count_max: u32,
) -> Result<(), EncodeError> {
    put_bytes(out, at, place, value.as_bytes(), count_max)
}

/// Adds bytes, and stores their number at an offset of the fixed part.
///
/// # Errors
/// There are more than the bound allows.
#[inline]
pub fn put_bytes(
    out: &mut Vec<u8>,
    at: usize,
    place: &'static str,
    value: &[u8],
    count_max: u32,
) -> Result<(), EncodeError> {
    put_u32(out, at, checked_count(place, value.len(), count_max)?);
    out.extend_from_slice(value);
    Ok(())
}

/// Adds the elements of a vector, and stores their number at an offset of the fixed part. `put` stores an element in
/// its own memory of `element_bytes` zeros.
///
/// # Errors
/// There are more than the bound allows.
pub fn put_elements<T>(
    out: &mut Vec<u8>,
    at: usize,
    place: &'static str,
    elements: &[T],
    count_max: u32,
    element_bytes: usize,
    mut put: impl FnMut(&mut [u8], &T),
) -> Result<(), EncodeError> {
    put_u32(out, at, checked_count(place, elements.len(), count_max)?);
    let start = out.len();
    out.resize(start + elements.len() * element_bytes, 0);
    let places = out.get_mut(start..).unwrap_or_default().chunks_exact_mut(element_bytes.max(1));
    places.zip(elements).for_each(|(place, element)| put(place, element));
    Ok(())
}

/// Adds the elements of a vector that have strings or vectors of their own, and stores their number at an offset of the
/// fixed part. `put` stores an element behind its fixed part of `element_bytes` zeros, which begins at the offset that it
/// is given.
///
/// # Errors
/// There are more than the bound allows; or the first error of `put`.
pub fn put_each<T>(
    out: &mut Vec<u8>,
    at: usize,
    place: &'static str,
    elements: &[T],
    count_max: u32,
    element_bytes: usize,
    mut put: impl FnMut(&mut Vec<u8>, usize, &T) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    put_u32(out, at, checked_count(place, elements.len(), count_max)?);
    elements.iter().try_for_each(|element| {
        let base = out.len();
        out.resize(base + element_bytes, 0);
        put(out, base, element)
    })
}

/// The longest details of an error.
const DETAILS_BYTES_MAX: usize = 4096;

/// Begins the details of an error, which [`end_details`] ends: they follow.
pub fn begin_details(out: &mut Vec<u8>) -> usize {
    out.extend([0; 4]);
    out.len()
}

/// Stores the length of the details that begin here in front of them.
pub fn end_details(out: &mut [u8], begin: usize) {
    let length = u32::try_from(out.len() - begin).unwrap_or(u32::MAX);
    put_u32(out, begin - 4, length);
}

/// The details of an error, from what lies behind the fixed part of a reply. One that does not know the error passes them.
///
/// # Errors
/// They are incomplete, or longer than they can be.
pub fn details<'a>(place: &'static str, bytes: &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let short = Problem::Short { found: bytes.len(), due: 4 };
    let (length, rest) = bytes.split_first_chunk().ok_or(DecodeError { place, problem: short })?;
    let count = u32::from_le_bytes(*length);
    match usize::try_from(count) {
        Ok(due) if due > DETAILS_BYTES_MAX => {
            let problem = Problem::Bound { count, count_max: 4096 };
            Err(DecodeError { place, problem })
        }
        Ok(due) if due == rest.len() => Ok(rest),
        _ => {
            let problem = Problem::Missing { count, left: rest.len() };
            Err(DecodeError { place, problem })
        }
    }
}

fn checked_count(place: &'static str, count: usize, count_max: u32) -> Result<u32, EncodeError> {
    match u32::try_from(count) {
        Ok(small) if small <= count_max => Ok(small),
        _ => Err(EncodeError { place, count, count_max }),
    }
}

/// An array whose elements are checked. `get` is called at least once for each index, and must give the same each
/// time.
///
/// # Errors
/// The first one of `get`.
pub fn array<T: Clone, const N: usize>(
    get: impl Fn(usize) -> Result<T, DecodeError>,
) -> Result<[T; N], DecodeError> {
    let first = get(0)?;
    for index in 1..N {
        get(index)?;
    }
    Ok(std::array::from_fn(|index| get(index).unwrap_or_else(|_| first.clone())))
}

/// An array whose elements cannot be copied. `get` is called once for each index, in order.
///
/// # Errors
/// The first one of `get`.
pub fn each<T, const N: usize>(
    place: &'static str,
    get: impl FnMut(usize) -> Result<T, DecodeError>,
) -> Result<[T; N], DecodeError> {
    let all = (0..N).map(get).collect::<Result<Vec<_>, _>>()?;
    all.try_into().map_err(|all: Vec<T>| {
        let problem = Problem::Length { found: all.len(), due: N };
        DecodeError { place, problem }
    })
}

/// Decodes a message that has strings or vectors.
#[derive(Debug)]
pub struct Reader<'a> {
    fixed: &'a [u8],
    rest: &'a [u8],
    place: &'static str,
    /// Memory that may still be allocated, of `memory_max`.
    memory_left: usize,
    memory_max: usize,
}

impl<'a> Reader<'a> {
    /// Splits a message into its fixed part, whose length is checked, and the rest.
    ///
    /// # Errors
    /// The message is shorter than its fixed part.
    #[inline]
    pub fn new<const N: usize>(
        place: &'static str,
        bytes: &'a [u8],
    ) -> Result<(Self, &'a [u8; N]), DecodeError> {
        Self::limited(place, bytes, usize::MAX)
    }

    /// Like [`new`](Self::new), for a message with elements of variable size: what is decoded takes at most `memory_max`
    /// bytes.
    ///
    /// # Errors
    /// The message is shorter than its fixed part.
    #[inline]
    pub fn limited<const N: usize>(
        place: &'static str,
        bytes: &'a [u8],
        memory_max: usize,
    ) -> Result<(Self, &'a [u8; N]), DecodeError> {
        match bytes.split_first_chunk() {
            Some((fixed, rest)) => {
                Ok((Self { fixed, rest, place, memory_left: memory_max, memory_max }, fixed))
            }
            None => {
                let problem = Problem::Short { found: bytes.len(), due: N };
                Err(DecodeError { place, problem })
            }
        }
    }

    /// The next string, whose length is at an offset of the fixed part.
    ///
    /// # Errors
    /// It is longer than its bound or than what arrived, or it is not UTF-8.
    #[inline]
    pub fn str(
        &mut self,
        at: usize,
        place: &'static str,
        count_max: u32,
    ) -> Result<&'a str, DecodeError> {
        let bytes = self.bytes(at, place, count_max)?;
        std::str::from_utf8(bytes).map_err(|error| DecodeError {
            place,
            problem: Problem::Utf8 { at: error.valid_up_to() },
        })
    }

    /// The next bytes, whose number is at an offset of the fixed part.
    ///
    /// # Errors
    /// There are more than their bound allows, or than what arrived.
    #[inline]
    pub fn bytes(
        &mut self,
        at: usize,
        place: &'static str,
        count_max: u32,
    ) -> Result<&'a [u8], DecodeError> {
        self.take(at, place, count_max, 1)
    }

    /// The next elements, whose number is at an offset of the fixed part. `get` decodes one.
    ///
    /// # Errors
    /// There are more than their bound allows, or than what arrived; or the first error of `get`.
    pub fn elements<T>(
        &mut self,
        at: usize,
        place: &'static str,
        count_max: u32,
        element_bytes: usize,
        mut get: impl FnMut(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let bytes = self.take(at, place, count_max, element_bytes)?;
        let all = bytes.chunks_exact(element_bytes.max(1));
        self.spend(place, all.len(), size_of::<T>())?;
        let mut elements = Vec::with_capacity(all.len());
        for one in all {
            elements.push(get(one)?);
        }
        Ok(elements)
    }

    /// Itself, for a function that decodes a part.
    #[inline]
    pub const fn by_ref(&mut self) -> &mut Self {
        self
    }

    /// A string that a value owns: its memory is counted.
    ///
    /// # Errors
    /// As for [`str`](Self::str); or there would be too much memory.
    #[inline]
    pub fn owned_str(
        &mut self,
        at: usize,
        place: &'static str,
        count_max: u32,
    ) -> Result<String, DecodeError> {
        let text = self.str(at, place, count_max)?;
        self.spend(place, text.len(), 1)?;
        Ok(text.to_owned())
    }

    /// Bytes that a value owns: their memory is counted.
    ///
    /// # Errors
    /// As for [`bytes`](Self::bytes); or there would be too much memory.
    #[inline]
    pub fn owned_bytes(
        &mut self,
        at: usize,
        place: &'static str,
        count_max: u32,
    ) -> Result<Vec<u8>, DecodeError> {
        let bytes = self.bytes(at, place, count_max)?;
        self.spend(place, bytes.len(), 1)?;
        Ok(bytes.to_vec())
    }

    /// The next elements that have strings or vectors of their own, whose number is at an offset of the fixed part.
    /// `get` decodes one; its fixed part of `element_bytes` is what it is given.
    ///
    /// # Errors
    /// There are more than their bound allows, or than fit into what arrived; there would be too much memory; or the
    /// first error of `get`.
    pub fn each<T>(
        &mut self,
        at: usize,
        place: &'static str,
        count_max: u32,
        element_bytes: usize,
        mut get: impl FnMut(&mut Self, &'a [u8]) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.count(at, place, count_max, element_bytes)?;
        self.spend(place, count, size_of::<T>())?;
        let mut elements = Vec::with_capacity(count);
        let around = self.fixed;
        for _ in 0..count {
            let split = self.rest.split_at_checked(element_bytes);
            let (fixed, rest) = split.ok_or_else(|| self.missing(place, count))?;
            (self.fixed, self.rest) = (fixed, rest);
            elements.push(get(self, fixed)?);
        }
        self.fixed = around;
        Ok(elements)
    }

    /// Counts memory that is about to be allocated.
    fn spend(
        &mut self,
        place: &'static str,
        count: usize,
        bytes: usize,
    ) -> Result<(), DecodeError> {
        let due = count.saturating_mul(bytes);
        match self.memory_left.checked_sub(due) {
            Some(left) => {
                self.memory_left = left;
                Ok(())
            }
            None => {
                let problem = Problem::Memory { memory_max: self.memory_max };
                Err(DecodeError { place, problem })
            }
        }
    }

    /// Checks that strings or vectors that are absent have no bytes: `count` lengths, from an offset of the fixed part.
    ///
    /// # Errors
    /// One of the lengths is not 0.
    pub fn all_absent(
        &mut self,
        at: usize,
        count: usize,
        place: &'static str,
    ) -> Result<(), DecodeError> {
        (0..count).try_for_each(|index| self.absent(at + 4 * index, place))
    }

    /// Checks that a string or vector that is absent has no bytes.
    ///
    /// # Errors
    /// Its length is not 0.
    pub fn absent(&mut self, at: usize, place: &'static str) -> Result<(), DecodeError> {
        match get_u32(self.fixed, at) {
            0 => Ok(()),
            count => Err(DecodeError { place, problem: Problem::Bound { count, count_max: 0 } }),
        }
    }

    /// What has not been read.
    #[inline]
    #[must_use]
    pub const fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// More bytes arrived than the message has.
    #[inline]
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            left => {
                let Self { place, .. } = self;
                Err(DecodeError { place, problem: Problem::Left { left } })
            }
        }
    }

    #[inline]
    fn take(
        &mut self,
        at: usize,
        place: &'static str,
        count_max: u32,
        element_bytes: usize,
    ) -> Result<&'a [u8], DecodeError> {
        let count = self.count(at, place, count_max, element_bytes)?;
        let split = self.rest.split_at_checked(count * element_bytes);
        let (taken, rest) = split.ok_or_else(|| self.missing(place, count))?;
        self.rest = rest;
        Ok(taken)
    }

    /// A number of elements, which is at most its bound, and which fit into what has arrived with `element_bytes` each.
    #[inline]
    fn count(
        &self,
        at: usize,
        place: &'static str,
        count_max: u32,
        element_bytes: usize,
    ) -> Result<usize, DecodeError> {
        let found = get_u32(self.fixed, at);
        if found > count_max {
            let problem = Problem::Bound { count: found, count_max };
            return Err(DecodeError { place, problem });
        }
        let count = usize::try_from(found).unwrap_or(usize::MAX);
        match count.checked_mul(element_bytes) {
            Some(due) if due <= self.rest.len() => Ok(count),
            _ => Err(self.missing(place, count)),
        }
    }

    #[cold]
    fn missing(&self, place: &'static str, count: usize) -> DecodeError {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        DecodeError { place, problem: Problem::Missing { count, left: self.rest.len() } }
    }
}

#[cfg(test)]
mod tests;
