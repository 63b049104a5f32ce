//! Structural hashes: two processes compare them when they bind.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// 64 bits of SHA-256 over a canonical text of a type, message or interface. Written as 16 hexadecimal digits.
///
/// What is in the text: the order, names and types of arguments and fields; bounds; the names and values of strict
/// enums; the name, kind and ordinal of each message; the name of the interface. Names are in it because swapping two
/// arguments of one type would change no byte of the layout.
///
/// What is not: names of types, so that an alias is its target; documentation, annotations, constants; the values of
/// flexible enums and of errors, which may grow, but for those of errors that are detailed; the edition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Hash(pub u64);

impl Hash {
    pub(crate) fn of(text: &str) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        let mut value = 0_u64;
        for byte in digest.iter().take(8) {
            value = value << 8 | u64::from(*byte);
        }
        Self(value)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

impl FromStr for Hash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u64::from_str_radix(text, 16).ok().filter(|_| digits);
        value.map(Self).ok_or_else(|| format!("a hash has 16 hexadecimal digits, not `{text}`"))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
