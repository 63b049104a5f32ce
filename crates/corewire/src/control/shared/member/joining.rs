//! Opening a shared channel as one of its senders: creating it, or joining it through its host.
//!
//! | the name | `m.<name>` | |
//! |---|---|---|
//! | is free | no process shares it | creates the channel |
//! | is free | other senders share it | releases the name, since one of them must take it, and tries again |
//! | has a holder | | asks it to be admitted; gets a row and both segments |
//!
//! A newcomer confirms that it has taken its place, and is answered. If a call fails on the way, the host frees the row,
//! so no process waits for a missing one.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use corewire_layout::frame::{Frame, Reason};
use corewire_layout::geometry::Geometry;
use corewire_layout::name::NameKind;
use corewire_layout::segment::{FenceMode, SenderHeader, TableHeader};
use corewire_os::directory::{Claim, ClaimError, Membership};
use corewire_os::event::wait_readable;
use corewire_os::fork::InChild;
use corewire_os::memory::Segment;
use corewire_os::process::{self, effective_uid};
use corewire_os::sleep::Linux;
use corewire_os::{OsError, random_u128};
use corewire_ring::Kernel;
use corewire_ring::broadcast::SenderShared;
use corewire_ring::shared::{Entrance, Party, SenderParts};
use zerocopy::IntoBytes;

use super::{LOOK_AGAIN_AFTER, Member, Plan, State};
use crate::control::asking::{answer, ask, confirm, protocol, refusal};
use crate::control::domain::DomainHandle;
use crate::control::frames::{EAGAIN, next_descriptor};
use crate::control::memory::staging;
use crate::control::reachable::Kind;
use crate::control::shared::{SharedLink, SharedMemory};
use crate::error::{CreateError, JoinError};
use crate::guard::lock;
use crate::halves::MemberHalf;
use crate::host::{Hosted, SharedRing};
use crate::wait::Patience;

/// Maximum time without a host while other senders are alive.
const HOST_TIMEOUT: Duration = Duration::from_secs(10);

/// Creates the shared channel, or joins it as one of its senders.
pub(crate) fn open(
    domain: &DomainHandle,
    plan: &Plan,
) -> Result<(SharedRing, Arc<Member>), CreateError> {
    if domain.is_forked() {
        return Err(CreateError::Forked);
    }
    let (owner, user) = (domain.directory.owner(), effective_uid());
    let socket = domain.socket_name().ok_or(CreateError::Guest { owner, user })?;
    let deadline = Instant::now() + HOST_TIMEOUT;
    loop {
        match domain.directory.claim(&plan.name) {
            Ok(claim) => match domain.directory.join_members(&plan.name, true) {
                Ok(Some(membership)) => {
                    return create(domain, plan, claim, membership, socket.0);
                }
                // The channel has senders but no host. One of them must get the name.
                Ok(None) => claim.release(&domain.directory),
                Err(error) => {
                    claim.release(&domain.directory);
                    return Err(error.into());
                }
            },
            Err(ClaimError::AlreadyExists(_)) => match join(domain, plan, socket.0) {
                Err(CreateError::NoHost { .. }) => {}
                other => return other,
            },
            Err(error) => return Err(error.into()),
        }
        if Instant::now() >= deadline {
            return Err(CreateError::NoHost { name: plan.name.clone(), after: HOST_TIMEOUT });
        }
        // A change of host takes a moment, but a stopped host may take long.
        wait_readable(&[], Some(Instant::now() + LOOK_AGAIN_AFTER))?;
    }
}

/// Creates the channel.
fn create(
    domain: &DomainHandle,
    plan: &Plan,
    claim: Claim,
    membership: Membership,
    socket: u128,
) -> Result<(SharedRing, Arc<Member>), CreateError> {
    let (mut ring, member) = match create_memory_and_sender(domain, plan, membership, socket) {
        Ok(made) => made,
        Err(error) => {
            claim.release(&domain.directory);
            domain.directory.clear(&plan.name);
            return Err(error);
        }
    };
    *lock(&member.state) = State { claim: Some(claim), is_inviting: true, ..State::default() };
    // Sending waits until the waiting receivers are invited and have joined, for a limited time.
    let patience_ns = u64::try_from(plan.invitation_patience.as_nanos()).unwrap_or(u64::MAX);
    let until_ns = Linux::get().now_ns().saturating_add(patience_ns);
    member.link.roster.hold(member.entrance.row, until_ns);
    domain.add(Kind::Shared, &member.name, &member);
    if let Err(error) = member.publish() {
        // Tells the receivers that have joined by now that the channel is closed.
        member.close();
        ring.leave();
        return Err(error.into());
    }
    Ok((ring, member))
}

/// Creates the memory of a channel and adds its first sender, without publishing its name.
fn create_memory_and_sender(
    domain: &DomainHandle,
    plan: &Plan,
    membership: Membership,
    socket: u128,
) -> Result<(SharedRing, Arc<Member>), CreateError> {
    let memory = create_memory(plan, random_u128()?)?;
    let entrance = memory.roster().enter_sender(socket, process::pid(), &Linux::get());
    let what = "enter a new channel".into();
    // EIO: only this process has this memory, so a row must be free.
    let entrance = entrance.ok_or(OsError { what, errno: 5 })?;
    membership.admit_others()?;
    start(domain, plan, memory, entrance, membership)
}

fn create_memory(plan: &Plan, incarnation: u128) -> Result<SharedMemory, CreateError> {
    let Plan { geometry, policy, type_tag, .. } = plan;
    let header = SenderHeader {
        geometry: *geometry,
        fence_mode: FenceMode::Asymmetric,
        policy: *policy,
        type_tag: *type_tag,
        incarnation,
        pid: process::pid(),
    };
    let (ring_segment, ring) = Segment::create_shared(geometry.segment_bytes())?;
    let (table_segment, table) = Segment::create_shared(geometry.table_bytes())?;
    ring_segment.allocate(0, geometry.window_offset(0))?;
    table_segment.allocate(0, geometry.table_bytes())?;
    allocate_row(&ring_segment, geometry, 0)?;
    ring.copy_in(0, header.to_raw().as_bytes());
    table.copy_in(0, TableHeader { incarnation }.to_raw().as_bytes());
    Ok(SharedMemory { header, ring, table, ring_segment, table_segment })
}

/// Allocates the memory for one sender's payloads.
fn allocate_row(segment: &Segment, geometry: &Geometry, row: u32) -> Result<(), OsError> {
    segment.allocate(geometry.window_offset(row), geometry.window_bytes())?;
    segment.allocate(geometry.large_offset(row), geometry.large_bytes())
}

/// Joins an existing channel: asks its host to admit a sender. `NoHost` if there is none at the moment.
fn join(
    domain: &DomainHandle,
    plan: &Plan,
    socket: u128,
) -> Result<(SharedRing, Arc<Member>), CreateError> {
    let name = &plan.name;
    let no_host = || CreateError::NoHost { name: name.clone(), after: Duration::ZERO };
    let gone = |error: JoinError| match error {
        JoinError::NotFound(_) => no_host(),
        error => CreateError::Enter(Box::new(error)),
    };
    let record = domain.directory.look_up(name)?.ok_or_else(no_host)?;
    if record.kind != NameKind::Channel {
        return Err(CreateError::AlreadyExists(domain.name_in_use(name)));
    }
    // The caller tries again, and so waits for the host.
    let host = match domain.directory.connect_now(record.socket) {
        Err(error) if error.errno == EAGAIN => return Err(no_host()),
        other => other?.ok_or_else(no_host)?,
    };
    if host.peer()?.trusted().is_none() {
        return Err(CreateError::AlreadyExists(domain.name_in_use(name)));
    }
    // The membership precedes the admission. Otherwise a sender that dies could look as if the channel had no sender.
    let Some(membership) = domain.directory.join_members(name, false)? else {
        return Err(no_host());
    };
    let type_key = plan.type_tag.key;
    let request = Frame::Enter { name: name.clone(), type_key, socket };
    ask(&host, name, &request, &[]).map_err(gone)?;
    let (frame, mut descriptors) = answer(&host, name).map_err(gone)?;
    let entrance = match frame {
        Frame::Entered { row, generation, .. } => Entrance { row, generation },
        Frame::Refused(Reason::NotFound) => return Err(no_host()),
        Frame::Refused(Reason::NotShared) => {
            drop(membership);
            domain.directory.clear(name);
            return Err(CreateError::AlreadyExists(domain.name_in_use(name)));
        }
        Frame::Refused(reason) => {
            return Err(CreateError::Enter(Box::new(refusal(name, reason, plan.type_tag))));
        }
        other => return Err(gone(protocol(name, format!("{other:?}")))),
    };
    let missing = || gone(protocol(name, "too few descriptors".into()));
    let ring = next_descriptor(&mut descriptors).ok_or_else(missing)?;
    let table = next_descriptor(&mut descriptors).ok_or_else(missing)?;
    let memory = SharedMemory::open(name, ring, table, Some(Party::Sender)).map_err(gone)?;
    let row = entrance.row;
    if u64::from(row) >= memory.header.geometry.senders_max() {
        return Err(gone(protocol(name, format!("with row {row}"))));
    }
    // From here on the row may be reserved for this sender, even if the host dies before it says so.
    let started = match answer(&host, name) {
        Ok((Frame::Start { .. }, _)) => {
            allocate_row(&memory.ring_segment, &memory.header.geometry, row).map_err(Into::into)
        }
        Ok((Frame::Refused(reason), _)) => Err(gone(refusal(name, reason, plan.type_tag))),
        Ok((other, _)) => Err(gone(protocol(name, format!("{other:?}")))),
        Err(error) => Err(gone(error)),
    };
    started.inspect_err(|_: &CreateError| {
        memory.roster().vacate(Party::Sender, entrance, &Linux::get());
    })?;
    // If a step fails from here on, the host also vacates the row. The sender sends nothing before the host has
    // confirmed.
    let roster = memory.roster();
    let started = start(domain, plan, memory, entrance, membership);
    let (ring, member) = started.inspect_err(|_| {
        roster.vacate(Party::Sender, entrance, &Linux::get());
    })?;
    confirm(&host, name, Patience::Forever).map_err(gone).inspect_err(|_| {
        member.link.roster.vacate(Party::Sender, entrance, &member.kernel);
    })?;
    member.follow(host);
    Ok((ring, member))
}

fn start(
    domain: &DomainHandle,
    plan: &Plan,
    memory: SharedMemory,
    entrance: Entrance,
    membership: Membership,
) -> Result<(SharedRing, Arc<Member>), CreateError> {
    let linux = Linux::get();
    let policy = memory.header.policy;
    let staging =
        (!policy.keeps_messages()).then(|| staging(&memory.header.geometry)).transpose()?;
    let shared = Arc::new(SenderShared::new(0, !linux.has_membarrier()));
    let nudged = Arc::clone(&shared);
    let incarnation = memory.header.incarnation;
    let nudge = move || nudged.nudge(&linux);
    let link = SharedLink::new(domain, memory.roster(), incarnation, nudge);
    let kernel = Hosted::new(link.clone());
    let member = Arc::new_cyclic(|this| Member {
        this: Weak::clone(this),
        name: plan.name.clone(),
        memory,
        entrance,
        shared: Arc::clone(&shared),
        link: Arc::clone(&link),
        domain: domain.clone(),
        linux,
        kernel: kernel.clone(),
        state: Mutex::default(),
        membership: Some(membership),
    });
    let in_child: Weak<dyn InChild> = member.this.clone();
    corewire_os::fork::notify_in_child(in_child);
    let parts = SenderParts {
        ring: member.memory.ring.clone(),
        roster: link.roster.clone(),
        entrance,
        policy,
        staging,
        shared,
    };
    Ok((SharedRing::new(parts, kernel), member))
}
