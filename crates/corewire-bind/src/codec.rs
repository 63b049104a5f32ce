//! Encoding and decoding of arguments, for generated code.
//!
//! A message is its fixed part, in which every number has an offset that the generator knows, and the bytes of strings
//! and vectors behind it, in the order of the interface file. All numbers are little-endian. Their lengths are numbers
//! of 32 bits in the fixed part.
//!
//! Decoding never panics, and allocates no more than what arrived. What a peer sends is checked: the length of the
//! whole, bounds, UTF-8, and the values of `bool`, enumerations and unions.
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
                    .map_or(0, |bytes| $type::from_le_bytes(*bytes))
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
        match bytes.split_first_chunk() {
            Some((fixed, rest)) => Ok((Self { fixed, rest, place }, fixed)),
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
        get: impl FnMut(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let bytes = self.take(at, place, count_max, element_bytes)?;
        bytes.chunks_exact(element_bytes.max(1)).map(get).collect()
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
        let count = get_u32(self.fixed, at);
        if count > count_max {
            return Err(DecodeError { place, problem: Problem::Bound { count, count_max } });
        }
        let due = usize::try_from(count).ok().and_then(|count| count.checked_mul(element_bytes));
        match due.and_then(|due| self.rest.split_at_checked(due)) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => {
                let problem = Problem::Missing { count, left: self.rest.len() };
                Err(DecodeError { place, problem })
            }
        }
    }
}
