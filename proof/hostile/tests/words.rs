//! Hostile words: whatever a neighbour writes into its own memory, before or during a call, the
//! call ends soon and touches nothing else. `COREWIRE_HOSTILE_WORDS` sets the number of words
//! (default: 2 million). `COREWIRE_SEED` repeats a run. A process of its own: other tests count what their process has open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use corewire_hostile::receiver::site;
use corewire_hostile::{Random, Step, pairs, receiver, sender};
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::Policy;
use proptest::prelude::*;

const POLICIES: [Policy; 3] = [Policy::Block, Policy::Overwrite, Policy::Evict { after_ns: 2 }];

/// Slots, window, longest message, receivers: with and without large area and hint; and the
/// smallest.
const SIZES: [(u64, u64, u64, u64); 4] =
    [(8, 1024, 3000, 4), (64, 256, 64, 2), (16, 1024, 2000, 12), (2, 256, 33, 2)];

fn geometry((slots, window, message, receivers): (u64, u64, u64, u64)) -> Geometry {
    Geometry::new(slots, window, message, receivers).unwrap()
}

fn words() -> u64 {
    let given = std::env::var("COREWIRE_HOSTILE_WORDS").ok();
    given.map_or(2_000_000, |words| words.parse().expect("COREWIRE_HOSTILE_WORDS is a number"))
}

/// Every geometry combined with every policy.
fn channels() -> impl Iterator<Item = (Geometry, Policy)> {
    SIZES.into_iter().flat_map(|sizes| POLICIES.map(|policy| (geometry(sizes), policy)))
}

fn say(who: &str, words: u64, began: Instant, tally: &dyn std::fmt::Debug) {
    let seconds = began.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let millions = words as f64 / 1e6;
    println!("{who}: {millions} M words, {:.2} M/s, {tally:?}", millions / seconds);
}

// Keeps P35.
#[test]
fn a_receiver_bears_any_word_of_its_senders() {
    let mut random = Random::from_environment();
    let each = words() / 2 / 12;
    for (geometry, policy) in channels() {
        let mut victim = receiver::Victim::new(geometry, policy);
        let began = Instant::now();
        for _ in 0..each {
            victim.step(&random.step());
        }
        say(
            &format!("receiver, {policy:?}, {} slots", geometry.slots()),
            each,
            began,
            &victim.tally,
        );
        let tally = victim.tally;
        assert!(tally.messages > 0 && tally.violations > 0 && tally.ends > 0 && tally.empty > 0);
    }
}

// Keeps P35.
#[test]
fn a_sender_bears_any_word_of_a_receivers_and_the_others_get_everything() {
    let mut random = Random::from_environment();
    let each = words() / 2 / 12;
    for (geometry, policy) in channels() {
        let honest = if geometry.receivers_max() > 8 { 9 } else { 1 };
        let mut victim = sender::Victim::new(geometry, policy, honest);
        let began = Instant::now();
        for _ in 0..each {
            victim.step(&random.step());
        }
        victim.finish();
        say(&format!("sender, {policy:?}, {} slots", geometry.slots()), each, began, &victim.tally);
        let tally = victim.tally;
        assert!(tally.sent > each && tally.checked == u64::from(honest) * tally.sent);
        assert!(tally.violations > 0);
        assert_eq!(tally.evictions > 0, matches!(policy, Policy::Evict { .. }));
    }
}

// Keeps P71, P117.
#[test]
fn an_endpoint_bears_any_word_of_a_peers_and_the_others_get_everything() {
    let mut random = Random::from_environment();
    let each = words() / 10;
    let mut victim = pairs::Victim::new();
    let began = Instant::now();
    for _ in 0..each {
        victim.step(&random.step());
    }
    victim.finish();
    say("endpoint", each, began, &victim.tally);
    let tally = victim.tally;
    assert!(tally.hostile > 0 && tally.violations > 0 && tally.empty > 0);
    assert!(tally.honest > each / 2);
    assert!(tally.large.is_complete(), "some outcome of large messages was not reached");
    // A twentieth of all words: more than 100,000 of each kind in the long run.
    assert!(tally.large.words.iter().all(|&words| words > each / 20), "{:?}", tally.large.words);
}

/// Runs `job` while another thread calls `write` repeatedly. Returns the number of those calls.
fn race(
    mut write: impl FnMut(&Step, u64) + Send + 'static,
    at: &Arc<AtomicU64>,
    job: impl FnOnce(),
) -> u64 {
    let is_over = Arc::new(AtomicBool::new(false));
    let (over, at) = (Arc::clone(&is_over), Arc::clone(at));
    let writer = thread::spawn(move || {
        let mut random = Random::new(3);
        let mut words = 0;
        while !over.load(Relaxed) {
            write(&random.step(), at.load(Relaxed));
            words += 1;
        }
        words
    });
    job();
    is_over.store(true, Relaxed);
    writer.join().unwrap()
}

// Keeps P35.
#[test]
fn a_receiver_bears_words_that_change_while_it_looks() {
    let mut random = Random::from_environment();
    let each = words() / 24 / 12;
    for (geometry, policy) in channels() {
        let mut victim = receiver::Victim::new(geometry, policy);
        let (words, sizes) = victim.race();
        let at = Arc::new(AtomicU64::new(0));
        let write = move |step: &Step, next: u64| {
            let (offset, width) = site(step, next, &sizes);
            let found = words.load(offset, width);
            words.store(offset, width, step.value(next, found, &sizes));
        };
        let began = Instant::now();
        let raced = race(write, &at, || {
            for _ in 0..each {
                victim.step(&random.step());
                at.store(victim.next(), Relaxed);
            }
        });
        say(&format!("raced receiver, {policy:?}"), each + raced, began, &victim.tally);
    }
}

// Keeps P35.
#[test]
fn a_sender_bears_words_that_change_while_it_looks() {
    let mut random = Random::from_environment();
    let each = words() / 24 / 12;
    for (geometry, policy) in channels() {
        let honest = if geometry.receivers_max() > 8 { 9 } else { 1 };
        let mut victim = sender::Victim::new(geometry, policy, honest);
        let attack = victim.race();
        let at = Arc::new(AtomicU64::new(0));
        let began = Instant::now();
        let raced = race(
            move |step, head| attack.write(step, head),
            &at,
            || {
                for _ in 0..each {
                    victim.step(&random.step());
                    at.store(victim.head(), Relaxed);
                }
                victim.finish();
            },
        );
        say(&format!("raced sender, {policy:?}"), each + raced, began, &victim.tally);
    }
}

/// After this many of the longest messages, the number of received bytes no longer fits a `u64`.
#[test]
fn a_sender_that_claims_endless_bytes_is_borne() {
    let count = (1 << 24) + 8;
    assert_eq!(receiver::pass_longest_messages(count), count);
}

/// Checks the guard pages: memory just outside a map cannot be accessed.
#[test]
fn a_map_has_an_inaccessible_page_on_either_side() {
    let region = corewire_hostile::memory::Memory::new(4096).readable();
    let (base, bytes) = region.address();
    let base = base.as_ptr().addr();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let rights_at = |address: usize| {
        let line = maps.lines().find(|line| {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let [start, end] = [start, end].map(|end| usize::from_str_radix(end, 16).unwrap());
            (start..end).contains(&address)
        });
        line.unwrap().split(' ').nth(1).unwrap()
    };
    assert_eq!([base - 1, base, base + bytes].map(rights_at), ["---p", "r--s", "---p"]);
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (any::<u16>(), any::<u8>(), any::<u64>(), any::<u16>())
        .prop_map(|(place, shape, value, order)| Step { place, shape, value, order });
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn any_list_of_hostile_words_is_borne(
        steps in steps(), sizes in 0usize..4, policy in 0usize..3, is_sender: bool,
    ) {
        let mut victim = pairs::Victim::new();
        steps.iter().for_each(|step| victim.step(step));
        victim.finish();
        let (geometry, policy) = (geometry(SIZES[sizes]), POLICIES[policy]);
        if is_sender {
            let mut victim = sender::Victim::new(geometry, policy, 1);
            steps.iter().for_each(|step| victim.step(step));
            victim.finish();
        } else {
            let mut victim = receiver::Victim::new(geometry, policy);
            steps.iter().for_each(|step| victim.step(step));
        }
    }
}
