//! The memory of messages that were received, used again and again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The smallest memory that is kept, in bytes. An allocator has less at hand, without a lock.
const SMALLEST_BYTES: usize = 2 << 10;
/// The number of sizes: powers of two up to 8 MiB. Longer memory is not kept.
const SIZES: usize = 13;
/// At most this many bytes of unused memory are kept.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Unused memory by size, the one that was used last on top: it is still in a cache. A message may be
/// dropped by any thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<Unused>>);

#[derive(Debug, Default)]
struct Unused {
    sizes: [Vec<Vec<u8>>; SIZES],
    bytes: usize,
}

impl Pool {
    /// Empty memory for `bytes` bytes; `None` if there is none. All of its capacity has been initialized once, by the
    /// kernel if it is long: a peer that is invited to write there may not do so.
    pub(crate) fn take(&self, bytes: u64) -> Option<Vec<u8>> {
        let bytes = usize::try_from(bytes).ok()?;
        let size = size_of(bytes);
        if let Some(size) = size {
            let mut unused = self.lock();
            if let Some(memory) = unused.sizes[size].pop() {
                unused.bytes -= memory.capacity();
                return Some(memory);
            }
        }
        let capacity = size.map_or(bytes, |size| SMALLEST_BYTES << size);
        // An allocation that fails ends the program, unless it is tried so first.
        Vec::<u8>::new().try_reserve_exact(capacity).ok()?;
        let mut memory = vec![0; capacity];
        memory.clear();
        Some(memory)
    }

    /// Whether memory that is given back is used again: others than the pool's own may be of any capacity.
    #[inline]
    pub(crate) fn keeps(memory: &Vec<u8>) -> bool {
        size_of(memory.capacity()).is_some_and(|size| memory.capacity() == SMALLEST_BYTES << size)
    }

    /// Memory that is not used any more.
    pub(crate) fn give_back(&self, mut memory: Vec<u8>) {
        let bytes = memory.capacity();
        let Some(size) = size_of(bytes).filter(|_| Self::keeps(&memory)) else { return };
        memory.clear();
        let mut unused = self.lock();
        if unused.bytes + bytes <= KEPT_BYTES_MAX {
            unused.bytes += bytes;
            unused.sizes[size].push(memory);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Unused> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which of the kept sizes fits `bytes` bytes. `None` if memory of that length is not kept.
fn size_of(bytes: usize) -> Option<usize> {
    if bytes <= SMALLEST_BYTES / 2 {
        return None;
    }
    let units = bytes.div_ceil(SMALLEST_BYTES);
    let size = units.checked_next_power_of_two()?.trailing_zeros() as usize;
    (size < SIZES).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again() {
        let pool = Pool::default();
        let memory = pool.take(4000).unwrap();
        let address = memory.as_ptr();
        assert!(memory.capacity() == 4096);
        pool.give_back(memory);
        let (other, same) = (pool.take(2000).unwrap(), pool.take(2049).unwrap());
        assert!(other.as_ptr() != address, "of another size");
        assert_eq!(same.as_ptr(), address);
        assert_eq!(pool.lock().bytes, 0);
    }

    #[test]
    fn unused_memory_is_bounded() {
        let pool = Pool::default();
        let many: Vec<_> = (0..5).map(|_| pool.take(8 << 20).unwrap()).collect();
        many.into_iter().for_each(|memory| pool.give_back(memory));
        assert_eq!(pool.lock().bytes, KEPT_BYTES_MAX);
        pool.give_back(vec![0; 3000]);
        pool.give_back(pool.take(1024).unwrap());
        pool.give_back(pool.take(9 << 20).unwrap());
        assert_eq!(pool.lock().bytes, KEPT_BYTES_MAX);
        assert!(pool.take(u64::MAX).is_none());
    }
}
