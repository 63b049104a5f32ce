//! The channel of one sender: `broadcast` under `Block`, in the memory of one process.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use corewire_layout::frame::Start;
use corewire_layout::geometry::{Geometry, GeometryError};
use corewire_layout::segment::{
    FenceMode, HINT_SEGMENT_BYTES, Policy, RECEIVER_SEGMENT_BYTES, ROWS_WATCHED_MAX,
};
use corewire_layout::slot::INLINE_BYTES_MAX;

use super::{Messages, Ring, part};
use crate::broadcast::{
    Channel, InPlace, Loan, Members, Message, Receiver, ReceiverParts, ReceiverShared, Sender,
    SenderParts, SenderShared, SenderWords, Violation,
};
use crate::caches::Part;
use crate::doorbell::Bells;
use crate::region::{Region, Rows, Slots};
use crate::sync::AtomicU32;
use crate::{Control, Kernel, Lock, Trusted};

/// The smallest possible window. The messages of the model are short and do not use it.
const WINDOW_BYTES: u64 = 256;

/// A channel of `slots` slots with `receivers` receivers, for messages of 48 bytes.
///
/// # Errors
/// [`GeometryError`].
///
/// # Panics
/// If there is no memory.
pub fn broadcast(receivers: u32, slots: u64) -> Result<Ring, GeometryError> {
    let channel = Ends::new(receivers, slots)?;
    let mut ring = Ring::new(channel.parts, slots);
    let mut sending = channel.sending;
    ring.add(move |number| sending.try_send(number));
    for receiving in channel.receiving {
        ring.add(checked(receiving));
    }
    Ok(ring)
}

/// The same on two levels, for domains of `domain_cores` cores. In the first domain the sender has one
/// core and receivers have the others; they read the sender's ring. In every other domain a relay has
/// one core: it reads the sender's ring and forwards the messages to the receivers on the other cores.
/// If one domain is enough, this is [`broadcast`].
///
/// # Errors
/// [`GeometryError`].
///
/// # Panics
/// If there is no memory, or a domain has fewer than two cores.
pub fn two_level(receivers: u32, domain_cores: u32, slots: u64) -> Result<Ring, GeometryError> {
    assert!(domain_cores > 1, "a domain of {domain_cores} cores");
    let each = domain_cores - 1;
    let first = receivers.min(each);
    let relays = (receivers - first).div_ceil(each);
    let mut main = Ends::new(first + relays, slots)?;
    let relayed = main.receiving.split_off(first as usize);
    let mut ring = Ring::new(main.parts, slots);
    let mut sending = main.sending;
    ring.add(move |number| sending.try_send(number));
    for receiving in main.receiving {
        ring.add(checked(receiving));
    }
    let mut left = receivers - first;
    for mut from in relayed {
        let here = left.min(each);
        left -= here;
        let local = Ends::new(here, slots)?;
        ring.parts.extend(local.parts);
        let mut to = local.sending;
        // If there is no room in the local ring, the message stays in the sender's ring.
        ring.add(move |_| {
            let Some(mut loan) = to.try_loan(INLINE_BYTES_MAX) else { return false };
            let Some(message) = from.try_receive() else { return false };
            loan.fill(&message);
            loan.send();
            true
        });
        for receiving in local.receiving {
            ring.add(checked(receiving));
        }
    }
    Ok(ring)
}

/// A receiver's step: receives message `number` and checks it.
fn checked(mut receiving: Receiving) -> impl FnMut(u64) -> bool {
    move |number| {
        let message = receiving.try_receive();
        message.inspect(|message| Messages::check(number, message)).is_some()
    }
}

/// Both ends of a channel, and its memory.
struct Ends {
    parts: Vec<Part>,
    sending: Sending,
    receiving: Vec<Receiving>,
}

struct Sending {
    sender: Sender<NoKernel>,
    lock: Locked,
}

struct Receiving {
    receiver: Receiver<NoKernel>,
    in_place: InPlace,
}

impl Sending {
    fn try_loan(&mut self, bytes: usize) -> Option<Loan<'_, NoKernel>> {
        let Self { sender, lock } = self;
        let lock = &*lock;
        let refresh = |sender: &mut Sender<_>| {
            sender.refresh(lock);
            if sender.has_room(bytes) { Ok(()) } else { Err(()) }
        };
        sender.loan_with(bytes, lock, refresh).ok()
    }

    fn try_send(&mut self, number: u64) -> bool {
        let Some(mut loan) = self.try_loan(INLINE_BYTES_MAX) else { return false };
        // The payload lies in the line of its stamp, so the accesses to the stamp count for both.
        loan.fill(&Messages::of(number));
        loan.send();
        true
    }
}

impl Receiving {
    fn try_receive(&mut self) -> Option<Message<'_, NoKernel>> {
        let message = self.receiver.receive_with(self.in_place, |receiver| {
            receiver.publish_cursor();
            Err(NotYet::Nothing)
        });
        match message {
            Ok(message) => Some(message),
            Err(NotYet::Nothing) => None,
            Err(NotYet::Violation(violation)) => panic!("{violation}"),
        }
    }
}

impl Ends {
    fn new(receivers: u32, slots: u64) -> Result<Self, GeometryError> {
        let geometry =
            Geometry::new(slots, WINDOW_BYTES, INLINE_BYTES_MAX as u64, receivers.into())?;
        let memory = |bytes: usize| Region::private(bytes).expect("memory for a model");
        let segment = memory(usize::try_from(geometry.segment_bytes()).expect("a small ring"));
        let pages = memory(receivers as usize * RECEIVER_SEGMENT_BYTES);
        let hint = (receivers > ROWS_WATCHED_MAX).then(|| memory(HINT_SEGMENT_BYTES));
        let mut parts = vec![part(&segment, "sender"), part(&pages, "receivers")];
        parts.extend(hint.as_ref().map(|hint| part(hint, "hint")));

        let shared = Arc::new(SenderShared::new(receivers, false));
        let words = SenderWords::new(segment.clone());
        let slots = Slots::new(&segment, &geometry);
        let policy = Policy::Block;
        let channel =
            Channel { shared: &shared, slots: &slots, words: &words, geometry: &geometry, policy };
        let mut members = Members::new(receivers);
        let mut receiving = Vec::new();
        for row in 0..receivers {
            let joined = members.join(row, 1, Start::Now, &channel, &NoKernel);
            let welcome = joined.welcome(row, 1, hint.is_some());
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
            let receiver = Receiver::new(parts, NoKernel);
            // SAFETY: the roles of a model run in turns and follow the protocol.
            let trusted = unsafe { Trusted::assume() };
            let in_place = receiver.in_place(trusted).expect("Block keeps messages");
            receiving.push(Receiving { receiver, in_place });
        }
        let rows = Rows::new(&pages, receivers);
        let lock = Locked(RefCell::new(members));
        let sender = SenderParts { segment, policy, staging: None, geometry, rows, hint, shared };
        let sender = Sender::new(sender, NoKernel);
        Ok(Self { parts, sending: Sending { sender, lock }, receiving })
    }
}

/// In a model nothing sleeps: a role that has nothing to do waits for the scheduler.
#[derive(Debug, Clone, Copy)]
pub(super) struct NoKernel;

impl Kernel for NoKernel {
    fn barrier_everywhere(&self) -> bool {
        true
    }

    fn wake(&self, _word: &AtomicU32, _count_max: u32) {}

    fn wait(&self, _bells: Bells<'_>, _cap_ns: u64) -> bool {
        false
    }

    fn cpu(&self) -> u32 {
        // Another processor each time: nobody finds that a peer needs the one it runs on.
        static NEXT: Mutex<u32> = Mutex::new(0);
        let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
        *next = next.wrapping_add(1);
        *next
    }
}

impl Control for NoKernel {}

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
