//! The styles of communication: how a message and its acknowledgement go from one endpoint to the other (Active Zero-copy,
//! Figure 1).

use std::collections::VecDeque;
use std::time::Duration;

use clap::ValueEnum;
use corewire::{Endpoint, EndpointBuilder, OperationHandle, OwnedMessage, Peer, Selector};
use corewire_harness::role::Worker;
use serde::{Deserialize, Serialize};

use super::results::Case;
use crate::study::failure::{Doing, Failure};
use crate::study::touch::{Mark, PAGE_BYTES};

/// Time for the other process to join.
const PATIENCE: Duration = Duration::from_secs(10);
/// Receives that are posted at a time.
const POSTED: usize = 4;

const REQUEST: u64 = 1;
const READY: u64 = 2;
pub(super) const DATA: u64 = 3;
pub(super) const ACK: u64 = 4;
pub(super) const CONTROL: u64 = 5;

/// A style of communication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Style {
    /// Data at once; the receiver takes it without a buffer
    Active,
    /// The same, written where it is read
    ActiveLoan,
    /// Request, answer, data
    Passive,
    /// Data at once, into buffers that are posted already
    PrePosted,
    /// Data at once; the receiver copies it into memory of the library
    Pooled,
    /// Data at once; the receiver allocates memory for each message
    Allocated,
    /// Data at once; the receiver spreads it over pages
    Scatter,
}

impl Style {
    /// Its name in results.
    pub(crate) fn text(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Its name to display.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::ActiveLoan => "active, loan",
            Self::Passive => "passive",
            Self::PrePosted => "pre-posted",
            Self::Pooled => "copied, pooled memory",
            Self::Allocated => "copied, allocated memory",
            Self::Scatter => "copied, pages",
        }
    }

    /// What happens in a transaction.
    pub(crate) fn settings(self) -> String {
        match self {
            Self::Active => {
                "send from the application\u{2019}s buffer, receive (read where it lies if the message has 161 B \
                 to 16 KiB), acknowledgement"
            }
            Self::ActiveLoan => "loan, send_loan, receive (read where it was written), acknowledgement",
            Self::Passive => {
                "request with the size, answer when there is a buffer, send, receive_into that buffer, \
                 acknowledgement; the buffer is kept, so that no memory is allocated"
            }
            Self::PrePosted => "send, one of 4 posted receives (ireceive), acknowledgement",
            Self::Pooled => "send, receive at an endpoint that grants nothing, acknowledgement",
            Self::Allocated => "send, probe, new memory, receive_into, acknowledgement",
            Self::Scatter => "send, receive_scatter to pages of 4 KiB, acknowledgement",
        }
        .to_owned()
    }

    /// Whether the receiver grants the sender memory, so that messages come in place.
    pub(super) const fn is_active(self) -> bool {
        matches!(self, Self::Active | Self::ActiveLoan)
    }
}

/// The length of a message that is there.
#[inline(always)]
fn length(bytes: u64) -> Result<usize, Failure> {
    usize::try_from(bytes).doing("receive so long a message")
}

/// An endpoint, and its peer in the other process.
pub(super) struct Side {
    pub(super) endpoint: Endpoint,
    pub(super) peer: Peer,
}

impl Side {
    /// Opens the endpoint `name` of this process, and waits for that of the other one.
    pub(super) fn open(
        worker: &Worker,
        name: &str,
        set: impl FnOnce(EndpointBuilder) -> EndpointBuilder,
    ) -> Result<Self, Failure> {
        let domain = worker.domain()?;
        let index = worker.index();
        let endpoint = set(domain.endpoint(&format!("{name}-{index}"))).create();
        let mut endpoint = endpoint.doing("make an endpoint")?;
        let peer = endpoint.peer_when_created(&format!("{name}-{}", 1 - index), Some(PATIENCE));
        let peer = peer.doing("find the other endpoint")?;
        Ok(Self { endpoint, peer })
    }

    #[inline(always)]
    pub(super) fn selector(&self, tag: u64) -> Selector {
        Selector::tag(tag).from(self.peer)
    }

    /// Sends a number.
    #[inline(always)]
    pub(super) fn say(&mut self, tag: u64, number: u64) -> Result<(), Failure> {
        self.endpoint.send(self.peer, tag, &number.to_le_bytes()).doing("send")
    }

    /// Receives a number.
    #[inline(always)]
    pub(super) fn hear(&mut self, tag: u64) -> Result<u64, Failure> {
        let (selector, mut number) = (self.selector(tag), [0; 8]);
        self.endpoint.receive_into(selector, &mut number).doing("receive")?;
        Ok(u64::from_le_bytes(number))
    }

    /// Whether a number was there, which is received.
    pub(super) fn has_heard(&mut self, tag: u64) -> Result<bool, Failure> {
        let (selector, mut number) = (self.selector(tag), [0; 8]);
        let status = self.endpoint.try_receive_into(selector, &mut number).doing("receive")?;
        Ok(status.is_some())
    }

    /// Sends a message.
    #[inline(always)]
    pub(super) fn send(&mut self, message: &[u8]) -> Result<(), Failure> {
        self.endpoint.send(self.peer, DATA, message).doing("send")
    }

    /// Acknowledges a message, which is read before if it has a mark.
    #[inline(always)]
    fn acknowledge(&mut self, mark: Option<Mark>, message: &[u8]) -> Result<(), Failure> {
        mark.map_or(Ok(()), |mark| mark.read(message))?;
        self.say(ACK, 0)
    }

    /// Receives a message into memory that it brings.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Result<OwnedMessage, Failure> {
        let selector = self.selector(DATA);
        self.endpoint.receive(selector).doing("receive")
    }

    /// Posts a receive into `memory`.
    pub(super) fn post(&mut self, memory: Vec<u8>) -> Result<OperationHandle, Failure> {
        let selector = self.selector(DATA);
        self.endpoint.ireceive(selector, memory).doing("post a receive")
    }

    /// Waits for a posted receive. Returns its memory, and the length of the message in it.
    pub(super) fn wait(&mut self, posted: OperationHandle) -> Result<(Vec<u8>, usize), Failure> {
        let completion = self.endpoint.wait(posted).doing("wait for a message")?;
        let bytes = length(completion.result.doing("receive")?.bytes)?;
        Ok((completion.memory.into_vec(), bytes))
    }

    /// Takes posted receives back.
    pub(super) fn withdraw(&mut self, posted: VecDeque<OperationHandle>) -> Result<(), Failure> {
        posted.into_iter().try_for_each(|posted| {
            self.endpoint.cancel(posted).doing("cancel a receive")?;
            self.endpoint.wait(posted).doing("cancel a receive").map(drop)
        })
    }
}

/// The memory of an application.
pub(super) struct Memory {
    pub(super) from: Vec<u8>,
    to: Vec<u8>,
    pages: Vec<Box<[u8]>>,
}

impl Memory {
    pub(super) fn new(longest: usize) -> Self {
        // Writes to all pages, so that they are allocated.
        let bytes = || (0..longest).map(|at| (at >> 12).to_le_bytes()[0]).collect();
        let page = |at: usize| vec![at.to_le_bytes()[0]; PAGE_BYTES].into_boxed_slice();
        let mut pages: Vec<_> = (0..longest.div_ceil(PAGE_BYTES)).map(page).collect();
        // In an order that no hardware expects.
        let count = pages.len();
        (0..count).for_each(|at| pages.swap(at, at * 7919 % count));
        Self { from: bytes(), to: bytes(), pages }
    }
}

/// What became of the messages that were taken.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Taken {
    pub(super) messages: u64,
    /// Messages that were read where their sender wrote them.
    pub(super) in_place: u64,
    /// Bytes of all others.
    pub(super) copied: u64,
}

/// One end of a style.
pub(super) struct End<'a> {
    pub(super) side: &'a mut Side,
    memory: &'a mut Memory,
    style: Style,
    /// Whether messages are written before they are sent, and read after they are received.
    pub(super) is_touched: bool,
    posted: VecDeque<OperationHandle>,
    /// Messages that were sent, and messages that were received.
    given: u64,
    received: u64,
    /// What became of those that were received since this was last set.
    pub(super) taken: Taken,
}

impl<'a> End<'a> {
    /// An end for messages of a case.
    pub(super) fn new(
        side: &'a mut Side,
        memory: &'a mut Memory,
        case: Case,
    ) -> Result<Self, Failure> {
        let style = case.style;
        let posts = if style == Style::PrePosted { POSTED } else { 0 };
        let posted =
            (0..posts).map(|_| side.post(vec![1; case.bytes])).collect::<Result<_, _>>()?;
        let (is_touched, taken) = (true, Taken::default());
        Ok(Self { side, memory, style, is_touched, posted, given: 0, received: 0, taken })
    }

    /// Sends a message, and waits for its acknowledgement.
    #[inline(always)]
    pub(super) fn give(&mut self, bytes: usize) -> Result<(), Failure> {
        let mark = Mark::of(self.given);
        self.given += 1;
        let side = &mut *self.side;
        if self.style == Style::ActiveLoan {
            let mut loan = side.endpoint.loan(side.peer, bytes).doing("lend memory")?;
            if self.is_touched {
                mark.write(&mut loan);
            }
            side.endpoint.send_loan(loan, DATA).map_err(|unsent| unsent.error).doing("send")?;
        } else {
            let message = &mut self.memory.from[..bytes];
            if self.is_touched {
                mark.write(message);
            }
            if self.style == Style::Passive {
                side.say(REQUEST, bytes as u64)?;
                side.hear(READY)?;
            }
            side.send(message)?;
        }
        side.hear(ACK).map(drop)
    }

    /// Receives a message, and acknowledges it.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Result<(), Failure> {
        let mark = self.is_touched.then(|| Mark::of(self.received));
        self.received += 1;
        self.taken.messages += 1;
        let side = &mut *self.side;
        let selector = side.selector(DATA);
        let bytes = match self.style {
            Style::Active | Style::ActiveLoan | Style::Pooled => {
                let message = side.take()?;
                side.acknowledge(mark, &message)?;
                if message.is_in_place() {
                    self.taken.in_place += 1;
                    return Ok(());
                }
                message.len()
            }
            Style::Passive => {
                let bytes = length(side.hear(REQUEST)?)?;
                side.say(READY, 0)?;
                let buffer = &mut self.memory.to[..bytes];
                side.endpoint.receive_into(selector, buffer).doing("receive")?;
                side.acknowledge(mark, buffer)?;
                bytes
            }
            Style::PrePosted => {
                let oldest = self.posted.pop_front();
                let oldest = oldest.ok_or_else(|| Failure::other("no receive is posted"))?;
                let (memory, bytes) = side.wait(oldest)?;
                side.acknowledge(mark, &memory[..bytes])?;
                self.posted.push_back(side.post(memory)?);
                bytes
            }
            Style::Allocated => {
                let bytes = side.endpoint.probe(selector).doing("look for a message")?.bytes;
                let bytes = length(bytes)?;
                let mut buffer = vec![0; bytes];
                side.endpoint.receive_into(selector, &mut buffer).doing("receive")?;
                side.acknowledge(mark, &buffer)?;
                bytes
            }
            Style::Scatter => {
                let mut pages: Vec<&mut [u8]> =
                    self.memory.pages.iter_mut().map(|page| &mut page[..]).collect();
                let status = side.endpoint.receive_scatter(selector, &mut pages);
                let bytes = length(status.doing("receive")?.bytes)?;
                mark.map_or(Ok(()), |mark| mark.read_pages(&pages, bytes))?;
                side.say(ACK, 0)?;
                bytes
            }
        };
        self.taken.copied += bytes as u64;
        Ok(())
    }

    /// Takes posted receives back.
    pub(super) fn finish(self) -> Result<(), Failure> {
        self.side.withdraw(self.posted)
    }
}
