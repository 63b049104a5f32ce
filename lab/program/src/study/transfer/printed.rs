//! The two mechanisms that copy twice, as the paper prints them (II-A, II-B): buffers with flags between one pair of
//! processes, and Nemesis' queues with their cells, one receive queue and one free queue for each process.

use corewire_harness::board::part;
use corewire_published::rings::{FreeQueue, Nemesis, NemesisOptions};
use corewire_ring::copying::Routine;
use corewire_ring::region::Region;
use corewire_ring::sync::AtomicU64;
use corewire_ring::sync::Ordering::{Acquire, Release};
use corewire_transfer::mechanisms::Role;

use super::arena::{Arena, LINE_BYTES, Place};
use super::operations::Operations;
use super::pair::{CELL_BYTES, CELLS, Pair};
use crate::study::failure::Failure;

/// Buffers of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Buffers {
    pub(super) count: usize,
    pub(super) bytes: usize,
    /// What copies out of them, and into them; `None` for what this process plans.
    pub(super) out: Option<Routine>,
    pub(super) into: Option<Routine>,
}

impl Buffers {
    /// Two of 8 KiB, which the paper found best.
    pub(super) const PAPER: Self = Self { count: 2, bytes: 8 << 10, out: None, into: None };

    /// The same with the paper's copies (III-B): up to 2 KiB by the string instruction, beyond that past the caches.
    /// `None` if this processor has no such stores.
    pub(super) fn past_caches() -> Option<Self> {
        let all = [Routine::Avx512Streaming, Routine::Avx2Streaming, Routine::NeonStreaming];
        let routine = all.into_iter().find(|routine| routine.is_possible());
        routine.map(|it| Self { out: Some(it), into: Some(it), ..Self::PAPER })
    }
}

/// The paper copies so many bytes by the string instruction.
const STRING_BYTES: usize = 2 << 10;

/// Copies a part of a message.
#[inline(always)]
fn copy(by: Option<Routine>, to: &mut Arena, place: Place, from: &Arena, source: Place) {
    match by {
        None => to.copy_from(place, from, source),
        Some(_) if place.bytes <= STRING_BYTES => {
            to.copy_by(Routine::String, place, from, source);
        }
        Some(routine) => to.copy_by(routine, place, from, source),
    }
}

/// The cells of the printed queue: payload bytes, without the 32 bytes before them.
pub(super) const QUEUE: (u64, u64) = (CELLS, CELL_BYTES);
const CELL_HEAD_BYTES: usize = 32;
/// A flag is alone in two lines.
const FLAG_BYTES: usize = 2 * LINE_BYTES;
/// Flags of up to so many buffers come before the buffers.
const BUFFERS_AT: usize = 4096;

/// Shared buffers with full and empty flags.
pub(super) struct PrintedBuffer {
    flags: Region,
    buffers: Arena,
    form: Buffers,
    now: Option<Place>,
}

impl PrintedBuffer {
    /// Both sides begin with all buffers empty.
    pub(super) fn open(pair: &mut Pair<'_>, form: Buffers) -> Result<Self, Failure> {
        let bytes = form.count * form.bytes;
        let memory = pair.buffers(BUFFERS_AT + bytes)?;
        let flags = part(&memory, 0, BUFFERS_AT)?;
        let buffers = part(&memory, BUFFERS_AT, bytes)?;
        if pair.is_source() {
            (0..form.count).for_each(|at| flags.word64(at * FLAG_BYTES).store(0, Release));
        }
        pair.barrier()?;
        Ok(Self { flags, buffers: Arena::new(buffers), form, now: None })
    }

    /// Calls `each` for all parts of the message: the flag of its buffer, the buffer, and the part.
    #[inline(always)]
    fn parts(
        &mut self,
        mut each: impl FnMut(&AtomicU64, &mut Arena, Place, Place) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Self { flags, buffers, form, now } = self;
        let Some(Place { at, bytes }) = *now else { return Ok(()) };
        for (number, from) in (0..bytes).step_by(form.bytes).enumerate() {
            let length = form.bytes.min(bytes - from);
            let buffer = number % form.count;
            let inside = Place { at: buffer * form.bytes, bytes: length };
            let flag = flags.word64(buffer * FLAG_BYTES);
            each(flag, buffers, inside, Place { at: at + from, bytes: length })?;
        }
        Ok(())
    }
}

impl Operations for PrintedBuffer {
    fn local(&self) -> Role {
        Role::Target
    }

    fn register(&mut self, _: &mut Pair<'_>, place: Place) -> Result<(), Failure> {
        self.now = Some(place);
        Ok(())
    }

    fn deregister(&mut self, _: &mut Pair<'_>) -> Result<(), Failure> {
        self.now = None;
        Ok(())
    }

    #[inline(always)]
    fn copy_local(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        let out = self.form.out;
        self.parts(|flag, buffers, inside, part| {
            pair.until(|| flag.load(Acquire) == 1)?;
            copy(out, &mut pair.private, part, buffers, inside);
            flag.store(0, Release);
            Ok(())
        })
    }

    #[inline(always)]
    fn copy_remote(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        let into = self.form.into;
        self.parts(|flag, buffers, inside, part| {
            pair.until(|| flag.load(Acquire) == 0)?;
            copy(into, buffers, inside, &pair.private, part);
            flag.store(1, Release);
            Ok(())
        })
    }
}

/// Nemesis' queues.
pub(super) struct PrintedQueue {
    process: Nemesis,
    cell_bytes: usize,
    now: Option<Place>,
}

/// What the printed queue is made of, with so many cells of so many bytes.
pub(super) fn nemesis((cells, cell_bytes): (u64, u64)) -> NemesisOptions {
    NemesisOptions {
        processes: 2,
        cells: u32::try_from(cells).unwrap_or(u32::MAX),
        cell_bytes: usize::try_from(cell_bytes).unwrap_or(usize::MAX) - CELL_HEAD_BYTES,
        free_queue: FreeQueue::Sender,
        has_shadow_head: true,
        has_fastboxes: false,
    }
}

impl PrintedQueue {
    pub(super) fn open(pair: &mut Pair<'_>, cells: (u64, u64)) -> Result<Self, Failure> {
        let options = nemesis(cells);
        let memory = pair.queues(options.bytes())?;
        let index = u32::from(!pair.is_source());
        if pair.is_source() {
            let zeros = [0; 4096];
            for at in (0..memory.bytes()).step_by(zeros.len()) {
                memory.copy_in(at, &zeros[..zeros.len().min(memory.bytes() - at)]);
            }
            Nemesis::new(&memory, options, index).prepare();
        }
        pair.barrier()?;
        let process = Nemesis::new(&memory, options, index);
        Ok(Self { process, cell_bytes: options.cell_bytes, now: None })
    }
}

impl Operations for PrintedQueue {
    fn local(&self) -> Role {
        Role::Target
    }

    fn register(&mut self, _: &mut Pair<'_>, place: Place) -> Result<(), Failure> {
        self.now = Some(place);
        Ok(())
    }

    fn deregister(&mut self, _: &mut Pair<'_>) -> Result<(), Failure> {
        self.now = None;
        Ok(())
    }

    #[inline(always)]
    fn copy_local(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        let Some(Place { at, bytes }) = self.now else { return Ok(()) };
        let mut done = 0;
        while done < bytes {
            let (process, mut piece) = (&mut self.process, None);
            pair.until_filled(Place { at: at + done, bytes: bytes - done }, |rest| {
                piece = process.try_receive(Some(0), rest);
                piece.is_some()
            })?;
            done += piece.map_or(0, |piece| piece.bytes);
        }
        Ok(())
    }

    #[inline(always)]
    fn copy_remote(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        let Some(Place { at, bytes }) = self.now else { return Ok(()) };
        for from in (0..bytes).step_by(self.cell_bytes) {
            let length = self.cell_bytes.min(bytes - from);
            let piece = pair.private.slice(Place { at: at + from, bytes: length });
            let process = &mut self.process;
            pair.until(|| process.try_send(1, 0, bytes as u64, piece))?;
        }
        Ok(())
    }
}
