//! Who serves which name: each monitor tells its neighbours, and they tell theirs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::wire::NodeId;
use crate::wire::packet::Packet;

use super::circuit::LinkId;

/// Names that a node knows at most, of all monitors.
pub(crate) const NAMES_MAX: usize = 1 << 16;

/// What is known about a name at one monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Known {
    epoch: u64,
    is_served: bool,
}

/// All names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    /// Served by programs of this monitor.
    local: BTreeMap<Arc<str>, LinkId>,
    /// Served at any monitor, this one included.
    known: BTreeMap<Arc<str>, BTreeMap<NodeId, Known>>,
    /// When each monitor started: what it said before counts no more.
    started: BTreeMap<NodeId, u64>,
    count: usize,
}

impl Names {
    /// The link of the program that serves a name here.
    pub(crate) fn local(&self, name: &str) -> Option<LinkId> {
        self.local.get(name).copied()
    }

    /// Names that programs of this monitor serve, with their links.
    pub(crate) fn locals(&self) -> impl Iterator<Item = (&Arc<str>, LinkId)> {
        self.local.iter().map(|(name, link)| (name, *link))
    }

    pub(crate) fn serve(&mut self, name: &str, link: LinkId) {
        self.local.insert(name.into(), link);
    }

    pub(crate) fn withdraw(&mut self, name: &str) {
        self.local.remove(name);
    }

    /// The monitors where a name is served, in the order of their numbers.
    pub(crate) fn nodes_of(&self, name: &str) -> impl Iterator<Item = NodeId> {
        let known = self.known.get(name).into_iter().flatten();
        known.filter(|(_, known)| known.is_served).map(|(node, _)| *node)
    }

    /// A name, in memory that all circuits to it share.
    pub(crate) fn shared(&self, name: &str) -> Arc<str> {
        self.known.get_key_value(name).map_or_else(|| name.into(), |(name, _)| Arc::clone(name))
    }

    /// All names that are served anywhere.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Arc<str>, NodeId)> {
        self.known.iter().flat_map(|(name, at)| {
            at.iter().filter(|(_, known)| known.is_served).map(move |(node, _)| (name, *node))
        })
    }

    /// Takes note of a packet about a name. True if it was news.
    pub(crate) fn apply(&mut self, name: &str, node: NodeId, epoch: u64, is_served: bool) -> bool {
        let started = self.started.entry(node).or_default();
        if name.is_empty() {
            if epoch <= *started {
                return false;
            }
            *started = epoch;
            for at in self.known.values_mut() {
                if at.get(&node).is_some_and(|known| known.epoch < epoch) {
                    at.remove(&node);
                    self.count -= 1;
                }
            }
            self.known.retain(|_, at| !at.is_empty());
            return true;
        }
        if epoch < *started {
            return false;
        }
        if self.count >= NAMES_MAX {
            // Names that are served no longer make room.
            for at in self.known.values_mut() {
                at.retain(|_, known| known.is_served);
            }
            self.known.retain(|_, at| !at.is_empty());
            self.count = self.known.values().map(BTreeMap::len).sum();
        }
        let known = self.known.get(name).and_then(|at| at.get(&node));
        match known {
            Some(known) if known.epoch >= epoch => return false,
            Some(_) => {}
            None if self.count >= NAMES_MAX => return false,
            None => self.count += 1,
        }
        let known = Known { epoch, is_served };
        match self.known.get_mut(name) {
            Some(at) => _ = at.insert(node, known),
            None => _ = self.known.insert(name.into(), BTreeMap::from([(node, known)])),
        }
        true
    }

    /// Everything that a new neighbour must be told.
    pub(crate) fn packets(&self) -> impl Iterator<Item = Packet> {
        let started = self.started.iter().map(|(node, epoch)| Packet::Name {
            name: String::new(),
            node: *node,
            epoch: *epoch,
            is_served: false,
        });
        let known = self.known.iter().flat_map(|(name, at)| {
            at.iter().map(|(node, known)| Packet::Name {
                name: name.to_string(),
                node: *node,
                epoch: known.epoch,
                is_served: known.is_served,
            })
        });
        started.chain(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_word_counts() {
        let (mut names, node) = (Names::default(), NodeId::new(3).unwrap());
        assert!(names.apply("", node, 10, false));
        assert!(names.apply("calc", node, 12, true));
        assert!(!names.apply("calc", node, 11, false));
        assert_eq!(names.nodes_of("calc").collect::<Vec<_>>(), [node]);
        assert!(names.apply("calc", node, 13, false));
        assert_eq!(names.nodes_of("calc").count(), 0);
        assert!(names.apply("calc", node, 14, true));
        // It has started again, and serves nothing.
        assert!(names.apply("", node, 20, false));
        assert_eq!(names.nodes_of("calc").count(), 0);
        assert!(!names.apply("calc", node, 15, true));
    }

    #[test]
    fn a_new_neighbour_learns_everything() {
        let (mut names, mut other) = (Names::default(), Names::default());
        for number in 0..5 {
            let node = NodeId::new(number).unwrap();
            names.apply("", node, 1, false);
            names.apply("calc", node, 2 + number as u64, number % 2 == 0);
        }
        for packet in names.packets() {
            let Packet::Name { name, node, epoch, is_served } = packet else { unreachable!() };
            assert!(other.apply(&name, node, epoch, is_served));
        }
        assert!(other.all().eq(names.all()));
        assert_eq!(other.all().count(), 3);
    }
}
