//! Memory that is taken back, and processes that die, before a copy and in the middle of it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_ring::message::Memory;
use corewire_transfer::mechanisms::driver::{Courier, move_message};
use corewire_transfer::mechanisms::{
    CopyError, Description, Mechanism, Peer, Piece, Ptrace, Role, Step,
};

use crate::arena::memory_for;
use crate::roles::{Job, MECHANISMS, Move, Task, meet, start, take_back, with};

/// Gives this side's description, and takes that of the other side.
fn exchange<M>(piece: &Piece<M>, courier: &Courier) -> Description {
    let own = piece.description();
    match &own.descriptor {
        Some(descriptor) => courier.give(&own.bytes, &[descriptor]).unwrap(),
        None => courier.give(&own.bytes, &[]).unwrap(),
    }
    let (bytes, mut descriptors) = courier.take().unwrap();
    let descriptor = descriptors.pop().map(|it| Arc::new(it) as _);
    Description { bytes, descriptor }
}

/// The next step of this side.
fn step<M: Mechanism>(
    mechanism: &mut M,
    piece: &mut Piece<M::Memory>,
    other: &Description,
) -> Result<Step, CopyError> {
    if piece.role() == M::LOCAL {
        mechanism.copy_local(piece, other)
    } else {
        mechanism.copy_remote(piece, other)
    }
}

fn say(courier: &Courier, word: &str) {
    courier.give(word.as_bytes(), &[]).unwrap();
}

fn hear(courier: &Courier, word: &str) {
    assert_eq!(String::from_utf8_lossy(&courier.take().unwrap().0), word);
}

/// Takes its memory back, before the copy or after one step of each side. Nothing may be written there afterwards.
struct Remove<'a>(&'a Courier);

impl Job for Remove<'_> {
    type Output = ();

    fn run<M>(self, mut mechanism: M, task: &Task)
    where
        M: Mechanism,
        M::Memory: From<Memory>,
    {
        let Self(courier) = self;
        let (arena, memory) =
            memory_for(&mut mechanism, task.role, task.seed, &task.parts).unwrap();
        let mut piece = mechanism.register(memory).unwrap();
        let other = exchange(&piece, courier);
        if task.steps > 0 {
            step(&mut mechanism, &mut piece, &other).unwrap();
            say(courier, "ready");
            hear(courier, "now");
        }
        let memory = take_back(&mut mechanism, piece);
        let before = arena.as_ref().map(|arena| arena.bytes().to_vec());
        say(courier, "gone");
        hear(courier, "over");
        assert_eq!(before, arena.as_ref().map(|arena| arena.bytes().to_vec()));
        drop(memory);
        say(courier, "unchanged");
    }
}

/// The other side of it.
struct Lose<'a>(&'a Courier);

impl Job for Lose<'_> {
    type Output = ();

    fn run<M>(self, mut mechanism: M, task: &Task)
    where
        M: Mechanism,
        M::Memory: From<Memory>,
    {
        let Self(courier) = self;
        let (_arena, memory) =
            memory_for(&mut mechanism, task.role, task.seed, &task.parts).unwrap();
        let mut piece = mechanism.register(memory).unwrap();
        let other = exchange(&piece, courier);
        if task.steps > 0 {
            hear(courier, "ready");
            while step(&mut mechanism, &mut piece, &other).unwrap() == Step::Wait
                && M::NAME != "kernel put"
            {}
            say(courier, "now");
        }
        hear(courier, "gone");
        let outcome = loop {
            match step(&mut mechanism, &mut piece, &other) {
                Ok(Step::Done(bytes)) => break Ok(bytes),
                Ok(_) => std::thread::yield_now(),
                Err(error) => break Err(error),
            }
        };
        assert_eq!(outcome, Err(CopyError::Deregistered), "{} {task:?}", M::NAME);
        // It stays an error.
        let again = step(&mut mechanism, &mut piece, &other);
        assert!(
            matches!(again, Err(CopyError::Deregistered | CopyError::Misused { .. })),
            "{} {again:?}",
            M::NAME
        );
        say(courier, "over");
        hear(courier, "unchanged");
        take_back(&mut mechanism, piece);
    }
}

pub(crate) fn remove(courier: &Courier) {
    let (peer, link) = meet(courier);
    while let Some(task) = Task::next(courier, &peer, &link) {
        with(Remove(courier), &task, &peer, &link).unwrap();
    }
}

fn lose(mechanisms: &[u8], role: Role, steps: u32, lengths: &[usize]) {
    let other = start("remover");
    let (peer, link) = meet(&other.courier);
    for &mechanism in mechanisms {
        for &bytes in lengths {
            let own = Task { mechanism, role, seed: 9, steps, parts: vec![bytes] };
            let far = Task { role: role.other(), ..own.clone() };
            if !own.is_possible(&other.courier, &peer, &link) {
                continue;
            }
            other.courier.give(&far.to_bytes(), &[]).unwrap();
            with(Lose(&other.courier), &own, &peer, &link).unwrap();
        }
    }
}

const LENGTHS: [usize; 5] = [0, 1, 5000, 100_000, 3 << 20];

#[test]
fn a_source_taken_back_is_an_error_at_the_target() {
    lose(&[0, 1, 2, 3, 4, 5, 6], Role::Target, 0, &LENGTHS);
}

#[test]
fn a_target_taken_back_is_an_error_at_the_source() {
    lose(&[0, 1, 3], Role::Source, 0, &LENGTHS);
    lose(&[4], Role::Source, 0, &[100_000, 3 << 20]);
}

#[test]
fn a_source_taken_back_in_mid_copy_is_an_error_at_the_target() {
    lose(&[2, 4, 5, 6], Role::Target, 1, &[16 << 20]);
    lose(&[3], Role::Target, 1, &[16 << 20]);
}

#[test]
fn a_target_taken_back_in_mid_copy_is_not_written_any_more() {
    lose(&[3], Role::Source, 1, &[16 << 20]);
}

/// Kills its own process after some steps.
struct Die<'a>(&'a Courier);

impl Job for Die<'_> {
    type Output = ();

    fn run<M>(self, mut mechanism: M, task: &Task)
    where
        M: Mechanism,
        M::Memory: From<Memory>,
    {
        const MEMORY: u8 = 1;
        let Self(courier) = self;
        let (_arena, memory) =
            memory_for(&mut mechanism, task.role, task.seed, &task.parts).unwrap();
        let mut piece = mechanism.register(memory).unwrap();
        // As the driver does.
        let own = piece.description();
        let mut packet = vec![MEMORY];
        packet.extend(&own.bytes);
        match &own.descriptor {
            Some(descriptor) => courier.give(&packet, &[descriptor]).unwrap(),
            None => courier.give(&packet, &[]).unwrap(),
        }
        let (mut bytes, mut descriptors) = courier.take().unwrap();
        bytes.remove(0);
        let descriptor = descriptors.pop().map(|it| Arc::new(it) as _);
        let other = Description { bytes, descriptor };
        let mut left = task.steps;
        while left > 0 {
            match step(&mut mechanism, &mut piece, &other) {
                Ok(Step::More) => left -= 1,
                Ok(Step::Wait) => std::thread::yield_now(),
                Ok(Step::Done(_)) | Err(_) => break,
            }
        }
        // SAFETY: an integer only.
        unsafe { libc::raise(libc::SIGKILL) };
    }
}

pub(crate) fn die(courier: &Courier) {
    let (peer, link) = meet(courier);
    let Some(task) = Task::next(courier, &peer, &link) else { return };
    with(Die(courier), &task, &peer, &link).unwrap();
}

#[test]
fn a_death_in_mid_copy_is_an_error() {
    for mechanism in 0..7 {
        for role in [Role::Source, Role::Target] {
            for steps in [0, 1, 5] {
                let other = start("mortal");
                let (peer, link) = meet(&other.courier);
                let own = Task { mechanism, role, seed: 3, steps: 0, parts: vec![12 << 20] };
                let far = Task { role: role.other(), steps, ..own.clone() };
                if !own.is_possible(&other.courier, &peer, &link) {
                    continue;
                }
                other.courier.give(&far.to_bytes(), &[]).unwrap();
                let job = Move { peer: &peer, courier: &other.courier };
                let moved = with(job, &own, &peer, &link).unwrap();
                let name = MECHANISMS[usize::from(mechanism)];
                assert!(moved.is_err(), "{name} {role:?} after {steps} steps: {moved:?}");
            }
        }
    }
}

/// The peer dies between two steps of this side.
struct Survive<'a> {
    courier: &'a Courier,
    peer: &'a Peer,
}

impl Job for Survive<'_> {
    type Output = ();

    fn run<M>(self, mut mechanism: M, task: &Task)
    where
        M: Mechanism,
        M::Memory: From<Memory>,
    {
        let Self { courier, peer } = self;
        let (_arena, memory) =
            memory_for(&mut mechanism, task.role, task.seed, &task.parts).unwrap();
        let mut piece = mechanism.register(memory).unwrap();
        let other = exchange(&piece, courier);
        hear(courier, "ready");
        while step(&mut mechanism, &mut piece, &other).unwrap() != Step::More {}
        let pid = i32::try_from(peer.pid()).unwrap();
        // SAFETY: integers only; the process is this one's child, and has not been waited for.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        assert!(courier.take().is_err());
        while !peer.has_ended() {
            std::thread::yield_now();
        }
        let error = loop {
            match step(&mut mechanism, &mut piece, &other) {
                Ok(Step::Done(_)) => panic!("{}: the rest has come from a dead process", M::NAME),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error, CopyError::PeerEnded, "{}", M::NAME);
        take_back(&mut mechanism, piece);
    }
}

#[test]
fn the_memory_of_a_dead_process_cannot_be_read() {
    for mechanism in [2, 4, 5] {
        let other = start("remover");
        let (peer, link) = meet(&other.courier);
        let own = Task { mechanism, role: Role::Target, seed: 3, steps: 1, parts: vec![24 << 20] };
        let far = Task { role: Role::Source, ..own.clone() };
        if !own.is_possible(&other.courier, &peer, &link) {
            continue;
        }
        other.courier.give(&far.to_bytes(), &[]).unwrap();
        let job = Survive { courier: &other.courier, peer: &peer };
        with(job, &own, &peer, &link).unwrap();
    }
}

/// Copies from the parent again and again, until it is killed.
pub(crate) fn trace(courier: &Courier) {
    let (peer, _link) = meet(courier);
    let task = Task::take(courier).unwrap();
    let mut ptrace = match Ptrace::initialise(peer, task.role, ()) {
        Ok(ptrace) => ptrace,
        Err(reason) => return say(courier, &format!("impossible: {reason}")),
    };
    let memory = ptrace.allocate(&task.parts).unwrap();
    let mut piece = ptrace.register(memory).unwrap();
    let other = exchange(&piece, courier);
    loop {
        ptrace.copy_local(&mut piece, &other).unwrap();
        say(courier, "step");
    }
}

#[test]
fn a_tracer_that_is_killed_leaves_nobody_stopped() {
    for steps in 0..20 {
        let other = start("tracer");
        let (peer, _link) = meet(&other.courier);
        let own =
            Task { mechanism: 5, role: Role::Source, seed: 3, steps: 0, parts: vec![8 << 20] };
        let far = Task { role: Role::Target, ..own.clone() };
        other.courier.give(&far.to_bytes(), &[]).unwrap();
        let mut ptrace = Ptrace::initialise(peer.clone(), Role::Source, ()).unwrap();
        let memory = ptrace.allocate(&own.parts).unwrap();
        let piece = ptrace.register(memory).unwrap();
        other.courier.give(&piece.description().bytes, &[]).unwrap();
        let (first, _) = other.courier.take().unwrap();
        if first.starts_with(b"impossible") {
            println!("skipped: {}", String::from_utf8_lossy(&first));
            return;
        }
        for _ in 0..steps {
            hear(&other.courier, "step");
        }
        drop(other);
        // The kernel wakes a process whose tracer has ended, but not at that very moment.
        let began = Instant::now();
        let is_stopped = || -> io::Result<bool> {
            let pid = std::process::id();
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
            let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            let state = field("State:").trim();
            let is_traced = field("TracerPid:").trim() != "0";
            Ok(is_traced || state.starts_with('t') || state.starts_with('T'))
        };
        while is_stopped().unwrap() {
            assert!(began.elapsed() < Duration::from_secs(30), "still stopped");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_message_that_does_not_fit_is_an_error() {
    let (courier, far) = Courier::pair().unwrap();
    let own = Peer::own().unwrap();
    let peer = own.clone();
    let sender = std::thread::spawn(move || {
        let mut get =
            corewire_transfer::mechanisms::KernelGet::initialise(peer.clone(), Role::Source, ())
                .unwrap();
        let mut piece = get.register(Memory::from(vec![1; 101])).unwrap();
        move_message(&mut get, &peer, &mut piece, &courier).unwrap_err().to_string()
    });
    let mut get =
        corewire_transfer::mechanisms::KernelGet::initialise(own.clone(), Role::Target, ())
            .unwrap();
    let mut piece = get.register(Memory::from(vec![0; 100])).unwrap();
    let error = move_message(&mut get, &own, &mut piece, &far.into()).unwrap_err();
    assert_eq!(error.to_string(), "message of 101 bytes: the target has 100");
    let told = sender.join().unwrap();
    assert_eq!(told, "the other side has failed: message of 101 bytes: the target has 100");
}
