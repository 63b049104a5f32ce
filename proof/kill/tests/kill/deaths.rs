//! What a death is: which actions of a role other processes see, and which they do not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use corewire_kill::engine::stretch;
use corewire_ring::region::Region;
use corewire_ring::sync::Ordering::Relaxed;
use corewire_ring::sync::kill::{self, Ended, Plan};

fn plan(own: &Region, dies_after: Option<u64>) -> Plan {
    Plan { role: "it", own: vec![stretch(own)], dies_after }
}

/// Two shared pages. A role may write the first.
fn pages() -> (Region, Region) {
    let pages = Region::private(8192).unwrap();
    kill::begin(vec![stretch(&pages)], 1000);
    (pages.part(0, 4096).unwrap(), pages.part(4096, 4096).unwrap())
}

struct StoresWhenDropped<'a>(&'a Region);

impl Drop for StoresWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.word64(64).store(9, Relaxed);
    }
}

#[test]
fn the_dead_do_nothing_more() {
    let (own, _) = pages();
    let private = Region::private(4096).unwrap();
    let ended = kill::run(plan(&own, Some(2)), || {
        let _last = StoresWhenDropped(&own);
        own.word64(0).store(1, Relaxed);
        private.word64(0).store(1, Relaxed);
        own.word64(8).fetch_or(2, Relaxed);
        private.word64(8).store(1, Relaxed);
        assert!(own.word64(16).compare_exchange(5, 6, Relaxed, Relaxed).is_err());
        own.word64(24).store(4, Relaxed);
        unreachable!("it is dead");
    });
    assert!(matches!(ended, Ended::Died));
    let words = [0, 8, 16, 24, 64].map(|offset| own.word64(offset).load(Relaxed));
    assert_eq!(words, [1, 2, 0, 0, 0]);
    let own_words = [0, 8].map(|offset| private.word64(offset).load(Relaxed));
    assert_eq!(own_words, [1, 1], "what the process did with its own words while it lived");
}

#[test]
fn only_shared_effects_count() {
    let (own, _) = pages();
    let private = Region::private(4096).unwrap();
    let ended = kill::run(plan(&own, None), || {
        private.word32(0).store(1, Relaxed);
        own.word32(0).store(1, Relaxed);
        assert!(kill::writes(own.address().0.addr().get() + 128, 100));
        assert!(kill::effect());
    });
    assert!(matches!(ended, Ended::Finished((), 3)));
}

#[test]
fn a_store_to_anothers_memory_is_found() {
    let (own, other) = pages();
    let store = || kill::run(plan(&own, None), || other.word64(0).store(1, Relaxed));
    assert!(catch_unwind(AssertUnwindSafe(store)).is_err());
}

#[test]
fn a_hang_is_found() {
    let (own, _) = pages();
    let wait = || kill::run(plan(&own, None), || while own.word64(0).load(Relaxed) == 0 {});
    assert!(catch_unwind(AssertUnwindSafe(wait)).is_err());
}
