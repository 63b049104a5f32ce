//! Large messages between two endpoints: copied by the kernel from both ends at once, by the receiver alone, and
//! through cells, which copies twice. All in the same run, in alternating blocks; cold and warm, as they are, and
//! written by the sender before and read by the receiver after.

use std::hint;

use corewire::{Domain, Endpoint, Peer as Other, Rendezvous, Selector};
use corewire_harness::statistics::median;
use corewire_layout::rendezvous::Stretch;
use corewire_os::processor::ticks;
use corewire_ring::message::Landing;
use corewire_transfer::Remote;
use serde_json::{Map, Value};
use zerocopy::IntoBytes;

use super::prelude::*;

pub(super) const ROLE: Role<Options> = Role { name: "large", work: peer };

/// Lengths of the messages, in bytes.
const SIZES: [usize; 7] = [16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// The size whose ratios are those of the whole benchmark.
const MAIN_BYTES: usize = 1 << 20;
/// Memory for the messages of one direction. Cold messages lie one behind the other, so that memory is used again only
/// when it has left every cache but the last.
const ARENA_BYTES: usize = 64 << 20;
const LINE_BYTES: usize = 64;

const WAYS: [(&str, Rendezvous); 3] =
    [("both", Rendezvous::BothSides), ("pull", Rendezvous::Pull), ("pipe", Rendezvous::Cells)];

/// Where the messages lie, and whether their bytes are written and read.
#[derive(Debug, Clone, Copy)]
struct State {
    name: &'static str,
    is_cold: bool,
    is_touched: bool,
}

const STATES: [State; 4] = [
    State { name: "cold_untouched", is_cold: true, is_touched: false },
    State { name: "cold_touched", is_cold: true, is_touched: true },
    State { name: "warm_untouched", is_cold: false, is_touched: false },
    State { name: "warm_touched", is_cold: false, is_touched: true },
];

/// Round trips of one block: about 10 ms.
fn trips(bytes: usize) -> usize {
    ((20 << 20) / bytes).clamp(1, 200)
}

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let crew = setup(1).start(&ROLE, |_| options.clone())?;
    let mut ends = ends(crew.domain()?, options, "parent", "peer")?;
    let mut arena = Arena::default();
    report.value("rounds", options.rounds);
    report.note(
        "one way, us          bytes         both         pull         pipe  pull/both  pipe/both",
    );
    let mut by_size = Vec::new();
    for bytes in SIZES {
        let mut row = Map::new();
        row.insert("bytes".into(), bytes.into());
        for state in STATES {
            let blocks = alternate(options.rounds, |_| {
                let mut times = [0.0; WAYS.len()];
                for (time, end) in times.iter_mut().zip(&mut ends) {
                    let start = Instant::now();
                    for _ in 0..trips(bytes) {
                        end.send(&mut arena, bytes, state)?;
                        end.receive(&mut arena, bytes, state)?;
                    }
                    #[expect(clippy::cast_precision_loss, reason = "few trips")]
                    let count = 2.0 * trips(bytes) as f64;
                    *time = start.elapsed().as_secs_f64() * 1e6 / count;
                }
                Ok::<_, Failure>(times)
            })?;
            let (to_pull, to_pipe) = (blocks.ratio(1, 0), blocks.ratio(2, 0));
            let mut figures = Report::default();
            let mut line = format!("{:<16} {bytes:>9}", state.name);
            for (block, (way, _)) in WAYS.iter().enumerate() {
                let us = blocks.median(block);
                figures.value(&format!("{way}_us"), thousandths(us));
                line.push_str(&format!(" {us:>12.1}"));
            }
            report.note(format!("{line} {:>10.3} {:>10.3}", to_pull.median, to_pipe.median));
            let is_main = bytes == MAIN_BYTES && state.is_cold && !state.is_touched;
            for report in [&mut figures].into_iter().chain(is_main.then_some(&mut *report)) {
                report.spread("both_sides_ratio", to_pull);
                report.spread("pipe_ratio", to_pipe);
            }
            row.insert(state.name.into(), figures.into());
        }
        by_size.push(Value::Object(row));
    }
    report.value("by_size", by_size);
    absent(options, &mut ends[0], &mut arena, report)?;
    ends.into_iter().try_for_each(|end| end.endpoint.close())?;
    computing(options, crew.domain()?, report)?;
    crew.finish_with(report)
}

fn peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let mut ends = ends(&worker.domain()?, &options, "peer", "parent")?;
    let mut arena = Arena::default();
    for bytes in SIZES {
        for state in STATES {
            for _ in all(options.rounds) {
                for end in &mut ends {
                    for _ in 0..trips(bytes) {
                        end.receive(&mut arena, bytes, state)?;
                        end.send(&mut arena, bytes, state)?;
                    }
                }
            }
        }
    }
    work_elsewhere(&options, &mut ends[0], &mut arena)?;
    ends.into_iter().try_for_each(|end| end.endpoint.close())?;
    send_to_computing(&options, &worker.domain()?)
}

/// How long a sender computes right after it has begun to send, and a receiver after it has posted a receive.
const ABSENT: Duration = Duration::from_millis(1);
/// Tags of the part with an absent sender: where its memory lies, when it began, and what the beginning cost it.
const PLACE: u64 = 1;
const BEGAN: u64 = 2;
const LARGE: u64 = 3;

/// Receives messages whose sender does something else after it has begun to send them, and copies as many bytes from
/// its memory without an endpoint.
fn absent(
    options: &Options,
    end: &mut End,
    arena: &mut Arena,
    report: &mut Report,
) -> Result<(), Failure> {
    let from = |tag| Selector::tag(tag).from(end.other);
    let mut place = [0u64; 4];
    end.endpoint.receive_into(from(PLACE), place.as_mut_bytes())?;
    let [pid, address, cookie_address, cookie] = place;
    let remote = Remote::new(u32::try_from(pid).unwrap_or(0), cookie.into());
    let mut paid = Vec::new();
    let blocks = alternate(options.rounds, |_| {
        // Written just now, like the message.
        end.endpoint.receive_into(from(BEGAN), &mut [])?;
        let source = Stretch { address, bytes: MAIN_BYTES as u64 };
        let target = arena.targets.next(MAIN_BYTES, true);
        let start = ticks();
        remote
            .read(cookie_address, &[source], &Landing::of_slice(target), 0, MAIN_BYTES as u64)
            .map_err(|(_, why)| Failure::other(format!("a bare copy: {why}")))?;
        let bare = nanoseconds(ticks() - start) / 1e3;
        end.endpoint.send(end.other, BEGAN, b"")?;
        let target = arena.targets.next(MAIN_BYTES, true);
        end.endpoint.receive_into(from(LARGE), target)?;
        let done = ticks();
        let mut times = [0u64; 2];
        end.endpoint.receive_into(from(BEGAN), times.as_mut_bytes())?;
        let [began, returned] = times;
        paid.push(nanoseconds(returned - began) / 1e3);
        Ok::<_, Failure>([bare, nanoseconds(done - began) / 1e3])
    })?;
    report.figure("bare_pull_us", "1 MiB, a bare copy by the kernel", blocks.median(0), "us");
    report.figure("absent_us", "1 MiB, its sender computes for 1 ms", blocks.median(1), "us");
    report.ratios("absent_ratio", "ratio to the bare copy", &blocks.ratios(1, 0));
    report.figure("sender_pays_us", "what the sender pays", median(paid), "us");
    Ok(())
}

/// The sender of these messages.
fn work_elsewhere(options: &Options, end: &mut End, arena: &mut Arena) -> Result<(), Failure> {
    let cookie = 0x636f_6f6b_6965_u64;
    let cookie_bytes = u128::from(cookie).to_le_bytes();
    let address = |bytes: &[u8]| bytes.as_ptr().expose_provenance() as u64;
    let pid = u64::from(std::process::id());
    let mut bare = vec![1; MAIN_BYTES];
    let place = [pid, address(&bare), address(&cookie_bytes), cookie];
    end.endpoint.send(end.other, PLACE, place.as_bytes())?;
    for _ in all(options.rounds) {
        bare.copy_from_slice(arena.sources.next(MAIN_BYTES, true));
        end.endpoint.send(end.other, BEGAN, b"")?;
        end.endpoint.receive_into(Selector::tag(BEGAN).from(end.other), &mut [])?;
        let message = arena.sources.next(MAIN_BYTES, true).to_vec();
        let began = ticks();
        let send = end.endpoint.isend(end.other, LARGE, message)?;
        let returned = ticks();
        compute();
        end.endpoint.wait(send)?;
        end.endpoint.send(end.other, BEGAN, [began, returned].as_bytes())?;
    }
    black_box((cookie_bytes, bare));
    Ok(())
}

fn compute() {
    let work = Instant::now();
    while work.elapsed() < ABSENT {
        hint::spin_loop();
    }
}

/// Names of the endpoints of the part with a receiver that computes, and of their sender.
const COMPUTING: [&str; 2] = ["computing", "progressing"];
const WRITER: &str = "writer";

/// Receives messages while it computes, without and with a progress thread: how long it must still wait when it has
/// computed.
fn computing(options: &Options, domain: &Domain, report: &mut Report) -> Result<(), Failure> {
    let create = |name: &str| domain.endpoint(name).wait(options.wait()).create();
    let (mut plain, mut progressing) = (create(COMPUTING[0])?, create(COMPUTING[1])?);
    let one = plain.peer_when_created(WRITER, None)?;
    let other = progressing.peer_when_created(WRITER, None)?;
    let progressing = progressing.with_progress_thread()?;
    let mut memory = [vec![1; MAIN_BYTES], vec![1; MAIN_BYTES]];
    let blocks = alternate(options.rounds, |_| {
        let [alone, helped] = memory.each_mut().map(std::mem::take);
        let posted = plain.ireceive(Selector::tag(LARGE), alone)?;
        plain.send(one, BEGAN, b"")?;
        compute();
        let start = ticks();
        let alone = plain.wait(posted)?.memory;
        let alone_us = nanoseconds(ticks() - start) / 1e3;
        let posted = progressing.lock()?.ireceive(Selector::tag(LARGE), helped)?;
        progressing.lock()?.send(other, BEGAN, b"")?;
        compute();
        let start = ticks();
        let helped = progressing.lock()?.wait(posted)?.memory;
        let helped_us = nanoseconds(ticks() - start) / 1e3;
        memory = [alone.into_vec(), helped.into_vec()];
        Ok::<_, Failure>([alone_us, helped_us])
    })?;
    let what = "1 MiB, wait of a receiver after it has computed for 1 ms";
    report.figure("computing_receiver_us", what, blocks.median(0), "us");
    report.figure("progress_thread_us", "the same with a progress thread", blocks.median(1), "us");
    report.ratios("progress_thread_ratio", "ratio to that", &blocks.ratios(1, 0));
    Ok(())
}

/// The sender of these messages.
fn send_to_computing(options: &Options, domain: &Domain) -> Result<(), Failure> {
    let mut writer = domain.endpoint(WRITER).wait(options.wait()).create()?;
    let message = vec![1; MAIN_BYTES];
    for _ in all(options.rounds) {
        for _ in COMPUTING {
            let other = writer.receive_into(Selector::tag(BEGAN), &mut [])?.source;
            writer.send(other, LARGE, &message)?;
        }
    }
    Ok(writer.close()?)
}

/// An endpoint of one way to move messages, and its peer.
struct End {
    endpoint: Endpoint,
    other: Other,
    sent: u64,
    received: u64,
}

fn ends(domain: &Domain, options: &Options, own: &str, other: &str) -> Result<Vec<End>, Failure> {
    let create = |(name, rendezvous): &(&str, Rendezvous)| {
        let builder = domain.endpoint(&format!("{own}-{name}")).wait(options.wait());
        let mut endpoint = builder.rendezvous(*rendezvous).create()?;
        let other = endpoint.peer_when_created(&format!("{other}-{name}"), None)?;
        Ok(End { endpoint, other, sent: 0, received: 0 })
    };
    WAYS.iter().map(create).collect()
}

impl End {
    fn send(&mut self, arena: &mut Arena, bytes: usize, state: State) -> Result<(), Failure> {
        self.sent += 1;
        let number = self.sent;
        let message = arena.sources.next(bytes, state.is_cold);
        if state.is_touched {
            message.chunks_mut(LINE_BYTES).for_each(|line| line[0] = line[0].wrapping_add(1));
        }
        message[..8].copy_from_slice(&number.to_le_bytes());
        message[bytes - 8..].copy_from_slice(&number.to_le_bytes());
        Ok(self.endpoint.send(self.other, 0, message)?)
    }

    fn receive(&mut self, arena: &mut Arena, bytes: usize, state: State) -> Result<(), Failure> {
        self.received += 1;
        let number = self.received.to_le_bytes();
        let message = arena.targets.next(bytes, state.is_cold);
        let status = self.endpoint.receive_into(Selector::any().from(self.other), message)?;
        if state.is_touched {
            black_box(message.chunks(LINE_BYTES).fold(0u8, |sum, line| sum.wrapping_add(line[0])));
        }
        if status.bytes != bytes as u64 || message[..8] != number || message[bytes - 8..] != number
        {
            return Err(Failure::other(format!("message {} arrived torn", self.received)));
        }
        Ok(())
    }
}

/// The memory of the messages.
#[derive(Default)]
struct Arena {
    sources: Ring,
    targets: Ring,
}

struct Ring {
    memory: Vec<u8>,
    at: usize,
}

impl Default for Ring {
    /// Memory whose pages are there.
    fn default() -> Self {
        Self { memory: vec![1; ARENA_BYTES], at: 0 }
    }
}

impl Ring {
    /// Where the next message of `bytes` bytes lies.
    fn next(&mut self, bytes: usize, is_cold: bool) -> &mut [u8] {
        if !is_cold {
            return &mut self.memory[..bytes];
        }
        if self.at + bytes > self.memory.len() {
            self.at = 0;
        }
        let from = self.at;
        // Never on the same lines of the pages.
        self.at += (bytes + LINE_BYTES).next_multiple_of(LINE_BYTES);
        &mut self.memory[from..from + bytes]
    }
}
