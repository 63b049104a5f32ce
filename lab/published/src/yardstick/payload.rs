//! Writes and reads the payload of a message, in the same way in every measurement: every byte of
//! it, at the cost of vector instructions.

/// Fills `target` with the words of `number`: a loop that the compiler turns into vector stores.
#[inline(always)]
pub fn fill(target: &mut [u8], number: u64) {
    let word = number.to_le_bytes();
    let (words, rest) = target.as_chunks_mut::<8>();
    for target in words {
        *target = word;
    }
    for (byte, pattern) in rest.iter_mut().zip(word) {
        *byte = pattern;
    }
}

/// Adds up the words of `source` and the bytes after the last word: a loop that the compiler turns
/// into vector additions.
#[inline(always)]
#[must_use]
pub fn sum(source: &[u8]) -> u64 {
    let (words, rest) = source.as_chunks::<8>();
    let mut sum = 0u64;
    for word in words {
        sum = sum.wrapping_add(u64::from_le_bytes(*word));
    }
    for byte in rest {
        sum = sum.wrapping_add(u64::from(*byte));
    }
    sum
}

/// The result of [`sum`] for a message of `bytes` bytes that [`fill`] has filled.
#[inline(always)]
#[must_use]
pub fn expected_sum(bytes: usize, number: u64) -> u64 {
    let rest = number.to_le_bytes().into_iter().take(bytes % 8).map(u64::from);
    number.wrapping_mul(bytes as u64 / 8).wrapping_add(rest.sum())
}

/// First and last word of a message.
#[inline(always)]
#[must_use]
pub fn ends(message: &[u8]) -> (u64, u64) {
    let first = message.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
    let last = message.last_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
    (first, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_is_what_is_summed() {
        let number = 0x0102_0304_0506_0708;
        for bytes in [1, 7, 8, 13, 48, 64, 72, 100, 4096] {
            let mut message = std::vec![0; bytes];
            fill(&mut message, number);
            assert_eq!(sum(&message), expected_sum(bytes, number), "{bytes} bytes");
            if bytes % 8 == 0 {
                assert_eq!(ends(&message), (number, number));
            }
            *message.last_mut().unwrap() ^= 1;
            assert_ne!(sum(&message), expected_sum(bytes, number), "{bytes} bytes");
        }
    }
}
