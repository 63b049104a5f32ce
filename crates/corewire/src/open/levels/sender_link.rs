//! A follower's link to the sender. Through it the follower learns of the sender's end, and the sender keeps the
//! messages that the follower's relay has not forwarded.

use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock, Weak};

use corewire_layout::frame::{Frame, Hello, Place, Welcome};
use corewire_layout::name::ChannelName;
use corewire_layout::segment::{FenceMode, Policy, RECEIVER_SEGMENT_BYTES, SenderHeader};
use corewire_layout::slot::ahead_of;
use corewire_os::fork::{Descriptor, InChild};
use corewire_os::sleep::Linux;
use corewire_os::socket::Socket;
use corewire_os::{OsError, process};
use corewire_ring::broadcast::{ReceiverParts, ReceiverShared, SenderWords};
use corewire_ring::doorbell::notice;
use corewire_ring::region::{Region, Slots};
use corewire_ring::sync::{AtomicU32, Ordering::Relaxed};

use crate::control::asking::{self, Wishes};
use crate::control::attach::open_sender;
use crate::control::domain::DomainHandle;
use crate::control::frames::next_descriptor;
use crate::control::hub::{Handler, Token};
use crate::error::JoinError;
use crate::host::{Hosted, ReceiverRing};
use crate::wait::cap_ns;

/// A follower's link to the sender.
pub(super) struct SenderLink {
    domain: DomainHandle,
    socket: Socket,
    life: Descriptor,
    tokens: OnceLock<[Token; 2]>,
    is_gone: AtomicU32,
    memory: Region,
    header: SenderHeader,
    /// For reading the rest when the sender is gone: a private page for cursors, and notices.
    own: Region,
    shared: Arc<ReceiverShared>,
}

impl SenderLink {
    /// Registers this process at the sender as a follower in `group` that has joined `relay`'s channel. Also returns
    /// the incarnation of the relay whose row in the ring is kept from now on, or 0 if there is none.
    pub(super) fn register(
        domain: &DomainHandle,
        name: &ChannelName,
        group: u32,
        relay: u128,
        wishes: Wishes,
    ) -> Result<(Arc<Self>, u128), JoinError> {
        let (socket, _) = asking::connect(domain, name, wishes.patience)?;
        let Wishes { waiter, type_tag, start, patience, .. } = wishes;
        let hello = Hello {
            name: name.clone(),
            start,
            waiter,
            place: Place::Follower(group),
            needs_fence: false,
            type_key: type_tag.key,
            socket: relay,
        };
        let own_life = process::own_life()?;
        asking::ask(&socket, name, &Frame::Hello(hello), &[own_life.as_fd()])?;
        let (kept, mut descriptors) = match asking::answer_within(&socket, name, patience)? {
            (Frame::Relayed { relay, .. }, descriptors) => (relay, descriptors),
            (Frame::Refused(reason), _) => return Err(asking::refusal(name, reason, type_tag)),
            (other, _) => return Err(asking::protocol(name, format!("{other:?}"))),
        };
        let missing = || asking::protocol(name, "too few descriptors".into());
        let segment = next_descriptor(&mut descriptors).ok_or_else(missing)?;
        let life = next_descriptor(&mut descriptors).ok_or_else(missing)?;
        let (memory, header) = open_sender(name, segment)?;
        let life = socket.peer_life(Some(life))?;
        let own = Region::private(RECEIVER_SEGMENT_BYTES);
        let own = own.ok_or(OsError { what: "allocate a page".into(), errno: 12 })?;
        let link = Arc::new(Self {
            domain: domain.clone(),
            socket,
            life,
            tokens: OnceLock::new(),
            is_gone: AtomicU32::new(0),
            memory,
            header,
            own,
            shared: Arc::default(),
        });
        link.watch()?;
        Ok((link, kept))
    }

    fn watch(self: &Arc<Self>) -> Result<(), OsError> {
        let in_child: Weak<dyn InChild> = Arc::downgrade(self) as Weak<dyn InChild>;
        corewire_os::fork::notify_in_child(in_child);
        let handler: Weak<dyn Handler> = Arc::downgrade(self) as Weak<dyn Handler>;
        let _ =
            self.tokens.set(self.domain.hub().watch_both(&self.socket, &self.life, &handler)?);
        Ok(())
    }

    fn unwatch(&self) {
        if let Some(tokens) = self.tokens.get() {
            self.domain.hub().forget_both(&self.socket, &self.life, *tokens);
        }
    }

    /// The incarnation of the sender's channel.
    pub(super) fn incarnation(&self) -> u128 {
        self.header.incarnation
    }

    /// True if the sender has sent message `sequence`: its slot contains that message or a later one. This is one load;
    /// a search for the head could be overtaken.
    pub(super) fn has_sent(&self, sequence: u64) -> bool {
        let slots = Slots::new(&self.memory, &self.header.geometry);
        ahead_of(slots.at(sequence).stamp().load(Relaxed), sequence) >= 0
    }

    /// True if the sender is gone or has closed the channel.
    pub(super) fn is_over(&self) -> bool {
        let closed = SenderWords::new(self.memory.clone()).closed().load(Relaxed);
        closed != 0 || self.is_gone.load(Relaxed) != 0
    }

    /// The sender's own ring from message `from` on. Only for a channel without a sender.
    pub(super) fn rest(&self, from: u64, wishes: Wishes) -> ReceiverRing {
        self.shared.notify(notice::PEER_GONE, &Linux::get());
        let parts = ReceiverParts {
            sender: self.memory.clone(),
            geometry: self.header.geometry,
            fence_mode: FenceMode::Fenced,
            policy: Policy::Block,
            own: self.own.clone(),
            hint: None,
            welcome: Welcome {
                row: 0,
                start: from,
                epoch: 0,
                incarnation: self.header.incarnation,
                hint: false,
                table: false,
                settled: 0,
                generation: 0,
            },
            shared: Arc::clone(&self.shared),
            many: None,
        };
        let mut ring = ReceiverRing::new(parts, Hosted::alone());
        ring.set_sleep_cap(cap_ns(wishes.sleep_cap));
        ring.look_on();
        ring
    }

    pub(super) fn leave(&self) {
        self.unwatch();
        // If this fails, the hang-up tells the sender.
        let _ = self.socket.send(&Frame::Leave, &[]);
    }
}

impl Handler for SenderLink {
    fn on_event(&self, _token: Token, _hung_up: bool) {
        // The sender sends no frames here, so any event means that it has gone.
        self.is_gone.store(1, Relaxed);
        self.unwatch();
    }
}

impl InChild for SenderLink {
    fn forked(&self) {
        self.shared.mark_forked();
    }
}

impl Drop for SenderLink {
    fn drop(&mut self) {
        self.unwatch();
    }
}
