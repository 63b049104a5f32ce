//! What the first word of a message says: whose it is and which, or that a measurement begins or ends.
//! Messages of less than a word say it in a byte, and have one sender.

/// As a message has it.
pub(super) type Word = u64;

/// How words are made for messages of some length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Code {
    /// Messages are shorter than a word.
    is_byte: bool,
    sender: u64,
}

/// Numbers of a byte: the others are marks.
const BYTE_NUMBERS: u64 = 250;
const BYTE_START: u64 = 254;
const BYTE_END: u64 = 255;
/// In a word: above this bit the sender, below it the number.
const SENDER: u32 = 48;
const SENDERS_MAX: u64 = 256;
const NUMBER: u64 = (1 << SENDER) - 1;
const START: u64 = 1 << 62;
const END: u64 = 1 << 63;

/// What a word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// A message, of which sender, which one.
    Message { sender: usize, number: u64 },
    /// The measurement begins, says this sender.
    Start { sender: usize },
    /// It is over.
    End { sender: usize },
}

impl Code {
    /// For messages of `bytes` bytes of sender `sender`.
    pub(super) fn new(bytes: usize, sender: u32) -> Self {
        Self { is_byte: bytes < 8, sender: u64::from(sender) }
    }

    /// The first message's.
    pub(super) fn first(self) -> Word {
        self.sender << SENDER
    }

    /// That of the message after the one of `word`.
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

    /// What it says.
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
