//! What can go wrong, by stage: encoding, decoding, binding, calling, serving.

use std::fmt;
use std::time::Duration;

use corewire::{ConnectError, ConnectServiceError, EndpointError, ListenError, MessageError};
use corewire_circuit::link::attach::AttachError;
use corewire_circuit::patience::Late;
use corewire_circuit::wire::NODES_MAX;

use crate::driver::Driver;
use crate::exchange::SERVICE_NAME_BYTES_MAX;
use crate::tag::{STREAMS_MAX, status};

/// An argument is longer than its bound. Nothing was sent.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {count} elements, but its bound is {count_max}")]
pub struct EncodeError {
    /// The message and the argument.
    pub place: &'static str,
    /// How many elements or bytes it has.
    pub count: usize,
    /// The bound.
    pub count_max: u32,
}

/// Bytes that are not a message of the interface.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct DecodeError {
    /// The message, and the argument if one is wrong.
    pub place: &'static str,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with bytes that arrived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The message has a fixed size, and another number of bytes arrived.
    #[error("{found} bytes arrived where {due} were due")]
    Length {
        /// Bytes that arrived.
        found: usize,
        /// Bytes of the message.
        due: usize,
    },
    /// The fixed part is incomplete.
    #[error("{found} bytes arrived where at least {due} are necessary")]
    Short {
        /// Bytes that arrived.
        found: usize,
        /// Bytes of the fixed part.
        due: usize,
    },
    /// A length is greater than the bound.
    #[error("length {count}, but its bound is {count_max}")]
    Bound {
        /// The length that arrived.
        count: u32,
        /// The bound.
        count_max: u32,
    },
    /// Fewer bytes arrived than a length says.
    #[error("length {count}, but only {left} bytes are left")]
    Missing {
        /// The length that arrived.
        count: u32,
        /// Bytes that are left.
        left: usize,
    },
    /// What is decoded would take more memory than the binding allows.
    #[error(
        "decoded, the message takes more than {memory_max} bytes of memory, the limit of this binding"
    )]
    Memory {
        /// The limit.
        memory_max: usize,
    },
    /// More bytes arrived than the message has.
    #[error("{left} bytes behind its end")]
    Left {
        /// How many.
        left: usize,
    },
    /// A string is not UTF-8.
    #[error("not UTF-8 from byte {at} on")]
    Utf8 {
        /// The first wrong byte.
        at: usize,
    },
    /// Neither 0 nor 1.
    #[error("{found} is no bool")]
    Bool {
        /// The byte.
        found: u8,
    },
    /// Not a value of the enumeration, or not an arm of the union.
    #[error("{found} is none of its values")]
    Value {
        /// The number.
        found: i64,
    },
    /// Another capability than the interface says, or none, or one more.
    #[error("the capability is {found}, where {due} was due")]
    Capability {
        /// What arrived.
        found: &'static str,
        /// What the interface says.
        due: &'static str,
    },
}

/// Why a client could not be bound: each driver that was tried, with its reason.
#[derive(thiserror::Error)]
#[error("no binding to {service}: {}", Tried(.tried))]
pub struct BindError {
    /// The service's name.
    pub service: String,
    /// The drivers, in the order in which they were tried.
    pub tried: Vec<(Driver, BindReason)>,
}

impl BindReason {
    /// Whether the service may only not be there yet.
    pub(crate) const fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::NotServed { .. }
                | Self::NoMonitor
                | Self::MonitorMissing(_)
                | Self::Service(
                    ConnectServiceError::NotFound(_) | ConnectServiceError::NotCreated { .. }
                )
        )
    }
}

impl BindError {
    pub(crate) fn of(service: &str, driver: Driver, reason: BindReason) -> Self {
        Self { service: service.to_owned(), tried: vec![(driver, reason)] }
    }
}

struct Pid(u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, ", {}", self.0) }
    }
}

/// What is said of a listener, said of the service that has it.
fn of_service(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    match text.strip_prefix("listener ") {
        Some(rest) => format!("service {rest}"),
        None => text
            .replace("the process of listener ", "the process of service ")
            .replace(", not a listener", ", not a service"),
    }
}

/// Changes that an error names; how many more there are is a number.
const CHANGES_MAX: usize = 4;

struct List<'a>(&'a [String]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.get(..CHANGES_MAX).unwrap_or(self.0);
        f.write_str(&shown.join("; "))?;
        match self.0.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// The reasons, each once, behind the drivers that have it.
struct Tried<'a>(&'a [(Driver, BindReason)]);

impl fmt::Display for Tried<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = Vec::<(String, Vec<String>)>::new();
        for (driver, reason) in self.0 {
            let text = reason.to_string();
            match all.iter_mut().find(|(other, _)| *other == text) {
                Some((_, drivers)) => drivers.push(driver.to_string()),
                None => all.push((text, vec![driver.to_string()])),
            }
        }
        match all.as_slice() {
            [] => f.write_str("no driver was allowed"),
            // It is not because of a driver.
            [(text, _)] if matches!(self.0, [(_, BindReason::Interface { .. })]) => {
                f.write_str(text)
            }
            all => {
                let all =
                    all.iter().map(|(text, drivers)| format!("{}: {text}", drivers.join(", ")));
                f.write_str(&all.collect::<Vec<_>>().join("; "))
            }
        }
    }
}

/// Why one driver could not be bound.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BindReason {
    /// The `local` driver needs a service in this process.
    #[error("the service is in another process{}", Pid(*.pid))]
    OtherProcess {
        /// Its number; 0 if it is in another container.
        pid: u32,
    },
    /// This process's endpoint could not be created.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The service's endpoint could not be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The exchange failed.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The service does not exist, or cannot be reached.
    #[error("{}", of_service(.0))]
    Service(#[from] ConnectServiceError),
    /// The exchange failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The service closed the connection.
    #[error("the service closed the connection")]
    Closed,
    /// What answered is no service of this version of corewire.
    #[error("what answered is no service of this version of corewire")]
    Protocol,
    /// The `lmp` driver needs a service on the same core.
    #[error("the service runs on core {service}, this thread on core {own}")]
    OtherCore {
        /// Where the service ran when it answered.
        service: u32,
        /// Where this thread ran then.
        own: usize,
    },
    /// A ring needs a service of the same user.
    #[error("the service belongs to user {uid}, which does not share its memory")]
    OtherUser {
        /// The service's user.
        uid: u32,
    },
    /// The service did not answer. It may be an endpoint that serves no interface.
    #[error("the service did not answer within {after:?}")]
    NoAnswer {
        /// How long the client waited.
        after: Duration,
    },
    /// The service speaks another interface, or another version; the reason names the first message that differs.
    #[error("refused: {reason}")]
    Refused {
        /// The service's reason.
        reason: String,
    },
    /// The `net` driver needs a service of another host: `name@host`.
    #[error("the name says no other host: calc@b means service calc on host b")]
    NoHost,
    /// The `net` driver needs the feature `net`.
    #[error("built without connections to other hosts (the feature `net` of corewire-bind)")]
    NoNetwork,
    /// No circuit could be set up.
    #[error("no circuit: {reason}")]
    Circuit {
        /// The reason, of this process's monitor or another one.
        reason: String,
    },
    /// No monitor knows of a program that serves the name.
    #[error("no circuit: {reason}")]
    NotServed {
        /// The reason, of this process's monitor or another one.
        reason: String,
    },
    /// What is behind the `@` of a service's name is no monitor.
    #[error("{asked:?} is no monitor's number: they are 0 to {}", NODES_MAX - 1)]
    MonitorNumber {
        /// What was asked for.
        asked: String,
    },
    /// The `circuit` driver needs a monitor.
    #[error("no monitor runs in the domain")]
    NoMonitor,
    /// The monitor that was named does not run.
    #[error("monitor {0} does not run in the domain")]
    MonitorMissing(usize),
    /// The environment variable names no monitor.
    #[error("COREWIRE_MONITOR is {0:?}, not the number of a monitor: 0 to 255")]
    MonitorVariable(String),
    /// The service has another version of the interface, which no driver can change.
    #[error("the service has another version of interface {interface}: {}", List(.changes))]
    Interface {
        /// The interface.
        interface: String,
        /// What breaks, from the service's version to the client's, as `corewire idl diff` says it.
        changes: Vec<String>,
    },
    /// The interface has more or longer names than an exchange can carry.
    #[error("interface {name} is too large for the exchange")]
    TooLarge {
        /// The interface.
        name: String,
    },
}

impl From<AttachError> for BindReason {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::NoMonitor => Self::NoMonitor,
            AttachError::Missing(number) => Self::MonitorMissing(number),
            AttachError::Variable(text) => Self::MonitorVariable(text),
            AttachError::Monitor(error) => Self::Service(error),
            AttachError::Ring(error) => Self::Connect(error),
            AttachError::Endpoint(error) => Self::Endpoint(error),
            AttachError::Refused { reason } => Self::Refused { reason },
            AttachError::Closed => Self::Closed,
            AttachError::Late(late) => Self::Call(late.into()),
            AttachError::Os { what, errno } => Self::Call(CallError::Os { what, errno }),
            _ => Self::Protocol,
        }
    }
}

/// Why a call, a one-way message or a wait for an event failed.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The service's process died.
    #[error("service {name} died")]
    PeerDied {
        /// The service.
        name: String,
    },
    /// The service was closed; or its process, which lives, has closed its end.
    #[error("service {name} was closed")]
    PeerLeft {
        /// The service.
        name: String,
    },
    /// The service unbound this client, which had sent what is no message, or had left too much unread.
    #[error("service {name} unbound this client: {reason}")]
    Unbound {
        /// The service.
        name: String,
        /// The service's reason.
        reason: String,
    },
    /// The service sent what is no message, and was unbound.
    #[error("service {name} was cut off: {reason}")]
    CutOff {
        /// The service.
        name: String,
        /// What it did.
        reason: String,
    },
    /// A link or a monitor between this client and the service has ended, and with it the circuit.
    #[error("the circuit to service {name} was lost after {delivered} messages: {reason}")]
    Lost {
        /// The service.
        name: String,
        /// What has ended.
        reason: String,
        /// Messages that had come from the service.
        delivered: u64,
    },
    /// The connection to the service's host was lost. Nobody can tell whether the service lives.
    #[error(
        "the connection to service {name} was lost: {reason}; it has received {delivered} messages at least"
    )]
    HostLost {
        /// The service.
        name: String,
        /// How it was lost.
        reason: String,
        /// Messages to the service that have arrived there, from the first one on. Others may have arrived or not.
        delivered: u64,
    },
    /// Descriptors cannot be transferred to another host.
    #[error("descriptors cannot be transferred to another host")]
    NotTransferable,
    /// The reply did not come in time. If it comes later, it is discarded.
    #[error("not within {after:?}")]
    Timeout {
        /// How long the call waited.
        after: Duration,
    },
    /// There is no room now, and one message waits for it already. For `try_` only.
    #[error("busy: a message waits for room already")]
    Busy,
    /// Events are missing here: this client received too slowly.
    #[error("{count} events are missing here: this client received too slowly")]
    EventsLost {
        /// How many.
        count: u64,
    },
    /// The service's interface, an earlier one, does not have the message.
    #[error("the service does not have {name}")]
    NotInService {
        /// The message.
        name: &'static str,
    },
    /// The other side could not take the descriptors that travelled with the message: it has too many open.
    #[error("the other side could not take the capabilities")]
    NotTaken,
    /// This process has too many descriptors open to take those of the message.
    #[error("too many descriptors are open here to take those of the message")]
    TooManyDescriptors,
    /// The descriptors could not be sent: too many are on their way, or one of them was not open.
    #[error("the capabilities could not be sent")]
    NotSent,
    /// The service dropped the request without a reply.
    #[error("the service dropped the request")]
    Dropped,
    /// A client has as many streams as it can have.
    #[error("this client has {count_max} streams that have not ended, as many as it can have")]
    TooManyStreams {
        /// The limit.
        count_max: usize,
    },
    /// The service has sent more of a stream than it was asked for.
    #[error("the service has sent more of the stream than it was asked for")]
    Unasked,
    /// The caller of a stream wants no more of it, or has gone.
    #[error("the caller wants no more of the stream")]
    Cancelled,
    /// The service does not know the request.
    #[error("the service does not know the request")]
    Unknown,
    /// The service could not decode the request.
    #[error("the service could not decode the request")]
    Malformed,
    /// The handle belongs to another client, or its result was taken already.
    #[error("the reply of another client, or taken already")]
    NotPending,
    /// An argument is longer than its bound.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// What arrived is not a message of the interface.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// Anything else that an endpoint reports.
    #[error(transparent)]
    Message(MessageError),
    /// A system call failed.
    #[error("{what}: error {errno} of the system")]
    Os {
        /// What was done.
        what: &'static str,
        /// The system's number.
        errno: i32,
    },
}

impl From<rustix::io::Errno> for ServeError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Porter(error.into())
    }
}

impl From<Late> for CallError {
    #[cold]
    fn from(late: Late) -> Self {
        match late {
            Late::Busy => Self::Busy,
            Late::Timeout { after } => Self::Timeout { after },
        }
    }
}

impl From<MessageError> for CallError {
    #[cold]
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::PeerDied { name } => Self::PeerDied { name: name.as_str().to_owned() },
            MessageError::PeerLeft { name } => Self::PeerLeft { name: name.as_str().to_owned() },
            MessageError::Timeout { after } => Self::Timeout { after },
            MessageError::Full { .. } | MessageError::ReceiverFull { .. } => Self::Busy,
            other => Self::Message(other),
        }
    }
}

/// Why an rpc with errors of its own (`rpc ... ! E`) failed.
#[derive(Clone, PartialEq)]
pub enum Failed<E> {
    /// The service's answer.
    Service(E),
    /// The call itself failed.
    Call(CallError),
}

impl<E: fmt::Display> fmt::Display for Failed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(error) => error.fmt(f),
            Self::Call(error) => error.fmt(f),
        }
    }
}

/// The same text: a program whose `main` returns it shows this.
impl<E: fmt::Display> fmt::Debug for Failed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<E: fmt::Display> std::error::Error for Failed<E> {}

impl<E> From<CallError> for Failed<E> {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl<E> From<DecodeError> for Failed<E> {
    fn from(error: DecodeError) -> Self {
        Self::Call(CallError::Decode(error))
    }
}

impl<E> From<EncodeError> for Failed<E> {
    fn from(error: EncodeError) -> Self {
        Self::Call(CallError::Encode(error))
    }
}

/// Why a service stopped or could not begin.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The name is taken, or is no name.
    #[error("{}", of_service(.0))]
    Listen(#[from] ListenError),
    /// The environment variable `COREWIRE_MONITOR` says at which monitor the service can be reached, and its value is no
    /// number of one.
    #[error("COREWIRE_MONITOR is {0:?}, not the number of a monitor: 0 to 255")]
    MonitorVariable(String),
    /// The name is too long for a service.
    #[error("service name of {asked} bytes: at most {} are possible", SERVICE_NAME_BYTES_MAX)]
    NameTooLong {
        /// Its length.
        asked: usize,
    },
    /// The thread for sockets could not be started.
    #[error("the service's thread for sockets: {0}")]
    Porter(#[from] std::io::Error),
    /// A task cannot wait for the service's descriptor.
    #[error("the service's descriptor: {0}")]
    Descriptor(#[source] std::io::Error),
    /// The service's endpoint could not be created.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The endpoint failed: no memory, or this process was forked.
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// What a call that must not wait has found; `None` if it would have had to wait.
#[inline]
pub(crate) fn none_if_busy<T>(result: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match result {
        Err(CallError::Busy) => Ok(None),
        result => result.map(Some),
    }
}

/// Why there is no reply, by the status in its place.
#[cold]
pub(crate) const fn of_status(found: u64) -> CallError {
    match found {
        status::UNKNOWN => CallError::Unknown,
        status::MALFORMED => CallError::Malformed,
        status::NOT_TAKEN => CallError::NotTaken,
        status::NOT_SENT => CallError::NotSent,
        status::LOST_HERE => CallError::TooManyDescriptors,
        status::TOO_MANY_STREAMS => CallError::TooManyStreams { count_max: STREAMS_MAX },
        _ => CallError::Dropped,
    }
}

corewire_layout::debug_is_text!(
    EncodeError,
    DecodeError,
    BindError,
    BindReason,
    CallError,
    ServeError
);
