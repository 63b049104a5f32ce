//! Endpoints in memory that loom tracks.

use std::sync::Arc;

use corewire_layout::endpoint::EndpointSizes;
use corewire_layout::segment::FenceMode;
use corewire_ring::Trusted;
use corewire_ring::message::{Envelope, Held, Space, Wanted};
use corewire_ring::pair::{
    Activity, Endpoint, EndpointMemory, EndpointParts, EndpointShared, Lending, PeerParts, Polling,
    Short,
};
use corewire_ring::region::Region;
use corewire_ring::sync::{pause, set_light_fences};

use crate::ModelKernel;

/// The data thread of an endpoint, without the library around it.
pub type Pairs = Endpoint<ModelKernel>;

/// An endpoint from the point of view of other parties.
#[derive(Debug, Clone)]
pub struct ModelEndpoint {
    memory: EndpointMemory,
    activity: Activity,
    fence_mode: FenceMode,
    /// Shared by the threads of this endpoint.
    pub shared: Arc<EndpointShared>,
    /// The kernel that all parties of the model share.
    pub kernel: ModelKernel,
}

impl ModelEndpoint {
    /// Creates an endpoint for up to two peers, with `rings` rings of two slots and two cells of
    /// one line each. Call it inside a model, on the model's first thread.
    ///
    /// # Panics
    /// If no endpoint can have these sizes.
    #[must_use]
    pub fn new(rings: u64, fence_mode: FenceMode, kernel: &ModelKernel) -> Self {
        Self::with_heap(0, rings, fence_mode, kernel)
    }

    /// The same, with a heap of `heap_bytes` bytes.
    ///
    /// # Panics
    /// If no endpoint can have these sizes.
    #[must_use]
    pub fn with_heap(
        heap_bytes: u64,
        rings: u64,
        fence_mode: FenceMode,
        kernel: &ModelKernel,
    ) -> Self {
        let sizes = EndpointSizes::new(2, rings, 2, 2, 64);
        let sizes = sizes.and_then(|sizes| sizes.with_heap(heap_bytes)).expect("a model's sizes");
        set_light_fences(fence_mode == FenceMode::Asymmetric);
        let activity = Activity::new(Region::model_activity());
        Self {
            memory: EndpointMemory::new(Region::model_endpoint(&sizes), sizes),
            shared: Arc::new(EndpointShared::new(&activity)),
            activity,
            fence_mode,
            kernel: kernel.clone(),
        }
    }

    /// The endpoint's data thread, without peers.
    #[must_use]
    pub fn start(&self) -> Pairs {
        let parts = EndpointParts {
            memory: self.memory.clone(),
            activity: self.activity.clone(),
            fence_mode: self.fence_mode,
            shared: Arc::clone(&self.shared),
        };
        Endpoint::new(parts, self.kernel.clone())
    }

    /// Its control thread has linked the peer of `row`.
    pub fn admit(&self, row: u32) {
        Pairs::admit(&self.memory, row);
    }

    /// This endpoint as a peer knows it. `row_there` is the peer's row in this endpoint.
    #[must_use]
    pub fn as_peer(&self, row_there: u32) -> PeerParts {
        PeerParts {
            memory: self.memory.clone(),
            activity: self.activity.clone(),
            row_there,
            fence_mode: self.fence_mode,
            // SAFETY: all parties of a model follow the protocol; loom checks it.
            trusted: unsafe { Trusted::assume() },
        }
    }
}

/// Two endpoints that know each other; each is row 0 of the other.
#[must_use]
pub fn two(fence_mode: FenceMode) -> (ModelEndpoint, Pairs, ModelEndpoint, Pairs) {
    let kernel = ModelKernel::new(true);
    let a = ModelEndpoint::new(1, fence_mode, &kernel);
    let b = ModelEndpoint::new(1, fence_mode, &kernel);
    let (mut from, mut to) = (a.start(), b.start());
    meet(&mut from, 0, b.as_peer(0));
    meet(&mut to, 0, a.as_peer(0));
    a.admit(0);
    b.admit(0);
    (a, from, b, to)
}

/// The same with heaps, of which the second grants the first `limit` bytes.
///
/// # Panics
/// If it cannot.
#[must_use]
pub fn two_with_grants(
    fence_mode: FenceMode,
    limit: u64,
) -> (ModelEndpoint, Pairs, ModelEndpoint, Pairs) {
    let kernel = ModelKernel::new(true);
    let a = ModelEndpoint::with_heap(256, 1, fence_mode, &kernel);
    let b = ModelEndpoint::with_heap(256, 1, fence_mode, &kernel);
    let (mut from, mut to) = (a.start(), b.start());
    meet(&mut from, 0, b.as_peer(0));
    meet(&mut to, 0, a.as_peer(0));
    assert!(to.start_granting(0), "no message is held");
    from.set_grant(0, limit);
    (a, from, b, to)
}

/// Sends message `number` of `length` bytes, which stays in the sender's heap, to the peer in `row`. Waits for room.
///
/// # Panics
/// If the peer's memory holds impossible values.
pub fn send_in_place(pairs: &mut Pairs, row: u32, number: u64, length: usize, wait: Wait) {
    let bytes = bytes_of(number, length);
    let envelope = envelope_of(number);
    loop {
        let mut is_room = |pairs: &mut Pairs| {
            if !pairs.has_ring(row) {
                pairs.make_room(row).expect("own memory");
                return pairs.assign_ring(row);
            }
            pairs.has_room(row, &envelope, 0).expect("own memory")
                && matches!(pairs.lending(row, length as u64), Lending::Done(()))
        };
        if is_room(pairs) {
            match pairs.send_in_block(row, &envelope, &&bytes[..], &mut |_, _| true) {
                Lending::Done(true) => return,
                other => panic!("there was room: {other:?}"),
            }
        }
        // No endpoint sends to the sender.
        assert_eq!(pairs.poll(), None);
        match wait {
            Wait::Spin => pause(),
            Wait::Sleep => pairs.sleep(u64::MAX, Some(&mut is_room)),
        }
    }
}

/// Waits for message `number`, which stays where it is.
///
/// # Panics
/// If it is another one.
pub fn receive_in_place(pairs: &mut Pairs, number: u64) -> Held {
    loop {
        if let Some(row) = pairs.poll()
            && let Some(arrival) = pairs.arrival(row).expect("own memory")
        {
            assert_eq!(arrival.envelope, envelope_of(number));
            let held = pairs.take_block(row, &arrival).expect("it lies in a block");
            pairs.pass(row, &arrival);
            return held;
        }
        pause();
    }
}

/// Adds a peer to `pairs` and accepts its messages by the short path.
pub fn meet(pairs: &mut Pairs, row: u32, peer: PeerParts) {
    assert!(pairs.add_peer(row, peer));
    pairs.open(row, 1);
}

/// How an endpoint waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It polls repeatedly.
    Spin,
    /// It polls once, then sleeps.
    Sleep,
}

/// The content of message `number`.
///
/// # Panics
/// If `number` does not fit into a byte.
#[must_use]
pub fn bytes_of(number: u64, length: usize) -> Vec<u8> {
    vec![u8::try_from(number + 1).expect("few messages"); length]
}

/// The envelope of message `number`: one with an immediate if the number is odd.
#[must_use]
pub fn envelope_of(number: u64) -> Envelope {
    let envelope = Envelope::tagged(number);
    if number % 2 == 1 { envelope.with_immediate(!number) } else { envelope }
}

/// Sends message `number` of `length` bytes to the peer in `row`. Waits for room.
///
/// # Panics
/// If the peer's memory holds impossible values.
pub fn send(pairs: &mut Pairs, row: u32, number: u64, length: usize, wait: Wait) {
    let bytes = bytes_of(number, length);
    let envelope = envelope_of(number);
    let is_short = length <= envelope.inline_bytes_max();
    let mut sent = 0;
    loop {
        if is_short {
            if pairs.try_send(row, &envelope, &bytes) {
                return;
            }
        } else {
            sent += pairs.send_fragment(row, &envelope, &&bytes[..], sent);
            if sent == length as u64 {
                return;
            }
        }
        let mut is_room = |pairs: &mut Pairs| {
            if pairs.has_ring(row) {
                return pairs.has_room(row, &envelope, length as u64).expect("own memory");
            }
            pairs.make_room(row).expect("own memory");
            if pairs.next_ring().is_none() {
                pairs.take_ring_back(row);
            }
            pairs.next_ring().is_some() && pairs.assign_ring(row)
        };
        if !is_room(pairs) {
            // No endpoint sends to the sender.
            assert_eq!(pairs.poll(), None);
            match wait {
                Wait::Spin => pause(),
                Wait::Sleep => pairs.sleep(u64::MAX, Some(&mut is_room)),
            }
        }
    }
}

/// Takes what has arrived: one message, or one fragment of a message. Returns the peer's row and
/// the message's tag once the message is whole.
///
/// # Panics
/// If the message is torn, or if the peer's memory holds impossible values.
pub fn take(pairs: &mut Pairs) -> Option<(u32, u64)> {
    let mut short = [0; 48];
    // Messages without an immediate go the way of a receive that waits, the others that of one that is called; the fences
    // and cursors are the same.
    let mut is_other = false;
    let matched = pairs.take_matched(|space, _, tag, bytes| {
        assert_eq!(space, Space::Tagged);
        is_other = envelope_of(tag).immediate.is_some();
        if is_other { None } else { short.get_mut(..bytes) }
    });
    let taken = match matched {
        Short::Other(_) if is_other => {
            pairs.take_inline(Polling::Once, &Wanted::any(Space::Tagged), &mut short)
        }
        matched => matched,
    };
    let row = match taken {
        Short::Nothing => return None,
        Short::Taken { source, tag, immediate, bytes, .. } => {
            let row = Wanted::row_of(source);
            assert_eq!(immediate, envelope_of(tag).immediate);
            assert_eq!(short[..bytes], bytes_of(tag, bytes), "message {tag} is torn");
            return Some((row, tag));
        }
        Short::Other(row) => row,
    };
    let arrival = pairs.arrival(row).expect("own memory")?;
    let tag = arrival.envelope.tag;
    assert_eq!(arrival.envelope, envelope_of(tag));
    let mut bytes = vec![0; arrival.bytes];
    assert_eq!(pairs.copy(row, &arrival, 0, &mut bytes[..]), arrival.bytes);
    assert_eq!(bytes, bytes_of(tag, arrival.bytes), "message {tag} is torn");
    pairs.pass(row, &arrival);
    (!pairs.is_within(row)).then_some((row, tag))
}

/// Waits for a whole message.
///
/// # Panics
/// If the message is torn.
pub fn receive(pairs: &mut Pairs, wait: Wait) -> (u32, u64) {
    loop {
        if let Some(found) = take(pairs) {
            return found;
        }
        match wait {
            Wait::Spin => pause(),
            Wait::Sleep => pairs.sleep(u64::MAX, None),
        }
    }
}

/// Makes the pair hot, so that `to` polls it from now on: sends one message, receives it, and ends
/// the round.
///
/// # Panics
/// If the message does not arrive.
pub fn warm_up(from: &mut Pairs, to: &mut Pairs, row: u32) {
    send(from, row, 0, 8, Wait::Spin);
    assert_eq!(take(to).map(|(_, tag)| tag), Some(0), "the first message is lost");
    assert_eq!(take(to), None, "nothing else was sent");
}
