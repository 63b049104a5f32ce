//! The rules for channel names, and the files of a runtime directory.
//!
//! | file | meaning |
//! |---|---|
//! | `p.<random>` | the listening socket of a process; `.p.<random>` until it listens |
//! | `g.<name>` | a copy of the name's record for guests, which may not open the locked file |
//! | `n.<name>` | a name that is taken: locked by its owner for life, holds a [`NameRecord`] |
//! | `m.<name>` | the senders of a shared channel: each holds a shared lock on it for life |
//! | `w.<name>.<random>` | a process that waits for that name: locked, holds a [`NameRecord`] |
//!
//! `<name>` may also be `<name>@<group>`: the relayed channel of one group, in a channel on two
//! levels.

use alloc::format;
use alloc::string::String;
use core::fmt;

/// The longest channel name, in bytes.
pub const NAME_BYTES_MAX: usize = 100;
/// Additional length of a relayed channel's name, in bytes: `@` and a decimal number of 32 bits.
pub const RELAYED_BYTES_MAX: usize = 11;
/// Bytes of a name record.
pub const RECORD_BYTES: usize = 76;

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("name without a character: at least one is needed")]
    Empty,
    /// The name is too long.
    #[error("name of {asked} bytes: at most {max} are possible")]
    TooLong {
        /// Its length in bytes.
        asked: usize,
        /// The maximum for a name of its kind.
        max: usize,
    },
    /// The name has a character that is not allowed.
    #[error(
        "name {name:?}: character {found:?} is not allowed \
         (letters, digits, '_', '-' and '.' are, and '.' not first)"
    )]
    Character {
        /// The name as given.
        name: String,
        /// The first character that is not allowed.
        found: char,
    },
}

/// A channel's name: 1 to 100 of the characters `A-Z a-z 0-9 _ - .`, and the first is not a dot.
/// The name of a relayed channel has `@` and the number of a group added.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelName(String);

impl ChannelName {
    /// Checks `name`, which comes from a user.
    ///
    /// # Errors
    /// [`NameError`] says which rule it breaks.
    pub fn new(name: &str) -> Result<Self, NameError> {
        Self::check(name, NAME_BYTES_MAX)?;
        Ok(Self(name.into()))
    }

    /// Checks `name`, of at most `max` bytes: that of something whose channels have longer names which begin with it.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn check(name: &str, max: usize) -> Result<(), NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > max {
            return Err(NameError::TooLong { asked: name.len(), max });
        }
        let allowed = |(i, c): (usize, char)| {
            c.is_ascii_alphanumeric() || "_-".contains(c) || (c == '.' && i > 0)
        };
        match name.char_indices().find(|&at| !allowed(at)) {
            Some((_, found)) => Err(NameError::Character { name: name.into(), found }),
            None => Ok(()),
        }
    }

    /// Checks `name`, which may be the name of a relayed channel.
    ///
    /// # Errors
    /// [`NameError`] says which rule it breaks.
    pub fn of_any(name: &str) -> Result<Self, NameError> {
        let Some((of, group)) = name.split_once('@') else { return Self::new(name) };
        // Only the exact text that `relayed` writes is valid.
        let relayed = group.parse().ok().map(|group| Self::new(of).map(|of| of.relayed(group)));
        match relayed {
            Some(Ok(relayed)) if relayed.0 == name => Ok(relayed),
            Some(Err(error)) => Err(error),
            _ => Err(NameError::Character { name: name.into(), found: '@' }),
        }
    }

    /// The name of the channel through which `group` gets this channel's messages.
    #[must_use]
    pub fn relayed(&self, group: u32) -> Self {
        Self(format!("{}@{group}", self.0))
    }

    /// The name of the endpoint of this name on another host, for display.
    #[must_use]
    pub fn on_host(&self, host: &Self) -> Self {
        Self(format!("{}@{host}", self.0))
    }

    /// Is it the name of a relay's channel?
    #[must_use]
    pub fn is_relayed(&self) -> bool {
        self.0.contains('@')
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The file that exists while this name is taken.
    #[must_use]
    pub fn name_file(&self) -> String {
        format!("n.{}", self.0)
    }

    /// The file on which the senders of a shared channel of this name hold shared locks.
    #[must_use]
    pub fn members_file(&self) -> String {
        format!("m.{}", self.0)
    }

    /// The file of the waiter `id`, which waits for this name.
    #[must_use]
    pub fn waiter_file(&self, id: u128) -> String {
        format!("w.{}.{id:032x}", self.0)
    }

    /// The waiter's number, if `file` is the file of a waiter for this name.
    #[must_use]
    pub fn waiter_of_file(&self, file: &str) -> Option<u128> {
        let digits = file.strip_prefix("w.")?.strip_prefix(self.as_str())?.strip_prefix('.')?;
        if digits.len() != 32 {
            return None;
        }
        u128::from_str_radix(digits, 16).ok()
    }

    /// The channel's name, if `file` is a name file.
    #[must_use]
    pub fn of_name_file(file: &str) -> Option<Self> {
        Self::of_any(file.strip_prefix("n.")?).ok()
    }
}

impl fmt::Display for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The name of a process's socket: 128 random bits. Names never recur, so any process may remove a
/// socket that refuses a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SocketName(pub u128);

impl SocketName {
    /// The name of the socket's file.
    #[must_use]
    pub fn file(&self) -> String {
        format!("p.{:032x}", self.0)
    }

    /// The socket's name, if `file` is a process socket.
    #[must_use]
    pub fn of_file(file: &str) -> Option<Self> {
        let digits = file.strip_prefix("p.")?;
        if digits.len() != 32 {
            return None;
        }
        u128::from_str_radix(digits, 16).ok().map(Self)
    }
}

/// What a name belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// A channel, or a process that waits for it.
    Channel,
    /// An endpoint.
    Endpoint,
    /// A listener.
    Listener,
    /// A window.
    Window,
}

impl NameKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Channel, Self::Endpoint, Self::Listener, Self::Window];

    /// The first word of a record.
    const fn word(self) -> &'static str {
        match self {
            Self::Channel => "corewire1",
            Self::Endpoint => "endpoint1",
            Self::Listener => "service1",
            Self::Window => "window1",
        }
    }
}

/// The content of a name file or a waiter's file: one line of text, written with one system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameRecord {
    /// What the name belongs to.
    pub kind: NameKind,
    /// The owner's socket.
    pub socket: SocketName,
    /// The incarnation of the channel, endpoint, listener or window, or the waiter's number.
    pub incarnation: u128,
}

impl NameRecord {
    /// The text of the record: `corewire1 <socket> <incarnation>` and a line end, with `endpoint1`
    /// as the first word for an endpoint, and `service1` and `window1`, with spaces more, for a listener and a window.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{:9} {:032x} {:032x}\n", self.kind.word(), self.socket.0, self.incarnation)
    }

    /// Parses a record. `None` for anything else, including an empty or half-written file.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(text).ok()?;
        let mut words = text.lines().next()?.split_ascii_whitespace();
        let word = words.next()?;
        let kind = NameKind::ALL.into_iter().find(|kind| kind.word() == word)?;
        let mut number = || {
            let word = words.next()?;
            (word.len() == 32).then(|| u128::from_str_radix(word, 16).ok()).flatten()
        };
        Some(Self { kind, socket: SocketName(number()?), incarnation: number()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_names_that_reach_out_of_the_directory() {
        for bad in ["", ".", "..", "a/b", "../x", "a\0b", "a b", "é", "-\n"] {
            assert!(ChannelName::new(bad).is_err(), "{bad:?}");
        }
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(ChannelName::new(&long), Err(NameError::TooLong { asked: 101, max: 100 }));
        assert!(ChannelName::new(&long[1..]).is_ok());
    }

    #[test]
    fn a_waiter_is_not_taken_for_one_of_a_longer_name() {
        let short = ChannelName::new("a").unwrap();
        let long = ChannelName::new("a.b").unwrap();
        assert_eq!(short.waiter_of_file(&long.waiter_file(7)), None);
        assert_eq!(long.waiter_of_file(&long.waiter_file(7)), Some(7));
    }

    #[test]
    fn a_record_has_its_stated_size() {
        for kind in NameKind::ALL {
            let record = NameRecord { kind, socket: SocketName(u128::MAX), incarnation: 0 };
            assert_eq!(record.to_text().len(), RECORD_BYTES);
        }
    }

    proptest! {
        #[test]
        fn records_survive_the_file(socket: u128, incarnation: u128, kind in 0usize..3) {
            let kind = NameKind::ALL[kind];
            let record = NameRecord { kind, socket: SocketName(socket), incarnation };
            prop_assert_eq!(NameRecord::parse(record.to_text().as_bytes()), Some(record));
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(bytes: alloc::vec::Vec<u8>) {
            let _ = NameRecord::parse(&bytes);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let _ = ChannelName::of_name_file(&text);
            let _ = SocketName::of_file(&text);
        }
    }
}
