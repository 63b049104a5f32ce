//! The actions of the neighbour, one word at a time.

use corewire_layout::geometry::Geometry;
use corewire_layout::slot::{CLAIMED, KIND_LARGE, KIND_WINDOW, shared_stamp, stamp_of};

/// One word that the neighbour writes, and the calls of the victim that follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// Chooses the word.
    pub place: u16,
    /// The kind of the value; see [`Step::value`].
    pub shape: u8,
    /// The value itself, or a number that selects it.
    pub value: u64,
    /// Selects the call that comes first, and whether the word is restored after the calls.
    pub order: u16,
}

/// Length in bytes of a step in a fuzzer's input.
pub const STEP_BYTES: usize = 13;

impl Step {
    /// The steps of a fuzzer's input.
    pub fn of_bytes(bytes: &[u8]) -> impl Iterator<Item = Self> + '_ {
        let (chunks, _) = bytes.as_chunks::<STEP_BYTES>();
        chunks.iter().map(|chunk| {
            let word = |at: usize| u16::from_le_bytes([chunk[at], chunk[at + 1]]);
            let value = (0..8).rev().fold(0, |all, at| all << 8 | u64::from(chunk[3 + at]));
            Self { place: word(0), shape: chunk[2], value, order: word(11) }
        })
    }

    /// Chooses an index below `count`, by the place.
    #[must_use]
    pub(crate) fn choose(&self, count: usize) -> usize {
        usize::from(self.place) % count.max(1)
    }

    /// Returns true for one step in `one_in`.
    #[must_use]
    pub(crate) fn happens(&self, one_in: u16) -> bool {
        (self.order >> 4).is_multiple_of(one_in)
    }

    /// The value to write: anything, or a value close to one that matters. `around` is the sequence
    /// number at which the victim is; `found` is what the word holds.
    #[must_use]
    pub fn value(&self, around: u64, found: u64, geometry: &Geometry) -> u64 {
        let value = self.value;
        let near = |centre: u64| centre.wrapping_add(value % 5).wrapping_sub(2);
        let slots = geometry.slots();
        // A message up to two laps before or after this one.
        let sequence = around.wrapping_add(value % (4 * slots)).wrapping_sub(2 * slots);
        let sizes = [
            geometry.message_bytes_max(),
            geometry.window_bytes(),
            geometry.window_message_bytes_max(),
            geometry.large_bytes(),
            geometry.segment_bytes(),
            48,
            1 << 40,
            1 << 52,
            u64::MAX / 2,
            u64::from(u32::MAX),
        ];
        let size = sizes[usize::try_from(value % 10).expect("small")];
        match self.shape % 24 {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => u64::MAX / 2,
            4 => near(u64::from(u32::MAX)),
            5 => near(1 << 31),
            6 => near(0),
            7 | 8 => stamp_of(sequence),
            9 => stamp_of(sequence) | (value >> 32) & 0xfff,
            10 if value & 1 == 0 => stamp_of(around) | CLAIMED,
            10 => shared_stamp(around, 3, 5),
            11 => sequence,
            12 => near(around),
            13 => value % 50,
            14 => [KIND_WINDOW, KIND_LARGE, KIND_LARGE + 1]
                [usize::try_from(value % 3).expect("small")],
            15 => near(size),
            16 => (size / 64 * 64).wrapping_add(value / 16 % 3 * 64).wrapping_sub(64),
            17 => found ^ 1 << (value % 64),
            18 => near(found),
            19 => value % 64 * 64,
            20 => (value & 7) << 32 | value >> 32 & 3,
            21 => found.wrapping_add(1 << 31),
            22 => near(u64::MAX),
            _ => value,
        }
    }
}

/// A generator of random steps from a seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Creates a generator from `COREWIRE_SEED` or, without it, from the clock. Prints the seed.
    #[must_use]
    pub fn from_environment() -> Self {
        let given = std::env::var("COREWIRE_SEED").ok().and_then(|seed| seed.parse().ok());
        let time = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos());
        let seed = given.unwrap_or(u64::try_from(time & 0xffff_ffff).unwrap_or(0));
        println!("COREWIRE_SEED={seed}");
        Self::new(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A random number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.number() >> 8) % end.max(1)
    }

    /// The next step.
    pub fn step(&mut self) -> Step {
        let (a, b) = (self.number(), self.number());
        let [p, q, r, s, t, ..] = a.to_le_bytes();
        Step {
            place: u16::from_le_bytes([p, q]),
            shape: r,
            value: b,
            order: u16::from_le_bytes([s, t]),
        }
    }
}
