//! Building blocks of the models of corewire's rings: a channel in memory that loom tracks, a
//! kernel with futexes, and the wait loops of the library.
//!
//! The rings themselves are those of `corewire_ring`, built with `--cfg loom`. A model is a small
//! program (two slots, one or two receivers, a few messages). Loom runs every interleaving of its
//! threads, with every value that each relaxed load may return. A lost wake-up shows as a deadlock.
//! A payload that is written while it is read shows as a causality violation.
//!
//! The environment variable `COREWIRE_WEAKEN` may name one ordering to weaken
//! (`COREWIRE_WEAKEN=B1`). Some model must then fail; `docs/ordering.md` names that model.
//!
//! More than 600 lines, because the kernel and the channel of the models know each other's locks.

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
    Channel, End, Held, InPlace, Joined, Members, Message, Receiver, ReceiverParts, ReceiverShared,
    ReceiverWords, Sender, SenderParts, SenderShared, SenderWords, Violation,
};
use corewire_ring::doorbell::{Bells, SLEEP_CAP_NS, notice};
use corewire_ring::region::{Region, Rows, Slots};
use corewire_ring::shared::{Entrance, Party};
use corewire_ring::sync::{AtomicU32, Ordering, fence, pause, set_light_fences, weaken};
use corewire_ring::{Control, Kernel, Lock, Trusted};
use loom::sync::{Condvar, Mutex, MutexGuard};

/// Bytes of the window in every model: room for four of the longest messages that go through it.
pub const WINDOW_BYTES: u64 = 256;
/// The longest message that goes through the window, in bytes.
pub const WINDOW_MESSAGE_BYTES: usize = 64;

/// Runs a model in every interleaving with up to `preemptions_max` preemptions.
///
/// # Panics
/// If one of them fails.
pub fn check(preemptions_max: usize, model: impl Fn() + Sync + Send + 'static) {
    check_weakened("", preemptions_max, model);
}

/// Same as [`check`], without the light fence W5. On real hardware the light fence costs the
/// processor nothing unless another core requests a barrier, but in a model it is a full fence and
/// orders everything around it. So a model of something that does not rely on W5 must run without
/// it.
///
/// # Panics
/// If one of them fails.
pub fn check_bare(preemptions_max: usize, model: impl Fn() + Sync + Send + 'static) {
    check_weakened("W5", preemptions_max, model);
}

fn check_weakened(labels: &str, preemptions_max: usize, model: impl Fn() + Sync + Send + 'static) {
    // One model at a time: the weakened labels apply to the whole process.
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
    // Loom compares an access only with the last access to the same object. If a thread loads a
    // word and then writes it, loom may miss that other threads loaded the word before.
    assert!(runs > 1, "nothing of what this model's threads do was seen to depend on another");
}

/// A kernel with futexes. Its sleeps never end by the cap, so a lost wake-up shows as a deadlock.
#[derive(Clone)]
pub struct ModelKernel {
    queue: Arc<Mutex<Queue>>,
    gives_barriers: bool,
    /// Called for every party whose death this process asks the kernel to report.
    on_watch: Option<OnWatch>,
}

type OnWatch = Arc<dyn Fn(Party, Entrance) + Send + Sync>;

#[derive(Default)]
struct Queue {
    tickets: u32,
    /// Waiters in order of arrival; the first is woken first.
    waiting: VecDeque<Waiter>,
    /// Rows whose readiness descriptor was written.
    descriptors: Vec<u32>,
    descriptor_written: Option<Arc<Condvar>>,
}

struct Waiter {
    ticket: u32,
    words: Vec<usize>,
    woken: Arc<Condvar>,
}

impl ModelKernel {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no model goes on after a panic")
    }

    /// Creates a kernel that provides barriers on all cores, or one that refuses them.
    #[must_use]
    pub fn new(gives_barriers: bool) -> Self {
        let queue = Arc::new(Mutex::new(Queue::default()));
        Self { queue, gives_barriers, on_watch: None }
    }

    /// The same kernel for a process that asks for reports of deaths.
    #[must_use]
    pub fn watching(&self, on_watch: impl Fn(Party, Entrance) + Send + Sync + 'static) -> Self {
        Self { on_watch: Some(Arc::new(on_watch)), ..self.clone() }
    }

    /// Waits until the descriptor of `row` is written, as epoll does, and clears it.
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

    fn wait(&self, bells: Bells<'_>, _cap_ns: u64) -> bool {
        let mut queue = self.queue();
        if bells.have_rung() {
            return false;
        }
        let ticket = queue.tickets;
        queue.tickets += 1;
        let woken = Arc::new(Condvar::new());
        let words = [bells.shared, bells.own];
        let words = words.into_iter().flatten().map(|bell| address(bell.word)).collect();
        queue.waiting.push_back(Waiter { ticket, words, woken: Arc::clone(&woken) });
        while queue.waiting.iter().any(|waiter| waiter.ticket == ticket) {
            queue = woken.wait(queue).expect("no model goes on after a panic");
        }
        false
    }

    fn cpu(&self) -> u32 {
        // Another processor each time: no party finds that a peer needs this processor.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        u32::try_from(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap_or(u32::MAX)
    }
}

impl Control for ModelKernel {
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

/// A channel in the owner's process; also the owner's control thread.
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
    /// Shared by the data thread and the control thread of the owner.
    pub shared: Arc<SenderShared>,
    members: Arc<ModelLock<Members>>,
    /// The kernel that all parties of the model share.
    pub kernel: ModelKernel,
}

impl ModelChannel {
    /// Creates a channel of `slots` slots for up to `receivers_max` receivers. Messages have up to
    /// `message_bytes_max` bytes, or [`WINDOW_MESSAGE_BYTES`] if that is more. Call it inside a
    /// model, on the model's first thread.
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

    /// Two slots and one receiver, with light fences (no locked instruction per message).
    #[must_use]
    pub fn small() -> Self {
        Self::new(2, 1, 1, FenceMode::Asymmetric)
    }

    /// The same channel under another policy.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// The data thread's half. Call it only once.
    ///
    /// # Panics
    /// Never: the number of rows comes from the geometry.
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

    /// The owner's control thread adds a receiver.
    pub fn join(&self, row: u32, start: Start) -> Joined {
        self.with_members(|members, channel| members.join(row, 1, start, channel, &self.kernel))
    }

    /// The owner's control thread removes a receiver.
    pub fn leave(&self, row: u32) {
        self.with_members(|members, channel| members.leave(row, channel, ControlCounter::Leaves));
        self.shared.nudge(&self.kernel);
    }

    /// The owner's control thread adds a receiver in a row whose last holder may be dead.
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

    /// The owner's control thread maps a new receiver's page, all zero, in a row whose receiver has
    /// left.
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

    /// Whether the owner would remove a receiver because its memory holds an impossible value.
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

    /// A receiver that joins before anything is sent.
    #[must_use]
    pub fn first_receiver(&self, row: u32) -> ModelReceiver {
        self.receiver(row, self.join(row, Start::Now))
    }
}

/// The time at which a model's sender decides which receivers are stalled. It is long enough after
/// the first check for a channel that evicts at once.
const EVICTED_AT_NS: u64 = 1;

/// How a party waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// By polling.
    Spin,
    /// By sleeping.
    Sleep,
}

/// Why a wait ended without success.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// The channel has ended.
    End(End),
    /// Another thread asked the call to return.
    Interrupted,
    /// Memory held an impossible value.
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
    /// The sender of the ring itself.
    pub sender: Sender<ModelKernel>,
    lock: Arc<ModelLock<Members>>,
}

impl ModelSender {
    /// Sends the next message: `bytes` bytes, each derived from the message's number.
    ///
    /// # Errors
    /// [`Stop::Interrupted`].
    pub fn try_send(&mut self, bytes: usize, wait: Wait, ring: bool) -> Result<(), Stop> {
        let Self { sender, lock } = self;
        let lock = &**lock;
        let sequence = sender.head();
        // Every second message takes the path for small messages.
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

/// The value of every byte of message `sequence`.
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
    /// If the message is not what was sent.
    pub fn receive(&mut self, wait: Wait) -> Result<u64, Stop> {
        let message = self.next(wait)?;
        let sequence = message.sequence();
        assert_whole(sequence, &message);
        Ok(sequence)
    }

    /// Receives the next message and holds it.
    ///
    /// # Panics
    /// If the channel ends first.
    pub fn hold(&mut self, wait: Wait) -> Held<ModelKernel> {
        self.next(wait).expect("assertion: no end yet").hold()
    }

    fn next(&mut self, wait: Wait) -> Result<Message<'_, ModelKernel>, Stop> {
        let in_place = self.1.expect("a channel that keeps its messages");
        self.0.receive_with(in_place, |receiver| {
            if let Some(end) = receiver.end()? {
                return Err(Stop::End(end));
            }
            match wait {
                Wait::Spin => pause(),
                Wait::Sleep => receiver.sleep(SLEEP_CAP_NS),
            }
            Ok(())
        })
    }

    /// Copies the next message out. Returns `None` if it was overwritten during the copy.
    ///
    /// # Errors
    /// The end of the channel, or a violation.
    ///
    /// # Panics
    /// If a copy that was reported whole is not what was sent.
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

    /// Copies messages out until the channel ends. Returns the number of whole messages and how the
    /// channel ended.
    ///
    /// # Panics
    /// If a message is not what was sent or comes out of order, or if memory held an impossible
    /// value.
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

    /// Receives everything up to the end of the channel, which comes after `sent` messages in all.
    ///
    /// # Panics
    /// If a message is missing, or if the channel ends in another way than `end`.
    pub fn receive_all(&mut self, sent: u64, wait: Wait, end: End) {
        self.receive_many(sent - self.0.next(), wait);
        assert_eq!(self.receive(wait), Err(Stop::End(end)));
    }
}

/// Checks a held message and releases it.
///
/// # Panics
/// If the message is not what was sent.
pub fn release(held: Held<ModelKernel>) {
    assert_whole(held.sequence(), &held);
}

fn assert_whole(sequence: u64, message: &[u8]) {
    assert!(message.iter().all(|&byte| byte == mark(sequence)), "message {sequence} is torn");
}

/// Runs `model` of this test program, by its path, in a separate process with one ordering weakened. The model
/// must fail with one of the failures that a missing ordering causes.
///
/// # Panics
/// If the model passes, or fails for another reason.
pub fn must_fail(label: &str, model: &str) {
    let program = std::env::current_exe().expect("a test knows its program");
    // Tests are named without their crate.
    let (_, model) = model.split_once("::").expect("a path");
    let output = std::process::Command::new(program)
        .args(["--exact", model, "--test-threads", "1"])
        .env("COREWIRE_WEAKEN", label)
        .output()
        .expect("a test can start its program");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "with {label} weakened, {model} still passes:\n{said}");
    // The last entry: a party polls forever, which never happens in the unweakened model.
    let why =
        ["deadlock; ", "Causality violation", "is torn", "assertion", "maximum number of branches"];
    assert!(why.iter().any(|why| said.contains(why)), "{model} failed otherwise:\n{said}");
}

/// One test for each label: it runs the model that fails without it. `docs/ordering.md` gives the
/// reason.
#[macro_export]
macro_rules! mutants {
    ($($name:ident: $label:ident => $model:ident;)*) => {$(
        #[test]
        fn $name() {
            let _exists: fn() = $model;
            $crate::must_fail(stringify!($label), concat!(module_path!(), "::", stringify!($model)));
        }
    )*};
}
