//! Pair rings between threads, and beside a peer that writes anything into its own memory.

use std::sync::Arc;
use std::thread;

use crate::yielding::Yielding;
use corewire_layout::endpoint::{ACTIVITY_BYTES, ENDPOINT_SLEEPING, EndpointSizes};
use corewire_layout::segment::FenceMode;
use corewire_ring::Trusted;
use corewire_ring::message::{Envelope, Space, Wanted};
use corewire_ring::pair::{
    Activity, Claim, Endpoint, EndpointMemory, EndpointParts, EndpointShared, PeerParts, Polling,
    Short,
};
use corewire_ring::region::Region;
use corewire_ring::sync::Ordering::Relaxed;
use proptest::prelude::*;

type Pairs = Endpoint<Yielding>;

/// An endpoint's two memories.
struct Memory {
    segment: Region,
    page: Region,
    sizes: EndpointSizes,
}

impl Memory {
    fn new(sizes: EndpointSizes) -> Self {
        let bytes = usize::try_from(sizes.segment_bytes()).unwrap();
        let segment = Region::private(bytes).unwrap();
        Self { segment, page: Region::private(ACTIVITY_BYTES).unwrap(), sizes }
    }

    fn words(&self) -> (EndpointMemory, Activity) {
        (EndpointMemory::new(self.segment.clone(), self.sizes), Activity::new(self.page.clone()))
    }

    fn start(&self) -> Pairs {
        let (memory, activity) = self.words();
        let fence_mode = FenceMode::Fenced;
        let shared = Arc::new(EndpointShared::new(&activity));
        Pairs::new(EndpointParts { memory, activity, fence_mode, shared }, Yielding)
    }

    fn as_peer(&self, row_there: u32) -> PeerParts {
        let (memory, activity) = self.words();
        // SAFETY: tests copy, and check nothing but that they may.
        let trusted = unsafe { Trusted::assume() };
        PeerParts { memory, activity, row_there, fence_mode: FenceMode::Fenced, trusted }
    }
}

fn two() -> ([Memory; 2], Pairs, Pairs) {
    let sizes = EndpointSizes::new(4, 2, 8, 4, 4096).unwrap();
    let memories = [Memory::new(sizes), Memory::new(sizes)];
    let (mut a, mut b) = (memories[0].start(), memories[1].start());
    assert!(a.add_peer(2, memories[1].as_peer(3)));
    assert!(b.add_peer(3, memories[0].as_peer(2)));
    (memories, a, b)
}

/// Sends as much of a message as there is room for. True if that is all.
fn push(pairs: &mut Pairs, row: u32, tag: u64, message: &[u8], sent: &mut u64) -> bool {
    loop {
        if message.len() <= 160 {
            if pairs.try_send(row, &Envelope::tagged(tag), message) {
                return true;
            }
        } else {
            let bytes = pairs.send_fragment(row, &Envelope::tagged(tag), &message, *sent);
            *sent += bytes;
            if *sent == message.len() as u64 {
                return true;
            }
            if bytes > 0 {
                continue;
            }
        }
        if !pairs.has_ring(row) {
            if pairs.next_ring().is_none() || !pairs.assign_ring(row) {
                return false;
            }
        } else if !pairs
            .has_room(row, &Envelope::tagged(tag), message.len() as u64)
            .unwrap_or(false)
        {
            return false;
        }
    }
}

fn bytes_of(number: u64) -> Vec<u8> {
    // Miri panics where bytes that are not atomic have covered a part of an atomic word, so there only whole ones.
    let lengths = if cfg!(miri) {
        [0, 8, 48, 56, 112, 160, 161, 13_000]
    } else {
        [0, 8, 48, 49, 105, 160, 161, 13_000]
    };
    let length = lengths[usize::try_from(number % 8).unwrap()];
    vec![u8::try_from(number % 251).unwrap(); length]
}

// Keeps P218.
/// A second peer in a row would leave the watch with a pointer into the first one's memory. (Miri would report that.)
#[test]
fn a_row_has_one_peer_whatever_control_says() {
    let sizes = EndpointSizes::new(4, 2, 8, 4, 4096).unwrap();
    let (memory, mut a) = (Memory::new(sizes), Memory::new(sizes).start());
    let first = Memory::new(sizes);
    let mut sender = first.start();
    assert!(a.add_peer(1, first.as_peer(2)) && sender.add_peer(2, memory.as_peer(1)));
    let mut sent = 0;
    assert!(push(&mut sender, 2, 7, &[1; 8], &mut sent));
    // Now the pair is watched.
    assert_eq!(hear(&mut a), Some((1, Space::Tagged, 7)));
    assert!(!a.add_peer(1, Memory::new(sizes).as_peer(2)), "the row has a peer");
    assert!(!a.add_peer(4, Memory::new(sizes).as_peer(2)), "there is no such row");
    drop((first, sender));
    assert_eq!(hear(&mut a), None);
    a.remove_peer(1);
    assert_eq!(hear(&mut a), None);
    assert!(a.add_peer(1, Memory::new(sizes).as_peer(2)), "the row is free");
    assert_eq!(hear(&mut a), None);
}

// Keeps P67.
#[test]
fn messages_of_every_kind_arrive_in_order() {
    let messages = if cfg!(miri) { 24 } else { 20_000 };
    let (_memories, mut a, mut b) = two();
    let sender = thread::spawn(move || {
        for number in 0..messages {
            let mut sent = 0;
            while !push(&mut a, 2, number, &bytes_of(number), &mut sent) {
                thread::yield_now();
            }
        }
        a
    });
    let mut message = Vec::new();
    let mut number = 0;
    while number < messages {
        let Some(row) = b.poll() else {
            b.publish_cursors();
            thread::yield_now();
            continue;
        };
        let Some(arrival) = b.arrival(row).unwrap() else { continue };
        let from = message.len();
        message.resize(from + arrival.bytes, 0);
        assert_eq!(b.copy(row, &arrival, 0, &mut message[from..]), arrival.bytes);
        b.pass(row, &arrival);
        assert_eq!((row, arrival.envelope.tag), (3, number));
        if message.len() as u64 == arrival.total {
            assert_eq!(message, bytes_of(number));
            message.clear();
            number += 1;
        }
    }
    b.publish_cursors();
    let mut a = sender.join().unwrap();
    a.make_room(2).unwrap();
    b.remove_peer(3);
    assert_eq!(b.poll(), None);
}

/// Sends a word of 16 bytes about a large message. Takes the only ring back from another peer, if need be; all receive.
fn tell(ends: &mut [Pairs; 3], from: usize, to: usize, space: Space, number: u64) {
    let row = u32::try_from(to).unwrap();
    for _ in 0..8 {
        if ends[from].try_send_beside(row, &Envelope::numbered(space, number), &[1; 16]) {
            let mut found = None;
            for _ in 0..4 {
                found = found.or(hear(&mut ends[to]));
            }
            assert_eq!(found, Some((u32::try_from(from).unwrap(), space, number)));
            return ends[to].publish_cursors();
        }
        ends[from].make_room(row).unwrap();
        if !ends[from].has_ring(row) && !ends[from].assign_ring(row) {
            assert!(ends[from].take_ring_back(row), "another peer has the ring");
        }
        for end in &mut *ends {
            assert_eq!(hear(end), None, "only the end of the ring");
            end.publish_cursors();
        }
    }
    panic!("no ring for {space:?} of {number}");
}

fn hear(pairs: &mut Pairs) -> Option<(u32, Space, u64)> {
    let row = pairs.poll()?;
    let arrival = pairs.arrival(row).unwrap()?;
    pairs.pass(row, &arrival);
    Some((row, arrival.envelope.space, arrival.envelope.tag))
}

/// Nothing of a large message but its offer and its notices is in a ring, so the ring need not wait for offers that
/// are out.
#[test]
fn a_ring_ends_while_offers_are_out_and_both_sides_copy_on() {
    let sizes = EndpointSizes::new(4, 1, 8, 4, 4096).unwrap();
    let memories = [(); 3].map(|()| Memory::new(sizes));
    let mut ends = [0, 1, 2].map(|index: usize| memories[index].start());
    for (here, end) in (0u32..).zip(&mut ends) {
        for (there, memory) in (0u32..).zip(&memories).filter(|(there, _)| *there != here) {
            let own = memories[here as usize].words().0;
            Pairs::reset_row(&own, there);
            assert!(end.add_peer(there, PeerParts { row_there: here, ..memory.as_peer(0) }));
        }
    }
    let offers = [(); 3].map(|()| ends[0].make_offer(1).unwrap());
    for number in offers {
        tell(&mut ends, 0, 1, Space::Offer, number);
    }
    let mut puller = ends[1].puller(0, offers[0], 4).unwrap();
    puller.invite();
    assert!(puller.begin());
    tell(&mut ends, 1, 0, Space::Notice, offers[0]);
    let mut helper = ends[0].helper(1, offers[0], 4).unwrap();
    assert_eq!((puller.claim(1), helper.claim()), (Claim::Chunks(0..1), Some(3)));
    helper.finish();
    // Both rings go to the third endpoint, and serve it.
    tell(&mut ends, 0, 2, Space::Notice, 7);
    tell(&mut ends, 1, 2, Space::Notice, 8);
    assert!(ends[0].has_begun(1, offers[0]) && !ends[0].has_ring(1));
    assert_eq!((puller.claim(1), helper.claim()), (Claim::Chunks(1..2), Some(2)));
    helper.finish();
    assert_eq!((helper.claim(), puller.claim(1)), (None, Claim::Over));
    assert!(puller.is_valid());
    tell(&mut ends, 1, 0, Space::Notice, offers[0]);
    ends[0].end_offer(offers[0]);
    assert!(!puller.is_valid());
    // What was begun follows as data, what was not is taken back; both through a ring that has come back.
    let mut begun = ends[1].puller(0, offers[1], 4).unwrap();
    assert!(begun.begin());
    assert!(!ends[0].withdraw_offer(1, offers[1]) && !begun.is_valid());
    tell(&mut ends, 0, 1, Space::Data, offers[1]);
    // The receiver's word names its latest copy only. An offer that was made before that may have been begun, too.
    assert!(!ends[0].withdraw_offer(1, offers[2]));
    let last = ends[0].make_offer(1).unwrap();
    assert!(ends[0].withdraw_offer(1, last), "nobody knows of it");
    assert!(!ends[1].puller(0, last, 4).unwrap().begin());
}

/// What a peer that writes anything may write: a word, anywhere.
fn scribbles() -> impl Strategy<Value = Vec<(prop::sample::Index, u64, bool)>> {
    let bits = prop_oneof![
        any::<u64>(),
        0u64..32,
        // Stamps and rings that are nearly right.
        (0u64..20, 0u64..8, 0u64..4096)
            .prop_map(|(at, kind, length)| at << 16 | kind << 12 | length),
        (0u64..4, 0u64..4).prop_map(|(count, ring)| count << 32 | ring),
    ];
    prop::collection::vec((any::<prop::sample::Index>(), bits, any::<bool>()), 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 2000 }, ..Default::default() })]

    // Keeps P71.
    /// No panic, nothing outside its memory, and no call that does not end, whatever a peer's segment and
    /// one's own page hold.
    #[test]
    fn a_peer_that_writes_anything_is_found_out_or_harmless(scribbles in scribbles()) {
        let (memories, mut a, mut b) = two();
        b.open(3, 1);
        let mut buffer = vec![0; 5000];
        for (number, (place, bits, in_page)) in (0u64..).zip(scribbles) {
            let mut sent = 0;
            push(&mut a, 2, number, &bytes_of(number), &mut sent);
            // The header was checked when the two were linked, and is not read again.
            let (region, first) = match in_page {
                true => (&memories[1].page, 0),
                false => (&memories[0].segment, ENDPOINT_SLEEPING),
            };
            let words = (region.bytes() - first) / 8;
            region.word64(first + 8 * place.index(words)).store(bits, Relaxed);
            let mut is_cut_off = false;
            for look in 0..40 {
                let row = if look % 2 == 0 {
                    match b.take_inline(Polling::Repeated, &Wanted::any(Space::Tagged), &mut buffer) {
                        Short::Other(row) => row,
                        _ => continue,
                    }
                } else {
                    let Some(row) = b.poll() else { continue };
                    row
                };
                match b.arrival(row) {
                    Ok(Some(arrival)) => {
                        prop_assert!(arrival.bytes <= buffer.len());
                        b.copy(row, &arrival, 0, &mut buffer[..]);
                        b.pass(row, &arrival);
                    }
                    Ok(None) => {}
                    Err(_) => is_cut_off = true,
                }
            }
            b.publish_cursors();
            if b.arm(None) {
                b.retract();
            }
            let mut answered = 0;
            push(&mut b, 3, number, &bytes_of(number), &mut answered);
            is_cut_off |= b.make_room(3).is_err();
            if is_cut_off {
                b.remove_peer(3);
                prop_assert_eq!(b.poll(), None);
                break;
            }
        }
    }
}
