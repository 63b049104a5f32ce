//! What a slow receiver may cost a sender that evicts. Nothing here touches shared memory.
//!
//! A receiver that holds the sender up is charged the time that the sender waits for it. It pays by reading: when it
//! has passed a *lap*, its charges are cleared. A lap is an eighth of the ring, or all messages that were there when
//! the lap began if they are fewer. A receiver that is charged more than `after_ns` in one lap is evicted. So a
//! receiver that moves a little at a time cannot hold the sender up for longer than a receiver that does not move at
//! all. A process that joins again continues with its charges, less a sixteenth of the time that has passed since.
//!
//! Receivers of another user ("guests") also share a *purse*, which does not depend on what they read or how often they
//! join again. It holds `after_ns`, is charged the time that the sender waits for any of them, and gets back a
//! sixteenth of the time that passes.

use corewire_layout::geometry::Geometry;

/// One part in this many of the time that passes is given back.
const REFUND_SHARE: u64 = 16;

/// Number of messages in a lap: an eighth of the ring.
pub(crate) fn lap(geometry: &Geometry) -> u64 {
    (geometry.slots() / 8).max(1)
}

/// What one receiver has cost in its lap.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stall {
    /// The cursor that ends the lap.
    lap_end: u64,
    clock: Charge,
}

impl Stall {
    /// The stall of a receiver that begins at message `first`, in the process of an earlier receiver that had this
    /// stall.
    pub(crate) fn inherited(&self, first: u64, lap: u64, now_ns: u64) -> Self {
        let mut clock = Charge { since_ns: 0, ..self.clock };
        clock.refund(now_ns);
        Self { lap_end: if clock.spent_ns == 0 { 0 } else { first + lap }, clock }
    }

    /// What it was charged.
    pub(crate) fn spent_ns(&self) -> u64 {
        self.clock.spent_ns
    }

    /// Charges the time that has passed until `now_ns`, while the sender waits. The receiver is at `cursor`, of `head`
    /// messages; `holds` says whether it holds the sender up from here on.
    pub(crate) fn charge(
        &mut self,
        now_ns: u64,
        (cursor, head): (u64, u64),
        lap: u64,
        holds: bool,
    ) {
        self.clock.charge(now_ns, holds);
        self.clock.refunded_at_ns = now_ns;
        if cursor >= self.lap_end || cursor >= head {
            self.lap_end = head.min(cursor.saturating_add(lap));
            self.clock.spent_ns = 0;
        }
    }

    /// The sender has room again.
    pub(crate) fn pause(&mut self, now_ns: u64) {
        self.clock.charge(now_ns, false);
        self.clock.refunded_at_ns = now_ns;
    }

    /// How long it may still hold the sender up.
    pub(crate) fn left_ns(&self, after_ns: u64) -> u64 {
        after_ns.saturating_sub(self.clock.spent_ns)
    }
}

/// What the guests of one user have cost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Purse {
    clock: Charge,
}

impl Purse {
    /// Charges the time that has passed until `now_ns`. `holds` says whether a guest of this user holds the sender up
    /// from here on.
    pub(crate) fn charge(&mut self, now_ns: u64, holds: bool) {
        self.clock.charge(now_ns, holds);
        self.clock.refund(now_ns);
    }

    /// How long these guests may still hold the sender up.
    pub(crate) fn left_ns(&self, after_ns: u64) -> u64 {
        after_ns.saturating_sub(self.clock.spent_ns)
    }
}

/// Time that is charged while a receiver holds the sender up.
#[derive(Debug, Clone, Copy, Default)]
struct Charge {
    spent_ns: u64,
    /// Charged up to here; 0 while no receiver holds the sender up.
    since_ns: u64,
    /// Time before this gives no further refund.
    refunded_at_ns: u64,
}

impl Charge {
    fn charge(&mut self, now_ns: u64, holds: bool) {
        if self.since_ns != 0 {
            let passed_ns = now_ns.saturating_sub(self.since_ns);
            self.spent_ns = self.spent_ns.saturating_add(passed_ns);
        }
        self.since_ns = if holds { now_ns.max(1) } else { 0 };
    }

    fn refund(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.refunded_at_ns);
        self.spent_ns = self.spent_ns.saturating_sub(passed_ns / REFUND_SHARE);
        self.refunded_at_ns = now_ns - passed_ns % REFUND_SHARE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const AFTER: u64 = 100 * MS;

    #[test]
    fn a_receiver_that_moves_a_little_is_charged_all_the_time() {
        let mut stall = Stall::default();
        let mut now_ns = MS;
        for cursor in 0..2 {
            stall.charge(now_ns, (cursor, 4096), 512, true);
            assert!(stall.left_ns(AFTER) > 0);
            now_ns += 90 * MS;
            stall.pause(now_ns);
        }
        assert_eq!(stall.left_ns(AFTER), 0);
    }

    #[test]
    fn a_lap_that_is_read_is_forgiven() {
        let mut stall = Stall::default();
        for round in 0..100 {
            let now_ns = MS + round * 90 * MS;
            stall.charge(now_ns, (round * 512, round * 512 + 4096), 512, true);
            assert!(stall.left_ns(AFTER) > 0, "round {round}");
            stall.pause(now_ns + 90 * MS);
        }
        // A lap is over when all messages that were there have been read, even if they are fewer.
        let mut stall = Stall::default();
        stall.charge(MS, (10, 14), 512, true);
        stall.charge(80 * MS, (14, 18), 512, true);
        assert_eq!(stall.left_ns(AFTER), AFTER);
    }

    #[test]
    fn joining_again_gives_nothing_back_but_the_time_away_does() {
        let mut stall = Stall::default();
        stall.charge(MS, (0, 4096), 512, true);
        stall.charge(81 * MS, (0, 4096), 512, true);
        let away = stall.inherited(4000, 512, (81 + 16 * 30) * MS);
        assert_eq!(away.left_ns(AFTER), 50 * MS);
        assert_eq!(stall.inherited(4000, 512, (81 + 16 * 80) * MS).left_ns(AFTER), AFTER);
        let mut next = stall.inherited(4000, 512, 81 * MS);
        next.charge(90 * MS, (4000, 8000), 512, true);
        assert_eq!(next.left_ns(AFTER), 20 * MS);
        next.charge(91 * MS, (4512, 8000), 512, true);
        assert_eq!(next.left_ns(AFTER), AFTER);
    }

    #[test]
    fn guests_of_one_user_get_a_sixteenth_of_the_time() {
        let mut purse = Purse::default();
        let (mut now_ns, mut held_ns) = (MS, 0);
        // The guests hold the sender up whenever they are allowed to. What they read does not matter.
        while now_ns < 30_000 * MS {
            purse.charge(now_ns, true);
            let left_ns = purse.left_ns(AFTER);
            purse.charge(now_ns + left_ns, false);
            held_ns += left_ns;
            now_ns += left_ns + MS;
        }
        assert!((held_ns / MS).abs_diff(30_000 / 16 + 100) < 200, "{} ms", held_ns / MS);
    }
}
