//! The part of the log that a member keeps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::member::Member;
use crate::sessions::Sessions;

/// A command with who has asked for it. A member's own commands are numbered from 1.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry<C> {
    /// Who has asked for it.
    pub from: Member,
    /// Which of its commands it is.
    pub number: u64,
    /// What is decided.
    pub command: C,
}

impl<C> Entry<C> {
    pub(crate) fn map<D>(self, to: &mut impl FnMut(C) -> D) -> Entry<D> {
        Entry { from: self.from, number: self.number, command: to(self.command) }
    }
}

/// Commands of one member that follow each other, or one of a client. They go together, and are decided together, at places
/// that follow each other.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Batch<C> {
    /// Who has asked for them.
    pub from: Member,
    /// Which of its commands the first one is.
    pub first: u64,
    /// At least one.
    pub commands: Vec<C>,
}

impl<C> Batch<C> {
    pub(crate) fn one(entry: Entry<C>) -> Self {
        Self { from: entry.from, first: entry.number, commands: vec![entry.command] }
    }

    pub(crate) fn map<D>(self, to: &mut impl FnMut(C) -> D) -> Batch<D> {
        let Self { from, first, commands } = self;
        Batch { from, first, commands: commands.into_iter().map(to).collect() }
    }

    pub(crate) fn len(&self) -> u64 {
        self.commands.len() as u64
    }

    /// The number of the last one.
    pub(crate) fn last(&self) -> u64 {
        self.first.saturating_add(self.len().saturating_sub(1))
    }

    /// The commands as entries.
    pub(crate) fn entries(self) -> impl Iterator<Item = Entry<C>> {
        let Self { from, first, commands } = self;
        (first..=u64::MAX).zip(commands).map(move |(number, command)| Entry {
            from,
            number,
            command,
        })
    }
}

/// What stands for the entries before a place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Snapshot<C> {
    /// The first entry that it does not stand for.
    pub next: u64,
    /// The last command of each member and client among those that it stands for; of a client whose session has ended, where.
    pub last: BTreeMap<Member, u64>,
    /// What the program has made of them.
    pub state: C,
}

impl<C> Snapshot<C> {
    pub(crate) fn map<D>(self, to: &mut impl FnMut(C) -> D) -> Snapshot<D> {
        Snapshot { next: self.next, last: self.last, state: to(self.state) }
    }
}

/// Entries in their order, behind a snapshot that stands for those before.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Kept<C> {
    snapshot: Option<Snapshot<C>>,
    entries: VecDeque<Entry<C>>,
    /// Which commands are decided.
    sessions: Sessions,
    /// Entries that count for nothing: ends of sessions, and commands that are decided already.
    void: BTreeSet<u64>,
}

impl<C> Default for Kept<C> {
    fn default() -> Self {
        let (sessions, void) = (Sessions::default(), BTreeSet::new());
        Self { snapshot: None, entries: VecDeque::new(), sessions, void }
    }
}

impl<C: Clone> Kept<C> {
    /// What an earlier group of the same name has decided. None of its members lives, so their commands need no numbers;
    /// its clients may.
    pub(crate) fn new(snapshot: Option<Snapshot<C>>, entries: Vec<Entry<C>>) -> Self {
        let mut kept = Self::default();
        if let Some(snapshot) = snapshot {
            kept.replace(snapshot);
        }
        entries.into_iter().for_each(|entry| kept.push(entry));
        kept.sessions.forget_members();
        if let Some(snapshot) = &mut kept.snapshot {
            snapshot.last.retain(|member, _| member.is_client());
        }
        kept
    }

    /// The place of the first entry that is kept.
    pub(crate) fn first(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.next)
    }

    /// The place behind the last entry.
    pub(crate) fn next(&self) -> u64 {
        self.first() + self.entries.len() as u64
    }

    pub(crate) fn get(&self, place: u64) -> Option<&Entry<C>> {
        let at = place.checked_sub(self.first())?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// Up to so many entries from this place on.
    pub(crate) fn part(&self, place: u64, count: usize) -> Vec<Entry<C>> {
        let at = usize::try_from(place.saturating_sub(self.first())).unwrap_or(usize::MAX);
        self.entries.iter().skip(at).take(count).cloned().collect()
    }

    pub(crate) fn snapshot(&self) -> Option<&Snapshot<C>> {
        self.snapshot.as_ref()
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Whether the entry at a place counts for nothing.
    pub(crate) fn is_void(&self, place: u64) -> bool {
        self.void.contains(&place)
    }

    /// Where a command was decided, if its entry is kept.
    pub(crate) fn place_of(&self, from: Member, number: u64) -> Option<u64> {
        let is_it = |entry: &Entry<C>| entry.from == from && entry.number == number;
        let at = self.entries.iter().rposition(is_it)? as u64;
        // The first of them counts.
        let place = self.first() + at;
        match self.is_void(place) {
            false => Some(place),
            true => self.entries.iter().position(is_it).map(|at| self.first() + at as u64),
        }
    }

    pub(crate) fn push(&mut self, entry: Entry<C>) {
        let place = self.next();
        if !self.sessions.take(place, entry.from, entry.number) {
            self.void.insert(place);
        }
        self.entries.push_back(entry);
    }

    /// Like [`push`](Self::push), for all commands of a batch.
    pub(crate) fn push_all(&mut self, batch: Batch<C>) {
        if batch.from.is_client() {
            return batch.entries().for_each(|entry| self.push(entry));
        }
        self.sessions.take(self.next(), batch.from, batch.last());
        self.entries.extend(batch.entries());
    }

    /// Puts a snapshot in place of all entries before `next`. False if there is one for more already, or if they are not
    /// all decided.
    pub(crate) fn truncate(&mut self, next: u64, state: C) -> bool {
        if next <= self.first() || next > self.next() {
            return false;
        }
        let count = usize::try_from(next - self.first()).unwrap_or(usize::MAX);
        let first = self.first();
        let last = self.snapshot.take().map(|snapshot| snapshot.last).unwrap_or_default();
        let mut sessions = Sessions::new(last);
        let mut entries = (first..).zip(self.entries.drain(..count)).peekable();
        while let Some((place, entry)) = entries.next() {
            // A member's numbers grow: the last one of a row counts.
            let next = entries.peek().map(|(_, next)| next.from);
            if entry.from.is_client() || next != Some(entry.from) {
                sessions.take(place, entry.from, entry.number);
            }
        }
        drop(entries);
        self.void = self.void.split_off(&next);
        self.snapshot = Some(Snapshot { next, last: sessions.last().clone(), state });
        true
    }

    /// Takes another member's snapshot, which stands for more than what is here.
    pub(crate) fn replace(&mut self, snapshot: Snapshot<C>) {
        self.entries.clear();
        self.void.clear();
        self.sessions = Sessions::new(snapshot.last.clone());
        self.snapshot = Some(snapshot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_kept_as_its_commands() {
        let from = Member { place: 3, life: 0 };
        let mut kept = Kept::default();
        kept.push_all(Batch { from, first: 5, commands: vec![15, 16, 17u64] });
        let found = kept.entries.iter().map(|entry| (entry.number, entry.command));
        assert_eq!(found.collect::<Vec<_>>(), [(5, 15), (6, 16), (7, 17)]);
        assert_eq!(kept.sessions().last_of(from), 7);
        // Those of a client count one by one, each once.
        let client = Member::client_of_life(1);
        for first in [1, 1, 2] {
            kept.push_all(Batch { from: client, first, commands: vec![first] });
        }
        assert_eq!([3, 4, 5].map(|place| kept.is_void(place)), [false, true, false]);
    }

    #[test]
    fn a_snapshot_stands_for_the_entries_before_it() {
        let from = Member { place: 3, life: 0 };
        let mut kept = Kept::default();
        for number in 1..=5u64 {
            kept.push(Entry { from, number, command: number });
        }
        assert!(!kept.truncate(6, 0) && !kept.truncate(0, 0));
        assert!(kept.truncate(3, 100));
        assert_eq!((kept.first(), kept.next()), (3, 5));
        assert_eq!(kept.get(2), None);
        assert_eq!(kept.get(3).map(|entry| entry.number), Some(4));
        assert!(!kept.truncate(2, 0), "it stands for less");
        let snapshot = kept.snapshot().unwrap();
        assert_eq!((snapshot.next, snapshot.last[&from], snapshot.state), (3, 3, 100));
        assert_eq!(kept.sessions().last_of(from), 5);
        assert_eq!(kept.part(4, 10).len(), 1);

        let mut other = Kept::default();
        other.replace(snapshot.clone());
        assert_eq!((other.first(), other.next()), (3, 3));
    }
}
