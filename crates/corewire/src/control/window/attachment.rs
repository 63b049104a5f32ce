//! The side of a participant that is not the owner: attaching, and learning of the owner's end.

use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use corewire_layout::frame::{Frame, WindowFacts};
use corewire_layout::message_type::TypeTag;
use corewire_layout::name::{ChannelName, NameKind, NameRecord, SocketName};
use corewire_layout::window::{Rights, book_bytes};
use corewire_os::OsError;
use corewire_os::fork::{Descriptor, InChild};
use corewire_os::memory::{Segment, SegmentError};
use corewire_os::process::{self, effective_uid};
use corewire_os::sleep::Linux;
use corewire_os::socket::{ReceiveError, Socket};
use corewire_ring::region::Region;
use corewire_ring::window::{Book, Participant, Seat, WindowShared};

use crate::control::ENDS_WITHIN;
use crate::control::asking::{answer_within, ask, connect_to, protocol, refusal};
use crate::control::domain::DomainHandle;
use crate::control::frames::next_descriptor;
use crate::control::hub::{Failures, Handler, Token};
use crate::error::AttachError;
use crate::halves::{WindowHalf, window_notice as notice};
use crate::tell::tell;
use crate::wait::Patience;
use crate::window_handle::WindowHandle;

/// A participant's link to the window's owner.
pub(crate) struct Attachment {
    handle: WindowHandle,
    shared: Arc<WindowShared>,
    socket: Socket,
    life: Descriptor,
    tokens: OnceLock<[Token; 2]>,
    unread: Failures,
    owner_pid: u32,
    domain: DomainHandle,
}

/// What attaching gives.
pub(crate) struct Attached {
    pub(crate) half: Arc<Attachment>,
    pub(crate) facts: WindowFacts,
    pub(crate) data: Region,
    /// Nothing for a guest.
    pub(crate) participant: Option<Participant>,
}

/// The record of the window `name`, whose process may have died.
fn record_of(domain: &DomainHandle, name: &ChannelName) -> Result<NameRecord, AttachError> {
    let not_found = || AttachError::NotFound(name.clone());
    let record = domain.directory.look_up(name)?.ok_or_else(not_found)?;
    if record.kind != NameKind::Window {
        return Err(AttachError::NotAWindow(name.clone()));
    }
    Ok(record)
}

/// The handle of the existing window `name`.
pub(crate) fn handle_of(
    domain: &DomainHandle,
    name: &ChannelName,
) -> Result<WindowHandle, AttachError> {
    if domain.is_forked() {
        return Err(AttachError::Forked);
    }
    let NameRecord { socket, incarnation, .. } = record_of(domain, name)?;
    if incarnation == 0 || !domain.directory.is_alive(socket)? {
        return Err(AttachError::NotFound(name.clone()));
    }
    Ok(WindowHandle { socket: socket.0, incarnation, name: name.clone() })
}

/// Attaches to the window `name`; `which` is its incarnation, and the socket of its process, if they are known.
pub(crate) fn attach(
    domain: &DomainHandle,
    name: &ChannelName,
    which: Option<(SocketName, u128)>,
    rights: Rights,
    patience: Patience,
) -> Result<Attached, AttachError> {
    if domain.is_forked() {
        return Err(AttachError::Forked);
    }
    let not_found = || AttachError::NotFound(name.clone());
    let (process, incarnation) = match which {
        Some(which) => which,
        None => (record_of(domain, name)?.socket, 0),
    };
    let socket = connect_to(domain, name, process, patience)?.ok_or_else(not_found)?;
    let peer = socket.peer()?;
    if peer.uid != domain.directory.owner() {
        let (owner, user) = (peer.uid, effective_uid());
        return Err(AttachError::NotPermitted { name: name.clone(), owner, user });
    }
    let is_guest = peer.trusted().is_none();
    let own_life = process::own_life()?;
    let request = Frame::Attach { name: name.clone(), rights, incarnation };
    ask(&socket, name, &request, &[own_life.as_fd()])?;
    let (frame, descriptors) = answer_within(&socket, name, patience)?;
    let (facts, row, generation, incarnation) = match frame {
        Frame::Attached { window, row, generation, incarnation } => {
            (window, row, generation, incarnation)
        }
        Frame::Refused(reason) => return Err(refusal(name, reason, TypeTag::default()).into()),
        other => return Err(protocol(name, format!("{other:?}")).into()),
    };
    if facts.rights != rights || row.is_none() != is_guest {
        let found = format!("with the rights {} and row {row:?}", facts.rights);
        return Err(protocol(name, found).into());
    }
    if facts.bytes == 0 {
        return Err(protocol(name, "with 0 bytes".into()).into());
    }
    let seat = row.map(|row| Seat { row, generation });
    let memory = Memory::check(name, facts, seat, descriptors)?;
    let life = socket.peer_life(memory.life)?;
    let handle = WindowHandle { socket: process.0, incarnation, name: name.clone() };
    let shared = Arc::new(WindowShared::default());
    let half = Arc::new(Attachment {
        handle,
        shared: Arc::clone(&shared),
        socket,
        life,
        tokens: OnceLock::new(),
        unread: Failures::default(),
        owner_pid: peer.pid,
        domain: domain.clone(),
    });
    half.watch()?;
    let participant = memory.book.zip(seat);
    let participant = participant.map(|(book, seat)| Participant::new(book, seat, shared));
    Ok(Attached { half, facts, data: memory.data, participant })
}

/// Attaches to the window `name` as soon as it exists.
pub(crate) fn attach_when_created(
    domain: &DomainHandle,
    name: &ChannelName,
    rights: Rights,
    timeout: Option<Duration>,
) -> Result<Attached, AttachError> {
    if domain.is_forked() {
        return Err(AttachError::Forked);
    }
    let patience = timeout.map_or(Patience::Forever, Patience::until);
    // Before the first attempt: a window created after it changes a file.
    let watch = domain.directory.watch()?;
    loop {
        match attach(domain, name, None, rights, patience) {
            Err(AttachError::NotFound(name)) => {
                if !watch.wait_alone(patience.deadline())? {
                    let after = timeout.unwrap_or_default();
                    return Err(AttachError::NotCreated { name, after });
                }
            }
            other => return other,
        }
    }
}

/// What an owner has sent, mapped.
struct Memory {
    data: Region,
    book: Option<Book>,
    life: Option<Descriptor>,
}

impl Memory {
    fn check(
        name: &ChannelName,
        facts: WindowFacts,
        seat: Option<Seat>,
        mut descriptors: Vec<Descriptor>,
    ) -> Result<Self, AttachError> {
        let bad = |error: SegmentError| AttachError::Segment { name: name.clone(), error };
        let missing = || AttachError::from(protocol(name, "with too few descriptors".into()));
        let mut next = || next_descriptor(&mut descriptors).ok_or_else(missing);
        // Others may write the data, so that it need not be sealed against that. Nobody can resize it.
        let data = Segment::adopt(next()?, true).map_err(bad)?;
        let data = data.map_window(facts.bytes, facts.rights.can_write()).map_err(bad)?;
        let Some(seat) = seat else { return Ok(Self { data, book: None, life: None }) };
        if seat.row >= facts.participants_max {
            return Err(protocol(name, format!("with row {}", seat.row)).into());
        }
        let book = Segment::adopt(next()?, true).map_err(bad)?;
        let book = book.map_writable(book_bytes(facts.participants_max)).map_err(bad)?;
        let book = Some(Book::new(book, facts.participants_max));
        Ok(Self { data, book, life: next().ok() })
    }
}

impl Attachment {
    fn watch(self: &Arc<Self>) -> Result<(), OsError> {
        let in_child: Weak<dyn InChild> = Arc::downgrade(self) as Weak<dyn InChild>;
        corewire_os::fork::notify_in_child(in_child);
        let handler: Weak<dyn Handler> = Arc::downgrade(self) as Weak<dyn Handler>;
        let hub = self.domain.hub();
        let _ = self.tokens.set(hub.watch_both(&self.socket, &self.life, &handler)?);
        Ok(())
    }

    fn unwatch(&self) {
        if let Some(tokens) = self.tokens.get() {
            self.domain.hub().forget_both(&self.socket, &self.life, *tokens);
        }
    }

    /// The owner has closed the window or has died, or cannot be reached any more.
    fn gone(&self, notice: u32) {
        self.unwatch();
        self.shared.notify(notice, &Linux::get());
        tell!(info, "the owner of a window is gone", window = self.handle.name);
    }
}

impl Handler for Attachment {
    fn on_event(&self, token: Token, _hung_up: bool) {
        match self.socket.receive() {
            Ok((Frame::Leave, _)) => self.gone(notice::CLOSED),
            _ if self.tokens.get().is_some_and(|tokens| tokens[1] == token) => {
                self.gone(notice::DIED);
            }
            Err(ReceiveError::Nothing) => {}
            // A failed call says nothing about the owner.
            Err(ReceiveError::Os(_)) if !self.unread.add() => {}
            _ if process::is_ending(&self.life, self.owner_pid, ENDS_WITHIN) => {
                self.gone(notice::DIED);
            }
            // It lives on: it has replaced its program, or something has shut the connection down.
            _ => self.gone(notice::DETACHED),
        }
    }
}

impl InChild for Attachment {
    fn forked(&self) {
        self.shared.mark(notice::FORKED);
    }
}

impl WindowHalf for Attachment {
    fn name(&self) -> &ChannelName {
        &self.handle.name
    }

    fn shared(&self) -> &Arc<WindowShared> {
        &self.shared
    }

    fn owner_pid(&self) -> u32 {
        self.owner_pid
    }

    fn handle(&self) -> WindowHandle {
        self.handle.clone()
    }

    fn close(&self) {
        self.unwatch();
        // If this fails, the hang-up tells the owner.
        let _ = self.socket.send(&Frame::Leave, &[]);
        self.domain.end();
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.unwatch();
    }
}
