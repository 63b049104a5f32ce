//! What a service's program gets: generated code implements [`Dispatch`].

use super::client_id::ClientId;
use super::mailbox::end_serving;
use super::reply::Reply;
use super::sending::Sending;
use crate::capability::{Arrived as Capabilities, Received, none_of};
use crate::error::DecodeError;
use crate::exchange::Forms;
use crate::identity::Identity;
use crate::tag::{PART, Tag};

/// What a service does with what arrives. Generated code implements it.
pub trait Dispatch {
    /// A client has bound.
    fn bound(&mut self, client: ClientId, identity: Identity);

    /// A client has gone.
    fn gone(&mut self, client: ClientId);

    /// A client could not take the capabilities of a message with this ordinal.
    fn not_taken(&mut self, client: ClientId, ordinal: u16);

    /// A request with its reply; a reply that is dropped tells the caller.
    ///
    /// # Errors
    /// The message is no request of the interface.
    fn request(
        &mut self,
        ordinal: u16,
        request: Incoming<'_>,
        reply: Reply<'_>,
    ) -> Result<(), Refusal>;

    /// A message without a reply.
    ///
    /// # Errors
    /// The message is none of the interface.
    fn message(
        &mut self,
        ordinal: u16,
        message: Incoming<'_>,
        client: ClientId,
    ) -> Result<(), Refusal>;
}

/// A message that a service has received, for generated code. One pointer, as [`Reply`] is.
#[derive(Debug)]
pub struct Incoming<'a>(&'a mut Arrival<'a>);

const _: () = assert!(size_of::<Incoming<'_>>() == size_of::<usize>());

/// What has come with a message.
#[derive(Debug)]
struct Arrival<'a> {
    bytes: &'a [u8],
    forms: Forms,
    capabilities: &'a mut Vec<Received>,
    memory_max: usize,
}

impl<'a> Incoming<'a> {
    /// Its bytes, whether or not it has capabilities.
    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.0.bytes
    }

    /// Which version of a message the client knows, by its index in the description.
    #[inline]
    #[must_use]
    pub fn form(&self, wire: usize) -> crate::Form {
        self.0.forms.get(wire)
    }

    /// How much memory may be allocated to decode it, if elements of variable size are in it.
    #[inline]
    #[must_use]
    pub const fn memory_max(&self) -> usize {
        self.0.memory_max
    }

    /// Its bytes.
    ///
    /// # Errors
    /// It has capabilities.
    #[inline]
    pub fn without_capabilities(self, place: &'static str) -> Result<&'a [u8], DecodeError> {
        none_of(self.0.capabilities, place)?;
        Ok(self.0.bytes)
    }

    /// Its bytes and its capabilities.
    #[must_use]
    pub fn capabilities(self, place: &'static str) -> (&'a [u8], Capabilities<'a>) {
        (self.0.bytes, Capabilities::new(place, self.0.capabilities))
    }
}

/// Why a service could not take a message.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The interface has no such message from a client.
    #[error("no message has ordinal {ordinal}")]
    Unknown {
        /// The ordinal that arrived.
        ordinal: u16,
    },
    /// The arguments are wrong.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// Calls the program, the slow way: generated code is there twice.
#[inline(never)]
pub(super) fn dispatch_slowly(
    sending: &mut Sending,
    client: ClientId,
    tag: Tag,
    bytes: &[u8],
    capabilities: &mut Vec<Received>,
    program: &mut impl Dispatch,
) -> bool {
    dispatch(sending, client, tag, bytes, capabilities, program)
}

/// Calls the program. Returns whether the message is none of the interface.
#[inline(always)]
pub(super) fn dispatch(
    sending: &mut Sending,
    client: ClientId,
    tag: Tag,
    bytes: &[u8],
    capabilities: &mut Vec<Received>,
    program: &mut impl Dispatch,
) -> bool {
    let forms = sending.clients.forms_of(client);
    let memory_max = sending.decoded_bytes_max;
    let mut arrival = Arrival { bytes, forms, capabilities, memory_max };
    // Clients from before there were streams use all tokens.
    if tag.token() & PART != 0 && sending.mailbox.description().has_parts(tag.ordinal()) {
        return !sending.has_handled_credit(client, tag, bytes);
    }
    let ordinal = tag.ordinal();
    let outside = sending.mailbox.begin_serving();
    let taken = match tag.token() {
        0 => {
            sending.totals.message(ordinal, bytes.len());
            program.message(ordinal, Incoming(&mut arrival), client)
        }
        _ => {
            let began = sending.totals.request(ordinal, bytes.len());
            let reply = Reply::new(sending, client, tag, began);
            program.request(ordinal, Incoming(&mut arrival), reply)
        }
    };
    end_serving(outside);
    taken.is_err()
}
