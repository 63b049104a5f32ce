//! The control half of a receiver of a shared channel.

use std::sync::{Arc, OnceLock, Weak};

use corewire_layout::frame::{Frame, Welcome};
use corewire_layout::name::ChannelName;
use corewire_layout::segment::{FenceMode, RECEIVER_SEGMENT_BYTES, TypeTag};
use corewire_os::event::Bell;
use corewire_os::fork::{Descriptor, InChild};
use corewire_os::sleep::Linux;
use corewire_os::socket::Socket;
use corewire_ring::broadcast::{ReceiverParts, ReceiverShared};
use corewire_ring::doorbell::notice;
use corewire_ring::shared::{Entrance, ManyParts, Party, Roster};
use corewire_ring::{Control, Trusted};

use super::{SharedLink, SharedMemory};
use crate::control::asking::{Row, Wishes, answer_within, confirm, protocol, refusal};
use crate::control::domain::DomainHandle;
use crate::control::frames::next_descriptor;
use crate::control::reachable::Reader;
use crate::error::JoinError;
use crate::halves::ReceiverHalf;
use crate::host::{Hosted, ReceiverRing};
use crate::wait::{Readiness, cap_ns};

/// The part of a receiver of a shared channel that the control thread uses.
pub(crate) struct SharedAttachment {
    name: ChannelName,
    shared: Arc<ReceiverShared>,
    domain: DomainHandle,
    incarnation: u128,
    roster: Roster,
    entrance: Entrance,
    readiness: OnceLock<Arc<Bell>>,
    type_tag: TypeTag,
}

/// A process's request to join a shared channel, and the host's socket.
pub(crate) struct JoinRequest<'a> {
    pub(crate) domain: &'a DomainHandle,
    pub(crate) name: &'a ChannelName,
    pub(crate) socket: &'a Socket,
    pub(crate) trusted: Option<Trusted>,
    pub(crate) wishes: Wishes,
    /// The receiver reads in place.
    pub(crate) is_in_place: bool,
}

/// Completes the join after the host's welcome.
pub(crate) fn join(
    request: &JoinRequest<'_>,
    welcome: Welcome,
    mut descriptors: Vec<Descriptor>,
) -> Result<Row<SharedAttachment>, JoinError> {
    let &JoinRequest { domain, name, socket, trusted, wishes, is_in_place } = request;
    let missing = || protocol(name, "too few descriptors".into());
    let ring = next_descriptor(&mut descriptors).ok_or_else(missing)?;
    let _life = next_descriptor(&mut descriptors).ok_or_else(missing)?;
    let table = next_descriptor(&mut descriptors).ok_or_else(missing)?;
    if trusted.is_none() {
        return Err(protocol(name, "with memory that every process may write".into()));
    }
    let memory = SharedMemory::open(name, ring, table, Some(Party::Receiver))?;
    let Welcome { row, generation, .. } = welcome;
    let geometry = memory.header.geometry;
    if u64::from(row) >= geometry.receivers_max() {
        return Err(protocol(name, format!("with row {row}")));
    }
    let entrance = Entrance { row, generation };
    let shared = Arc::new(ReceiverShared::default());
    let attachment = Arc::new(SharedAttachment {
        name: name.clone(),
        shared: Arc::clone(&shared),
        domain: domain.clone(),
        incarnation: memory.header.incarnation,
        roster: memory.roster(),
        entrance,
        readiness: OnceLock::new(),
        type_tag: memory.header.type_tag,
    });
    let in_child: Weak<dyn InChild> = Arc::downgrade(&attachment) as Weak<dyn InChild>;
    corewire_os::fork::notify_in_child(in_child);
    let woken = Arc::downgrade(&attachment);
    let incarnation = memory.header.incarnation;
    let link = SharedLink::new(domain, memory.roster(), incarnation, move || {
        if let Some(attachment) = woken.upgrade() {
            attachment.notify(0);
        }
    });
    // From here on the row may be reserved for this receiver, even if the host dies before it says so.
    let started = match answer_within(socket, name, wishes.patience) {
        Ok((Frame::Start { start }, _)) if start <= u64::MAX / 2 => Ok(start),
        Ok((Frame::Refused(reason), _)) => Err(refusal(name, reason, wishes.type_tag)),
        Ok((other, _)) => Err(protocol(name, format!("{other:?}"))),
        Err(error) => Err(error),
    };
    let start = started.inspect_err(|_| {
        link.roster.vacate(Party::Receiver, entrance, &Linux::get());
    })?;
    let policy = memory.header.policy;
    if is_in_place && !policy.keeps_messages() {
        attachment.leave();
        return Err(JoinError::NotInPlace { name: name.clone(), policy });
    }
    match confirm(socket, name, wishes.patience) {
        // The host has gone after it reserved the row. A host that takes the row back does so before it hangs up.
        Err(JoinError::NotFound(_)) if link.roster.holds(Party::Receiver, entrance) => {}
        other => other.inspect_err(|_| attachment.leave())?,
    }
    domain.add_reader(attachment.incarnation, row, &attachment);
    let linux = Linux::get();
    let offset = usize::try_from(geometry.table_rows_offset()).unwrap_or(usize::MAX);
    let page = offset.saturating_add(row as usize * RECEIVER_SEGMENT_BYTES);
    let own = memory.table.part(page, RECEIVER_SEGMENT_BYTES);
    let parts = ReceiverParts {
        sender: memory.ring,
        geometry,
        // Without membarrier, this receiver checks for messages every 1 to 8 ms when it sleeps: it cannot make all
        // senders execute fences.
        fence_mode: if linux.has_membarrier() { FenceMode::Asymmetric } else { FenceMode::Fenced },
        policy,
        own: own.ok_or_else(|| protocol(name, format!("with row {row}")))?,
        hint: None,
        welcome: Welcome { start, epoch: 0, settled: u64::MAX, ..welcome },
        shared,
        many: Some(ManyParts { roster: link.roster.clone(), entrance }),
    };
    let control = ReceiverControl { link, attachment: Arc::clone(&attachment) };
    let mut ring = ReceiverRing::new(parts, Hosted::new(Arc::new(control)));
    ring.set_sleep_cap(cap_ns(wishes.sleep_cap));
    Ok(Row { ring, attachment, trusted, header: memory.header })
}

/// Requests of a receiver's ring to its control half.
struct ReceiverControl {
    link: Arc<SharedLink>,
    attachment: Arc<SharedAttachment>,
}

impl Control for ReceiverControl {
    fn watch(&self, party: Party, who: Entrance, socket: u128) {
        self.link.watch_party(party, who, socket);
    }

    fn wake_descriptor(&self, row: u32) {
        self.link.wake(row);
    }

    fn leave(&self) {
        ReceiverHalf::leave(&*self.attachment);
    }
}

impl Reader for SharedAttachment {
    fn ring(&self) {
        if let Some(bell) = self.readiness.get() {
            bell.ring();
        }
    }
}

impl ReceiverHalf for SharedAttachment {
    fn name(&self) -> &ChannelName {
        &self.name
    }

    fn incarnation(&self) -> u128 {
        self.incarnation
    }

    fn type_tag(&self) -> TypeTag {
        self.type_tag
    }

    fn notify(&self, notice: u32) {
        self.shared.notify(notice, &Linux::get());
        self.ring();
    }

    fn leave(&self) {
        self.domain.remove_reader(self.incarnation, self.entrance.row, self);
        self.roster.vacate(Party::Receiver, self.entrance, &Linux::get());
        self.domain.end();
    }

    fn readiness(&self) -> Result<Readiness, JoinError> {
        if self.shared.notices() & notice::FORKED != 0 {
            return Err(JoinError::Forked);
        }
        if let Some(bell) = self.readiness.get() {
            return Ok(Readiness::of(bell));
        }
        let bell = Arc::new(Bell::new()?);
        Ok(Readiness::of(self.readiness.get_or_init(|| bell)))
    }
}

impl InChild for SharedAttachment {
    fn forked(&self) {
        self.shared.mark_forked();
    }
}
