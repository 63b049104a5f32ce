//! What peers grant this endpoint, and it them: notices, and room in the transport. How much: [`grants`](crate::grants).

use corewire_layout::grants::{grant_number, grant_parts};
use corewire_layout::rendezvous::{Notice, Verb};

use super::Peers;
use super::row::{GrantedHere, Link};
use crate::grants::{Change, Grants};
use crate::rendezvous::NoticeBytes;
use crate::transport::Transport;

impl<T: Transport> Peers<T> {
    pub(crate) fn set_grants(&mut self, grants: Grants) {
        self.grants = grants;
    }

    // As a receiver.

    /// A receive has got a message of the peer of `row` in memory of its own, copied: the next ones need not be.
    #[cold]
    pub(crate) fn grant_first(&mut self, row: u32) {
        let can_have = self.grants.total > 0 && !self.grants.has(row);
        if can_have && self.rows[row as usize].gone.is_none() && self.transport.start_granting(row)
        {
            let changes = self.grants.want(row, 1);
            self.send_grants(changes);
        }
    }

    /// Whether a message that was copied should make this endpoint grant its sender something.
    #[inline]
    pub(crate) fn may_grant(&self, row: u32) -> bool {
        self.grants.total > 0 && !self.grants.has(row)
    }

    /// A receive into memory of its own has copied a message of the peer of `row`.
    pub(crate) fn note_copied(&mut self, row: u32) {
        if self.may_grant(row) {
            self.grant_first(row);
        }
    }

    fn send_grants(&mut self, changes: Vec<Change>) {
        for Change { row, limit, serial } in changes {
            let number = grant_number(self.grants.most(), self.grants.refuses, serial);
            self.notify(row, number, Verb::Grant, limit);
        }
    }

    /// The peer of `row` has gone: others may have what it had.
    pub(super) fn end_grants_of(&mut self, row: u32) {
        self.ungranted.retain(|&(other, _)| other != row);
        if self.grants.total > 0 {
            let changes = self.grants.gone(row);
            self.send_grants(changes);
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
                // A number that no Grant has is as good as an old one.
                let serial = u16::try_from(number).unwrap_or_default();
                let changes = self.grants.kept(row, serial, notice.offset);
                self.send_grants(changes);
            }
        }
    }

    // As a sender.

    fn set_grant(&mut self, row: u32, number: u64, limit: u64) {
        let (most, refuses, serial) = grant_parts(number);
        let entry = &mut self.rows[row as usize];
        if entry.gone.is_some() {
            return;
        }
        let before = std::mem::replace(
            &mut entry.grant,
            GrantedHere { limit, most, refuses, serial, is_asked: false, kept: None },
        );
        self.transport.set_grant(row, limit, refuses);
        if limit < before.limit {
            self.rows[row as usize].grant.is_asked = before.is_asked;
            self.send_kept(row);
        }
        self.has_news = true;
    }

    /// Tells the peer of `row`, which grants less than before, what this endpoint keeps.
    fn send_kept(&mut self, row: u32) {
        let kept = self.transport.spent(row);
        let grant = &mut self.rows[row as usize].grant;
        let kept = kept.max(grant.limit);
        let is_over = kept == grant.limit;
        let was_told = grant.kept == Some(kept);
        grant.kept = (!is_over).then_some(kept);
        if !was_told {
            // Only the last one matters.
            let is_other =
                |(_, bytes): &(u64, NoticeBytes)| bytes.first() != Some(&(Verb::Kept as u8));
            self.rows[row as usize].notices.retain(is_other);
            let serial = self.rows[row as usize].grant.serial;
            self.notify(row, serial.into(), Verb::Kept, kept);
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
                self.send_grants(changes);
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
            self.send_kept(row);
        }
    }

    /// Asks the peer of `row` for a larger grant, if a message did not fit in what it grants. Not while a call is about
    /// to send the next fragment of a message.
    #[inline]
    pub(super) fn ask_for_grant(&mut self, row: u32) {
        if let Some(bytes) = self.transport.take_shortage(row) {
            self.want_grant(row, bytes);
        }
    }

    /// The peer of `row` is asked for a larger grant, if a message of `bytes` bytes needs it and the peer may grant it.
    pub(crate) fn want_grant(&mut self, row: u32, bytes: u64) {
        let Some(entry) = self.rows.get_mut(row as usize) else { return };
        let grant = &mut entry.grant;
        let may_grow = grant.most == 0 || grant.limit < grant.most;
        if entry.gone.is_none() && entry.link == Link::Linked && may_grow && !grant.is_asked {
            grant.is_asked = true;
            self.notify(row, 0, Verb::Want, bytes);
        }
    }

    /// What the peer of `row` grants this endpoint now, and the most that it may ever grant; 0 if it has granted
    /// nothing yet.
    pub(crate) fn granted(&self, row: u32) -> (u64, u64) {
        let grant = self.rows.get(row as usize).map(|entry| &entry.grant);
        grant.map_or((0, 0), |grant| (grant.limit, grant.most))
    }

    /// Whether a message that does not fit in what the peer of `row` grants is refused, or waits.
    pub(crate) fn refuses(&self, row: u32) -> bool {
        self.rows.get(row as usize).is_some_and(|entry| entry.grant.refuses)
    }
}
