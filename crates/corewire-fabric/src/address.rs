//! Addresses: 48 bytes, all of them.
//!
//! | bytes | what they are |
//! |---|---|
//! | 0 to 3 | `cwfi` |
//! | 4 | version: 1 |
//! | 5 | length of the name |
//! | 6, 7 | 0 |
//! | 8 to 23 | the endpoint's incarnation, little-endian; 0 if only the name is known |
//! | 24 to 47 | the endpoint's name, and zeros |
//!
//! One without a name is the source address of `fi_getinfo`: an endpoint that is opened with it gets a name of its own.

use core::fmt;

use corewire_ofi::info::FI_PROV_SPECIFIC;

use crate::errors::{INVALID, Outcome};

/// Length of every address.
pub(crate) const ADDRESS_BYTES: usize = 48;
/// The longest name.
pub(crate) const NAME_BYTES_MAX: usize = 24;
/// What `fi_info` calls the format.
pub(crate) const FORMAT: u32 = FI_PROV_SPECIFIC | 0x0063_7766;

const MAGIC: [u8; 4] = *b"cwfi";
const VERSION: u8 = 1;

/// The address of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    name: [u8; NAME_BYTES_MAX],
    length: u8,
    incarnation: u128,
}

impl Address {
    /// The address of the endpoint with this name, and incarnation if it is known.
    pub(crate) fn new(name: &str, incarnation: Option<u128>) -> Outcome<Self> {
        let length = u8::try_from(name.len()).map_err(|_| INVALID)?;
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(is_allowed) {
            return Err(INVALID);
        }
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes.get_mut(..name.len()).ok_or(INVALID)?.copy_from_slice(name.as_bytes());
        Ok(Self { name: bytes, length, incarnation: incarnation.unwrap_or(0) })
    }

    /// The source address of an endpoint whose program chooses no name.
    pub(crate) const ANY: Self = Self { name: [0; NAME_BYTES_MAX], length: 0, incarnation: 0 };

    /// Reads the source address of an endpoint.
    pub(crate) fn parse_source(bytes: &[u8; ADDRESS_BYTES]) -> Outcome<Self> {
        if *bytes == Self::ANY.to_bytes() { Ok(Self::ANY) } else { Self::parse(bytes) }
    }

    /// Reads an address that comes from a program, and perhaps from another one.
    pub(crate) fn parse(bytes: &[u8; ADDRESS_BYTES]) -> Outcome<Self> {
        let (head, rest) = bytes.split_at(8);
        let (incarnation, name) = rest.split_at(16);
        let &[a, b, c, d, VERSION, length, 0, 0] = head else { return Err(INVALID) };
        let length = usize::from(length);
        if [a, b, c, d] != MAGIC || length > NAME_BYTES_MAX {
            return Err(INVALID);
        }
        let (name, zeros) = name.split_at(length);
        if zeros.iter().any(|&byte| byte != 0) {
            return Err(INVALID);
        }
        let name = str::from_utf8(name).map_err(|_| INVALID)?;
        let incarnation = u128::from_le_bytes(incarnation.try_into().map_err(|_| INVALID)?);
        Self::new(name, Some(incarnation))
    }

    /// The address as the program carries it.
    pub(crate) fn to_bytes(self) -> [u8; ADDRESS_BYTES] {
        let mut bytes = [0; ADDRESS_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.length;
        bytes[8..24].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[24..].copy_from_slice(&self.name);
        bytes
    }

    pub(crate) fn name(&self) -> &str {
        str::from_utf8(&self.name[..usize::from(self.length)]).unwrap_or_default()
    }

    /// Which endpoint of that name it is, if it is known.
    pub(crate) fn incarnation(&self) -> Option<u128> {
        (self.incarnation != 0).then_some(self.incarnation)
    }

    /// The same name, of any incarnation.
    pub(crate) fn of_name(self) -> Self {
        Self { incarnation: 0, ..self }
    }
}

/// As `fi_av_straddr` prints it.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corewire://{}", self.name())?;
        match self.incarnation() {
            Some(incarnation) => write!(f, "#{incarnation:032x}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_were_written() {
        for (name, incarnation) in [("a", None), ("mpi-4194304-99999-255", Some(7))] {
            let address = Address::new(name, incarnation).unwrap();
            assert_eq!(Address::parse(&address.to_bytes()), Ok(address));
            assert_eq!((address.name(), address.incarnation()), (name, incarnation));
        }
        let address = Address::new("rank", Some(0xabc)).unwrap();
        assert_eq!(address.to_string(), format!("corewire://rank#{:032x}", 0xabc));
        assert_eq!(address.of_name().to_string(), "corewire://rank");
        assert_eq!(Address::parse_source(&address.to_bytes()), Ok(address));
        assert_eq!(Address::parse_source(&Address::ANY.to_bytes()), Ok(Address::ANY));
        assert_eq!(Address::parse(&Address::ANY.to_bytes()), Err(INVALID));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let good = Address::new("rank-1", Some(1)).unwrap().to_bytes();
        for at in [0, 3, 4, 6, 7, 24 + 6, 47] {
            let mut bytes = good;
            bytes[at] ^= 0x80;
            assert_eq!(Address::parse(&bytes), Err(INVALID), "byte {at}");
        }
        for length in [0, 5, 25, 255] {
            let mut bytes = good;
            bytes[5] = length;
            assert_eq!(Address::parse(&bytes), Err(INVALID), "length {length}");
        }
        for name in ["", ".hidden", "a/b", "a b", "twenty-five-bytes-of-name"] {
            assert_eq!(Address::new(name, None), Err(INVALID), "{name}");
        }
    }
}
