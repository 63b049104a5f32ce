//! PaxosInside without failures, as the authors of ZIMP ran it (ZIMP, section IV-C1).
//!
//! ```text
//!  client ──▶ proposer ──▶ acceptor ══▶ learners ──▶ client
//!    0           1            2         3 .. 2 + l    3 + l
//! ```
//!
//! The client is two processes, as theirs: one asks without end, one counts. A request takes 2 + l messages to one receiver
//! and one to all learners. The proposer numbers the instances, the acceptor accepts what has its proposal number, and a
//! learner answers when it has learned an instance. The counting client checks that all learners say the same of each
//! instance; an instance counts once.

use std::time::Instant;

use corewire_published::yardstick::payload;
use corewire_ring::copying::{NextReader, copy_slice};

use super::point::{END, HEADER_BYTES, Node, Report, head, put_head};
use crate::study::failure::Failure;
use crate::study::mechanisms::{Mechanism, Receives, Sends};

/// The only proposal number, since nobody fails.
const PROPOSAL: u64 = 1;

pub(super) fn follow<M: Mechanism>(node: &Node<'_>) -> Result<Report, Failure> {
    let learners = node.order.point.nodes;
    match node.index() {
        0 => ask::<M>(node),
        1 => propose::<M>(node),
        2 => accept::<M>(node),
        index if index < 3 + learners => learn::<M>(node, index - 3),
        _ => count::<M>(node, learners),
    }
}

/// Sends requests, each with its number, for as long as it is measured.
fn ask<M: Mechanism>(node: &Node<'_>) -> Result<Report, Failure> {
    let mut proposer = node.sender::<M>(0)?;
    node.ready();
    let length = node.order.length;
    let started = Instant::now();
    for number in 0u64.. {
        let is_over = number.is_multiple_of(16)
            && started.elapsed() >= length.warm_up + length.measured
            && number >= length.requests;
        proposer.send(|message| {
            payload::fill(&mut message[HEADER_BYTES..], number);
            put_head(message, (if is_over { END } else { number }, 0));
        })?;
        if is_over {
            break;
        }
    }
    Ok(Report::default())
}

/// Numbers the requests, and asks the acceptor.
fn propose<M: Mechanism>(node: &Node<'_>) -> Result<Report, Failure> {
    let mut client = node.receiver::<M>(0, 0)?;
    let mut acceptor = node.sender::<M>(1)?;
    node.ready();
    let mut next = 0;
    loop {
        let request = client.receive(|request| {
            let (number, _) = head(request);
            let instance = if number == END { END } else { next };
            acceptor.send(|message| {
                copy_slice(NextReader::Peer, request, message);
                put_head(message, (instance, PROPOSAL));
            })?;
            Ok::<_, Failure>(number)
        })??;
        if request == END {
            return Ok(Report::default());
        }
        expect("request", request, next)?;
        next += 1;
    }
}

/// Accepts, and tells all learners at once.
fn accept<M: Mechanism>(node: &Node<'_>) -> Result<Report, Failure> {
    let mut proposer = node.receiver::<M>(1, 0)?;
    let mut learners = node.sender::<M>(2)?;
    node.ready();
    let promised = PROPOSAL;
    let mut accepted = 0;
    loop {
        let instance = proposer.receive(|asked| {
            let (instance, proposal) = head(asked);
            // A proposer of the past is not heard.
            if proposal >= promised {
                learners.send(|message| copy_slice(NextReader::Peer, asked, message))?;
            }
            Ok::<_, Failure>(instance)
        })??;
        if instance == END {
            return Ok(Report::default());
        }
        expect("instance", instance, accepted)?;
        accepted += 1;
    }
}

/// Learns, and answers the client.
fn learn<M: Mechanism>(node: &Node<'_>, learner: u32) -> Result<Report, Failure> {
    let mut acceptor = node.receiver::<M>(2, learner)?;
    let mut client = node.sender::<M>(3 + learner)?;
    node.ready();
    let (mut learned, mut sequence) = (0u64, 0u64);
    loop {
        let (instance, last) = acceptor.receive(|message| {
            client.send(|answer| copy_slice(NextReader::Peer, message, answer))?;
            Ok::<_, Failure>((head(message).0, payload::ends(&message[HEADER_BYTES..]).1))
        })??;
        if instance == END {
            return Ok(Report { sequence, ..Report::default() });
        }
        expect("instance", instance, learned)?;
        learned += 1;
        sequence = sequence.rotate_left(5) ^ last.wrapping_add(instance);
    }
}

/// Takes the answers of all learners, and counts instances.
fn count<M: Mechanism>(node: &Node<'_>, learners: u32) -> Result<Report, Failure> {
    let ends = (0..learners).map(|learner| node.receiver::<M>(3 + learner, 0));
    let mut ends: Vec<M::Receiver> = ends.collect::<Result<_, _>>()?;
    node.ready();
    let began = Instant::now();
    let (mut instances, mut measured) = (0u64, None::<(Instant, u64)>);
    loop {
        let mut is_over = false;
        for end in &mut ends {
            let instance = end.receive(|answer| head(answer).0)?;
            is_over = instance == END;
            if !is_over {
                expect("answer to instance", instance, instances)?;
            }
        }
        if is_over {
            break;
        }
        instances += 1;
        if measured.is_none()
            && instances.is_multiple_of(16)
            && began.elapsed() >= node.order.length.warm_up
        {
            measured = Some((Instant::now(), instances));
        }
    }
    let (since, before) = measured.unwrap_or((began, 0));
    Ok(Report::since(since, instances - before))
}

#[inline(always)]
fn expect(what: &str, found: u64, due: u64) -> Result<(), Failure> {
    if found == due {
        return Ok(());
    }
    Err(Failure::other(format!("{what} {found} arrived where {due} was due")))
}
