//! What is written into a message and read out of it, the same in every measurement: all of it, at the
//! cost of vector instructions.

/// Fills `target` with the words of `number`, in strides that the compiler turns into vector
/// stores.
#[inline(always)]
pub fn fill(target: &mut [u8], number: u64) {
    let word = number.to_le_bytes();
    let (strides, rest) = target.as_chunks_mut::<64>();
    for stride in strides {
        *stride = core::array::from_fn(|i| word[i % 8]);
    }
    let (words, rest) = rest.as_chunks_mut::<8>();
    words.fill(word);
    for (byte, pattern) in rest.iter_mut().zip(word) {
        *byte = pattern;
    }
}

/// Adds up the words of `source`, and the bytes after the last, in eight lanes that the compiler turns
/// into vector additions.
#[inline(always)]
#[must_use]
pub fn sum(source: &[u8]) -> u64 {
    let mut lanes = [0u64; 8];
    let (strides, rest) = source.as_chunks::<64>();
    for stride in strides {
        for (lane, word) in lanes.iter_mut().zip(stride.as_chunks::<8>().0) {
            *lane = lane.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    let (words, rest) = rest.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let bytes = rest.iter().map(|&byte| u64::from(byte));
    lanes.into_iter().chain(words).chain(bytes).fold(0, u64::wrapping_add)
}

/// What [`sum`] finds in a message of `bytes` bytes that [`fill`] has filled.
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
