//! The caches against cases that are counted by hand.
//!
//! Every test here keeps P52.

use corewire_coherence::caches::{Caches, Costs, Counts, Machine, Part, load, modify, store};

const LINE: usize = 64;
/// Three shared lines. There is no memory at these addresses, and nothing dereferences them.
const A: usize = 0x10000;
const B: usize = A + LINE;
const C: usize = B + LINE;
const OWN: usize = 0x20000;

const COSTS: Costs = Costs {
    hit_ns: 1,
    near_ns: 50,
    far_ns: 125,
    busy_ns: 20,
    share_ns: 5,
    next_ns: 4,
    locked_ns: 10,
    under_way_max: 2,
};

fn caches(domain_cores: usize) -> Caches {
    let parts =
        vec![Part { addresses: A..A + 3 * LINE, name: "shared", overlay_bytes: usize::MAX }];
    Caches::new(Machine { domain_cores, costs: COSTS }, 4, parts)
}

#[test]
fn a_line_comes_once_and_is_then_there() {
    let caches = caches(4);
    caches.run_as(0, || (load(A), load(A + 8), store(A), load(A)));
    let expected = Counts { far: 1, ..Counts::default() };
    assert_eq!(caches.counts(0), expected, "from memory; alone, so the store is free");
    assert_eq!((caches.now_ns(0), caches.done_ns(0)), (4, 1 + 125), "it stands still for none");
}

#[test]
fn lines_come_side_by_side_and_no_more_than_may() {
    let caches = caches(4);
    caches.run_as(0, || (load(A), load(B)));
    assert_eq!(caches.done_ns(0), 1 + 4 + 125, "the second is asked for 4 ns after the first");
    caches.run_as(0, || load(C));
    assert_eq!(caches.done_ns(0), 1 + 125 + 125, "the third, when the first has come");
}

#[test]
fn who_has_waited_stands_still_for_the_first_line() {
    let caches = caches(4);
    caches.run_as(0, || (store(A), store(B)));
    let made_ns = caches.done_ns(0);
    caches.wake_at(1, made_ns);
    caches.run_as(1, || (load(A), load(B)));
    assert_eq!(caches.done_ns(1), made_ns + (1 + 50) + (1 + 50));
}

#[test]
fn a_line_that_is_read_and_then_changed_comes_before_it_is_had_alone() {
    let caches = caches(4);
    caches.run_as(0, || store(A));
    let made_ns = caches.done_ns(0);
    caches.pass_until(1, made_ns);
    caches.run_as(1, || (load(A), store(A)));
    assert_eq!(caches.done_ns(1), made_ns + 1 + 50 + 50);
}

#[test]
fn stores_are_made_in_order() {
    let caches = caches(1);
    caches.run_as(0, || store(B));
    caches.pass_until(0, 1000);
    caches.run_as(0, || (store(A), store(B)));
    assert_eq!(caches.done_ns(0), 1000 + 1 + 125);
    // The store of B took effect no earlier than that of A, although the line was there.
    caches.run_as(1, || load(B));
    assert_eq!(caches.done_ns(1), 1000 + 1 + 125 + 125);
}

#[test]
fn what_is_no_part_is_some_cores_own() {
    let caches = caches(4);
    caches.run_as(0, || (load(OWN), store(OWN), modify(OWN)));
    assert_eq!((caches.counts(0), caches.now_ns(0)), (Counts::default(), 0));
}

#[test]
fn a_store_takes_the_line_from_all_who_read_it() {
    let caches = caches(4);
    caches.run_as(0, || store(A));
    for core in 1..4 {
        caches.run_as(core, || load(A));
        assert_eq!(caches.counts(core), Counts { near: 1, ..Counts::default() });
    }
    caches.run_as(0, || store(A));
    let expected = Counts { far: 1, upgrades: 1, invalidations: 3, ..Counts::default() };
    assert_eq!(caches.counts(0), expected, "it has the line, with others");
    caches.run_as(1, || store(A));
    let expected = Counts { near: 2, invalidations: 1, ..Counts::default() };
    assert_eq!(caches.counts(1), expected, "it has lost the line");
}

#[test]
fn words_of_one_line_are_one_and_of_two_lines_are_two() {
    let caches = caches(4);
    caches.run_as(0, || (store(A), store(A + 56), store(B)));
    caches.run_as(1, || (load(A), load(A + 56), load(B)));
    assert_eq!(caches.counts(1).transfers(), 2);
    let lines = caches.lines("shared");
    assert_eq!(lines.iter().map(|line| line.0).collect::<Vec<_>>(), [0, LINE]);
    assert_eq!(lines[0].1, Counts { near: 1, far: 1, ..Counts::default() });
}

#[test]
fn a_line_comes_from_the_own_domain_if_somebody_there_has_it() {
    let caches = caches(2);
    caches.run_as(0, || store(A));
    for (core, near, far) in [(1, 1, 0), (2, 0, 1), (3, 1, 0)] {
        caches.pass_until(core, caches.done_ns(core - 1));
        caches.run_as(core, || load(A));
        assert_eq!((caches.counts(core).near, caches.counts(core).far), (near, far), "core {core}");
    }
    // A store waits for the copies in the other domain, whether this core has the line or not.
    let before_ns = caches.done_ns(3);
    caches.pass_until(0, before_ns);
    caches.run_as(0, || store(A));
    assert_eq!(caches.done_ns(0) - before_ns, 1 + 125);
    caches.run_as(2, || load(A));
    let before_ns = caches.done_ns(2);
    caches.pass_until(1, before_ns);
    caches.run_as(1, || store(A));
    assert_eq!(caches.counts(1).near, 2, "it comes from the neighbour");
    assert_eq!(caches.done_ns(1) - before_ns, 1 + 125, "and the other is waited for");
}

#[test]
fn who_asks_before_the_first_copy_has_come_asks_afar_too() {
    let caches = caches(2);
    caches.run_as(0, || store(A));
    for core in [2, 3] {
        caches.run_as(core, || load(A));
        assert_eq!((caches.counts(core).near, caches.counts(core).far), (0, 1), "core {core}");
    }
    assert_eq!(caches.done_ns(3) - caches.done_ns(2), 20);
}

#[test]
fn a_line_serves_one_after_the_other_and_nobody_sees_a_store_before_it_is_made() {
    let caches = caches(4);
    caches.run_as(0, || store(A));
    let made_ns = caches.done_ns(0);
    for core in 1..4 {
        caches.run_as(core, || load(A));
    }
    let times = [1, 2, 3].map(|core| caches.done_ns(core) - made_ns);
    assert_eq!(times, [50, 20 + 50, 20 + 5 + 50], "from its owner, then from all who have it");
}

#[test]
fn a_read_modify_write_keeps_the_line_to_its_end() {
    let caches = caches(4);
    caches.run_as(0, || store(A));
    let made_ns = caches.done_ns(0);
    for core in 1..4 {
        caches.run_as(core, || modify(A));
        assert_eq!(
            caches.counts(core),
            Counts { near: 1, invalidations: 1, modifies: 1, ..Counts::default() }
        );
    }
    let times = [1, 2, 3].map(|core| caches.done_ns(core) - made_ns);
    assert_eq!(times, [60, 120, 180]);
}
