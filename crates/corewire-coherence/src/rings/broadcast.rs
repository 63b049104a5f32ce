//! The channel of one sender: `broadcast`, under `Block`, all in one process's memory.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use corewire_layout::frame::{Start, Welcome};
use corewire_layout::geometry::{Geometry, GeometryError};
use corewire_layout::segment::{
    FenceMode, HINT_SEGMENT_BYTES, Policy, RECEIVER_SEGMENT_BYTES, ROWS_WATCHED_MAX,
};
use corewire_layout::slot::INLINE_BYTES_MAX;

use super::{Ring, part};
use crate::broadcast::{
    Channel, InPlace, Members, Receiver, ReceiverParts, ReceiverShared, Sender, SenderParts,
    SenderShared, SenderWords, Violation,
};
use crate::region::{Region, Rows, Slots};
use crate::scheduler::{Role, Step};
use crate::sync::AtomicU32;
use crate::{Kernel, Lock, Trusted};

/// The smallest window; no message of the model lies there.
const WINDOW_BYTES: u64 = 256;

/// A channel of `slots` slots and as many receivers as said, for messages of 48 bytes.
///
/// # Errors
/// [`GeometryError`].
///
/// # Panics
/// If there is no memory.
pub fn broadcast(receivers: u32, slots: u64) -> Result<Ring, GeometryError> {
    let geometry = Geometry::new(slots, WINDOW_BYTES, INLINE_BYTES_MAX as u64, receivers.into())?;
    let memory = |bytes: usize| Region::private(bytes).expect("memory for a model");
    let segment = memory(usize::try_from(geometry.segment_bytes()).expect("a small ring"));
    let pages = memory(receivers as usize * RECEIVER_SEGMENT_BYTES);
    let hint = (receivers > ROWS_WATCHED_MAX).then(|| memory(HINT_SEGMENT_BYTES));
    let mut shared_parts = vec![part(&segment, "sender"), part(&pages, "receivers")];
    shared_parts.extend(hint.as_ref().map(|hint| part(hint, "hint")));

    let goal = Rc::new(Cell::new(0));
    let shared = Arc::new(SenderShared::new(receivers, false));
    let words = SenderWords::new(segment.clone());
    let ring = Slots::new(&segment, &geometry);
    let policy = Policy::Block;
    let channel =
        Channel { shared: &shared, slots: &ring, words: &words, geometry: &geometry, policy };
    let mut members = Members::new(receivers);
    let mut roles: Vec<Box<dyn Role>> = Vec::new();
    for row in 0..receivers {
        let joined = members.join(row, 1, Start::Now, &channel, &NoKernel);
        let welcome = Welcome {
            row,
            start: joined.start,
            epoch: joined.epoch,
            incarnation: 1,
            hint: hint.is_some(),
            table: false,
            settled: joined.settled,
            generation: joined.generation,
        };
        let own = pages.part(row as usize * RECEIVER_SEGMENT_BYTES, RECEIVER_SEGMENT_BYTES);
        let parts = ReceiverParts {
            sender: segment.clone(),
            geometry,
            fence_mode: FenceMode::Asymmetric,
            policy,
            own: own.expect("a page for each"),
            hint: hint.clone(),
            welcome,
            shared: Arc::new(ReceiverShared::default()),
            many: None,
        };
        let ring = Receiver::new(parts, NoKernel);
        // SAFETY: the roles of a model run in turns, and keep to the protocol.
        let trusted = unsafe { Trusted::assume() };
        let in_place = ring.in_place(trusted).expect("Block keeps messages");
        roles.push(Box::new(Receiving { ring, in_place, goal: Rc::clone(&goal) }));
    }
    let rows = Rows::new(&pages, receivers);
    let lock = Locked(RefCell::new(members));
    let parts = SenderParts { segment, policy, staging: None, geometry, rows, hint, shared };
    let ring = Sender::new(parts, NoKernel);
    roles.insert(0, Box::new(Sending { ring, lock, goal: Rc::clone(&goal) }));
    Ok(Ring { parts: shared_parts, roles, goals: vec![goal], slots })
}

/// Nobody sleeps in a model: who has nothing to do waits for the scheduler.
#[derive(Debug, Clone, Copy)]
struct NoKernel;

impl Kernel for NoKernel {
    fn barrier_everywhere(&self) -> bool {
        true
    }

    fn wake(&self, _word: &AtomicU32, _count_max: u32) {}

    fn wait(&self, _shared: (&AtomicU32, u32), _own: (&AtomicU32, u32), _cap_ns: u64) -> bool {
        false
    }

    fn cpu(&self) -> u32 {
        0
    }
}

struct Locked(RefCell<Members>);

impl Lock<Members> for Locked {
    fn with<R>(&self, job: impl FnOnce(&mut Members) -> R) -> R {
        job(&mut self.0.borrow_mut())
    }
}

struct Sending {
    ring: Sender<NoKernel>,
    lock: Locked,
    goal: Rc<Cell<u64>>,
}

impl Role for Sending {
    fn step(&mut self) -> Step {
        let Self { ring, lock, goal } = self;
        let sequence = ring.head();
        if sequence == goal.get() {
            return Step::Done;
        }
        let loan = ring.loan_with(INLINE_BYTES_MAX, lock, |ring| {
            ring.refresh(lock);
            if ring.has_room(INLINE_BYTES_MAX) { Ok(()) } else { Err(()) }
        });
        let Ok(mut loan) = loan else { return Step::Waits };
        // In the line of its stamp: what is counted there is counted for the stamp.
        loan.fill([sequence.to_le_bytes(); 6].as_flattened());
        loan.send();
        Step::Did
    }
}

struct Receiving {
    ring: Receiver<NoKernel>,
    in_place: InPlace,
    goal: Rc<Cell<u64>>,
}

enum NotYet {
    Nothing,
    Violation(Violation),
}

impl From<Violation> for NotYet {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl Role for Receiving {
    fn step(&mut self) -> Step {
        if self.ring.next() == self.goal.get() {
            return Step::Done;
        }
        let message = self.ring.receive_with(self.in_place, |ring| {
            ring.publish_cursor();
            Err(NotYet::Nothing)
        });
        match message {
            Ok(message) => {
                let sequence = message.sequence();
                assert_eq!(message[..8], sequence.to_le_bytes(), "message {sequence}");
                Step::Did
            }
            Err(NotYet::Nothing) => Step::Waits,
            Err(NotYet::Violation(violation)) => panic!("{violation}"),
        }
    }
}
