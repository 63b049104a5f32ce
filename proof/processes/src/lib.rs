//! Definitions that the tests share with their processes.

// Generated code names it so.
extern crate self as corewire_processes;

pub mod exchange;
pub mod interfaces;

/// The messages of the service in `proof/processes/src/typed.rs`.
pub mod typed {
    /// Returns what was sent.
    pub const ECHO: u16 = 1;
    /// Gets no reply.
    pub const HELD: u16 = 2;
    /// Reads the first of the message's descriptors, returns what is in it, and a descriptor.
    pub const PASS: u16 = 3;
    /// An event with the same descriptor.
    pub const HANDED: u16 = 4;
}

/// The messages of a talker to the sink; see `proof/processes/tests/processes/endpoints.rs`.
pub mod talk {
    /// The tag of a talker's first message, which holds its name.
    pub const HELLO: u64 = u64::MAX;

    /// The length of message `number`: mostly short, sometimes several slots, cells or fragments.
    #[must_use]
    pub fn length_of(number: u64) -> usize {
        let length = match number % 32 {
            0 => 60_000 + number * 7919 % 200_000,
            1..=6 => number % 5000,
            _ => number % 110,
        };
        usize::try_from(length).unwrap_or_default()
    }

    /// The content of message `number`.
    #[must_use]
    pub fn bytes_of(number: u64, length: usize) -> Vec<u8> {
        let words = (0u64..).flat_map(|index| (number ^ index << 32).to_le_bytes());
        words.take(length).collect()
    }
}
