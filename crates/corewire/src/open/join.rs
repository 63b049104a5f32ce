//! Joining a channel that exists.

use std::sync::Arc;

use corewire_layout::frame::Place;
use corewire_layout::name::ChannelName;
use corewire_layout::segment::Policy;
use corewire_ring::Trusted;

use crate::control::asking::{Row, Wishes, protocol};
use crate::control::attach::{self, Answer};
use crate::control::domain::DomainHandle;
use crate::error::JoinError;
use crate::halves::ReceiverHalf;
use crate::host::ReceiverRing;
use crate::open::levels;
use crate::path::receive::{Reading, Receiver};
use crate::tell::span;

/// Joins channel `name` now.
pub(crate) fn join<A: Reading>(
    domain: &DomainHandle,
    name: &ChannelName,
    wishes: Wishes,
) -> Result<Receiver<[u8], A>, JoinError> {
    span!("join", channel = name);
    // A guest cannot be a follower or a relay.
    let group = domain.socket_name().map(|_| wishes.cache_domain.unwrap_or_else(levels::own_group));
    let place = group.map_or(Place::Ring, Place::Group);
    let joiner = Joiner::new(domain, name, wishes);
    match attach::attach(domain, name, place, wishes, A::IS_IN_PLACE)? {
        Answer::Linked(row) => receiver(row, joiner),
        Answer::Shared(row) => receiver(row, joiner),
        Answer::Relayed(channel) => {
            let group =
                group.ok_or_else(|| protocol(name, "as if this were one of a group".into()))?;
            levels::join(joiner, group, channel)
        }
    }
}

/// Joins channel `name` now, unless it is the incarnation `former`.
pub(crate) fn join_other<A: Reading>(
    domain: &DomainHandle,
    name: &ChannelName,
    wishes: Wishes,
    former: Option<u128>,
) -> Result<Receiver<[u8], A>, JoinError> {
    let receiver = join::<A>(domain, name, wishes)?;
    if former == Some(receiver.untyped.attachment.incarnation()) {
        return Err(JoinError::NotFound(name.clone()));
    }
    Ok(receiver)
}

/// Creates the receiver for a row in a ring.
fn receiver<A: Reading, T: ReceiverHalf + 'static>(
    row: Row<T>,
    joiner: Joiner,
) -> Result<Receiver<[u8], A>, JoinError> {
    let Row { ring, attachment, trusted, header } = row;
    let access = grant(&ring, trusted, &*attachment, header.policy)?;
    let wait = joiner.wishes.wait;
    Ok(Receiver::new(ring, attachment, access, wait, Arc::new(joiner)))
}

/// The right to read a ring in the way `A`. Leaves the channel if that right is not granted.
pub(crate) fn grant<A: Reading>(
    ring: &ReceiverRing,
    trusted: Option<Trusted>,
    half: &dyn ReceiverHalf,
    policy: Policy,
) -> Result<A, JoinError> {
    A::grant(trusted.and_then(|trusted| ring.in_place(trusted))).ok_or_else(|| {
        half.leave();
        JoinError::NotInPlace { name: half.name().clone(), policy }
    })
}

/// How a receiver joined, so that it can join again.
#[derive(Clone)]
pub(crate) struct Joiner {
    pub(crate) domain: DomainHandle,
    pub(crate) name: ChannelName,
    pub(crate) wishes: Wishes,
}

impl Joiner {
    pub(crate) fn new(domain: &DomainHandle, name: &ChannelName, wishes: Wishes) -> Self {
        Self { domain: domain.clone(), name: name.clone(), wishes }
    }
}
