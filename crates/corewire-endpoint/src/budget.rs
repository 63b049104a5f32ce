//! How many bytes of messages an endpoint keeps before a receive asks for them.
//!
//! A quarter of the budget is divided among all the peers that there may be, so that each peer always has
//! its share; the rest is for all. A share that is smaller than one message, as in a small budget for many
//! peers, guarantees nothing. One peer has at most half of the whole.

/// What a message costs beside its bytes.
const OVERHEAD_BYTES: usize = 128;

/// What is kept of one peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// Messages.
    pub messages: u64,
    /// Their bytes, each message counted with 128 more.
    pub bytes: u64,
}

/// What an endpoint may keep, and what it keeps.
#[derive(Debug)]
pub struct Budget {
    bytes: u64,
    /// What each peer can always have.
    share: u64,
    /// By the peers' rows. What a departed peer left counts as its successor's.
    rows: Vec<Kept>,
    /// What peers have beyond their shares.
    common: u64,
}

impl Budget {
    /// `bytes` for at most `peers_max` peers.
    #[must_use]
    pub fn new(bytes: usize, peers_max: u64) -> Self {
        let bytes = bytes as u64;
        Self { bytes, share: bytes / 4 / peers_max.max(1), rows: Vec::new(), common: 0 }
    }

    /// The most that one peer may have.
    pub(crate) fn of_one_peer(&self) -> u64 {
        self.bytes / 2
    }

    pub(crate) fn kept(&self, row: u32) -> Kept {
        self.rows.get(row as usize).copied().unwrap_or_default()
    }

    /// Can a message of `total` bytes of the peer of `row` be kept?
    pub(crate) fn has_room(&self, row: u32, total: u64) -> bool {
        let before = self.kept(row).bytes;
        let after = before.saturating_add(cost(total));
        let beyond = |bytes: u64| bytes.saturating_sub(self.share);
        let common = (self.common - beyond(before)).saturating_add(beyond(after));
        after <= self.share || (after <= self.bytes / 2 && common <= self.bytes - self.bytes / 4)
    }

    /// The same while this endpoint waits in the send of a message of `blocked_bytes` bytes (0: it waits in none). One
    /// message of each peer that is no longer may be kept beyond the budget: one of two endpoints that send to each
    /// other must go on.
    pub(crate) fn may_keep(&self, row: u32, total: u64, blocked_bytes: u64) -> bool {
        let is_no_longer = blocked_bytes > 0 && total <= blocked_bytes;
        self.has_room(row, total) || (is_no_longer && self.is_within(row))
    }

    /// Whether what is kept of a peer is within the budget.
    fn is_within(&self, row: u32) -> bool {
        let kept = self.kept(row).bytes;
        let is_common_within = self.common <= self.bytes - self.bytes / 4;
        kept <= self.share || (kept <= self.bytes / 2 && is_common_within)
    }

    /// A message of `total` bytes is kept. One that was put back may cost more than there is.
    pub(crate) fn spend(&mut self, row: u32, total: u64) {
        self.change(row, |kept| {
            kept.messages += 1;
            kept.bytes = kept.bytes.saturating_add(cost(total));
        });
    }

    /// It is not kept any more.
    pub(crate) fn give_back(&mut self, row: u32, total: u64) {
        self.change(row, |kept| {
            kept.messages = kept.messages.saturating_sub(1);
            kept.bytes = kept.bytes.saturating_sub(cost(total));
        });
    }

    fn change(&mut self, row: u32, change: impl FnOnce(&mut Kept)) {
        let index = row as usize;
        if self.rows.len() <= index {
            self.rows.resize(index + 1, Kept::default());
        }
        let kept = &mut self.rows[index];
        let before = kept.bytes.saturating_sub(self.share);
        change(kept);
        self.common = self.common - before + kept.bytes.saturating_sub(self.share);
    }
}

/// What a message of `total` bytes costs.
pub(crate) fn cost(total: u64) -> u64 {
    total.saturating_add(OVERHEAD_BYTES as u64)
}

/// Bytes of requests that are kept beyond the budget while replies wait, besides one message: as many as the cells
/// of an endpoint hold that was built without options.
pub(crate) const DEFERRED_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    // Keeps P96.
    #[test]
    fn one_peer_leaves_every_other_its_share() {
        let mut budget = Budget::new(1 << 20, 256);
        let fill = |budget: &mut Budget, row| {
            let mut bytes = 0;
            while budget.has_room(row, 8) {
                budget.spend(row, 8);
                bytes += 136;
            }
            bytes
        };
        let first = fill(&mut budget, 0);
        assert!((500_000..=1 << 19).contains(&first), "{first}");
        let others: u64 = (1..256).map(|row| fill(&mut budget, row)).sum();
        assert!(first + others <= 1 << 20);
        // The last one still has its share: an eighth of a hundredth, seven messages.
        assert_eq!(budget.kept(255), Kept { messages: 7, bytes: 7 * 136 });
        for _ in 0..7 {
            budget.give_back(255, 8);
        }
        assert!(budget.has_room(255, 800) && !budget.has_room(255, u64::MAX));
    }

    #[test]
    fn one_message_of_each_peer_may_be_beyond_the_budget_while_a_send_waits() {
        let mut budget = Budget::new(10_000, 4);
        for row in 0..2 {
            budget.spend(row, 100);
            assert!(!budget.may_keep(row, 20_000, 19_999) && budget.may_keep(row, 20_000, 20_000));
            budget.spend(row, 20_000);
            assert!(!budget.may_keep(row, 20_000, 20_000));
        }
        assert!(!budget.may_keep(0, 0, 0) && !budget.has_room(0, 0));
        budget.give_back(0, 20_000);
        assert!(budget.may_keep(0, 20_000, 20_000));
    }

    #[test]
    fn what_is_given_back_can_be_spent_again() {
        let mut budget = Budget::new(10_000, 4);
        budget.spend(2, 4000);
        assert!(!budget.has_room(2, 4000) && budget.has_room(1, 3000));
        budget.give_back(2, 4000);
        assert!(budget.has_room(2, 4000));
        assert_eq!(budget.kept(2), Kept::default());
    }
}
