//! How two sides learn of each other before anything else is sent.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use corewire_layout::net::{CREDIT_BYTES_MIN, HELLO_BYTES_MAX, Hello, NetError, Preface};
use rustix::net::sockopt;

/// What the kernel is asked to keep; it doubles that, and allows no more than its own limit.
const RECEIVE_BYTES: usize = 1 << 20;
/// The credit where the kernel keeps enough.
const CREDIT_BYTES: u32 = 256 << 10;

/// What a side has learnt of the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// What it says of itself.
    pub other: Hello,
    /// What has arrived behind that.
    pub(super) arrived: Vec<u8>,
}

/// Why a connection cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The other side is no endpoint, or one of another version.
    #[error(transparent)]
    Refused(#[from] NetError),
    /// The other side has not said in time what it is.
    #[error("the other side has not said what it is within {after:?}")]
    Timeout {
        /// How long it had.
        after: Duration,
    },
    /// The other side has closed the connection before.
    #[error("the other side has closed the connection before it said what it is")]
    Closed,
    /// A system call failed.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
}

/// Lets the kernel keep as much as it may for a process that does not read, and returns the credit that fits: less than
/// half of that, at most 256 KiB. Then the kernel acknowledges everything that the other side sends, also while this process
/// is stopped.
///
/// # Errors
/// Of a system call, or if the kernel keeps too little (`net.core.rmem_max`).
pub fn make_room(stream: &TcpStream) -> std::io::Result<u32> {
    sockopt::set_socket_recv_buffer_size(stream, RECEIVE_BYTES)?;
    let granted = sockopt::socket_recv_buffer_size(stream)?;
    let credit = u32::try_from(granted / 2).unwrap_or(u32::MAX).min(CREDIT_BYTES);
    if credit >= CREDIT_BYTES_MIN {
        return Ok(credit);
    }
    let needed = 2 * CREDIT_BYTES_MIN;
    Err(std::io::Error::other(format!(
        "the kernel keeps {granted} bytes for a connection, and {needed} are needed (net.core.rmem_max)"
    )))
}

/// Says hello and waits for the hello of the other side, for at most `within`. The side that dials gives the preface that
/// says which endpoint it wants. For a thread of its own: it blocks.
///
/// # Errors
/// [`OpenError`].
pub fn open(
    stream: &TcpStream,
    own: &Hello,
    preface: Option<&Preface>,
    within: Duration,
) -> Result<Opened, OpenError> {
    let begin = Instant::now();
    let left = || within.checked_sub(begin.elapsed()).filter(|left| !left.is_zero());
    let late = OpenError::Timeout { after: within };
    let first = preface.map(Preface::to_bytes).unwrap_or_default();
    let Some(for_writing) = left() else { return Err(late) };
    stream.set_write_timeout(Some(for_writing))?;
    let written = (&mut &*stream).write_all(&[first, own.to_bytes()].concat());
    if written.as_ref().is_err_and(is_late) {
        return Err(late);
    }
    written?;
    let mut arrived = Vec::new();
    loop {
        if let Some((other, used)) = Hello::parse(&arrived)? {
            arrived.drain(..used);
            return Ok(Opened { other, arrived });
        }
        let Some(left) = left() else { return Err(late) };
        stream.set_read_timeout(Some(left))?;
        let mut bytes = [0; HELLO_BYTES_MAX];
        match (&mut &*stream).read(&mut bytes) {
            Ok(0) => return Err(OpenError::Closed),
            Ok(count) => arrived.extend_from_slice(&bytes[..count]),
            Err(error) if is_late(&error) => return Err(late),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether it is the time limit of a socket.
fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
