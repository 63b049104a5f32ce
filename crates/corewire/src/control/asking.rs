//! Asking another process, which has a name: connecting to it, its answer, and what a refusal means.
//!
//! The kernel says which user is at the other end. It must be the domain's owner. If that is not this process's own user,
//! there is no proof of trust, and messages are not read in place.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_layout::frame::{Frame, Reason, Start};
use corewire_layout::message_type::TypeName;
use corewire_layout::name::{ChannelName, NameKind, SocketName};
use corewire_layout::segment::{SenderHeader, TypeTag};
use corewire_os::OsError;
use corewire_os::fork::Descriptor;
use corewire_os::process::effective_uid;
use corewire_os::socket::{ReceiveError as SocketError, Socket};
use corewire_ring::Trusted;

use crate::control::domain::DomainInner;
use crate::control::frames::EAGAIN;
use crate::error::JoinError;
use crate::host::ReceiverRing;
use crate::wait::{Patience, Wait};

/// Maximum time in which an owner must answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum time that an owner is given to answer.
const ANSWER_TIMEOUT_MIN: Duration = Duration::from_millis(500);

/// What a receiver requests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wishes {
    pub(crate) wait: Wait,
    pub(crate) sleep_cap: Option<Duration>,
    pub(crate) start: Start,
    pub(crate) type_tag: TypeTag,
    pub(crate) waiter: u128,
    pub(crate) cache_domain: Option<u32>,
    /// How long the caller waits.
    pub(crate) patience: Patience,
}

/// A row in a ring.
pub(crate) struct Row<T> {
    pub(crate) ring: ReceiverRing,
    pub(crate) attachment: Arc<T>,
    /// Whether the ring's senders may be trusted.
    pub(crate) trusted: Option<Trusted>,
    pub(crate) header: SenderHeader,
}

/// Connects to the current owner of `name`. The owner must run as the domain's user. It is trusted if that is also this
/// process's user.
pub(crate) fn connect(
    domain: &DomainInner,
    name: &ChannelName,
    patience: Patience,
) -> Result<(Socket, Option<Trusted>), JoinError> {
    if domain.is_forked() {
        return Err(JoinError::Forked);
    }
    let not_found = || JoinError::NotFound(name.clone());
    let record = domain.directory.look_up(name)?.ok_or_else(not_found)?;
    if record.kind != NameKind::Channel {
        return Err(JoinError::NotAChannel(name.clone()));
    }
    let socket = connect_to(domain, name, record.socket, patience)?.ok_or_else(not_found)?;
    let peer = socket.peer()?;
    if peer.uid != domain.directory.owner() {
        let (owner, user) = (peer.uid, effective_uid());
        return Err(JoinError::NotPermitted { name: name.clone(), owner, user });
    }
    Ok((socket, peer.trusted()))
}

/// Sends a request to the owner. The channel does not exist any more if the owner has died since the connection was
/// made.
pub(crate) fn ask(
    socket: &Socket,
    name: &ChannelName,
    frame: &Frame,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), JoinError> {
    socket.send(frame, descriptors).map_err(|error| {
        if !error.is_hang_up() {
            return error.into();
        }
        // The owner may have refused the connection before this request.
        match socket.receive() {
            Ok((Frame::Refused(reason), _)) => refusal(name, reason, TypeTag::default()),
            _ => JoinError::NotFound(name.clone()),
        }
    })
}

/// Receives the owner's next frame.
pub(crate) fn answer(
    socket: &Socket,
    name: &ChannelName,
) -> Result<(Frame, Vec<Descriptor>), JoinError> {
    answer_within(socket, name, Patience::Forever)
}

/// Receives the owner's next frame, for a caller that may wait less long than an owner may take.
pub(crate) fn answer_within(
    socket: &Socket,
    name: &ChannelName,
    patience: Patience,
) -> Result<(Frame, Vec<Descriptor>), JoinError> {
    let (deadline, timeout) = deadline_of(patience);
    match socket.receive_by(Some(deadline)) {
        Ok(answer) => Ok(answer),
        Err(SocketError::Nothing) => {
            let pid = socket.peer().map_or(0, |peer| peer.pid);
            Err(JoinError::NoAnswer { name: name.clone(), after: timeout, pid })
        }
        Err(error) => Err(answer_error(name, error)),
    }
}

/// The deadline for an answer, and the time limit to report to the caller.
pub(crate) fn deadline_of(patience: Patience) -> (Instant, Duration) {
    let now = Instant::now();
    match patience {
        // A running process answers sooner than this minimum, even if the caller has less time.
        Patience::Until(at, timeout) if at < now + ANSWER_TIMEOUT => {
            (at.max(now + ANSWER_TIMEOUT_MIN), timeout)
        }
        _ => (now + ANSWER_TIMEOUT, ANSWER_TIMEOUT),
    }
}

/// Connects to the process that holds `name`. `None` if it is gone.
pub(crate) fn connect_to(
    domain: &DomainInner,
    name: &ChannelName,
    process: SocketName,
    patience: Patience,
) -> Result<Option<Socket>, JoinError> {
    let (deadline, after) = deadline_of(patience);
    let limit = deadline.saturating_duration_since(Instant::now());
    match domain.directory.connect(process, limit) {
        Err(error) if error.errno == EAGAIN => {
            Err(JoinError::NoAnswer { name: name.clone(), after, pid: 0 })
        }
        other => Ok(other?),
    }
}

/// The error for an answer that could not be received.
pub(crate) fn answer_error(name: &ChannelName, error: SocketError) -> JoinError {
    match error {
        // The owner died or closed the channel after the name was looked up.
        SocketError::Closed => JoinError::NotFound(name.clone()),
        SocketError::Os(error) => error.into(),
        SocketError::Descriptors => {
            OsError { what: "receive the channel's descriptors".into(), errno: 24 }.into()
        }
        other => protocol(name, other.to_string()),
    }
}

/// Tells the host of a shared channel that this process is ready, and waits for the host's confirmation. On an error
/// the caller vacates its row; the host does the same.
pub(crate) fn confirm(
    socket: &Socket,
    name: &ChannelName,
    patience: Patience,
) -> Result<(), JoinError> {
    ask(socket, name, &Frame::Done, &[])?;
    match answer_within(socket, name, patience)? {
        (Frame::Done, _) => Ok(()),
        (Frame::Refused(reason), _) => Err(refusal(name, reason, TypeTag::default())),
        (other, _) => Err(protocol(name, format!("{other:?}"))),
    }
}

pub(crate) fn protocol(name: &ChannelName, found: String) -> JoinError {
    JoinError::Protocol { name: name.clone(), found }
}

/// Turns a refusal into the most informative error.
pub(crate) fn refusal(name: &ChannelName, reason: Reason, expected: TypeTag) -> JoinError {
    let name = name.clone();
    match reason {
        Reason::NotFound => JoinError::NotFound(name),
        Reason::NotPermitted { owner, asker } => {
            JoinError::NotPermitted { name, owner, user: asker }
        }
        Reason::Type { name: found, bytes, .. } => {
            let shown = |name: TypeName| (!name.is_empty()).then(|| name.as_str().to_owned());
            JoinError::Type {
                name,
                expected: shown(expected.name),
                expected_bytes: expected.key.bytes,
                found: shown(found),
                found_bytes: bytes,
            }
        }
        reason => JoinError::Refused { name, reason },
    }
}
