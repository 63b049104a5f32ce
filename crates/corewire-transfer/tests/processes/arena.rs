//! Memory with canaries around every part.

use std::ptr::NonNull;

use corewire_ring::message::{Memory, Sink};
use corewire_transfer::mechanisms::{Mechanism, RegisterError, Role};

const CANARY: u8 = 0xa5;
const CANARY_BYTES: usize = 64;
const UNTOUCHED: u8 = 0xc3;

/// Byte `at` of the message with this seed.
fn byte_of(seed: u64, at: usize) -> u8 {
    let mixed = (at as u64).wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_le_bytes()[7]
}

pub(crate) fn message(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| byte_of(seed, at)).collect()
}

/// Parts of these lengths, in one allocation.
pub(crate) struct Arena {
    at: NonNull<u8>,
    bytes: usize,
    parts: Vec<usize>,
}

impl Arena {
    fn new(parts: &[usize]) -> Self {
        let bytes = CANARY_BYTES + parts.iter().map(|part| part + CANARY_BYTES).sum::<usize>();
        let memory = vec![CANARY; bytes].into_boxed_slice();
        let at = NonNull::from(Box::leak(memory)).cast();
        Self { at, bytes, parts: parts.to_vec() }
    }

    fn pins(&self) -> Vec<(NonNull<u8>, usize)> {
        let mut at = CANARY_BYTES;
        let pin = |&bytes: &usize| {
            // SAFETY: inside the allocation.
            let part = unsafe { self.at.add(at) };
            at += bytes + CANARY_BYTES;
            (part, bytes)
        };
        self.parts.iter().map(pin).collect()
    }

    fn memory(&self) -> Memory {
        // SAFETY: it lives until the arena is dropped, after the memory; nothing else uses it meanwhile.
        unsafe { Memory::pinned_parts(&self.pins()) }
    }

    /// All of it. The mechanism has given the memory back.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the whole allocation.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes) }
    }

    /// Checks that the first bytes are those of the message, and that nothing else has changed.
    pub(crate) fn check(&self, seed: u64, message_bytes: usize) {
        let all = self.bytes();
        let (mut at, mut done) = (0, 0);
        for part in self.parts.iter().copied().chain([0]) {
            let end = all.len().min(at + CANARY_BYTES);
            assert!(all[at..end].iter().all(|byte| *byte == CANARY), "canary at {at}");
            at += CANARY_BYTES;
            for byte in all.get(at..at + part).unwrap_or_default() {
                let due = if done < message_bytes { byte_of(seed, done) } else { UNTOUCHED };
                assert_eq!(*byte, due, "byte {done} of {message_bytes}");
                done += 1;
            }
            at += part;
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let all = std::ptr::slice_from_raw_parts_mut(self.at.as_ptr(), self.bytes);
        // SAFETY: it was leaked from a box of this length.
        drop(unsafe { Box::from_raw(all) });
    }
}

/// Memory for one message in parts of these lengths: with the message at the source.
pub(crate) fn memory_for<M>(
    mechanism: &mut M,
    role: Role,
    seed: u64,
    parts: &[usize],
) -> Result<(Option<Arena>, M::Memory), RegisterError>
where
    M: Mechanism,
    M::Memory: From<Memory>,
{
    let total = parts.iter().sum();
    if role == Role::Source && M::NAME == "mapped memory" {
        let mut memory = mechanism.allocate(parts)?;
        memory.put(0, &message(seed, total));
        return Ok((None, memory));
    }
    let arena = Arena::new(parts);
    let mut memory = arena.memory();
    match role {
        Role::Source => memory.put(0, &message(seed, total)),
        Role::Target => memory.put(0, &vec![UNTOUCHED; total]),
    };
    Ok((Some(arena), memory.into()))
}
