//! Messages one way, as many as possible.
//!
//! A sender warms up, sends a mark and waits until all receivers have it, then measures and sends a
//! second mark. Receivers measure from mark to mark. Every message is written and read completely; its
//! sum and its place in the order are checked. Where messages can get lost, a mark is sent again until
//! it has arrived.

use std::time::{Duration, Instant};

use corewire_published::yardstick::payload;
use rustix::time::{ClockId, clock_gettime};

use super::mark::{Code, Said, Word};
use super::{ENDED, Place, Report, STARTED, Task};
use crate::study::counters::Counters;
use crate::study::failure::Failure;
use crate::study::mechanisms::{Receives, Sends, Site};

/// How long a sender sends between two reads of the clock.
const LOOK: Duration = Duration::from_micros(100);
/// Maximum number of messages between two reads of the clock.
const LOOK_MESSAGES_MAX: u64 = 1 << 15;
/// Time after which a mark is sent again, because it may be lost.
const AGAIN: Duration = Duration::from_millis(2);
const AGAIN_COUNTED: Duration = Duration::from_millis(500);

/// Measures what happens between the marks.
struct Meter {
    started: Instant,
    cpu_ns: u64,
    copied_bytes: u64,
    counters: Counters,
    is_marked: bool,
}

impl Meter {
    fn start(copied_bytes: u64, place: &Place<'_>) -> Self {
        let is_marked = matches!(place.order.task, Task::Count { .. });
        let (counters, cpu_ns, started) = (Counters::start(), cpu_ns(), Instant::now());
        mark(is_marked);
        Self { started, cpu_ns, copied_bytes, counters, is_marked }
    }

    fn stop(self, messages: u64, copied_bytes: u64) -> Report {
        mark(self.is_marked);
        let elapsed = self.started.elapsed();
        let cpu_ns = cpu_ns() - self.cpu_ns;
        let (instructions, cache_misses) = self.counters.stop();
        Report {
            messages,
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            cpu_ns,
            instructions,
            cache_misses,
            copied_bytes: copied_bytes - self.copied_bytes,
            ..Report::default()
        }
    }
}

/// A system call that the process that counts them can tell from all others.
fn mark(is_wanted: bool) {
    if is_wanted {
        std::hint::black_box(rustix::process::getppid());
    }
}

/// Processor time of this process.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or_default();
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// The part of a sender.
pub(super) fn send(
    end: &mut impl Sends,
    place: &Place<'_>,
    site: &Site,
) -> Result<Report, Failure> {
    let code = Code::new(site.shape.bytes, place.index());
    let (warm_up, bound) = match place.order.task {
        Task::Stream { warm_up, measured } => (Bound::Time(warm_up), Bound::Time(measured)),
        Task::Count { messages, .. } => (Bound::Messages(messages / 10), Bound::Messages(messages)),
        Task::PingPong { .. } => return Err(Failure::other("a round trip is no stream")),
    };
    let first = code.first();
    let (_, next) = burst(end, code, first, warm_up)?;
    mark_all(end, place, site, code.start(), STARTED)?;
    let meter = Meter::start(end.copied_bytes(), place);
    let (messages, _) = burst(end, code, next, bound)?;
    let report = meter.stop(messages, end.copied_bytes());
    place.worker.reach(ENDED);
    mark_all(end, place, site, code.end(), ENDED)?;
    Ok(report)
}

/// The length of a burst.
#[derive(Debug, Clone, Copy)]
enum Bound {
    Time(Duration),
    Messages(u64),
}

/// Sends messages, beginning with the one of `word`. Returns their number and the next word.
fn burst(
    end: &mut impl Sends,
    code: Code,
    mut word: Word,
    bound: Bound,
) -> Result<(u64, Word), Failure> {
    let started = Instant::now();
    let (mut sent, mut count, mut looked) = (0, 1, Duration::ZERO);
    loop {
        if let Bound::Messages(messages) = bound {
            count = messages - sent;
        }
        word = send_some(end, code, word, count)?;
        sent += count;
        let now = started.elapsed();
        match bound {
            Bound::Time(time) if now < time => {}
            Bound::Messages(messages) if sent < messages => {}
            _ => return Ok((sent, word)),
        }
        if now - looked < LOOK {
            count = (2 * count).min(LOOK_MESSAGES_MAX);
        } else if now - looked > 4 * LOOK {
            count = (count / 2).max(1);
        }
        looked = now;
    }
}

#[inline(never)]
fn send_some(
    end: &mut impl Sends,
    code: Code,
    mut word: Word,
    count: u64,
) -> Result<Word, Failure> {
    for _ in 0..count {
        end.send(
            #[inline(always)]
            |message| payload::fill(message, word),
        )?;
        word = code.after(word);
    }
    Ok(word)
}

/// Sends a mark, and waits until all receivers have it.
fn mark_all(
    end: &mut impl Sends,
    place: &Place<'_>,
    site: &Site,
    mark: Word,
    step: u64,
) -> Result<(), Failure> {
    let receivers = || site.receivers().map(|receiver| (site.first_receiver + receiver) as usize);
    let patience = match place.order.task {
        _ if !place.is_lossy => Duration::MAX,
        // A process that is stopped at every call is slow, and a second mark would be counted.
        Task::Count { .. } => AGAIN_COUNTED,
        _ => AGAIN,
    };
    loop {
        end.send(|message| payload::fill(message, mark))?;
        if place.worker.board().await_all(receivers(), step, patience) {
            return Ok(());
        }
    }
}

/// The part of a receiver.
pub(super) fn receive(
    end: &mut impl Receives,
    place: &Place<'_>,
    site: &Site,
) -> Result<Report, Failure> {
    let code = Code::new(site.shape.bytes, 0);
    let mut order = Order { code, bytes: site.shape.bytes, is_lossy: place.is_lossy, due: vec![] };
    order.due =
        (0..site.shape.senders).map(|sender| Code::new(order.bytes, sender).first()).collect();
    // Waits for the marks of all senders, which start independently.
    pass_marks(end, &mut order, |said| matches!(said, Said::Start { .. }))?;
    let meter = Meter::start(end.copied_bytes(), place);
    place.worker.reach(STARTED);
    if place.is_lossy && matches!(place.order.task, Task::Count { is_late: true, .. }) {
        let senders = 0..site.shape.senders as usize;
        place.worker.board().await_all(senders, ENDED, Duration::MAX);
    }
    let messages = pass_marks(end, &mut order, |said| matches!(said, Said::End { .. }))?;
    let report = meter.stop(messages, end.copied_bytes());
    place.worker.reach(ENDED);
    Ok(report)
}

/// Receives until every sender has sent a word that satisfies `is_mark`. Returns the number of
/// messages.
fn pass_marks(
    end: &mut impl Receives,
    order: &mut Order,
    is_mark: impl Fn(Said) -> bool,
) -> Result<u64, Failure> {
    let mut waiting: Vec<usize> = (0..order.due.len()).collect();
    let mut messages = 0;
    while !waiting.is_empty() {
        let (count, said) = receive_some(end, order)?;
        messages += count;
        match said {
            Said::Start { sender } | Said::End { sender } if is_mark(said) => {
                waiting.retain(|&other| other != sender);
            }
            _ => {}
        }
    }
    Ok(messages)
}

/// The expected order of the messages.
struct Order {
    code: Code,
    bytes: usize,
    is_lossy: bool,
    /// The next word of each sender.
    due: Vec<Word>,
}

/// Receives until a mark arrives. Messages of the first sender that arrive in order take the short
/// path.
#[inline(never)]
fn receive_some(end: &mut impl Receives, order: &mut Order) -> Result<(u64, Said), Failure> {
    let (code, bytes) = (order.code, order.bytes);
    let mut messages = 0;
    let mut due = order.due[0];
    loop {
        let (word, sum) = end.receive(
            #[inline(always)]
            |message| (code.read(message), payload::sum(message)),
        )?;
        if sum != payload::expected_sum(bytes, word) {
            let text =
                format!("a message of {bytes} bytes arrived damaged, where {due:#x} was due");
            return Err(Failure::other(text));
        }
        if word == due {
            due = code.after(due);
            messages += 1;
            continue;
        }
        order.due[0] = due;
        if order.accept(word)? {
            messages += 1;
            due = order.due[0];
        } else {
            return Ok((messages, code.say(word)));
        }
    }
}

impl Order {
    /// Accepts a word that is not the next one of the first sender: a message of another sender, or one
    /// after a loss. Returns false for a mark.
    #[inline(never)]
    fn accept(&mut self, word: Word) -> Result<bool, Failure> {
        let Said::Message { sender, .. } = self.code.say(word) else { return Ok(false) };
        let Some(due) = self.due.get_mut(sender) else {
            return Err(Failure::other(format!("a message of no sender arrived: {word:#x}")));
        };
        if word != *due && !self.is_lossy {
            return Err(Failure::other(format!("{word:#x} arrived where {:#x} was due", *due)));
        }
        *due = self.code.after(word);
        Ok(true)
    }
}
