//! The same two jobs as the library does them: what a program gets that calls it.
//!
//! | study | each node | the first one also |
//! |---|---|---|
//! | `paxos` | is a member of a group, and has a state that applies what is decided ([`Replicated`]) | submits commands, many of which are under way |
//! | `checkpoint` | is a rank of a [`Computation`], and answers | gathers, again and again |
//!
//! The roles of the other rows do one thing each, in a process of its own, and nobody fails. Here a process has several,
//! the log survives deaths, and checkpoints are written to files.

use std::time::{Duration, Instant};

use corewire_group::{Computation, DecidedEntry, Gathered, Group, Replicated, StateMachine};
use corewire_published::yardstick::payload;
use corewire_ring::sync::Ordering::{Acquire, Release};

use super::point::{END, HEADER_BYTES, Node, Report, head, put_head};
use crate::study::failure::{Doing, Failure};
use crate::study::mechanisms::{About, Kind};

/// Commands that are under way at most, and their bytes: as many as the channels of the other rows hold.
const UNDER_WAY: u64 = 1024;
const UNDER_WAY_BYTES: usize = 1 << 20;
/// Commands between two looks at what is decided.
const AT_ONCE: u64 = 128;
/// The name of the group and of the computation.
const NAME: &str = "study";
/// A step of the first node: others may come.
const FIRST: u64 = 1;

/// What there is to say of it.
pub(super) fn about() -> About {
    About {
        id: "library".to_owned(),
        name: "corewire, the library\u{2019}s own".to_owned(),
        kind: Kind::Copying,
        has_many_senders: true,
        is_lossy: false,
        settings: format!(
            "a log: as many members as learners, one of which submits commands, {UNDER_WAY} or 1 MiB under way at most, and \
             the library\u{2019}s defaults; checkpoints: Computation::gather, and the files that it writes"
        ),
    }
}

// A log.

/// What a member makes of the log: whether it is the one that was submitted, and its sum.
#[derive(Default)]
struct Learned {
    count: u64,
    sequence: u64,
    is_over: bool,
    wrong: Option<String>,
}

impl StateMachine for Learned {
    type Output = ();

    fn apply(&mut self, entry: &DecidedEntry) {
        let (number, _) = head(&entry.command);
        if number == END {
            self.is_over = true;
        } else if number == self.count {
            let (_, last) = payload::ends(&entry.command[HEADER_BYTES..]);
            self.sequence = self.sequence.rotate_left(5) ^ last.wrapping_add(number);
            self.count += 1;
        } else {
            let due = self.count;
            self.wrong = Some(format!("command {number} is decided where {due} was due"));
        }
    }

    fn snapshot(&self) -> Vec<u8> {
        [self.count, self.sequence].map(u64::to_le_bytes).concat()
    }

    fn restore(&mut self, snapshot: &[u8]) {
        (self.count, self.sequence) = head(snapshot);
    }
}

pub(super) fn agree(node: &Node<'_>) -> Result<Report, Failure> {
    let worker = node.worker();
    let is_first = worker.index() == 0;
    let others = worker.board().word(0, 0);
    // The first member leads.
    while !is_first && others.load(Acquire) < FIRST {
        worker.relax();
    }
    let longest = (node.order.point.bytes + HEADER_BYTES).max(64 << 10);
    let group = Group::builder(&worker.domain()?, NAME).largest_command(longest);
    let group = group.join().doing("join a group")?;
    if is_first {
        others.store(FIRST, Release);
    }
    let members = node.order.point.nodes as usize;
    group.wait_for_members(members, Duration::MAX).doing("wait for the other members")?;
    let mut log = Replicated::new(group, Learned::default());
    node.ready();
    if is_first {
        return submit(node, &mut log);
    }
    let mut learned = log.read();
    while !learned.is_over && learned.wrong.is_none() {
        log.wait(Duration::MAX).doing("wait for an entry")?;
        learned = log.read();
    }
    finish(node, learned)?;
    Ok(Report { sequence: learned.sequence, ..Report::default() })
}

/// Fails if the log was wrong. Otherwise waits for the others, so that none loses its group.
fn finish(node: &Node<'_>, learned: &Learned) -> Result<(), Failure> {
    if let Some(wrong) = &learned.wrong {
        return Err(Failure::other(wrong));
    }
    node.end();
    Ok(())
}

fn submit(node: &Node<'_>, log: &mut Replicated<Learned>) -> Result<Report, Failure> {
    let length = node.order.length;
    let mut command = vec![0; node.order.point.bytes + HEADER_BYTES];
    let most = UNDER_WAY.min((UNDER_WAY_BYTES / command.len()).max(4) as u64);
    let (began, mut measured) = (Instant::now(), None::<(Instant, u64)>);
    let (mut number, mut decided) = (0, 0);
    loop {
        let elapsed = began.elapsed();
        let is_over = elapsed >= length.warm_up + length.measured && number >= length.requests;
        if measured.is_none() && elapsed >= length.warm_up {
            measured = Some((Instant::now(), decided));
        }
        if is_over {
            break;
        }
        let until = (number + AT_ONCE).min(decided + most);
        while number < until {
            payload::fill(&mut command[HEADER_BYTES..], number);
            put_head(&mut command, (number, 0));
            log.group().submit(&command).doing("submit a command")?;
            number += 1;
        }
        if number == decided + most {
            log.wait(Duration::MAX).doing("wait for an entry")?;
        }
        decided = log.read().count;
    }
    let (since, before) = measured.unwrap_or((began, 0));
    let report = Report::since(since, decided - before);
    put_head(&mut command, (END, 0));
    log.group().submit(&command).doing("submit a command")?;
    while !log.read().is_over {
        log.wait(Duration::MAX).doing("wait for an entry")?;
    }
    let learned = log.read();
    finish(node, learned)?;
    Ok(Report { sequence: learned.sequence, ..report })
}

// Checkpoints.

pub(super) fn gather(node: &Node<'_>) -> Result<Report, Failure> {
    let worker = node.worker();
    let (rank, ranks) = (worker.index(), node.order.point.nodes as usize);
    let files = worker.directory().join("checkpoints");
    let all = Computation::builder(&worker.domain()?, NAME, files, rank, ranks);
    // Only gathering takes checkpoints.
    let joined = all.every(Duration::from_secs(1 << 20)).join();
    let (mut all, _) = joined.doing("join a computation")?;
    node.ready();
    if rank == 0 {
        return ask(node, all);
    }
    let mut state = State::new(node);
    all.receive(0, || state.next()).doing("wait for the end")?;
    all.finish(|| state.next()).doing("finish a computation")?;
    Ok(Report::default())
}

/// A rank's state, which its work changes before each checkpoint.
struct State {
    rank: u64,
    bytes: usize,
    number: u64,
}

impl State {
    fn new(node: &Node<'_>) -> Self {
        let rank = node.worker().index() as u64;
        Self { rank, bytes: node.order.point.bytes, number: 0 }
    }

    fn next(&mut self) -> Vec<u8> {
        self.number += 1;
        let mut state = vec![0; self.bytes];
        payload::fill(&mut state, self.number << 8 | self.rank);
        state
    }

    /// Whether these bytes are the state of a rank when it was asked so often.
    fn is_right(&self, rank: u64, state: &[u8]) -> bool {
        let sum = payload::expected_sum(state.len(), self.number << 8 | rank);
        state.len() == self.bytes && payload::sum(state) == sum
    }
}

fn ask(node: &Node<'_>, mut all: Computation) -> Result<Report, Failure> {
    let length = node.order.length;
    let mut state = State::new(node);
    let (began, mut measured) = (Instant::now(), None::<(Instant, u64)>);
    let mut gathered = 0;
    loop {
        let elapsed = began.elapsed();
        if elapsed >= length.warm_up + length.measured && gathered >= length.requests {
            break;
        }
        if measured.is_none() && elapsed >= length.warm_up {
            measured = Some((Instant::now(), gathered));
        }
        let Gathered { states, .. } = all.gather(|| state.next()).doing("gather checkpoints")?;
        gathered += 1;
        // All bytes are checked in the warm-up.
        if measured.is_none()
            && let Some(wrong) =
                (0..).zip(&states).position(|(rank, found)| !state.is_right(rank, found))
        {
            return Err(Failure::other(format!(
                "checkpoint {gathered} of rank {wrong} has wrong bytes"
            )));
        }
    }
    let (since, before) = measured.unwrap_or((began, 0));
    let report = Report::since(since, gathered - before);
    for rank in 1..all.ranks() {
        all.send(rank, &[]).doing("tell the end")?;
    }
    all.finish(|| state.next()).doing("finish a computation")?;
    Ok(report)
}
