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

use std::collections::VecDeque;

use corewire_layout::grants::{grant_number, grant_parts};
use corewire_layout::rendezvous::{Notice, Verb};

use crate::engine::Engine;
use crate::transport::Transport;

/// The first grant of a peer, in bytes, if there is as much.
const FIRST_BYTES: u64 = 512 << 10;

/// What an endpoint grants its peers.
#[derive(Debug, Default)]
pub struct Grants {
    total: u64,
    /// What each peer can always have.
    share: u64,
    refuses: bool,
    /// What peers have beyond their shares.
    common: u64,
    /// By the peers' rows.
    rows: Vec<Grant>,
    /// Rows of peers that asked for more than there was, the first one first.
    wanting: VecDeque<u32>,
}

/// What a peer may send.
#[derive(Debug, Clone, Copy, Default)]
struct Grant {
    /// What it may use at most, in bytes, as far as is known.
    limit: u64,
    /// What it was granted last: less than the limit while it is asked to give back.
    granted: u64,
    /// Bytes that it needs beyond the limit.
    wants: u64,
}

/// A row and what is granted to it now.
type Change = (u32, u64);

impl Grants {
    /// `total` bytes for at most `peers_max` peers. If it `refuses`, a sender waits, or gets an error, when its grant is
    /// spent; otherwise its message is copied into cells, if there is room.
    #[must_use]
    pub fn new(total: u64, peers_max: u64, refuses: bool) -> Self {
        // More than any memory.
        let total = total.min(1 << 62);
        let share = total / 4 / peers_max.max(1);
        Self { total, share, refuses, ..Self::default() }
    }

    /// The most that one peer may ever have.
    fn most(&self) -> u64 {
        self.total - self.total / 4 + self.share
    }

    fn grant(&mut self, row: u32) -> &mut Grant {
        let index = row as usize;
        if self.rows.len() <= index {
            self.rows.resize(index + 1, Grant::default());
        }
        &mut self.rows[index]
    }

    fn has(&self, row: u32) -> bool {
        self.rows.get(row as usize).is_some_and(|grant| grant.limit > 0)
    }

    fn set_limit(&mut self, row: u32, limit: u64) {
        let share = self.share;
        let grant = self.grant(row);
        let before = std::mem::replace(&mut grant.limit, limit);
        let beyond = |bytes: u64| bytes.saturating_sub(share);
        self.common = self.common - beyond(before) + beyond(limit);
    }

    /// The peer of `row` needs `bytes` bytes more than it has.
    fn want(&mut self, row: u32, bytes: u64) -> Vec<Change> {
        let most = self.most();
        let grant = self.grant(row);
        grant.wants = bytes.min(most.saturating_sub(grant.limit));
        if grant.wants > 0 && !self.wanting.contains(&row) {
            self.wanting.push_back(row);
        }
        self.serve()
    }

    /// The peer of `row` has given back what is beyond `limit`.
    fn kept(&mut self, row: u32, limit: u64) -> Vec<Change> {
        let grant = *self.grant(row);
        // It has no say in getting more.
        self.set_limit(row, limit.clamp(grant.granted.min(grant.limit), grant.limit));
        self.serve()
    }

    /// The peer of `row` has gone.
    fn gone(&mut self, row: u32) -> Vec<Change> {
        self.set_limit(row, 0);
        *self.grant(row) = Grant::default();
        self.wanting.retain(|&other| other != row);
        self.serve()
    }

    /// Gives those that asked what there is, in their order. If that is too little, asks the one that has most to give back.
    fn serve(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut first_unserved = None;
        for row in std::mem::take(&mut self.wanting) {
            let Grant { limit, granted, wants } = *self.grant(row);
            let is_giving_back = granted < limit;
            if is_giving_back {
                self.wanting.push_back(row);
                continue;
            }
            // If an earlier one did not get all that it needs, nothing is left but this one's share.
            let left = self.total - self.total / 4 - self.common;
            let own = self.share.saturating_sub(limit);
            let possible = limit.saturating_add(own).saturating_add(left).min(self.most());
            let needed = limit.saturating_add(wants);
            let new = needed.max(limit.saturating_mul(2)).max(FIRST_BYTES).min(possible);
            if new > limit {
                self.set_limit(row, new);
                self.grant(row).granted = new;
                changes.push((row, new));
            }
            self.grant(row).wants = needed.saturating_sub(new);
            if needed > new {
                self.wanting.push_back(row);
                first_unserved = first_unserved.or(Some(row));
            }
        }
        changes.extend(first_unserved.and_then(|row| self.ask_back(row)));
        changes
    }

    /// Asks the peer that has most, besides that of `row`, to give back half, unless one was asked already.
    fn ask_back(&mut self, row: u32) -> Option<Change> {
        if self.rows.iter().any(|grant| grant.granted < grant.limit) {
            return None;
        }
        let others = (0u32..).zip(&self.rows).filter(|(other, _)| *other != row);
        let (other, grant) = others.max_by_key(|(_, grant)| grant.limit)?;
        let less = self.share.max(grant.limit / 2);
        if less >= grant.limit {
            return None;
        }
        self.grant(other).granted = less;
        Some((other, less))
    }
}

/// What a peer grants this endpoint.
#[derive(Debug, Default)]
pub(crate) struct GrantedHere {
    limit: u64,
    /// The most that it may ever grant.
    most: u64,
    refuses: bool,
    /// It was asked for more.
    is_asked: bool,
    /// It was told last that this endpoint keeps so much, which is more than it grants.
    kept: Option<u64>,
}

impl<T: Transport> Engine<T> {
    /// The same engine, which grants its peers this.
    #[must_use]
    pub fn with_grants(mut self, grants: Grants) -> Self {
        self.grants = grants;
        self
    }

    // As a receiver.

    /// A receive has got a message of the peer of `row` in memory of its own, copied: the next ones need not be.
    #[cold]
    pub(crate) fn grant_first(&mut self, row: u32) {
        let can_have = self.grants.total > 0 && !self.grants.has(row);
        if can_have && self.rows[row as usize].gone.is_none() && self.transport.start_granting(row)
        {
            let changes = self.grants.want(row, 1);
            self.tell_grants(changes);
        }
    }

    /// Whether a message that was copied should make this endpoint grant its sender something.
    #[inline]
    pub(crate) fn may_grant(&self, row: u32) -> bool {
        self.grants.total > 0 && !self.grants.has(row)
    }

    fn tell_grants(&mut self, changes: Vec<Change>) {
        let number = grant_number(self.grants.most(), self.grants.refuses);
        for (row, limit) in changes {
            self.notify(row, number, Verb::Grant, limit);
        }
    }

    /// The peer of `row` has gone: others may have what it had.
    pub(crate) fn end_grants_of(&mut self, row: u32) {
        self.ungranted.retain(|&(other, _)| other != row);
        if self.grants.total > 0 {
            let changes = self.grants.gone(row);
            self.tell_grants(changes);
        }
    }

    // Both.

    /// A notice about grants has arrived.
    pub(crate) fn handle_grant(&mut self, row: u32, number: u64, notice: Notice) {
        if self.rows[row as usize].gone.is_some() {
            return;
        }
        match notice.verb {
            Verb::Grant => self.set_grant(row, number, notice.offset),
            Verb::Want if self.grants.total > 0 => {
                self.ungranted.retain(|&(other, _)| other != row);
                self.ungranted.push((row, notice.offset.max(1)));
                self.step_grants();
            }
            Verb::Want => {}
            _ => {
                let changes = self.grants.kept(row, notice.offset);
                self.tell_grants(changes);
            }
        }
    }

    // As a sender.

    fn set_grant(&mut self, row: u32, number: u64, limit: u64) {
        let (most, refuses) = grant_parts(number);
        let entry = &mut self.rows[row as usize];
        if entry.gone.is_some() {
            return;
        }
        let before = std::mem::replace(
            &mut entry.grant,
            GrantedHere { limit, most, refuses, is_asked: false, kept: None },
        );
        self.transport.set_grant(row, limit, refuses);
        if limit < before.limit {
            self.rows[row as usize].grant.is_asked = before.is_asked;
            self.tell_kept(row);
        }
        self.has_news = true;
    }

    /// Tells the peer of `row`, which grants less than before, what this endpoint keeps.
    fn tell_kept(&mut self, row: u32) {
        let kept = self.transport.spent(row);
        let grant = &mut self.rows[row as usize].grant;
        let kept = kept.max(grant.limit);
        let is_over = kept == grant.limit;
        let was_told = grant.kept == Some(kept);
        grant.kept = (!is_over).then_some(kept);
        if !was_told {
            // Only the last one matters.
            let is_other = |(_, bytes): &(u64, Vec<u8>)| bytes.first() != Some(&(Verb::Kept as u8));
            self.rows[row as usize].notices.retain(is_other);
            self.notify(row, 0, Verb::Kept, kept);
        }
        self.lowering.retain(|&other| other != row);
        if !is_over {
            self.lowering.push(row);
        }
        self.count_chores();
    }

    /// Grants peers that have asked for it something, unless messages of an earlier peer of their row are held still.
    fn step_grants(&mut self) {
        for (row, bytes) in std::mem::take(&mut self.ungranted) {
            if self.transport.start_granting(row) {
                let changes = self.grants.want(row, bytes);
                self.tell_grants(changes);
            } else {
                self.ungranted.push((row, bytes));
            }
        }
        self.count_chores();
    }

    /// Grants what could not be granted before, and gives back what has been released of grants that were lowered.
    pub(crate) fn step_lowering(&mut self) {
        if !self.ungranted.is_empty() {
            self.step_grants();
        }
        for row in self.lowering.clone() {
            self.tell_kept(row);
        }
    }

    /// Asks the peer of `row` for a larger grant, if a message did not fit in what it grants. Not while a call is about to
    /// send the next fragment of a message.
    #[inline]
    pub(crate) fn ask_for_grant(&mut self, row: u32) {
        if let Some(bytes) = self.transport.take_shortage(row) {
            self.want_grant(row, bytes);
        }
    }

    /// The peer of `row` is asked for a larger grant, if a message of `bytes` bytes needs it and the peer may grant it.
    pub fn want_grant(&mut self, row: u32, bytes: u64) {
        let Some(entry) = self.rows.get_mut(row as usize) else { return };
        let grant = &mut entry.grant;
        let may_grow = grant.most == 0 || grant.limit < grant.most;
        if entry.gone.is_none() && may_grow && !grant.is_asked {
            grant.is_asked = true;
            self.notify(row, 0, Verb::Want, bytes);
        }
    }

    /// What the peer of `row` grants this endpoint now, and the most that it may ever grant; 0 if it has granted nothing yet.
    #[must_use]
    pub fn granted(&self, row: u32) -> (u64, u64) {
        let grant = self.rows.get(row as usize).map(|entry| &entry.grant);
        grant.map_or((0, 0), |grant| (grant.limit, grant.most))
    }

    /// Whether a message that does not fit in what the peer of `row` grants is refused, or waits.
    #[must_use]
    pub fn refuses(&self, row: u32) -> bool {
        self.rows.get(row as usize).is_some_and(|entry| entry.grant.refuses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_gets_more_as_it_needs_it_up_to_its_most() {
        let mut grants = Grants::new(8 << 20, 4, false);
        assert_eq!(grants.want(0, 1), [(0, FIRST_BYTES)]);
        assert_eq!(grants.want(0, 1), [(0, FIRST_BYTES * 2)]);
        assert_eq!(grants.want(0, u64::MAX), [(0, grants.most())]);
        assert_eq!(grants.want(0, 1), []);
        assert_eq!(grants.most(), (6 << 20) + (1 << 19));
    }

    #[test]
    fn the_others_have_their_shares_and_get_back_what_one_has_too_much() {
        let mut grants = Grants::new(1 << 20, 4, false);
        grants.want(0, u64::MAX);
        let most = grants.most();
        // Its share at once, and the rest when the first one has given something back.
        assert_eq!(grants.want(1, 1 << 18), [(1, 1 << 16), (0, most / 2)]);
        assert_eq!(grants.want(2, 1), [(2, 1 << 16)]);
        // It still uses some.
        let now = grants.kept(0, most - (1 << 17));
        assert_eq!(now, [(1, 3 << 16)]);
        assert_eq!(grants.kept(0, most / 2), [(1, 15 << 15)]);
    }

    #[test]
    fn what_is_promised_is_never_more_than_there_is() {
        let mut dice = 11u64;
        let mut draw = |below: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % below
        };
        let total = 1 << 20;
        let mut grants = Grants::new(total, 5, false);
        // What each peer believes, and what it has told.
        let mut limits = [0u64; 5];
        for _ in 0..20_000 {
            let row = u32::try_from(draw(5)).unwrap();
            let changes = match draw(8) {
                0 => {
                    limits[row as usize] = 0;
                    grants.gone(row)
                }
                1..5 => grants.want(row, 1 + draw(1 << 19)),
                _ => {
                    let granted = grants.grant(row).granted;
                    let kept = granted + draw(limits[row as usize].saturating_sub(granted) + 1);
                    limits[row as usize] = kept.min(limits[row as usize]);
                    grants.kept(row, kept)
                }
            };
            for (row, limit) in changes {
                limits[row as usize] = limits[row as usize].max(limit);
            }
            assert!(limits.iter().sum::<u64>() <= total, "{limits:?}");
            assert!(grants.rows.iter().map(|grant| grant.limit).sum::<u64>() <= total);
        }
    }
}
