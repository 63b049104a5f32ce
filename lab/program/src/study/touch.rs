//! Messages that are written before they are sent, and read after they are received.

use crate::study::failure::Failure;

/// Bytes of a page to which a message is scattered.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The byte of which a message consists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(u8);

impl Mark {
    /// The mark of message `number`.
    pub(crate) fn of(number: u64) -> Self {
        Self(number.to_le_bytes()[0])
    }

    /// Writes a message.
    #[inline(always)]
    pub(crate) fn write(self, message: &mut [u8]) {
        message.fill(self.0);
    }

    /// Reads a message, and compares its sum.
    #[inline(always)]
    pub(crate) fn read(self, message: &[u8]) -> Result<(), Failure> {
        self.compare(sum(message), message.len())
    }

    /// Reads a message of so many bytes that lies in pages.
    pub(crate) fn read_pages(self, pages: &[&mut [u8]], bytes: usize) -> Result<(), Failure> {
        let lengths = (0..bytes).step_by(PAGE_BYTES).map(|at| PAGE_BYTES.min(bytes - at));
        let sums = pages.iter().zip(lengths).map(|(page, length)| sum(&page[..length]));
        self.compare(sums.fold(0, u64::wrapping_add), bytes)
    }

    fn compare(self, sum: u64, bytes: usize) -> Result<(), Failure> {
        let word = u64::from_le_bytes([self.0; 8]);
        let words = (bytes as u64 / 8).wrapping_mul(word);
        let rest = (bytes as u64 % 8) * u64::from(self.0);
        if sum == words.wrapping_add(rest) {
            return Ok(());
        }
        Err(Failure::other(format!("a message of {bytes} bytes arrived damaged")))
    }
}

/// The sum of all words, and of the bytes behind the last one.
fn sum(message: &[u8]) -> u64 {
    let (words, rest) = message.as_chunks::<8>();
    let words = words.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    rest.iter().fold(words, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_shows_a_byte_that_differs() {
        let mark = Mark(201);
        for bytes in [0, 1, 7, 8, 100, 5000] {
            let mut message = vec![201; bytes];
            assert_eq!(mark.read(&message), Ok(()));
            if let Some(last) = message.last_mut() {
                *last = 200;
                assert!(mark.read(&message).is_err(), "{bytes} bytes");
            }
        }
        let (mut one, mut other) = (vec![201; PAGE_BYTES], vec![201; PAGE_BYTES]);
        other[905] = 7;
        assert_eq!(mark.read_pages(&[&mut one, &mut other], 5001), Ok(()));
        other[904] = 7;
        assert!(mark.read_pages(&[&mut one, &mut other], 5001).is_err());
    }
}
