//! The contents of corewire's shared memory and of the messages on its sockets, byte by byte.
//!
//! Nothing here accesses shared memory or makes a system call. These are offsets, sizes, parsers,
//! and the checks that stand between a peer's bytes and the code that uses them. `docs/layout.md`
//! draws the same things.
//!
//! | module | contents |
//! |---|---|
//! | [`geometry`] | how large a channel's parts are and where they lie |
//! | [`segment`] | the segments of channels: of a sender and of a receiver, each word with its writer |
//! | [`endpoint`] | an endpoint's segment and its activity page, each word with its writer |
//! | [`pair`] | one slot of a pair ring |
//! | [`rendezvous`] | large messages: offers, notices, and the words of a copy from both ends |
//! | [`access`] | memory that peers access by themselves: its table, and requests to its owner |
//! | [`grants`] | messages that their receivers read where they were written |
//! | [`window`] | the two segments of a window, each word with its writer |
//! | [`slot`] | one slot of a ring: stamp, header, inline payload |
//! | [`counters`] | the counters that each sender, receiver and endpoint keeps in its own segment |
//! | [`frame`] | the messages of the attach handshake |
//! | [`net`] | what travels between endpoints of different hosts |
//! | [`message_type`] | the declared type of a channel's messages |
//! | [`name`] | the rules for channel names, and the files that hold names |
//! | [`errors`] | how errors of all crates show themselves |
//!
//! All integers are little-endian and have a fixed width; there are no pointers and no host-sized
//! integers. A word that another process may change at any time is read once, into a local
//! variable.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod access;
pub mod counters;
pub mod endpoint;
pub mod errors;
pub mod frame;
pub mod geometry;
pub mod grants;
pub mod message_type;
pub mod name;
pub mod net;
pub mod pair;
pub mod rendezvous;
pub mod segment;
pub mod slot;
pub mod window;

/// The version of everything in this crate. A peer of another version is refused; corewire never
/// guesses.
pub const LAYOUT_VERSION: u32 = 20;

/// Size of a cache line: the bytes that a core fetches and owns at once.
pub const LINE_BYTES: usize = 64;

/// Distance between words of different writers: two lines, since cores prefetch lines in pairs.
pub const ROLE_BYTES: usize = 128;

/// Bytes of a page. Segments and their parts begin at a page.
pub const PAGE_BYTES: usize = 4096;

/// The place of virtual `position` in an area of `area_bytes` bytes; `None` if there is no area.
/// Needs no division if `area_bytes` is a power of two, as for every window.
#[inline]
#[must_use]
pub const fn place_of(position: u64, area_bytes: u64) -> Option<u64> {
    if area_bytes.is_power_of_two() {
        Some(position & (area_bytes - 1))
    } else {
        position.checked_rem(area_bytes)
    }
}

/// Rounds `bytes` up to a multiple of `unit`, a power of two; `None` if the result does not fit in
/// a u64.
#[must_use]
pub const fn round_up(bytes: u64, unit: u64) -> Option<u64> {
    match bytes.checked_add(unit - 1) {
        Some(sum) => Some(sum & !(unit - 1)),
        None => None,
    }
}
