//! Two links over streams that split and delay bytes, stop for long, and are cut. `COREWIRE_SIM_SEEDS` sets how many random
//! histories there are (`make sim`).

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use corewire_endpoint::LossReason;
use corewire_endpoint::transport::PeerViolation;
use corewire_layout::name::ChannelName;
use corewire_layout::net::{FRAME_BYTES_MAX, FrameKind, HEADER_BYTES_MAX, Header, Hello};
use corewire_net::link::{CREDIT_BYTES_MAX, Head, Link};

const CREDIT_BYTES: u32 = 256 << 10;

/// Numbers at random, from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

/// Seeds of random histories.
fn seeds(otherwise: u64) -> RangeInclusive<u64> {
    let given = std::env::var("COREWIRE_SIM_SEEDS").ok().and_then(|text| text.parse().ok());
    1..=given.unwrap_or(otherwise)
}

fn hello(credit_bytes: u32) -> Hello {
    let name = |text| ChannelName::new(text).unwrap();
    let (name, host) = (name("orders"), name("a"));
    Hello { name, incarnation: 1, host, credit_bytes, silence_ms: 10_000, connection: 1, last: 0 }
}

/// The byte of a message at an offset.
fn byte(number: u64, at: u64) -> u8 {
    (number.wrapping_mul(31) ^ at ^ at >> 8).to_le_bytes()[0]
}

/// A message that is being sent or received: its number, its length, and how much of it is done.
#[derive(Clone, Copy)]
struct Part {
    number: u64,
    total: u64,
    done: u64,
}

/// One side: its link, what it sends, and what has come.
struct Side {
    link: Link,
    /// Bytes that this side's kernel has got and the process has not read.
    kernel: VecDeque<u8>,
    sent: u64,
    message: Option<Part>,
    /// A large message, sent as data between the others.
    data: Option<Part>,
    data_sent: u64,
    received: u64,
    arriving: Option<Part>,
    arriving_data: Option<Part>,
    data_received: u64,
    has_heard_leave: bool,
    is_stopped: bool,
    /// What it lets the other side have under way.
    credit: u64,
}

impl Side {
    fn new() -> Self {
        Self {
            link: Link::new(&hello(CREDIT_BYTES), &hello(CREDIT_BYTES)),
            kernel: VecDeque::new(),
            sent: 0,
            message: None,
            data: None,
            data_sent: 0,
            received: 0,
            arriving: None,
            arriving_data: None,
            data_received: 0,
            has_heard_leave: false,
            is_stopped: false,
            credit: u64::from(CREDIT_BYTES),
        }
    }

    /// Tells the other side what it may send; now and then, that more may be under way.
    fn tell(&mut self, dice: &mut Dice, out: &mut Vec<u8>) {
        if self.credit < 1 << 20 && dice.one_in(100) {
            self.credit *= 2;
            self.link.grow(self.credit);
        }
        if let Some((bytes, length)) = self.link.credit() {
            out.extend(&bytes[..length]);
        }
    }

    /// Messages that were sent whole, and those that were received whole.
    fn counts(&self) -> (u64, u64) {
        (self.sent + self.data_sent, self.received + self.data_received)
    }

    /// Sends a frame, if there is room. False if not.
    fn send(&mut self, dice: &mut Dice, wire: &mut Vec<u8>, may_begin: bool) -> bool {
        let is_between = self.message.is_none();
        if is_between && self.data.is_none() && may_begin && dice.one_in(200) {
            let total = 1 + dice.below(400_000);
            self.data = Some(Part { number: self.data_sent, total, done: 0 });
        }
        if is_between
            && let Some(part) = &mut self.data
            && dice.one_in(2)
        {
            let left = part.total - part.done;
            let bytes = left.min(FRAME_BYTES_MAX);
            let immediate = Some(left);
            let header = Header::new(FrameKind::Piece, part.number, bytes);
            let Some((head, length)) = self.link.begin(&Header { immediate, ..header }) else {
                return false;
            };
            wire.extend(&head[..length]);
            wire.extend((part.done..part.done + bytes).map(|at| byte(part.number, at)));
            part.done += bytes;
            if part.done == part.total {
                self.data = None;
                self.data_sent += 1;
            }
            return true;
        }
        if is_between && !may_begin {
            return false;
        }
        let total = match dice.below(100) {
            0 => 300_000,
            1..10 => 5000,
            10..30 => 0,
            _ => dice.below(200),
        };
        let number = self.sent;
        let part = *self.message.get_or_insert(Part { number, total, done: 0 });
        let bytes = (part.total - part.done).min(FRAME_BYTES_MAX);
        let header = match part.done {
            0 => {
                let header = Header::new(FrameKind::Tagged, part.number, bytes);
                Header { total: (bytes < part.total).then_some(part.total), ..header }
            }
            done => Header::new(FrameKind::Rest, done, bytes),
        };
        let Some((head, length)) = self.link.begin(&header) else { return false };
        wire.extend(&head[..length]);
        wire.extend((part.done..part.done + bytes).map(|at| byte(part.number, at)));
        let done = part.done + bytes;
        self.message = (done < part.total).then_some(Part { done, ..part });
        self.sent += u64::from(done == part.total);
        true
    }

    /// Takes some of what has arrived. True if that was anything.
    fn receive(&mut self, dice: &mut Dice) -> Result<bool, PeerViolation> {
        let arrived = self.kernel.make_contiguous();
        let some = usize::try_from(1 + dice.below(100_000)).unwrap().min(arrived.len());
        let (used, head) = self.link.advance(&arrived[..some])?;
        self.kernel.drain(..used);
        let Head::Frame(header, taken) = head else {
            self.has_heard_leave |= head == Head::Left;
            return Ok(used > 0);
        };
        if taken == 0 {
            self.begin(&header);
        }
        let is_data = header.kind == FrameKind::Piece;
        let part = if is_data { &mut self.arriving_data } else { &mut self.arriving };
        let part = part.as_mut().expect("a message has begun");
        let left = usize::try_from(header.payload_bytes() - taken).unwrap();
        let count = left.min(some.saturating_sub(used));
        if count == 0 && left > 0 {
            return Ok(used > 0);
        }
        for (at, found) in (part.done..).zip(self.kernel.drain(..count)) {
            assert_eq!(found, byte(part.number, at), "message {}, byte {at}", part.number);
        }
        part.done += count as u64;
        let is_over = part.done == part.total;
        self.link.pass(count as u64)?;
        if is_over && is_data {
            self.arriving_data = None;
            self.data_received += 1;
        } else if is_over {
            self.arriving = None;
            self.received += 1;
        }
        Ok(true)
    }

    fn begin(&mut self, header: &Header) {
        let Header { kind, number, bytes, immediate, total, .. } = *header;
        match kind {
            FrameKind::Tagged => {
                assert_eq!(number, self.received, "in order");
                let total = total.unwrap_or(bytes);
                self.arriving = Some(Part { number, total, done: 0 });
            }
            FrameKind::Piece => {
                assert_eq!(number, self.data_received, "in order");
                let left = immediate.unwrap();
                let part = self.arriving_data.get_or_insert(Part { number, total: left, done: 0 });
                assert_eq!(part.total - part.done, left, "in its place");
            }
            kind => assert_eq!(kind, FrameKind::Rest),
        }
    }
}

/// Lets two sides send and receive at random for `steps`, and then receive all. Returns them, and whether they were cut.
fn run(seed: u64, steps: u32, may_cut: bool) -> ([Side; 2], bool) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut sides = [Side::new(), Side::new()];
    let mut wires = [VecDeque::new(), VecDeque::new()];
    let mut most = 0;
    for step in 0..steps {
        if may_cut && dice.one_in(u64::from(steps)) {
            return (sides, true);
        }
        let is_ending = step > steps / 2;
        for me in 0..2 {
            let side = &mut sides[me];
            if dice.one_in(200) {
                side.is_stopped = !side.is_stopped && !is_ending;
            }
            if !side.is_stopped || is_ending {
                let mut out = Vec::new();
                let has_sent = side.send(&mut dice, &mut out, !is_ending);
                if has_sent || side.link.is_credit_due(true, dice.one_in(2)) {
                    side.tell(&mut dice, &mut out);
                }
                wires[me].extend(out);
                side.receive(&mut dice).unwrap();
            }
            // What is under way, in the kernel of the other side or before, is never more than was allowed.
            let count = usize::try_from(dice.below(80_000)).unwrap().min(wires[me].len());
            let moved = wires[me].drain(..count).collect::<Vec<_>>();
            sides[1 - me].kernel.extend(moved);
            let under_way = wires[me].len() + sides[1 - me].kernel.len();
            most = most.max(under_way);
            let credit = usize::try_from(sides[1 - me].credit).unwrap();
            assert!(under_way <= credit + 100 * HEADER_BYTES_MAX, "{under_way} of {credit}");
        }
    }
    // Everything arrives, whatever waits.
    for round in 0.. {
        let mut is_quiet = true;
        for me in 0..2 {
            let side = &mut sides[me];
            let mut out = Vec::new();
            while side.send(&mut dice, &mut out, false) {
                is_quiet = false;
            }
            side.tell(&mut dice, &mut out);
            wires[me].extend(out);
            let moved = wires[me].drain(..).collect::<Vec<_>>();
            is_quiet &= moved.is_empty();
            sides[1 - me].kernel.extend(moved);
            while sides[1 - me].receive(&mut dice).unwrap() {
                is_quiet = false;
            }
        }
        if is_quiet {
            break;
        }
        assert!(round < 10_000, "no end");
    }
    (sides, false)
}

#[test]
fn all_arrives_once_and_in_order_whatever_waits_and_both_know_it() {
    let mut messages = 0;
    for seed in seeds(12) {
        let (sides, _) = run(seed, 2000, false);
        for me in 0..2 {
            let (side, other) = (&sides[me], &sides[1 - me]);
            assert!(side.message.is_none() && side.data.is_none(), "all was sent");
            assert_eq!(side.counts().0, other.counts().1, "all has arrived");
            let delivered = side.link.loss(LossReason::Reset).delivered;
            assert_eq!(delivered, side.counts().0, "and is known to have");
            messages += delivered;
        }
    }
    assert!(messages > 170 * seeds(12).count() as u64, "{messages}");
}

#[test]
fn a_side_that_loses_the_other_never_takes_more_for_received_than_was() {
    let (mut cuts, mut known) = (0, 0);
    for seed in seeds(50) {
        let (sides, is_cut) = run(seed, 1000, true);
        cuts += u32::from(is_cut);
        for me in 0..2 {
            let delivered = sides[me].link.loss(LossReason::Silent).delivered;
            assert!(delivered <= sides[1 - me].counts().1, "seed {seed}");
            known += delivered;
        }
    }
    let count = seeds(50).count() as u64;
    assert!(u64::from(cuts) > count * 3 / 10 && known > 10 * count, "{cuts} {known} of {count}");
}

fn links() -> [Link; 2] {
    [(); 2].map(|()| Link::new(&hello(CREDIT_BYTES), &hello(CREDIT_BYTES)))
}

/// What a side does with bytes of the other, which has the rest of a frame's bytes as zeros.
fn hears(link: &mut Link, bytes: &[u8]) -> Result<Head, PeerViolation> {
    let mut at = 0;
    loop {
        let (used, head) = link.advance(&bytes[at..])?;
        at += used;
        let Head::Frame(header, taken) = head else { return Ok(head) };
        let left = usize::try_from(header.payload_bytes() - taken).unwrap();
        let count = left.min(bytes.len() - at);
        at += count;
        if !link.pass(count as u64)? && at == bytes.len() {
            return Ok(head);
        }
    }
}

#[test]
fn a_side_that_closes_says_so_also_within_a_message() {
    let [mut a, mut b] = links();
    let (head, length) = a.begin(&Header::new(FrameKind::Tagged, 1, 0)).unwrap();
    let bytes = [&head[..length], &Link::leave()].concat();
    assert_eq!(hears(&mut b, &bytes[..20]), Ok(Head::More));
    assert_eq!(hears(&mut b, &bytes[16..]), Ok(Head::Left));

    // What follows is nothing, also if it is looked over before.
    for ahead in [false, true] {
        let [_, mut b] = links();
        let mut bytes = [&Link::leave()[..], &[0xff; 32]].concat();
        assert!(
            !ahead || b.foresee(&mut bytes, 0) == Ok(true) && b.foresee(&mut bytes, 0) == Ok(true)
        );
        assert_eq!(hears(&mut b, &bytes), Ok(Head::Left));
    }

    let [_, mut b] = links();
    let begun = Header { total: Some(9), ..Header::new(FrameKind::Tagged, 1, 4) };
    let (head, length) = begun.to_bytes();
    let bytes = [&head[..length], &[0; 4], &Link::leave()].concat();
    assert_eq!(hears(&mut b, &bytes), Ok(Head::Left));
}

#[test]
fn what_the_other_side_cannot_have_sent_ends_the_link() {
    let told = |limit: u64, messages: u64| {
        let (head, length) = Header::new(FrameKind::Credit, limit, messages).to_bytes();
        head[..length].to_vec()
    };
    let credit = u64::from(CREDIT_BYTES);
    let [mut a, _] = links();
    assert!(hears(&mut a, &told(credit - 1, 0)).is_err(), "less credit than before");
    let [mut a, _] = links();
    assert!(hears(&mut a, &told(credit, 1)).is_err(), "a message that was never sent");
    let [mut a, _] = links();
    a.begin(&Header::new(FrameKind::Tagged, 1, 0)).unwrap();
    assert_eq!(hears(&mut a, &told(credit, 1)), Ok(Head::More));
    assert!(hears(&mut a, &told(credit, 0)).is_err(), "fewer messages than before");

    // More than may be under way.
    let [_, mut b] = links();
    let (head, length) = Header::new(FrameKind::Tagged, 1, FRAME_BYTES_MAX).to_bytes();
    let frame = [&head[..length], &vec![0; usize::try_from(FRAME_BYTES_MAX).unwrap()]].concat();
    for _ in 0..3 {
        assert_eq!(hears(&mut b, &frame), Ok(Head::More));
    }
    let word = "bytes sent altogether, more than allowed,";
    let found = 4 * frame.len() as u64;
    assert_eq!(hears(&mut b, &frame), Err(PeerViolation { word, found, position: 0 }));

    // A part that is not the next one, and a message within another.
    for second in [
        Header::new(FrameKind::Rest, 5, 1),
        Header::new(FrameKind::Rest, 4, 6),
        Header::new(FrameKind::Tagged, 2, 1),
    ] {
        let [_, mut b] = links();
        let begun = Header { total: Some(9), ..Header::new(FrameKind::Tagged, 1, 4) };
        let ((head, length), (more, more_length)) = (begun.to_bytes(), second.to_bytes());
        let bytes = [&head[..length], &[0; 4], &more[..more_length], &[0; 9]].concat();
        assert!(hears(&mut b, &bytes).is_err(), "{second:?}");
    }
}

#[test]
fn a_side_may_let_more_be_under_way_and_never_less() {
    let [mut a, mut b] = links();
    let before = a.room();
    b.grow(1 << 20);
    let (told, length) = b.credit().expect("it is new");
    assert_eq!(hears(&mut a, &told[..length]), Ok(Head::More));
    assert_eq!((a.room(), a.under_way_max()), (1 << 20, 1 << 20));
    assert!(a.room() > before && b.credit().is_none());
    // What is no more than before, and more than may be sent altogether.
    for impossible in [u64::from(CREDIT_BYTES), 1 << 21] {
        let [mut a, _] = links();
        let credit = Header::new(FrameKind::Credit, 1 << 20, 0);
        let (told, length) = Header { immediate: Some(impossible), ..credit }.to_bytes();
        let refused = hears(&mut a, &told[..length]).unwrap_err();
        assert_eq!((refused.word, refused.found), ("what may be under way", impossible));
    }
}

#[test]
fn no_credit_lets_more_be_under_way_than_the_most() {
    let [mut a, _] = links();
    let (head, length) = Header::new(FrameKind::Credit, u64::MAX, 0).to_bytes();
    hears(&mut a, &head[..length]).unwrap();
    assert_eq!(a.room(), CREDIT_BYTES_MAX);
}

#[test]
fn a_message_counts_as_received_once_all_of_it_was_taken_and_what_engines_say_never() {
    let [_, mut b] = links();
    let messages = |link: &mut Link| {
        let (told, _) = link.credit().expect("something is new");
        Header::parse(&told).unwrap().unwrap().0.bytes
    };
    let (head, length) = Header::new(FrameKind::Tagged, 1, 4).to_bytes();
    assert!(matches!(b.advance(&head[..length]), Ok((_, Head::Frame(..)))));
    assert_eq!((b.pass(3), messages(&mut b)), (Ok(false), 0));
    assert_eq!((b.pass(1), messages(&mut b)), (Ok(true), 1));

    let left = |left| Header { immediate: Some(left), ..Header::new(FrameKind::Piece, 5, 4) };
    let of_two = Header { total: Some(8), ..Header::new(FrameKind::Request, 1, 4) };
    let offer = Header { total: Some(8), ..Header::new(FrameKind::Offer, 1, 4) };
    let rest = Header::new(FrameKind::Rest, 4, 4);
    for (header, count) in [
        (Header::new(FrameKind::Acknowledgement, 1, 0), 1),
        (Header::new(FrameKind::Notice, 1, 4), 1),
        (offer, 1),
        (rest, 1),
        (left(8), 1),
        (of_two, 1),
        (rest, 2),
        (left(4), 3),
        (Header::new(FrameKind::Dropped, 1, 0), 3),
    ] {
        let (head, length) = header.to_bytes();
        assert!(matches!(b.advance(&head[..length]), Ok((_, Head::Frame(..)))));
        assert_eq!((b.pass(header.payload_bytes()), messages(&mut b)), (Ok(true), count));
    }
}
