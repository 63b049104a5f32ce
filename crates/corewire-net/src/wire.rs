//! The socket of a connection, with TLS or without. Never blocks.

use std::io::{self, BufRead as _, ErrorKind, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use corewire_layout::rendezvous::Stretch;
use corewire_os::fork::Descriptor;
use corewire_os::stream;
use rustix::buffer::spare_capacity;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sendmsg};

/// What one system call reads at most.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// What a session keeps that the kernel has not taken.
const SESSION_BYTES: usize = 256 << 10;

/// A connected socket.
pub(crate) struct Wire {
    stream: Arc<Descriptor>,
    session: Option<Box<Session>>,
}

/// What TLS needs.
struct Session {
    tls: rustls::Connection,
    /// What the kernel has given.
    read: Vec<u8>,
}

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Got {
    /// The other side sends nothing more.
    End,
    /// Something, of which the caller has some, or nothing yet. Whether the kernel may have more.
    Some { may_have_more: bool },
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { stream, session } = self;
        f.debug_struct("Wire").field("stream", stream).field("is_tls", &session.is_some()).finish()
    }
}

impl Wire {
    /// A socket that does not block.
    pub(crate) fn new(stream: Descriptor, session: Option<rustls::Connection>) -> Self {
        let session = session.map(|mut tls| {
            // It takes all that waits to leave at once: what is left over would be a record, and a write, of its own.
            tls.set_buffer_limit(Some(SESSION_BYTES));
            Box::new(Session { tls, read: Vec::new() })
        });
        Self { stream: Arc::new(stream), session }
    }

    pub(crate) fn stream(&self) -> &Arc<Descriptor> {
        &self.stream
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.session.is_some()
    }

    /// False in a forked child, where nothing may be done with it.
    pub(crate) fn is_ours(&self) -> bool {
        self.stream.is_ours()
    }

    /// Gives back memory that nothing lies in.
    pub(crate) fn shrink(&mut self) {
        if let Some(session) = &mut self.session {
            session.read = Vec::new();
        }
    }

    /// Appends what has arrived, about so many bytes at most.
    ///
    /// # Errors
    /// Of the system call; `InvalidData` if the bytes are not those of the session.
    pub(crate) fn read(&mut self, arrived: &mut Vec<u8>, bytes: usize) -> io::Result<Got> {
        let Self { stream, session } = self;
        let Some(session) = session else {
            if arrived.is_empty() && arrived.capacity() > 2 * bytes {
                // A system call fills all of it.
                *arrived = Vec::with_capacity(bytes);
            }
            arrived.reserve(bytes);
            let room = arrived.capacity() - arrived.len();
            let count = rustix::io::read(&**stream, spare_capacity(arrived))?;
            return Ok(if count == 0 {
                Got::End
            } else {
                Got::Some { may_have_more: count == room }
            });
        };
        session.read.clear();
        session.read.reserve_exact(READ_BYTES);
        let count = rustix::io::read(&**stream, spare_capacity(&mut session.read))?;
        if count == 0 {
            return Ok(Got::End);
        }
        let mut rest = &session.read[..];
        while !rest.is_empty() {
            if session.tls.read_tls(&mut rest)? == 0 {
                // The other side has said that nothing follows.
                return Ok(Got::End);
            }
            session
                .tls
                .process_new_packets()
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            take_plain(&mut session.tls, arrived)?;
        }
        Ok(Got::Some { may_have_more: count >= READ_BYTES })
    }

    /// Takes as many of these bytes as there is room for, and gives the kernel what it takes.
    ///
    /// # Errors
    /// Of the system call; `WouldBlock` if there is no room for any.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { stream, session } = self;
        let Some(session) = session else { return send(&**stream, bytes) };
        Self::write_tls(stream, &mut session.tls)?;
        let count = session.tls.writer().write(bytes)?;
        match Self::write_tls(stream, &mut session.tls) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Gives a session of TLS bytes that leave with the next [`flush`](Self::flush). There is room for a frame if nothing
    /// [waits](Self::has_waiting).
    ///
    /// # Errors
    /// `WriteZero` if there is not.
    pub(crate) fn encrypt(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.session {
            Some(session) => session.tls.writer().write_all(bytes),
            None => Err(ErrorKind::InvalidInput.into()),
        }
    }

    /// Takes as many as there is room for of `head`, and then of the bytes `from` to `from + bytes` of what lies at `stretches` of
    /// this process's memory: with TLS there may be none.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub(crate) fn send_from(
        &mut self,
        head: &[u8],
        stretches: &[Stretch],
        from: u64,
        bytes: u64,
    ) -> io::Result<usize> {
        match (bytes, self.is_tls()) {
            (0, _) => self.write(head),
            (_, false) => stream::send_from(&*self.stream, head, stretches, from, bytes),
            (_, true) => Err(ErrorKind::InvalidInput.into()),
        }
    }

    /// Whether bytes that were taken wait for the kernel.
    pub(crate) fn has_waiting(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.tls.wants_write())
    }

    /// Gives the kernel what was taken.
    ///
    /// # Errors
    /// Of the system call; `WouldBlock` if it does not take all.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Self { stream, session } = self;
        session.as_mut().map_or(Ok(()), |session| Self::write_tls(stream, &mut session.tls))
    }

    fn write_tls(stream: &Descriptor, tls: &mut rustls::Connection) -> io::Result<()> {
        while tls.wants_write() {
            tls.write_tls(&mut Raw(stream.as_fd()))?;
        }
        Ok(())
    }

    /// Sends nothing more.
    pub(crate) fn end_writing(&self) {
        let _ = rustix::net::shutdown(&*self.stream, Shutdown::Write);
    }

    /// Sends and receives nothing more.
    pub(crate) fn end(&self) {
        let _ = rustix::net::shutdown(&*self.stream, Shutdown::Both);
    }
}

/// Appends what a session has decrypted.
pub(crate) fn take_plain(tls: &mut rustls::Connection, arrived: &mut Vec<u8>) -> io::Result<()> {
    let mut reader = tls.reader();
    loop {
        match reader.fill_buf() {
            Ok([]) => return Ok(()),
            Ok(plain) => {
                arrived.extend_from_slice(plain);
                let count = plain.len();
                reader.consume(count);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Without a signal if the other side has closed: a program may not ignore it.
fn send(stream: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(stream, bytes, SendFlags::NOSIGNAL)?)
}

/// A socket as `rustls` wants it.
struct Raw<'a>(BorrowedFd<'a>);

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send(self.0, bytes)
    }

    /// All records with one system call.
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        Ok(sendmsg(self.0, parts, &mut nothing, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
