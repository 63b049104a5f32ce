//! Participants of a window that sleep at each wait, and would sleep for ever if a wake-up were lost.

use std::array;
use std::sync::Arc;
use std::thread;

use corewire_layout::window::book_bytes;
use corewire_os::sleep::Linux;
use corewire_ring::Kernel;
use corewire_ring::doorbell::Bells;
use corewire_ring::region::Region;
use corewire_ring::sync::AtomicU32;
use corewire_ring::window::{Book, Data, Pace, Participant, Roster, Seat, Stop, WindowShared};

const PARTICIPANTS: u32 = 3;
const ROUNDS: u64 = 2000;

/// Linux, without the limit on each sleep: only a wake-up ends one. What passes then is a lost wake-up.
struct Asleep(Linux);

const LOST_NS: u64 = 60_000_000_000;

impl Kernel for Asleep {
    fn barrier_everywhere(&self) -> bool {
        self.0.barrier_everywhere()
    }
    fn wake(&self, word: &AtomicU32, count: u32) {
        self.0.wake(word, count);
    }
    fn wait(&self, bells: Bells<'_>, _: u64) -> bool {
        assert!(!self.0.wait(bells, LOST_NS), "a wake-up was lost");
        false
    }
    fn cpu(&self) -> u32 {
        self.0.cpu()
    }
}

/// Sleeps at once, without a limit.
struct AtOnce;

impl Pace for AtOnce {
    fn poll(&mut self) -> bool {
        false
    }
    fn may_sleep(&self) -> bool {
        true
    }
    fn left_ns(&mut self) -> Option<u64> {
        Some(u64::MAX)
    }
}

/// Waits until `look` finds something.
fn wait(one: &Participant, mut look: impl FnMut() -> Result<bool, Stop>) {
    let look = || Ok(look()?.then_some(()));
    assert_eq!(one.wait(&Asleep(Linux::get()), &mut AtOnce, look), Ok(()));
}

/// Two write under the lock, and one reads.
fn lock(one: &Participant, data: &Data) {
    let kernel = Asleep(Linux::get());
    for round in 0..ROUNDS {
        if one.seat().row == 2 {
            wait(one, || one.try_share(&kernel));
            thread::yield_now();
            assert_eq!(sum_at(data, 1), sum_at(data, 5), "round {round}: one writes meanwhile");
            one.unshare();
        } else {
            wait(one, || one.try_claim());
            wait(one, || Ok(one.has_no_readers()));
            let [low, middle, high, _] = (sum_at(data, 1) + 1).to_le_bytes();
            data.put(1, &[low, middle, high]);
            thread::yield_now();
            data.put(5, &[low, middle, high]);
            one.release();
        }
        one.tell(&kernel);
    }
}

fn count(one: &Participant, _: &Data) {
    for round in 1..=ROUNDS {
        assert!(one.add(0, 1).is_some());
        one.tell(&Asleep(Linux::get()));
        wait(one, || Ok(one.book().count(0) >= Some(round * u64::from(PARTICIPANTS))));
    }
}

fn fence(one: &Participant, _: &Data) {
    for _ in 0..ROUNDS {
        let number = one.enter_fence();
        one.tell(&Asleep(Linux::get()));
        wait(one, || Ok(one.is_fenced(number, PARTICIPANTS, &[])?.is_some()));
        one.leave_fence(number);
    }
}

/// A number of three bytes, which is not written at once.
fn sum_at(data: &Data, offset: usize) -> u32 {
    let mut sum = [0; 4];
    data.get(offset, &mut sum[..3]);
    u32::from_le_bytes(sum)
}

// Keeps P249.
#[test]
fn three_participants_that_sleep_are_always_woken() {
    let memory = Region::private(usize::try_from(book_bytes(PARTICIPANTS)).unwrap()).unwrap();
    let book = Book::new(memory, PARTICIPANTS);
    let data = Data::new(Region::private(4096).unwrap(), 16, true);
    let mut roster = Roster::new(book.clone(), 1);
    let own = Seat { row: 0, generation: 1 };
    let seats: [Seat; 3] =
        array::from_fn(|row| if row == 0 { own } else { roster.admit(1).unwrap() });
    let all =
        seats.map(|seat| Participant::new(book.clone(), seat, Arc::new(WindowShared::default())));
    // One after the other: what tells of another thing would hide a lost wake-up.
    for part in [lock, count, fence] {
        thread::scope(|scope| {
            for one in &all {
                scope.spawn(|| part(one, &data));
            }
        });
    }
    assert_eq!(u64::from(sum_at(&data, 1)), 2 * ROUNDS);
}
