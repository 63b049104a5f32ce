//! What happens to handles in a forked child.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use corewire::{CreateError, Domain, JoinError, MessageError, ReceiveError, Selector, SendError};

use crate::{Options, Outcome};

pub(crate) fn run(domain: &Domain, options: &Options, directory: &Path) -> Outcome {
    let mut sender = domain.sender(&options.channel).create()?;
    let mut receiver = domain.receiver(&options.channel).join()?;
    sender.send(b"held")?;
    let held = receiver.receive()?.hold();
    sender.send(b"before")?;
    // Messages whose receivers are gone.
    let mut lone = domain.sender("lone").create()?;
    let mut shared = domain.sender("shared").open_shared(2)?;
    let mut lasts = Vec::new();
    for name in ["lone", "shared"] {
        let mut last = domain.receiver(name).join()?;
        if name == "lone" {
            lone.send(b"last")?
        } else {
            shared.send(b"last")?
        };
        lasts.push(last.receive()?.hold());
    }
    let progressing = domain.endpoint("progressing").create()?.with_progress_thread()?;
    progressing.lock()?.ireceive(Selector::any(), vec![0; 8])?;
    // Nobody in the child releases what is locked now.
    let locked = progressing.lock()?;
    // SAFETY: the child uses only what corewire allows after a fork, and ends with `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_right = matches!(progressing.lock(), Err(MessageError::Forked))
            && sender.send(b"from the child") == Err(SendError::Forked)
            && receiver.receive().map(|message| message.len()) == Err(ReceiveError::Forked)
            && matches!(domain.sender("other").create(), Err(CreateError::Forked))
            && matches!(domain.receiver(&options.channel).join(), Err(JoinError::Forked))
            && lasts.iter().chain([&held]).all(|held| held[..] == [0; 4])
            && child_can_start_anew(directory, &options.channel);
        drop((sender, receiver, held, lasts, locked));
        drop(progressing);
        // SAFETY: ends the child without running its parent's exit handlers.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    drop(locked);
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if status != 0 {
        return Err(format!("the child ended with {status:#x}").into());
    }
    // The parent's channel must be undisturbed.
    let are_whole = lasts.iter().all(|last| last[..] == *b"last");
    if held[..] != *b"held" || !are_whole || (lone.receivers(), shared.receivers()) != (1, 1) {
        return Err("the fork disturbed a held message".into());
    }
    drop(held);
    sender.send(b"after")?;
    let first = receiver.receive()?.to_vec();
    let second = receiver.receive()?.to_vec();
    if first != b"before" || second != b"after" || sender.receivers() != 1 {
        return Err("the fork disturbed the parent's channel".into());
    }
    println!("forked well");
    Ok(())
}

/// The child opens the domain again and joins its parent's channel, as any other process does.
fn child_can_start_anew(directory: &Path, channel: &str) -> bool {
    let Ok(domain) = Domain::open_at(directory) else { return false };
    let Ok(receiver) = domain.receiver(channel).join() else { return false };
    let Ok(mut own) = domain.sender("of-the-child").create() else { return false };
    own.send(b"x").is_ok() && receiver.next_sequence() == 2
}

/// The descriptors that are open here, and the maps of segments.
fn held() -> std::io::Result<BTreeSet<String>> {
    let mut held = BTreeSet::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        // The directory that is read here is closed by the time of the second look.
        if let Ok(target) = std::fs::read_link(entry.path())
            && !target.ends_with("fd")
        {
            let number = entry.file_name();
            held.insert(format!("{} {}", number.to_string_lossy(), target.display()));
        }
    }
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    held.extend(maps.lines().filter(|line| line.contains("memfd:")).map(str::to_owned));
    Ok(held)
}

/// Opens the domain, and creates, joins and drops channels in it.
fn churn(directory: &Path, name: &str) -> Outcome {
    let domain = Domain::open_at(directory)?;
    let mut sender = domain.sender(name).slots(64).window_bytes(64 << 10).create()?;
    let mut receiver = domain.receiver(name).join()?;
    sender.send(name.as_bytes())?;
    match receiver.receive()?.to_vec() == name.as_bytes() {
        true => Ok(()),
        false => Err("another message arrived".into()),
    }
}

/// Runs `job` while two threads churn in `directory`.
fn beside_churning<R>(directory: &Path, job: impl FnOnce(&AtomicU64) -> R) -> R {
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for name in ["first", "second"] {
            let (is_over, rounds) = (&is_over, &rounds);
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    if let Err(error) = churn(directory, name) {
                        println!("churn {name}: {error}");
                    }
                    rounds.fetch_add(1, Relaxed);
                }
            });
        }
        let result = job(&rounds);
        is_over.store(true, Relaxed);
        result
    })
}

/// Forks `count` times while two threads open, create, join and drop: no child has anything of it, and each
/// can begin anew.
pub(crate) fn fork_beside_churning(directory: &Path, options: &Options) -> Outcome {
    let before = held()?;
    let apart = directory.join("of-the-children");
    std::fs::create_dir_all(directory)?;
    let failures = beside_churning(&directory.join("of-the-parent"), |rounds| {
        let mut failures = 0;
        for _ in 0..options.count {
            // SAFETY: the child uses only what corewire allows after a fork, and ends with `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends a child that hangs.
                unsafe { libc::alarm(30) };
                let code = match held() {
                    Ok(held) if held == before => i32::from(churn(&apart, "c").is_err()) * 2,
                    Ok(held) => {
                        eprintln!("kept: {:?}", held.difference(&before).collect::<Vec<_>>());
                        1
                    }
                    Err(_) => 3,
                };
                // SAFETY: ends the child without its parent's exit handlers.
                unsafe { libc::_exit(code) };
            }
            let mut status = 0;
            // SAFETY: our own child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            if status != 0 {
                eprintln!("a child ended with {status:#x}");
                failures += 1;
            }
        }
        println!("rounds {}", rounds.load(Relaxed));
        failures
    });
    println!("failures {failures}");
    Ok(())
}

/// Leaves children behind that were forked while a channel was created, which do nothing and do not end.
pub(crate) fn leave_children(domain: &Domain, options: &Options) -> Outcome {
    rustix::process::setpgid(None, None)?;
    let is_created = AtomicBool::new(false);
    let sender = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_created.load(Relaxed) {
                // SAFETY: the child calls nothing but `pause`.
                if unsafe { libc::fork() } == 0 {
                    loop {
                        // SAFETY: waits for a signal.
                        unsafe { libc::pause() };
                    }
                }
            }
        });
        let sender = domain.sender(&options.channel).create();
        is_created.store(true, Relaxed);
        sender
    })?;
    println!("created {}", sender.name());
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// The most processor time that one operation of a real-time thread takes, in nanoseconds, while a thread of
/// ordinary priority does the same on the same core.
pub(crate) fn share_core_with_real_time(options: &Options) -> Outcome {
    use corewire_os::event::Bell;
    use rustix::time::{ClockId, clock_gettime};
    corewire_os::processor::pin_to(corewire_os::processor::allowed()?[0])?;
    let is_over = AtomicBool::new(false);
    let longest = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                drop(Bell::new());
            }
        });
        let real_time = scope.spawn(|| -> Result<u64, std::io::Error> {
            let priority = libc::sched_param { sched_priority: 1 };
            // SAFETY: the parameter outlives the call.
            if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
            let used_ns = || {
                let now = clock_gettime(ClockId::ThreadCPUTime);
                u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or(0)
            };
            let mut longest = 0;
            for _ in 0..options.count {
                let before = used_ns();
                drop(Bell::new());
                longest = longest.max(used_ns() - before);
                // The other thread runs, and is interrupted anywhere when this one comes back.
                let moment = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 20_000 };
                let _ = rustix::thread::nanosleep(&moment);
            }
            Ok(longest)
        });
        let longest = real_time.join();
        is_over.store(true, Relaxed);
        longest
    });
    match longest {
        Ok(Ok(longest)) => println!("longest {longest}"),
        Ok(Err(error)) => println!("refused {error}"),
        Err(_) => return Err("the thread panicked".into()),
    }
    Ok(())
}

/// Threads of one core make descriptors at the same time. Some of them may not hand over a lock to a thread
/// that waits in the kernel, and do not end before the others are done; or all may, until they may not.
pub(crate) fn mix_filters(options: &Options) -> Outcome {
    use corewire_os::event::Bell;
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    static ROUNDS: AtomicU64 = AtomicU64::new(0);
    corewire_os::processor::pin_to(corewire_os::processor::allowed()?[0])?;
    let is_filtered_later = options.is_filtered_later;
    let refused = [(); 2].map(|()| {
        thread::spawn(move || -> std::io::Result<()> {
            if !is_filtered_later {
                crate::refuse::refuse_unlock_pi(0)?;
            }
            while !IS_OVER.load(Relaxed) {
                drop(Bell::new());
            }
            Ok(())
        })
    });
    let count = options.count;
    let others = [(); 2].map(|()| {
        thread::spawn(move || {
            for _ in 0..count {
                drop(Bell::new());
                ROUNDS.fetch_add(1, Relaxed);
            }
        })
    });
    if options.is_filtered_later {
        while ROUNDS.load(Relaxed) < count {
            thread::yield_now();
        }
        crate::refuse::refuse_unlock_pi(libc::SECCOMP_FILTER_FLAG_TSYNC)?;
    }
    for thread in others {
        thread.join().map_err(|_| "a thread panicked")?;
    }
    IS_OVER.store(true, Relaxed);
    for thread in refused {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    println!("done");
    Ok(())
}
