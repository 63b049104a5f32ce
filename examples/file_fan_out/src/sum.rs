//! The sum that proves that every byte was read. It is computed at the speed of vector instructions.

/// Number of sums that are computed in parallel.
const LANES: usize = 8;

/// The wrapping sum of `bytes` as little-endian words of 64 bits; the last word is padded with zeroes.
/// It does not depend on the order of the words; the SHA-256 of another pass does.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<{ 8 * LANES }>();
    let mut lanes = [0u64; LANES];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = lane.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    let (words, tail) = rest.as_chunks::<8>();
    let mut last = [0u8; 8];
    last[..tail.len()].copy_from_slice(tail);
    let rest = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    lanes.into_iter().chain(rest).fold(0, u64::wrapping_add)
}

/// The sum over all chunks, each of which is summed separately.
pub(crate) fn checksum_of_chunks(bytes: &[u8], chunk_bytes: usize) -> u64 {
    bytes.chunks(chunk_bytes).map(checksum).fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts_wherever_it_lies() {
        for length in [1, 7, 8, 63, 64, 65, 200] {
            let bytes = vec![1u8; length];
            let whole = checksum(&bytes);
            for at in 0..length {
                let mut changed = bytes.clone();
                changed[at] ^= 0x80;
                assert_ne!(checksum(&changed), whole, "byte {at} of {length}");
            }
        }
        assert_eq!(checksum(&[]), 0);
        assert_eq!(checksum(&[0, 1]), 256);
    }
}
