//! Whether a receiver's messages come faster with head starts: found out by trying it.
//!
//! A sender that streams is up to twice as fast if its receiver lets it get ahead. One that waits for an answer after
//! some messages may be slower by the time that the receiver lets pass. What a stream is cannot be seen, but measured: a
//! receiver compares stretches of many messages with and without head starts, and goes on in the faster way.

/// Messages of a stretch: several head starts long, and short beside the time for which a result is used.
const STRETCH: u64 = 32_768;
/// Stretches between two trials.
const STRETCHES_PER_TRIAL: u32 = 64;

/// Which way is used, and how fast it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trial {
    /// Whether head starts are given, outside of trials.
    gives: bool,
    /// This stretch is a trial of the other way.
    is_trial: bool,
    /// Stretches until the next trial.
    left: u32,
    /// No stretch has begun.
    is_new: bool,
    /// The number of the stretch's first message, and when it came, later by what is left out.
    from: u64,
    since_ns: u64,
    /// Time of a message in the last stretch that was no trial, in picoseconds.
    usual_ps: u64,
}

impl Trial {
    pub(crate) const fn new() -> Self {
        Self {
            gives: true,
            is_trial: false,
            left: 1,
            is_new: true,
            from: 0,
            since_ns: 0,
            usual_ps: 0,
        }
    }

    /// Whether a head start may be given now.
    #[inline]
    pub(crate) const fn gives(&self) -> bool {
        self.gives != self.is_trial
    }

    /// Records that the next message is number `next`. To be called in each wait.
    #[inline]
    pub(crate) fn note(&mut self, next: u64, now_ns: impl FnOnce() -> u64) {
        // One that skips to the newest message may go back.
        if next.wrapping_sub(self.from) >= STRETCH {
            self.end_stretch(next, now_ns());
        }
    }

    /// Records that the receiver has slept, or another thread has run in its place, for so long: no way of receiving is
    /// the slower for that.
    pub(crate) const fn leave_out(&mut self, time_ns: u64) {
        self.since_ns = self.since_ns.saturating_add(time_ns);
    }

    #[cold]
    fn end_stretch(&mut self, next: u64, now_ns: u64) {
        let count = next.wrapping_sub(self.from);
        let each_ps = now_ns.saturating_sub(self.since_ns).saturating_mul(1000) / count;
        let is_first = self.is_new;
        (self.from, self.since_ns, self.is_new) = (next, now_ns, false);
        if is_first {
            return;
        }
        if self.is_trial {
            self.gives ^= each_ps < self.usual_ps;
            self.is_trial = false;
            self.left = STRETCHES_PER_TRIAL;
            return;
        }
        self.usual_ps = each_ps;
        self.left -= 1;
        self.is_trial = self.left == 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets so many stretches pass, whose messages take `with_ns` each with head starts and `without_ns` without. Returns
    /// how many had head starts.
    fn pass(trial: &mut Trial, at: &mut (u64, u64), stretches: u32, ns: (u64, u64)) -> u32 {
        let mut given = 0;
        for _ in 0..stretches {
            let gives = trial.gives();
            given += u32::from(gives);
            at.0 += STRETCH;
            at.1 += STRETCH * if gives { ns.0 } else { ns.1 };
            trial.note(at.0, || at.1);
        }
        given
    }

    // Keeps P257.
    #[test]
    fn the_faster_way_is_used_but_for_trials() {
        let (mut trial, mut at) = (Trial::new(), (0, 1));
        let all = 10 * STRETCHES_PER_TRIAL;
        let few = all / STRETCHES_PER_TRIAL + 2;
        assert!(pass(&mut trial, &mut at, all, (4, 10)) >= all - few, "a stream");
        let given = pass(&mut trial, &mut at, all, (25, 12));
        assert!(given <= STRETCHES_PER_TRIAL + few, "it waits for answers now: {given}");
        let given = pass(&mut trial, &mut at, all, (4, 10));
        assert!(given >= all - STRETCHES_PER_TRIAL - few, "a stream again: {given}");
    }

    #[test]
    fn no_clock_is_read_before_a_stretch_ends() {
        let mut trial = Trial::new();
        trial.note(STRETCH - 1, || unreachable!("too few"));
        trial.note(STRETCH, || 1);
        trial.note(2 * STRETCH - 1, || unreachable!("too few"));
    }

    #[test]
    fn sleeps_do_not_count() {
        let (mut trial, mut at) = (Trial::new(), (0, 1));
        for stretch in 0..10 * STRETCHES_PER_TRIAL {
            pass(&mut trial, &mut at, 1, (4, 10));
            if stretch % 2 == 0 {
                at.1 += 1_000_000_000;
                trial.leave_out(1_000_000_000);
            }
            assert!(trial.gives, "stretch {stretch}");
        }
    }

    #[test]
    fn a_number_that_goes_back_is_no_harm() {
        let (mut trial, mut at) = (Trial::new(), (0, 1));
        pass(&mut trial, &mut at, 5, (4, 10));
        trial.note(0, || 1);
        trial.note(u64::MAX, || 0);
        trial.note(0, || u64::MAX);
    }
}
