//! Nemesis as published, in all its forms.

use corewire_harness::board::path_of;
use corewire_os::memory::Segment;
use corewire_published::rings::{FreeQueue, Nemesis, NemesisOptions};

use super::{Id, Seat, TAG, Wire};
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

pub(super) fn settings(options: &str) -> String {
    format!("as printed: {options}; {CELLS} cells of {} KiB a process", (CELL_BYTES + 32) >> 10)
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

/// One form of Nemesis. `ID` is its index in [`IDS`].
pub(crate) struct Published<const ID: usize> {
    process: Nemesis,
    other: u32,
    patience: Patience,
}

const IDS: [Id; 5] =
    [Id::Nemesis, Id::NemesisQueues, Id::NemesisPlain, Id::NemesisReceiver, Id::NemesisGlobal];

pub(crate) type All = Published<0>;
pub(crate) type Queues = Published<1>;
pub(crate) type Plain = Published<2>;
pub(crate) type AtReceiver = Published<3>;
pub(crate) type Global = Published<4>;

impl<const ID: usize> Wire for Published<ID> {
    fn open(seat: &Seat) -> Result<Self, Failure> {
        let missing = || Failure::other("no form of Nemesis");
        let options = IDS[ID].published().ok_or_else(missing)?;
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
