//! Senders and receivers of the torture test. Their behaviour is random. Every message holds its
//! sender's id and its number at that sender, and every byte of it follows from these two.
//!
//! A sender prints `at N` when N of its messages are sent, so everything that it printed before it
//! was killed was committed. A receiver joins again and again whatever channel there is. For each
//! stay it prints the hash of every block of sequence numbers that it saw whole, the messages that
//! it got from each sender, and how the stay ended.
//!
//! More than 600 lines, because the state of a round is passed from each step to the next one.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use corewire::{
    CreateError, Domain, Interrupter, JoinError, ReceiveError, Receiver, SendError, Sender,
    SharedSender, SnapshotReceiver, Wait,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::{Options, Outcome, Slow};

/// Number of sequence numbers whose messages share one hash.
const BLOCK: u64 = 1024;
/// Rows of a channel: more than there are processes, since the rows of dead processes are freed a
/// little later.
const SENDERS_MAX: usize = 32;
/// The longest message of a channel; longer than any message that is sent.
const LARGEST: usize = 80_000;
/// Cap on sleeps. Only a missing wake-up lasts this long: on a crowded machine, a process that has
/// sent a message may not run again before the default cap.
const SLEEP_CAP: Duration = Duration::from_secs(5);

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % end
    }

    fn count(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap_or(0)
    }
}

fn key_of(id: u64, number: u64) -> u64 {
    mix(id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number)
}

/// The length of a message: most fit a slot, some need the window, a few the large area.
fn length_of(key: u64) -> usize {
    let random = usize::try_from(key >> 40).unwrap_or(0);
    match key % 500 {
        0 => 70_000,
        1..=40 => 49 + random % 3000,
        _ => 16 + random % 33,
    }
}

/// The words of a message after the first two.
fn words_of(key: u64) -> impl Iterator<Item = [u8; 8]> {
    (0u64..).map(move |index| (key ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
}

fn write(message: &mut [u8], id: u64, number: u64) {
    let (head, rest) = message.split_at_mut(16);
    head[..8].copy_from_slice(&id.to_le_bytes());
    head[8..].copy_from_slice(&number.to_le_bytes());
    for (bytes, word) in rest.chunks_mut(8).zip(words_of(key_of(id, number))) {
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
}

/// The id of the sender and the message's number there. `None` if a byte of the message is wrong.
fn read(message: &[u8]) -> Option<(u64, u64)> {
    let (id, rest) = message.split_first_chunk::<8>()?;
    let (number, rest) = rest.split_first_chunk::<8>()?;
    let (id, number) = (u64::from_le_bytes(*id), u64::from_le_bytes(*number));
    let key = key_of(id, number);
    let mut pairs = rest.chunks(8).zip(words_of(key));
    let is_right =
        message.len() == length_of(key) && pairs.all(|(bytes, word)| bytes == &word[..bytes.len()]);
    is_right.then_some((id, number))
}

/// Number of descriptors, mappings of channels and threads of this process.
fn census() -> String {
    let count = |path| std::fs::read_dir(path).map_or(0, Iterator::count);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mapped = maps.lines().filter(|line| line.contains("memfd:corewire")).count();
    let (descriptors, threads) = (count("/proc/self/fd"), count("/proc/self/task"));
    format!("descriptors={descriptors} maps={mapped} threads={threads}")
}

/// Orders of the test on standard input: `census` requests one; the end of the input requests to
/// leave.
#[derive(Default)]
struct Orders {
    is_over: AtomicBool,
    interrupter: Mutex<Option<Interrupter>>,
}

impl Orders {
    fn listen(self: &Arc<Self>) -> thread::JoinHandle<()> {
        let orders = Arc::clone(self);
        thread::spawn(move || {
            for _ in std::io::stdin().lock().lines() {
                println!("census {}", census());
            }
            orders.is_over.store(true, Ordering::SeqCst);
            if let Some(it) = &*orders.interrupter.lock().unwrap_or_else(PoisonError::into_inner) {
                it.interrupt();
            }
        })
    }

    fn interrupt(&self, interrupter: Option<Interrupter>) {
        *self.interrupter.lock().unwrap_or_else(PoisonError::into_inner) = interrupter;
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

/// Runs `job`, then requires that nothing of it is left in this process.
fn leaving_nothing(job: impl FnOnce(&Arc<Orders>) -> Outcome) -> Outcome {
    let before = census();
    let orders = Arc::new(Orders::default());
    let listener = orders.listen();
    job(&orders)?;
    orders.interrupt(None);
    println!("done");
    let _ = listener.join();
    // The control thread ends a little later.
    let limit = Instant::now() + Duration::from_secs(30);
    while census() != before {
        if Instant::now() > limit {
            return Err(format!("{} at the start, {} at the end", before, census()).into());
        }
        thread::yield_now();
    }
    println!("clean");
    Ok(())
}

fn nap(random: &mut Random) {
    let nanos = i64::try_from(random.below(3_000_000)).unwrap_or(0);
    let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: nanos }));
}

pub(crate) fn send(directory: &std::path::Path, options: &Options) -> Outcome {
    leaving_nothing(|orders| {
        let domain = Domain::open_at(directory)?;
        let builder = domain
            .sender(&options.channel)
            .slots(options.slots)
            .window_bytes(64 << 10)
            .largest_message(LARGEST)
            .receivers(options.receivers)
            .wait(options.wait)
            .sleep_cap(SLEEP_CAP);
        let builder = match options.slow {
            Slow::Block => builder,
            Slow::Overwrite => builder.overwrite(),
            Slow::Evict(after) => builder.evict(after),
        };
        if !options.is_shared {
            return run(orders, options, &mut builder.create()?);
        }
        loop {
            match builder.clone().open_shared(SENDERS_MAX) {
                Ok(mut sender) => return run(orders, options, &mut sender),
                // The host that would admit it is stopped.
                Err(CreateError::NoHost { .. }) => println!("retry"),
                Err(CreateError::Enter(error)) if matches!(*error, JoinError::NoAnswer { .. }) => {
                    println!("retry");
                }
                Err(error) => return Err(error.into()),
            }
            if orders.is_over() {
                println!("closed 0");
                return Ok(());
            }
        }
    })
}

/// Takes turns until it is told to leave or a call fails.
fn run(orders: &Orders, options: &Options, sender: &mut impl Sends) -> Outcome {
    orders.interrupt(Some(sender.interrupter()));
    println!("created");
    let mut random = Random(options.count);
    let (mut number, mut cap_finds) = (0, 0);
    while !orders.is_over() {
        let turned = turn(sender, options.count, &mut number, &mut random);
        match turned {
            Ok(()) if sender.sent() == number => {}
            Ok(()) => {
                let sent = sender.sent();
                return Err(format!("{number} were sent, but it counts {sent}").into());
            }
            // An interrupted batch has sent a part of its messages.
            Err(SendError::Interrupted) => number = sender.sent(),
            Err(error) => return Err(error.into()),
        }
        println!("at {number}");
        let found = sender.cap_finds();
        if found != cap_finds {
            println!("late room before {number}");
            cap_finds = found;
        }
        if options.nap_one_in > 0 && random.below(options.nap_one_in) == 0 {
            nap(&mut random);
        }
    }
    println!("closed {number}");
    Ok(())
}

const PATIENCE: Duration = Duration::from_micros(300);

fn is_no_room(result: Result<(), SendError>) -> Result<bool, SendError> {
    match result {
        Err(SendError::Full { .. } | SendError::Timeout { .. } | SendError::Joining { .. }) => {
            Ok(true)
        }
        other => other.map(|()| false),
    }
}

/// The operations that both kinds of sender have.
trait Sends {
    /// Sends `count` messages of `id`, from number `first` on, in one batch.
    fn send_batch(&mut self, id: u64, first: u64, count: u64) -> Result<(), SendError>;
    /// Sends message `number` of `id`, of `bytes` bytes, written in place in a loan.
    fn send_lent(&mut self, id: u64, number: u64, bytes: usize) -> Result<(), SendError>;
    fn send(&mut self, message: &[u8]) -> Result<(), SendError>;
    fn try_send(&mut self, message: &[u8]) -> Result<(), SendError>;
    fn send_timeout(&mut self, message: &[u8], timeout: Duration) -> Result<(), SendError>;
    fn sent(&self) -> u64;
    fn cap_finds(&self) -> u64;
    fn interrupter(&self) -> Interrupter;
}

/// The operations that have the same name in both kinds.
macro_rules! sends_alike {
    ($sender:ty) => {
        fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
            <$sender>::send(self, message)
        }

        fn try_send(&mut self, message: &[u8]) -> Result<(), SendError> {
            <$sender>::try_send(self, message)
        }

        fn send_timeout(&mut self, message: &[u8], timeout: Duration) -> Result<(), SendError> {
            <$sender>::send_timeout(self, message, timeout)
        }

        fn sent(&self) -> u64 {
            <$sender>::sent(self)
        }

        fn cap_finds(&self) -> u64 {
            self.counter("cap_finds").unwrap_or(0)
        }

        fn interrupter(&self) -> Interrupter {
            <$sender>::interrupter(self)
        }

        fn send_batch(&mut self, id: u64, first: u64, count: u64) -> Result<(), SendError> {
            let mut batch = self.batch();
            for number in first..first + count {
                let bytes = length_of(key_of(id, number));
                batch.send_with(bytes, |bytes| write(bytes, id, number))?;
            }
            batch.finish()
        }
    };
}

impl Sends for Sender {
    sends_alike!(Sender);

    fn send_lent(&mut self, id: u64, number: u64, bytes: usize) -> Result<(), SendError> {
        // A loan that is dropped, and one that is too long.
        drop(self.loan(bytes)?);
        let mut loan = self.loan((bytes + 100).min(LARGEST))?;
        loan.truncate(bytes);
        write(&mut loan, id, number);
        loan.send();
        Ok(())
    }
}

impl Sends for SharedSender {
    sends_alike!(SharedSender);

    fn send_lent(&mut self, id: u64, number: u64, bytes: usize) -> Result<(), SendError> {
        drop(self.loan(bytes)?);
        let mut loan = self.loan((bytes + 100).min(LARGEST))?;
        loan.truncate(bytes);
        write(&mut loan, id, number);
        loan.send()
    }
}

/// Sends a random number of messages, all in the same way.
fn turn(
    sender: &mut impl Sends,
    id: u64,
    number: &mut u64,
    random: &mut Random,
) -> Result<(), SendError> {
    let way = random.below(6);
    let count = 1 + random.below(200);
    if way == 0 {
        sender.send_batch(id, *number, count)?;
        *number += count;
        return Ok(());
    }
    let mut message = [0; LARGEST];
    for _ in 0..count {
        let bytes = length_of(key_of(id, *number));
        let message = &mut message[..bytes];
        write(message, id, *number);
        let sent = match way {
            1 => sender.try_send(message),
            2 => sender.send_timeout(message, PATIENCE),
            3 => sender.send_lent(id, *number, bytes),
            _ => sender.send(message),
        };
        if is_no_room(sent)? {
            return Ok(());
        }
        *number += 1;
    }
    Ok(())
}

type Failure = Box<dyn Error>;

/// What a receiver has seen since it joined.
struct Stay {
    epoch: u64,
    first: u64,
    last: u64,
    received: u64,
    /// For each sender, the number of its first message here and of its next one.
    senders: BTreeMap<u64, (u64, u64)>,
    block: u64,
    hash: u64,
    is_whole: bool,
    misses: bool,
}

impl Stay {
    fn new(first: u64, misses: bool) -> Self {
        Self {
            epoch: 0,
            first,
            last: 0,
            received: 0,
            senders: BTreeMap::new(),
            block: first / BLOCK,
            hash: 0,
            is_whole: first.is_multiple_of(BLOCK),
            misses,
        }
    }

    /// Checks a message. The `sequence` of some messages in a batch is unknown.
    fn take(&mut self, sequence: Option<u64>, message: &[u8]) -> Result<(), Failure> {
        let Some((id, number)) = read(message) else {
            let head: Vec<u8> = message.iter().copied().take(48).collect();
            let bytes = message.len();
            return Err(format!("at {sequence:?}, {bytes} bytes that nobody sent: {head:?}").into());
        };
        if self.received > 0 && self.epoch != id >> 32 {
            return Err(format!("{id:x} sends in the channel of {}", self.epoch).into());
        }
        self.epoch = id >> 32;
        let (_, next) = self.senders.entry(id).or_insert((number, number));
        let is_next = if self.misses { number >= *next } else { number == *next };
        if !is_next {
            return Err(format!("message {number} of {id:x} where {next} was due").into());
        }
        *next = number + 1;
        if let Some(sequence) = sequence {
            self.enter_block(sequence / BLOCK);
            self.last = sequence;
            for word in [sequence, id, number] {
                self.hash = mix(self.hash ^ word).wrapping_add(word);
            }
        }
        self.received += 1;
        if self.received.is_multiple_of(500) {
            println!("at {}", self.received);
        }
        Ok(())
    }

    fn enter_block(&mut self, block: u64) {
        if block == self.block {
            return;
        }
        if self.is_whole && !self.misses {
            println!("block {} {} {:x}", self.epoch, self.block, self.hash);
        }
        (self.block, self.hash, self.is_whole) = (block, 0, true);
    }
}

/// The word for an end of a stay; `None` for a failure.
fn end_of(error: &ReceiveError) -> Option<&'static str> {
    match error {
        ReceiveError::EndOfStream => Some("ended"),
        ReceiveError::SenderDied => Some("died"),
        ReceiveError::Evicted => Some("evicted"),
        ReceiveError::Interrupted => Some("left"),
        _ => None,
    }
}

pub(crate) fn receive(directory: &std::path::Path, options: &Options) -> Outcome {
    leaving_nothing(|orders| {
        let domain = Domain::open_at(directory)?;
        let mut random = Random(options.count);
        while !orders.is_over() {
            let copies = !matches!(options.slow, Slow::Block) || random.below(4) == 0;
            let wait = if random.below(2) == 0 { Wait::Park } else { options.wait };
            let builder = domain.receiver(&options.channel).wait(wait).sleep_cap(SLEEP_CAP);
            let patience = Duration::from_millis(500);
            let misses = matches!(options.slow, Slow::Overwrite);
            println!("joining");
            let result = if copies {
                builder.snapshots().join_timeout(patience).map(|mut receiver| {
                    stay(orders, &mut receiver, misses, &mut random, options, step_copying)
                })
            } else {
                builder.join_timeout(patience).map(|mut receiver| {
                    stay(orders, &mut receiver, misses, &mut random, options, step_in_place)
                })
            };
            match result {
                Ok(stayed) => stayed?,
                Err(JoinError::NotCreated { .. } | JoinError::NoAnswer { .. }) => println!("retry"),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    })
}

type Step<R> = fn(&mut R, &mut Stay, &mut Random) -> Result<(), Failure>;

fn stay<A>(
    orders: &Orders,
    receiver: &mut Receiver<[u8], A>,
    misses: bool,
    random: &mut Random,
    options: &Options,
    step: Step<Receiver<[u8], A>>,
) -> Outcome {
    orders.interrupt(Some(receiver.interrupter()));
    let mut stay = Stay::new(receiver.next_sequence(), misses);
    let mut cap_finds = 0;
    println!("joined {}", stay.first);
    let end = loop {
        if orders.is_over() {
            break "left";
        }
        let result = match random.below(400) {
            0 => wait_for_bell(receiver),
            _ => step(receiver, &mut stay, random),
        };
        if let Err(failure) = result {
            match failure.downcast_ref().and_then(end_of) {
                Some(end) => break end,
                None => return Err(failure),
            }
        }
        let found = receiver.counter("cap_finds").unwrap_or(0);
        if found != cap_finds {
            println!("late message before {}", receiver.next_sequence());
            cap_finds = found;
        }
        let missed = receiver.counter("missed").unwrap_or(0);
        if misses && stay.first + stay.received + missed != receiver.next_sequence() {
            let next = receiver.next_sequence();
            let Stay { first, received, .. } = stay;
            return Err(format!("{first} + {received} + {missed} is not {next}").into());
        }
        if options.nap_one_in > 0 && random.below(options.nap_one_in) == 0 {
            nap(random);
        }
    };
    for (id, (first, next)) in &stay.senders {
        println!("from {id} {first} {next}");
    }
    if stay.is_whole && !misses {
        println!("tail {} {} {:x}", stay.epoch, stay.block, stay.hash);
    }
    let Stay { epoch, first, last, received, .. } = stay;
    let missed = receiver.counter("missed").unwrap_or(0);
    orders.interrupt(None);
    println!("stay {end} {epoch} {first} {last} {received} {missed}");
    Ok(())
}

/// Waits for the descriptor, as an event loop does.
fn wait_for_bell<A>(receiver: &mut Receiver<[u8], A>) -> Result<(), Failure> {
    let readiness = match receiver.readiness() {
        // The sender is stopped or dead. A receive will tell.
        Err(JoinError::NoAnswer { .. } | JoinError::NotFound(_)) => return Ok(()),
        other => other?,
    };
    match receiver.arm() {
        Ok(false) | Err(JoinError::NoAnswer { .. } | JoinError::NotFound(_)) => return Ok(()),
        armed => armed?,
    };
    let mut descriptors = [PollFd::new(&readiness, PollFlags::IN)];
    if poll(&mut descriptors, Some(&Timespec { tv_sec: 5, tv_nsec: 0 }))? == 0 {
        // This must not happen: there is a message, and the descriptor was not rung.
        if !receiver.arm().unwrap_or(true) {
            println!("late bell before {}", receiver.next_sequence());
        }
    }
    Ok(())
}

fn step_in_place(
    receiver: &mut Receiver,
    stay: &mut Stay,
    random: &mut Random,
) -> Result<(), Failure> {
    match random.below(4) {
        0 => {
            let next = receiver.next_sequence();
            let mut batch = receiver.receive_batch(1 + random.count(40))?;
            let mut messages = Vec::new();
            for message in batch.iter() {
                messages.push(message.to_vec());
            }
            let count = batch.len();
            batch.release(count)?;
            drop(batch);
            let passed = receiver.next_sequence() - next;
            // The sequence numbers are known if no number between the messages was given up.
            let is_known = passed == messages.len() as u64;
            for (sequence, message) in (next..).zip(&messages) {
                stay.take(is_known.then_some(sequence), message)?;
            }
            if !is_known {
                let next = receiver.next_sequence();
                stay.enter_block(next.saturating_sub(1) / BLOCK);
                stay.last = next.saturating_sub(1);
                stay.is_whole = false;
            }
        }
        1 => {
            if let Some(message) = receiver.try_receive()? {
                stay.take(Some(message.sequence()), &message)?;
            }
        }
        2 => {
            if let Some(message) = receiver.receive_timeout(PATIENCE)? {
                stay.take(Some(message.sequence()), &message)?;
            }
        }
        _ => {
            let message = receiver.receive()?;
            stay.take(Some(message.sequence()), &message)?;
        }
    }
    Ok(())
}

fn step_copying(
    receiver: &mut SnapshotReceiver,
    stay: &mut Stay,
    random: &mut Random,
) -> Result<(), Failure> {
    let snapshot = match random.below(3) {
        0 => receiver.try_receive()?,
        1 => receiver.receive_timeout(PATIENCE)?,
        _ => Some(receiver.receive()?),
    };
    if let Some(mut snapshot) = snapshot {
        let sequence = snapshot.sequence();
        if let Ok(message) = snapshot.to_vec() {
            drop(snapshot);
            stay.take(Some(sequence), &message)?;
        }
    }
    Ok(())
}
