//! Windows beside bare memory: loads, stores and additions on lines that a peer has written just before, located once and
//! checked at each call; and puts of 1 MiB beside the best copy routine.
//!
//! Both memories are shared with the same peer, which writes every line before each pass. All blocks are in the same
//! process and the same round.

use corewire::{Window, WindowRights, WindowWord};
use corewire_ring::copying::{self, CLASSES, NextReader, Plan, Routine};
use corewire_ring::sync::AtomicU64;
use corewire_ring::sync::Ordering::{Acquire, Release, SeqCst};

use super::prelude::*;

pub(super) const ROLE: Role<Options> = Role { name: "window", work: peer };

/// Lines of a pass, and the distance of two of them: processors prefetch lines in pairs.
const LINES: usize = 1024;
const STRIDE: usize = 128;
const BYTES: usize = LINES * STRIDE;
/// Passes of a block.
const PASSES: u64 = 40;
/// What a put of the second part moves, and the memory that it moves through in turn.
const PUT_BYTES: usize = 1 << 20;
const COLD: usize = 64 << 20;
const WARM: usize = 2 << 20;
/// Puts of a block, and those before it that are not timed.
const PUTS: usize = 32;
const UNTIMED: usize = 4;

const WAYS: [&str; 9] = [
    "bare_store",
    "at_store",
    "bare_load",
    "at_load",
    "bare_add",
    "at_add",
    "checked_store",
    "checked_load",
    "checked_add",
];

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut crew = setup(1).memory_bytes(BYTES).start(&ROLE, |_| options.clone())?;
    let owner = crew.domain()?.window("lines", BYTES as u64).prefault(true).create()?;
    let window = crew.domain()?.attach_window("lines", WindowRights::ATOMIC)?;
    crew.await_step(0, 1)?;
    let memory = crew.board().work()?;
    let bare: Vec<&AtomicU64> = (0..LINES).map(|line| memory.word64(line * STRIDE)).collect();
    let located = (0..LINES).map(|line| window.at::<u64>((line * STRIDE) as u64));
    let located: Vec<WindowWord<'_, u64>> = located.collect::<Result<_, _>>()?;
    let mut step = 1;
    let blocks = alternate(options.rounds, |_| {
        let mut times = [0.0; WAYS.len()];
        // The peer writes the lines, then this process uses them.
        for _ in 0..PASSES {
            for (way, time) in times.iter_mut().enumerate() {
                step += 1;
                memory_of(&crew, step);
                crew.await_step(0, step)?;
                let start = Instant::now();
                pass(way, &bare, &located, &window)?;
                #[expect(clippy::cast_precision_loss, reason = "few lines")]
                let lines = (LINES as u64 * PASSES) as f64;
                *time += start.elapsed().as_secs_f64() * 1e9 / lines;
            }
        }
        Ok::<_, Failure>(times)
    })?;
    report.value("rounds", options.rounds);
    for (index, way) in WAYS.iter().enumerate() {
        report.figure(&format!("{way}_ns"), &way.replace('_', " "), blocks.median(index), "ns");
    }
    for (name, over, under) in [("store", 1, 0), ("load", 3, 2), ("add", 5, 4)] {
        let ratio = blocks.ratio(over, under);
        report.spread(&format!("at_{name}_ratio"), ratio);
        report.spread_note(&format!("located, {name}, to bare"), ratio);
    }
    for (name, checked, under) in [("store", 6, 0), ("load", 7, 2), ("add", 8, 4)] {
        let more =
            blocks.of(checked).iter().zip(blocks.of(under)).map(|(over, under)| over - under);
        let more = corewire_harness::statistics::median(more);
        report.figure(
            &format!("checked_{name}_more_ns"),
            &format!("checked, {name}, more"),
            more,
            "ns",
        );
    }
    drop(located);
    drop((owner, window));
    puts(options, &crew, report)?;
    memory_of(&crew, u64::MAX);
    crew.finish_with(report)
}

/// Asks the peer to write the lines, for this step.
fn memory_of(crew: &Crew, step: u64) {
    crew.board().word(0, ASKED).store(step, Release);
}

/// The word of the step that the peer is asked for, which the controller writes.
const ASKED: usize = 3;

/// One pass over all lines.
#[inline(never)]
fn pass(
    way: usize,
    bare: &[&AtomicU64],
    located: &[WindowWord<'_, u64>],
    window: &Window,
) -> Result<(), Failure> {
    let mut sum = 0u64;
    let offsets = (0..LINES).map(|line| (line * STRIDE) as u64);
    match way {
        0 => bare.iter().for_each(|word| word.store(7, Release)),
        1 => located.iter().for_each(|word| word.store(7)),
        2 => sum = bare.iter().fold(sum, |sum, word| sum.wrapping_add(word.load(Acquire))),
        3 => sum = located.iter().fold(sum, |sum, word| sum.wrapping_add(word.load())),
        4 => bare.iter().for_each(|word| _ = black_box(word.fetch_add(1, SeqCst))),
        5 => located.iter().for_each(|word| _ = black_box(word.fetch_add(1))),
        6 => {
            for offset in offsets {
                window.put(offset, &7u64.to_le_bytes())?;
            }
        }
        7 => {
            for offset in offsets {
                sum = sum.wrapping_add(window.load::<u64>(offset)?);
            }
        }
        _ => {
            for offset in offsets {
                black_box(window.at::<u64>(offset)?.fetch_add(1));
            }
        }
    }
    black_box(sum);
    // What is still in the store buffer belongs to this pass.
    window.flush();
    Ok(())
}

/// Puts of 1 MiB as they are, and by each routine alone, to the same memory: through so much in turn that it has left the
/// caches near the core, and through little.
fn puts(options: &Options, crew: &Crew, report: &mut Report) -> Result<(), Failure> {
    let _owner = crew.domain()?.window("blocks", COLD as u64).prefault(true).create()?;
    let window = crew.domain()?.attach_window("blocks", WindowRights::WRITE)?;
    let routines: Vec<Routine> = Routine::ALL.into_iter().filter(|it| it.is_possible()).collect();
    let plans = [NextReader::Peer, NextReader::Nobody].map(|next| (next, copying::plan(next)));
    let set = |routine: Option<&Routine>| {
        for (next, own) in plans {
            copying::set_plan(next, routine.map_or(own, |routine| Plan::new([*routine; CLASSES])));
        }
    };
    let source = vec![1u8; COLD];
    for (state, memory_bytes) in [("cold", COLD), ("warm", WARM)] {
        let mut next = 0;
        let blocks = alternate(options.rounds, |_| {
            let mut rates = Vec::new();
            for routine in routines.iter().map(Some).chain([None]) {
                set(routine);
                let mut start = Instant::now();
                // The first ones bring warm memory back, which the block before may have driven out.
                for put in 0..PUTS + UNTIMED {
                    if put == UNTIMED {
                        start = Instant::now();
                    }
                    next = (next + PUT_BYTES) % memory_bytes;
                    window.put(next as u64, &source[next..next + PUT_BYTES])?;
                }
                #[expect(clippy::cast_precision_loss, reason = "few bytes")]
                rates.push((PUTS * PUT_BYTES) as f64 / start.elapsed().as_secs_f64() / 1e9);
            }
            Ok::<_, Failure>(rates)
        })?;
        set(None);
        for (index, routine) in routines.iter().enumerate() {
            let key = format!("{state}_{}_gb_per_s", routine.name().replace('-', "_"));
            let words = format!("{state}, 1 MiB by {routine}");
            report.figure(&key, &words, blocks.median(index), "GB/s");
        }
        let put = routines.len();
        let words = format!("{state}, a put of 1 MiB");
        report.figure(&format!("{state}_put_gb_per_s"), &words, blocks.median(put), "GB/s");
        let best = (0..put).max_by(|a, b| blocks.median(*a).total_cmp(&blocks.median(*b)));
        let ratio = blocks.ratio(put, best.unwrap_or(0));
        report.spread(&format!("{state}_put_ratio"), ratio);
        report.spread_note(&format!("{state}, a put, to the best routine"), ratio);
    }
    Ok(())
}

/// Writes all lines of both memories whenever it is asked.
fn peer(worker: &Worker, _: Options) -> Result<(), Failure> {
    let window =
        worker.domain()?.attach_window_when_created("lines", WindowRights::ATOMIC, None)?;
    let memory = worker.board().work()?;
    let bare: Vec<&AtomicU64> = (0..LINES).map(|line| memory.word64(line * STRIDE)).collect();
    let located = (0..LINES).map(|line| window.at::<u64>((line * STRIDE) as u64));
    let located: Vec<WindowWord<'_, u64>> = located.collect::<Result<_, _>>()?;
    worker.reach(1);
    let asked = worker.board().word(worker.index(), ASKED);
    let mut step = 1;
    loop {
        let now = asked.load(Acquire);
        if now == u64::MAX {
            return Ok(());
        }
        if now > step {
            bare.iter().for_each(|word| word.store(now, Release));
            located.iter().for_each(|word| word.store(now));
            step = now;
            worker.reach(step);
        }
        corewire_ring::sync::pause();
    }
}
