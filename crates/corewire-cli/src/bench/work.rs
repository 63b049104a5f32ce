//! What is written into a message and read out of it, the same for baseline and measurement.

/// Fills `target` with the words of `number`, in strides that the compiler turns into vector
/// stores.
#[inline(always)]
pub(super) fn fill(target: &mut [u8], number: u64) {
    let pattern: [u8; 64] = std::array::from_fn(|i| number.to_le_bytes()[i % 8]);
    let (strides, rest) = target.as_chunks_mut::<64>();
    for stride in strides {
        *stride = pattern;
    }
    for (byte, pattern) in rest.iter_mut().zip(pattern) {
        *byte = pattern;
    }
}

/// Adds up the words of `source`, in eight lanes that the compiler turns into vector additions.
#[inline(always)]
pub(super) fn sum(source: &[u8]) -> u64 {
    let mut lanes = [0u64; 8];
    let (strides, rest) = source.as_chunks::<64>();
    for stride in strides {
        for (lane, word) in lanes.iter_mut().zip(stride.as_chunks::<8>().0) {
            *lane = lane.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    let rest = rest.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    lanes.into_iter().chain(rest).fold(0, u64::wrapping_add)
}

/// What [`sum`] finds in a message of `bytes` bytes that [`fill`] has filled.
pub(super) fn expected_sum(bytes: usize, number: u64) -> u64 {
    number.wrapping_mul(bytes as u64 / 8)
}

/// First and last word of a message.
#[inline(always)]
pub(super) fn ends(message: &[u8]) -> (u64, u64) {
    let first = message.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
    let last = message.last_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
    (first, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_is_what_is_summed() {
        for bytes in [8, 48, 64, 72, 4096] {
            let mut message = vec![0; bytes];
            fill(&mut message, 0x0102_0304);
            assert_eq!(sum(&message), expected_sum(bytes, 0x0102_0304));
            assert_eq!(ends(&message), (0x0102_0304, 0x0102_0304));
        }
    }
}
