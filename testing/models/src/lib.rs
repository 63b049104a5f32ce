//! What the models of corewire's rings are made of: a channel in memory that loom knows, a kernel
//! with futexes, and the wait loops that the library has.
//!
//! The rings themselves are `corewire_ring`'s, built with `--cfg loom`. A model is a small program
//! (two slots, one or two receivers, a few messages) of which loom runs every interleaving, and
//! every value that each relaxed load may see; a lost wake-up is a deadlock, a payload that is
//! written while it is read is a causality violation.
//!
//! A model's environment may name one ordering to be weakened (`COREWIRE_WEAKEN=B1`): some model
//! must then fail. `docs/ordering.md` says which.

#![cfg(loom)]

pub mod pairs;
pub mod shared;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use corewire_layout::PAGE_BYTES;
use corewire_layout::counters::ControlCounter;
use corewire_layout::frame::{Start, Welcome};
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{FenceMode, Policy, ROWS_WATCHED_MAX};
use corewire_layout::slot::INLINE_BYTES_MAX;
use corewire_ring::broadcast::{
    Channel, End, InPlace, Joined, Members, Receiver, ReceiverParts, ReceiverShared, ReceiverWords,
    SLEEP_CAP_NS, Sender, SenderParts, SenderShared, SenderWords, Violation, notice,
};
use corewire_ring::region::{Region, Rows, Slots};
use corewire_ring::shared::{Entrance, Party};
use corewire_ring::sync::{AtomicU32, Ordering, fence, pause, set_light_fences, weaken};
use corewire_ring::{Kernel, Lock, Trusted};
use loom::sync::{Condvar, Mutex, MutexGuard};

/// Bytes of the window of every model: four of its longest messages.
pub const WINDOW_BYTES: u64 = 256;
/// The longest message that goes through that window.
pub const WINDOW_MESSAGE_BYTES: usize = 64;

/// Runs a model in every interleaving with up to `preemptions_max` preemptions.
///
/// # Panics
/// If one of them fails.
pub fn check(preemptions_max: usize, model: impl Fn() + Sync + Send + 'static) {
    check_weakened("", preemptions_max, model);
}

/// As [`check`], without the light fence B5. On the machine it is nothing to the processor but
/// where another core asks for it, while a model's fence orders everything around it: what does
/// not rely on it is to be shown without it.
///
/// # Panics
/// If one of them fails.
pub fn check_bare(preemptions_max: usize, model: impl Fn() + Sync + Send + 'static) {
    check_weakened("B5", preemptions_max, model);
}

fn check_weakened(labels: &str, preemptions_max: usize, model: impl Fn() + Sync + Send + 'static) {
    // One model at a time, since what is weakened is weakened for all.
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let asked_for = std::env::var("COREWIRE_WEAKEN").unwrap_or_default();
    weaken(&format!("{labels} {asked_for}"));
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions_max));
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let runs = runs.load(Ordering::Relaxed);
    println!("{runs} interleavings");
    // Loom compares an access with the last one of its object alone: where a thread loads a word, and writes
    // it then, it may not see that others have loaded it before.
    assert!(runs > 1, "nothing of what this model's threads do was seen to depend on another");
}

/// A kernel of futexes. No sleep of it ends by its cap, so that a lost wake-up shows.
#[derive(Clone)]
pub struct ModelKernel {
    queue: Arc<Mutex<Queue>>,
    gives_barriers: bool,
    /// Told of everybody whose death this process wants to be told of.
    on_watch: Option<OnWatch>,
}

type OnWatch = Arc<dyn Fn(Party, Entrance) + Send + Sync>;

#[derive(Default)]
struct Queue {
    tickets: u32,
    /// First come, first woken.
    waiting: VecDeque<Waiter>,
    /// Rows whose descriptor was written to.
    descriptors: Vec<u32>,
    descriptor_written: Option<Arc<Condvar>>,
}

struct Waiter {
    ticket: u32,
    words: [usize; 2],
    woken: Arc<Condvar>,
}

impl ModelKernel {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no model goes on after a panic")
    }

    /// A kernel that gives barriers, or one that refuses them.
    #[must_use]
    pub fn new(gives_barriers: bool) -> Self {
        let queue = Arc::new(Mutex::new(Queue::default()));
        Self { queue, gives_barriers, on_watch: None }
    }

    /// The same kernel, for a process that wants to be told of deaths.
    #[must_use]
    pub fn watching(&self, on_watch: impl Fn(Party, Entrance) + Send + Sync + 'static) -> Self {
        Self { on_watch: Some(Arc::new(on_watch)), ..self.clone() }
    }

    /// Waits until the descriptor of `row` is written to, as epoll does, and clears it.
    ///
    /// # Panics
    /// If the model has failed.
    pub fn wait_descriptor(&self, row: u32) {
        let mut queue = self.queue();
        while !queue.descriptors.contains(&row) {
            let written = Arc::new(Condvar::new());
            queue.descriptor_written = Some(Arc::clone(&written));
            queue = written.wait(queue).expect("no model goes on after a panic");
        }
        queue.descriptors.retain(|&other| other != row);
    }
}

impl fmt::Debug for ModelKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelKernel").finish_non_exhaustive()
    }
}

fn address(word: &AtomicU32) -> usize {
    core::ptr::from_ref(word).addr()
}

impl Kernel for ModelKernel {
    fn barrier_everywhere(&self) -> bool {
        if self.gives_barriers {
            fence(Ordering::SeqCst);
        }
        self.gives_barriers
    }

    fn wake(&self, word: &AtomicU32, count_max: u32) {
        let mut queue = self.queue();
        for _ in 0..count_max {
            let first =
                queue.waiting.iter().position(|waiter| waiter.words.contains(&address(word)));
            let Some(waiter) = first.and_then(|index| queue.waiting.remove(index)) else { return };
            waiter.woken.notify_one();
        }
    }

    fn wait(&self, shared: (&AtomicU32, u32), own: (&AtomicU32, u32), _cap_ns: u64) -> bool {
        let mut queue = self.queue();
        let unchanged = |(word, value): (&AtomicU32, u32)| word.load(Ordering::Relaxed) == value;
        if !unchanged(shared) || !unchanged(own) {
            return false;
        }
        let ticket = queue.tickets;
        queue.tickets += 1;
        let woken = Arc::new(Condvar::new());
        let words = [address(shared.0), address(own.0)];
        queue.waiting.push_back(Waiter { ticket, words, woken: Arc::clone(&woken) });
        while queue.waiting.iter().any(|waiter| waiter.ticket == ticket) {
            queue = woken.wait(queue).expect("no model goes on after a panic");
        }
        false
    }

    fn cpu(&self) -> u32 {
        0
    }

    fn watch(&self, party: Party, who: Entrance, _socket: u128) {
        if let Some(on_watch) = &self.on_watch {
            on_watch(party, who);
        }
    }

    fn wake_descriptor(&self, row: u32) {
        let mut queue = self.queue();
        queue.descriptors.push(row);
        if let Some(written) = queue.descriptor_written.take() {
            written.notify_one();
        }
    }
}

/// Loom's mutex.
#[derive(Debug)]
pub struct ModelLock<T>(Mutex<T>);

impl<T> Lock<T> for ModelLock<T> {
    fn with<R>(&self, job: impl FnOnce(&mut T) -> R) -> R {
        job(&mut self.0.lock().expect("no model goes on after a panic"))
    }
}

/// A channel, as its owner's process holds it, and as the control thread uses it.
#[derive(Debug, Clone)]
pub struct ModelChannel {
    geometry: Geometry,
    fence_mode: FenceMode,
    policy: Policy,
    segment: Region,
    rows: Region,
    hint: Option<Region>,
    slots: Slots,
    words: SenderWords,
    /// What the owner's threads share.
    pub shared: Arc<SenderShared>,
    members: Arc<ModelLock<Members>>,
    /// The one kernel of all.
    pub kernel: ModelKernel,
}

impl ModelChannel {
    /// A channel of `slots` slots for up to `receivers_max` receivers and messages of up to
    /// `message_bytes_max` bytes, or what goes through the window if that is more. To be made inside a model, by its first thread.
    ///
    /// # Panics
    /// If there is no such geometry.
    #[must_use]
    pub fn new(slots: u64, message_bytes_max: u64, receivers_max: u32, mode: FenceMode) -> Self {
        let message_bytes_max = message_bytes_max.max(WINDOW_MESSAGE_BYTES as u64);
        let geometry = Geometry::new(slots, WINDOW_BYTES, message_bytes_max, receivers_max.into())
            .expect("a model's geometry");
        set_light_fences(mode == FenceMode::Asymmetric);
        let segment = Region::model_sender(&geometry);
        let has_hint = receivers_max > ROWS_WATCHED_MAX;
        Self {
            geometry,
            fence_mode: mode,
            policy: Policy::Block,
            rows: Region::model_rows(receivers_max),
            hint: has_hint.then(Region::model_hint),
            slots: Slots::new(&segment, &geometry),
            words: SenderWords::new(segment.clone()),
            segment,
            shared: Arc::new(SenderShared::new(receivers_max, mode == FenceMode::Fenced)),
            members: Arc::new(ModelLock(Mutex::new(Members::new(receivers_max)))),
            kernel: ModelKernel::new(true),
        }
    }

    /// Two slots, one receiver, no locked instruction.
    #[must_use]
    pub fn small() -> Self {
        Self::new(2, 1, 1, FenceMode::Asymmetric)
    }

    /// The same channel under another policy.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// The data thread's half. To be made once.
    ///
    /// # Panics
    /// Never: the rows are as many as the geometry says.
    #[must_use]
    pub fn sender(&self) -> ModelSender {
        let count = u32::try_from(self.geometry.receivers_max()).expect("few");
        let parts = SenderParts {
            segment: self.segment.clone(),
            policy: self.policy,
            staging: (!self.policy.keeps_messages())
                .then(|| Region::model_private(2 * WINDOW_MESSAGE_BYTES)),
            geometry: self.geometry,
            rows: Rows::new(&self.rows, count),
            hint: self.hint.clone(),
            shared: Arc::clone(&self.shared),
        };
        let sender = Sender::new(parts, self.kernel.clone());
        ModelSender { sender, lock: Arc::clone(&self.members) }
    }

    fn with_members<R>(&self, job: impl FnOnce(&mut Members, &Channel<'_>) -> R) -> R {
        let Self { shared, slots, words, geometry, policy, .. } = self;
        let channel = Channel { shared, slots, words, geometry, policy: *policy };
        self.members.with(|members| job(members, &channel))
    }

    /// The owner's control thread takes a receiver in.
    pub fn join(&self, row: u32, start: Start) -> Joined {
        self.with_members(|members, channel| members.join(row, 1, start, channel, &self.kernel))
    }

    /// The owner's control thread lets a receiver go.
    pub fn leave(&self, row: u32) {
        self.with_members(|members, channel| members.leave(row, channel, ControlCounter::Leaves));
        self.shared.nudge(&self.kernel);
    }

    /// The owner's control thread takes a receiver in where one is that may be dead.
    pub fn succeed(&self, row: u32) -> Joined {
        let rows =
            Rows::new(&self.rows, u32::try_from(self.geometry.receivers_max()).expect("few"));
        let place = || {
            self.renew(row);
            Ok::<(), ()>(())
        };
        let joined = self.with_members(|members, channel| {
            members.succeed(row, 1, &rows, place, channel, &self.kernel)
        });
        self.shared.nudge(&self.kernel);
        joined.expect("a page can be placed")
    }

    /// The owner's control thread maps a new receiver's page, all zero, where one has left.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn renew(&self, row: u32) {
        let page = self.rows.part(row as usize * PAGE_BYTES, PAGE_BYTES).expect("own row");
        let words = ReceiverWords::new(page);
        words.cursor().store(0, Ordering::Relaxed);
        for word in [words.sleeping(), words.sleep_mode(), words.wake()] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Would the owner drop a receiver for an impossible value?
    #[must_use]
    pub fn has_violators(&self) -> bool {
        self.with_members(|members, _| members.has_violators())
    }

    /// The receiver of `row`, in its own process.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn receiver(&self, row: u32, joined: Joined) -> ModelReceiver {
        let hint = self.hint.clone();
        let parts = ReceiverParts {
            sender: self.segment.clone(),
            geometry: self.geometry,
            fence_mode: self.fence_mode,
            policy: self.policy,
            own: self.rows.part(row as usize * PAGE_BYTES, PAGE_BYTES).expect("own row"),
            welcome: Welcome { settled: 0, ..joined.welcome(row, 0, hint.is_some()) },
            hint,
            shared: Arc::new(ReceiverShared::default()),
            many: None,
        };
        let receiver = Receiver::new(parts, self.kernel.clone());
        // SAFETY: sender and receiver are threads of one model, which keep to the protocol.
        let trusted = unsafe { Trusted::assume() };
        let in_place = receiver.in_place(trusted);
        ModelReceiver(receiver, in_place)
    }

    /// A receiver that is there before anything is sent.
    #[must_use]
    pub fn first_receiver(&self, row: u32) -> ModelReceiver {
        self.receiver(row, self.join(row, Start::Now))
    }
}

/// The time at which a model's sender judges who is stalled: long enough after the first look for
/// a channel that evicts at once.
const EVICTED_AT_NS: u64 = 1;

/// How a party waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// By looking again.
    Spin,
    /// Asleep.
    Sleep,
}

/// Why a wait was given up.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// The channel has ended.
    End(End),
    /// Somebody asked for the call to return.
    Interrupted,
    /// Memory held what it cannot hold.
    Violation(Violation),
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// A sender with the library's wait loop.
#[derive(Debug)]
pub struct ModelSender {
    /// The ring's own.
    pub sender: Sender<ModelKernel>,
    lock: Arc<ModelLock<Members>>,
}

impl ModelSender {
    /// Sends the next message: `bytes` bytes that tell its number.
    ///
    /// # Errors
    /// [`Stop::Interrupted`].
    pub fn try_send(&mut self, bytes: usize, wait: Wait, ring: bool) -> Result<(), Stop> {
        let Self { sender, lock } = self;
        let lock = &**lock;
        let sequence = sender.head();
        // Every other one by the way that small messages have of their own.
        if ring && !sequence.is_multiple_of(2) && bytes <= INLINE_BYTES_MAX {
            let message = [mark(sequence); INLINE_BYTES_MAX];
            if sender.try_send_inline(&message[..bytes]) {
                return Ok(());
            }
        }
        let mut loan = sender.loan_with(bytes, lock, |sender| {
            if sender.shared().notices() & notice::INTERRUPTED != 0 {
                return Err(Stop::Interrupted);
            }
            sender.refresh(lock);
            sender.give_up_for(bytes);
            if sender.evict_stalled(bytes, EVICTED_AT_NS, lock) {
                sender.refresh(lock);
            }
            if !sender.has_room(bytes) {
                match wait {
                    Wait::Spin => pause(),
                    Wait::Sleep => sender.sleep_until(lock, SLEEP_CAP_NS, |s| s.has_room(bytes)),
                }
            }
            Ok(())
        })?;
        loan.bytes_mut().fill(mark(sequence));
        if ring {
            loan.send()
        } else {
            loan.send_quietly()
        }
        Ok(())
    }

    /// Sends `count` messages of `bytes` bytes.
    ///
    /// # Panics
    /// If the sender is interrupted.
    pub fn send(&mut self, count: u64, bytes: usize, wait: Wait) {
        for _ in 0..count {
            assert_eq!(self.try_send(bytes, wait, true), Ok(()));
        }
    }

    /// Closes the channel.
    pub fn close(&mut self) {
        self.sender.close();
    }
}

/// What the bytes of a message are.
fn mark(sequence: u64) -> u8 {
    u8::try_from(sequence + 1).expect("a model sends few messages")
}

/// A receiver with the library's wait loop.
#[derive(Debug)]
pub struct ModelReceiver(pub Receiver<ModelKernel>, Option<InPlace>);

impl ModelReceiver {
    /// Receives the next message, checks that it is whole, and returns its number.
    ///
    /// # Errors
    /// The end of the channel, or a violation.
    ///
    /// # Panics
    /// If it is not what was sent.
    pub fn receive(&mut self, wait: Wait) -> Result<u64, Stop> {
        let in_place = self.1.expect("a channel that keeps its messages");
        let message = self.0.receive_with(in_place, |receiver| {
            if let Some(end) = receiver.end()? {
                return Err(Stop::End(end));
            }
            match wait {
                Wait::Spin => pause(),
                Wait::Sleep => receiver.sleep(SLEEP_CAP_NS),
            }
            Ok(())
        })?;
        let sequence = message.sequence();
        assert!(message.iter().all(|&byte| byte == mark(sequence)), "message {sequence} is torn");
        Ok(sequence)
    }

    /// Copies the next message out; `None` if it was written over meanwhile.
    ///
    /// # Errors
    /// The end of the channel, or a violation.
    ///
    /// # Panics
    /// If what was copied, and found to be whole, is not what was sent.
    pub fn copy(&mut self, wait: Wait) -> Result<Option<u64>, Stop> {
        let mut snapshot = self.0.snapshot_with(|receiver| {
            if let Some(end) = receiver.end()? {
                return Err(Stop::End(end));
            }
            match wait {
                Wait::Spin => pause(),
                Wait::Sleep => receiver.sleep(SLEEP_CAP_NS),
            }
            Ok(())
        })?;
        let sequence = snapshot.sequence();
        let mut copy = vec![0; snapshot.bytes()];
        if snapshot.copy_out(0, &mut copy).is_err() {
            return Ok(None);
        }
        assert!(copy.iter().all(|&byte| byte == mark(sequence)), "message {sequence} is torn");
        Ok(Some(sequence))
    }

    /// Copies messages out to the end of the channel, and returns how many were whole and how it
    /// ended.
    ///
    /// # Panics
    /// If one is not what was sent, or comes out of order, or memory held what it cannot hold.
    pub fn copy_all(&mut self, wait: Wait) -> (u64, End) {
        let (mut copied, mut next) = (0, self.0.next());
        loop {
            match self.copy(wait) {
                Ok(None) => {}
                Ok(Some(sequence)) => {
                    assert!(sequence >= next, "assertion: in order");
                    next = sequence + 1;
                    copied += 1;
                }
                Err(Stop::End(end)) => return (copied, end),
                Err(stop) => panic!("assertion: {stop:?}"),
            }
        }
    }

    /// Receives `count` messages.
    ///
    /// # Panics
    /// If they are not the next `count` that were sent.
    pub fn receive_many(&mut self, count: u64, wait: Wait) {
        for sequence in self.0.next()..self.0.next() + count {
            assert_eq!(self.receive(wait), Ok(sequence));
        }
    }

    /// Receives everything up to the end of the channel, after `sent` messages in all.
    ///
    /// # Panics
    /// If one is missing, or if the channel ends otherwise.
    pub fn receive_all(&mut self, sent: u64, wait: Wait, end: End) {
        self.receive_many(sent - self.0.next(), wait);
        assert_eq!(self.receive(wait), Err(Stop::End(end)));
    }
}

/// Runs `model` of this test program in a process of its own with one ordering weakened, and demands
/// that it fails for what the ordering is there for.
///
/// # Panics
/// If it does not.
pub fn must_fail(label: &str, model: &str) {
    let program = std::env::current_exe().expect("a test knows its program");
    let output = std::process::Command::new(program)
        .args(["--exact", model, "--test-threads", "1"])
        .env("COREWIRE_WEAKEN", label)
        .output()
        .expect("a test can start its program");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "with {label} weakened, {model} still passes:\n{said}");
    // The last: somebody looks for ever, which nobody does in the model itself.
    let why =
        ["deadlock; ", "Causality violation", "is torn", "assertion", "maximum number of branches"];
    assert!(why.iter().any(|why| said.contains(why)), "{model} failed otherwise:\n{said}");
}

/// One test for each label: the model that fails without it. `docs/ordering.md` says why.
#[macro_export]
macro_rules! mutants {
    ($($name:ident: $label:ident => $model:ident;)*) => {$(
        #[test]
        fn $name() {
            let _exists: fn() = $model;
            $crate::must_fail(stringify!($label), stringify!($model));
        }
    )*};
}
