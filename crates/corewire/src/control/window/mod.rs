//! A window's control half: who has attached to it, and who has gone.
//!
//! The owner's control thread gives each participant a row of the window's book, and hands out descriptors: of the data,
//! and of the book. A participant without the right to write gets a read-only descriptor of the data; where no other
//! process may write, the kernel gives nobody a writable map. A guest gets the data alone.
//!
//! Each side watches the other's socket and process. Only the kernel says that a process has ended; a hang-up says that a
//! participant has detached. (A process closes its sockets after its last thread has left its memory.) Then the owner's
//! control thread frees what that participant had: see `corewire_ring::window`.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the owner's side |
//! | `attachment.rs` | the side of the others |
//! | `observer.rs` | looking on without attaching |

mod attachment;
pub(crate) mod observer;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};

use corewire_layout::frame::{Frame, Reason, WindowFacts};
use corewire_layout::name::ChannelName;
use corewire_layout::window::Rights;
use corewire_os::OsError;
use corewire_os::directory::Claim;
use corewire_os::fork::{Descriptor, InChild};
use corewire_os::memory::Segment;
use corewire_os::process;
use corewire_os::sleep::Linux;
use corewire_os::socket::{Peer, ReceiveError, Socket};
use corewire_ring::window::{Roster, Seat, WindowShared};

pub(crate) use self::attachment::{Attached, attach, attach_when_created, handle_of};
use crate::control::domain::DomainHandle;
use crate::control::frames::{next_descriptor, resources};
use crate::control::hub::{Failures, Handler, Token};
use crate::control::reachable::{Kind, Reachable, Visitor};
use crate::guard::lock;
use crate::halves::{WindowHalf, window_notice as notice};
use crate::tell::tell;
use crate::window_handle::WindowHandle;

/// The owner's control half of a window.
pub(crate) struct WindowControl {
    this: Weak<Self>,
    name: ChannelName,
    incarnation: u128,
    /// What others are told: the most that they may do.
    facts: WindowFacts,
    data: Segment,
    /// The data, for those who only read it.
    read_only: Descriptor,
    book: Segment,
    shared: Arc<WindowShared>,
    domain: DomainHandle,
    state: Mutex<State>,
}

struct State {
    claim: Option<Claim>,
    roster: Roster,
    links: BTreeMap<Token, Link>,
    is_closed: bool,
}

/// A link to a participant. It is known by the tokens of its socket and of its process.
#[derive(Clone)]
struct Link {
    /// Its row; a guest has none.
    seat: Option<Seat>,
    uid: u32,
    socket: Arc<Socket>,
    life: Arc<Descriptor>,
    tokens: [Token; 2],
    unread: Arc<Failures>,
}

/// The parts of a window's control half.
pub(crate) struct WindowParts {
    pub(crate) name: ChannelName,
    pub(crate) incarnation: u128,
    pub(crate) facts: WindowFacts,
    pub(crate) data: Segment,
    pub(crate) read_only: Descriptor,
    pub(crate) book: Segment,
    pub(crate) roster: Roster,
    pub(crate) shared: Arc<WindowShared>,
    pub(crate) domain: DomainHandle,
}

impl WindowControl {
    pub(crate) fn new(parts: WindowParts) -> Arc<Self> {
        let WindowParts { name, incarnation, facts, data, read_only, book, roster, shared, domain } =
            parts;
        let state = State { claim: None, roster, links: BTreeMap::new(), is_closed: false };
        let control = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            name,
            incarnation,
            facts,
            data,
            read_only,
            book,
            shared,
            domain,
            state: Mutex::new(state),
        });
        let in_child: Weak<dyn InChild> = control.this.clone();
        corewire_os::fork::notify_in_child(in_child);
        control
    }

    /// The window's name.
    pub(crate) fn name_of(&self) -> &ChannelName {
        &self.name
    }

    /// Keeps the claim on the window's name until the window is closed.
    pub(crate) fn keep_claim(&self, claim: Claim) {
        lock(&self.state).claim = Some(claim);
    }

    /// Admits a participant, or returns the reason for its refusal.
    fn admit(
        &self,
        (rights, incarnation): (Rights, u128),
        socket: &Arc<Socket>,
        peer: Peer,
        mut descriptors: Vec<Descriptor>,
    ) -> Result<(), Reason> {
        let mut state = lock(&self.state);
        if state.is_closed || ![0, self.incarnation].contains(&incarnation) {
            return Err(Reason::NotFound);
        }
        let is_guest = peer.trusted().is_none();
        let given = if is_guest { self.facts.rights.min(Rights::READ) } else { self.facts.rights };
        // Every participant can read.
        if !rights.include(Rights::READ) || !given.include(rights) {
            return Err(Reason::Rights { asked: rights, given });
        }
        let max = self.facts.participants_max;
        let full = Reason::WindowFull { max: max.into() };
        // A guest takes no row, but descriptors of this process. One user's guests cannot exclude the others.
        let guests = state.links.values().filter(|link| link.seat.is_none());
        let of_user = guests.clone().filter(|link| link.uid == peer.uid).count() / 2;
        let limits = [(of_user, GUESTS_OF_USER_MAX), (guests.count() / 2, GUESTS_MAX)];
        if let Some((_, max)) = limits.into_iter().find(|(count, max)| is_guest && count >= max) {
            return Err(Reason::GuestsFull { user: peer.uid, max: max as u64 });
        }
        let life = socket
            .peer_life(next_descriptor(&mut descriptors))
            .map_err(|error| resources(&error))?;
        let seat = match is_guest {
            true => None,
            false => Some(state.roster.admit(peer.pid).ok_or(full)?),
        };
        let linked = self.welcome(&mut state, rights, seat, peer.uid, socket, life);
        if let (Err(_), Some(seat)) = (&linked, seat) {
            state.roster.remove(seat, &Linux::get());
        }
        linked.map_err(|error| resources(&error))?;
        drop(state);
        tell!(info, "a participant attached", window = self.name, pid = peer.pid);
        Ok(())
    }

    /// Watches a participant, and answers it.
    fn welcome(
        &self,
        state: &mut State,
        rights: Rights,
        seat: Option<Seat>,
        uid: u32,
        socket: &Arc<Socket>,
        life: Descriptor,
    ) -> Result<(), OsError> {
        let own_life = process::own_life()?;
        let handler: Weak<dyn Handler> = self.this.clone();
        let tokens = self.domain.hub().watch_both(&**socket, &life, &handler)?;
        let answer = Frame::Attached {
            window: WindowFacts { rights, ..self.facts },
            row: seat.map(|seat| seat.row),
            generation: seat.map_or(0, |seat| seat.generation),
            incarnation: self.incarnation,
        };
        let data = if rights.can_write() { self.data.as_fd() } else { self.read_only.as_fd() };
        let descriptors = [data, self.book.as_fd(), own_life.as_fd()];
        let descriptors = if seat.is_some() { &descriptors[..] } else { &descriptors[..1] };
        if let Err(error) = socket.send(&answer, descriptors) {
            self.domain.hub().forget_both(&**socket, &life, tokens);
            return Err(error);
        }
        let (socket, life) = (Arc::clone(socket), Arc::new(life));
        let link = Link { seat, uid, socket, life, tokens, unread: Arc::default() };
        for token in tokens {
            state.links.insert(token, link.clone());
        }
        Ok(())
    }

    /// Ends a participant's link, and frees what it had.
    fn end(&self, state: &mut State, link: &Link) {
        self.unlink(state, link);
        if let Some(seat) = link.seat {
            state.roster.remove(seat, &Linux::get());
        }
    }

    fn unlink(&self, state: &mut State, link: &Link) {
        self.domain.hub().forget_both(&*link.socket, &*link.life, link.tokens);
        for token in link.tokens {
            state.links.remove(&token);
        }
    }
}

/// Maximum number of guests of one user, and of all foreign users.
const GUESTS_OF_USER_MAX: usize = 64;
const GUESTS_MAX: usize = 192;

impl Reachable for WindowControl {
    fn serve(&self, at: &dyn Visitor, request: Frame, descriptors: Vec<Descriptor>) -> bool {
        match request {
            Frame::Attach { rights, incarnation, .. } => {
                // From here on the window watches the socket.
                at.unwatch();
                let wish = (rights, incarnation);
                match self.admit(wish, at.socket(), at.peer(), descriptors) {
                    Ok(()) => false,
                    Err(reason) => {
                        tell!(
                            info,
                            "an attachment was refused",
                            window = self.name,
                            reason = reason
                        );
                        at.refuse(reason)
                    }
                }
            }
            // It is observed.
            _ => {
                let book = [self.book.as_fd()];
                let descriptors = if at.is_foreign() { &[][..] } else { &book };
                at.answered(at.socket().send(&Frame::ObservedWindow(self.facts), descriptors))
            }
        }
    }
}

impl Handler for WindowControl {
    fn on_event(&self, token: Token, _hung_up: bool) {
        let mut state = lock(&self.state);
        let Some(link) = state.links.get(&token).cloned() else { return };
        let is_over = token == link.tokens[1]
            || match link.socket.receive() {
                Err(ReceiveError::Nothing) => false,
                // A failed call says nothing about the participant.
                Err(ReceiveError::Os(_)) => link.unread.add(),
                // It detaches, or has hung up, or does not speak this protocol.
                _ => true,
            };
        if is_over {
            self.end(&mut state, &link);
            drop(state);
            tell!(info, "a participant has gone", window = self.name);
        }
    }
}

impl InChild for WindowControl {
    fn forked(&self) {
        self.shared.mark(notice::FORKED);
    }
}

impl WindowHalf for WindowControl {
    fn name(&self) -> &ChannelName {
        &self.name
    }

    fn shared(&self) -> &Arc<WindowShared> {
        &self.shared
    }

    fn owner_pid(&self) -> u32 {
        process::pid()
    }

    fn handle(&self) -> WindowHandle {
        let socket = self.domain.socket_name().map_or(0, |name| name.0);
        WindowHandle { socket, incarnation: self.incarnation, name: self.name.clone() }
    }

    fn close(&self) {
        if self.domain.is_forked() {
            return;
        }
        self.domain.remove(Kind::Window, &self.name, self);
        let mut state = lock(&self.state);
        state.is_closed = true;
        if let Some(claim) = state.claim.take() {
            claim.release(&self.domain.directory);
        }
        let links: Vec<Link> = state
            .links
            .iter()
            .filter(|(token, link)| **token == link.tokens[0])
            .map(|(_, link)| link.clone())
            .collect();
        for link in links {
            // Nothing is freed: who waits for the lock gets an error, and not the lock of one that still has it.
            self.unlink(&mut state, &link);
            // If the frame does not get through, the hang-up tells the participant.
            let _ = link.socket.send(&Frame::Leave, &[]);
        }
        drop(state);
        self.domain.end();
    }
}
