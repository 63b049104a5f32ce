//! What lies in corewire's shared memory and on its sockets, byte by byte.
//!
//! Nothing here touches memory or makes a system call: these are offsets, sizes, parsers and the
//! checks that stand between a peer's bytes and the code that uses them. `docs/layout.md` draws the
//! same things.
//!
//! | module | holds |
//! |---|---|
//! | [`geometry`] | how large a channel's parts are and where they lie |
//! | [`segment`] | the two kinds of segment: a sender's and a receiver's, each word with its writer |
//! | [`endpoint`] | an endpoint's segment and its activity page, each word with its writer |
//! | [`pair`] | one place in a pair ring |
//! | [`slot`] | one place in a ring: stamp, header, inline payload |
//! | [`counters`] | the counters that each party keeps in its own segment |
//! | [`frame`] | the messages of the attach handshake |
//! | [`name`] | what a channel may be called, and the files that hold names |
//!
//! All integers are little-endian and of fixed width; there are no pointers and no host-sized
//! integers. A word that anybody may change while we read it is read once, into a local.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod counters;
pub mod endpoint;
pub mod frame;
pub mod geometry;
pub mod name;
pub mod pair;
pub mod segment;
pub mod slot;

/// The version of everything in this crate. A peer of another version is refused, never guessed at.
pub const LAYOUT_VERSION: u32 = 6;

/// Bytes that a core fetches and owns at once.
pub const LINE_BYTES: usize = 64;

/// Words of different writers lie this far apart: two lines, since cores prefetch lines in pairs.
pub const ROLE_BYTES: usize = 128;

/// Bytes of a page; segments and their parts begin on one.
pub const PAGE_BYTES: usize = 4096;

/// Where virtual `position` lies in an area of `area_bytes`; `None` if there is no area. No division
/// for a power of two, which every window is.
#[inline]
#[must_use]
pub const fn place_of(position: u64, area_bytes: u64) -> Option<u64> {
    if area_bytes.is_power_of_two() {
        Some(position & (area_bytes - 1))
    } else {
        position.checked_rem(area_bytes)
    }
}

/// Rounds `bytes` up to a multiple of `unit`, a power of two; `None` if that does not fit.
#[must_use]
pub const fn round_up(bytes: u64, unit: u64) -> Option<u64> {
    match bytes.checked_add(unit - 1) {
        Some(sum) => Some(sum & !(unit - 1)),
        None => None,
    }
}
