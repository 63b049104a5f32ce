//! Memory of messages, used again.
//!
//! Entries are kept for a while, and then given up many at a time. An allocator that gives such memory back to the kernel,
//! as glibc's does with the end of its heap, makes the next messages pay a page fault for each page: a log of entries of 10
//! or 100 KiB then takes twice as long.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use bytes::Bytes;

/// Shorter buffers are the allocator's business.
const BUFFER_BYTES_MIN: usize = 4 << 10;
/// What is free at most.
const FREE_BYTES_MAX: usize = 4 << 20;
/// How many buffers are looked at for one that fits.
const LOOKED_AT_MAX: usize = 64;

/// Buffers that are free. A clone has the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<Free>>);

#[derive(Debug, Default)]
struct Free {
    /// The one that was used last is the last one.
    buffers: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Free {
    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let fits = |buffer: &Vec<u8>| (bytes..=most_for(bytes)).contains(&buffer.capacity());
        let mut last = self.buffers.iter().enumerate().rev().take(LOOKED_AT_MAX);
        let (at, _) = last.find(|(_, buffer)| fits(buffer))?;
        let buffer = self.buffers.remove(at)?;
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    /// A buffer that [is used again](is_used_again) is free. Returns those for which there is no room any more: that nobody
    /// has wanted for longest.
    fn put(&mut self, buffer: Vec<u8>) -> Vec<Vec<u8>> {
        let bytes = buffer.capacity();
        let mut without_room = Vec::new();
        while self.bytes + bytes > FREE_BYTES_MAX
            && let Some(oldest) = self.buffers.pop_front()
        {
            self.bytes -= oldest.capacity();
            without_room.push(oldest);
        }
        self.bytes += bytes;
        self.buffers.push_back(buffer);
        without_room
    }
}

impl Buffers {
    /// A buffer with room for so many bytes, and not for much more. It may have any content.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let found = (most_for(bytes) >= BUFFER_BYTES_MIN).then(|| self.lock().take(bytes));
        found.flatten().unwrap_or_else(|| Vec::with_capacity(bytes))
    }

    /// A buffer is free.
    pub(crate) fn put(&self, buffer: Vec<u8>) {
        if is_used_again(buffer.capacity()) {
            // Freed without the lock.
            let without_room = self.lock().put(buffer);
            drop(without_room);
        }
    }

    /// The content of a buffer, to be shared and kept. The buffer is free when nobody has a part of it any more.
    pub(crate) fn share(&self, buffer: Vec<u8>) -> Bytes {
        if buffer.capacity() > most_for(buffer.len()) {
            // It may be kept for long, and so would what it leaves empty.
            let exact = Bytes::copy_from_slice(&buffer);
            self.put(buffer);
            return exact;
        }
        if !is_used_again(buffer.capacity()) {
            return Bytes::from(buffer);
        }
        Bytes::from_owner(Lent { buffer, home: Arc::downgrade(&self.0) })
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Is a buffer of so many bytes worth being kept, and is there room for it?
const fn is_used_again(bytes: usize) -> bool {
    bytes >= BUFFER_BYTES_MIN && bytes <= FREE_BYTES_MAX
}

/// The room of a buffer that is used for so many bytes, at most.
const fn most_for(bytes: usize) -> usize {
    bytes.saturating_mul(2)
}

/// A buffer whose content is shared.
struct Lent {
    buffer: Vec<u8>,
    home: Weak<Mutex<Free>>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        // A program drops what it has read in any thread, and in a forked child, where the lock may be held for ever by a
        // thread that is not there. This does not wait: then the buffer is the allocator's.
        let free = match home.try_lock() {
            Ok(free) => Some(free),
            Err(TryLockError::Poisoned(free)) => Some(free.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let without_room = free.map(|mut free| free.put(std::mem::take(&mut self.buffer)));
        drop(without_room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_when_the_last_part_of_it_is_given_up() {
        let buffers = Buffers::default();
        let mut buffer = buffers.take(10_000);
        buffer.resize(10_000, 7);
        let memory = buffer.as_ptr();
        let all = buffers.share(buffer);
        let part = all.slice(5000..5003);
        assert_eq!((all.as_ptr(), &part[..]), (memory, &[7, 7, 7][..]), "not copied");
        drop(all);
        let other = buffers.take(10_000);
        assert_ne!(other.as_ptr(), memory, "a part is kept");
        drop(part);
        let again = buffers.take(9000);
        assert_eq!(again.as_ptr(), memory);
    }

    #[test]
    fn what_is_kept_has_at_most_twice_the_memory_that_it_needs() {
        let buffers = Buffers::default();
        for (capacity, bytes) in [(16_384, 3), (16_384, 8191), (16_384, 8192), (64, 3), (64, 32)] {
            let mut buffer = Vec::with_capacity(capacity);
            buffer.resize(bytes, 7);
            let memory = buffer.as_ptr();
            let shared = buffers.share(buffer);
            assert_eq!(shared, vec![7; bytes]);
            let is_kept = shared.as_ptr() == memory;
            assert_eq!(is_kept, capacity <= 2 * bytes, "{capacity} for {bytes}");
        }
        buffers.put(Vec::with_capacity(1 << 20));
        for bytes in [0, 1, 100, 10_000] {
            assert!(buffers.take(bytes).capacity() <= 2 * bytes, "{bytes}");
        }
    }

    #[test]
    fn what_is_free_is_little() {
        let buffers = Buffers::default();
        let large = FREE_BYTES_MAX / 4;
        for _ in 0..5 {
            buffers.put(Vec::with_capacity(large));
        }
        let free = || {
            let free = buffers.lock();
            let bytes = free.buffers.iter().map(Vec::capacity).sum::<usize>();
            assert_eq!(free.bytes, bytes);
            (free.buffers.len(), free.bytes)
        };
        assert_eq!(free(), (4, FREE_BYTES_MAX));
        buffers.put(Vec::with_capacity(FREE_BYTES_MAX + 1));
        buffers.put(Vec::with_capacity(BUFFER_BYTES_MIN - 1));
        assert_eq!(free(), (4, FREE_BYTES_MAX), "too large, and too small");
        buffers.put(Vec::with_capacity(BUFFER_BYTES_MIN));
        assert_eq!(free(), (4, 3 * large + BUFFER_BYTES_MIN), "the oldest one went");
        assert_eq!(buffers.take(large).capacity(), large);
        assert_eq!(free(), (3, 2 * large + BUFFER_BYTES_MIN));
    }

    #[test]
    fn what_is_given_up_while_others_have_the_lock_waits_for_nobody() {
        let buffers = Buffers::default();
        let share = || {
            let mut buffer = buffers.take(5000);
            buffer.resize(5000, 7);
            buffers.share(buffer)
        };
        let (one, other) = (share(), share());
        let lock = buffers.lock();
        drop(one);
        drop(lock);
        assert_eq!(buffers.lock().bytes, 0, "it went to the allocator");
        std::thread::spawn(|| drop(other)).join().unwrap();
        assert_eq!(buffers.lock().buffers.len(), 1);
    }

    #[test]
    fn what_outlives_its_group_stays_whole() {
        let buffers = Buffers::default();
        let mut buffer = buffers.take(5000);
        buffer.resize(5000, 7);
        let shared = buffers.share(buffer);
        drop(buffers);
        assert_eq!(shared, vec![7; 5000]);
    }
}
