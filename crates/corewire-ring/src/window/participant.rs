//! What a participant of a window does: locks, fences, epochs, counters, and its waits.
//!
//! Proofs: `proof/models/tests/models/windows.rs`.

use alloc::sync::Arc;
use core::fmt;

use corewire_layout::window::{Tenure, Turn, holder};

use crate::doorbell::{self, Bell, Bells, Notices, SLEEP_CAP_NS};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::window::{Book, Seat};
use crate::{Kernel, fence_at, order};

/// Whether a number of fences has come to this one. Numbers go round.
fn is_at(fences: u64, number: u64) -> bool {
    fences.wrapping_sub(number) < 1 << 63
}

/// What a participant's thread and the control thread of its process share. Private memory.
#[derive(Default)]
pub struct WindowShared {
    bell: AtomicU32,
    notices: Notices,
}

impl WindowShared {
    /// Gives the participant notices, whose bits the caller chooses. Wakes it if it waits.
    pub fn notify<K: Kernel>(&self, notices: u32, kernel: &K) {
        self.notices.set(notices);
        doorbell::ring_own(&self.bell, kernel);
    }

    /// Tells the participant, by `notices`, that this is a forked child. Makes only stores.
    pub fn mark(&self, notices: u32) {
        self.notices.mark(notices);
    }

    /// The notices given so far.
    #[inline]
    #[must_use]
    pub fn notices(&self) -> u32 {
        self.notices.get()
    }

    /// Clears notices.
    pub fn clear(&self, notices: u32) {
        self.notices.clear(notices);
    }
}

impl fmt::Debug for WindowShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowShared").finish_non_exhaustive()
    }
}

/// Why a wait has ended without what it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The time is up.
    TimedOut,
    /// There is a notice.
    Notice,
    /// A participant that it needs has gone.
    Gone(Seat),
}

/// How a wait goes on while it has found nothing.
pub trait Pace {
    /// Pauses, or lets another thread run, before another look. False if it is time to sleep.
    fn poll(&mut self) -> bool;

    /// Whether it may sleep then. Otherwise it goes on polling.
    fn may_sleep(&self) -> bool;

    /// How much time is left, in nanoseconds, `u64::MAX` without a limit; `None` if none is.
    fn left_ns(&mut self) -> Option<u64>;
}

/// A participant's place in a window.
#[derive(Debug)]
pub struct Participant {
    book: Book,
    seat: Seat,
    shared: Arc<WindowShared>,
}

impl Participant {
    /// The participant of this seat.
    #[must_use]
    pub fn new(book: Book, seat: Seat, shared: Arc<WindowShared>) -> Self {
        Self { book, seat, shared }
    }

    /// The window's book.
    #[must_use]
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// Its seat.
    #[must_use]
    pub fn seat(&self) -> Seat {
        self.seat
    }

    /// Waits until `look` finds something.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn wait<T, K: Kernel>(
        &self,
        kernel: &K,
        pace: &mut impl Pace,
        mut look: impl FnMut() -> Result<Option<T>, Stop>,
    ) -> Result<T, Stop> {
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if self.shared.notices() != 0 {
                return Err(Stop::Notice);
            }
            if pace.poll() {
                continue;
            }
            let left_ns = pace.left_ns().ok_or(Stop::TimedOut)?;
            if pace.may_sleep()
                && let Some(found) = self.sleep(kernel, left_ns, &mut look)?
            {
                return Ok(found);
            }
        }
    }

    /// Says that somebody sleeps, so that the next one that stores something rings.
    pub fn announce_sleep(&self) {
        self.book.sleepers().store(1, Relaxed);
    }

    /// Sleeps once, unless `look` finds something.
    fn sleep<T, K: Kernel>(
        &self,
        kernel: &K,
        left_ns: u64,
        look: &mut impl FnMut() -> Result<Option<T>, Stop>,
    ) -> Result<Option<T>, Stop> {
        let shared = Bell { word: self.book.bell(), heard: doorbell::listen(self.book.bell()) };
        let own = Bell { word: &self.shared.bell, heard: doorbell::listen(&self.shared.bell) };
        self.announce_sleep();
        // ORDER(X11): pairs with X10.
        fence_at!(X11: SeqCst);
        let found = look()?;
        if found.is_none() && self.shared.notices() == 0 {
            kernel.wait(Bells { shared: Some(shared), own: Some(own) }, left_ns.min(SLEEP_CAP_NS));
        }
        Ok(found)
    }

    /// Whether this participant has the lock, alone or shared.
    #[must_use]
    pub fn has_lock(&self) -> bool {
        self.book.holder() == Some(self.seat) || self.book.reading(self.seat.row).load(Relaxed) != 0
    }

    /// Takes the lock for this participant alone, unless another one has it exclusively. It has it once
    /// [`has_no_readers`](Self::has_no_readers), too.
    ///
    /// # Errors
    /// [`Stop::Gone`] if this participant has been taken for one that has ended: its row may be another one's.
    pub fn try_claim(&self) -> Result<bool, Stop> {
        let own = holder(self.seat.row, self.seat.generation);
        let is_claimed = self.book.lock().compare_exchange(0, own, Relaxed, Relaxed).is_ok();
        if !is_claimed {
            return Ok(false);
        }
        // ORDER(X3): pairs with X4; a reader that this does not find in its row sees the lock taken. Pairs with X1,
        // too: what the holder before has stored is visible.
        fence_at!(X3: SeqCst);
        if !self.is_there(self.seat) {
            // Nobody would free it.
            self.release();
            return Err(Stop::Gone(self.seat));
        }
        Ok(true)
    }

    /// Whether nobody shares the lock that was claimed.
    #[must_use]
    pub fn has_no_readers(&self) -> bool {
        // ORDER(X5): pairs with X2; a reader has finished with the data before its holder changes it.
        (0..self.book.rows()).all(|row| self.book.reading(row).load(order!(X5: Acquire)) == 0)
    }

    /// Gives the lock back that was claimed, unless it was taken away.
    pub fn release(&self) {
        let own = holder(self.seat.row, self.seat.generation);
        // ORDER(X1): pairs with X3 and X12.
        let _ = self.book.lock().compare_exchange(own, 0, order!(X1: Release), Relaxed);
    }

    /// Shares the lock, unless another participant has it exclusively, or waits for that.
    ///
    /// # Errors
    /// As for [`try_claim`](Self::try_claim).
    pub fn try_share<K: Kernel>(&self, kernel: &K) -> Result<bool, Stop> {
        // A wait that changed its row each time would wake the holder, and itself.
        if self.book.lock().load(Relaxed) != 0 {
            return Ok(false);
        }
        self.book.reading(self.seat.row).store(1, Relaxed);
        // ORDER(X4): pairs with X3; a holder that this does not see finds this reader. Pairs with X26, too.
        fence_at!(X4: SeqCst);
        if !self.is_there(self.seat) {
            // Nobody would free it.
            self.unshare();
            self.tell(kernel);
            return Err(Stop::Gone(self.seat));
        }
        // ORDER(X12): pairs with X1 and X26; what the last holder has stored is visible.
        if self.book.lock().load(order!(X12: Acquire)) == 0 {
            return Ok(true);
        }
        self.unshare();
        self.tell(kernel);
        Ok(false)
    }

    /// Gives the lock back that was shared.
    pub fn unshare(&self) {
        // ORDER(X2): pairs with X5.
        self.book.reading(self.seat.row).store(0, order!(X2: Release));
    }

    /// Enters the next fence. Returns its number.
    pub fn enter_fence(&self) -> u64 {
        let word = self.book.fences(self.seat.row);
        let number = word.load(Relaxed).wrapping_add(1);
        // ORDER(X13): pairs with X14; what was stored before the fence is visible behind it.
        word.store(number, order!(X13: Release));
        number
    }

    /// Leaves a fence that is over: participants that come from now on begin behind it.
    pub fn leave_fence(&self, number: u64) {
        // ORDER(X24): pairs with X25; those that find the fence over by this word see what was put before it.
        self.book.left(self.seat.row).store(number, order!(X24: Release));
    }

    /// Whether `count` participants have entered fence `number`.
    ///
    /// # Errors
    /// [`Stop::Gone`] if one that took part in an earlier fence has gone that is not `missed` yet, and too few of those
    /// that did are left.
    pub fn is_fenced(&self, number: u64, count: u32, missed: &[Seat]) -> Result<Option<()>, Stop> {
        let mut entered = 0;
        let mut possible = 0;
        let mut gone = None;
        for row in 0..self.book.rows() {
            let tenure = self.book.tenure(row);
            if tenure.generation == 0 {
                continue;
            }
            // Another one may have left it already, and one in whose row a newcomer is may have entered it.
            // ORDER(X25): pairs with X24.
            let left = self.book.left(row).load(order!(X25: Acquire));
            let first = self.book.first(row).load(Relaxed);
            if is_at(left, number) || is_at(first, number) {
                return Ok(Some(()));
            }
            // ORDER(X14): pairs with X13.
            let fences = self.book.fences(row).load(order!(X14: Acquire));
            let has_entered = is_at(fences, number);
            let has_taken_part = fences != first;
            entered += u32::from(has_entered);
            possible += u32::from(has_entered || tenure.is_present && has_taken_part);
            let seat = Seat { row, generation: tenure.generation };
            let is_missed = !tenure.is_present && !has_entered && has_taken_part;
            if is_missed && !missed.contains(&seat) {
                gone = gone.or(Some(seat));
            }
        }
        match gone {
            _ if entered >= count => Ok(Some(())),
            Some(gone) if possible < count => Err(Stop::Gone(gone)),
            _ => Ok(None),
        }
    }

    /// The owner opens the window to a participant. `None` if that one has gone.
    pub fn post(&self, to: Seat) -> Option<Turn> {
        if !self.is_there(to) {
            return None;
        }
        let word = self.book.posts(to.row);
        let number = Turn::of_word(word.load(Relaxed)).number.wrapping_add(1);
        // If another one has the row by now, it knows by the generation that this is not for it.
        let turn = Turn { generation: to.generation, number };
        // ORDER(X15): pairs with X16; what the owner has stored is visible in the epoch.
        word.store(turn.to_word(), order!(X15: Release));
        Some(turn)
    }

    /// Whether the owner has opened the window to this participant for another epoch.
    #[must_use]
    pub fn is_posted(&self) -> bool {
        // ORDER(X16): pairs with X15.
        let post = self.book.posts(self.seat.row).load(order!(X16: Acquire));
        let completed = self.book.completes(self.seat.row).load(Relaxed);
        post != completed && Turn::of_word(post).generation == self.seat.generation
    }

    /// Completes all epochs that the owner has opened to this participant.
    pub fn complete(&self) {
        let post = self.book.posts(self.seat.row).load(Relaxed);
        if Turn::of_word(post).generation == self.seat.generation {
            // ORDER(X17): pairs with X18; what was put in the epoch is visible to the owner.
            self.book.completes(self.seat.row).store(post, order!(X17: Release));
        }
    }

    /// Whether a participant has completed an epoch that the owner has opened to it.
    ///
    /// # Errors
    /// [`Stop::Gone`] if it has gone before.
    pub fn is_complete(&self, of: Seat, turn: Turn) -> Result<bool, Stop> {
        if of.row >= self.book.rows() {
            return Err(Stop::Gone(of));
        }
        // Before its word: what it has stored before its end is found then.
        let is_there = self.is_there(of);
        // ORDER(X18): pairs with X17.
        let completed = Turn::of_word(self.book.completes(of.row).load(order!(X18: Acquire)));
        let is_complete = completed.generation == of.generation
            && completed.number.wrapping_sub(turn.number) < 1 << 31;
        match is_complete || is_there {
            true => Ok(is_complete),
            false => Err(Stop::Gone(of)),
        }
    }

    /// Whether this participant is there.
    #[must_use]
    pub fn is_there(&self, seat: Seat) -> bool {
        let is_row = seat.row < self.book.rows();
        let tenure = Tenure { generation: seat.generation, is_present: true };
        is_row && self.book.tenure(seat.row) == tenure
    }

    /// Adds to a counter. Returns what it held before; `None` if there is no such counter.
    pub fn add(&self, index: usize, count: u64) -> Option<u64> {
        // ORDER(X6): pairs with X7.
        Some(self.book.counter(index)?.fetch_add(count, order!(X6: Release)))
    }

    /// Wakes those that may wait for what this participant has just stored: after [`release`](Self::release),
    /// [`unshare`](Self::unshare), [`enter_fence`](Self::enter_fence), [`post`](Self::post), [`complete`](Self::complete)
    /// and [`add`](Self::add).
    #[inline]
    pub fn tell<K: Kernel>(&self, kernel: &K) {
        self.book.tell(kernel);
    }
}
