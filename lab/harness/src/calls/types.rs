//! Round trips of the types of messages that the thesis measures (Grest, section 5.2), and of 100 bytes of fixed
//! size.

use super::ways::{Bound, Way};
use super::{Block, Client, check};
use crate::failure::Failure;
use crate::program::Program;
use crate::report::Report;
use crate::role::{Role, Worker};
use crate::rounds::{Blocks, alternate};

/// A type of message.
#[derive(Debug, Clone, Copy)]
pub struct Type {
    /// The thesis' name, and the name in results.
    pub name: &'static str,
    /// Bytes of its arguments.
    pub bytes: usize,
    call: fn(&mut Client, u64) -> Result<(), Failure>,
}

impl Type {
    const fn new(
        name: &'static str,
        bytes: usize,
        call: fn(&mut Client, u64) -> Result<(), Failure>,
    ) -> Self {
        Self { name, bytes, call }
    }
}

/// The thesis' ten types, then [`FIXED_100`].
pub const TYPES: [Type; 11] = [
    Type::new("empty", 0, |client, _| check(client.empty(), &())),
    Type::new("payload32_1", 4, |client, x| check(client.payload32_1(short(x)), &short(x))),
    Type::new("payload32_4", 16, |client, x| {
        check(client.payload32_4(1, 2, 3, short(x)).map(|out| out.v), &short(x))
    }),
    Type::new("payload32_8", 32, |client, x| {
        check(client.payload32_8(1, 2, 3, 4, 5, 6, 7, short(x)).map(|out| out.z), &short(x))
    }),
    Type::new("payload64_1", 8, |client, x| check(client.payload64_1(x), &x)),
    Type::new("payload64_4", 32, |client, x| {
        check(client.payload64_4(1, 2, 3, x).map(|out| out.v), &x)
    }),
    Type::new("payload64_8", 64, |client, x| {
        check(client.payload64_8(1, 2, 3, 4, 5, 6, 7, x).map(|out| out.z), &x)
    }),
    Type::new("buffer1", 1, buffer::<1>),
    Type::new("buffer100", 100, buffer::<100>),
    Type::new("buffer1000", 1000, buffer::<1000>),
    Type::new("fixed100", 100, |client, x| {
        let (words, last) = ([x; 12], short(x));
        check(client.fixed100(words, last).map(|out| (out.s, out.t)), &(words, last))
    }),
];
/// Indices in [`TYPES`].
pub const BUFFER_100: usize = 8;
/// 1000 bytes in a dynamic array.
pub const BUFFER_1000: usize = 9;
/// 100 bytes of fixed size.
pub const FIXED_100: usize = 10;

#[expect(clippy::cast_possible_truncation, reason = "any number will do")]
const fn short(number: u64) -> u32 {
    number as u32
}

fn buffer<const N: usize>(client: &mut Client, number: u64) -> Result<(), Failure> {
    let bytes = [number.to_le_bytes()[0]; N];
    check(client.buffer(&bytes).map(|same| same == bytes), &true)
}

/// The worker of [`measure`].
///
/// # Errors
/// If the service fails.
pub fn work(worker: &Worker, (): ()) -> Result<(), Failure> {
    super::ways::work(worker)
}

/// Measures all [`TYPES`] in alternating blocks; the figures are round trips in nanoseconds. `role` must run [`work`].
///
/// # Errors
/// If the processes cannot be started, or a call fails.
pub fn measure(
    way: &Way,
    program: Program,
    role: &Role<()>,
    rounds: u64,
) -> Result<Blocks, Failure> {
    let mut bound = Bound::start(way, program, role, &())?;
    let mut sizes = vec![Block::default(); TYPES.len()];
    let blocks = alternate(rounds, |_| {
        (program.check)()?;
        let types = TYPES.iter().zip(&mut sizes);
        types
            .map(|(kind, block)| block.time_ns(|number| (kind.call)(&mut bound.client, number)))
            .collect::<Result<Vec<f64>, _>>()
    })?;
    bound.finish()?;
    Ok(blocks)
}

/// Adds the results of a way: `types_WAY_TYPE_ns`, and the costs of dynamic arrays as `types_WAY_dynamic_100_ratio` (to
/// the same bytes of fixed size) and `types_WAY_dynamic_1000_ratio` (to 100 bytes).
pub fn describe(way: &Way, blocks: &Blocks, report: &mut Report) {
    for (index, kind) in TYPES.iter().enumerate() {
        let key = format!("types_{}_{}_ns", way.name, kind.name);
        let words = format!("{}, {}, round trip", way.words, kind.name);
        report.figure(&key, &words, blocks.median(index), "ns");
    }
    let ratios = [
        ("dynamic_100", "100 bytes, dynamic to fixed", BUFFER_100, FIXED_100),
        ("dynamic_1000", "dynamic, 1000 bytes to 100", BUFFER_1000, BUFFER_100),
    ];
    for (key, words, over, under) in ratios {
        let key = format!("types_{}_{key}_ratio", way.name);
        let words = format!("{}, {words}", way.words);
        report.ratios(&key, &words, &blocks.ratios(over, under));
    }
}
