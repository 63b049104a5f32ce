//! Gathering snapshots, the part of Manivannan and Singhal's protocol that the authors of ZIMP ran (ZIMP, section
//! IV-C2).
//!
//! ```text
//!  node 0 ══▶ all others: request of 128 bytes with the next checkpoint number
//!  each other node: takes a checkpoint of that number, and sends it to node 0
//! ```
//!
//! The next request follows when all checkpoints are there. In the authors' code the number never advances, so that no
//! checkpoint is taken after the first; here it does: each node copies its state for each snapshot.

use std::time::Instant;

use corewire_published::yardstick::payload;
use corewire_ring::copying::{NextReader, copy_slice};

use super::point::{END, HEADER_BYTES, Length, Node, Report, head, put_head};
use crate::study::failure::Failure;
use crate::study::mechanisms::{Mechanism, Receives, Sends};

/// The length of a request, as in the paper.
pub(super) const REQUEST_BYTES: usize = 128;

pub(super) fn follow<M: Mechanism>(node: &Node<'_>) -> Result<Report, Failure> {
    match node.index() {
        0 => gather::<M>(node),
        index => answer::<M>(node, index),
    }
}

fn gather<M: Mechanism>(node: &Node<'_>) -> Result<Report, Failure> {
    let others = 1..node.order.point.nodes;
    let Length { warm_up, measured: time, requests } = node.order.length;
    let mut all = node.sender::<M>(0)?;
    let ends = others.clone().map(|other| node.receiver::<M>(other, 0));
    let mut ends: Vec<M::Receiver> = ends.collect::<Result<_, _>>()?;
    node.ready();
    let began = Instant::now();
    let mut measured = None::<(Instant, u64)>;
    for number in 1u64.. {
        let elapsed = began.elapsed();
        let is_over = elapsed >= warm_up + time && number > requests;
        if measured.is_none() && elapsed >= warm_up {
            measured = Some((Instant::now(), number));
        }
        all.send(|message| {
            message.fill(0);
            put_head(message, (if is_over { END } else { number }, 0));
        })?;
        if is_over {
            let (since, first) = measured.unwrap_or((began, 1));
            return Ok(Report::since(since, number - first));
        }
        for (other, end) in others.clone().zip(&mut ends) {
            // All bytes are checked in the warm-up, and the ends of each checkpoint always.
            let checks_all = measured.is_none();
            let is_right = end.receive(|checkpoint| {
                let state = &checkpoint[HEADER_BYTES..];
                let due = state_of(number, other);
                head(checkpoint) == (number, u64::from(other))
                    && (!checks_all
                        || payload::sum(state) == payload::expected_sum(state.len(), due))
            })?;
            if !is_right {
                let text = format!("checkpoint {number} of node {other} has wrong bytes");
                return Err(Failure::other(text));
            }
        }
    }
    Ok(Report::default())
}

/// What a node has in every word of its state when it takes this checkpoint.
fn state_of(number: u64, node: u32) -> u64 {
    number << 8 | u64::from(node)
}

fn answer<M: Mechanism>(node: &Node<'_>, index: u32) -> Result<Report, Failure> {
    let mut requests = node.receiver::<M>(0, index - 1)?;
    let mut initiator = node.sender::<M>(index)?;
    node.ready();
    let mut state = vec![0; node.order.point.bytes];
    let mut checkpoint = vec![0; state.len()];
    let mut own = 0;
    loop {
        let (number, _) = requests.receive(head)?;
        if number == END {
            return Ok(Report::default());
        }
        // Its work changes its state; then it takes the checkpoint that is missing.
        payload::fill(&mut state, state_of(number, index));
        if number > own {
            copy_slice(NextReader::Own, &state, &mut checkpoint);
            own = number;
        }
        initiator.send(|message| {
            put_head(message, (own, u64::from(index)));
            copy_slice(NextReader::Peer, &checkpoint, &mut message[HEADER_BYTES..]);
        })?;
    }
}
