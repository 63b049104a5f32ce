//! Short messages while large ones go to the same peer: how long the slowest of 8 B there and back take.

use std::path::Path;

use corewire::{Memory, Selector, Wait};

use super::super::prelude::*;
use super::{End, TAG};

/// Bytes of a large message, and how many go to the peer in a round.
const LARGE_BYTES: usize = 64 << 20;
const COUNT: usize = 2;
/// Short ones without a large one beside.
const QUIET: usize = 300;
/// Bytes of a large message that may lie before a short one.
const CHUNK_BYTES: f64 = 65_536.0;

const OF_LARGE: u64 = 77;
/// The first byte of a short message: the last one of a round.
const LAST: u8 = 9;

/// The side that sends the large ones, and asks.
pub(super) fn lead(directory: &Path, rounds: u64, report: &mut Report) -> Result<(), Failure> {
    let mut end = End::dial(directory, "a", "behind", Wait::Spin)?;
    let mut memory: Vec<Memory> = (0..COUNT).map(|_| vec![7; LARGE_BYTES].into()).collect();
    let blocks = alternate(rounds, |_| {
        let quiet = times(QUIET, || end.ask(8))?;
        let start = Instant::now();
        let other = end.other.ok_or_else(|| Failure::other("nobody is there"))?;
        let mut sends = Vec::new();
        for memory in std::mem::take(&mut memory) {
            sends.push(end.endpoint.isend(other, OF_LARGE, memory)?);
        }
        let mut behind = Vec::new();
        while let Some(send) = sends.first() {
            match end.endpoint.test(*send)? {
                Some(done) => {
                    done.result?;
                    memory.push(done.memory);
                    sends.remove(0);
                }
                None => behind.extend(times(1, || end.ask(8))?),
            }
        }
        let took_us = start.elapsed().as_secs_f64() * 1e6;
        end.send(TAG, &[LAST; 8])?;
        end.receive(TAG, 8)?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let chunk_us = took_us * CHUNK_BYTES / (COUNT * LARGE_BYTES) as f64;
        Ok::<_, Failure>([
            percentile(&quiet, 0.5),
            percentile(&behind, 0.5),
            percentile(&behind, 0.99),
            chunk_us,
        ])
    })?;
    let words = "8 B there and back to a peer to which nothing else goes";
    report.figure("before_large_us", words, blocks.median(0), "us");
    let words = "while messages of 64 MiB go to it";
    report.figure("behind_large_us", words, blocks.median(1), "us");
    report.figure("behind_large_p99_us", "99 of 100 of them", blocks.median(2), "us");
    report.figure("large_chunk_us", "64 KiB of the large ones", blocks.median(3), "us");
    report.ratios("behind_large_p99_ratio", "ratio of these two", &blocks.ratios(2, 3));
    Ok(())
}

fn times(count: usize, mut trip: impl FnMut() -> Result<(), Failure>) -> Result<Vec<f64>, Failure> {
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        trip()?;
        all.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(all)
}

/// The side that receives, and answers.
pub(super) struct Follower(End);

impl Follower {
    pub(super) fn create(directory: &Path) -> Result<Self, Failure> {
        Ok(Self(End::create(directory, "b", "behind", Wait::Spin)?))
    }

    pub(super) fn follow(mut self, rounds: u64) -> Result<(), Failure> {
        let mut memory: Vec<Memory> = (0..COUNT).map(|_| vec![0; LARGE_BYTES].into()).collect();
        for _ in all(rounds) {
            let mut receives = Vec::new();
            for memory in std::mem::take(&mut memory) {
                receives.push(self.0.endpoint.ireceive(Selector::tag(OF_LARGE), memory)?);
            }
            while self.0.buffer[0] != LAST {
                self.0.answer(8)?;
            }
            self.0.buffer[0] = 0;
            for receive in receives {
                let done = self.0.endpoint.wait(receive)?;
                done.result?;
                memory.push(done.memory);
            }
        }
        Ok(())
    }
}
