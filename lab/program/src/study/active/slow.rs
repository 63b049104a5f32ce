//! Bursts of messages to a receiver that computes for a while after each (Active Zero-copy, section 2.1: a receiver exhausts
//! its buffers when many messages come at once, or when it computes for long).
//!
//! With posted buffers the sender has as many credits as there are buffers, and gets one back when a buffer is posted
//! again. With grants the receiver grants as many bytes as these buffers have.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use corewire::MessageError;
use corewire_harness::role::Worker;
use corewire_harness::statistics::median;
use serde::{Deserialize, Serialize};

use super::peer::random_sizes;
use super::results::SlowFound;
use super::styles::{ACK, CONTROL, DATA, Memory, Side};
use crate::study::failure::{Doing, Failure};

/// The longest message, and the size of each posted buffer.
pub(super) const LONGEST: usize = 16 << 10;
/// Messages of a burst.
const MESSAGES: usize = 128;
/// How long the receiver computes after each message.
pub(crate) const COMPUTES: Duration = Duration::from_micros(10);
/// Bursts that are not counted, and bursts that are.
const BURSTS: (usize, usize) = (2, 5);

/// How the receiver has memory for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// It posts buffers.
    PrePosted,
    /// It grants the sender as many bytes.
    Grants,
}

/// A way, and how many buffers, or as many bytes granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) way: Way,
    pub(crate) buffers: usize,
}

/// What is measured.
pub(super) const SHAPES: [Shape; 6] = [
    Shape { way: Way::PrePosted, buffers: 4 },
    Shape { way: Way::Grants, buffers: 4 },
    Shape { way: Way::PrePosted, buffers: 16 },
    Shape { way: Way::Grants, buffers: 16 },
    Shape { way: Way::PrePosted, buffers: 64 },
    Shape { way: Way::Grants, buffers: 64 },
];

impl Shape {
    /// Memory of the buffers, or what is granted.
    pub(crate) const fn memory_bytes(self) -> usize {
        self.buffers * LONGEST
    }
}

/// Measures a shape; the first of the two processes returns the result.
pub(super) fn run(
    worker: &Worker,
    shape: Shape,
    plain: &mut Side,
    memory: &Memory,
) -> Result<Option<SlowFound>, Failure> {
    let mut granting = match shape.way {
        Way::PrePosted => None,
        Way::Grants => Some(Side::open(worker, &format!("slow-{}", shape.buffers), |it| {
            it.peers(1).grants(shape.memory_bytes()).refuse_beyond_grants()
        })?),
    };
    let side = granting.as_mut().unwrap_or(plain);
    match worker.index() {
        0 => send(side, shape, memory).map(Some),
        _ => receive(side, shape).map(|()| None),
    }
}

/// The sender's bursts.
fn send(side: &mut Side, shape: Shape, memory: &Memory) -> Result<SlowFound, Failure> {
    let sizes = random_sizes(LONGEST, MESSAGES);
    let bursts = (0..BURSTS.0 + BURSTS.1).map(|_| one_burst(side, shape, memory, &sizes));
    let bursts = bursts.collect::<Result<Vec<_>, _>>()?;
    let of = |figure: fn(&SlowFound) -> f64| median(bursts[BURSTS.0..].iter().map(figure));
    Ok(SlowFound {
        messages: MESSAGES as u64,
        bytes: sizes.iter().sum::<usize>() as u64,
        accepted_messages: of(|it| it.accepted_messages),
        accepted_bytes: of(|it| it.accepted_bytes),
        waits: of(|it| it.waits),
        blocked_ns: of(|it| it.blocked_ns),
        sent_ns: of(|it| it.sent_ns),
        done_ns: of(|it| it.done_ns),
    })
}

fn one_burst(
    side: &mut Side,
    shape: Shape,
    memory: &Memory,
    sizes: &[usize],
) -> Result<SlowFound, Failure> {
    let mut found = SlowFound::default();
    // The receiver is ready.
    side.hear(CONTROL)?;
    let mut credits = shape.buffers;
    let start = Instant::now();
    let since = |start: Instant| start.elapsed().as_secs_f64() * 1e9;
    for &bytes in sizes {
        let message = &memory.from[..bytes];
        let is_sent = match shape.way {
            Way::PrePosted => {
                while side.has_heard(ACK)? {
                    credits += 1;
                }
                let has_credit = credits > 0;
                if has_credit {
                    credits -= 1;
                    side.send(message)?;
                }
                has_credit
            }
            Way::Grants => match side.endpoint.try_send(side.peer, DATA, message) {
                Ok(()) => true,
                Err(MessageError::ReceiverFull { .. } | MessageError::Full { .. }) => false,
                Err(error) => return Err(error).doing("send"),
            },
        };
        if !is_sent {
            let begun = Instant::now();
            if shape.way == Way::PrePosted {
                side.hear(ACK)?;
            }
            side.send(message)?;
            found.waits += 1.0;
            found.blocked_ns += since(begun);
        }
        if found.waits == 0.0 {
            found.accepted_messages += 1.0;
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            let bytes = bytes as f64;
            found.accepted_bytes += bytes;
        }
    }
    found.sent_ns = since(start);
    if shape.way == Way::PrePosted {
        // The credits that are still on their way.
        for _ in credits..shape.buffers {
            side.hear(ACK)?;
        }
    }
    side.hear(CONTROL)?;
    found.done_ns = since(start);
    Ok(found)
}

/// The receiver of all bursts.
fn receive(side: &mut Side, shape: Shape) -> Result<(), Failure> {
    let posts = if shape.way == Way::PrePosted { shape.buffers } else { 0 };
    let mut posted: VecDeque<_> =
        (0..posts).map(|_| side.post(vec![1; LONGEST])).collect::<Result<_, _>>()?;
    for _ in 0..BURSTS.0 + BURSTS.1 {
        side.say(CONTROL, 0)?;
        for _ in 0..MESSAGES {
            if let Some(oldest) = posted.pop_front() {
                let (memory, _) = side.wait(oldest)?;
                compute();
                posted.push_back(side.post(memory)?);
                side.say(ACK, 0)?;
            } else {
                let message = side.take()?;
                compute();
                drop(message);
            }
        }
        side.say(CONTROL, 0)?;
    }
    side.withdraw(posted)
}

fn compute() {
    let begun = Instant::now();
    while begun.elapsed() < COMPUTES {
        std::hint::spin_loop();
    }
}
