//! Messages of every length, from any list of parts to any other, with every mechanism.

use corewire_transfer::mechanisms::driver::DriverError;
use corewire_transfer::mechanisms::{PairLink, Peer, Role};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::roles::{MECHANISMS, Move, Other, Task, meet, start, with};

struct Couple {
    other: Other,
    peer: Peer,
    link: PairLink,
}

impl Couple {
    fn new() -> Self {
        let other = start("mover");
        let (peer, link) = meet(&other.courier);
        Self { other, peer, link }
    }

    /// Moves one message in the given direction. The target has `spare` bytes more.
    fn move_one(
        &self,
        mechanism: u8,
        role: Role,
        seed: u64,
        source: &[usize],
        target: &[usize],
    ) -> Result<u64, DriverError> {
        let (here, there) = match role {
            Role::Source => (source, target),
            Role::Target => (target, source),
        };
        let own = Task { mechanism, role, seed, steps: 0, parts: here.to_vec() };
        let far = Task { role: role.other(), parts: there.to_vec(), ..own.clone() };
        let Other { courier, .. } = &self.other;
        courier.give(&far.to_bytes(), &[]).unwrap();
        let moved = with(Move { peer: &self.peer, courier }, &own, &self.peer, &self.link);
        let bytes = moved
            .unwrap_or_else(|reason| panic!("{}: {reason}", MECHANISMS[usize::from(mechanism)]))?;
        assert_eq!(bytes, source.iter().sum::<usize>() as u64);
        assert_eq!(own.bytes(), here.iter().sum::<usize>());
        Ok(bytes)
    }
}

/// Cuts `total` bytes into parts, at random places; and adds empty parts.
fn parts(total: usize, count_max: usize) -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0..=total, 0..count_max).prop_map(move |mut cuts| {
        cuts.sort_unstable();
        cuts.push(total);
        let mut from = 0;
        cuts.iter().map(|&to| to - std::mem::replace(&mut from, to)).collect()
    })
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..300, 0usize..70_000, 0usize..1_000_000, 1_000_000usize..5_000_000]
}

/// The parts of a source, and those of a target that is as long or longer.
fn lists() -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
    (length(), prop_oneof![Just(0usize), 1usize..5000])
        .prop_flat_map(|(total, spare)| (parts(total, 20), parts(total + spare, 20)))
}

fn every_list(mechanism: u8) {
    let couple = Couple::new();
    let is_possible = |&role: &Role| {
        let task = Task { mechanism, role, seed: 0, steps: 0, parts: Vec::new() };
        task.is_possible(&couple.other.courier, &couple.peer, &couple.link)
    };
    let roles: Vec<Role> = [Role::Source, Role::Target].into_iter().filter(is_possible).collect();
    if roles.is_empty() {
        return;
    }
    let config = Config { cases: 40, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let case = (lists(), any::<u64>(), any::<bool>());
    let outcome = runner.run(&case, |((source, target), seed, is_source)| {
        let role = roles[usize::from(is_source) % roles.len()];
        couple.move_one(mechanism, role, seed, &source, &target).unwrap();
        Ok(())
    });
    outcome.unwrap();
    for role in roles.iter().copied() {
        // Nothing, in no part or in several.
        couple.move_one(mechanism, role, 1, &[], &[]).unwrap();
        couple.move_one(mechanism, role, 1, &[0, 0], &[0]).unwrap();
        // As many parts as are possible.
        couple.move_one(mechanism, role, 2, &[3; 1024], &[3 * 1024]).unwrap();
        couple.move_one(mechanism, role, 3, &[3 * 1024], &[3; 1024]).unwrap();
        // The longest.
        couple.move_one(mechanism, role, 4, &[64 << 20], &[32 << 20, 32 << 20]).unwrap();
    }
}

#[test]
fn shared_buffer() {
    every_list(0);
}

#[test]
fn message_queue() {
    every_list(1);
}

#[test]
fn kernel_get() {
    every_list(2);
}

#[test]
fn kernel_put() {
    every_list(3);
}

#[test]
fn both_sides() {
    every_list(4);
}

#[test]
fn ptrace() {
    every_list(5);
}

#[test]
fn mapped() {
    every_list(6);
}
