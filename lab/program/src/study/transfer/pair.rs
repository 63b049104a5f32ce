//! The two processes of a transfer: the barrier before each iteration, what they tell each other, and their buffers.
//!
//! The first worker receives the messages that the second one has. They share the memory of their crew:
//!
//! ```text
//! words of a worker    barriers that it has reached, numbers for the other one
//! memory of the crew   a description of each worker, the memory of the printed mechanisms, the window
//! ```

use std::time::{Duration, Instant};

use corewire_harness::board::part;
use corewire_harness::role::Worker;
use corewire_os::socket::{Listener, Socket};
use corewire_ring::Trusted;
use corewire_ring::region::Region;
use corewire_ring::sync::Ordering::{Acquire, Relaxed, Release};
use corewire_transfer::mechanisms::driver::{Courier, introduce};
use corewire_transfer::mechanisms::{PairLink, Peer, Role};

use super::arena::{Arena, Contents, Place};
use super::clock::clock;
use crate::study::failure::{Doing, Failure};

/// The cells of the pair of rings, as in the paper's queue; those of Nemesis are as many.
pub(super) const CELLS: u64 = 64;
pub(super) const CELL_BYTES: u64 = 32 << 10;

/// Words of a worker.
const BARRIERS: usize = 0;
const NUMBER: usize = 1;
const DONE: usize = 2;
/// The memory of the crew.
const NOTE_BYTES: usize = 4096;
/// For the buffers as printed: their flags, and eight of 256 KiB.
const BUFFERS_AT: usize = 2 * NOTE_BYTES;
const BUFFERS_BYTES: usize = 4096 + (2 << 20);
/// For the queues as printed: 8 MiB of cells for each process, with what is around them.
const QUEUES_AT: usize = BUFFERS_AT + BUFFERS_BYTES;
pub(super) const QUEUES_BYTES: usize = 17 << 20;
const WINDOW_AT: usize = QUEUES_AT + QUEUES_BYTES;
/// Time for the other process to come.
const PATIENCE: Duration = Duration::from_secs(10);

/// Memory that a crew needs.
pub(super) const fn crew_bytes(window_bytes: usize) -> usize {
    WINDOW_AT + window_bytes
}

/// Where the messages of a mechanism lie at their sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// In memory of its own.
    Private,
    /// In memory that both processes have mapped.
    Window,
}

/// One of the two processes.
pub(super) struct Pair<'a> {
    worker: &'a Worker,
    memory: Region,
    pub(super) role: Role,
    pub(super) courier: Courier,
    pub(super) peer: Peer,
    pub(super) link: PairLink,
    pub(super) trusted: Trusted,
    barriers: u64,
    /// Transfers that end with a word.
    transfers: u64,
    /// The messages of the sender, and the buffers of the receiver.
    pub(super) private: Arena,
    pub(super) window: Arena,
}

impl<'a> Pair<'a> {
    /// Meets the other process. Both have buffers of `bytes` bytes together.
    pub(super) fn meet(worker: &'a Worker, bytes: usize) -> Result<Self, Failure> {
        let role = if worker.index() == 0 { Role::Target } else { Role::Source };
        let socket = connect(worker, role)?;
        let user = socket.peer().doing("ask who the other process is")?;
        let trusted = user.trusted().ok_or_else(|| Failure::other("another user's process"))?;
        let courier = Courier::from(socket.into_fd());
        let (peer, link) = introduce(&courier, CELLS, CELL_BYTES, trusted).doing("meet")?;
        let memory = worker.board().work()?;
        let window = part(&memory, WINDOW_AT, bytes)?;
        let mut pair = Self {
            worker,
            role,
            courier,
            peer,
            link,
            trusted,
            barriers: 0,
            transfers: 0,
            private: Arena::private(bytes)?,
            window: Arena::new(window),
            memory,
        };
        pair.barrier()?;
        Ok(pair)
    }

    fn other(&self) -> usize {
        1 - self.worker.index()
    }

    pub(super) fn is_source(&self) -> bool {
        self.role == Role::Source
    }

    pub(super) fn worker(&self) -> &'a Worker {
        self.worker
    }

    /// The memory of the buffers as printed, `bytes` bytes.
    pub(super) fn buffers(&self, bytes: usize) -> Result<Region, Failure> {
        part(&part(&self.memory, BUFFERS_AT, BUFFERS_BYTES)?, 0, bytes)
    }

    /// The memory of the queues as printed, `bytes` bytes.
    pub(super) fn queues(&self, bytes: usize) -> Result<Region, Failure> {
        part(&part(&self.memory, QUEUES_AT, QUEUES_BYTES)?, 0, bytes)
    }

    /// Polls until `look` is true. Fails if the other process has ended.
    #[inline(always)]
    pub(super) fn until(&self, look: impl FnMut() -> bool) -> Result<(), Failure> {
        poll(self.worker, &self.peer, look)
    }

    /// The same for a `look` that fills a private buffer.
    #[inline(always)]
    pub(super) fn until_filled(
        &mut self,
        place: Place,
        mut look: impl FnMut(&mut [u8]) -> bool,
    ) -> Result<(), Failure> {
        let target = self.private.slice_mut(place);
        poll(self.worker, &self.peer, || look(target))
    }

    /// Waits until both processes are here.
    #[inline(always)]
    pub(super) fn barrier(&mut self) -> Result<(), Failure> {
        self.barriers += 1;
        let (board, count) = (self.worker.board(), self.barriers);
        board.word(self.worker.index(), BARRIERS).store(count, Release);
        let other = board.word(self.other(), BARRIERS);
        self.until(|| other.load(Acquire) >= count)
    }

    /// Waits until both processes are here. Returns the other one's number; each has set its own for this barrier.
    pub(super) fn swap_numbers(&mut self, own: u64) -> Result<u64, Failure> {
        let board = self.worker.board();
        board.word(self.worker.index(), NUMBER).store(own, Relaxed);
        self.barrier()?;
        let other = self.worker.board().word(self.other(), NUMBER).load(Relaxed);
        // Neither sets its next number before both have read these.
        self.barrier()?;
        Ok(other)
    }

    /// Whether both processes say yes.
    pub(super) fn agree(&mut self, yes: bool) -> Result<bool, Failure> {
        Ok(self.swap_numbers(u64::from(yes))? == 1 && yes)
    }

    /// Waits until both processes are here. Returns what the other one has written.
    pub(super) fn swap_notes(&mut self, own: &[u8]) -> Result<Vec<u8>, Failure> {
        if own.len() > NOTE_BYTES {
            return Err(Failure::other("a description is too long"));
        }
        self.memory.copy_in(self.worker.index() * NOTE_BYTES, own);
        let bytes = self.swap_numbers(own.len() as u64)?;
        let mut note = vec![0; usize::try_from(bytes).unwrap_or(0).min(NOTE_BYTES)];
        self.memory.copy_out(self.other() * NOTE_BYTES, &mut note);
        self.barrier()?;
        Ok(note)
    }

    /// The number of the next transfer that ends with a word.
    pub(super) fn count_transfer(&mut self) -> u64 {
        self.transfers += 1;
        self.transfers
    }

    /// Tells the other process that its part of transfer `number` is over, in a word of shared memory.
    pub(super) fn say_done(&self, number: u64) {
        self.worker.board().word(self.worker.index(), DONE).store(number, Release);
    }

    /// Whether the other process has said so.
    pub(super) fn has_done(&self, number: u64) -> bool {
        self.worker.board().word(self.other(), DONE).load(Acquire) >= number
    }

    pub(super) fn arena(&mut self, home: Home) -> &mut Arena {
        match home {
            Home::Private => &mut self.private,
            Home::Window => &mut self.window,
        }
    }

    /// Lets the next transfer use the first buffers again.
    pub(super) fn rewind(&mut self) {
        self.private.rewind();
        self.window.rewind();
    }

    /// Lets both processes go on with the same buffer of the window.
    pub(super) fn align_windows(&mut self) -> Result<(), Failure> {
        let other = self.swap_numbers(self.window.position() as u64)?;
        if self.is_source() {
            self.window.seek(usize::try_from(other).unwrap_or_default());
        }
        Ok(())
    }

    /// The buffer of this process for the next transfer from a `home`.
    pub(super) fn next(&mut self, home: Home, bytes: usize) -> Place {
        let home = if self.is_source() { home } else { Home::Private };
        self.arena(home).next(bytes)
    }

    /// Writes a message. Returns how many ticks it took.
    pub(super) fn write(&mut self, home: Home, place: Place, contents: Contents) -> u64 {
        let start = clock();
        contents.write(0, self.arena(home).slice_mut(place));
        clock() - start
    }
}

#[inline(always)]
fn poll(worker: &Worker, peer: &Peer, mut look: impl FnMut() -> bool) -> Result<(), Failure> {
    let mut looks = 0u32;
    while !look() {
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(64) {
            worker.relax();
        }
        if looks.is_multiple_of(1 << 16) && peer.has_ended() {
            return Err(Failure::other("the other process has ended"));
        }
    }
    Ok(())
}

/// A connection between the two processes.
fn connect(worker: &Worker, role: Role) -> Result<Socket, Failure> {
    let path = worker.directory().join("pair");
    let path = path.to_string_lossy();
    let begun = Instant::now();
    let wait = |what: &str| match begun.elapsed() > PATIENCE {
        true => Err(Failure::other(format!("the other process did not {what}"))),
        false => {
            std::thread::yield_now();
            Ok(())
        }
    };
    if role == Role::Source {
        let listener = Listener::bind(&path).doing("listen for the other process")?;
        loop {
            match listener.accept() {
                Ok(socket) => return Ok(socket),
                Err(_) => wait("come")?,
            }
        }
    }
    loop {
        match Socket::connect(&path, PATIENCE) {
            Ok(socket) => return Ok(socket),
            Err(_) => wait("listen")?,
        }
    }
}
