//! How a connection begins: two sides find each other, make sure who the other is, and say what they are.
//!
//! | file | contents |
//! |---|---|
//! | this one | what both know at the end, and why a connection cannot be used |
//! | `connecting` | addresses of a host, tried side by side |
//! | `dialling` | the side that dials |
//! | `answering` | the side that is dialled |
//! | `waiting` | a socket that is waited for, up to a point in time |
//! | `users` | whose process is at the other end, on one machine |
//!
//! Everything here blocks, and is for threads of its own. Nothing of it outlives the time that its caller gives, but threads that
//! resolve names: those take as long as the resolver does.
//!
//! # Who is trusted
//!
//! | connection | is who it says it is by |
//! |---|---|
//! | with TLS | a certificate, which an authority has signed that this host trusts, for the name that the file of hosts gives |
//! | without, both ends on the loopback | the user of the process at the other end, as the kernel shows it: this one, or root |
//! | without, `insecure` | one of the addresses that the file of hosts gives; nothing else |

mod answering;
mod connecting;
mod dialling;
mod users;
mod waiting;

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_layout::name::ChannelName;
use corewire_layout::net::{CREDIT_BYTES_MIN, Hello, NetError, Refusal};
use corewire_os::OsError;
use corewire_os::fork::Descriptor;
use corewire_ring::sync::AtomicU64;
use rustix::io::Errno;
use rustix::net::sockopt;

pub use self::answering::{accept, answer, hang_up, listen, read_preface, refuse};
pub use self::dialling::{Place, Target, TargetError, dial, introduce, reach};
use crate::hosts::Hosts;
use crate::link::Link;
use crate::wire::Wire;

/// What the kernel is asked to keep; it doubles that, and allows no more than its own limit.
const RECEIVE_BYTES: usize = 1 << 20;
/// The credit where the kernel keeps enough.
const CREDIT_BYTES: u32 = 256 << 10;

/// What an endpoint says of itself, besides its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// Its name.
    pub name: ChannelName,
    /// Which endpoint of that name it is.
    pub incarnation: u128,
}

/// Which connection it is, for the side that dials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Numbers {
    /// The number of this connection.
    pub connection: u64,
    /// The last one with such an endpoint that it knew; 0 if none.
    pub last: u64,
}

impl Own {
    fn hello(&self, hosts: &Hosts, credit_bytes: u32, numbers: Numbers) -> Hello {
        let (name, incarnation) = (self.name.clone(), self.incarnation);
        let (host, silence_ms) = (hosts.own().clone(), hosts.silence_ms());
        let Numbers { connection, last } = numbers;
        Hello { name, incarnation, host, credit_bytes, silence_ms, connection, last }
    }
}

/// A connection of which both sides know each other.
#[derive(Debug)]
pub struct Opened {
    pub(crate) wire: Wire,
    pub(crate) traffic: Arc<Traffic>,
    /// What has arrived behind the other side's hello.
    pub(crate) arrived: Vec<u8>,
    pub(crate) own: Hello,
    pub(crate) other: Hello,
}

impl Opened {
    /// The number of the connection.
    #[must_use]
    pub fn connection(&self) -> u64 {
        self.own.connection
    }

    /// What the other side says of itself.
    #[must_use]
    pub fn other(&self) -> &Hello {
        &self.other
    }

    /// Ends it before anything was sent: this endpoint closes.
    pub fn leave(mut self) {
        let _ = self.wire.write(&Link::leave());
        self.wire.end_writing();
    }

    /// Its socket, to be looked at, and what goes over it.
    #[must_use]
    pub fn facts(&self) -> (Arc<Descriptor>, Arc<Traffic>) {
        (Arc::clone(self.wire.stream()), Arc::clone(&self.traffic))
    }

    /// Whether it has TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.wire.is_tls()
    }
}

/// What has gone over a connection, for observers: as of the last time that its endpoint slept, or was told that it is observed.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Messages whose last frame was begun.
    pub sent_messages: AtomicU64,
    /// Bytes of the frames that were begun.
    pub sent_bytes: AtomicU64,
    /// Messages that were taken whole.
    pub received_messages: AtomicU64,
    /// Bytes of the frames that were taken.
    pub received_bytes: AtomicU64,
}

/// Until when something is waited for, and how long that was.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    at: Option<Instant>,
    after: Duration,
}

impl Deadline {
    /// From now on.
    #[must_use]
    pub fn within(after: Duration) -> Self {
        Self { at: Instant::now().checked_add(after), after }
    }

    /// What is left; `None` if it has passed.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        match self.at {
            Some(at) => at.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()),
            None => Some(Duration::MAX),
        }
    }
}

/// Why a connection cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file of hosts does not name it.
    #[error("host {host} is not in {}", path.display())]
    UnknownHost {
        /// The host.
        host: ChannelName,
        /// The file.
        path: PathBuf,
    },
    /// No address can be reached.
    #[error("no address answers: {}", tried.join("; "))]
    Unreachable {
        /// The addresses, each with why.
        tried: Vec<String>,
    },
    /// Without TLS it would be open to everybody in between.
    #[error(
        "{address} is no loopback address, and the connection would not be encrypted: give this host a certificate \
         ([tls] in {}), or set `insecure = true` for that host", path.display()
    )]
    NotSecure {
        /// Where the other side is.
        address: IpAddr,
        /// The file of hosts.
        path: PathBuf,
    },
    /// The other side refuses the connection.
    #[error("it is refused: {0}")]
    Refused(Refusal),
    /// The other side has a connection with this one already, or is making it. That is who it is.
    #[error("{} of host {} has connected, or is connecting", other.name, other.host)]
    Crossed {
        /// The other side.
        other: Box<Hello>,
    },
    /// This side refuses the connection.
    #[error("refused here: {0}")]
    RefusedHere(Refusal),
    /// The other side is no endpoint, or one of another version.
    #[error(transparent)]
    Foreign(#[from] NetError),
    /// The other side has not said in time what it is.
    #[error("the other side has not answered within {after:?}")]
    Timeout {
        /// How long it had.
        after: Duration,
    },
    /// The other side has closed the connection before.
    #[error("the other side has closed the connection before it said what it is")]
    Closed,
    /// The handshake of TLS has failed.
    #[error("TLS: {0}")]
    Tls(String),
    /// A file of certificates or keys cannot be used.
    #[error("{}: {why}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Another host or endpoint has answered than the one that was dialled.
    #[error("{found} has answered, not {wanted}")]
    OtherEndpoint {
        /// Which one was dialled.
        wanted: String,
        /// Which one has answered.
        found: String,
    },
    /// The process at the other end, on this machine, runs as another user.
    #[error(
        "the process at the other end runs as {}; without TLS only processes of user {own} are trusted",
        found.map_or_else(|| "nobody who is known".into(), |user| format!("user {user}"))
    )]
    OtherUser {
        /// Its user; `None` if the kernel does not say whose the other end is, or it is closed.
        found: Option<u32>,
        /// The user of this process.
        own: u32,
    },
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

impl OpenError {
    /// Whether an endpoint that cannot be connected now may be there later without anybody changing anything.
    #[must_use]
    pub fn may_come(&self) -> bool {
        match self {
            Self::Refused(why) => {
                matches!(why, Refusal::NotFound | Refusal::Busy | Refusal::Full)
            }
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Closed => true,
            _ => false,
        }
    }
}

impl OpenError {
    fn of(what: impl Into<Cow<'static, str>>, errno: Errno) -> Self {
        Self::Os(OsError { what: what.into(), errno: errno.raw_os_error() })
    }
}

/// Of a socket that was waited for.
impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> Self {
        match error.get_ref().and_then(|it| it.downcast_ref::<waiting::Over>()) {
            Some(waiting::Over::Time(after)) => Self::Timeout { after: *after },
            Some(waiting::Over::Bytes) => Self::Foreign(NetError::Field {
                field: "bytes before a hello",
                found: waiting::BYTES_MAX,
            }),
            None => match error.kind() {
                std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => {
                    Self::Closed
                }
                _ => Self::Os(OsError {
                    what: "use a connection".into(),
                    errno: error.raw_os_error().unwrap_or_default(),
                }),
            },
        }
    }
}

/// Lets the kernel keep as much as it may for a process that does not read. Before the connection is there, since the other
/// side learns then how much that may become.
fn make_room(stream: &Descriptor) -> Result<(), OpenError> {
    let made = sockopt::set_socket_recv_buffer_size(stream, RECEIVE_BYTES);
    made.map_err(|errno| OpenError::of("set the receive buffer of a connection", errno))
}

/// Whether the kernel keeps enough for this credit, which is more than before. Asks for twice as much: what comes in short parts
/// costs it more.
pub(crate) fn keeps(stream: impl AsFd, credit: usize) -> bool {
    let asked = sockopt::set_socket_recv_buffer_size(&stream, 2 * credit);
    let granted = asked.and_then(|()| sockopt::socket_recv_buffer_size(&stream));
    granted.is_ok_and(|granted| granted / 2 >= credit)
}

/// The credit that fits what the kernel keeps: less than half of that, at most 256 KiB. Then the kernel acknowledges
/// everything that the other side sends, also while this process is stopped.
fn credit_of(stream: &Descriptor) -> Result<u32, OpenError> {
    make_room(stream)?;
    let granted = sockopt::socket_recv_buffer_size(stream);
    let granted = granted
        .map_err(|errno| OpenError::of("look at the receive buffer of a connection", errno))?;
    let credit = u32::try_from(granted / 2).unwrap_or(u32::MAX).min(CREDIT_BYTES);
    if credit >= CREDIT_BYTES_MIN {
        return Ok(credit);
    }
    let needed = 2 * CREDIT_BYTES_MIN;
    let what = format!(
        "keep {needed} bytes for a connection: the kernel keeps {granted} at most (net.core.rmem_max)"
    );
    Err(OsError { what: what.into(), errno: Errno::NOBUFS.raw_os_error() }.into())
}

/// Both ends of a connection: this one, and the other.
fn ends_of(stream: &Descriptor) -> Result<(SocketAddr, SocketAddr), OpenError> {
    let failed = |errno| OpenError::of("look at the addresses of a connection", errno);
    let (own, other) = (rustix::net::getsockname(stream), rustix::net::getpeername(stream));
    let address = |found: rustix::net::SocketAddrAny| SocketAddr::try_from(found);
    let own = address(own.map_err(failed)?).map_err(failed)?;
    // It may have ended already.
    let other = other.ok().flatten().ok_or(OpenError::Closed)?;
    Ok((own, address(other).map_err(failed)?))
}

/// Whether an address is one of this machine only.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}
