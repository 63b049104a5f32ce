//! What an engine knows of a peer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use corewire_layout::name::ChannelName;
use corewire_ring::message::{Envelope, Fragment, Memory, Source, Space};

use crate::budget::cost;
use crate::list::Key;
use crate::rendezvous::{ArrivingData, Offered};
use crate::selector::Status;
use crate::transport::Gone;

/// A peer's row.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) generation: u32,
    pub(crate) name: Option<ChannelName>,
    pub(crate) incarnation: u128,
    /// It has gone, but something that it sent may be left.
    pub(crate) gone: Option<Gone>,
    /// Messages that were offered to it, by the numbers of the offers.
    pub(crate) offered: BTreeMap<u64, Offered>,
    /// It cannot read this endpoint's memory.
    pub(crate) refuses_offers: bool,
    /// What it grants this endpoint.
    pub(crate) grant: GrantedHere,
    /// Its offers whose messages have neither arrived nor been dropped.
    pub(crate) offers_here: BTreeSet<u64>,
    /// The last of them whose sender waits.
    pub(crate) blocking_offer: Option<u64>,
    /// Notices that wait for room: numbers of offers, and contents.
    pub(crate) notices: VecDeque<(u64, Vec<u8>)>,
    /// The offer or notice that is arriving.
    pub(crate) words: Vec<u8>,
    /// What is known of the message that arrives as data.
    pub(crate) data: Option<ArrivingData>,
    /// It has gone, and nothing is left of it.
    pub(crate) is_over: bool,
    /// Not sent yet, or in part. In order.
    pub(crate) sends: VecDeque<Pending>,
    /// How many of these are requests.
    pub(crate) requests: usize,
    /// A call is in the middle of a message.
    pub(crate) is_within: bool,
    /// Where the message goes of which a part has arrived, and how much that is.
    pub(crate) place: Place,
    pub(crate) filled: usize,
    /// The length of that message.
    pub(crate) expected: u64,
    /// The number of messages sent to it that request an acknowledgement, and those that are not acknowledged
    /// yet.
    pub(crate) sent_for_ack: u64,
    pub(crate) unacknowledged: VecDeque<Unacknowledged>,
    /// The number of such messages that have arrived from it.
    pub(crate) received_for_ack: u64,
    /// The number of the message that is arriving, if it is acknowledged when all of it has arrived.
    pub(crate) ack_due: Option<u64>,
    /// The last pass over all transfers in which one of its messages was pulled: the others wait for the next pass.
    pub(crate) pulled_in: u64,
    /// Acknowledgements that wait for room.
    pub(crate) acks: VecDeque<u64>,
    /// What replies that wait for room cost.
    pub(crate) reply_bytes: u64,
    /// Requests that nobody receives before it has read replies.
    pub(crate) deferred: VecDeque<Key>,
    /// What these cost.
    pub(crate) deferred_bytes: u64,
    /// Nothing more is taken from it until there is room for acknowledgements.
    pub(crate) is_muted: bool,
}

impl Row {
    /// Whether its peer has gone and its messages are still received. Those of a peer that was cut off are not.
    pub(crate) fn is_departed(&self) -> bool {
        matches!(self.gone, Some(Gone::Died | Gone::Left))
    }

    /// Whether no message to it has been sent in part.
    pub(crate) fn is_between_messages(&self) -> bool {
        !self.is_within && self.sends.front().is_none_or(|pending| pending.sent == 0)
    }

    /// Whether acknowledgements or notices wait for room.
    pub(crate) fn has_words(&self) -> bool {
        !self.acks.is_empty() || !self.notices.is_empty()
    }
}

/// Where a message goes of which a part has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Place {
    /// It is dropped.
    #[default]
    Nowhere,
    /// It is a request, and is dropped. Its sender is told when all of it has arrived: it waits for a reply only then.
    Refused,
    /// To a receive that goes on by itself.
    Operation(u32),
    /// To the receive that is being called.
    Caller,
    /// To where it is kept until a receive asks for it.
    Kept(Key),
    /// It is an offer or a notice, and is collected.
    Words,
}

/// What a peer grants this endpoint.
#[derive(Debug, Default)]
pub(crate) struct GrantedHere {
    pub(crate) limit: u64,
    /// The most that it may ever grant.
    pub(crate) most: u64,
    pub(crate) refuses: bool,
    /// The number of the last `Grant`.
    pub(crate) serial: u16,
    /// It was asked for more.
    pub(crate) is_asked: bool,
    /// It was told last that this endpoint keeps so much, which is more than it grants.
    pub(crate) kept: Option<u64>,
}

/// A message that is sent when there is room.
#[derive(Debug)]
pub(crate) struct Pending {
    /// `None` if nobody waits for it.
    pub(crate) operation: Option<u32>,
    pub(crate) envelope: Envelope,
    pub(crate) memory: Memory,
    /// Bytes that have been sent, from byte `from` on.
    pub(crate) sent: u64,
    pub(crate) from: u64,
    /// For data: the envelope of its message, if somebody waits for it.
    pub(crate) inner: Option<Envelope>,
    /// It was acknowledged before all of it had been sent: a receive has asked for it.
    pub(crate) is_acked: bool,
}

impl Pending {
    /// A message of which nothing has been sent and for which nobody waits.
    pub(crate) const fn new(envelope: Envelope, memory: Memory) -> Self {
        let (sent, from, inner) = (0, 0, None);
        Self { operation: None, envelope, memory, sent, from, inner, is_acked: false }
    }

    /// What it costs to keep it, if it is a reply.
    pub(crate) fn reply_cost(&self) -> u64 {
        match self.envelope.space {
            Space::Reply | Space::Dropped => cost(self.memory.len() as u64),
            _ => 0,
        }
    }
}

/// A message that has been sent and is not acknowledged yet.
#[derive(Debug)]
pub(crate) struct Unacknowledged {
    /// Its number among such messages, or that of its offer.
    pub(crate) number: u64,
    pub(crate) is_offer: bool,
    pub(crate) operation: u32,
    pub(crate) status: Status,
    pub(crate) memory: Memory,
}

/// A copy of a whole message.
pub(crate) fn to_memory(source: &impl Source) -> Memory {
    let mut bytes = vec![0; usize::try_from(source.bytes()).unwrap_or(usize::MAX)];
    source.fill(0, &mut Fragment::private(&mut bytes));
    bytes.into()
}
