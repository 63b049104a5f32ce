//! Models of a window's book: the lock, fences, epochs, counters, the words of the data, sleep, and what is left by a
//! participant that has ended.
//!
//! Keeps P248, P249.

use std::ops::Range;
use std::sync::Arc;

use corewire_layout::window::{
    LOCK, PARTICIPANT_COMPLETES, PARTICIPANT_FENCES, PARTICIPANT_FIRST, PARTICIPANT_LEFT,
    PARTICIPANT_PID, PARTICIPANT_POSTS, PARTICIPANT_READING, PARTICIPANT_TENURE, WINDOW_BELL,
    WINDOW_COUNTERS, WINDOW_SLEEPERS, book_bytes, participant_offset,
};
use corewire_models::{ModelKernel, check, mutants};
use corewire_ring::region::Region;
use corewire_ring::sync::pause;
use corewire_ring::window::{Book, Data, Pace, Participant, Roster, Seat, Stop, WindowShared};
use loom::thread;

/// A wait that polls, or one that sleeps at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    Polls,
    Sleeps,
}

use Waits::{Polls, Sleeps};

impl Pace for Waits {
    fn poll(&mut self) -> bool {
        pause();
        *self == Polls
    }

    fn may_sleep(&self) -> bool {
        *self == Sleeps
    }

    fn left_ns(&mut self) -> Option<u64> {
        Some(u64::MAX)
    }
}

/// A window of two participants, the owner and another one.
struct Window {
    kernel: ModelKernel,
    roster: Roster,
    owner: Participant,
    other: Participant,
    /// Its data: one number.
    data: Data,
}

const ROWS: u32 = 2;

fn word64(offset: usize) -> Range<usize> {
    offset..offset + 8
}

fn window() -> Window {
    let mut words64 = vec![word64(LOCK), word64(WINDOW_COUNTERS)];
    for row in 0..ROWS {
        words64.extend(
            [
                PARTICIPANT_TENURE,
                PARTICIPANT_PID,
                PARTICIPANT_POSTS,
                PARTICIPANT_FENCES,
                PARTICIPANT_COMPLETES,
                PARTICIPANT_READING,
                PARTICIPANT_FIRST,
                PARTICIPANT_LEFT,
            ]
            .map(|word| word64(participant_offset(row) + word)),
        );
    }
    let words32 = [WINDOW_BELL, WINDOW_SLEEPERS].map(|at| at..at + 4).to_vec();
    let bytes = usize::try_from(book_bytes(ROWS)).unwrap();
    let book = Book::new(Region::model(bytes, words64, words32, Vec::new()), ROWS);
    let mut roster = Roster::new(book.clone(), 1);
    let seat = roster.admit(2).unwrap();
    let participant =
        |seat| Participant::new(book.clone(), seat, Arc::new(WindowShared::default()));
    // A word for a number, and bytes that loom watches.
    let memory = Region::model(16, vec![word64(0)], Vec::new(), vec![8..16]);
    Window {
        kernel: ModelKernel::new(true),
        owner: participant(Seat { row: 0, generation: 1 }),
        other: participant(seat),
        roster,
        data: Data::new(memory, 16, true),
    }
}

fn put(data: &Data, number: u64) {
    data.put(8, &number.to_le_bytes());
}

fn get(data: &Data) -> u64 {
    let mut bytes = [0; 8];
    data.get(8, &mut bytes);
    u64::from_le_bytes(bytes)
}

fn wait(
    one: &Participant,
    kernel: &ModelKernel,
    waits: Waits,
    mut look: impl FnMut() -> bool,
) -> Result<(), Stop> {
    one.wait(kernel, &mut { waits }, || Ok(look().then_some(())))
}

/// Takes the lock alone.
fn lock(one: &Participant, kernel: &ModelKernel, waits: Waits) {
    one.wait(kernel, &mut { waits }, || Ok(one.try_claim()?.then_some(()))).unwrap();
    wait(one, kernel, waits, || one.has_no_readers()).unwrap();
}

fn share(one: &Participant, kernel: &ModelKernel, waits: Waits) {
    one.wait(kernel, &mut { waits }, || Ok(one.try_share(kernel)?.then_some(()))).unwrap();
}

/// Gives the lock back. One that waits need not be woken, and the fence of a wake-up would hide what is missing.
fn release(one: &Participant, kernel: &ModelKernel, waits: Waits) {
    one.release();
    if waits == Sleeps {
        one.tell(kernel);
    }
}

/// Both add one to the data under the lock.
fn both_count(waits: Waits) {
    let Window { kernel, owner, other, data, .. } = window();
    let add = move |one: &Participant, kernel: &ModelKernel, data: &Data| {
        lock(one, kernel, waits);
        put(data, get(data) + 1);
        release(one, kernel, waits);
    };
    let (there, far) = (kernel.clone(), data.clone());
    let thread = thread::spawn(move || add(&other, &there, &far));
    add(&owner, &kernel, &data);
    thread.join().unwrap();
    assert_eq!(get(&data), 2);
}

#[test]
fn quick_the_lock_has_one_holder() {
    check(3, || both_count(Polls));
}

#[test]
fn quick_who_sleeps_for_the_lock_is_woken() {
    check(3, || both_count(Sleeps));
}

/// One changes the data under the lock, the other one reads it.
fn one_reads(waits: Waits) {
    let Window { kernel, owner, other, data, .. } = window();
    let (there, far) = (kernel.clone(), data.clone());
    let thread = thread::spawn(move || {
        share(&other, &there, waits);
        let found = get(&far);
        other.unshare();
        if waits == Sleeps {
            other.tell(&there);
        }
        found
    });
    lock(&owner, &kernel, waits);
    put(&data, 1);
    put(&data, 2);
    release(&owner, &kernel, waits);
    assert!([0, 2].contains(&thread.join().unwrap()));
}

#[test]
fn quick_who_shares_the_lock_reads_what_nobody_changes() {
    check(3, || one_reads(Polls));
}

#[test]
fn quick_who_sleeps_for_its_share_of_the_lock_is_woken() {
    check(2, || one_reads(Sleeps));
}

#[test]
fn quick_the_lock_of_one_that_has_ended_is_free() {
    check(3, || {
        let Window { kernel, mut roster, owner, other, data } = window();
        let seat = other.seat();
        let (there, far) = (kernel.clone(), data.clone());
        let thread = thread::spawn(move || {
            let thread = thread::spawn(move || {
                if other.try_claim() == Ok(true) && other.has_no_readers() {
                    put(&far, 1);
                }
            });
            // The kernel says that it has ended.
            thread.join().unwrap();
            roster.remove(seat, &there);
        });
        lock(&owner, &kernel, Sleeps);
        put(&data, get(&data) + 2);
        owner.release();
        thread.join().unwrap();
        assert!(owner.book().holder().is_none());
    });
}

#[test]
fn quick_one_that_is_taken_for_ended_keeps_no_share() {
    check(3, || {
        let Window { kernel, mut roster, owner, other, .. } = window();
        let (seat, there) = (other.seat(), kernel.clone());
        let thread = thread::spawn(move || _ = other.try_share(&there));
        roster.remove(seat, &kernel);
        thread.join().unwrap();
        assert!(owner.has_no_readers());
    });
}

#[test]
fn quick_what_one_that_has_ended_had_read_is_changed_afterwards() {
    check(3, || {
        let Window { kernel, mut roster, owner, other, data } = window();
        let seat = other.seat();
        let (there, far) = (kernel.clone(), data.clone());
        let thread = thread::spawn(move || {
            let thread = thread::spawn(move || {
                if other.try_share(&there) == Ok(true) {
                    get(&far);
                }
                there
            });
            let there = thread.join().unwrap();
            roster.remove(seat, &there);
        });
        lock(&owner, &kernel, Sleeps);
        put(&data, 2);
        owner.release();
        thread.join().unwrap();
    });
}

/// Each puts into its own window, and reads the other's behind a fence.
fn fence(waits: Waits) {
    let Window { kernel, owner, other, data, .. } = window();
    let second = window().data;
    let meet = move |one: &Participant, kernel: &ModelKernel| {
        let number = one.enter_fence();
        if waits == Sleeps {
            one.tell(kernel);
        }
        one.wait(kernel, &mut { waits }, || one.is_fenced(number, ROWS, &[])).unwrap();
    };
    let (there, near, far) = (kernel.clone(), data.clone(), second.clone());
    let thread = thread::spawn(move || {
        put(&near, 1);
        meet(&other, &there);
        get(&far)
    });
    put(&second, 2);
    meet(&owner, &kernel);
    assert_eq!((get(&data), thread.join().unwrap()), (1, 2));
}

#[test]
fn quick_what_was_put_before_a_fence_is_there_behind_it() {
    check(3, || fence(Polls));
}

#[test]
fn quick_who_sleeps_in_a_fence_is_woken() {
    check(2, || fence(Sleeps));
}

#[test]
fn quick_what_was_put_before_a_fence_is_there_for_one_that_finds_it_over() {
    check(3, || {
        let Window { owner, other, data, .. } = window();
        let far = data.clone();
        let thread = thread::spawn(move || {
            put(&far, 1);
            other.leave_fence(1);
        });
        // Of three: it is over only because another one has left it.
        let number = owner.enter_fence();
        while owner.is_fenced(number, 3, &[]) != Ok(Some(())) {
            pause();
        }
        assert_eq!(get(&data), 1);
        thread.join().unwrap();
    });
}

#[test]
fn quick_a_fence_with_one_that_has_ended_ends() {
    check(3, || {
        let Window { kernel, mut roster, owner, other, data } = window();
        let seat = other.seat();
        // It has taken part before.
        for one in [&owner, &other] {
            let number = one.enter_fence();
            one.leave_fence(number);
        }
        let (there, far) = (kernel.clone(), data.clone());
        let thread = thread::spawn(move || {
            let thread = thread::spawn(move || put(&far, 1));
            thread.join().unwrap();
            roster.remove(seat, &there);
        });
        let number = owner.enter_fence();
        let look = || owner.is_fenced(number, ROWS, &[]);
        let ended = owner.wait(&kernel, &mut { Sleeps }, look);
        assert_eq!(ended, Err(Stop::Gone(seat)));
        assert_eq!(get(&data), 1);
        thread.join().unwrap();
    });
}

/// The owner opens the window to the other one, which changes the data.
fn epoch(waits: Waits) {
    let Window { kernel, owner, other, data, .. } = window();
    let (there, far, seat) = (kernel.clone(), data.clone(), other.seat());
    let thread = thread::spawn(move || {
        wait(&other, &there, waits, || other.is_posted()).unwrap();
        put(&far, get(&far) + 1);
        other.complete();
        if waits == Sleeps {
            other.tell(&there);
        }
    });
    put(&data, 5);
    let turn = owner.post(seat).unwrap();
    if waits == Sleeps {
        owner.tell(&kernel);
    }
    let look = || Ok(owner.is_complete(seat, turn)?.then_some(()));
    owner.wait(&kernel, &mut { waits }, look).unwrap();
    assert_eq!(get(&data), 6);
    thread.join().unwrap();
}

#[test]
fn quick_an_epoch_is_between_post_and_wait() {
    check(3, || epoch(Polls));
}

#[test]
fn quick_who_sleeps_for_an_epoch_is_woken() {
    check(2, || epoch(Sleeps));
}

#[test]
fn quick_what_was_put_before_an_addition_is_there_with_it() {
    check(3, || {
        let Window { kernel, owner, other, data, .. } = window();
        let (there, far) = (kernel.clone(), data.clone());
        let thread = thread::spawn(move || {
            put(&far, 3);
            assert_eq!(other.add(0, 1), Some(0));
            other.tell(&there);
        });
        wait(&owner, &kernel, Sleeps, || owner.book().count(0) == Some(1)).unwrap();
        assert_eq!(get(&data), 3);
        thread.join().unwrap();
    });
}

/// One puts bytes and then changes the number; the other one waits for that.
fn number(change: fn(&Data), load: fn(&Data) -> u64) {
    let Window { data, .. } = window();
    let far = data.clone();
    let thread = thread::spawn(move || {
        put(&far, 3);
        change(&far);
    });
    while load(&data) == 0 {
        pause();
    }
    assert_eq!(get(&data), 3);
    thread.join().unwrap();
}

#[test]
fn quick_what_was_put_before_a_store_is_there_with_it() {
    check(3, || {
        number(|data| data.at::<u64>(0).unwrap().store(1), |data| data.at::<u64>(0).unwrap().load())
    });
}

#[test]
fn quick_what_was_put_before_a_change_is_there_with_it() {
    fn add(data: &Data) {
        data.at::<u64>(0).unwrap().fetch_add(1);
    }
    check(3, || number(add, |data| data.load(0).unwrap()));
}

#[test]
fn quick_what_was_put_before_a_number_is_there_for_who_changes_it() {
    fn change(data: &Data) -> u64 {
        u64::from(data.at::<u64>(0).unwrap().compare_exchange(1, 2).is_ok())
    }
    check(3, || number(|data| data.at::<u64>(0).unwrap().store(1), change));
}

mutants! {
    mutant_x1: X1 => quick_the_lock_has_one_holder;
    mutant_x2: X2 => quick_who_shares_the_lock_reads_what_nobody_changes;
    mutant_x3: X3 => quick_who_shares_the_lock_reads_what_nobody_changes;
    mutant_x4: X4 => quick_who_shares_the_lock_reads_what_nobody_changes;
    mutant_x5: X5 => quick_who_shares_the_lock_reads_what_nobody_changes;
    mutant_x6: X6 => quick_what_was_put_before_an_addition_is_there_with_it;
    mutant_x7: X7 => quick_what_was_put_before_an_addition_is_there_with_it;
    mutant_x8: X8 => quick_a_fence_with_one_that_has_ended_ends;
    mutant_x9: X9 => quick_a_fence_with_one_that_has_ended_ends;
    mutant_x10: X10 => quick_who_sleeps_for_an_epoch_is_woken;
    mutant_x11: X11 => quick_who_sleeps_for_an_epoch_is_woken;
    mutant_x12: X12 => quick_who_shares_the_lock_reads_what_nobody_changes;
    mutant_x13: X13 => quick_what_was_put_before_a_fence_is_there_behind_it;
    mutant_x14: X14 => quick_what_was_put_before_a_fence_is_there_behind_it;
    mutant_x15: X15 => quick_an_epoch_is_between_post_and_wait;
    mutant_x16: X16 => quick_an_epoch_is_between_post_and_wait;
    mutant_x17: X17 => quick_an_epoch_is_between_post_and_wait;
    mutant_x18: X18 => quick_an_epoch_is_between_post_and_wait;
    mutant_x26_of_its_lock: X26 => quick_the_lock_of_one_that_has_ended_is_free;
    mutant_x20: X20 => quick_what_was_put_before_a_store_is_there_with_it;
    mutant_x21: X21 => quick_what_was_put_before_a_store_is_there_with_it;
    mutant_x22: X22 => quick_what_was_put_before_a_change_is_there_with_it;
    mutant_x22_of_a_reader: X22 => quick_what_was_put_before_a_number_is_there_for_who_changes_it;
    mutant_x24: X24 => quick_what_was_put_before_a_fence_is_there_for_one_that_finds_it_over;
    mutant_x25: X25 => quick_what_was_put_before_a_fence_is_there_for_one_that_finds_it_over;
    mutant_x26: X26 => quick_one_that_is_taken_for_ended_keeps_no_share;
    mutant_x4_of_one_that_is_taken_for_ended: X4 => quick_one_that_is_taken_for_ended_keeps_no_share;
    mutant_x23: X23 => quick_what_was_put_before_a_change_is_there_with_it;
}
