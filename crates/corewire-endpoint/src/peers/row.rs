//! What is kept of a peer, and of what goes to it.

use std::collections::{BTreeMap, VecDeque};

use corewire_layout::name::ChannelName;
use corewire_ring::message::{Envelope, Fragment, Memory, Source, Space};

use super::requests::Accesses;
use crate::budget::cost;
use crate::rendezvous::{NoticeBytes, Offered};
use crate::selector::Status;
use crate::transport::Gone;

/// A peer's row.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) generation: u32,
    pub(super) name: Option<ChannelName>,
    pub(super) incarnation: u128,
    /// The caller's number for it.
    pub(super) label: u64,
    /// How far its link is.
    pub(super) link: Link,
    /// It has gone, but something that it sent may be left.
    pub(super) gone: Option<Gone>,
    /// It has gone, and nothing is left of it.
    pub(super) is_over: bool,
    /// Not sent yet, or in part. In order.
    pub(super) sends: VecDeque<Pending>,
    /// How many of these are requests.
    pub(super) requests: usize,
    /// What replies that wait for room cost.
    pub(super) reply_bytes: u64,
    /// What waits for its link costs.
    pub(super) unlinked_bytes: u64,
    /// A call is in the middle of a message.
    pub(super) is_within: bool,
    /// The number of messages sent to it that request an acknowledgement, and those that are not acknowledged
    /// yet.
    pub(super) sent_for_ack: u64,
    pub(super) unacknowledged: VecDeque<Unacknowledged>,
    /// Acknowledgements that wait for room.
    pub(super) acks: VecDeque<u64>,
    /// Notices that wait for room: numbers of offers, and contents.
    pub(super) notices: VecDeque<(u64, NoticeBytes)>,
    /// Nothing more is taken from it until there is room for acknowledgements.
    pub(super) is_muted: bool,
    /// Messages that were offered to it, by the numbers of the offers.
    pub(super) offered: BTreeMap<u64, Offered>,
    /// It cannot read this endpoint's memory.
    pub(super) refuses_offers: bool,
    /// What it grants this endpoint.
    pub(super) grant: GrantedHere,
    /// What is asked of it.
    pub(super) accesses: Accesses,
    /// Of what it asked for with answers by words, something was denied: everything is answered by notices.
    pub(super) has_denied: bool,
}

impl Row {
    /// Whether no message to it has been sent in part.
    pub(super) fn is_between_messages(&self) -> bool {
        !self.is_within && self.sends.front().is_none_or(|pending| pending.sent == 0)
    }

    /// Whether acknowledgements or notices wait for room.
    pub(super) fn has_words(&self) -> bool {
        !self.acks.is_empty() || !self.notices.is_empty()
    }
}

/// How far the link with a peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Link {
    /// It is linked, or was.
    #[default]
    Linked,
    /// Only its name is known. What is sent to it waits here.
    Addressed,
    /// The same, and the transport links.
    Asked,
}

/// What a peer grants this endpoint.
#[derive(Debug, Default)]
pub(super) struct GrantedHere {
    pub(super) limit: u64,
    /// The most that it may ever grant.
    pub(super) most: u64,
    pub(super) refuses: bool,
    /// The number of the last `Grant`.
    pub(super) serial: u16,
    /// It was asked for more.
    pub(super) is_asked: bool,
    /// It was told last that this endpoint keeps so much, which is more than it grants.
    pub(super) kept: Option<u64>,
}

/// A message that is sent when there is room.
#[derive(Debug)]
pub(super) struct Pending {
    /// `None` if nobody waits for it.
    pub(super) operation: Option<u32>,
    pub(super) envelope: Envelope,
    pub(super) memory: Memory,
    /// Bytes that have been sent, from byte `from` on.
    pub(super) sent: u64,
    pub(super) from: u64,
    /// For data: the envelope of its message, if somebody waits for it.
    pub(super) inner: Option<Envelope>,
    /// It was acknowledged before all of it had been sent: a receive has asked for it.
    pub(super) is_acked: bool,
}

impl Pending {
    /// A message of which nothing has been sent and for which nobody waits.
    pub(super) const fn new(envelope: Envelope, memory: Memory) -> Self {
        let (sent, from, inner) = (0, 0, None);
        Self { operation: None, envelope, memory, sent, from, inner, is_acked: false }
    }

    /// What it costs to keep it, if it is a reply.
    pub(super) fn reply_cost(&self) -> u64 {
        match self.envelope.space {
            Space::Reply | Space::Dropped => cost(self.memory.len() as u64),
            _ => 0,
        }
    }
}

/// A message that has been sent and is not acknowledged yet.
#[derive(Debug)]
pub(super) struct Unacknowledged {
    /// Its number among such messages, or that of its offer.
    pub(super) number: u64,
    pub(super) is_offer: bool,
    pub(super) operation: u32,
    pub(super) status: Status,
    pub(super) memory: Memory,
}

/// A copy of a whole message.
pub(super) fn to_memory(source: &impl Source) -> Memory {
    let mut bytes = vec![0; usize::try_from(source.bytes()).unwrap_or(usize::MAX)];
    source.fill(0, &mut Fragment::private(&mut bytes));
    bytes.into()
}
