//! What the data half of a handle asks of its control half. `path/` and `control/` do not know each other, only these
//! traits: `control/` implements them, `open/` puts the halves together.

use std::sync::Arc;
#[cfg(feature = "net")]
use std::time::Duration;
use std::time::Instant;

use corewire_endpoint::Peer;
use corewire_endpoint::transport::{Gone, PeerViolation};
use corewire_layout::name::ChannelName;
use corewire_layout::segment::TypeTag;
use corewire_os::OsError;
use corewire_os::directory::Watch;
use corewire_os::event::Bell;
use corewire_ring::Lock;
use corewire_ring::broadcast::Members;
use corewire_ring::pair::{PeerParts, Visited};
use corewire_ring::window::WindowShared;
use corewire_transfer::Remote;

use crate::error::{ConnectError, JoinError, ReceiveError};
use crate::guard::Guarded;
use crate::host::ReceiverRing;
use crate::wait::Readiness;
use crate::window_handle::WindowHandle;

/// The control half of a channel's sender.
pub(crate) trait SenderHalf: Send + Sync {
    /// The channel.
    fn name(&self) -> &ChannelName;
    /// The receivers. The data thread locks them on its slow path.
    fn members(&self) -> &Guarded<Members>;
    /// Number of joined receivers.
    fn joined(&self) -> usize;
    /// Number of invited receivers that have not joined yet.
    fn invited(&self) -> usize;
    /// How long the sender may still wait for them, in nanoseconds.
    fn invitation_left_ns(&self) -> u64;
    /// Continues without them.
    fn cancel_invitations(&self);
    /// Removes receivers that were evicted, or whose memory held an impossible value.
    fn drop_rejected(&self);
    /// A function that gives the data thread notices, and wakes it.
    fn notifier(&self) -> Box<dyn Fn(u32) + Send + Sync>;
    /// Closes the channel's name and all links.
    fn close(&self);
}

impl Lock<Members> for dyn SenderHalf {
    fn with<R>(&self, job: impl FnOnce(&mut Members) -> R) -> R {
        self.members().with(job)
    }
}

/// The control half of a sender of a shared channel.
pub(crate) trait MemberHalf: Send + Sync {
    /// The channel.
    fn name(&self) -> &ChannelName;
    /// Number of joined receivers.
    fn joined(&self) -> usize;
    /// A function that gives the data thread notices, and wakes it.
    fn notifier(&self) -> Box<dyn Fn(u32) + Send + Sync>;
    /// Leaves the channel: another sender becomes its host.
    fn close(&self);
}

/// The control half of a receiver, whichever kind of channel it reads.
pub(crate) trait ReceiverHalf: Send + Sync {
    /// The channel.
    fn name(&self) -> &ChannelName;
    /// Which channel of that name it is.
    fn incarnation(&self) -> u128;
    /// The declared type of its messages.
    fn type_tag(&self) -> TypeTag;
    /// Sends the receiver notices, and wakes it.
    fn notify(&self, notices: u32);
    /// Leaves the channel.
    fn leave(&self);
    /// Leaves the channel, but keeps the row in the ring that the receiver reads now, where it holds messages. When the
    /// last of them is dropped, the ring calls [`Control::leave`](corewire_ring::Control::leave).
    fn leave_except_row(&self) {}
    /// The descriptor by which the receiver is woken.
    fn readiness(&self) -> Result<Readiness, JoinError>;

    /// The sender of `ring` is gone, and the ring read to its end. If the channel continues in another ring, replaces
    /// `ring` and returns true; waits for that for up to `limit_ns`, but not long. False if there is none yet.
    fn change_over(&self, ring: &mut ReceiverRing, limit_ns: u64) -> Result<bool, ReceiveError> {
        let _ = (ring, limit_ns);
        Err(ReceiveError::SenderDied)
    }

    /// Has `ring` ended, and the next ring is not there yet?
    fn is_between(&self, ring: &ReceiverRing) -> bool {
        let _ = ring;
        false
    }

    /// Returns `error`. Leaves the channel if the sender's memory held an impossible value.
    #[cold]
    #[inline(never)]
    fn failed(&self, error: ReceiveError) -> ReceiveError {
        if matches!(error, ReceiveError::Violation(_)) {
            self.leave();
        }
        error
    }
}

/// A peer of an endpoint that came or went, which the data thread must handle.
pub(crate) enum PeerChange {
    /// A peer has come, whose memory is reached by `remote`.
    Came { row: u32, name: ChannelName, incarnation: u128, parts: Box<PeerParts>, remote: Remote },
    /// A peer has gone. Its row stays reserved until [`EndpointHalf::free_row`]. `is_closed` says that its data thread
    /// has ended, too: it has published what it has read.
    Gone { row: u32, how: Gone, is_closed: bool },
}

/// What the control half has found out about endpoints of other hosts.
#[cfg(feature = "net")]
pub(crate) enum FarChange {
    /// There is a connection, which has this number.
    Opened { number: u64, opened: Box<corewire_net::open::Opened> },
    /// The peer of the connection with this number has made another one.
    Replaced { number: u64 },
    /// The peer for which this row is reserved, as the one of this number, is not connected to it.
    NotLinked { row: u32, place: u64, how: Gone },
}

/// The control half of an endpoint's connections to other hosts. Changes are announced by [`notice::PEERS`].
#[cfg(feature = "net")]
pub(crate) trait FarHalf: Send + Sync {
    /// The set of descriptors that the endpoint waits for, if it has connections.
    fn set(&self) -> &Arc<corewire_net::tcp::Set>;
    /// Where connections are taken.
    fn addresses(&self) -> Vec<std::net::SocketAddr>;
    /// Whether this is the name of this host.
    fn is_own(&self, host: &ChannelName) -> bool;
    /// Connects to an endpoint, unless it is connected, within this time or 10 s. Returns the number of the connection, and which
    /// endpoint of its name it is.
    fn connect(
        &self,
        target: &corewire_net::open::Target,
        within: Option<Duration>,
    ) -> Result<(u64, u128), ConnectError>;
    /// Makes a thread connect the endpoint for which a row is reserved, as the one of this number.
    fn link(
        &self,
        row: u32,
        place: u64,
        target: corewire_net::open::Target,
        incarnation: Option<u128>,
    );
    /// Takes what has changed since the last call.
    fn changes(&self) -> Vec<FarChange>;
    /// The connection with this number has ended: its peer may make another one.
    fn ended(&self, number: u64);
}

/// Bits of an endpoint's notices.
pub(crate) mod notice {
    /// A peer has come or gone.
    pub(crate) const PEERS: u32 = 1;
    /// This process was forked, and this is the child.
    pub(crate) const FORKED: u32 = 2;
    /// Another thread asked for the call to return.
    pub(crate) const INTERRUPTED: u32 = 4;
    /// An observer was opened: private counts must be stored where it sees them.
    pub(crate) const OBSERVED: u32 = 8;
    /// Requests were dropped without a reply.
    pub(crate) const DROPPED: u32 = 16;
    /// A loan was dropped unsent.
    pub(crate) const RETURNED: u32 = 32;
}

/// The control half of an endpoint.
pub(crate) trait EndpointHalf: Send + Sync {
    /// The endpoint.
    fn name(&self) -> &ChannelName;
    /// Which endpoint of that name it is.
    fn incarnation(&self) -> u128;
    /// Rings when a waiting data thread must check for work.
    fn bell(&self) -> &Arc<Bell>;
    /// True in a forked child.
    fn is_forked(&self) -> bool;
    /// The control half of its connections to other hosts.
    #[cfg(feature = "net")]
    fn far(&self) -> &Arc<dyn FarHalf>;
    /// Links this endpoint with the existing one of `name`. Returns its row, and which endpoint of that name it is.
    fn connect(&self, name: &ChannelName) -> Result<(u32, u128), ConnectError>;
    /// Reserves a row for the endpoint of this name, and incarnation if that is known, whether it exists or not; or returns
    /// the row that it has. Asks nobody.
    fn address(&self, name: &ChannelName, incarnation: Option<u128>) -> Result<u32, ConnectError>;
    /// Makes a thread link a row that was reserved so. The data thread hears that its peer has come, or has gone.
    fn link(&self, row: u32);
    /// Watches the runtime directory for new names.
    fn watch_names(&self) -> Result<Watch, OsError>;
    /// Waits until the directory has changed. False if the deadline passed.
    fn wait_for_names(&self, watch: &Watch, deadline: Option<Instant>) -> Result<bool, OsError>;
    /// Allocates a part of the endpoint's segment.
    fn allocate(&self, offset: u64, bytes: u64) -> Result<(), OsError>;
    /// Gives the data thread a notice, and wakes it, however it waits.
    fn notify(&self, notice: u32);
    /// Takes the peers that came or went since the last call.
    fn changes(&self) -> Vec<PeerChange>;

    /// Visits to exposed memory of peers that [`changes`](Self::changes) will tell of, or may.
    fn early_visits(&self) -> Vec<(Visited, Option<Remote>)>;
    /// Records that a request of `peer` gets no reply: the data thread tells the peer.
    fn drop_request(&self, peer: Peer, number: u64);
    /// Takes the requests that were dropped since the last call: their senders and numbers.
    fn dropped(&self) -> Vec<(Peer, u64)>;
    /// Ends the link to a peer that has sent an impossible value, or whose memory contains one.
    fn cut_off(&self, row: u32, violation: PeerViolation);
    /// The data thread has handled a peer's departure: another peer may have its row.
    fn free_row(&self, row: u32);
    /// Tells all peers that the endpoint leaves, and releases the name.
    fn close(&self);
}

/// Bits of a window's notices.
pub(crate) mod window_notice {
    /// The process that has the window has died.
    pub(crate) const DIED: u32 = 1;
    /// This process was forked, and this is the child.
    pub(crate) const FORKED: u32 = 2;
    /// Another thread asked for the call to return.
    pub(crate) const INTERRUPTED: u32 = 4;
    /// The window was closed.
    pub(crate) const CLOSED: u32 = 8;
    /// The connection to the living process that has the window is lost.
    pub(crate) const DETACHED: u32 = 16;
}

/// The control half of a window, of its owner or of another participant.
pub(crate) trait WindowHalf: Send + Sync {
    /// The window.
    fn name(&self) -> &ChannelName;
    /// What this thread shares with the control thread.
    fn shared(&self) -> &Arc<WindowShared>;
    /// The process that has the window; 0 if it is not known.
    fn owner_pid(&self) -> u32;
    /// What others need to attach to the window.
    fn handle(&self) -> WindowHandle;
    /// Closes the window, or detaches.
    fn close(&self);
}
