//! How a connection begins.

use alloc::vec::Vec;

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FRAME_BYTES_MAX, HEADER_BYTES_MAX, NET_VERSION, NetError};
use crate::name::{ChannelName, NAME_BYTES_MAX};

/// The longest preface in bytes.
pub const PREFACE_BYTES_MAX: usize = PREFACE_BYTES + NAME_BYTES_MAX;
/// The longest hello in bytes.
pub const HELLO_BYTES_MAX: usize = HELLO_BYTES + 2 * NAME_BYTES_MAX;

/// The least credit in bytes: that of two frames.
pub const CREDIT_BYTES_MIN: u32 = 2 * ((64 << 10) + 32);
const _: () = assert!(CREDIT_BYTES_MIN as u64 == 2 * (FRAME_BYTES_MAX + HEADER_BYTES_MAX as u64));

/// The first eight bytes of a connection.
const MAGIC: [u8; 8] = *b"corewire";
const PREFACE_BYTES: usize = size_of::<RawPreface>();
const HELLO_BYTES: usize = size_of::<RawHello>();

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPreface {
    magic: [u8; 8],
    version: U16,
    is_tls: u8,
    name_bytes: u8,
    zero: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHello {
    version: U16,
    name_bytes: u8,
    host_bytes: u8,
    credit_bytes: U32,
    incarnation: [u8; 16],
    silence_ms: U32,
    zero: U32,
    connection: U64,
    last: U64,
}

const _: () = assert!(PREFACE_BYTES == 16 && HELLO_BYTES == 48);

/// The first bytes of the side that dials.
///
/// ```text
///   0        8         10    11           12  16
///   | magic  | version | tls | name bytes | 0 | name of the endpoint that is wanted
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preface {
    /// Whether a handshake of TLS follows.
    pub is_tls: bool,
    /// The endpoint that is wanted.
    pub wanted: ChannelName,
}

impl Preface {
    /// Its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { is_tls, wanted } = self;
        let raw = RawPreface {
            magic: MAGIC,
            version: NET_VERSION.into(),
            is_tls: u8::from(*is_tls),
            name_bytes: length_of(wanted),
            zero: U32::ZERO,
        };
        [raw.as_bytes(), wanted.as_str().as_bytes()].concat()
    }

    /// The preface at the beginning of what has arrived, and its length in bytes.
    ///
    /// # Errors
    /// [`NetError`].
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, NetError> {
        // What is wrong at once need not be waited for.
        if !bytes.iter().zip(&MAGIC).all(|(found, due)| found == due) {
            let mut first = [0; 8];
            first.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
            return Err(NetError::Foreign { found: u64::from_le_bytes(first) });
        }
        let Ok((raw, _)) = RawPreface::read_from_prefix(bytes) else { return Ok(None) };
        check_version(raw.version)?;
        check_zero("the reserved bytes of a preface", raw.zero)?;
        let is_tls = match raw.is_tls {
            0 => false,
            1 => true,
            found => {
                let (field, found) = ("the security of a preface", u64::from(found));
                return Err(NetError::Field { field, found });
            }
        };
        let found = name_at("the length of the wanted name", bytes, PREFACE_BYTES, raw.name_bytes)?;
        let Some((wanted, end)) = found else { return Ok(None) };
        Ok(Some((Self { is_tls, wanted }, end)))
    }
}

/// What each side says of itself, once the connection is as secure as it will be.
///
/// ```text
///   0         2            3            4        8             24        28  32           40     48
///   | version | name bytes | host bytes | credit | incarnation | silence | 0 | connection | last | name | host
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The endpoint.
    pub name: ChannelName,
    /// Which endpoint of that name on its host it is.
    pub incarnation: u128,
    /// Its host, by the name that the host gives itself.
    pub host: ChannelName,
    /// Bytes of frames that the other side may send before it is told that it may send more: at least
    /// [`CREDIT_BYTES_MIN`].
    pub credit_bytes: u32,
    /// It takes the host of the other side for silent if that has not acknowledged anything for so many milliseconds.
    pub silence_ms: u32,
    /// The number that the side that dials gives this connection. No other one between the two has it.
    pub connection: u64,
    /// Of the side that dials: the last connection with an endpoint of the wanted name and host that it knew; 0 if none. The
    /// other side knows by it whether a connection that it has was lost, or is not known there yet.
    pub last: u64,
}

impl Hello {
    /// Its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { name, incarnation, host, credit_bytes, silence_ms, connection, last } = self;
        let raw = RawHello {
            version: NET_VERSION.into(),
            name_bytes: length_of(name),
            host_bytes: length_of(host),
            credit_bytes: (*credit_bytes).into(),
            incarnation: incarnation.to_le_bytes(),
            silence_ms: (*silence_ms).into(),
            zero: U32::ZERO,
            connection: (*connection).into(),
            last: (*last).into(),
        };
        [raw.as_bytes(), name.as_str().as_bytes(), host.as_str().as_bytes()].concat()
    }

    /// The hello at the beginning of what has arrived, and its length in bytes.
    ///
    /// # Errors
    /// [`NetError`].
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, NetError> {
        let Ok((raw, _)) = RawHello::read_from_prefix(bytes) else { return Ok(None) };
        check_version(raw.version)?;
        check_zero("the reserved bytes of a hello", raw.zero)?;
        let credit_bytes = raw.credit_bytes.get();
        if credit_bytes < CREDIT_BYTES_MIN {
            let (field, found) = ("the credit of a hello", u64::from(credit_bytes));
            return Err(NetError::Field { field, found });
        }
        let name = name_at("the length of an endpoint's name", bytes, HELLO_BYTES, raw.name_bytes)?;
        let Some((name, end)) = name else { return Ok(None) };
        let host = name_at("the length of a host's name", bytes, end, raw.host_bytes)?;
        let Some((host, end)) = host else { return Ok(None) };
        let incarnation = u128::from_le_bytes(raw.incarnation);
        let silence_ms = raw.silence_ms.get();
        let (connection, last) = (raw.connection.get(), raw.last.get());
        let hello = Self { name, incarnation, host, credit_bytes, silence_ms, connection, last };
        Ok(Some((hello, end)))
    }
}

fn length_of(name: &ChannelName) -> u8 {
    u8::try_from(name.as_str().len()).unwrap_or(u8::MAX)
}

fn check_version(found: U16) -> Result<(), NetError> {
    match found.get() {
        NET_VERSION => Ok(()),
        found => Err(NetError::Version { found }),
    }
}

fn check_zero(field: &'static str, found: U32) -> Result<(), NetError> {
    match found.get() {
        0 => Ok(()),
        found => Err(NetError::Field { field, found: u64::from(found) }),
    }
}

/// The name of `length` bytes at `at`, and where it ends.
fn name_at(
    field: &'static str,
    bytes: &[u8],
    at: usize,
    length: u8,
) -> Result<Option<(ChannelName, usize)>, NetError> {
    let found = u64::from(length);
    let length = usize::from(length);
    if !(1..=NAME_BYTES_MAX).contains(&length) {
        return Err(NetError::Field { field, found });
    }
    let Some(name) = bytes.get(at..at + length) else { return Ok(None) };
    let name = core::str::from_utf8(name).ok().and_then(|name| ChannelName::new(name).ok());
    name.map(|name| Some((name, at + length))).ok_or(NetError::Name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ChannelName {
        ChannelName::new(text).unwrap()
    }

    fn preface() -> Preface {
        Preface { is_tls: true, wanted: name("orders") }
    }

    fn hello() -> Hello {
        Hello {
            name: name("orders"),
            incarnation: u128::MAX - 5,
            host: name("host-b"),
            credit_bytes: 256 << 10,
            silence_ms: 10_000,
            connection: 1 << 60,
            last: 7,
        }
    }

    #[test]
    fn what_is_written_is_read_whatever_follows_and_any_part_of_it_waits_for_more() {
        let (preface, hello) = (preface(), hello());
        let (first, second) = (preface.to_bytes(), hello.to_bytes());
        assert!(first.len() <= PREFACE_BYTES_MAX && second.len() <= HELLO_BYTES_MAX);
        let both = [&first[..], &second].concat();
        assert_eq!(Preface::parse(&both), Ok(Some((preface, first.len()))));
        assert_eq!(Hello::parse(&[&second[..], &first].concat()), Ok(Some((hello, second.len()))));
        for length in 0..first.len() {
            assert_eq!(Preface::parse(&first[..length]), Ok(None), "{length}");
        }
        for length in 0..second.len() {
            assert_eq!(Hello::parse(&second[..length]), Ok(None), "{length}");
        }
    }

    #[test]
    fn foreign_bytes_are_refused_at_the_first_that_differs() {
        let found = u64::from_le_bytes(*b"GET / HT");
        assert_eq!(Preface::parse(b"GET / HTTP/1.1\r\n"), Err(NetError::Foreign { found }));
        assert_eq!(Preface::parse(b"cx"), Err(NetError::Foreign { found: 0x7863 }));
        let mut bytes = preface().to_bytes();
        bytes[8] = 9;
        assert_eq!(Preface::parse(&bytes), Err(NetError::Version { found: 9 }));
        let mut bytes = hello().to_bytes();
        bytes[1] = 1;
        assert_eq!(Hello::parse(&bytes), Err(NetError::Version { found: 257 }));
    }

    #[test]
    fn impossible_fields_are_named() {
        let fails = |at: usize, byte: u8| {
            let mut bytes = preface().to_bytes();
            bytes[at] = byte;
            matches!(Preface::parse(&bytes), Err(NetError::Field { .. }))
        };
        assert!(fails(10, 2) && fails(11, 0) && fails(11, 101) && fails(12, 1));
        let fails = |at: usize, byte: u8| {
            let mut bytes = hello().to_bytes();
            bytes[at] = byte;
            matches!(Hello::parse(&bytes), Err(NetError::Field { .. }))
        };
        assert!(fails(2, 0) && fails(3, 0) && fails(3, 255) && fails(28, 1));
        for (credit_bytes, is_possible) in [(0, false), (131_135, false), (131_136, true)] {
            let hello = Hello { credit_bytes, ..hello() };
            assert_eq!(Hello::parse(&hello.to_bytes()).is_ok(), is_possible, "{credit_bytes}");
        }
        for byte in [b'/', b'.', 0xff] {
            let mut bytes = preface().to_bytes();
            bytes[PREFACE_BYTES] = byte;
            assert_eq!(Preface::parse(&bytes), Err(NetError::Name));
            let mut bytes = hello().to_bytes();
            bytes[HELLO_BYTES] = byte;
            assert_eq!(Hello::parse(&bytes), Err(NetError::Name));
        }
    }
}
