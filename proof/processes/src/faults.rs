//! A user of corewire for which one system call fails. Prints how each call of the library ended,
//! and what is left at the end.
//!
//! Every call that fails is made once more and must then succeed: a fault affects only the call
//! that it hit. After the scenario everything is dropped and counted, and the scenario runs once
//! more.

mod listener;

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Display;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use corewire::{
    Access, CreateError, Domain, Observer, ReceiveError, Receiver, Sender, SharedSender, Wait,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{getegid, geteuid};

use crate::Outcome;
use crate::supervised::{hand_over, mark, put_before_supervisor};

/// The marks for the supervisor; `tests/faults/supervisor.rs` has the same.
mod marks {
    /// Calls count from here on. After the second such mark they are no longer disturbed.
    pub(crate) const BEGIN: i32 = 1;
    /// The first thread does something that is not the library's. Calls of other threads still
    /// count.
    pub(crate) const PAUSE: i32 = 2;
    /// The first thread's calls count again.
    pub(crate) const RESUME: i32 = 3;
    /// The calling thread is not the control thread.
    pub(crate) const HELPER: i32 = 4;
    /// The channel exists, so the peer can join it.
    pub(crate) const CREATED: i32 = 5;
    /// A peer may start to wait for the channel.
    pub(crate) const WANTED: i32 = 8;
    /// Everything is dropped. The supervisor answers once the peers are gone.
    pub(crate) const OVER: i32 = 6;
    /// The control thread has ended.
    pub(crate) const END: i32 = 7;
}

const CHANNEL: &str = "faulty";
/// Makes a failure end instead of hanging. A successful run never waits this long.
const LIMIT: Duration = Duration::from_secs(20);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Runs `scenario` twice, with the calls `numbers` supervised.
pub(crate) fn run(scenario: &str, directory: &Path, numbers: &str) -> Outcome {
    let scenario = match scenario {
        "alone" => alone,
        "owner" => owner,
        "waiter" => waiter,
        "inviter" => inviter,
        "sweeper" => sweeper,
        "host" => host,
        "shared" => shared,
        "copier" => copier,
        "listener" => listener::listener,
        other => return Err(format!("no scenario {other}").into()),
    };
    let numbers: std::result::Result<Vec<u32>, _> = numbers.split(',').map(str::parse).collect();
    let listener = match put_before_supervisor(&numbers?) {
        Ok(listener) => listener,
        Err(error) => {
            println!("refused {error}");
            return Ok(());
        }
    };
    hand_over(&listener)?;
    drop(listener);
    std::io::stdin().read_exact(&mut [0])?;
    let before = Census::take(directory)?;
    // In the second round nothing may fail.
    for round in ["first", "second"] {
        mark(marks::BEGIN);
        let outcome = scenario(directory);
        mark(marks::OVER);
        while threads()? > 1 {
            thread::yield_now();
        }
        mark(marks::END);
        if let Err(error) = outcome {
            println!("{round} failed: {error}");
        }
        for line in Census::take(directory)?.beyond(&before) {
            println!("{round} left: {line}");
        }
    }
    println!("done");
    Ok(())
}

/// Runs `job`, and once more if it fails.
fn attempt<T, E: Display>(
    what: &str,
    mut job: impl FnMut() -> std::result::Result<T, E>,
) -> Result<T> {
    job().or_else(|error| {
        println!("error: {what}: {error}");
        job().map_err(|error| format!("{what}, tried again: {error}").into())
    })
}

/// Runs `job`, which is not part of the library, without counting its calls for faults.
fn apart<T>(job: impl FnOnce() -> T) -> T {
    mark(marks::PAUSE);
    let result = job();
    mark(marks::RESUME);
    result
}

/// Everything that one process can do with a channel.
fn alone(directory: &Path) -> Outcome {
    let domain = attempt("open", || Domain::open_at(directory))?;
    let mut sender = attempt("create", || {
        let builder = domain.sender(CHANNEL).slots(64).window_bytes(64 << 10);
        builder.largest_message(100_000).receivers(4).wait(Wait::Park).prefault(true).create()
    })?;
    let mut receiver = attempt("join", || domain.receiver(CHANNEL).wait(Wait::Park).join())?;
    // Empty, in a slot, in the window, and in the large area.
    for (number, bytes) in [0, 48, 49, 5000, 16_384, 100_000].into_iter().enumerate() {
        let number = number as u64;
        attempt("send", || sender.send(&content(number, bytes)))?;
        receive(&mut receiver, number, bytes)?;
    }
    let names = attempt("channels", || domain.channels())?;
    if names.iter().map(|name| name.as_str()).ne([CHANNEL]) {
        return Err(format!("the channels are {names:?}").into());
    }
    let observer = attempt("observe", || domain.observe(CHANNEL))?;
    if observer.look().receivers.len() != 1 {
        return Err("the observer sees no receiver".into());
    }
    sleep_and_wake(&mut sender, &mut receiver, &observer)?;
    wait_readable(&mut sender, &mut receiver)?;
    // A receiver that leaves no longer counts.
    drop(receiver);
    while sender.receivers() > 0 {
        thread::yield_now();
    }
    let mut receiver =
        attempt("join again", || domain.receiver(CHANNEL).wait(Wait::Park).from_oldest().join())?;
    receive(&mut receiver, 0, 0)?;
    // Closed while a receiver reads.
    drop(sender);
    let rest: Vec<_> = receiver.copies().collect();
    if rest.len() != 7 || rest.iter().any(std::result::Result::is_err) {
        return Err(format!("{} messages were left, and {:?}", rest.len(), rest.last()).into());
    }
    Ok(())
}

/// The receiver sleeps; the sender, in another thread, wakes it with message 6.
fn sleep_and_wake(sender: &mut Sender, receiver: &mut Receiver, observer: &Observer) -> Outcome {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        mark(marks::PAUSE);
        let helper = scope.spawn(|| {
            mark(marks::HELPER);
            while !is_over.load(Relaxed) && !observer.look().receivers[0].is_asleep {
                thread::yield_now();
            }
            sender.send(&content(6, 48)).map_err(|error| error.to_string())
        });
        mark(marks::RESUME);
        let received = receive(receiver, 6, 48);
        is_over.store(true, Relaxed);
        mark(marks::PAUSE);
        let sent = helper.join().map_err(|_| "the sending thread panicked")?;
        mark(marks::RESUME);
        sent?;
        received
    })
}

/// The receiver waits for its descriptor, which message 7 must ring.
fn wait_readable(sender: &mut Sender, receiver: &mut Receiver) -> Outcome {
    let readiness = attempt("readiness", || receiver.readiness())?;
    if !attempt("arm", || receiver.arm())? {
        return Err("there is something to receive before it is sent".into());
    }
    attempt("send", || sender.send(&content(7, 48)))?;
    let limit = Timespec::try_from(LIMIT)?;
    let mut polled = [PollFd::new(&readiness, PollFlags::IN)];
    if apart(|| poll(&mut polled, Some(&limit)))? != 1 {
        return Err("the readiness descriptor is not rung".into());
    }
    receive(receiver, 7, 48)
}

/// The content of message `number`, different from that of all others.
fn content(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|index| (number * 31 + index / 7).to_le_bytes()[0]).collect()
}

fn receive(receiver: &mut Receiver, number: u64, bytes: usize) -> Outcome {
    let message = receiver.receive().map_err(|error| format!("receive {number}: {error}"))?;
    if message.sequence() != number || message[..] != content(number, bytes) {
        return Err(format!("message {number} is not what was sent").into());
    }
    Ok(())
}

/// Channels whose messages are copied out, with either policy, in memory of every kind.
fn copier(directory: &Path) -> Outcome {
    let domain = attempt("open", || Domain::open_at(directory))?;
    for is_evicting in [false, true] {
        let mut sender = attempt("create", || {
            let builder = domain.sender(CHANNEL).slots(64).largest_message(100_000);
            let builder = builder.wait(Wait::Park).huge_pages(true).lock_memory(true).numa_node(0);
            match is_evicting {
                false => builder.overwrite().create(),
                true => builder.evict(Duration::ZERO).create(),
            }
        })?;
        let mut receiver = attempt("join", || domain.receiver(CHANNEL).snapshots().join())?;
        for (number, bytes) in [48, 5000, 100_000].into_iter().enumerate() {
            let number = number as u64;
            attempt("send", || sender.send(&content(number, bytes)))?;
            let copy = receiver.receive()?.to_vec()?;
            if copy != content(number, bytes) {
                return Err(format!("message {number} is not what was sent").into());
            }
        }
        for number in 0..100 {
            attempt("send", || sender.send(&content(number, 48)))?;
        }
        let fate = receiver.receive().map(|snapshot| snapshot.sequence());
        let is_as_promised = match is_evicting {
            false => fate.is_ok_and(|sequence| sequence >= 39),
            true => fate == Err(ReceiveError::Evicted),
        };
        if !is_as_promised {
            return Err("a receiver that was lapped was not told so".into());
        }
    }
    Ok(())
}

/// A channel of several senders, all in this process: the first creates it and leaves, and another
/// takes over.
fn shared(directory: &Path) -> Outcome {
    let domain = attempt("open", || Domain::open_at(directory))?;
    let open = || -> std::result::Result<SharedSender, CreateError> {
        let builder = domain.sender(CHANNEL).slots(64).window_bytes(64 << 10).receivers(4);
        builder.largest_message(100_000).wait(Wait::Park).open_shared(4)
    };
    let join = || domain.receiver(CHANNEL).wait(Wait::Park).join();
    let mut first = attempt("make", open)?;
    let mut second = attempt("enter", open)?;
    let mut receiver = attempt("join", join)?;
    let mut number = 0;
    for bytes in [0, 48, 49, 16_384, 100_000] {
        for sender in [&mut first, &mut second] {
            attempt("send", || sender.send(&content(number, bytes)))?;
            receive(&mut receiver, number, bytes)?;
            number += 1;
        }
    }
    let observer = attempt("observe", || domain.observe(CHANNEL))?;
    if observer.look().receivers.len() != 1 {
        return Err("the observer sees no receiver, or too many".into());
    }
    let readiness = attempt("readiness", || receiver.readiness())?;
    if !attempt("arm", || receiver.arm())? {
        return Err("there is something to receive before it is sent".into());
    }
    attempt("send", || second.send(&content(number, 48)))?;
    let limit = Timespec::try_from(LIMIT)?;
    let mut polled = [PollFd::new(&readiness, PollFlags::IN)];
    if apart(|| poll(&mut polled, Some(&limit)))? != 1 {
        return Err("the readiness descriptor is not rung".into());
    }
    receive(&mut receiver, number, 48)?;
    number += 1;
    // A sender that failed to enter, or that has left, must not hold the others back.
    drop(first);
    let mut third = attempt("enter where another has taken over", open)?;
    let mut late = attempt("join where another has taken over", join)?;
    for _ in 0..200 {
        attempt("send", || third.send(&content(number, 48)))?;
        receive(&mut receiver, number, 48)?;
        receive(&mut late, number, 48)?;
        number += 1;
    }
    drop((second, third));
    for receiver in [&mut receiver, &mut late] {
        match receiver.receive().map(|message| message.to_vec()) {
            Err(ReceiveError::EndOfStream) => {}
            other => return Err(format!("at the end, {other:?}").into()),
        }
    }
    Ok(())
}

/// The sender of a channel that others observe and join; its channel has the hint segment for many
/// receivers.
fn owner(directory: &Path) -> Outcome {
    let domain = attempt("open", || Domain::open_at(directory))?;
    let builder = || domain.sender(CHANNEL).slots(64).receivers(16).wait(Wait::Park);
    let mut sender = attempt("create", || builder().create())?;
    mark(marks::CREATED);
    let joined = attempt("wait for receivers", || sender.wait_for_receivers_timeout(1, LIMIT))?;
    if joined == 0 {
        return Err("nobody joins".into());
    }
    // The ring fills several times: sender and receiver wait for each other.
    for number in 0..300 {
        attempt("send", || sender.send(&content(number, 48)))?;
    }
    attempt("drain", || sender.drain(LIMIT))?.then_some(()).ok_or("not drained")?;
    drop(sender);
    Ok(())
}

/// A receiver that starts before its channel exists. The supervisor creates the channel once the
/// receiver waits.
fn waiter(directory: &Path) -> Outcome {
    let domain = attempt("open", || Domain::open_at(directory))?;
    let mut is_late = false;
    let mut receiver = attempt("join when created", || {
        let builder = domain.receiver(CHANNEL).wait(Wait::Park);
        let builder = if is_late { builder.from_oldest() } else { builder };
        is_late = true;
        builder.join_when_created()
    })?;
    for number in 0..3 {
        receive(&mut receiver, number, 48)?;
    }
    Ok(())
}

/// The sender of a channel that a receiver waits for.
fn inviter(directory: &Path) -> Outcome {
    let domain = attempt("open", || Domain::open_at(directory))?;
    mark(marks::WANTED);
    apart(|| {
        let is_note = |entry: fs::DirEntry| {
            let is_named = entry.file_name().to_string_lossy().starts_with("w.");
            is_named && entry.metadata().is_ok_and(|file| file.len() > 0)
        };
        while !fs::read_dir(directory)?.flatten().any(is_note) {
            thread::yield_now();
        }
        std::io::Result::Ok(())
    })?;
    let mut sender = attempt("create", || domain.sender(CHANNEL).wait(Wait::Park).create())?;
    attempt("send", || sender.send(&content(0, 48)))?;
    let joined = attempt("wait for receivers", || sender.wait_for_receivers_timeout(1, LIMIT))?;
    attempt("send", || sender.send(&content(1, 48)))?;
    if joined == 0 || !attempt("drain", || sender.drain(LIMIT))? {
        return Err("nobody joins and reads".into());
    }
    Ok(())
}

/// A process that opens a directory with files of dead processes, and takes a dead owner's name.
fn sweeper(directory: &Path) -> Outcome {
    take_over(&attempt("open", || Domain::open_at(directory))?)
}

/// The same, where the dead owner had guests, and so has this one, first by one rule and then by
/// another. Root may give the directory to any group.
fn host(directory: &Path) -> Outcome {
    let open = |rule: Access| Domain::builder().path(directory).access(rule).open();
    let group = if geteuid().is_root() { 1 } else { getegid().as_raw() };
    drop(attempt("open to a group", || open(Access::Group(group)))?);
    take_over(&attempt("open to users", || open(Access::Users(vec![1])))?)?;
    drop(attempt("open to nobody", || open(Access::Owner))?);
    Ok(())
}

fn take_over(domain: &Domain) -> Outcome {
    let mut sender = attempt("create", || domain.sender("dead").create())?;
    attempt("send", || sender.send(b"alive"))?;
    match domain.receiver("dead-too").join().map(|_| ()) {
        Err(corewire::JoinError::NotFound(_)) => {}
        Err(error) => println!("error: join the dead: {error}"),
        Ok(()) => return Err("the dead can be joined".into()),
    }
    let mut receiver = attempt("join", || domain.receiver("dead").from_oldest().join())?;
    drop(sender);
    let first = receiver.receive().map_err(|error| format!("receive: {error}"))?.to_vec();
    let end = receiver.receive().map(|message| message.to_vec());
    if first != b"alive" || end != Err(ReceiveError::EndOfStream) {
        return Err(format!("received {first:?} and {end:?}").into());
    }
    Ok(())
}

fn threads() -> Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

/// Whether a map is a segment or the table of a sender's rows, which is the only anonymous memory
/// that is read-only.
fn is_corewire(map: &str) -> bool {
    map.contains("memfd:corewire") || (map.contains(" r--p ") && map.trim_end().ends_with(" 0"))
}

/// The resources that a process could fail to release.
struct Census {
    descriptors: usize,
    maps: usize,
    files: BTreeSet<String>,
}

impl Census {
    fn take(directory: &Path) -> Result<Self> {
        let maps = fs::read_to_string("/proc/self/maps")?;
        let names = |path: &Path| -> BTreeSet<String> {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        Ok(Self {
            descriptors: fs::read_dir("/proc/self/fd")?.count(),
            maps: maps.lines().filter(|line| is_corewire(line)).count(),
            files: names(directory),
        })
    }

    /// The differences from `before`.
    fn beyond(&self, before: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.descriptors != before.descriptors {
            found.push(format!("{} descriptors, {} before", self.descriptors, before.descriptors));
        }
        if self.maps != before.maps {
            found.push(format!("{} maps of segments, {} before", self.maps, before.maps));
        }
        found.extend(self.files.difference(&before.files).map(|file| format!("file {file}")));
        found
    }
}
