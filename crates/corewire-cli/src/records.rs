//! How messages stand one after the other in a stream of bytes.

use crate::failure::Failure;

/// Bytes asked of the input at a time when it is cut into messages.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// Bytes of the length before a framed message.
pub(crate) const LENGTH_BYTES: usize = 4;

/// Where one message of the input ends and the next begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Records {
    /// What one read returns is a message.
    Chunks,
    /// All of the input is one message.
    Whole,
    /// Each message ends with this byte, which is not part of it.
    Separated(u8),
    /// Each message stands after its length: 4 bytes, little-endian.
    Framed,
}

impl Records {
    /// What a message is called in errors.
    const fn word(self) -> &'static str {
        match self {
            Self::Separated(b'\n') => "line",
            _ => "message",
        }
    }
}

/// Cuts a stream into messages.
#[derive(Debug)]
pub(crate) struct Splitter {
    records: Records,
    /// The most bytes of a message.
    largest: usize,
    /// The beginning of a message whose end has not been read yet.
    pending: Vec<u8>,
    /// The number of that message, from 1.
    number: u64,
}

impl Splitter {
    pub(crate) fn new(records: Records, largest: usize) -> Self {
        Self { records, largest, pending: Vec::new(), number: 1 }
    }

    /// Calls `emit` with each message that `read` completes.
    ///
    /// Fails with the first message that is too long, or that `emit` refuses.
    pub(crate) fn split<E: From<Failure>>(
        &mut self,
        read: &[u8],
        mut emit: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.records {
            Records::Chunks => emit(read),
            Records::Whole => {
                self.check(self.pending.len() + read.len())?;
                self.pending.extend_from_slice(read);
                Ok(())
            }
            Records::Separated(end) => self.split_at(end, read, emit),
            Records::Framed => self.split_frames(read, &mut emit),
        }
    }

    fn split_at<E: From<Failure>>(
        &mut self,
        end: u8,
        mut rest: &[u8],
        mut emit: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(at) = rest.iter().position(|&byte| byte == end) {
            let (record, after) = rest.split_at(at);
            self.check(self.pending.len() + record.len())?;
            if self.pending.is_empty() {
                emit(record)?;
            } else {
                self.pending.extend_from_slice(record);
                emit(&self.pending)?;
                self.pending.clear();
            }
            self.number += 1;
            rest = &after[1..];
        }
        self.check(self.pending.len() + rest.len())?;
        self.pending.extend_from_slice(rest);
        Ok(())
    }

    fn split_frames<E: From<Failure>>(
        &mut self,
        mut rest: &[u8],
        emit: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            if self.pending.is_empty() {
                match self.length_of(rest)?.and_then(|length| rest.get(LENGTH_BYTES..length)) {
                    Some(message) => {
                        emit(message)?;
                        self.number += 1;
                        rest = &rest[LENGTH_BYTES + message.len()..];
                        continue;
                    }
                    None if rest.is_empty() => return Ok(()),
                    None => {}
                }
            }
            let needed = self.length_of(&self.pending)?.unwrap_or(LENGTH_BYTES);
            let (part, after) = rest.split_at(rest.len().min(needed - self.pending.len()));
            self.pending.extend_from_slice(part);
            rest = after;
            match self.length_of(&self.pending)? {
                Some(needed) if needed == self.pending.len() => {
                    emit(&self.pending[LENGTH_BYTES..])?;
                    self.pending.clear();
                    self.number += 1;
                }
                _ if rest.is_empty() => return Ok(()),
                _ => {}
            }
        }
    }

    /// Bytes of the frame that begins here, with its length, once that is there.
    fn length_of(&self, bytes: &[u8]) -> Result<Option<usize>, Failure> {
        let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        self.check(length)?;
        Ok(Some(LENGTH_BYTES + length))
    }

    /// Calls `emit` with a last message that nothing ends. Fails if the input ends within a frame.
    pub(crate) fn finish<E: From<Failure>>(
        &mut self,
        emit: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if self.records == Records::Framed {
            let (number, found) = (self.number, self.pending.len());
            let expected = match self.length_of(&self.pending)? {
                Some(expected) => format!("{found} of its {expected} bytes are there"),
                None => format!("{found} of the {LENGTH_BYTES} bytes of its length are there"),
            };
            let message = format!("the input ends within message {number}: {expected}");
            return Err(Failure::usage(message).into());
        }
        emit(&self.pending)
    }

    fn check(&self, bytes: usize) -> Result<(), Failure> {
        let Self { largest, number, .. } = self;
        if bytes <= *largest {
            return Ok(());
        }
        // How much longer a line is has not been read.
        let found = match self.records {
            Records::Framed => format!("has {bytes} bytes, of at most {largest}"),
            _ => format!("has more than {largest} bytes"),
        };
        if self.records == Records::Whole {
            return Err(Failure::usage(format!(
                "the input {found}: raise --largest, or cut it into messages with --lines, -0, --framed or --chunk"
            )));
        }
        let word = self.records.word();
        Err(Failure::usage(format!(
            "{word} {number} {found}: raise --largest of the process that creates it"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(messages: &[&[u8]]) -> Vec<u8> {
        let frame = |message: &&[u8]| {
            let length = u32::try_from(message.len()).unwrap().to_le_bytes();
            [&length, *message].concat()
        };
        messages.iter().flat_map(frame).collect()
    }

    /// What comes out when `stream` is read in pieces of `size` bytes.
    fn split(records: Records, stream: &[u8], size: usize) -> Result<Vec<Vec<u8>>, Failure> {
        let mut splitter = Splitter::new(records, 10);
        let mut found = Vec::new();
        let mut emit = |message: &[u8]| {
            found.push(message.to_vec());
            Ok::<_, Failure>(())
        };
        for read in stream.chunks(size) {
            splitter.split(read, &mut emit)?;
        }
        splitter.finish(&mut emit)?;
        Ok(found)
    }

    #[test]
    fn messages_are_the_same_however_they_are_read() {
        let messages: [&[u8]; 5] = [b"one", b"", b"ten bytes!", b"", b"z"];
        let lines = messages.join(&b'\n');
        let zeroes = messages.join(&0);
        for size in 1..20 {
            assert_eq!(split(Records::Framed, &framed(&messages), size).unwrap(), messages);
            assert_eq!(split(Records::Separated(b'\n'), &lines, size).unwrap(), messages);
            assert_eq!(split(Records::Separated(0), &zeroes, size).unwrap(), messages);
        }
        assert_eq!(split(Records::Chunks, b"abc", 2).unwrap(), [&b"ab"[..], b"c"]);
    }

    #[test]
    fn a_frame_that_is_too_long_or_not_whole_is_named() {
        let message =
            |stream: &[u8], size| split(Records::Framed, stream, size).unwrap_err().message;
        let long = framed(&[b"fine", b"eleven byte"]);
        let short = framed(&[b"fine", b"cut off"]);
        for size in [1, 3, 100] {
            let said = message(&long, size);
            assert!(said.starts_with("message 2 has 11 bytes, of at most 10: raise"), "{said}");
            let said = message(&short[..short.len() - 1], size);
            assert_eq!(said, "the input ends within message 2: 10 of its 11 bytes are there");
            let said = message(&short[..9], size);
            let expected =
                "the input ends within message 2: 1 of the 4 bytes of its length are there";
            assert_eq!(said, expected);
        }
        let said = split(Records::Separated(0), b"one\0far too long\0", 5).unwrap_err().message;
        assert!(said.starts_with("message 2 has more than 10 bytes: raise"), "{said}");
    }
}
