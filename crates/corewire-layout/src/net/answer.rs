//! What the side that was dialled answers.

use alloc::vec::Vec;
use core::fmt;

use super::{NET_VERSION, NetError};

/// The length of an answer in bytes.
pub const ANSWER_BYTES: usize = 8;

const MAGIC: [u8; 4] = *b"cwan";

/// What the side that was dialled answers: first to the preface, in the clear, and again to the hello of the side that dials,
/// before its own.
///
/// ```text
///   0       4         6        7   8
///   | magic | version | answer | 0 |        answer: 0 welcome, else why it is refused
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It may go on.
    Welcome,
    /// The connection ends.
    Refused(Refusal),
}

/// Why a host refuses a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Refusal {
    /// It has no endpoint of the name that is wanted.
    NotFound = 1,
    /// No rule of its lets the host of the side that dials reach that endpoint.
    NotAllowed = 2,
    /// There is a connection with the side that dials already, or it is being made, which that side does not know yet. The
    /// hello of this side follows.
    Crossed = 3,
    /// The endpoint has as many peers as it may have.
    Full = 4,
    /// It takes connections with TLS only.
    NeedsTls = 5,
    /// It has no certificate, and takes connections without TLS only.
    NoTls = 6,
    /// Its file of hosts does not name the host of the side that dials.
    UnknownHost = 7,
    /// The side that dials is not the host that it says it is.
    OtherHost = 8,
    /// The process that dials, on the same machine, runs as another user.
    OtherUser = 9,
    /// It cannot take the connection now.
    Busy = 10,
}

impl Refusal {
    const ALL: [Self; 10] = [
        Self::NotFound,
        Self::NotAllowed,
        Self::Crossed,
        Self::Full,
        Self::NeedsTls,
        Self::NoTls,
        Self::UnknownHost,
        Self::OtherHost,
        Self::OtherUser,
        Self::Busy,
    ];
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "no endpoint of that name can be reached there",
            Self::NotAllowed => "no rule there lets this host reach that endpoint",
            Self::Crossed => "it is connecting to this endpoint itself, or has done so",
            Self::Full => "the endpoint has as many peers as it may have",
            Self::NeedsTls => "it takes connections with TLS only",
            Self::NoTls => "it has no certificate for TLS",
            Self::UnknownHost => "its file of hosts does not name this host",
            Self::OtherHost => "this is not the host that it says it is",
            Self::OtherUser => "without TLS it takes connections of its own user only",
            Self::Busy => "it cannot take a connection now",
        })
    }
}

impl Answer {
    /// Its bytes.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let answer = match self {
            Self::Welcome => 0,
            Self::Refused(why) => why as u8,
        };
        [&MAGIC[..], &NET_VERSION.to_le_bytes(), &[answer, 0]].concat()
    }

    /// The answer at the beginning of what has arrived.
    ///
    /// # Errors
    /// [`NetError`].
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, NetError> {
        // What is wrong at once need not be waited for.
        if !bytes.iter().zip(&MAGIC).all(|(found, due)| found == due) {
            let mut first = [0; 8];
            first.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
            return Err(NetError::Foreign { found: u64::from_le_bytes(first) });
        }
        let Some(&[_, _, _, _, low, high, answer, zero]) = bytes.get(..ANSWER_BYTES) else {
            return Ok(None);
        };
        match u16::from_le_bytes([low, high]) {
            NET_VERSION => {}
            found => return Err(NetError::Version { found }),
        }
        let why = Refusal::ALL.into_iter().find(|why| *why as u8 == answer);
        match (answer, why, zero) {
            (0, _, 0) => Ok(Some(Self::Welcome)),
            (_, Some(why), 0) => Ok(Some(Self::Refused(why))),
            _ => {
                let (field, found) = ("an answer", u64::from(answer) | u64::from(zero) << 8);
                Err(NetError::Field { field, found })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_read_as_written_and_any_part_of_it_waits_for_more() {
        let refusals = Refusal::ALL.into_iter().map(Answer::Refused);
        for answer in refusals.chain([Answer::Welcome]) {
            let bytes = answer.to_bytes();
            assert_eq!(bytes.len(), ANSWER_BYTES);
            assert_eq!(Answer::parse(&[&bytes[..], b"more"].concat()), Ok(Some(answer)));
            for length in 0..ANSWER_BYTES {
                assert_eq!(Answer::parse(&bytes[..length]), Ok(None));
            }
        }
    }

    #[test]
    fn anything_else_is_refused() {
        assert!(matches!(Answer::parse(b"HTTP"), Err(NetError::Foreign { .. })));
        let mut bytes = Answer::Welcome.to_bytes();
        for (at, byte) in [(6, 11), (6, 255), (7, 1)] {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            assert!(matches!(Answer::parse(&bytes), Err(NetError::Field { .. })));
        }
        bytes[4] = 9;
        assert_eq!(Answer::parse(&bytes), Err(NetError::Version { found: 9 }));
    }
}
