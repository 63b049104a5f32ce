//! Counts the instructions of section 4.1.2: those of an enqueue, a dequeue, a send and a matched
//! receive of 8 bytes. This program starts itself again and steps the other process one instruction at
//! a time between its marks.
//!
//! As in the paper, a message is there before its receive is called, so polling is not counted.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use clap::ValueEnum;
use corewire::{Domain, Endpoint, Peer, Selector};
use corewire_layout::endpoint::{ACTIVITY_BYTES, EndpointSizes};
use corewire_layout::pair::{SlotKind, stamp_bits};
use corewire_layout::segment::FenceMode;
use corewire_os::sleep::Linux;
use corewire_published::rings::NemesisQueue;
use corewire_ring::Trusted;
use corewire_ring::message::Envelope;
use corewire_ring::pair::{
    self, Activity, EndpointMemory, EndpointParts, EndpointShared, PeerParts,
};
use corewire_ring::region::Region;
use corewire_ring::sync::{AtomicU64, Ordering::Relaxed};
use rustix::process::{getpid, kill_process};

use super::results::Instructions;
use crate::study::failure::{Doing, Failure};
use crate::study::stepping;

/// Operations in a batch: as many as an endpoint takes in a row from one peer.
const BATCH: u32 = 16;

/// Runs `$job` for each number of a batch. It is unrolled, because the instructions of a loop would be
/// counted, too.
macro_rules! each {
    ($number:ident => $job:expr) => {
        each!($number $job, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    ($number:ident $job:expr, $($each:literal)*) => {$({
        let $number: usize = $each;
        $job
    })*};
}

/// A slot that holds a message.
const INLINE: u64 = stamp_bits(SlotKind::Inline, 0, 0);

/// A batch that does nothing, to count the overhead.
#[inline(never)]
fn nothing(_: &Marks) {}

/// The operation that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Operation {
    /// Writes a slot of a pair ring: no payload, no check for sleepers
    PairEnqueue,
    /// Reads that slot
    PairDequeue,
    /// Enqueues in Nemesis' queue, with its shadow head
    NemesisEnqueue,
    /// Dequeues from that queue
    NemesisDequeue,
    /// `Endpoint::send` of 8 bytes
    Send,
    /// `Endpoint::receive_into` of 8 bytes, matched by tag and sender
    Receive,
}

impl Operation {
    fn text(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The paper's count for Nemesis.
    const fn paper(self) -> Option<u32> {
        match self {
            Self::NemesisEnqueue => Some(6),
            Self::NemesisDequeue => Some(11),
            Self::Send => Some(278),
            Self::Receive => Some(815),
            _ => None,
        }
    }
}

/// Counts all operations, in so many batches of each.
pub(super) fn count(batches: usize, scratch: &Path) -> Result<Vec<Instructions>, Failure> {
    stepping::on_one_processor(|| {
        Operation::value_variants().iter().map(|&it| count_one(it, batches, scratch)).collect()
    })
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn count_one(
    operation: Operation,
    batches: usize,
    scratch: &Path,
) -> Result<Instructions, Failure> {
    let name = operation.text();
    let program = std::env::current_exe().doing("find this program")?;
    let mut command = Command::new(program);
    command.args(["study", "count", &name, &batches.to_string()]).arg(scratch.join(&name));
    let stretches = stepping::count(&mut command)?;
    let (nothing, all) = match stretches.split_first() {
        Some((nothing, all)) if all.len() == batches => (nothing.instructions, all),
        _ => return Err(Failure::other("what was counted ended too soon")),
    };
    let all: u64 = all.iter().map(|stretch| stretch.instructions).sum();
    let instructions = (all as f64 / batches as f64 - nothing as f64) / f64::from(BATCH);
    Ok(Instructions { operation: name, instructions, paper: operation.paper() })
}

/// The marks, odd while an operation is counted.
struct Marks(Box<AtomicU64>);

impl Marks {
    /// Prints the address of the marks, and waits for the process that counts.
    fn begin() -> Result<Self, Failure> {
        let marks = Self(Box::default());
        println!("{:x}", marks.0.as_ptr().addr());
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).doing("wait for who counts")?;
        marks.around(|| nothing(black_box(&marks)));
        Ok(marks)
    }

    /// Counts `job` if `is_counted`; otherwise only runs it.
    #[inline(always)]
    fn around_if<R>(&self, is_counted: bool, job: impl FnOnce() -> R) -> R {
        if is_counted { self.around(job) } else { job() }
    }

    /// Runs `job` between two marks, so that it is counted.
    #[inline(always)]
    fn around<R>(&self, job: impl FnOnce() -> R) -> R {
        // The signal stops this process if it is traced; otherwise it has no effect.
        let _ = kill_process(getpid(), rustix::process::Signal::WINCH);
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
        let result = black_box(job());
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
        result
    }
}

/// Runs the operation to be counted, in so many batches. `directory` is for the operations that need one.
pub(crate) fn run(operation: Operation, batches: usize, directory: &Path) -> Result<(), Failure> {
    match operation {
        Operation::PairEnqueue | Operation::PairDequeue => pair(operation, batches),
        Operation::NemesisEnqueue | Operation::NemesisDequeue => nemesis(operation, batches),
        Operation::Send | Operation::Receive => endpoints(operation, batches, directory),
    }
}

/// A batch: an enqueue is inlined into its caller, so the cost of the call is divided among the batch.
#[inline(never)]
fn enqueue_batch(outbox: &mut pair::Outbox) -> bool {
    each!(_number => if !outbox.enqueue(INLINE, 7, 0, |_| {}) {
        return false;
    });
    true
}

#[inline(never)]
fn dequeue_batch(inbox: &mut pair::Inbox) -> u64 {
    let mut sum = 0;
    each!(_number => match inbox.dequeue() {
        Some((tag, _)) => sum += tag,
        None => return sum,
    });
    sum
}

fn pair(operation: Operation, batches: usize) -> Result<(), Failure> {
    let mut one = Bare::new()?;
    let mut other = Bare::new()?;
    let (first, second) = (one.as_peer(), other.as_peer());
    assert!(one.endpoint.add_peer(0, second));
    assert!(other.endpoint.add_peer(0, first));
    other.endpoint.open(0, 1);
    one.endpoint.assign_ring(0);
    let missing = || Failure::other("a pair without rings");
    // Lets the other endpoint find the ring.
    one.endpoint.try_send(0, &Envelope::tagged(7), b"");
    let row = other.endpoint.poll().ok_or_else(missing)?;
    let (_, inbox) = other.endpoint.rings_of(row).ok_or_else(missing)?;
    if inbox.dequeue().is_none() {
        return Err(missing());
    }
    let marks = Marks::begin()?;
    for _ in 0..batches {
        let (outbox, _) = one.endpoint.rings_of(0).ok_or_else(missing)?;
        let (_, inbox) = other.endpoint.rings_of(0).ok_or_else(missing)?;
        let is_counted = operation == Operation::PairEnqueue;
        let is_sent = marks.around_if(is_counted, || enqueue_batch(black_box(outbox)));
        let sum = marks.around_if(!is_counted, || dequeue_batch(black_box(inbox)));
        if !is_sent || sum != 7 * u64::from(BATCH) {
            return Err(Failure::other("a slot is lost"));
        }
    }
    Ok(())
}

/// An endpoint without a name and without a process.
struct Bare {
    memory: EndpointMemory,
    activity: Activity,
    endpoint: pair::Endpoint<Linux>,
}

impl Bare {
    fn new() -> Result<Self, Failure> {
        let sizes = EndpointSizes::new(1, 1, 1 << 13, 2, 4096).doing("make an endpoint")?;
        let no_memory = || Failure::other("no memory for an endpoint");
        let bytes = usize::try_from(sizes.segment_bytes()).doing("make an endpoint")?;
        let segment = Region::private(bytes).ok_or_else(no_memory)?;
        let memory = EndpointMemory::new(segment, sizes);
        let activity = Activity::new(Region::private(ACTIVITY_BYTES).ok_or_else(no_memory)?);
        let parts = EndpointParts {
            memory: memory.clone(),
            activity: activity.clone(),
            fence_mode: FenceMode::Asymmetric,
            shared: Arc::new(EndpointShared::new(&activity)),
        };
        Ok(Self { memory, activity, endpoint: pair::Endpoint::new(parts, Linux::get()) })
    }

    fn as_peer(&self) -> PeerParts {
        PeerParts {
            memory: self.memory.clone(),
            activity: self.activity.clone(),
            row_there: 0,
            fence_mode: FenceMode::Asymmetric,
            // SAFETY: both endpoints belong to this program, which follows the protocol.
            trusted: unsafe { Trusted::assume() },
        }
    }
}

#[inline(never)]
fn put_batch(queue: &NemesisQueue) {
    each!(cell => queue.enqueue(cell));
}

#[inline(never)]
fn take_batch(queue: &NemesisQueue) -> usize {
    let mut sum = 0;
    each!(_number => match queue.dequeue() {
        Some(cell) => sum += cell,
        None => return sum,
    });
    sum
}

fn nemesis(operation: Operation, batches: usize) -> Result<(), Failure> {
    let cells = BATCH as usize;
    let bytes = NemesisQueue::bytes(cells);
    let memory = Region::private(bytes).ok_or_else(|| Failure::other("no memory for a queue"))?;
    let queue = NemesisQueue::new(&memory, cells, true);
    let marks = Marks::begin()?;
    for _ in 0..batches {
        let is_counted = operation == Operation::NemesisEnqueue;
        marks.around_if(is_counted, || put_batch(black_box(&queue)));
        let sum = marks.around_if(!is_counted, || take_batch(black_box(&queue)));
        if sum != (0..cells).sum::<usize>() {
            return Err(Failure::other("a cell is lost"));
        }
    }
    Ok(())
}

#[inline(never)]
fn send_batch(endpoint: &mut Endpoint, to: Peer, message: &[u8; 8]) -> bool {
    (0..BATCH).all(|_| endpoint.send(to, 7, message).is_ok())
}

#[inline(never)]
fn receive_batch(endpoint: &mut Endpoint, selector: Selector, target: &mut [u8; 8]) -> bool {
    let mut receive = || endpoint.receive_into(selector, target);
    (0..BATCH).all(|_| receive().is_ok_and(|status| status.bytes == 8))
}

fn endpoints(operation: Operation, batches: usize, directory: &Path) -> Result<(), Failure> {
    let domain = Domain::open_at(directory).doing("open a domain")?;
    let mut one = domain.endpoint("one").create().doing("make an endpoint")?;
    let mut other = domain.endpoint("other").create().doing("make an endpoint")?;
    let to = one.peer("other").doing("find an endpoint")?;
    let from = other.peer("one").doing("find an endpoint")?;
    let selector = Selector::tag(7).from(from);
    let mut target = [0; 8];
    // Makes sure that there is a ring, and that it is polled.
    for _ in 0..2 {
        send_batch(&mut one, to, &[1; 8]);
        receive_batch(&mut other, selector, &mut target);
    }
    let marks = Marks::begin()?;
    for number in 0..batches {
        let message = (number as u64).to_le_bytes();
        let is_counted = operation == Operation::Send;
        let sent = || send_batch(black_box(&mut one), to, black_box(&message));
        let is_sent = marks.around_if(is_counted, sent);
        let received = || receive_batch(black_box(&mut other), selector, black_box(&mut target));
        let is_received = marks.around_if(!is_counted, received);
        if !is_sent || !is_received || target != message {
            return Err(Failure::other("a message is lost"));
        }
    }
    Ok(())
}
