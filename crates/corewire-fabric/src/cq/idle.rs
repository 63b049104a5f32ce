//! What a read does that finds nothing.
//!
//! | ranks | a read that finds nothing |
//! |---|---|
//! | at most as many as processors | returns; each 1,000th such read yields, and the next one, too, if something else ran meanwhile |
//! | more | yields, unless the MPI does that itself |
//!
//! MPICH 5 looks once and yields, which costs more than to look again: the first read after one that found something looks
//! 300 times there, while a receive is posted and there are enough processors.

use std::time::{Duration, Instant};

use crate::host::{self, Mpi};

/// Empty reads from one pause to the next.
const READS: u32 = 1000;
/// Looks of one read.
const LOOKS: u32 = 300;
/// The ranks are counted again after so many pauses of 1,000 reads.
const PAUSES: u32 = 16;
/// If a yield takes longer, something else ran.
const YIELD: Duration = Duration::from_micros(5);

/// How often reads have found nothing, and what follows from that.
pub(super) struct Idle {
    /// Empty reads in a row.
    empty: u32,
    /// The number at which something is due.
    due: u32,
    /// Looks of the first read after one that found something.
    looks: u32,
    /// Pauses since the ranks were counted, weighted: `READS` of them are enough.
    uncounted: u32,
    is_crowded: bool,
    mpi: Mpi,
}

impl Idle {
    pub(super) fn new(mpi: Mpi) -> Self {
        let looks = if mpi.looks_once() { LOOKS } else { 1 };
        Self { empty: 0, due: READS, looks, uncounted: READS, is_crowded: false, mpi }
    }

    /// How often a read looks.
    #[inline(always)]
    pub(super) fn looks(&self) -> u32 {
        if self.empty == 0 { self.looks } else { 1 }
    }

    /// A read has found something.
    #[inline(always)]
    pub(super) fn found(&mut self) {
        self.empty = 0;
    }

    /// A read has found nothing. True if something is due.
    #[inline(always)]
    pub(super) fn found_nothing(&mut self) -> bool {
        self.empty += 1;
        self.empty >= self.due
    }

    /// Yields, by a call that says how long that took, and counts the ranks from time to time.
    #[cold]
    pub(super) fn pause(
        &mut self,
        ranks: impl FnOnce() -> usize,
        yields: impl FnOnce() -> Duration,
    ) {
        self.uncounted += if self.is_crowded { 1 } else { READS.div_ceil(PAUSES) };
        if self.uncounted >= READS {
            self.uncounted = 0;
            self.is_crowded = ranks() > host::processors();
            let is_looking = self.mpi.looks_once() && !self.is_crowded;
            self.looks = if is_looking { LOOKS } else { 1 };
        }
        let yields_itself = self.is_crowded && self.mpi.yields_itself();
        let has_others = !yields_itself && yields() > YIELD;
        self.due = if !yields_itself && (self.is_crowded || has_others) { 1 } else { READS + 1 };
        // Not 0: this is not the first one.
        self.empty = 1;
    }
}

/// Yields, and says how long that took.
pub(super) fn yields() -> Duration {
    let began = Instant::now();
    std::thread::yield_now();
    began.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(idle: &mut Idle, reads: u32, ranks: usize) -> u32 {
        let mut count = 0;
        for _ in 0..reads {
            if idle.found_nothing() {
                count += 1;
                idle.pause(|| ranks, || Duration::ZERO);
            }
        }
        count
    }

    #[test]
    fn a_thousand_reads_pass_before_a_pause() {
        let mut idle = Idle::new(Mpi::Mpich(4));
        assert_eq!(pauses(&mut idle, READS - 1, 1), 0);
        assert_eq!(pauses(&mut idle, 5, 1), 1);
        idle.found();
        assert_eq!(pauses(&mut idle, READS - 1, 1), 0);
    }

    // Programs that test for messages between pieces of work pay for each read.
    #[test]
    fn most_reads_of_a_long_wait_only_look() {
        let mut idle = Idle::new(Mpi::Mpich(4));
        let (mut counted, mut paused) = (0, 0);
        for _ in 0..100 * READS {
            if idle.found_nothing() {
                paused += 1;
                let count = || {
                    counted += 1;
                    1
                };
                idle.pause(count, || Duration::ZERO);
            }
        }
        assert!(paused <= 101 && counted <= 10, "{paused} pauses, {counted} counts");
    }

    #[test]
    fn reads_go_on_yielding_as_long_as_something_else_runs() {
        let mut idle = Idle::new(Mpi::Mpich(4));
        pauses(&mut idle, READS - 1, 1);
        for took in [2 * YIELD, 2 * YIELD, Duration::ZERO] {
            assert!(idle.found_nothing());
            idle.pause(|| 1, || took);
        }
        assert_eq!(pauses(&mut idle, READS - 1, 1), 0);
    }

    #[test]
    fn ranks_without_a_processor_pause_at_once() {
        let many = host::processors() + 1;
        let mut idle = Idle::new(Mpi::Mpich(4));
        pauses(&mut idle, READS, many);
        idle.found();
        assert_eq!(pauses(&mut idle, 5, many), 5);
        // Counted again after a thousand pauses.
        pauses(&mut idle, READS, 1);
        idle.found();
        assert_eq!(pauses(&mut idle, READS - 1, 1), 0);
    }

    #[test]
    fn an_mpi_that_yields_itself_is_left_alone() {
        let many = host::processors() + 1;
        let mut idle = Idle::new(Mpi::Mpich(5));
        assert_eq!(idle.looks(), LOOKS);
        pauses(&mut idle, READS, many);
        idle.found();
        assert_eq!((idle.looks(), pauses(&mut idle, READS - 1, many)), (1, 0));
    }
}
