//! How two sides learn of each other before anything else is sent.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use corewire_layout::net::{HELLO_BYTES_MAX, Hello, NetError, Preface};

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
    (&mut &*stream).write_all(&[first, own.to_bytes()].concat())?;
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
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(late),
                ErrorKind::Interrupted => {}
                _ => return Err(error.into()),
            },
        }
    }
}
