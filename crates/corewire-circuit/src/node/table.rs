//! Routing tables (Grest, section 3.9): which monitor comes next on the way to another one.

use std::collections::BTreeSet;

use crate::wire::packet::{Shape, Table, VIAS_MAX, Via};
use crate::wire::{NODES_MAX, NodeId};

/// Why a table is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// A monitor is twice in a ring or a tree.
    #[error("monitor {node} is in the table twice")]
    Twice {
        /// The monitor.
        node: NodeId,
    },
    /// A group has no monitor.
    #[error("a group of the tree has no monitor")]
    Empty,
    /// It has too many single routes.
    #[error("the table has {found} single routes: at most {VIAS_MAX} are possible")]
    Vias {
        /// How many.
        found: usize,
    },
    /// A single route leads from a monitor to itself.
    #[error("the route of monitor {from} to {to} leads through {via}")]
    Via {
        /// At this monitor.
        from: NodeId,
        /// To this one.
        to: NodeId,
        /// Through this one.
        via: NodeId,
    },
}

/// Numbers 0 to `count` - 1, as monitors; at most [`NODES_MAX`].
#[must_use]
pub fn nodes(count: usize) -> Vec<NodeId> {
    (0..count.min(NODES_MAX)).filter_map(NodeId::new).collect()
}

/// A ring of these monitors in this order.
#[must_use]
pub fn ring(nodes: Vec<NodeId>) -> Table {
    Table { version: 0, shape: Shape::Ring(nodes), vias: Vec::new() }
}

/// A fat tree of these monitors, in groups of `group_size` in their order. The last group may be smaller.
#[must_use]
pub fn fat_tree(nodes: &[NodeId], group_size: usize) -> Table {
    let groups = nodes.chunks(group_size.max(1)).map(<[_]>::to_vec).collect();
    Table { version: 0, shape: Shape::FatTree(groups), vias: Vec::new() }
}

/// Checks a table.
///
/// # Errors
/// [`TableError`].
pub fn check(table: &Table) -> Result<(), TableError> {
    let mut seen = BTreeSet::new();
    let mut once = |node: &NodeId| match seen.insert(*node) {
        true => Ok(()),
        false => Err(TableError::Twice { node: *node }),
    };
    match &table.shape {
        Shape::Direct => {}
        Shape::Ring(nodes) => nodes.iter().try_for_each(&mut once)?,
        Shape::FatTree(groups) => {
            if groups.iter().any(Vec::is_empty) {
                return Err(TableError::Empty);
            }
            groups.iter().flatten().try_for_each(&mut once)?;
        }
    }
    if table.vias.len() > VIAS_MAX {
        return Err(TableError::Vias { found: table.vias.len() });
    }
    match table.vias.iter().find(|via| via.from == via.via || via.from == via.to) {
        Some(&Via { from, to, via }) => Err(TableError::Via { from, to, via }),
        None => Ok(()),
    }
}

/// The monitor that comes next at `from` on the way to `to`. `None` if the table knows no way.
#[must_use]
pub fn next_hop(table: &Table, from: NodeId, to: NodeId) -> Option<NodeId> {
    let single = table.vias.iter().find(|via| via.from == from && via.to == to);
    if let Some(via) = single {
        return Some(via.via);
    }
    match &table.shape {
        Shape::Direct => Some(to),
        Shape::Ring(nodes) => {
            let place = nodes.iter().position(|node| *node == from)?;
            nodes.contains(&to).then_some(())?;
            nodes.get((place + 1) % nodes.len()).copied()
        }
        Shape::FatTree(groups) => {
            let group_of = |node| groups.iter().find(|group| group.contains(&node));
            let (own, there) = (group_of(from)?, group_of(to)?);
            let (leader, their_leader) = (*own.first()?, *there.first()?);
            if own.contains(&to) {
                Some(to)
            } else if from == leader {
                Some(their_leader)
            } else {
                Some(leader)
            }
        }
    }
}

/// Whether two monitors are joined by a link. Without an order: what one uses the other has, too.
#[must_use]
pub fn are_neighbours(table: &Table, one: NodeId, other: NodeId) -> bool {
    let joined = |from: NodeId, to: NodeId| match &table.shape {
        Shape::Direct => true,
        Shape::Ring(_) => next_hop_of_shape(table, from) == Some(to),
        Shape::FatTree(groups) => {
            let lead = |node| groups.iter().any(|group| group.first() == Some(&node));
            let together = |group: &Vec<NodeId>| group.contains(&from) && group.contains(&to);
            groups.iter().any(together) || lead(from) && lead(to)
        }
    };
    let pair =
        |via: &Via| (via.from, via.via) == (one, other) || (via.via, via.from) == (one, other);
    one != other && (joined(one, other) || joined(other, one) || table.vias.iter().any(pair))
}

/// Whether a monitor has a place in the table's shape. Every one has if each is joined with each.
#[must_use]
pub fn has_place(table: &Table, node: NodeId) -> bool {
    match &table.shape {
        Shape::Direct => true,
        Shape::Ring(nodes) => nodes.contains(&node),
        Shape::FatTree(groups) => groups.iter().any(|group| group.contains(&node)),
    }
}

fn next_hop_of_shape(table: &Table, from: NodeId) -> Option<NodeId> {
    let Shape::Ring(nodes) = &table.shape else { return None };
    let place = nodes.iter().position(|node| *node == from)?;
    nodes.get((place + 1) % nodes.len()).copied()
}

/// Whether `one` replaces `other`: it has a later version, or the same and another content, of which all monitors choose
/// the same one.
pub(crate) fn is_newer(one: &Table, other: &Table) -> bool {
    let order = |table: &Table| {
        (table.version, crate::wire::packet::Packet::Table(table.clone()).to_bytes())
    };
    order(one) > order(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: usize) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn way(table: &Table, from: usize, to: usize) -> Vec<usize> {
        let mut path = vec![from];
        while path.last() != Some(&to) {
            let here = node(*path.last().unwrap());
            let next = next_hop(table, here, node(to)).unwrap();
            assert!(are_neighbours(table, here, next), "{here} to {next}");
            path.push(next.number());
            assert!(path.len() < 300);
        }
        path
    }

    #[test]
    fn ways_are_those_of_the_thesis() {
        let direct = Table::default();
        assert_eq!(way(&direct, 0, 3), [0, 3]);
        let ring = ring(nodes(4));
        assert_eq!(way(&ring, 0, 3), [0, 1, 2, 3]);
        assert_eq!(way(&ring, 3, 1), [3, 0, 1]);
        assert!(!are_neighbours(&ring, node(0), node(2)));
        assert!(are_neighbours(&ring, node(0), node(3)));
        // Sockets of any size: seven monitors in groups of three.
        let tree = fat_tree(&nodes(7), 3);
        assert_eq!(way(&tree, 1, 2), [1, 2]);
        assert_eq!(way(&tree, 1, 5), [1, 0, 3, 5]);
        assert_eq!(way(&tree, 6, 2), [6, 0, 2]);
        assert!(!are_neighbours(&tree, node(1), node(4)));
        assert_eq!(next_hop(&tree, node(0), node(7)), None);
    }

    #[test]
    fn a_single_route_replaces_that_of_the_shape() {
        let mut ring = ring(nodes(4));
        ring.vias.push(Via { from: node(0), to: node(3), via: node(3) });
        assert_eq!(way(&ring, 0, 3), [0, 3]);
        assert_eq!(way(&ring, 0, 2), [0, 1, 2]);
        assert_eq!(check(&ring), Ok(()));
        ring.vias.push(Via { from: node(1), to: node(2), via: node(1) });
        assert!(matches!(check(&ring), Err(TableError::Via { .. })));
    }

    #[test]
    fn what_is_no_table_says_why() {
        let twice = ring(vec![node(0), node(1), node(0)]);
        assert_eq!(check(&twice), Err(TableError::Twice { node: node(0) }));
        let empty = Table { shape: Shape::FatTree(vec![vec![]]), ..Table::default() };
        assert_eq!(check(&empty), Err(TableError::Empty));
        let via = Via { from: node(0), to: node(2), via: node(1) };
        let many = Table { vias: vec![via; VIAS_MAX + 1], ..Table::default() };
        assert_eq!(check(&many), Err(TableError::Vias { found: VIAS_MAX + 1 }));
    }

    // Keeps P196.
    #[test]
    fn every_shape_joins_all_of_its_monitors() {
        for count in 1..20 {
            for table in
                (1..6).map(|size| fat_tree(&nodes(count), size)).chain([ring(nodes(count))])
            {
                check(&table).unwrap();
                for from in 0..count {
                    for to in 0..count {
                        way(&table, from, to);
                    }
                }
            }
        }
    }
}
