//! What an endpoint's peers may send it without a receive: how many bytes of their own heaps each may fill with messages
//! that this endpoint has not released.
//!
//! A quarter of the total is divided among all the peers that there may be, so that each peer can always have its share;
//! the rest goes to peers that ask for more. If nothing is left, the peer that has most is asked to give back up to half
//! of it. It keeps what its messages still use, and tells what that is.
//!
//! ```text
//!   a receive takes a message of more than 160 bytes into memory of its own, or a sender asks (Want)
//!     -> Grant: as many bytes as before again, at least what was asked for, as far as there is something left
//!     -> else Grant to the peer that has most: half of what it has -> Kept -> Grant to the one that asked
//! ```
//!
//! Grants are promises, not memory: the memory is the senders'.
//! A sender has at most its heap, allocated in chunks of 64 KiB and kept. A receiver has 512 bytes for each peer and a
//! handle for each message.
//!
//! Each grant has a serial number, which the answer `Kept` repeats: an answer that crosses a newer grant is ignored. If
//! the other peer needs no more and the first one asks, it keeps all.
//!
//! Messages that are held stay readable when their sender leaves or dies; their memory goes when the last one is dropped.
//! The next peer of that row is granted something only then.

use std::collections::VecDeque;

use corewire_layout::grants::GRANT_BYTES_MAX;

/// The first grant of a peer, in bytes, if there is as much.
const FIRST_BYTES: u64 = 512 << 10;

/// What an endpoint grants its peers.
#[derive(Debug, Default)]
pub struct Grants {
    pub(crate) total: u64,
    /// What each peer can always have.
    pub(crate) share: u64,
    pub(crate) refuses: bool,
    /// What peers have beyond their shares.
    pub(crate) common: u64,
    /// By the peers' rows.
    pub(crate) rows: Vec<Grant>,
    /// Rows of peers that asked for more than there was, the first one first.
    pub(crate) wanting: VecDeque<u32>,
}

/// What a peer may send.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Grant {
    /// What it may use at most, in bytes, as far as is known.
    pub(crate) limit: u64,
    /// What it was granted last: less than the limit while it is asked to give back.
    pub(crate) granted: u64,
    /// Bytes that it needs beyond the limit.
    pub(crate) wants: u64,
    /// The number of the last `Grant` that it was sent.
    pub(crate) serial: u16,
}

impl Grant {
    /// It was asked to give back, and has not done so.
    fn is_giving_back(&self) -> bool {
        self.granted < self.limit
    }

    /// The peer of `row`, which this is for, is granted `limit` bytes.
    fn tell(&mut self, row: u32, limit: u64) -> Change {
        self.granted = limit;
        self.serial = self.serial.wrapping_add(1);
        Change { row, limit, serial: self.serial }
    }

    /// What the peer knows that it has.
    fn known(&self) -> u64 {
        self.granted.min(self.limit)
    }
}

/// What is granted to a row now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) row: u32,
    pub(crate) limit: u64,
    pub(crate) serial: u16,
}

impl Grants {
    /// `total` bytes for at most `peers_max` peers. If it `refuses`, a sender waits, or gets an error, when its grant is
    /// spent; otherwise its message is copied into cells, if there is room.
    #[must_use]
    pub fn new(total: u64, peers_max: u64, refuses: bool) -> Self {
        // More than any memory.
        let total = total.min(GRANT_BYTES_MAX);
        let share = total / 4 / peers_max.max(1);
        Self { total, share, refuses, ..Self::default() }
    }

    /// The most that one peer may ever have.
    pub(crate) fn most(&self) -> u64 {
        self.total - self.total / 4 + self.share
    }

    pub(crate) fn grant(&mut self, row: u32) -> &mut Grant {
        let index = row as usize;
        if self.rows.len() <= index {
            self.rows.resize(index + 1, Grant::default());
        }
        &mut self.rows[index]
    }

    pub(crate) fn has(&self, row: u32) -> bool {
        self.rows.get(row as usize).is_some_and(|grant| grant.limit > 0)
    }

    pub(crate) fn set_limit(&mut self, row: u32, limit: u64) {
        let share = self.share;
        let grant = self.grant(row);
        let before = std::mem::replace(&mut grant.limit, limit);
        let beyond = |bytes: u64| bytes.saturating_sub(share);
        self.common = self.common - beyond(before) + beyond(limit);
    }

    /// The peer of `row` needs `bytes` bytes more than it has.
    pub(crate) fn want(&mut self, row: u32, bytes: u64) -> Vec<Change> {
        let most = self.most();
        let grant = self.grant(row);
        // One that was asked to give back knows only of what it will have then.
        grant.wants = bytes.min(most.saturating_sub(grant.known()));
        if grant.wants > 0 && !self.wanting.contains(&row) {
            self.wanting.push_back(row);
        }
        self.serve()
    }

    /// The peer of `row` has given back what is beyond `limit`. It knew of the `Grant` with this number and of no later one:
    /// since then it may have used more.
    pub(crate) fn kept(&mut self, row: u32, serial: u16, limit: u64) -> Vec<Change> {
        let grant = *self.grant(row);
        if serial != grant.serial {
            return Vec::new();
        }
        // It has no say in getting more.
        self.set_limit(row, limit.clamp(grant.granted.min(grant.limit), grant.limit));
        self.serve()
    }

    /// The peer of `row` has gone.
    pub(crate) fn gone(&mut self, row: u32) -> Vec<Change> {
        self.set_limit(row, 0);
        *self.grant(row) = Grant::default();
        self.wanting.retain(|&other| other != row);
        self.serve()
    }

    /// Gives those that asked what there is, in their order. If that is too little, asks the one that has most to give back.
    /// What one was to give back it may keep, if it asks and the others have what they need.
    pub(crate) fn serve(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        let (mut first_unserved, mut giving_back) = (None, Vec::new());
        for row in std::mem::take(&mut self.wanting) {
            if self.grant(row).is_giving_back() {
                giving_back.push(row);
            } else if !self.serve_one(row, &mut changes) {
                first_unserved = first_unserved.or(Some(row));
            }
        }
        for row in giving_back {
            if first_unserved.is_some() {
                self.wanting.push_back(row);
            } else if !self.serve_one(row, &mut changes) {
                first_unserved = Some(row);
            }
        }
        changes.extend(first_unserved.and_then(|row| self.ask_back(row)));
        changes
    }

    /// Gives the peer of `row` what it asked for, as far as there is something left. False if that is too little: it goes on
    /// asking.
    pub(crate) fn serve_one(&mut self, row: u32, changes: &mut Vec<Change>) -> bool {
        let (most, share) = (self.most(), self.share);
        let grant = *self.grant(row);
        let (known, limit) = (grant.known(), grant.limit);
        // If an earlier one did not get all that it needs, nothing is left but this one's share.
        let left = self.total - self.total / 4 - self.common;
        let own = share.saturating_sub(limit);
        let possible = limit.saturating_add(own).saturating_add(left).min(most);
        let needed = limit.saturating_add(grant.wants).min(most);
        let new = needed.max(limit.saturating_mul(2)).max(FIRST_BYTES).min(possible);
        self.set_limit(row, new.max(limit));
        let grant = self.grant(row);
        let limit = grant.limit;
        grant.wants = needed.saturating_sub(limit);
        let is_served = grant.wants == 0;
        if limit > known {
            changes.push(grant.tell(row, limit));
        }
        if !is_served {
            self.wanting.push_back(row);
        }
        is_served
    }

    /// Asks the peer that has most, besides that of `row`, to give back half, unless one was asked already.
    pub(crate) fn ask_back(&mut self, row: u32) -> Option<Change> {
        if self.rows.iter().any(Grant::is_giving_back) {
            return None;
        }
        let others = (0u32..).zip(&self.rows).filter(|(other, _)| *other != row);
        let (other, grant) = others.max_by_key(|(_, grant)| grant.limit)?;
        let less = self.share.max(grant.limit / 2);
        if less >= grant.limit {
            return None;
        }
        Some(self.grant(other).tell(other, less))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows and limits.
    fn told(changes: Vec<Change>) -> Vec<(u32, u64)> {
        changes.into_iter().map(|change| (change.row, change.limit)).collect()
    }

    impl Grants {
        /// As `kept`, from a peer that knows what it was granted last.
        fn kept_now(&mut self, row: u32, limit: u64) -> Vec<Change> {
            let serial = self.grant(row).serial;
            self.kept(row, serial, limit)
        }
    }

    #[test]
    fn a_peer_gets_more_as_it_needs_it_up_to_its_most() {
        let mut grants = Grants::new(8 << 20, 4, false);
        assert_eq!(told(grants.want(0, 1)), [(0, FIRST_BYTES)]);
        assert_eq!(told(grants.want(0, 1)), [(0, FIRST_BYTES * 2)]);
        assert_eq!(told(grants.want(0, u64::MAX)), [(0, grants.most())]);
        assert_eq!(told(grants.want(0, 1)), []);
        assert_eq!(grants.most(), (6 << 20) + (1 << 19));
    }

    #[test]
    fn the_others_have_their_shares_and_get_back_what_one_has_too_much() {
        let mut grants = Grants::new(1 << 20, 4, false);
        grants.want(0, u64::MAX);
        let most = grants.most();
        // Its share at once, and the rest when the first one has given something back.
        assert_eq!(told(grants.want(1, 1 << 18)), [(1, 1 << 16), (0, most / 2)]);
        assert_eq!(told(grants.want(2, 1)), [(2, 1 << 16)]);
        // It still uses some.
        let now = grants.kept_now(0, most - (1 << 17));
        assert_eq!(told(now), [(1, 3 << 16)]);
        assert_eq!(told(grants.kept_now(0, most / 2)), [(1, 15 << 15)]);
    }

    #[test]
    fn one_that_is_asked_to_give_back_gets_all_once_nobody_else_needs_it() {
        let mut grants = Grants::new(1 << 20, 4, true);
        grants.want(0, u64::MAX);
        let most = grants.most();
        assert_eq!(told(grants.want(1, 1 << 18)), [(1, 1 << 16), (0, most / 2)]);
        // All that it may use is read still, so it needs more and can give nothing back.
        assert_eq!(told(grants.kept_now(0, most)), []);
        assert_eq!(told(grants.want(0, 1)), []);
        let serial = grants.grant(0).serial;
        assert_eq!(told(grants.gone(1)), [(0, most)]);
        // It says that before it knows of the last grant.
        grants.kept(0, serial, most / 2);
        assert_eq!(grants.grant(0).limit, most);
    }

    /// A peer: what it was granted last, what it uses of that, what is on the way between the two.
    #[derive(Debug, Default)]
    struct Sender {
        limit: u64,
        serial: u16,
        used: u64,
        is_asked: bool,
        kept: Option<u64>,
        changes: VecDeque<Change>,
        words: VecDeque<Word>,
    }

    #[derive(Debug)]
    enum Word {
        Want(u64),
        Kept(u16, u64),
    }

    impl Sender {
        /// Takes in a change, as the engine does.
        fn change(&mut self) {
            let Some(Change { limit, serial, .. }) = self.changes.pop_front() else { return };
            let is_less = limit < self.limit;
            self.is_asked &= is_less;
            (self.limit, self.serial, self.kept) = (limit, serial, None);
            if is_less {
                self.tell_kept();
            }
        }

        fn tell_kept(&mut self) {
            let kept = self.used.max(self.limit);
            if self.kept != Some(kept) {
                self.kept = Some(kept);
                self.words.push_back(Word::Kept(self.serial, kept));
            }
        }
    }

    fn hear(grants: &mut Grants, row: u32, word: &Word) -> Vec<Change> {
        match *word {
            Word::Want(bytes) => grants.want(row, bytes),
            Word::Kept(serial, limit) => grants.kept(row, serial, limit),
        }
    }

    // Keeps P131.
    #[test]
    fn no_more_is_promised_than_there_is_and_whoever_asks_is_answered_in_the_end() {
        let mut dice = 11u64;
        let mut draw = |below: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % below
        };
        let total = 1 << 20;
        for _ in 0..4000 {
            let mut grants = Grants::new(total, 4, true);
            let most = grants.most();
            let mut peers: [Sender; 4] = Default::default();
            for _ in 0..draw(120) {
                let row = u32::try_from(draw(4)).unwrap();
                let peer = &mut peers[row as usize];
                let changes = match draw(12) {
                    0 if draw(4) == 0 => {
                        *peer = Sender::default();
                        grants.gone(row)
                    }
                    1..5 => {
                        // A message: it fits, or more is wanted.
                        let bytes = 1 + draw(1 << 18);
                        if peer.used + bytes <= peer.limit {
                            peer.used += bytes;
                        } else if !peer.is_asked && (peer.limit == 0 || peer.limit < most) {
                            peer.is_asked = true;
                            peer.words.push_back(Word::Want(bytes));
                        }
                        Vec::new()
                    }
                    5 | 6 => {
                        peer.used -= draw(peer.used + 1);
                        if peer.kept.is_some() {
                            peer.tell_kept();
                        }
                        Vec::new()
                    }
                    7..9 => {
                        peer.change();
                        Vec::new()
                    }
                    _ => match peer.words.pop_front() {
                        Some(word) => hear(&mut grants, row, &word),
                        None => Vec::new(),
                    },
                };
                for change in changes {
                    peers[change.row as usize].changes.push_back(change);
                }
                let promised = peers.iter().map(|peer| {
                    let coming = peer.changes.iter().map(|change| change.limit).max();
                    peer.used.max(peer.limit).max(coming.unwrap_or_default())
                });
                assert!(promised.sum::<u64>() <= total, "{peers:?}");
                assert!(grants.rows.iter().map(|grant| grant.limit).sum::<u64>() <= total);
            }
            // The first one stays, and releases nothing.
            for row in 1..4 {
                peers[row as usize] = Sender::default();
                for change in grants.gone(row) {
                    peers[change.row as usize].changes.push_back(change);
                }
            }
            let peer = &mut peers[0];
            while !peer.changes.is_empty() || !peer.words.is_empty() {
                peer.change();
                if let Some(word) = peer.words.pop_front() {
                    peer.changes.extend(hear(&mut grants, 0, &word));
                }
            }
            assert!(!peer.is_asked || peer.limit == most, "no answer: {peer:?} {grants:?}");
        }
    }
}
