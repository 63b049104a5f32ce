//! The first word of a message: its sender and its number, or a mark that starts or ends a measurement.
//! A message that is shorter than a word has one byte for this, and only one sender.

/// The first word of a message.
pub(super) type Word = u64;

/// The encoding of words for messages of a certain length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Code {
    /// Messages are shorter than a word, so the code is one byte.
    is_byte: bool,
    sender: u64,
}

/// Number of message numbers in a byte; other values are marks.
const BYTE_NUMBERS: u64 = 250;
const BYTE_START: u64 = 254;
const BYTE_END: u64 = 255;
/// Layout of a word: the sender from this bit on, the number below it.
const SENDER: u32 = 48;
const SENDERS_MAX: u64 = 256;
const NUMBER: u64 = (1 << SENDER) - 1;
const START: u64 = 1 << 62;
const END: u64 = 1 << 63;

/// The meaning of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// A message: its sender and its number.
    Message { sender: usize, number: u64 },
    /// This sender starts the measurement.
    Start { sender: usize },
    /// This sender ends the measurement.
    End { sender: usize },
}

impl Code {
    /// The code for messages of `bytes` bytes from sender `sender`.
    pub(super) fn new(bytes: usize, sender: u32) -> Self {
        Self { is_byte: bytes < 8, sender: u64::from(sender) }
    }

    /// The word of the first message.
    pub(super) fn first(self) -> Word {
        self.sender << SENDER
    }

    /// The word of the message that follows `word`.
    #[inline(always)]
    pub(super) fn after(self, word: Word) -> Word {
        if self.is_byte && word + 1 == BYTE_NUMBERS { 0 } else { word + 1 }
    }

    pub(super) fn start(self) -> Word {
        if self.is_byte { BYTE_START } else { START | self.sender << SENDER }
    }

    pub(super) fn end(self) -> Word {
        if self.is_byte { BYTE_END } else { END | self.sender << SENDER }
    }

    /// The word of a received message.
    #[inline(always)]
    pub(super) fn read(self, message: &[u8]) -> Word {
        if self.is_byte {
            message.first().map_or(0, |&byte| u64::from(byte))
        } else {
            message.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
        }
    }

    /// The meaning of a word.
    pub(super) fn say(self, word: Word) -> Said {
        let sender = usize::try_from(word >> SENDER & (SENDERS_MAX - 1)).unwrap_or_default();
        match word {
            BYTE_START if self.is_byte => Said::Start { sender: 0 },
            BYTE_END if self.is_byte => Said::End { sender: 0 },
            word if self.is_byte => Said::Message { sender: 0, number: word },
            word if word & START != 0 => Said::Start { sender },
            word if word & END != 0 => Said::End { sender },
            word => Said::Message { sender, number: word & NUMBER },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for (bytes, sender) in [(1, 0), (8, 0), (64, 3)] {
            let code = Code::new(bytes, sender);
            let sender = sender as usize;
            assert_eq!(code.say(code.first()), Said::Message { sender, number: 0 });
            let second = code.after(code.first());
            assert_eq!(code.say(second), Said::Message { sender, number: 1 });
            assert_eq!(code.say(code.start()), Said::Start { sender });
            assert_eq!(code.say(code.end()), Said::End { sender });
        }
        let code = Code::new(1, 0);
        assert_eq!(code.after(BYTE_NUMBERS - 1), 0);
    }
}
