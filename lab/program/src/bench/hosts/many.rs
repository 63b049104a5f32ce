//! Many peers of one endpoint: how long it takes until 1,000 that dial at once are connected, and what they cost while they do
//! nothing.

use std::ops::Range;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use corewire::{ChannelName, Hosts, Selector, Wait};
use corewire_harness::board::Board;
use corewire_net::open::{Numbers, Opened, Own, Target, dial};
use corewire_ring::sync::Ordering::{Acquire, Release};

use super::super::prelude::*;
use super::{End, GROWN, IDLE_USED, PEERS, own_ns};

const COUNT: usize = 1000;
/// Peers that come before, and go again.
const FIRST: usize = 128;
/// How long they do nothing.
const IDLE: Duration = Duration::from_secs(2);
/// Between two looks who has come.
const LOOKS_EVERY: Duration = Duration::from_millis(5);
const WITHIN: Duration = Duration::from_secs(60);

/// Connects so many at once. Returns them, and how long that took.
fn dial_all(
    hosts: &Hosts,
    target: &Target,
    numbers: Range<usize>,
) -> Result<(Vec<Opened>, Duration), Failure> {
    let all_at_once = Barrier::new(numbers.len() + 1);
    let (opened, took): (Vec<Result<Opened, Failure>>, _) = thread::scope(|scope| {
        let one = |number: usize| {
            let all_at_once = &all_at_once;
            let thread = thread::Builder::new().stack_size(128 << 10);
            thread.spawn_scoped(scope, move || {
                let name =
                    ChannelName::new(&format!("dialler-{number}")).map_err(Failure::other)?;
                let own = Own { name, incarnation: 1 << 64 | number as u128 };
                let numbers = Numbers { connection: number as u64 + 1, last: 0 };
                all_at_once.wait();
                dial(hosts, &own, numbers, target, WITHIN).map_err(Failure::other)
            })
        };
        let threads: Vec<_> = numbers.clone().map(one).collect();
        all_at_once.wait();
        let start = Instant::now();
        let join = |thread: std::io::Result<thread::ScopedJoinHandle<'_, _>>| match thread?.join() {
            Ok(opened) => opened,
            Err(_) => Err(Failure::other("a thread that dials has panicked")),
        };
        (threads.into_iter().map(join).collect(), start.elapsed())
    });
    Ok((opened.into_iter().collect::<Result<_, _>>()?, took))
}

/// The side that dials.
pub(super) fn lead(directory: &Path, board: &Board, report: &mut Report) -> Result<(), Failure> {
    let hosts = Hosts::read(&directory.join("a.toml")).map_err(Failure::other)?;
    let target = Target::parse("many@b").map_err(Failure::other)?;
    let target = target.ok_or_else(|| Failure::other("no target"))?;
    // What the first ones cost the process, is not counted.
    let (first, _) = dial_all(&hosts, &target, COUNT..COUNT + FIRST)?;
    let await_peers = |count: usize| {
        while board.word(0, PEERS).load(Acquire) < count as u64 {
            thread::yield_now();
        }
    };
    await_peers(FIRST);
    first.into_iter().for_each(Opened::leave);
    let (opened, took) = dial_all(&hosts, &target, 0..COUNT)?;
    // The other side sees them all, and then does nothing but wait.
    await_peers(COUNT);
    let word = |word: usize| board.word(0, word).load(Acquire);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let [bytes, used_ns, count] = [word(GROWN), word(IDLE_USED), COUNT as u64].map(|it| it as f64);
    report.figure(
        "dials_s",
        "1,000 that dial at once, until all are connected",
        took.as_secs_f64(),
        "s",
    );
    report.figure("idle_peer_bytes", "memory of each that does nothing", bytes / count, "bytes");
    report.figure(
        "idle_peers_core",
        "what all of them take of a core",
        used_ns / 1e9 / IDLE.as_secs_f64(),
        "cores",
    );
    opened.into_iter().for_each(Opened::leave);
    Ok(())
}

/// The side that is dialled.
pub(super) struct Follower(End);

impl Follower {
    pub(super) fn create(directory: &Path) -> Result<Self, Failure> {
        Ok(Self(End::create_with(directory, "b", "many", |it| it.wait(Wait::Park).peers(1024))?))
    }

    pub(super) fn follow(mut self, board: &Board) -> Result<(), Failure> {
        let endpoint = &mut self.0.endpoint;
        let mut await_peers = |count: usize| {
            while endpoint.peers()?.len() != count {
                endpoint.receive_into_timeout(Selector::any(), &mut [], LOOKS_EVERY)?;
            }
            Ok::<_, Failure>(())
        };
        await_peers(FIRST)?;
        board.word(0, PEERS).store(FIRST as u64, Release);
        await_peers(0)?;
        let before = resident()?;
        await_peers(COUNT)?;
        // Nothing is left to be done for any of them by then.
        endpoint.receive_into_timeout(Selector::any(), &mut [], IDLE / 4)?;
        let grown = resident()?.saturating_sub(before);
        let used = own_ns();
        endpoint.receive_into_timeout(Selector::any(), &mut [], IDLE)?;
        for (word, value) in [(GROWN, grown), (IDLE_USED, own_ns() - used), (PEERS, COUNT as u64)] {
            board.word(0, word).store(value, Release);
        }
        Ok(())
    }
}

/// Bytes of this process's memory that it has, not those that it may have.
fn resident() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    let pages = pages.ok_or_else(|| Failure::other("/proc/self/statm says nothing"))?;
    Ok(pages * rustix::param::page_size() as u64)
}
