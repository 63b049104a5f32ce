//! Which commands are decided of each member and each client, as the log says: a retry of one of them counts for nothing.
//!
//! A client's *session* begins with its first command, and ends with an entry that says so, [`END`], after its death. What
//! came late of it may be decided behind that: so the end itself is kept for [`ENDS_KEPT`] entries. All members take the same
//! entries in the same order, and so know the same.

use std::collections::{BTreeMap, VecDeque};

use crate::member::Member;

/// The number of the entry that ends a client's session. It holds no command.
pub const END: u64 = u64::MAX;
/// What stands in the place of an ended session's last number: this bit, and the place of its end.
const ENDED: u64 = 1 << 63;
/// For so many entries the end of a session is kept. A member that still has a message of a client from before its death
/// has taken it by then: it takes as many messages as entries in a turn.
const ENDS_KEPT: u64 = 1 << 16;

/// The last command of each member and client.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Sessions {
    last: BTreeMap<Member, u64>,
    /// The ends that are kept, with their places, in order.
    ended: VecDeque<(u64, Member)>,
}

impl Sessions {
    /// As a snapshot has them.
    pub(crate) fn new(last: BTreeMap<Member, u64>) -> Self {
        let ends = last.iter().filter(|(member, last)| member.is_client() && **last >= ENDED);
        let mut ended: Vec<_> = ends.map(|(member, last)| (last - ENDED, *member)).collect();
        ended.sort_unstable();
        Self { last, ended: ended.into() }
    }

    pub(crate) fn last(&self) -> &BTreeMap<Member, u64> {
        &self.last
    }

    /// The number of the last command of a member, or of a client whose session has not ended; 0 if there is none.
    pub(crate) fn last_of(&self, member: Member) -> u64 {
        let last = self.last.get(&member).copied().unwrap_or(0);
        if member.is_client() && last >= ENDED { 0 } else { last }
    }

    /// Whether a client's session has ended.
    pub(crate) fn has_ended(&self, client: Member) -> bool {
        self.last.get(&client).is_some_and(|last| *last >= ENDED)
    }

    /// Clients whose sessions have not ended.
    pub(crate) fn open(&self) -> impl Iterator<Item = Member> + '_ {
        let clients = self.last.range(Member::client_of_life(0)..);
        clients.filter(|(_, last)| **last < ENDED).map(|(member, _)| *member)
    }

    /// The entry with this number of this member is at this place. Whether it counts: it is no end of a session, and no
    /// command that was decided before.
    pub(crate) fn take(&mut self, place: u64, from: Member, number: u64) -> bool {
        while let Some((_, client)) =
            self.ended.front().filter(|(ended, _)| *ended + ENDS_KEPT <= place)
        {
            self.last.remove(client);
            self.ended.pop_front();
        }
        if !from.is_client() {
            let last = self.last.entry(from).or_default();
            *last = number.max(*last);
            return true;
        }
        match self.last.get_mut(&from) {
            Some(last) if *last >= ENDED => false,
            Some(last) if number == END => {
                *last = ENDED | place;
                self.ended.push_back((place, from));
                false
            }
            Some(last) if number <= *last => false,
            None if number == END => false,
            _ => {
                self.last.insert(from, number);
                true
            }
        }
    }

    /// Of a group that is founded anew: the members of the one before have ended, and its clients may live.
    pub(crate) fn forget_members(&mut self) {
        self.last.retain(|member, _| member.is_client());
    }

    /// Whether the leader gives this command of a client a place: it is the next one, or the end of a session.
    pub(crate) fn may_place(last: Option<u64>, number: u64) -> bool {
        match last {
            Some(last) if last >= ENDED => false,
            Some(_) if number == END => true,
            _ => number != END && number == last.unwrap_or(0) + 1,
        }
    }

    /// What a leader keeps in mind of an end that has a place.
    pub(crate) const PLACED_END: u64 = ENDED;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_counts_each_command_once_until_long_after_its_end() {
        let client = Member::client_of_life(7);
        let mut sessions = Sessions::default();
        let takes =
            [(1, true), (1, false), (2, true), (END, false), (1, false), (3, false), (END, false)];
        for (place, (number, counts)) in (0..).zip(takes) {
            assert_eq!(sessions.take(place, client, number), counts, "{place}: {number}");
        }
        assert_eq!((sessions.last_of(client), sessions.open().count()), (0, 0));
        // A snapshot says the same.
        assert_eq!(Sessions::new(sessions.last.clone()), sessions);
        // Far behind, nothing is left of it.
        let member = Member { place: 1, life: 1 };
        assert!(sessions.take(3 + ENDS_KEPT, member, 1));
        assert_eq!(sessions.last().len(), 1);
        sessions.take(4 + ENDS_KEPT, client, 1);
        sessions.forget_members();
        assert_eq!(sessions.open().collect::<Vec<_>>(), [client]);
    }

    #[test]
    fn a_leader_places_the_next_command_or_the_end_of_an_open_session() {
        let placed = Sessions::PLACED_END;
        for (last, number, may) in [
            (None, 1, true),
            (None, 2, false),
            (None, END, false),
            (Some(3), 4, true),
            (Some(3), 3, false),
            (Some(3), END, true),
            (Some(placed), 1, false),
            (Some(placed), END, false),
        ] {
            assert_eq!(Sessions::may_place(last, number), may, "{last:?}, {number}");
        }
    }
}
