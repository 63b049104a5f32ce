//! The part of the log that a member keeps.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::member::Member;

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

/// What stands for the entries before a place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Snapshot<C> {
    /// The first entry that it does not stand for.
    pub next: u64,
    /// The last command of each member among those that it stands for.
    pub last: BTreeMap<Member, u64>,
    /// What the program has made of them.
    pub state: C,
}

/// Entries in their order, behind a snapshot that stands for those before.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Kept<C> {
    snapshot: Option<Snapshot<C>>,
    entries: VecDeque<Entry<C>>,
    /// Of each member the last command that was decided.
    last: BTreeMap<Member, u64>,
}

impl<C> Default for Kept<C> {
    fn default() -> Self {
        Self { snapshot: None, entries: VecDeque::new(), last: BTreeMap::new() }
    }
}

impl<C: Clone> Kept<C> {
    /// What an earlier group of the same name has decided. None of its members lives, so their commands need no numbers.
    pub(crate) fn new(snapshot: Option<Snapshot<C>>, entries: Vec<Entry<C>>) -> Self {
        let snapshot = snapshot.map(|snapshot| Snapshot { last: BTreeMap::new(), ..snapshot });
        Self { snapshot, entries: entries.into(), last: BTreeMap::new() }
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

    pub(crate) fn last(&self) -> &BTreeMap<Member, u64> {
        &self.last
    }

    pub(crate) fn push(&mut self, entry: Entry<C>) {
        let last = self.last.entry(entry.from).or_default();
        *last = entry.number.max(*last);
        self.entries.push_back(entry);
    }

    /// Puts a snapshot in place of all entries before `next`. False if there is one for more already, or if they are not
    /// all decided.
    pub(crate) fn truncate(&mut self, next: u64, state: C) -> bool {
        if next <= self.first() || next > self.next() {
            return false;
        }
        let count = usize::try_from(next - self.first()).unwrap_or(usize::MAX);
        let mut last = self.snapshot.take().map(|snapshot| snapshot.last).unwrap_or_default();
        for entry in self.entries.drain(..count) {
            let found = last.entry(entry.from).or_default();
            *found = entry.number.max(*found);
        }
        self.snapshot = Some(Snapshot { next, last, state });
        true
    }

    /// Takes another member's snapshot, which stands for more than what is here.
    pub(crate) fn replace(&mut self, snapshot: Snapshot<C>) {
        self.entries.clear();
        self.last = snapshot.last.clone();
        self.snapshot = Some(snapshot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(kept.last()[&from], 5);
        assert_eq!(kept.part(4, 10).len(), 1);

        let mut other = Kept::default();
        other.replace(snapshot.clone());
        assert_eq!((other.first(), other.next()), (3, 3));
    }
}
