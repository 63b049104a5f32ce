//! Nemesis as published, in all its forms.

use corewire_harness::board::path_of;
use corewire_os::memory::Segment;
use corewire_published::rings::{FreeQueue, Nemesis, NemesisOptions};

use super::{Seat, TAG, Wire};
use crate::study::failure::{Doing, Failure};
use crate::study::mechanisms::{Kept, Patience};

pub(super) type Options = NemesisOptions;

/// The sizes that its authors used.
const CELLS: u32 = 64;
const CELL_BYTES: usize = (64 << 10) - 32;

pub(super) const fn options(
    free_queue: FreeQueue,
    has_shadow_head: bool,
    has_fastboxes: bool,
) -> Options {
    let (processes, cells, cell_bytes) = (2, CELLS, CELL_BYTES);
    Options { processes, cells, cell_bytes, free_queue, has_shadow_head, has_fastboxes }
}

pub(super) fn settings(options: Options) -> String {
    let free_queue = match options.free_queue {
        FreeQueue::Sender => "free queue at the sender",
        FreeQueue::Receiver => "free queue at the receiver, under a lock",
        FreeQueue::Global => "one free queue, under a lock",
    };
    let shadow_head = if options.has_shadow_head { ", shadow head" } else { "" };
    let fastboxes = if options.has_fastboxes { ", fastboxes" } else { "" };
    let cell = (CELL_BYTES + 32) >> 10;
    format!(
        "as printed: {free_queue}{shadow_head}{fastboxes}; {CELLS} cells of {cell} KiB a process"
    )
}

fn segment_bytes(options: Options) -> u64 {
    options.bytes().next_multiple_of(4096) as u64
}

pub(super) fn set_up(options: Options) -> Result<(Kept, String), Failure> {
    let made = Segment::create_writable_by_all(segment_bytes(options));
    let (segment, memory) = made.doing("make shared memory")?;
    Nemesis::new(&memory, options, 0).prepare();
    let path = path_of(&segment);
    Ok((Box::new((segment, memory)), path))
}

/// One of the forms of Nemesis.
pub(crate) struct Published {
    process: Nemesis,
    other: u32,
    patience: Patience,
}

impl Wire for Published {
    fn open(seat: &Seat) -> Result<Self, Failure> {
        let options = seat.wire.published();
        let options = options.ok_or_else(|| Failure::other("no form of Nemesis"))?;
        let segment = Segment::open_writable(&seat.ticket).doing("open shared memory")?;
        let memory = segment.map_writable(segment_bytes(options)).doing("map shared memory")?;
        let process = Nemesis::new(&memory, options, seat.index);
        Ok(Self { process, other: seat.next(), patience: seat.patience() })
    }

    #[inline(always)]
    fn send(&mut self, message: &[u8]) -> Result<(), Failure> {
        let Self { process, other, patience } = self;
        let total = message.len() as u64;
        let mut rest = message;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(CELL_BYTES));
            patience.until(|| process.try_send(*other, TAG, total, piece).then_some(()));
            rest = after;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    #[inline(always)]
    fn receive(&mut self, target: &mut [u8]) -> Result<(), Failure> {
        let Self { process, other, patience } = self;
        let mut filled = 0;
        loop {
            let part = &mut target[filled..];
            let piece = patience.until(|| process.try_receive(Some(*other), part));
            filled += piece.bytes;
            if piece.tag != TAG || piece.total != target.len() as u64 {
                return Err(Failure::other("a message that nobody sent"));
            }
            if filled == target.len() {
                return Ok(());
            }
        }
    }
}
