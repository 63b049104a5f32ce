//! One side of a property test of endpoints: it sends and receives as a plan says, and checks every byte.
//!
//! Both processes run the same code. All memory that a message goes to lies between canaries. When a receive has
//! ended its memory is reset, and looked at again after further messages: nobody may write there any more.

mod memory;
pub mod plan;
mod receiving;

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use corewire::{
    Domain, Endpoint, Interrupter, Memory, MessageError, OperationHandle, OwnedMessage, Peer,
    Rendezvous, Selector, Wait,
};

use self::memory::Arena;
use self::plan::{Case, Message, Parts, Receiving, Room, Round, Sending, Side, Way};

/// A case that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(60);
/// The tag bit of messages that say that the other side may send.
const GO: u64 = 1 << 63;
/// What is kept of memory that nobody may write any more, in bytes.
const SHELF_BYTES_MAX: usize = 96 << 20;
/// Messages of so many bytes follow the last round, so many each way.
const FURTHER: (usize, usize) = (200_000, 8);

/// One side, with the other one.
pub struct Exchange {
    /// Dropped first: until then it may use the memory below.
    endpoint: Endpoint,
    peer: Peer,
    side: usize,
    refuses: bool,
    /// Messages sent so far, by side.
    numbers: [u64; 2],
    /// What is lent to sends that run, and to receives.
    lent: Vec<(OperationHandle, Option<Arena>)>,
    targets: Vec<(OperationHandle, Arena)>,
    /// Memory that nobody may write any more.
    shelf: Vec<(u64, Arena)>,
    /// Messages that are still held, their numbers and lengths.
    held: Vec<(u64, usize, OwnedMessage)>,
    _watch: Watch,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("side", &self.side).finish_non_exhaustive()
    }
}

/// An error of a call, with what it was called for.
fn failed(what: &str, number: u64) -> impl Fn(MessageError) -> String {
    move |error| format!("{what} of message {number}: {error}")
}

/// The endpoint of a side.
///
/// # Errors
/// Why it cannot be created.
pub fn create(domain: &Domain, name: &str, side: &Side) -> Result<Endpoint, String> {
    let rendezvous = match side.rendezvous {
        Way::BothSides => Rendezvous::BothSides,
        Way::Pull => Rendezvous::Pull,
        Way::Cells => Rendezvous::Cells,
    };
    let builder = domain.endpoint(name).rendezvous(rendezvous).grants(side.grants);
    let builder = builder.in_place_up_to(side.in_place_up_to).heap(side.heap);
    let builder = builder.cells(side.cells.0, side.cells.1).budget(side.budget).peers(4);
    let builder = builder.wait(if side.parks { Wait::Park } else { Wait::default() });
    let builder = if side.refuses { builder.refuse_beyond_grants() } else { builder };
    builder.create().map_err(|error| error.to_string())
}

/// Runs one side of a case: 0 is the test, 1 its child.
///
/// # Errors
/// What was wrong.
pub fn run(mut endpoint: Endpoint, other: &str, case: &Case, side: usize) -> Result<(), String> {
    let peer = endpoint.peer_when_created(other, Some(LIMIT)).map_err(|error| {
        // Whether it is there all the same.
        format!("{error}; then: {:?}; peers: {:?}", endpoint.peer(other), endpoint.peers())
    })?;
    let watch = Watch::new(endpoint.interrupter());
    let mut exchange = Exchange {
        endpoint,
        peer,
        side,
        refuses: case.sides[side].refuses,
        numbers: [0; 2],
        lent: Vec::new(),
        targets: Vec::new(),
        shelf: Vec::new(),
        held: Vec::new(),
        _watch: watch,
    };
    for round in &case.rounds {
        exchange.round(round)?;
    }
    for number in 0..2 * FURTHER.1 {
        exchange.round(&further(number % 2))?;
    }
    exchange.finish()
}

/// A message after the last round.
fn further(sender: usize) -> Round {
    let message = Message {
        bytes: FURTHER.0,
        sending: Sending::Call,
        source: Parts::ONE,
        receiving: Receiving::Call,
        target: None,
        room: Room::Exact,
    };
    let mut messages = [Vec::new(), Vec::new()];
    messages[sender].push(message);
    Round { messages, is_reversed: false }
}

impl Exchange {
    fn round(&mut self, round: &Round) -> Result<(), String> {
        let (here, there) = (self.side, 1 - self.side);
        let [outgoing, incoming] = [&round.messages[here], &round.messages[there]];
        let [first_out, first_in] = [self.numbers[here], self.numbers[there]];
        let posted = self.post(incoming, first_in)?;
        if !incoming.is_empty() {
            self.endpoint.send(self.peer, GO, &[]).map_err(failed("go", first_in))?;
        }
        if !outgoing.is_empty() {
            let go = Selector::tag(GO).from(self.peer);
            self.endpoint.receive(go).map_err(failed("go", first_out))?;
        }
        for (number, message) in (first_out..).zip(outgoing) {
            self.send(number, message)?;
        }
        let mut received: Vec<_> = (first_in..).zip(incoming).zip(posted).collect();
        if round.is_reversed {
            received.reverse();
        }
        for ((number, message), posted) in received {
            self.receive(number, message, posted, round.is_reversed)?;
        }
        self.end_sends()?;
        self.numbers[here] += outgoing.len() as u64;
        self.numbers[there] += incoming.len() as u64;
        Ok(())
    }

    // Sending.

    fn send(&mut self, number: u64, message: &Message) -> Result<(), String> {
        let (peer, what) = (self.peer, failed("send", number));
        let mut source = Arena::new(message.bytes, &message.source);
        source.fill(number ^ self.salt(self.side));
        match message.sending {
            Sending::Background => {
                let mut parts: Vec<_> = source.slices().iter().map(|part| part.to_vec()).collect();
                let memory: Memory = match &mut parts[..] {
                    [one] => std::mem::take(one).into(),
                    _ => parts.into(),
                };
                let handle = self.endpoint.isend(peer, number, memory).map_err(what)?;
                self.lent.push((handle, None));
                return Ok(());
            }
            Sending::Lent => {
                // SAFETY: the value is kept until the operation has ended; the endpoint is dropped first.
                let memory = unsafe { source.lend() };
                let handle = self.endpoint.isend(peer, number, memory).map_err(what)?;
                self.lent.push((handle, Some(source)));
                return Ok(());
            }
            _ => {}
        }
        let slices = source.slices();
        let parts: Vec<&[u8]> = slices.iter().map(|part| &**part).collect();
        let endpoint = &mut self.endpoint;
        let mut is_sent = true;
        match (message.sending, &parts[..]) {
            (Sending::Timed(limit), parts) => {
                let limit = Duration::from_micros(limit);
                let sent = match parts {
                    [one] => endpoint.send_timeout(peer, number, one, limit),
                    parts => endpoint.within(limit).send_gather(peer, number, parts),
                };
                match sent {
                    Err(MessageError::Timeout { .. }) => is_sent = false,
                    other => other.map_err(&what)?,
                }
            }
            (Sending::Try, parts) => {
                let sent = match parts {
                    [one] => endpoint.try_send(peer, number, one),
                    parts => endpoint.now().send_gather(peer, number, parts),
                };
                match sent {
                    Err(MessageError::Full { .. } | MessageError::ReceiverFull { .. }) => {
                        is_sent = false;
                    }
                    other => other.map_err(&what)?,
                }
            }
            _ => is_sent = false,
        }
        if !is_sent {
            let sent = match &parts[..] {
                [one] => endpoint.send(peer, number, one),
                parts => endpoint.send_gather(peer, number, parts),
            };
            sent.map_err(what)?;
        }
        // The memory is this side's again: what is written there does not go to the other.
        source.reset();
        Ok(())
    }

    fn end_sends(&mut self) -> Result<(), String> {
        // After an error the rest stays lent until the endpoint has been dropped.
        while let Some(&(handle, _)) = self.lent.first() {
            let completion =
                self.endpoint.wait(handle).map_err(failed("send", self.numbers[self.side]))?;
            completion.result.map_err(failed("background send", self.numbers[self.side]))?;
            if let (_, Some(mut source)) = self.lent.remove(0) {
                source.reset();
            }
        }
        Ok(())
    }

    /// Distinguishes the messages of the two sides.
    fn salt(&self, side: usize) -> u64 {
        (side as u64) << 20
    }

    // Memory that nobody may write any more.

    fn put_away(&mut self, number: u64, mut arena: Arena) -> Result<(), String> {
        arena.reset();
        self.shelf.push((number, arena));
        let mut bytes: usize = self.shelf.iter().map(|(_, arena)| arena.len()).sum();
        while bytes > SHELF_BYTES_MAX {
            let (number, arena) = self.shelf.remove(0);
            bytes -= arena.len();
            is_untouched(number, &arena)?;
        }
        Ok(())
    }

    /// Checks all memory of receives, and messages that are still held.
    fn finish(&mut self) -> Result<(), String> {
        for (number, arena) in std::mem::take(&mut self.shelf) {
            is_untouched(number, &arena)?;
        }
        let salt = self.salt(1 - self.side);
        for (number, bytes, message) in std::mem::take(&mut self.held) {
            memory::check(number ^ salt, bytes, &message)
                .map_err(|error| format!("held until the end: {error}"))?;
        }
        match self.endpoint.counter("violations") {
            Ok(0) => Ok(()),
            count => Err(format!("violations: {count:?}")),
        }
    }
}

fn is_untouched(number: u64, arena: &Arena) -> Result<(), String> {
    arena.check(number, 0).map_err(|error| format!("after the receive had ended: {error}"))
}

/// Interrupts a case that does not end.
struct Watch {
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn new(interrupter: Interrupter) -> Self {
        let (ends, end) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut limit = LIMIT;
            while end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                interrupter.interrupt();
                // A call that had begun to send must not wait again.
                limit = Duration::from_millis(100);
            }
        });
        Self { ends: Some(ends), thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.ends.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
