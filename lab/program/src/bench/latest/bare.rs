//! The bare sequence lock.

use corewire_published::yardstick::BareValue;
use corewire_ring::region::Region;

use super::super::prelude::*;
use super::{Reads, Writes};

fn words(options: &Options) -> usize {
    options.bytes.div_ceil(8)
}

pub(super) fn memory_bytes(options: &Options) -> usize {
    BareValue::bytes(words(options)).next_multiple_of(4096)
}

/// Either side.
pub(super) struct Value {
    shared: BareValue,
    words: Vec<u64>,
    bytes: Vec<u8>,
}

impl Value {
    pub(super) fn new(options: &Options, memory: &Region) -> Self {
        let words = words(options);
        let bytes = vec![0; options.bytes];
        Self { shared: BareValue::new(memory, words), words: vec![0; words], bytes }
    }
}

impl Writes for Value {
    #[inline(always)]
    fn set(&mut self, value: &[u8]) -> Result<(), Failure> {
        let (words, rest) = value.as_chunks::<8>();
        for (to, from) in self.words.iter_mut().zip(words) {
            *to = u64::from_le_bytes(*from);
        }
        if let Some(last) = self.words.last_mut().filter(|_| !rest.is_empty()) {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            *last = u64::from_le_bytes(bytes);
        }
        self.shared.set(&self.words);
        Ok(())
    }
}

impl Reads for Value {
    #[inline(always)]
    fn get<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, Failure> {
        self.shared.get(&mut self.words);
        for (to, from) in self.bytes.chunks_mut(8).zip(&self.words) {
            to.copy_from_slice(&from.to_le_bytes()[..to.len()]);
        }
        Ok(Some(read(&self.bytes)))
    }
}
