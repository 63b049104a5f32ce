//! NACK against time-out: how long it takes until a sender knows that its receiver has no room (papers/004, section 3.1).

use std::time::{Duration, Instant};

use corewire::MessageError;
use corewire_harness::role::Worker;
use corewire_harness::rounds::nanoseconds;
use corewire_harness::statistics::median;
use corewire_os::processor::ticks;
use serde::{Deserialize, Serialize};

use super::styles::{ACK, CONTROL, DATA, Side};
use crate::study::failure::{Doing, Failure};

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

/// The medians of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) try_send_ns: f64,
    pub(crate) try_loan_ns: f64,
    /// Of each limit.
    pub(crate) send_timeout_ns: Vec<f64>,
}

/// Measures it; the first of the two processes returns the result.
pub(super) fn run(worker: &Worker, limits: &[Duration]) -> Result<Option<Found>, Failure> {
    let set = |it: corewire::EndpointBuilder| it.peers(1).grants(GRANTED).refuse_beyond_grants();
    let mut side = Side::open(worker, "full", set)?;
    if worker.index() == 0 { send(&mut side, limits).map(Some) } else { receive(&mut side) }
}

fn send(side: &mut Side, limits: &[Duration]) -> Result<Found, Failure> {
    let message = [7; BYTES];
    // The receiver grants something after the first message.
    side.endpoint.send(side.peer, DATA, &message).doing("send")?;
    side.hear(ACK)?;
    let mut sent = 0;
    while !is_refused(side.endpoint.try_send(side.peer, DATA, &message))? {
        sent += 1;
        if sent > MESSAGES_MAX {
            return Err(Failure::other("a receiver that keeps all messages refuses none"));
        }
    }
    let try_send_ns = time(|| is_refused(side.endpoint.try_send(side.peer, DATA, &message)))?;
    let try_loan_ns = time(|| is_refused(side.endpoint.try_loan(side.peer, BYTES).map(drop)))?;
    let mut send_timeout_ns = Vec::new();
    for &limit in limits {
        let mut times = Vec::new();
        for _ in 0..TIMEOUTS {
            let begun = Instant::now();
            match side.endpoint.send_timeout(side.peer, DATA, &message, limit) {
                Err(MessageError::Timeout { .. }) => {}
                Ok(()) => return Err(Failure::other("a full receiver took a message")),
                Err(error) => return Err(error).doing("send"),
            }
            times.push(begun.elapsed().as_secs_f64() * 1e9);
        }
        send_timeout_ns.push(median(times));
    }
    side.say(CONTROL, sent)?;
    side.hear(ACK)?;
    Ok(Found { try_send_ns, try_loan_ns, send_timeout_ns })
}

fn receive(side: &mut Side) -> Result<Option<Found>, Failure> {
    drop(side.take()?);
    side.say(ACK, 0)?;
    for _ in 0..side.hear(CONTROL)? {
        drop(side.take()?);
    }
    side.say(ACK, 0)?;
    Ok(None)
}

fn is_refused(end: Result<(), MessageError>) -> Result<bool, Failure> {
    match end {
        Ok(()) => Ok(false),
        Err(MessageError::ReceiverFull { .. }) => Ok(true),
        Err(error) => Err(error).doing("send"),
    }
}

/// The median time of a refusal.
fn time(mut refused: impl FnMut() -> Result<bool, Failure>) -> Result<f64, Failure> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let start = ticks();
        for _ in 0..TOGETHER {
            if !refused()? {
                return Err(Failure::other("a full receiver took a message"));
            }
        }
        times.push(nanoseconds(ticks() - start) / f64::from(TOGETHER));
    }
    Ok(median(times))
}
