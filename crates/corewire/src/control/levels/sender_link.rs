//! A follower's link to the sender: it sees the sender's life, and has the sender keep what its relay has
//! not sent on.

use std::sync::{Arc, OnceLock, Weak};

use corewire_layout::frame::{Frame, Place, Welcome};
use corewire_layout::name::ChannelName;
use corewire_layout::segment::{FenceMode, Policy, RECEIVER_SEGMENT_BYTES, SenderHeader};
use corewire_os::OsError;
use corewire_os::fork::{Descriptor, InChild};
use corewire_os::sleep::Linux;
use corewire_os::socket::Socket;
use corewire_ring::broadcast::{ReceiverParts, ReceiverShared, SenderWords, notice};
use corewire_ring::region::Region;
use corewire_ring::sync::{AtomicU32, Ordering::Relaxed};

use crate::control::attach::{self, Answer, Relayed, Wishes, open_sender};
use crate::control::domain::DomainInner;
use crate::control::hub::{Handler, Token};
use crate::error::JoinError;
use crate::path::receive::{Copying, ReceiverControl, ReceiverKernel, Ring};
use crate::wait::cap_ns;

/// The link.
pub(super) struct SenderLink {
    domain: Arc<DomainInner>,
    socket: Socket,
    life: Descriptor,
    tokens: OnceLock<[Token; 2]>,
    is_gone: AtomicU32,
    memory: Region,
    header: SenderHeader,
    /// For reading the rest when the sender is gone: a page that nobody else sees, and notices.
    own: Region,
    shared: Arc<ReceiverShared>,
}

impl SenderLink {
    /// Has the sender count this process in as a follower in `group`. Returns the incarnation of the
    /// relay's channel whose place in the ring is kept from here on, too; 0 if there is none.
    pub(super) fn take(
        domain: &Arc<DomainInner>,
        name: &ChannelName,
        group: u32,
        wishes: Wishes,
    ) -> Result<(Arc<Self>, u128), JoinError> {
        let control = ReceiverControl::new(wishes.wait);
        let place = Place::Follower(group);
        let Answer::Relayed(Relayed { socket, relay, segment, life }) =
            attach::attach::<Copying>(domain, name, place, wishes, control)?
        else {
            return Err(attach::protocol(name, "as if it had one level".into()));
        };
        let (memory, header) = open_sender(name, segment)?;
        let life = socket.peer_life(Some(life))?;
        let own = Region::private(RECEIVER_SEGMENT_BYTES);
        let own = own.ok_or(OsError { what: "have a page".into(), errno: 12 })?;
        let link = Arc::new(Self {
            domain: Arc::clone(domain),
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
        Ok((link, relay))
    }

    fn watch(self: &Arc<Self>) -> Result<(), OsError> {
        let in_child: Weak<dyn InChild> = Arc::downgrade(self) as Weak<dyn InChild>;
        corewire_os::fork::tell_in_child(in_child);
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

    /// Which channel it is.
    pub(super) fn incarnation(&self) -> u128 {
        self.header.incarnation
    }

    /// Is the sender gone, or has it closed the channel?
    pub(super) fn is_over(&self) -> bool {
        let closed = SenderWords::new(self.memory.clone()).closed().load(Relaxed);
        closed != 0 || self.is_gone.load(Relaxed) != 0
    }

    /// The sender's own ring from message `from` on, when nobody sends there any more.
    pub(super) fn rest(&self, from: u64, wishes: Wishes) -> Ring {
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
        let mut ring = Ring::new(parts, ReceiverKernel::new(ReceiverControl::new(wishes.wait)));
        ring.set_sleep_cap(cap_ns(wishes.sleep_cap));
        ring.look_on();
        ring
    }

    pub(super) fn leave(&self) {
        self.unwatch();
        // If it does not get through, the hang-up says as much.
        let _ = self.socket.send(&Frame::Leave, &[]);
    }
}

impl Handler for SenderLink {
    fn on_event(&self, _token: Token, _hung_up: bool) {
        // The sender has nothing to say here: it has gone.
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
