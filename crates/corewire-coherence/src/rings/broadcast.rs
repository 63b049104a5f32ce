//! The channel of one sender: `broadcast`, under `Block`, all in one process's memory.

use std::cell::RefCell;
use std::sync::Arc;

use corewire_layout::frame::{Start, Welcome};
use corewire_layout::geometry::{Geometry, GeometryError};
use corewire_layout::segment::{
    FenceMode, HINT_SEGMENT_BYTES, Policy, RECEIVER_SEGMENT_BYTES, ROWS_WATCHED_MAX,
};
use corewire_layout::slot::INLINE_BYTES_MAX;

use super::{Messages, Ring, part};
use crate::broadcast::{
    Channel, Members, Receiver, ReceiverParts, ReceiverShared, Sender, SenderParts, SenderShared,
    SenderWords, Violation,
};
use crate::region::{Region, Rows, Slots};
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

    let mut ring = Ring::new(shared_parts, slots);
    let shared = Arc::new(SenderShared::new(receivers, false));
    let words = SenderWords::new(segment.clone());
    let ring_slots = Slots::new(&segment, &geometry);
    let policy = Policy::Block;
    let channel =
        Channel { shared: &shared, slots: &ring_slots, words: &words, geometry: &geometry, policy };
    let mut members = Members::new(receivers);
    let mut receiving = Vec::new();
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
        receiving.push(Receiver::new(parts, NoKernel));
    }
    let rows = Rows::new(&pages, receivers);
    let lock = Locked(RefCell::new(members));
    let parts = SenderParts { segment, policy, staging: None, geometry, rows, hint, shared };
    let mut sender = Sender::new(parts, NoKernel);
    ring.add(move |number| {
        let loan = sender.loan_with(INLINE_BYTES_MAX, &lock, |sender| {
            sender.refresh(&lock);
            if sender.has_room(INLINE_BYTES_MAX) { Ok(()) } else { Err(()) }
        });
        let Ok(mut loan) = loan else { return false };
        // In the line of its stamp: what is counted there is counted for the stamp.
        loan.fill(&Messages::of(number));
        loan.send();
        true
    });
    for mut receiver in receiving {
        // SAFETY: the roles of a model run in turns, and keep to the protocol.
        let trusted = unsafe { Trusted::assume() };
        let in_place = receiver.in_place(trusted).expect("Block keeps messages");
        ring.add(move |number| {
            let message = receiver.receive_with(in_place, |receiver| {
                receiver.publish_cursor();
                Err(NotYet::Nothing)
            });
            match message {
                Ok(message) => Messages::check(number, &message),
                Err(NotYet::Nothing) => return false,
                Err(NotYet::Violation(violation)) => panic!("{violation}"),
            }
            true
        });
    }
    Ok(ring)
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

enum NotYet {
    Nothing,
    Violation(Violation),
}

impl From<Violation> for NotYet {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}
