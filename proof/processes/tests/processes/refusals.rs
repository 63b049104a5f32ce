//! Every system call that corewire makes, refused as a filter of a container may refuse it: whatever is
//! refused to either side, channels work, or one error says what does not; nobody hangs, and nobody who is
//! idle burns a processor.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::roles::{Directory, Role};
use corewire_os::process::processor_seconds;

macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

static CALLS: &[(&str, libc::c_long)] = calls! {
    SYS_memfd_create SYS_ftruncate SYS_fallocate SYS_mmap SYS_munmap SYS_madvise SYS_mlock SYS_mbind SYS_fcntl
    SYS_dup3 SYS_openat SYS_mkdirat SYS_flock SYS_fstat SYS_newfstatat SYS_statx SYS_fchmod SYS_fchmodat
    SYS_fchown SYS_renameat SYS_renameat2 SYS_unlinkat SYS_socket SYS_bind SYS_listen SYS_connect
    SYS_accept4 SYS_sendmsg SYS_recvmsg SYS_shutdown SYS_setsockopt SYS_getsockopt SYS_ioctl
    SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_inotify_init1
    SYS_inotify_add_watch SYS_pidfd_open SYS_getrandom SYS_futex SYS_futex_waitv SYS_membarrier
    SYS_prlimit64 SYS_clone3 SYS_write SYS_pwrite64 SYS_read SYS_pread64 SYS_preadv2 SYS_ppoll
    SYS_getdents64 SYS_sched_getaffinity SYS_sched_yield SYS_clock_nanosleep SYS_nanosleep
    SYS_clock_gettime SYS_gettid SYS_getpid SYS_geteuid SYS_uname SYS_rt_sigprocmask SYS_getcpu
};

#[cfg(target_arch = "x86_64")]
static OLD_CALLS: &[(&str, libc::c_long)] = calls! { SYS_open SYS_mkdir SYS_epoll_wait SYS_poll SYS_clone SYS_readlink SYS_unlink SYS_stat };
#[cfg(not(target_arch = "x86_64"))]
static OLD_CALLS: &[(&str, libc::c_long)] = &[];

/// The most of a core that an idle process may use.
const IDLE_MAX: f64 = 0.02;
/// A case that takes longer has hung.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Works,
    Error,
}

/// Whether all cases run, or the first error for each call.
fn is_full() -> bool {
    std::env::var("COREWIRE_REFUSALS").is_ok_and(|text| text == "full")
}

/// The next line that a role prints, or how it ended.
fn line(role: &mut Role, began: Instant) -> Result<String, String> {
    loop {
        match role.line_within(Duration::from_millis(50)) {
            Some(Some(line)) => return Ok(line),
            Some(None) => return Err(role.ending()),
            None if began.elapsed() > LIMIT => return Err("hangs".into()),
            None => {}
        }
    }
}

/// One side is refused a call.
fn case(
    call: (&str, libc::c_long),
    errno: i32,
    is_sender: bool,
    index: usize,
) -> Result<Outcome, String> {
    let directory = Directory::new(&format!("refusals-{index}"));
    let refused = format!("refuse={}:{errno}", call.1);
    let options: [&[&str]; 2] = if is_sender { [&[&refused], &[]] } else { [&[], &[&refused]] };
    let mut sender = Role::start_quietly("quiet-sender", &directory, "c", options[0]);
    let mut receiver = Role::start_quietly("quiet-receiver", &directory, "c", options[1]);
    let began = Instant::now();
    // Whichever side is refused something may end; the other one then waits in vain.
    let steps = [("created", true), ("ready", false), ("ready", true)];
    for (word, of_sender) in steps {
        match line(if of_sender { &mut sender } else { &mut receiver }, began) {
            Ok(line) if line == word => {}
            other => return ended(&mut sender, &mut receiver, other),
        }
    }
    let pids = [sender.child.id(), receiver.child.id()];
    let window = Duration::from_millis(if is_full() { 1000 } else { 400 });
    let used = || pids.map(|pid| processor_seconds(pid).unwrap_or(0.0));
    // Not a wait for an event: the time over which idleness is measured.
    let nap = |time| {
        let time = rustix::time::Timespec::try_from(time).unwrap();
        rustix::event::poll(&mut [], Some(&time)).unwrap();
    };
    nap(Duration::from_millis(50));
    let before = used();
    nap(window);
    for (after, before) in used().into_iter().zip(before) {
        let share = (after - before) / window.as_secs_f64();
        if share > IDLE_MAX {
            return Err(format!("uses {:.1} % of a core while it is idle", 100.0 * share));
        }
    }
    sender.say("go");
    for role in [&mut receiver, &mut sender] {
        match line(role, began) {
            Ok(line) if line == "done" => {}
            Ok(line) => return Err(format!("said {line:?}")),
            Err(how) => return Err(format!("ended in the middle: {how}")),
        }
    }
    Ok(Outcome::Works)
}

/// A side has ended before anything was sent: with one line that says why.
fn ended(
    sender: &mut Role,
    receiver: &mut Role,
    seen: Result<String, String>,
) -> Result<Outcome, String> {
    match seen {
        Ok(line) => Err(format!("said {line:?}")),
        Err(how) if how == "hangs" => Err(how),
        Err(_) => {
            let errors: Vec<_> =
                [sender, receiver].map(|role| role.error()).into_iter().flatten().collect();
            match errors.iter().all(|error| error.lines().count() == 1) && !errors.is_empty() {
                true => Ok(Outcome::Error),
                false => Err(format!("ended without one line of error: {errors:?}")),
            }
        }
    }
}

// Keeps P85.
#[test]
fn whatever_is_refused_channels_work_or_say_why_not_and_nobody_burns() {
    let errors = [libc::EPERM, libc::ENOSYS, libc::EACCES];
    let mut cases = Vec::new();
    for (number, &call) in CALLS.iter().chain(OLD_CALLS).enumerate() {
        for (index, errno) in errors.into_iter().enumerate() {
            if is_full() || number % errors.len() == index {
                cases.extend([true, false].map(|is_sender| (call, errno, is_sender)));
            }
        }
    }
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let outcomes = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some(&(call, errno, is_sender)) = cases.get(next.fetch_add(1, Relaxed)) {
                    let index =
                        next.fetch_add(0, Relaxed) * 1000 + usize::try_from(call.1).unwrap();
                    let index = index * 2 + usize::from(is_sender);
                    let side = if is_sender { "sender" } else { "receiver" };
                    let began = Instant::now();
                    let outcome = case(call, errno, is_sender, index);
                    if began.elapsed() > Duration::from_secs(5) {
                        println!("{} with {errno} to the {side}: {:?}", call.0, began.elapsed());
                    }
                    match outcome {
                        Ok(outcome) => {
                            *outcomes.lock().unwrap().entry(outcome).or_insert(0) += 1;
                        }
                        Err(how) => failures
                            .lock()
                            .unwrap()
                            .push(format!("{} with {errno} to the {side}: {how}", call.0)),
                    }
                }
            });
        }
    });
    println!("{} cases: {:?}", cases.len(), outcomes.lock().unwrap());
    for failure in failures.lock().unwrap().iter() {
        println!("failed: {failure}");
    }
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

// Keeps P86.
#[test]
fn what_is_refused_is_not_said_to_be_there() {
    let directory = Directory::new("refusals-found");
    let found = |refused: &[&str]| Role::start("found", &directory, "c", refused).until("found");
    assert_eq!(found(&[]), "membarrier=true waitv=true");
    for errno in [libc::EPERM, libc::ENOSYS, libc::EACCES] {
        let waitv = format!("refuse={}:{errno}", libc::SYS_futex_waitv);
        assert_eq!(found(&[&waitv]), "membarrier=true waitv=false");
        let membarrier = format!("refuse={}:{errno}", libc::SYS_membarrier);
        assert_eq!(found(&[&membarrier]), "membarrier=false waitv=true");
    }
}
