//! Processes of other users.

use std::fs::File;
use std::io;
use std::num::ParseIntError;
use std::path::Path;
use std::time::{Duration, Instant};

use corewire::{Domain, JoinError, Receiver};
use corewire_os::socket::{ReceiveError, Socket};

use crate::by_hand::CONNECT_LIMIT;
use crate::{Options, Outcome};

/// Parses numbers that are separated by commas.
pub(crate) fn numbers(list: &str) -> Result<Vec<u32>, ParseIntError> {
    list.split(',').map(str::parse).collect()
}

/// Makes this process run as user `uid`, whose primary group has the same number, with exactly
/// these supplementary groups. Only root can do this.
pub(crate) fn become_user(uid: u32, groups: &[u32]) -> io::Result<()> {
    // SAFETY: the length is that of the list.
    let first = unsafe { libc::setgroups(groups.len(), groups.as_ptr()) };
    // SAFETY: integer arguments only.
    let second = unsafe { libc::setgid(uid) };
    // SAFETY: integer arguments only.
    let third = unsafe { libc::setuid(uid) };
    if (first, second, third) == (0, 0, 0) { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Prints what this process can see and do.
pub(crate) fn look(domain: &Domain, options: &Options) -> Outcome {
    let names: Vec<_> = domain.channels()?.iter().map(ToString::to_string).collect();
    println!("channels {}", names.join(" "));
    match domain.observe(&options.channel) {
        Ok(observer) => {
            let view = observer.look();
            println!("observed sent={} receivers={}", view.sent, view.receivers.len());
        }
        Err(error) => println!("observed {error:?}"),
    }
    let builder = || domain.receiver(&options.channel).wait(options.wait);
    println!("joined {}", late_by(builder().join()));
    println!("created {:?}", domain.sender("of-the-guest").create().map(drop));
    println!("waiting");
    let waited = match options.has_snapshots {
        false => late_by(builder().join_when_created()),
        true => late_by(builder().snapshots().join_when_created()),
    };
    println!("waited {waited}");
    Ok(())
}

/// Which message a receiver begins with.
fn late_by<A>(joined: Result<Receiver<[u8], A>, JoinError>) -> String {
    match joined {
        Ok(receiver) => format!("from {}", receiver.late_by()),
        Err(error) => format!("{error:?}"),
    }
}

/// A guest at its worst, in a channel that evicts: `slots` says how it behaves, the channel's name is
/// joined again and again until the sender ends.
pub(crate) fn misbehave(domain: &Domain, options: &Options) -> Outcome {
    let patience = Duration::from_millis(options.count);
    let nap = |part: u32| {
        let nap = rustix::time::Timespec::try_from(patience * part / 100).unwrap_or_default();
        let _ = rustix::event::poll(&mut [], Some(&nap));
    };
    println!("ready");
    loop {
        let mut receiver = match domain.receiver(&options.channel).snapshots().join() {
            Ok(receiver) => receiver,
            Err(JoinError::Refused { .. } | JoinError::NoAnswer { .. }) => continue,
            Err(_) => return Ok(()),
        };
        match options.worst {
            // Moves by one message, a little more often than it must.
            Worst::Trickle => {
                while receiver.receive().map(drop).is_ok() {
                    receiver.acknowledge();
                    nap(90);
                }
            }
            // Reads nothing, and comes again when it has been evicted, or a little before.
            Worst::Rejoin => nap(95),
            Worst::Stop => nap(500),
            Worst::Nothing => while receiver.receive().map(drop).is_ok() {},
        }
    }
}

/// How a guest misbehaves.
#[derive(Clone, Copy)]
pub(crate) enum Worst {
    Trickle,
    Rejoin,
    Stop,
    /// Not at all: it reads as fast as it can.
    Nothing,
}

/// Sends as fast as it can until the end of its input, and says how many messages that were.
pub(crate) fn send_evicting(domain: &Domain, options: &Options) -> Outcome {
    let builder = domain.sender(&options.channel).evict(Duration::from_millis(options.count));
    let mut sender = builder.create()?;
    println!("created");
    sender.wait_for_receivers_timeout(options.receivers, Duration::from_secs(20))?;
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::stdin().read_line(&mut String::new());
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        println!("sending");
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            for _ in 0..1000 {
                sender.send(&[7; 48])?;
            }
        }
        Ok::<(), corewire::SendError>(())
    })?;
    println!("sent {}", sender.sent());
    Ok(())
}

/// Connects `count` times to every process of the directory, waits for the answer on the last
/// connection, and counts the other connections that got no answer.
pub(crate) fn idle(directory: &Path, count: u64) -> Outcome {
    let mut connections = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("p.")) {
            for _ in 0..count {
                connections.push(Socket::connect(&path.to_string_lossy(), CONNECT_LIMIT)?);
            }
        }
    }
    let Some(last) = connections.pop() else { return Err("nobody listens there".into()) };
    // Connections are accepted in order: once the last is answered, all have been handled.
    let patience = Instant::now().checked_add(Duration::from_secs(60));
    println!("last {:?}", last.receive_by(patience)?.0);
    let is_idle = |socket: &&Socket| matches!(socket.receive(), Err(ReceiveError::Nothing));
    println!("idle {}", connections.iter().filter(is_idle).count());
    // Keeps the connections until the test has seen enough.
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Locks the files of a channel's name that it can open.
pub(crate) fn lock(directory: &Path, channel: &str) -> Outcome {
    let mut locked = Vec::new();
    for prefix in ["n.", "g."] {
        if let Ok(file) = File::open(directory.join(format!("{prefix}{channel}"))) {
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
            locked.push((prefix, file));
        }
    }
    println!("locked {:?}", locked.iter().map(|(prefix, _)| prefix).collect::<Vec<_>>());
    // Keeps the locks until the test has seen enough.
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Creates `count` channels, and keeps them until the test has seen enough.
pub(crate) fn take_names(domain: &Domain, options: &Options) -> Outcome {
    let create = |index| {
        let name = format!("{}{index}", options.channel);
        domain.sender(&name).slots(64).window_bytes(64 << 10).receivers(1).create()
    };
    let senders = (0..options.count).map(create).collect::<Result<Vec<_>, _>>()?;
    println!("created {}", senders.len());
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Joins `count` times, and keeps all receivers until the test has seen enough.
pub(crate) fn take_rows(domain: &Domain, options: &Options) -> Outcome {
    let builder = || domain.receiver(&options.channel).snapshots();
    let reason = |error: JoinError| match error {
        JoinError::Refused { reason, .. } => reason.to_string(),
        other => other.to_string(),
    };
    let mut receivers = Vec::new();
    for _ in 0..options.count {
        match builder().join() {
            Ok(receiver) => receivers.push(receiver),
            Err(error) => println!("refused {}", reason(error)),
        }
    }
    if let Err(error) = builder().from_oldest().join() {
        println!("oldest {}", reason(error));
    }
    if let Err(error) = builder().from_oldest_if_possible().join() {
        println!("if-possible {}", reason(error));
    }
    println!("joined {}", receivers.len());
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}
