//! Random messages between two processes, sent and received in every way: each comes whole, once and in order, and
//! nothing beside its target is written, nor there once its receive has ended.
//!
//! `COREWIRE_CASES` sets the number of cases (default: 60). A case that fails is made as small as possible;
//! `COREWIRE_CASE`, set to a case as it is printed then, repeats it.

use crate::roles::{Directory, Role};
use corewire::Domain;
use corewire_layout::rendezvous::STRETCHES_MAX;
use corewire_processes::exchange::plan::{
    Case, Message, Parts, Receiving, Room, Round, Sending, Side, Way,
};
use corewire_processes::exchange::{create, run};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

/// Lengths from which on something else happens: inline, a cell, `corewire_transfer::thresholds`, all cells.
const THRESHOLDS: [usize; 12] = [
    48,
    160,
    4096,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
];
const BYTES_MAX: usize = 64 << 20;

fn length() -> impl Strategy<Value = usize> {
    let near = |bytes: usize| bytes - 1..bytes + 2;
    prop_oneof![
        12 => 0..200usize,
        16 => (0..THRESHOLDS.len()).prop_flat_map(move |index| near(THRESHOLDS[index])),
        12 => (1..22u32).prop_flat_map(move |bits| near(1 << bits)),
        12 => 0..300_000usize,
        5 => 0..4_000_000usize,
        1 => 4_000_000..=BYTES_MAX,
    ]
}

fn parts() -> impl Strategy<Value = Parts> {
    let count = prop_oneof![
        12 => Just(1usize),
        6 => 2..12usize,
        2 => STRETCHES_MAX - 1..STRETCHES_MAX + 2,
        // Around the maximum of one system call.
        1 => 1023..1026usize,
        1 => 1..5000usize,
    ];
    (count, any::<u64>()).prop_map(|(count, seed)| Parts { count, seed })
}

fn sending() -> impl Strategy<Value = Sending> {
    prop_oneof![
        4 => Just(Sending::Call),
        3 => prop_oneof![0..30u64, 0..2000u64].prop_map(Sending::Timed),
        2 => Just(Sending::Try),
        2 => Just(Sending::Background),
        2 => Just(Sending::Lent),
    ]
}

fn receiving() -> impl Strategy<Value = Receiving> {
    let truncates = any::<bool>();
    prop_oneof![
        4 => Just(Receiving::Call),
        3 => prop_oneof![1..30u64, 1..2000u64].prop_map(Receiving::Timed),
        1 => Just(Receiving::Tries),
        1 => Just(Receiving::Probed),
        1 => Just(Receiving::Claimed),
        3 => truncates.prop_map(|truncates| Receiving::PostedBefore { truncates }),
        1 => truncates.prop_map(|truncates| Receiving::PostedAfter { truncates }),
        1 => truncates.prop_map(|truncates| Receiving::PostedClaimed { truncates }),
    ]
}

fn room() -> impl Strategy<Value = Room> {
    prop_oneof![
        3 => Just(Room::Exact),
        1 => (1..5000usize).prop_map(Room::More),
        1 => (0..1000usize).prop_map(Room::Less),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let target = prop_oneof![1 => Just(None), 2 => parts().prop_map(Some)];
    (length(), sending(), parts(), receiving(), target, room()).prop_map(
        |(bytes, sending, source, receiving, target, room)| Message {
            bytes,
            sending,
            source,
            receiving,
            target,
            room,
        },
    )
}

fn round() -> impl Strategy<Value = Round> {
    let messages = [vec(message(), 0..6), vec(message(), 0..6)];
    (messages, any::<bool>()).prop_map(|(messages, is_reversed)| Round { messages, is_reversed })
}

fn side() -> impl Strategy<Value = Side> {
    let way = prop_oneof![
        4 => Just(Way::BothSides),
        2 => Just(Way::Pull),
        1 => Just(Way::Cells),
    ];
    let grants = prop_oneof![Just(8usize << 20), Just(0), Just(64 << 10), Just(256 << 10)];
    let cells = prop_oneof![3 => Just((64, 16 << 10)), 1 => Just((16, 4096))];
    let budget = prop_oneof![3 => Just(16usize << 20), 1 => Just(256 << 10)];
    let refuses = prop_oneof![3 => Just(false), 1 => Just(true)];
    let in_place_up_to = prop_oneof![3 => Just(16usize << 10), 1 => Just(0), 1 => Just(1 << 20), 1 => Just(usize::MAX)];
    let heap = prop_oneof![2 => Just(16usize << 20), 1 => Just(0), 1 => Just(1 << 20)];
    let in_place = (grants, refuses, in_place_up_to, heap);
    (way, in_place, cells, budget, any::<bool>()).prop_map(
        |(rendezvous, (grants, refuses, in_place_up_to, heap), cells, budget, parks)| Side {
            rendezvous,
            grants,
            in_place_up_to,
            heap,
            refuses,
            cells,
            budget,
            parks,
        },
    )
}

fn case() -> impl Strategy<Value = Case> {
    ([side(), side()], vec(round(), 1..5)).prop_map(|(sides, rounds)| Case { sides, rounds })
}

/// The other process, and where both meet.
struct Couple {
    directory: Directory,
    domain: Domain,
    options: &'static [&'static str],
    child: Option<Role>,
}

impl Couple {
    fn new(test: &str, options: &'static [&'static str]) -> Self {
        let directory = Directory::new(test);
        let domain = Domain::open_at(directory.path()).unwrap();
        Self { directory, domain, options, child: None }
    }

    /// Runs a case on both sides.
    fn run(&mut self, case: &Case) -> Result<(), String> {
        let mut child = self
            .child
            .take()
            .unwrap_or_else(|| Role::start("exchange", &self.directory, "child", self.options));
        let endpoint = create(&self.domain, "parent", &case.sides[0])?;
        child.say(&serde_json::to_string(case).unwrap());
        let here = run(endpoint, "child", case, 0);
        let there = child.line().unwrap_or_else(|| "it has ended".into());
        if here.is_ok() && there == "good" {
            self.child = Some(child);
            return Ok(());
        }
        let text = serde_json::to_string(case).unwrap();
        let reason = format!("here: {here:?}; there: {there}\nCOREWIRE_CASE='{text}'");
        // With `--nocapture`: before the case is made smaller, which may take long.
        eprintln!("{reason}");
        Err(reason)
    }
}

fn every_case(test: &str, options: &'static [&'static str], share: u32) {
    let mut couple = Couple::new(test, options);
    if let Ok(text) = std::env::var("COREWIRE_CASE") {
        couple.run(&serde_json::from_str(&text).unwrap()).unwrap();
        return;
    }
    let given = std::env::var("COREWIRE_CASES").ok().and_then(|count| count.parse().ok());
    let cases = (given.unwrap_or(60u32) / share).max(1);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let config = Config { max_shrink_iters: 500, max_shrink_time: 180_000, ..config };
    let couple = std::cell::RefCell::new(couple);
    let outcome = TestRunner::new(config).run(&case(), |case| {
        let case = case.without_deadlocks();
        couple.borrow_mut().run(&case).map_err(TestCaseError::fail)
    });
    match outcome {
        // The reason has the smallest case, as text.
        Err(TestError::Fail(reason, _)) => panic!("{reason}"),
        other => other.unwrap(),
    }
}

// Keeps P110, P143.
#[test]
fn every_message_comes_whole_and_nothing_beside_it_is_written() {
    every_case("exchanges", &[], 1);
}

// Keeps P143.
#[test]
fn the_same_where_one_side_may_not_read() {
    // `process_vm_readv`, which fails with `EPERM`.
    every_case("exchanges-readv", READV_REFUSED, 4);
}

#[cfg(target_arch = "x86_64")]
const READV_REFUSED: &[&str] = &["refuse=310:1"];
#[cfg(target_arch = "aarch64")]
const READV_REFUSED: &[&str] = &["refuse=270:1"];
