//! Clients of a group: decisions per second for ten clients that propose, with many more that are linked and idle, and without.
//!
//! Linking takes seconds, so there are two groups, each with members and proposing clients of its own: one alone, and one
//! with all idle clients. A member process is a member of both. What is idle sleeps while the other group is measured. Two
//! groups differ by chance, in where their leaders and the homes of their clients are, so they are compared before the idle
//! clients come, too.

use corewire::{Domain, Receiver};
use corewire_group::{Group, GroupClient};
use corewire_harness::board::READY;
use corewire_harness::failure::Doing;
use corewire_os::process::raise_descriptor_limit;
use corewire_ring::sync::Ordering::{Acquire, Relaxed, Release};
use serde::{Deserialize, Serialize};

use super::latency::await_hang_up;
use super::prelude::*;

pub(super) const ROLE: Role<Order> = Role { name: "clients of a group", work };

/// The groups; block `index` of a round is that of group `index`.
const GROUPS: [&str; 2] = ["alone", "crowd"];
const MEMBERS: usize = 3;
/// Processes of proposing clients, and those of each, in a thread each, for each group.
const PROPOSERS: usize = 2;
const CLIENTS_EACH: usize = 5;
/// The most idle clients of a process.
const IDLE_EACH: usize = 250;
/// Commands that a client has under way, and how often in a block.
const AHEAD: u64 = 16;
const BATCHES: u64 = 100;
/// Commands of a client in a block.
const COMMANDS: u64 = AHEAD * BATCHES;
/// How long the others may take.
const WITHIN: Duration = Duration::from_secs(300);
/// A channel for those that sleep: a message lets idle clients link, and its end ends all.
const SIGNAL: &str = "signal";

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Part {
    Member,
    Proposer,
    /// So many idle clients.
    Idle(usize),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    options: Options,
    part: Part,
}

/// What each process is: the members first, then those that propose.
fn parts(clients: usize) -> Vec<Part> {
    let idle =
        (0..clients).step_by(IDLE_EACH).map(|first| Part::Idle(IDLE_EACH.min(clients - first)));
    let members = std::iter::repeat_n(Part::Member, MEMBERS);
    members.chain(std::iter::repeat_n(Part::Proposer, PROPOSERS)).chain(idle).collect()
}

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let parts = parts(options.clients);
    let setup = setup(parts.len()).places(Places::Anywhere).memory_bytes(4096);
    let order = |index: usize| Order { options: options.clone(), part: parts[index] };
    let mut crew = setup.start(&ROLE, order)?;
    let passive = parts.iter().filter(|part| **part != Part::Proposer).count();
    let mut signal = crew.domain()?.sender(SIGNAL).receivers(passive).create()?;
    for index in 0..MEMBERS + PROPOSERS {
        crew.await_step_asleep(index, READY)?;
    }
    let mut step = READY;
    let before = measure(&mut crew, options, &mut step)?;
    signal.wait_for_receivers(passive)?;
    signal.send(b"link")?;
    crew.await_ready()?;
    let linking_s = (MEMBERS + PROPOSERS..parts.len())
        .map(|index| f64::from_bits(crew.board().word(index, 0).load(Relaxed)))
        .fold(0.0, f64::max);
    let blocks = measure(&mut crew, options, &mut step)?;
    report.value("bytes", options.bytes);
    report.value("members", MEMBERS);
    report.value("proposers", PROPOSERS * CLIENTS_EACH);
    report.value("clients", options.clients);
    report.value("rounds", options.rounds);
    let words = format!("linking {} idle clients", options.clients);
    report.figure("linking_s", &words, linking_s, "s");
    for (block, (key, words)) in
        [("alone", "10 clients alone"), ("crowd", "the same with the idle ones")].iter().enumerate()
    {
        let rate = blocks.median(block);
        report.value(&format!("{key}_decisions_per_s"), rate.round());
        report.note(format!("{words:<44} {:>10.1} thousand decisions/s", rate / 1e3));
    }
    report.ratio("with the idle ones to alone", &blocks.ratios(1, 0));
    let words = "the same two groups before the idle ones";
    report.ratios("before_ratio", words, &before.ratios(1, 0));
    drop(signal);
    crew.finish_with(report)
}

/// Decisions per second of both groups in turn.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52 commands")]
fn measure(crew: &mut Crew, options: &Options, step: &mut u64) -> Result<Blocks, Failure> {
    let begin = crew.board().work()?;
    let proposers = MEMBERS..MEMBERS + PROPOSERS;
    alternate(options.rounds, |round| {
        let mut rates = [0.0; GROUPS.len()];
        for group in order_of(round) {
            *step += 1;
            begin.word64(0).store(*step, Release);
            for index in proposers.clone() {
                crew.await_step_asleep(index, *step)?;
            }
            let took = |index| f64::from_bits(crew.board().word(index, 0).load(Relaxed));
            let longest = proposers.clone().map(took).fold(0.0, f64::max);
            rates[group] = (COMMANDS * (PROPOSERS * CLIENTS_EACH) as u64) as f64 / longest;
        }
        Ok(rates)
    })
}

/// The order of the groups in a round: it alternates.
fn order_of(round: u64) -> [usize; GROUPS.len()] {
    if round.is_multiple_of(2) { [0, 1] } else { [1, 0] }
}

fn work(worker: &Worker, Order { options, part }: Order) -> Result<(), Failure> {
    // Each link takes some descriptors, at both ends.
    let _ = raise_descriptor_limit();
    let domain = worker.domain()?;
    match part {
        Part::Member => member(worker, &domain),
        Part::Proposer => propose(worker, &domain, &options),
        Part::Idle(count) => idle(worker, &domain, count),
    }
}

/// Waits until all members are there, so that clients link with all at once.
fn await_members(worker: &Worker) -> Result<(), Failure> {
    match worker.board().await_all(0..MEMBERS, READY, WITHIN) {
        true => Ok(()),
        false => Err(Failure::other("the members have not come in time")),
    }
}

fn signal(domain: &Domain) -> Result<Receiver, Failure> {
    Ok(domain.receiver(SIGNAL).join_when_created()?)
}

fn member(worker: &Worker, domain: &Domain) -> Result<(), Failure> {
    let mut signal = signal(domain)?;
    let join = |name: &&str| Group::builder(domain, name).join_timeout(WITHIN);
    let groups = GROUPS.iter().map(join).collect::<Result<Vec<_>, _>>()?;
    for group in &groups {
        group.wait_for_members(MEMBERS, WITHIN)?;
    }
    worker.reach(READY);
    signal.receive()?;
    await_hang_up(signal);
    Ok(())
}

fn idle(worker: &Worker, domain: &Domain, count: usize) -> Result<(), Failure> {
    let mut signal = signal(domain)?;
    signal.receive()?;
    let start = Instant::now();
    let connect = |_| GroupClient::connect(domain, GROUPS[1], WITHIN);
    let clients = (0..count).map(connect).collect::<Result<Vec<_>, _>>()?;
    let linking_s = start.elapsed().as_secs_f64();
    worker.board().word(worker.index(), 0).store(linking_s.to_bits(), Relaxed);
    worker.reach(READY);
    await_hang_up(signal);
    drop(clients);
    Ok(())
}

fn propose(worker: &Worker, domain: &Domain, options: &Options) -> Result<(), Failure> {
    await_members(worker)?;
    let connect = |name: &&str| {
        let client = |_| GroupClient::connect(domain, name, WITHIN);
        (0..CLIENTS_EACH).map(client).collect::<Result<Vec<_>, _>>()
    };
    let mut groups = GROUPS.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
    let begin = worker.board().work()?;
    let mut step = READY;
    worker.reach(READY);
    for round in all(options.rounds).chain(all(options.rounds)) {
        for group in order_of(round) {
            let clients = &mut groups[group];
            step += 1;
            while begin.word64(0).load(Acquire) < step {
                std::thread::yield_now();
            }
            let start = Instant::now();
            std::thread::scope(|scope| {
                let spawn = |client| scope.spawn(|| propose_all(client, options.bytes));
                let threads: Vec<_> = clients.iter_mut().map(spawn).collect();
                threads.into_iter().try_for_each(|thread| {
                    thread.join().map_err(|_| Failure::other("a client panicked"))?
                })
            })?;
            let took_s = start.elapsed().as_secs_f64();
            worker.board().word(worker.index(), 0).store(took_s.to_bits(), Relaxed);
            worker.reach(step);
        }
    }
    Ok(())
}

/// Proposes the commands of a block, and waits until all are decided.
fn propose_all(client: &mut GroupClient, bytes: usize) -> Result<(), Failure> {
    let command = vec![7; bytes];
    for _ in 0..BATCHES {
        for _ in 0..AHEAD {
            client.submit(&command).doing("propose a command")?;
        }
        client.flush(WITHIN).doing("wait for decisions")?;
    }
    Ok(())
}
