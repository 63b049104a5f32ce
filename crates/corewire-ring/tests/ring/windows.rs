//! A window's book whose words hold anything: every call returns, and none reads beyond it.

use std::sync::Arc;

use corewire_layout::window::{WINDOW_COUNTERS_MAX, book_bytes};
use corewire_ring::Kernel;
use corewire_ring::doorbell::Bells;
use corewire_ring::region::Region;
use corewire_ring::sync::AtomicU32;
use corewire_ring::window::{Book, Data, Participant, Roster, Seat, Stop, Turn, WindowShared};
use proptest::prelude::*;

const ROWS: u32 = 3;

/// A kernel in which nobody sleeps.
struct Awake;

impl Kernel for Awake {
    fn barrier_everywhere(&self) -> bool {
        true
    }
    fn wake(&self, _: &AtomicU32, _: u32) {}
    fn wait(&self, _: Bells<'_>, _: u64) -> bool {
        false
    }
    fn cpu(&self) -> u32 {
        0
    }
}

fn book() -> (Region, Book) {
    let memory = Region::private(usize::try_from(book_bytes(ROWS)).unwrap()).unwrap();
    (memory.clone(), Book::new(memory, ROWS))
}

fn participant(book: &Book, seat: Seat) -> Participant {
    Participant::new(book.clone(), seat, Arc::new(WindowShared::default()))
}

/// Everything that can be done, once.
fn do_all(one: &Participant, seat: Seat) {
    let book = one.book();
    let _ = (book.present().count(), book.holder(), book.readers());
    let _ = (one.try_claim(), one.has_no_readers(), one.try_share(&Awake));
    let number = one.enter_fence();
    let _ = (one.is_fenced(number, ROWS, &[]), one.is_fenced(number, u32::MAX, &[]));
    let _ = (
        one.has_lock(),
        one.post(seat),
        one.is_posted(),
        one.is_complete(seat, Turn { generation: 1, number: 2 }),
        one.is_there(seat),
    );
    one.complete();
    one.leave_fence(number);
    for counter in [0, 31, WINDOW_COUNTERS_MAX, usize::MAX] {
        let is_there = counter < WINDOW_COUNTERS_MAX;
        assert_eq!(one.add(counter, u64::MAX).is_some(), is_there);
        assert_eq!(book.count(counter).is_some(), is_there);
    }
    one.tell(&Awake);
    one.unshare();
    one.release();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 500 }))]

    #[test]
    fn any_words_are_taken_for_what_they_can_mean(
        words in prop::collection::vec((0usize..1 << 14, any::<u64>()), 0..80),
        row in any::<u32>(),
        generation in any::<u32>(),
    ) {
        let (memory, book) = book();
        let mut roster = Roster::new(book.clone(), 1);
        let seat = roster.admit(2).unwrap();
        let one = participant(&book, seat);
        let bytes = memory.bytes();
        for (at, word) in words {
            memory.copy_in(at % (bytes / 8) * 8, &word.to_le_bytes());
        }
        for other in [seat, Seat { row, generation }, Seat { row: row % ROWS, generation }] {
            do_all(&one, other);
            if other.row < ROWS {
                roster.remove(other, &Awake);
            }
        }
        for _ in 0..5 {
            let _ = roster.admit(u32::MAX);
        }
    }
}

#[test]
fn a_row_is_given_to_one_at_a_time() {
    let (_, book) = book();
    let mut roster = Roster::new(book.clone(), 1);
    let seats = [roster.admit(2), roster.admit(3), roster.admit(4)];
    assert_eq!(seats.map(|seat| seat.map(|seat| seat.row)), [Some(1), Some(2), None]);
    let first = participant(&book, seats[0].unwrap());
    assert_eq!(first.try_claim(), Ok(true));
    roster.remove(first.seat(), &Awake);
    // Taken for ended, it gets no lock any more, and gives back none of another one.
    assert_eq!(first.try_claim(), Err(Stop::Gone(first.seat())));
    assert_eq!(first.try_share(&Awake), Err(Stop::Gone(first.seat())));
    assert!(book.holder().is_none() && book.readers() == 0);
    let later = participant(&book, roster.admit(5).unwrap());
    assert_eq!((later.seat().row, later.seat().generation), (1, 2));
    assert!(!first.is_there(first.seat()) && later.is_there(later.seat()));
    assert_eq!(later.try_claim(), Ok(true));
    // What is heard twice of the first one costs the later one nothing.
    roster.remove(first.seat(), &Awake);
    first.release();
    assert_eq!(book.holder(), Some(later.seat()));
}

#[test]
fn a_newcomer_goes_on_behind_the_last_fence() {
    let (_, book) = book();
    let mut roster = Roster::new(book.clone(), 1);
    let owner = participant(&book, Seat { row: 0, generation: 1 });
    let first = participant(&book, roster.admit(2).unwrap());
    for _ in 0..5 {
        let number = owner.enter_fence();
        assert_eq!(owner.is_fenced(number, 2, &[]), Ok(None));
        assert_eq!(first.enter_fence(), number);
        for one in [&owner, &first] {
            assert_eq!(one.is_fenced(number, 2, &[]), Ok(Some(())));
            one.leave_fence(number);
        }
    }
    // One that comes while others are in a fence has not entered it, whether they wait for it or not.
    let number = owner.enter_fence();
    let late = participant(&book, roster.admit(3).unwrap());
    assert_eq!(owner.is_fenced(number, 2, &[]), Ok(None));
    assert_eq!(first.enter_fence(), number);
    assert_eq!(owner.is_fenced(number, 2, &[]), Ok(Some(())));
    assert_eq!(owner.is_fenced(number, 3, &[]), Ok(None));
    assert_eq!(late.enter_fence(), number);
    assert_eq!(late.is_fenced(number, 3, &[]), Ok(Some(())));
}

#[test]
fn all_begin_with_the_same_fence_however_late_they_come() {
    let (_, book) = book();
    let mut roster = Roster::new(book.clone(), 1);
    let owner = participant(&book, Seat { row: 0, generation: 1 });
    let number = owner.enter_fence();
    let first = participant(&book, roster.admit(2).unwrap());
    assert_eq!(first.enter_fence(), number);
    let second = participant(&book, roster.admit(3).unwrap());
    assert_eq!([&owner, &first].map(|one| one.is_fenced(number, 3, &[])), [Ok(None); 2]);
    assert_eq!(second.enter_fence(), number);
    let all = [&owner, &first, &second];
    assert_eq!(all.map(|one| one.is_fenced(number, 3, &[])), [Ok(Some(())); 3]);
}

#[test]
fn a_fence_misses_one_that_took_part_and_nobody_else() {
    let (_, book) = book();
    let mut roster = Roster::new(book.clone(), 1);
    let owner = participant(&book, Seat { row: 0, generation: 1 });
    let first = participant(&book, roster.admit(2).unwrap());
    let idle = participant(&book, roster.admit(3).unwrap());
    let number = owner.enter_fence();
    roster.remove(idle.seat(), &Awake);
    assert_eq!(owner.is_fenced(number, 2, &[]), Ok(None), "it took no part");
    let _idle = roster.admit(4).unwrap();
    first.enter_fence();
    owner.leave_fence(number);
    // The other one dies before it finds out that the fence is over, and a newcomer has its row.
    roster.remove(first.seat(), &Awake);
    let next = owner.enter_fence();
    assert_eq!(owner.is_fenced(next, 2, &[]), Err(Stop::Gone(first.seat())));
    assert_eq!(owner.is_fenced(next, 2, &[first.seat()]), Ok(None), "it is missed already");
    let late = participant(&book, roster.admit(5).unwrap());
    assert_eq!(late.seat().row, first.seat().row);
    assert_eq!(owner.is_fenced(next, 2, &[]), Ok(None));
    assert_eq!(late.enter_fence(), next);
    assert_eq!(owner.is_fenced(next, 2, &[]), Ok(Some(())));
}

#[test]
fn an_epoch_is_for_one_participant_of_a_row() {
    let (_, book) = book();
    let mut roster = Roster::new(book.clone(), 1);
    let owner = participant(&book, Seat { row: 0, generation: 1 });
    let first = participant(&book, roster.admit(2).unwrap());
    let turn = owner.post(first.seat()).unwrap();
    assert_eq!(owner.is_complete(first.seat(), turn), Ok(false));
    first.complete();
    roster.remove(first.seat(), &Awake);
    let _other = roster.admit(3).unwrap();
    let later = participant(&book, roster.admit(4).unwrap());
    assert_eq!(later.seat().row, first.seat().row);
    assert_eq!(owner.is_complete(first.seat(), turn), Ok(true), "it had completed");
    assert!(!later.is_posted());
    let second = owner.post(later.seat()).unwrap();
    assert!(later.is_posted());
    assert!(owner.post(first.seat()).is_none());
    roster.remove(later.seat(), &Awake);
    assert_eq!(owner.is_complete(later.seat(), second), Err(Stop::Gone(later.seat())));
}

#[test]
fn numbers_and_bytes_share_the_data() {
    let data = Data::new(Region::private(4096).unwrap(), 4096, true);
    data.put(3, &[0xff; 20]);
    data.put_far(40, &[1; 300]);
    assert_eq!(data.load::<u32>(4), Some(u32::MAX));
    assert_eq!(data.at::<u64>(8).unwrap().fetch_add(2), u64::MAX);
    let mut bytes = [9; 4];
    data.get(7, &mut bytes);
    assert_eq!(bytes, [255, 1, 0, 0]);
}
