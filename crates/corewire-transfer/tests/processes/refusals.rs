//! Processes that the kernel refuses what a mechanism needs: each says why.

use std::io;
use std::sync::Arc;

use corewire_os::process::life_of;
use corewire_transfer::mechanisms::driver::Courier;
use corewire_transfer::mechanisms::{KernelGet, Mechanism, Peer, Reason, Role};

use crate::roles::{Job, Move, Task, meet, start, start_after, with};

/// What happens to the child before it tries.
const FILTER_READ: u32 = 1;
const FILTER_READ_UNKNOWN: u32 = 2;
const FILTER_WRITE: u32 = 3;
const FILTER_TRACE: u32 = 4;
const FILTER_MEMORY: u32 = 5;
const OTHER_USER: u32 = 6;
const NOTHING: u32 = 7;
/// The same as `FILTER_READ`, but after the mechanism has been initialised.
const FILTER_LATER: u32 = 8;

/// Makes the kernel answer `call` with `errno` from here on, for this thread.
fn refuse(call: libc::c_long, errno: i32) {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const FAIL_WITH: u32 = 0x0005_0000;
    let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        line(LOAD_WORD, 0, 0, 0),
        line(JUMP_IF_EQUAL, 0, 1, u32::try_from(call).unwrap()),
        line(RETURN, 0, 0, FAIL_WITH | errno.unsigned_abs()),
        line(RETURN, 0, 0, ALLOW),
    ];
    let len = u16::try_from(filter.len()).unwrap();
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: integers only.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program and its filter outlive the call, and the length is right.
    let installed =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(installed, 0);
}

fn is_root() -> bool {
    corewire_os::process::effective_uid() == 0
}

const NOBODY: u32 = 65534;

fn become_nobody() {
    // SAFETY: integers only.
    assert_eq!(unsafe { libc::setresgid(NOBODY, NOBODY, NOBODY) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) }, 0);
}

fn prepare(what: u32) {
    match what {
        FILTER_READ => refuse(libc::SYS_process_vm_readv, libc::EPERM),
        FILTER_READ_UNKNOWN => refuse(libc::SYS_process_vm_readv, libc::ENOSYS),
        FILTER_WRITE => refuse(libc::SYS_process_vm_writev, libc::EPERM),
        FILTER_TRACE => refuse(libc::SYS_ptrace, libc::EPERM),
        FILTER_MEMORY => refuse(libc::SYS_memfd_create, libc::EPERM),
        OTHER_USER => become_nobody(),
        _ => {}
    }
}

/// Tries to move a message, and says what comes of it.
struct Try<'a> {
    peer: &'a Peer,
    courier: &'a Courier,
}

impl Job for Try<'_> {
    type Output = String;

    fn run<M>(self, mechanism: M, task: &Task) -> String
    where
        M: Mechanism,
        M::Memory: From<corewire_ring::message::Memory>,
    {
        let Self { peer, courier } = self;
        if task.steps == FILTER_LATER {
            refuse(libc::SYS_process_vm_readv, libc::EPERM);
            let why = mechanism.possible().unwrap_err();
            let mut mechanism = mechanism;
            let (_arena, memory) =
                crate::arena::memory_for(&mut mechanism, task.role, 0, &task.parts).unwrap();
            let mut piece = mechanism.register(memory).unwrap();
            let moved = corewire_transfer::mechanisms::driver::move_message(
                &mut mechanism,
                peer,
                &mut piece,
                courier,
            );
            let error = moved.unwrap_err().to_string();
            assert_eq!(error, why.to_string());
            return error;
        }
        match (Move { peer, courier }).run(mechanism, task) {
            Ok(bytes) => format!("moved {bytes} bytes"),
            Err(error) => error.to_string(),
        }
    }
}

pub(crate) fn probe(courier: &Courier) {
    let (peer, link) = meet(courier);
    let task = Task::take(courier).unwrap();
    prepare(task.steps);
    // With another number instead of a seed: that process is the peer.
    let peer = match u32::try_from(task.seed).unwrap() {
        0 => peer,
        pid => Peer::new(pid, Arc::new(life_of(pid).unwrap())),
    };
    let answer = with(Try { peer: &peer, courier }, &task, &peer, &link);
    let answer = answer.unwrap_or_else(|reason| reason.to_string());
    courier.give(format!("said {answer}").as_bytes(), &[]).unwrap();
    // Until the parent has read it, and asked others.
    let _ = courier.take();
}

fn task(mechanism: u8, role: Role, what: u32) -> Task {
    Task { mechanism, role, seed: 0, steps: what, parts: vec![1 << 20] }
}

fn answer(courier: &Courier) -> String {
    let (packet, _) = courier.take().unwrap();
    String::from_utf8(packet).unwrap().strip_prefix("said ").unwrap().to_owned()
}

/// What a child says that tries to initialise a mechanism.
fn initialised(mechanism: u8, role: Role, what: u32) -> String {
    let other = start("prober");
    let _ = meet(&other.courier);
    other.courier.give(&task(mechanism, role, what).to_bytes(), &[]).unwrap();
    answer(&other.courier)
}

#[test]
fn a_filter_is_named() {
    let read = "a seccomp filter refuses process_vm_readv to this process (EPERM)";
    assert_eq!(initialised(2, Role::Target, FILTER_READ), read);
    assert_eq!(initialised(4, Role::Target, FILTER_READ), read);
    let read = "a seccomp filter refuses process_vm_readv to this process (ENOSYS)";
    assert_eq!(initialised(2, Role::Target, FILTER_READ_UNKNOWN), read);
    let write = "a seccomp filter refuses process_vm_writev to this process (EPERM)";
    assert_eq!(initialised(3, Role::Source, FILTER_WRITE), write);
    let trace = "a seccomp filter refuses ptrace to this process (EPERM)";
    assert_eq!(initialised(5, Role::Target, FILTER_TRACE), trace);
    let memory = "make a segment: Operation not permitted (os error 1)";
    assert_eq!(initialised(6, Role::Source, FILTER_MEMORY), memory);
}

#[test]
fn a_filter_that_comes_later_is_named_by_the_copy() {
    let other = start("prober");
    let (peer, link) = meet(&other.courier);
    other.courier.give(&task(2, Role::Target, FILTER_LATER).to_bytes(), &[]).unwrap();
    let own = task(2, Role::Source, NOTHING);
    let moved = with(Move { peer: &peer, courier: &other.courier }, &own, &peer, &link).unwrap();
    let why = "a seccomp filter refuses process_vm_readv to this process (EPERM)";
    assert_eq!(moved.unwrap_err().to_string(), format!("the other side has failed: {why}"));
    assert_eq!(answer(&other.courier), why);
}

#[test]
fn a_source_that_may_not_write_leaves_all_to_the_target() {
    let other = start("prober");
    let (peer, link) = meet(&other.courier);
    other.courier.give(&task(4, Role::Source, FILTER_WRITE).to_bytes(), &[]).unwrap();
    let own = task(4, Role::Target, NOTHING);
    let moved = with(Move { peer: &peer, courier: &other.courier }, &own, &peer, &link).unwrap();
    assert_eq!(moved.unwrap(), 1 << 20);
    assert_eq!(answer(&other.courier), "moved 1048576 bytes");
}

#[test]
fn another_user_is_named() {
    if !is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let why = "the peer's user or group is 0, this process's is 65534, and it lacks CAP_SYS_PTRACE";
    for (mechanism, role) in [(2, Role::Target), (3, Role::Source), (5, Role::Target)] {
        assert_eq!(initialised(mechanism, role, OTHER_USER), why);
    }
}

#[test]
fn a_process_that_is_not_dumpable_is_named() {
    if !is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    // A process that has changed its user is not dumpable.
    let first = start("prober");
    let (_, _) = meet(&first.courier);
    first.courier.give(&task(2, Role::Target, OTHER_USER).to_bytes(), &[]).unwrap();
    let _ = answer(&first.courier);
    let second = start("prober");
    let _ = meet(&second.courier);
    let asked = Task { seed: first.process.id().into(), ..task(2, Role::Target, OTHER_USER) };
    second.courier.give(&asked.to_bytes(), &[]).unwrap();
    let why = "the peer is not dumpable (PR_SET_DUMPABLE, or it has changed its user)";
    assert_eq!(answer(&second.courier), why);
}

#[test]
fn another_user_namespace_is_named() {
    let alone = || {
        // SAFETY: an integer only.
        let done = unsafe { libc::unshare(libc::CLONE_NEWUSER) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let Ok(other) = start_after("prober", alone) else {
        println!("skipped: no user namespace can be made here");
        return;
    };
    let _ = meet(&other.courier);
    other.courier.give(&task(2, Role::Target, NOTHING).to_bytes(), &[]).unwrap();
    assert_eq!(answer(&other.courier), "the peer belongs to another user namespace");
}

#[test]
fn a_process_that_has_ended_or_is_not_visible_is_named() {
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    let life = Arc::new(life_of(ended.id()).unwrap());
    let pid = ended.id();
    assert!(ended.wait().unwrap().success());
    let get = |pid| KernelGet::initialise(Peer::new(pid, life.clone()), Role::Target, ());
    assert_eq!(get(pid).unwrap_err(), Reason::Ended);
    assert_eq!(get(0).unwrap_err(), Reason::OtherPidNamespace);
}
