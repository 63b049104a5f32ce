//! The channel of one sender: a sender with its control thread, two receivers, and a row for a new
//! receiver.

mod lock;
pub mod operations;
mod reader;
mod recovery;
mod start;

use std::sync::Arc;

use corewire_layout::counters::ControlCounter;
use corewire_layout::frame::{Start as From, Welcome};
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::{
    DoorState, FenceMode, HINT_SEGMENT_BYTES, Policy, RECEIVER_SEGMENT_BYTES, ROWS_WATCHED_MAX,
    SleepMode, tenure,
};
use corewire_layout::slot::SLOT_BYTES;
use corewire_ring::broadcast::{
    Channel, Members, Receiver, ReceiverParts, ReceiverShared, ReceiverWords, Sender, SenderParts,
    SenderShared, SenderWords,
};
use corewire_ring::doorbell::SLEEP_CAP_NS;
use corewire_ring::region::{Region, Rows, Slots};
use corewire_ring::sync::Ordering::Relaxed;
use corewire_ring::sync::kill::Stretch;
use corewire_ring::{Lock, Trusted};

pub use lock::TurnLock;
use reader::Asleep;
pub use reader::{Reader, Stop};
pub use start::State;

/// The policy and the state in which an operation begins.
pub type Start = crate::start::Start<State>;

use crate::engine::{Operation, World, content, stretch};
use crate::kernel::{Log, SharedLog, TurnKernel, address};
use crate::start::EVICT_AFTER_NS;

/// Slots of the ring. Receivers publish their cursors only after two messages, so some messages
/// have been passed without being reported.
pub const SLOTS: u64 = 16;
/// The window holds four messages of [`WINDOW_BYTES`].
const WINDOW: u64 = 256;
/// The longest message that goes through the window, in bytes.
pub const WINDOW_BYTES: usize = 64;
/// The longest message, in bytes. The large area holds eight.
pub const LARGE_BYTES: usize = 512;
/// Length of a short message, which ends in a partial word.
pub const INLINE_BYTES: usize = 20;
/// The row that is free at the start.
pub const NEWCOMER: u32 = 2;
const ROWS: u32 = 3;
/// The CPU on which all roles run.
const CPU: u32 = 7;

/// The roles that may die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The data thread.
    Sender,
    /// The control thread of the sender's process.
    Control,
    /// The receiver of a row.
    Receiver(u32),
}

/// A sender that sleeps on the wake word of the slowest row, and the values of that row's words
/// then.
#[derive(Debug, Clone, Copy)]
struct Blocked {
    row: u32,
    wake: u32,
    cursor: u64,
}
/// The channel with all its roles.
#[derive(Debug)]
pub struct Broadcast {
    /// The start of this case.
    pub start: Start,
    geometry: Geometry,
    segment: Region,
    rows: Region,
    hint: Option<Region>,
    slots: Slots,
    /// The words of the sender's segment.
    pub words: SenderWords,
    /// What the sender's threads share.
    pub shared: Arc<SenderShared>,
    /// The receivers of the channel.
    pub members: TurnLock,
    log: SharedLog,
    /// The data thread's half.
    pub sender: Sender<TurnKernel>,
    /// The live receivers, by row.
    pub readers: Vec<Option<Reader>>,
    /// The welcome of a receiver that has been added and has not begun.
    pub welcome: Option<Welcome>,
    /// Every message that was sent or was about to be sent.
    pub ledger: Vec<Vec<u8>>,
    blocked: Option<Blocked>,
    /// The simulated time of the sender's next check, in nanoseconds.
    pub now_ns: u64,
    /// A mistake: dead receivers are never removed.
    pub forgets_the_dead: bool,
}

impl Broadcast {
    fn empty(start: Start) -> Self {
        let is_hinted = start.state == State::Hinted;
        let receivers_max = if is_hinted { ROWS_WATCHED_MAX + 1 } else { ROWS };
        let geometry =
            Geometry::new(SLOTS, WINDOW, LARGE_BYTES as u64, receivers_max.into()).unwrap();
        let segment = Region::private(usize::try_from(geometry.segment_bytes()).unwrap()).unwrap();
        let rows = Region::private(receivers_max as usize * RECEIVER_SEGMENT_BYTES).unwrap();
        let hint = is_hinted.then(|| Region::private(HINT_SEGMENT_BYTES).unwrap());
        let shared = Arc::new(SenderShared::new(receivers_max, false));
        let log = SharedLog::default();
        let parts = SenderParts {
            segment: segment.clone(),
            policy: start.policy,
            staging: (!start.policy.keeps_messages())
                .then(|| Region::private(LARGE_BYTES).unwrap()),
            geometry,
            rows: Rows::new(&rows, receivers_max),
            hint: hint.clone(),
            shared: Arc::clone(&shared),
        };
        let kernel = TurnKernel { cpu: CPU, log: log.clone() };
        let mut world = Self {
            start,
            slots: Slots::new(&segment, &geometry),
            words: SenderWords::new(segment.clone()),
            sender: Sender::new(parts, kernel),
            geometry,
            segment,
            rows,
            hint,
            shared,
            members: TurnLock::new(Members::new(receivers_max)),
            log,
            readers: (0..receivers_max).map(|_| None).collect(),
            welcome: None,
            ledger: Vec::new(),
            blocked: None,
            now_ns: 1,
            forgets_the_dead: false,
        };
        for row in 0..2 {
            world.take_in(row, From::Now);
            world.begin();
        }
        world
    }

    /// The kernel of all roles.
    #[must_use]
    pub fn kernel(&self) -> TurnKernel {
        TurnKernel { cpu: CPU, log: self.log.clone() }
    }

    /// Runs `job` with the members, as the control thread does.
    pub fn with_members<R>(&self, job: impl FnOnce(&mut Members, &Channel<'_>) -> R) -> R {
        let Self { shared, slots, words, geometry, .. } = self;
        let policy = self.start.policy;
        let channel = Channel { shared, slots, words, geometry, policy };
        self.members.with(|members| job(members, &channel))
    }

    fn page(&self, row: u32) -> Region {
        let page = RECEIVER_SEGMENT_BYTES;
        self.rows.part(row as usize * page, page).expect("own row")
    }

    /// The words of a receiver's own segment.
    #[must_use]
    pub fn receiver_words(&self, row: u32) -> ReceiverWords {
        ReceiverWords::new(self.page(row))
    }

    /// The control thread adds a receiver, if `row` is the next free row.
    pub fn take_in(&mut self, row: u32, from: From) {
        if self.members.with(|members| members.free_row()) != Some(row) {
            return;
        }
        let kernel = self.kernel();
        // Each receiver is another process: it begins with all its patience.
        let pid = 1 + self.words.control_counter(ControlCounter::Joins).load(Relaxed);
        let pid = u32::try_from(pid).unwrap_or(u32::MAX);
        let joined =
            self.with_members(|members, channel| members.join(row, pid, from, channel, &kernel));
        self.welcome = Some(Welcome {
            row,
            start: joined.start,
            epoch: joined.epoch,
            incarnation: 1,
            hint: self.hint.is_some(),
            table: false,
            settled: 0,
            generation: joined.generation,
        });
        self.shared.nudge(&kernel);
    }

    /// The new receiver starts with the welcome that it has received.
    pub fn begin(&mut self) {
        let Some(welcome) = self.welcome else { return };
        let row = welcome.row;
        let kernel = self.kernel();
        let parts = ReceiverParts {
            sender: self.segment.clone(),
            geometry: self.geometry,
            fence_mode: FenceMode::Asymmetric,
            policy: self.start.policy,
            own: self.page(row),
            hint: self.hint.clone(),
            shared: Arc::new(ReceiverShared::default()),
            many: None,
            welcome,
        };
        let ring = Receiver::new(parts, kernel.clone());
        // SAFETY: sender and receivers run on one thread and follow the protocol.
        let trusted = unsafe { Trusted::assume() };
        let tenure = tenure(welcome.generation, DoorState::Joined);
        self.readers[row as usize] = Some(Reader::new(ring, trusted, (row, tenure), kernel));
        self.welcome = None;
    }

    /// Does what the control thread does when it maps a new receiver's page, all zero, in place of the old one.
    fn renew(&mut self, row: u32) {
        self.rows.copy_in(row as usize * RECEIVER_SEGMENT_BYTES, &[0; RECEIVER_SEGMENT_BYTES]);
    }

    /// Sends a message of `bytes` bytes. Returns false if there is no room for it, even after a
    /// wait.
    pub fn send(&mut self, bytes: usize, send: operations::Way) -> bool {
        let sequence = self.sender.head();
        let message = content(sequence, bytes);
        let Self { sender, members, ledger, now_ns, .. } = self;
        if send == operations::Way::Short && bytes <= 48 && {
            ledger.push(message.clone());
            let is_sent = sender.try_send_inline(&message);
            if !is_sent {
                ledger.pop();
            }
            is_sent
        } {
            return true;
        }
        let mut looks = 0;
        let loan = sender.loan_with(bytes, members, |sender| {
            looks += 1;
            if looks > 2 {
                return Err(());
            }
            wait_for_room(sender, members, bytes, now_ns);
            Ok(())
        });
        let Ok(loan) = loan else { return false };
        operations::finish(loan, &message, ledger, send);
        true
    }

    /// The addresses of the slots.
    #[must_use]
    pub fn ring(&self) -> Stretch {
        let stamp = |sequence| self.slots.at(sequence).stamp().as_ptr().addr();
        stamp(0)..stamp(SLOTS - 1) + SLOT_BYTES
    }

    /// Puts a receiver to sleep, as far as its words show. Returns false if there is something to
    /// receive.
    fn put_to_sleep(&mut self, row: u32, mode: SleepMode) -> bool {
        let bell = self.words.bell().load(Relaxed);
        let own = self.receiver_words(row);
        let Some(reader) = &mut self.readers[row as usize] else { return false };
        let is_armed = reader.ring.arm();
        if is_armed {
            own.sleep_mode().store(mode as u32, Relaxed);
            reader.asleep = Some(Asleep { mode, bell });
        }
        is_armed
    }

    /// Whether this sleeper has been woken.
    fn is_woken(&self, row: u32, asleep: Asleep) -> bool {
        let log = self.log.lock();
        match asleep.mode {
            SleepMode::Futex => {
                let bell = self.words.bell();
                let is_rung = log.wakes.contains(&address(bell));
                bell.load(Relaxed) != asleep.bell && is_rung
            }
            SleepMode::Descriptor => log.descriptors.contains(&row),
        }
    }

    /// Puts the sender to sleep for lack of room, as far as its words show.
    fn block(&mut self) {
        let slowest = self.sender.refresh(&self.members).unwrap();
        let row = slowest.row;
        let words = self.receiver_words(row);
        let (wake, cursor) = (words.wake().load(Relaxed), words.cursor().load(Relaxed));
        self.blocked = Some(Blocked { row, wake, cursor });
        self.words.blocked().store(1, Relaxed);
    }
}

/// Waits for room as the library does, but without polling first: checks for room, frees some if the
/// policy allows it, and otherwise sleeps.
pub fn wait_for_room(
    sender: &mut Sender<TurnKernel>,
    members: &TurnLock,
    bytes: usize,
    now_ns: &mut u64,
) {
    *now_ns += EVICT_AFTER_NS / 3;
    sender.refresh(members);
    sender.give_up_for(bytes);
    if sender.has_room(bytes) {
        sender.forget_stalls(members);
        return;
    }
    if sender.evict_stalled(bytes, *now_ns, members) {
        sender.refresh(members);
    }
    if sender.has_room(bytes) {
        return;
    }
    sender.count_wait();
    if sender.someone_sleeps() {
        sender.ring_bell();
    }
    sender.sleep_until(members, SLEEP_CAP_NS, |sender| sender.has_room(bytes));
}
impl World for Broadcast {
    type State = State;
    type Role = Role;

    fn policies() -> Vec<Policy> {
        vec![Policy::Block, Policy::Overwrite, Policy::Evict { after_ns: EVICT_AFTER_NS }]
    }

    fn operations() -> Vec<Operation<Self>> {
        operations::all()
    }

    fn new(start: Start) -> Self {
        let mut world = Self::empty(start);
        world.bring_to(start.state);
        *world.log.lock() = Log::default();
        world
    }

    fn shared(&self) -> Vec<Stretch> {
        let regions = [Some(&self.segment), Some(&self.rows), self.hint.as_ref()];
        regions.into_iter().flatten().map(stretch).collect()
    }

    fn own(&self, role: Role) -> Vec<Stretch> {
        let own = match role {
            Role::Sender | Role::Control => stretch(&self.segment),
            Role::Receiver(row) => stretch(&self.page(row)),
        };
        std::iter::once(own).chain(self.hint.as_ref().map(stretch)).collect()
    }

    fn has_order(one: Role, other: Role) -> bool {
        // Only the sender's process gets the report of a receiver's death.
        matches!((one, other), (Role::Receiver(_), Role::Receiver(_)))
    }

    fn can_run(&self, role: Role) -> bool {
        // A thread of the sender stops where the other one holds the lock.
        matches!(role, Role::Receiver(_)) || !self.members.is_shut()
    }
    fn go_on(self, dead: &[Role]) {
        self.recover(dead);
    }
}
