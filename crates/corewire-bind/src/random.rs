//! Random numbers: secrets and names; and random bytes for tests of what reads the bytes of a peer.

use crate::error::CallError;

/// 64 random bits of the kernel's. Two forked children never get the same.
pub(crate) fn random_u64() -> Result<u64, CallError> {
    let random = corewire_os::random_u128();
    let random = random
        .map_err(|error| CallError::Os { what: "get a random number", errno: error.errno })?;
    Ok((random >> 64) as u64)
}

/// Calls `take` with pieces of random bytes: a megabyte in all, or `COREWIRE_RANDOM_BYTES`.
#[cfg(test)]
pub(crate) fn bytes(mut take: impl FnMut(&[u8])) {
    let given = std::env::var("COREWIRE_RANDOM_BYTES").ok();
    let mut left = given.map_or(1 << 20, |count| count.parse::<u64>().unwrap());
    // xorshift64: the same bytes in each run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut piece = Vec::new();
    while left > 0 {
        piece.clear();
        for _ in 0..next() % 64 {
            piece.extend(next().to_le_bytes());
        }
        take(&piece);
        left = left.saturating_sub(piece.len() as u64 + 1);
    }
}
