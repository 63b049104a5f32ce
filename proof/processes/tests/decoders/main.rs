//! Generated decoders get wrong bytes of every kind: random ones, and changed messages. They never panic, allocate no more
//! than the limit, and what they accept has an encoding that is decoded to the same value. 10 MB of input, or
//! `COREWIRE_RANDOM_BYTES`. A process of its own: it has an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use corewire_bind::{DecodeError, EncodeError};
use corewire_processes::interfaces::Place;
use corewire_processes::interfaces::trip::{Any, Random};

/// Generated code. What uses its private functions is below it.
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    clippy::all,
    clippy::pedantic
)]
mod newer {
    include!(concat!(env!("OUT_DIR"), "/newer.rs"));
    pub(crate) mod kinds;
}

/// Generated code names it so.
mod interfaces {
    pub(crate) use crate::newer;
}

/// Random values of its types.
#[allow(
    dead_code,
    non_camel_case_types,
    unreachable_pub,
    missing_docs,
    clippy::all,
    clippy::pedantic
)]
mod values {
    include!(concat!(env!("OUT_DIR"), "/newer_round_trip.rs"));
}

/// Bytes of input, if nothing else is asked for.
const BYTES: u64 = 10_000_000;
/// Messages of each kind that are kept to be changed.
const KEPT: usize = 64;
/// No message becomes longer by changes.
const LONGEST: usize = 1 << 14;
/// `Bind::decoded_bytes` of a binding that sets nothing.
const MEMORY_MAX: usize = 256 << 20;
/// Memory that decoding takes for a moment, above that of the value: arrays are decoded into a vector first.
const FOR_A_MOMENT: usize = 4096;
/// A value whose memory is not counted, since no element of its message has a variable size, takes at most so many times
/// the bytes of the message.
const TIMES: usize = 8;

/// Counts the memory of the thread that asks.
struct Counting;

thread_local! {
    // Less than 0 where this thread frees what another one has allocated.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = LIVE.try_with(|live| {
            live.set(live.get() + layout.size().cast_signed());
            let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
        });
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let _ = LIVE.try_with(|live| live.set(live.get() - layout.size().cast_signed()));
        // SAFETY: the caller's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` returns, the memory that this takes, and the most that was taken meanwhile.
fn measured<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let done = work();
    let more = |now: isize| usize::try_from(now - before).unwrap();
    (done, more(LIVE.get()), more(PEAK.get()))
}

/// Makes a message of random values.
type Make = Box<dyn Fn(&mut Random) -> Vec<u8>>;
/// Decodes bytes within a limit of memory, and checks what comes of it. Whether they were accepted.
type Check = Box<dyn Fn(&[u8], usize) -> bool>;

/// A kind of message.
pub(crate) struct Kind {
    name: &'static str,
    make: Make,
    check: Check,
}

/// How much of the memory of a value is counted against the limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// All.
    All,
    /// All, except for the details of an error, of which there are few.
    AllButDetails,
    /// Nothing.
    Nothing,
}

impl Kind {
    pub(crate) fn new<V: PartialEq + Debug + 'static>(
        name: &'static str,
        counted: Counted,
        any: fn(&mut Random) -> V,
        encode: fn(&mut Vec<u8>, &V) -> Result<(), EncodeError>,
        decode: fn(&[u8], usize) -> Result<V, DecodeError>,
    ) -> Self {
        let encoded = move |value: &V| {
            let mut bytes = Vec::new();
            encode(&mut bytes, value).expect("a value that was decoded has an encoding");
            bytes
        };
        let check = move |input: &[u8], memory_max: usize| {
            let (decoded, held, most) = measured(|| decode(input, memory_max));
            let allowed = match counted {
                Counted::All => memory_max,
                Counted::AllButDetails => memory_max.saturating_add(TIMES * input.len()),
                Counted::Nothing => TIMES * input.len(),
            };
            assert!(held <= allowed, "the value takes {held} bytes, and {allowed} are allowed");
            assert!(
                most <= allowed.saturating_add(FOR_A_MOMENT),
                "{most} bytes, and {allowed} are allowed"
            );
            let Ok(value) = decoded else {
                assert_eq!(held, 0, "an error takes memory");
                return false;
            };
            let bytes = encoded(&value);
            let again = decode(&bytes, MEMORY_MAX).expect("an encoding can be decoded");
            assert!(is_same(&value, &again), "{value:?} became {again:?}");
            // All bits of floating-point numbers are in the encoding.
            assert_eq!(bytes, encoded(&again), "{value:?}");
            true
        };
        Self { name, make: Box::new(move |random| encoded(&any(random))), check: Box::new(check) }
    }
}

/// Whether values are equal. A value with a NaN is not equal to itself, but is written as the other one is.
#[allow(clippy::eq_op)]
fn is_same<V: PartialEq + Debug>(value: &V, other: &V) -> bool {
    value == other || (value != value && format!("{value:?}") == format!("{other:?}"))
}

/// What may stand in a message as a length: the numbers of the interface file, their neighbours, and extremes.
fn lengths() -> Vec<u32> {
    let text = include_str!("../../if/newer.if");
    let numbers =
        text.split(|letter: char| !letter.is_ascii_digit()).filter_map(|it| it.parse().ok());
    let near = numbers.flat_map(|number: u32| [number.saturating_sub(1), number, number + 1]);
    let all =
        near.chain([0, 1, 4096, 4097, 1 << 31, u32::MAX - 1, u32::MAX]).collect::<BTreeSet<_>>();
    all.into_iter().collect()
}

/// Changes `input`, of which there are others of the same kind.
fn change(input: &mut Vec<u8>, others: &[Vec<u8>], lengths: &[u32], random: &mut Random) {
    let at = random.below(input.len() + 1);
    match random.below(10) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = random.number().to_le_bytes()[0],
        2 => input.truncate(at),
        3 => {
            let end = at + random.below(input.len() - at + 1);
            input.drain(at..end);
        }
        // The end of another one.
        4 => {
            let other = &others[random.below(others.len())];
            input.truncate(at);
            input.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
        5 => {
            let count = random.below(24);
            let bytes = random.array::<_, 24>(|random| random.number().to_le_bytes()[0]);
            input.splice(at..at, bytes.into_iter().take(count));
        }
        // A part of itself once more.
        6 => {
            let end = at + random.below((input.len() - at).min(64) + 1);
            input.extend_from_within(at..end);
        }
        // One element more, and bytes for it.
        7 | 8 if input.len() >= 4 => {
            let number =
                |at: usize| u32::from_le_bytes(std::array::from_fn(|index| input[at + index]));
            let is_length =
                |at: &usize| lengths.contains(&number(*at)) && (1..100).contains(&number(*at));
            let first = random.below(input.len() - 3);
            let Some(length_at) = (first..input.len() - 3).find(is_length) else { return };
            let more = number(length_at) + 1;
            input[length_at..length_at + 4].copy_from_slice(&more.to_le_bytes());
            let at = length_at + 4 + random.below(input.len() - length_at - 3);
            let count = [1, 1, 1, 4, 8, 17, 21][random.below(7)];
            input.splice(at..at, std::iter::repeat_n(0, count));
        }
        _ if input.len() >= 4 => {
            // Fixed parts are at the beginning.
            let until = if random.flag() { input.len().min(64) } else { input.len() };
            let at = random.below(until - 3);
            let length = lengths[random.below(lengths.len())];
            input[at..at + 4].copy_from_slice(&length.to_le_bytes());
        }
        _ => input.push(0),
    }
    input.truncate(LONGEST);
}

/// Bytes that were no message. Many are zeros and small numbers, so that some of them are nearly right.
fn noise(random: &mut Random) -> Vec<u8> {
    let is_small = random.flag();
    let byte = |random: &mut Random| match random.below(8) {
        0..4 if is_small => 0,
        4..6 if is_small => random.below(8).to_le_bytes()[0],
        _ => random.number().to_le_bytes()[0],
    };
    (0..random.below(300)).map(|_| byte(random)).collect()
}

// Keeps P185.
#[test]
fn wrong_bytes_are_refused_or_are_a_value() {
    let given = std::env::var("COREWIRE_RANDOM_BYTES").ok();
    let bytes = given.map_or(BYTES, |count| count.parse().unwrap());
    let place = Place::without_monitors("decoders");
    let random = &mut Random::new(17, &place.domain);
    let (kinds, lengths, began) = (newer::kinds::kinds(), lengths(), Instant::now());
    let mut kept: Vec<Vec<Vec<u8>>> = kinds.iter().map(|_| Vec::new()).collect();
    let (mut read, mut inputs) = (0, 0_u64);
    let mut accepted = vec![0_u64; kinds.len()];
    let mut refused = accepted.clone();
    while read < bytes {
        for (index, kind) in kinds.iter().enumerate() {
            let kept = &mut kept[index];
            if kept.len() < KEPT || random.below(4) == 0 {
                let made = (kind.make)(random);
                assert!((kind.check)(&made, MEMORY_MAX), "{} of {made:02x?}", kind.name);
                let place = random.below(KEPT);
                match kept.get_mut(place) {
                    Some(former) => *former = made,
                    None => kept.push(made),
                }
            }
            let mut input = kept[random.below(kept.len())].clone();
            match random.below(16) {
                0 => input = noise(random),
                // Another kind of message.
                1 => input = (kinds[random.below(kinds.len())].make)(random),
                _ => {
                    for _ in 0..=random.below(3) {
                        change(&mut input, kept, &lengths, random);
                    }
                }
            }
            let memory_max = match random.below(4) {
                0 => random.below(2000),
                _ => MEMORY_MAX,
            };
            let is_accepted = catch_unwind(AssertUnwindSafe(|| (kind.check)(&input, memory_max)));
            let Ok(is_accepted) = is_accepted else {
                panic!("{} with {memory_max} bytes of memory: {input:02x?}", kind.name)
            };
            (read, inputs) = (read + input.len() as u64, inputs + 1);
            match is_accepted {
                true => accepted[index] += 1,
                false => refused[index] += 1,
            }
            // Changes add up.
            if is_accepted && random.flag() {
                let place = random.below(kept.len());
                kept[place] = input;
            }
        }
    }
    for (kind, (accepted, refused)) in kinds.iter().zip(accepted.iter().zip(&refused)) {
        println!("{}: {accepted} accepted, {refused} refused", kind.name);
        assert!(*accepted > 0 && *refused > 0, "{}: one of them did not happen", kind.name);
    }
    println!("{read} bytes in {inputs} inputs, {:.1} s", began.elapsed().as_secs_f64());
}
