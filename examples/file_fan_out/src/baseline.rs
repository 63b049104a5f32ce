//! The plain copy that is the baseline of the channel.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Numbers of buffers that are tried.
const BUFFERS: [usize; 5] = [2, 8, 32, 128, 256];
/// Maximum size of all buffers on one side together.
const TOTAL_BYTES_MAX: usize = 64 << 20;
/// How long each number of buffers is tried at a time.
const BLOCK: Duration = Duration::from_millis(2);
/// Minimum number of bytes that are copied between two reads of the clock.
const LOOK_BYTES: usize = 1 << 20;

/// Buffers to copy from and to.
pub(crate) struct Copies {
    source: Vec<u8>,
    target: Vec<u8>,
    bytes: usize,
}

impl Copies {
    /// Allocates buffers of `bytes` bytes, but of at most 32 MiB, each.
    pub(crate) fn new(bytes: usize) -> Self {
        let bytes = bytes.clamp(1, TOTAL_BYTES_MAX / 2);
        let total = bytes * BUFFERS[BUFFERS.len() - 1].min(TOTAL_BYTES_MAX / bytes);
        Self { source: vec![1; total], target: vec![2; total], bytes }
    }

    /// Measures the present copy speed of one core, in GB/s: the best over all numbers of buffers.
    pub(crate) fn gb_per_s(&mut self) -> f64 {
        let count_max = self.source.len() / self.bytes;
        let counts = BUFFERS.into_iter().filter(|&count| count <= count_max);
        counts.map(|count| self.block(count)).fold(0.0, f64::max)
    }

    fn block(&mut self, count: usize) -> f64 {
        let total = count * self.bytes;
        let sweeps = (LOOK_BYTES / total).max(1);
        let mut copied = 0usize;
        let start = Instant::now();
        while start.elapsed() < BLOCK {
            for _ in 0..sweeps {
                let sources = self.source[..total].chunks_exact(self.bytes);
                let targets = self.target[..total].chunks_exact_mut(self.bytes);
                for (target, source) in targets.zip(sources) {
                    target.copy_from_slice(black_box(source));
                    black_box(target);
                }
            }
            copied += sweeps * total;
        }
        copied as f64 / start.elapsed().as_secs_f64() / 1e9
    }
}
