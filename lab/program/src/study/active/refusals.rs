//! NACK against time-out: how long it takes until a sender knows that its receiver has no room (Active Zero-copy, section 3.1).

use std::time::{Duration, Instant};

use corewire::MessageError;
use corewire_harness::role::Worker;
use corewire_harness::rounds::nanoseconds;
use corewire_harness::statistics::median;
use corewire_os::processor::ticks;

use super::styles::{ACK, CONTROL, DATA, Side};
use crate::study::failure::{Doing, Failure};

/// The calls that are refused, with their time limits.
pub(super) const CALLS: [(&str, Option<Duration>); 4] = [
    ("try_send", None),
    ("try_loan", None),
    ("send_timeout", Some(Duration::from_micros(100))),
    ("send_timeout", Some(Duration::from_millis(1))),
];
/// What the receiver grants, and the length of each message.
const GRANTED: usize = 64 << 10;
const BYTES: usize = 1024;
/// More messages than the receiver may have granted memory for.
const MESSAGES_MAX: u64 = 1024;
/// Refusals together, whose mean counts as one time; and how many such times.
const TOGETHER: u32 = 16;
const TIMES: usize = 64;
/// Time-outs of each limit.
const TIMEOUTS: usize = 5;

/// Measures it; the first of the two processes returns the median of each call.
pub(super) fn run(worker: &Worker) -> Result<Option<Vec<f64>>, Failure> {
    let mut side =
        Side::open(worker, "full", |it| it.peers(1).grants(GRANTED).refuse_beyond_grants())?;
    if worker.index() == 0 { send(&mut side).map(Some) } else { receive(&mut side).map(|()| None) }
}

fn send(side: &mut Side) -> Result<Vec<f64>, Failure> {
    let (message, peer) = ([7; BYTES], side.peer);
    // The receiver grants something after the first message.
    side.send(&message)?;
    side.hear(ACK)?;
    let mut sent = 0;
    while !is_refused(side.endpoint.try_send(peer, DATA, &message))? {
        sent += 1;
        if sent > MESSAGES_MAX {
            return Err(Failure::other("a receiver that keeps all messages refuses none"));
        }
    }
    let knows_ns = CALLS.into_iter().map(|call| match call {
        (_, Some(limit)) => timed_out(|| side.endpoint.send_timeout(peer, DATA, &message, limit)),
        ("try_loan", _) => refused(|| side.endpoint.now().loan(peer, BYTES).map(drop)),
        _ => refused(|| side.endpoint.try_send(peer, DATA, &message)),
    });
    let knows_ns = knows_ns.collect::<Result<_, _>>()?;
    side.say(CONTROL, sent)?;
    side.hear(ACK)?;
    Ok(knows_ns)
}

fn receive(side: &mut Side) -> Result<(), Failure> {
    drop(side.take()?);
    side.say(ACK, 0)?;
    for _ in 0..side.hear(CONTROL)? {
        drop(side.take()?);
    }
    side.say(ACK, 0)
}

fn is_refused(end: Result<(), MessageError>) -> Result<bool, Failure> {
    match end {
        Ok(()) => Ok(false),
        Err(MessageError::ReceiverFull { .. }) => Ok(true),
        Err(error) => Err(error).doing("send"),
    }
}

fn taken() -> Failure {
    Failure::other("a full receiver took a message")
}

/// The median time of a refusal.
fn refused(mut call: impl FnMut() -> Result<(), MessageError>) -> Result<f64, Failure> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let start = ticks();
        for _ in 0..TOGETHER {
            if !is_refused(call())? {
                return Err(taken());
            }
        }
        times.push(nanoseconds(ticks() - start) / f64::from(TOGETHER));
    }
    Ok(median(times))
}

/// The median time of a time-out.
fn timed_out(mut call: impl FnMut() -> Result<(), MessageError>) -> Result<f64, Failure> {
    let time = |_| {
        let begun = Instant::now();
        match call() {
            Err(MessageError::Timeout { .. }) => Ok(begun.elapsed().as_secs_f64() * 1e9),
            Err(error) => Err(error).doing("send"),
            Ok(()) => Err(taken()),
        }
    };
    Ok(median((0..TIMEOUTS).map(time).collect::<Result<Vec<_>, _>>()?))
}
