//! Memory of messages, used again.
//!
//! Entries are kept for a while, and then given up many at a time. An allocator that gives such memory back to the kernel,
//! as glibc's does with the end of its heap, makes the next messages pay a page fault for each page: a log of entries of 10
//! or 100 KiB then takes twice as long.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;

/// Shorter buffers are the allocator's business.
const BUFFER_BYTES_MIN: usize = 1 << 10;
/// What is free at most: more than a log keeps by default before a snapshot takes its place.
const FREE_BYTES_MAX: usize = 4 << 20;

/// Buffers that are free. A clone has the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<Free>>);

#[derive(Debug, Default)]
struct Free {
    /// The one that was used last is the last one.
    buffers: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Buffers {
    /// A buffer with room for about so many bytes, and arbitrary content.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |buffer: &Vec<u8>| (bytes..=most_for(bytes)).contains(&buffer.capacity());
        let found = free.buffers.iter().rposition(fits).and_then(|at| free.buffers.remove(at));
        let Some(buffer) = found else { return Vec::with_capacity(bytes) };
        free.bytes -= buffer.capacity();
        buffer
    }

    /// A buffer is free.
    pub(crate) fn put(&self, buffer: Vec<u8>) {
        put(&self.0, buffer);
    }

    /// The content of a buffer, to be shared and kept. The buffer is free when nobody has a part of it any more.
    pub(crate) fn share(&self, buffer: Vec<u8>) -> Bytes {
        let bytes = buffer.len();
        if buffer.capacity() < BUFFER_BYTES_MIN {
            return Bytes::from(buffer);
        }
        if buffer.capacity() > most_for(bytes) {
            // It may be kept for long, and so would what it leaves empty.
            let exact = Bytes::copy_from_slice(&buffer);
            self.put(buffer);
            return exact;
        }
        Bytes::from_owner(Lent { buffer, home: Arc::downgrade(&self.0) })
    }
}

/// The room of a buffer that is used for so many bytes, at most.
const fn most_for(bytes: usize) -> usize {
    bytes.saturating_mul(2)
}

fn put(free: &Mutex<Free>, buffer: Vec<u8>) {
    let bytes = buffer.capacity();
    if !(BUFFER_BYTES_MIN..=FREE_BYTES_MAX).contains(&bytes) {
        return;
    }
    let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
    // Those that nobody has wanted for longest go.
    while free.bytes + bytes > FREE_BYTES_MAX
        && let Some(oldest) = free.buffers.pop_front()
    {
        free.bytes -= oldest.capacity();
    }
    free.bytes += bytes;
    free.buffers.push_back(buffer);
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
        if let Some(free) = self.home.upgrade() {
            put(&free, std::mem::take(&mut self.buffer));
        }
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
        for (capacity, bytes) in [(16_384, 3), (16_384, 8191), (16_384, 8192), (64, 3)] {
            let mut buffer = Vec::with_capacity(capacity);
            buffer.resize(bytes, 7);
            let memory = buffer.as_ptr();
            let shared = buffers.share(buffer);
            assert_eq!(shared, vec![7; bytes]);
            let is_kept = shared.as_ptr() == memory;
            assert_eq!(is_kept, capacity < BUFFER_BYTES_MIN || capacity <= 2 * bytes, "{capacity}");
        }
        buffers.put(Vec::with_capacity(1 << 20));
        assert!(buffers.take(100).capacity() <= 200);
    }

    #[test]
    fn what_is_free_is_little() {
        let buffers = Buffers::default();
        let large = FREE_BYTES_MAX / 4;
        for _ in 0..5 {
            buffers.put(Vec::with_capacity(large));
        }
        let free = || {
            let free = buffers.0.lock().unwrap();
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
    fn what_outlives_its_group_stays_whole() {
        let buffers = Buffers::default();
        let mut buffer = buffers.take(5000);
        buffer.resize(5000, 7);
        let shared = buffers.share(buffer);
        drop(buffers);
        assert_eq!(shared, vec![7; 5000]);
    }
}
