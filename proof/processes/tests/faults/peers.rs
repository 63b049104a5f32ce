//! The processes at the other end, which have no faults: a receiver that joins, a receiver that
//! waits, a sender that creates the channel.

use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver as Told, Sender as Tell, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use corewire::{Domain, ReceiveError, Receiver};

use crate::roles::Directory;
use crate::supervisor::Reply;

const CHANNEL: &str = "faulty";

type Outcome = Result<(), String>;

/// What the other end does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Nothing,
    /// Joins the channel once the role has created it, and reads it to its end.
    Receives,
    /// Waits for the channel before the role creates it, and reads it to its end.
    Waits,
    /// Creates the channel once the role waits for it, and keeps it until the role is done.
    Sends,
}

/// The other end of a role.
pub(crate) struct Peer {
    part: Part,
    domain: Option<Domain>,
    threads: Vec<JoinHandle<Outcome>>,
    /// While this exists, the role is not done.
    is_wanted: Option<Tell<()>>,
    has_missed: Arc<AtomicBool>,
    failures: Arc<Mutex<Vec<String>>>,
}

impl Peer {
    pub(crate) fn new(part: Part, directory: &Directory) -> Self {
        let domain = (part != Part::Nothing).then(|| Domain::open_at(directory.path()).unwrap());
        Self {
            part,
            domain,
            threads: Vec::new(),
            is_wanted: None,
            has_missed: Arc::default(),
            failures: Arc::default(),
        }
    }

    fn start(&mut self, job: impl FnOnce(&Domain) -> Outcome + Send + 'static) {
        let domain = self.domain.clone().unwrap();
        self.threads.push(thread::spawn(move || job(&domain)));
    }

    /// Called when the channel exists. The role continues once the peer has joined.
    pub(crate) fn on_created(&mut self, reply: Reply) {
        self.start(move |domain| {
            let join = || domain.receiver(CHANNEL).from_oldest().join();
            let receiver = join().or_else(|_| join());
            reply.go_on();
            let mut receiver = receiver.map_err(|error| format!("join: {error}"))?;
            match read_to_end(&mut receiver)? {
                300 => Ok(()),
                end => Err(format!("the stream ended with {end}")),
            }
        });
    }

    /// Called when the role is about to create the channel.
    pub(crate) fn on_wanted(&mut self) {
        let has_missed = Arc::clone(&self.has_missed);
        self.start(move |domain| wait_and_read(domain, &has_missed));
    }

    /// Called when the role waits for something and is about to sleep.
    pub(crate) fn on_wait(&mut self) {
        if self.part == Part::Sends && self.is_wanted.is_none() {
            let (is_wanted, until) = channel();
            self.is_wanted = Some(is_wanted);
            self.start(move |domain| send(domain, &until));
        }
    }

    /// Called when the role has dropped everything. Its peers do the same; then the role continues.
    pub(crate) fn on_over(&mut self, reply: Reply) {
        self.is_wanted = None;
        let threads = take(&mut self.threads);
        let failures = Arc::clone(&self.failures);
        // In another thread: until the peers are gone, this one must serve the role's control
        // thread.
        thread::spawn(move || {
            let panicked = || Err("it panicked".to_owned());
            let ends =
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked()));
            failures.lock().unwrap().extend(ends.filter_map(Result::err));
            reply.go_on();
        });
    }

    /// The failures at this end, where no fault was injected.
    pub(crate) fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap().clone()
    }

    /// Whether a receiver missed the first message of a channel that it waited for, without an
    /// error.
    pub(crate) fn has_missed(&self) -> bool {
        self.has_missed.load(Relaxed)
    }
}

fn send(domain: &Domain, until: &Told<()>) -> Outcome {
    let mut sender = domain.sender(CHANNEL).create().map_err(|error| error.to_string())?;
    for number in 0..3 {
        sender.send(&content(number, 48)).map_err(|error| error.to_string())?;
    }
    // The role hangs up when it is done.
    let _ = until.recv();
    Ok(())
}

/// Reads to the end of the stream. Returns the number of messages in the stream.
fn read_to_end(receiver: &mut Receiver) -> Result<u64, String> {
    let mut number = receiver.next_sequence();
    loop {
        match receiver.receive() {
            Ok(message) if message[..] == content(number, 48) => {}
            Ok(_) => return Err(format!("message {number} is not what was sent")),
            Err(ReceiveError::EndOfStream) => return Ok(number),
            Err(error) => return Err(format!("message {number}: {error}")),
        }
        number += 1;
    }
}

/// Joins as soon as it can. Joins again if the channel that it joined was given up before its first
/// message.
fn wait_and_read(domain: &Domain, has_missed: &AtomicBool) -> Outcome {
    let mut was_refused = false;
    loop {
        let mut receiver = match domain.receiver(CHANNEL).join_when_created() {
            Ok(receiver) => receiver,
            Err(_) if !was_refused => {
                was_refused = true;
                continue;
            }
            Err(error) => return Err(format!("join: {error}")),
        };
        let first = receiver.next_sequence();
        if read_to_end(&mut receiver)? > 0 {
            has_missed.fetch_or(first > 0 && !was_refused, Relaxed);
            return Ok(());
        }
    }
}

/// The content of message `number`; `src/faults.rs` has the same.
fn content(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|index| (number * 31 + index / 7).to_le_bytes()[0]).collect()
}
