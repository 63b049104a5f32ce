//! The declared type of a channel's messages: the key that two sides compare, and the name that
//! errors and observers show.

use core::fmt;

/// Maximum length of a message type's name in bytes.
pub const TYPE_NAME_BYTES_MAX: usize = 64;

/// The name of a message type: up to [`TYPE_NAME_BYTES_MAX`] printable ASCII characters, empty for
/// plain bytes. It goes to terminals and logs as it is, so nothing else is accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TypeName {
    bytes: [u8; TYPE_NAME_BYTES_MAX],
    length: u8,
}

const _: () = assert!(TYPE_NAME_BYTES_MAX <= u8::MAX as usize);

impl TypeName {
    /// The name of plain bytes.
    pub const EMPTY: Self = Self { bytes: [0; TYPE_NAME_BYTES_MAX], length: 0 };

    /// Checks a name. `None` if it is too long or holds anything but printable ASCII.
    #[must_use]
    pub const fn new(name: &str) -> Option<Self> {
        Self::of_bytes(name.as_bytes())
    }

    /// As [`TypeName::new`], for bytes that another process may have written.
    #[must_use]
    pub const fn of_bytes(name: &[u8]) -> Option<Self> {
        if name.len() > TYPE_NAME_BYTES_MAX {
            return None;
        }
        let mut checked = Self::EMPTY;
        let mut index = 0;
        while index < name.len() {
            let byte = name[index];
            if !byte.is_ascii_graphic() && byte != b' ' {
                return None;
            }
            checked.bytes[index] = byte;
            checked.length += 1;
            index += 1;
        }
        Some(checked)
    }

    /// Parses a name that is padded with zeroes, as it lies in shared memory. `None` if it holds
    /// anything but printable ASCII, also after the first zero.
    #[must_use]
    pub fn of_padded(padded: &[u8; TYPE_NAME_BYTES_MAX]) -> Option<Self> {
        let length = padded.iter().position(|&byte| byte == 0).unwrap_or(TYPE_NAME_BYTES_MAX);
        let (name, padding) = padded.split_at(length);
        if padding.iter().any(|&byte| byte != 0) {
            return None;
        }
        Self::of_bytes(name)
    }

    /// The name, padded with zeroes.
    #[must_use]
    pub const fn padded(&self) -> [u8; TYPE_NAME_BYTES_MAX] {
        self.bytes
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let name = self.bytes.get(..self.length.into()).unwrap_or_default();
        // It is ASCII.
        core::str::from_utf8(name).unwrap_or_default()
    }

    /// Is it the name of plain bytes?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl Default for TypeName {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// What the two sides of a channel compare; all zero for plain bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TypeKey {
    /// Hash of the type's name, size, alignment and fields.
    pub hash: u64,
    /// Size of one value in bytes.
    pub bytes: u64,
}

impl TypeKey {
    /// What a receiver asks for if it takes messages of any type. No channel carries it.
    pub const ANY: Self = Self { hash: u64::MAX, bytes: u64::MAX };

    /// May a receiver that asks for this type join a channel of type `carried`?
    #[must_use]
    pub fn accepts(self, carried: Self) -> bool {
        self == carried || self == Self::ANY
    }
}

/// The declared type of a channel's messages; empty for plain bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TypeTag {
    /// What is compared.
    pub key: TypeKey,
    /// What people read.
    pub name: TypeName,
}

impl TypeTag {
    /// What a receiver asks for if it takes messages of any type.
    pub const ANY: Self = Self { key: TypeKey::ANY, name: TypeName::EMPTY };

    /// Puts together what another process wrote. `None` if a type has no name, or plain bytes have
    /// a name or a size.
    #[must_use]
    pub fn new(hash: u64, bytes: u64, name: TypeName) -> Option<Self> {
        let is_consistent = match hash {
            0 => name.is_empty() && bytes == 0,
            _ => !name.is_empty(),
        };
        is_consistent.then_some(Self { key: TypeKey { hash, bytes }, name })
    }

    /// True for a channel that carries plain bytes.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.key.hash == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use proptest::prelude::*;

    #[test]
    fn a_name_has_64_printable_characters_at_most() {
        let longest = "x".repeat(TYPE_NAME_BYTES_MAX);
        assert_eq!(TypeName::new(&longest).unwrap().as_str(), longest);
        assert_eq!(TypeName::new(&(longest + "x")), None);
        for bad in ["a\nb", "\u{1b}[2J", "a\0", "é", "\u{7f}"] {
            assert_eq!(TypeName::new(bad), None, "{bad:?}");
        }
        assert_eq!(TypeName::new(""), Some(TypeName::EMPTY));
    }

    #[test]
    fn only_plain_bytes_have_no_name() {
        let name = TypeName::new("Tick").unwrap();
        assert!(TypeTag::new(0, 0, TypeName::EMPTY).unwrap().is_plain());
        assert!(!TypeTag::new(1, 0, name).unwrap().is_plain());
        assert_eq!(TypeTag::new(0, 0, name), None);
        assert_eq!(TypeTag::new(0, 1, TypeName::EMPTY), None);
        assert_eq!(TypeTag::new(1, 1, TypeName::EMPTY), None);
    }

    #[test]
    fn a_type_is_accepted_by_itself_and_by_any() {
        let [plain, tick] = [TypeKey::default(), TypeKey { hash: 3, bytes: 16 }];
        for carried in [plain, tick] {
            assert!(TypeKey::ANY.accepts(carried) && carried.accepts(carried));
            assert!(!carried.accepts(TypeKey::ANY));
        }
        assert!(!plain.accepts(tick) && !tick.accepts(plain));
    }

    proptest! {
        #[test]
        fn names_survive_memory(name in "[ -~]{0,64}") {
            let name = TypeName::new(&name).unwrap();
            prop_assert_eq!(TypeName::of_padded(&name.padded()), Some(name));
        }

        #[test]
        fn any_bytes_are_a_printable_name_or_none(
            name in "[ -~]{0,64}",
            flips in proptest::collection::vec((0..TYPE_NAME_BYTES_MAX, any::<u8>()), 0..4),
        ) {
            let mut padded = TypeName::new(&name).unwrap().padded();
            for (at, value) in flips {
                padded[at] = value;
            }
            if let Some(name) = TypeName::of_padded(&padded) {
                let shown: String = alloc::format!("{name}");
                prop_assert!(shown.chars().all(|c| (' '..='~').contains(&c)));
                prop_assert_eq!(name.padded(), padded);
            }
        }
    }
}
