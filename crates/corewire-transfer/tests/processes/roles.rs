//! The child, and what it does.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use corewire_ring::Trusted;
use corewire_ring::message::Memory;
use corewire_transfer::mechanisms::driver::{Courier, DriverError, introduce, move_message};
use corewire_transfer::mechanisms::{
    BothSides, Busy, KernelGet, KernelPut, Mapped, Mechanism, MessageQueue, PairLink, Peer, Piece,
    Ptrace, Role, SharedBuffer,
};

use crate::arena::memory_for;

/// A child process, killed when dropped.
pub(crate) struct Other {
    pub(crate) process: Child,
    pub(crate) courier: Courier,
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const ROLE: &str = "COREWIRE_TRANSFER_ROLE";

/// Starts this program again, as a child that does what `role` says.
pub(crate) fn start(role: &str) -> Other {
    start_after(role, || Ok(())).unwrap()
}

/// The same. The child calls `first` before anything else.
pub(crate) fn start_after(role: &str, first: fn() -> io::Result<()>) -> io::Result<Other> {
    let (courier, far) = Courier::pair().unwrap();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "roles::child", "--nocapture"]).env(ROLE, role).stdin(far);
    // SAFETY: all that is given makes a system call or two, and allocates nothing.
    unsafe { command.pre_exec(first) };
    Ok(Other { process: command.spawn()?, courier })
}

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let courier = Courier::from(io::stdin().as_fd().try_clone_to_owned().unwrap());
    match role.as_str() {
        "mover" => move_as_told(&courier),
        "remover" => crate::deaths::remove(&courier),
        "mortal" => crate::deaths::die(&courier),
        "tracer" => crate::deaths::trace(&courier),
        "prober" => crate::refusals::probe(&courier),
        other => panic!("no role {other}"),
    }
}

pub(crate) const CELLS: u64 = 32;
pub(crate) const CELL_BYTES: u64 = 32 << 10;

pub(crate) fn meet(courier: &Courier) -> (Peer, PairLink) {
    // SAFETY: both processes are this program.
    let trusted = unsafe { Trusted::assume() };
    introduce(courier, CELLS, CELL_BYTES, trusted).unwrap()
}

/// In place of a number of steps: the task only asks whether it is possible.
const QUESTION: u32 = u32::MAX;

/// Does nothing with a mechanism that is possible.
struct Nothing;

impl Job for Nothing {
    type Output = ();

    fn run<M>(self, _mechanism: M, _task: &Task)
    where
        M: Mechanism,
        M::Memory: From<Memory>,
    {
    }
}

/// What a process does with one message.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) mechanism: u8,
    pub(crate) role: Role,
    pub(crate) seed: u64,
    /// The first number is how often the process steps before it dies, where it does.
    pub(crate) steps: u32,
    pub(crate) parts: Vec<usize>,
}

impl Task {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let role = u8::from(self.role == Role::Target);
        let mut bytes = vec![self.mechanism, role];
        bytes.extend(self.seed.to_le_bytes());
        bytes.extend(self.steps.to_le_bytes());
        for &part in &self.parts {
            bytes.extend(u32::try_from(part).unwrap().to_le_bytes());
        }
        bytes
    }

    pub(crate) fn take(courier: &Courier) -> Option<Self> {
        let (bytes, _) = courier.take().ok()?;
        let role = if bytes[1] == 1 { Role::Target } else { Role::Source };
        let seed = u64::from_le_bytes(bytes[2..10].try_into().unwrap());
        let mut words =
            bytes[10..].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        let steps = words.next().unwrap();
        let parts = words.map(|part| part as usize).collect();
        Some(Self { mechanism: bytes[0], role, seed, steps, parts })
    }

    /// The next task that is not a question whether a mechanism is possible. Answers those.
    pub(crate) fn next(courier: &Courier, peer: &Peer, link: &PairLink) -> Option<Self> {
        loop {
            let task = Self::take(courier)?;
            if task.steps != QUESTION {
                return Some(task);
            }
            let answer = with(Nothing, &task, peer, link);
            let text = answer.map_or_else(|reason| reason.to_string(), |()| "possible".into());
            courier.give(text.as_bytes(), &[]).ok()?;
        }
    }

    /// Whether the kernel allows the task to both sides. Prints why not: a setting of this machine, such as Yama's, may
    /// forbid a child to reach its parent.
    pub(crate) fn is_possible(&self, courier: &Courier, peer: &Peer, link: &PairLink) -> bool {
        let far = Self { role: self.role.other(), steps: QUESTION, ..self.clone() };
        courier.give(&far.to_bytes(), &[]).unwrap();
        let there = String::from_utf8(courier.take().unwrap().0).unwrap();
        let here = with(Nothing, self, peer, link);
        let here = here.map_or_else(|reason| reason.to_string(), |()| "possible".into());
        let name = MECHANISMS[usize::from(self.mechanism)];
        for answer in [&here, &there] {
            if answer != "possible" {
                println!("skipped {name}, {:?}: {answer}", self.role);
            }
        }
        here == "possible" && there == "possible"
    }

    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().sum()
    }
}

/// Something that can be done with any mechanism.
pub(crate) trait Job {
    type Output;
    fn run<M>(self, mechanism: M, task: &Task) -> Self::Output
    where
        M: Mechanism,
        M::Memory: From<Memory>;
}

pub(crate) const MECHANISMS: [&str; 7] = [
    "shared buffer",
    "message queue",
    "kernel get",
    "kernel put",
    "both sides at once",
    "ptrace",
    "mapped memory",
];

/// Runs `job` with the mechanism of `task`; `Err` if it is not possible here.
pub(crate) fn with<J: Job>(
    job: J,
    task: &Task,
    peer: &Peer,
    link: &PairLink,
) -> Result<J::Output, corewire_transfer::mechanisms::Reason> {
    let (peer, link, role) = (peer.clone(), link.clone(), task.role);
    Ok(match task.mechanism {
        0 => job.run(SharedBuffer::initialise(peer, role, link)?, task),
        1 => job.run(MessageQueue::initialise(peer, role, link)?, task),
        2 => job.run(KernelGet::initialise(peer, role, ())?, task),
        3 => job.run(KernelPut::initialise(peer, role, link)?, task),
        4 => job.run(BothSides::initialise(peer, role, link)?, task),
        5 => job.run(Ptrace::initialise(peer, role, ())?, task),
        _ => job.run(Mapped::initialise(peer, role, ())?, task),
    })
}

/// Moves one message, and checks every byte.
pub(crate) struct Move<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) courier: &'a Courier,
}

impl Job for Move<'_> {
    type Output = Result<u64, DriverError>;

    fn run<M>(self, mut mechanism: M, task: &Task) -> Self::Output
    where
        M: Mechanism,
        M::Memory: From<Memory>,
    {
        assert_eq!(M::NAME, MECHANISMS[usize::from(task.mechanism)]);
        mechanism.possible().unwrap();
        let (arena, memory) =
            memory_for(&mut mechanism, task.role, task.seed, &task.parts).unwrap();
        let mut piece = mechanism.register(memory).unwrap();
        let moved = move_message(&mut mechanism, self.peer, &mut piece, self.courier);
        take_back(&mut mechanism, piece);
        if let (Some(arena), Ok(bytes)) = (&arena, &moved) {
            arena.check(task.seed, usize::try_from(*bytes).unwrap());
        }
        mechanism.finalise();
        moved
    }
}

/// Deregisters a piece, as soon as the other side allows that.
pub(crate) fn take_back<M: Mechanism>(mechanism: &mut M, mut piece: Piece<M::Memory>) -> M::Memory {
    loop {
        match mechanism.deregister(piece) {
            Ok(memory) => return memory,
            Err(Busy(still)) => piece = *still,
        }
        std::thread::yield_now();
    }
}

/// Moves messages until the parent is gone.
fn move_as_told(courier: &Courier) {
    let (peer, link) = meet(courier);
    while let Some(task) = Task::next(courier, &peer, &link) {
        with(Move { peer: &peer, courier }, &task, &peer, &link).unwrap().unwrap();
    }
}
