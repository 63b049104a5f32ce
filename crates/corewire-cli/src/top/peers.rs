//! Peers of endpoints, and what goes to them and comes from them.

use corewire::{FarPeerView, PeerView};
use serde::Serialize;

use super::counting::per_second;

/// A peer of an endpoint, with the rates since the look before, as the endpoint sees them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) sent: Flow,
    pub(crate) received: Flow,
    /// Messages of the peer that the endpoint keeps.
    pub(crate) kept: u64,
    pub(crate) kept_bytes: u64,
}

/// A peer of an endpoint on another host, with the rates since the look before, as the endpoint sees them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct FarPeer {
    pub(crate) name: String,
    /// `tcp` or `tls`.
    pub(crate) way: String,
    pub(crate) sent: Flow,
    pub(crate) received: Flow,
    pub(crate) round_trip_us: u64,
    /// Bytes that its host has not acknowledged.
    pub(crate) unsent_bytes: u64,
    /// How often such an endpoint was connected before.
    pub(crate) reconnects: u64,
}

/// Messages in one direction, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Flow {
    pub(crate) messages_per_s: f64,
    pub(crate) bytes_per_s: f64,
}

impl FarPeer {
    pub(super) fn between(before: Option<(&FarPeerView, f64)>, now: &FarPeerView) -> Self {
        let flow = |of: fn(&FarPeerView) -> (u64, u64)| {
            Flow::between(before.map(|(before, seconds)| (of(before), seconds)), of(now))
        };
        Self {
            name: now.name.clone(),
            way: now.way.clone(),
            sent: flow(|peer| (peer.sent_messages, peer.sent_bytes)),
            received: flow(|peer| (peer.received_messages, peer.received_bytes)),
            round_trip_us: now.round_trip_us,
            unsent_bytes: now.unsent_bytes,
            reconnects: now.reconnects,
        }
    }
}

impl Flow {
    /// Of messages and bytes, of which there were so many before, so many seconds ago.
    fn between(before: Option<((u64, u64), f64)>, now: (u64, u64)) -> Self {
        let Some((before, seconds)) = before else { return Self::default() };
        Self {
            messages_per_s: per_second(before.0, now.0, seconds),
            bytes_per_s: per_second(before.1, now.1, seconds),
        }
    }
}

impl Peer {
    pub(super) fn between(before: Option<(&PeerView, f64)>, now: &PeerView) -> Self {
        let flow = |of: fn(&PeerView) -> (u64, u64)| {
            Flow::between(before.map(|(before, seconds)| (of(before), seconds)), of(now))
        };
        Self {
            name: now.name.clone(),
            pid: now.pid,
            sent: flow(|peer| (peer.sent_messages, peer.sent_bytes)),
            received: flow(|peer| (peer.received_messages, peer.received_bytes)),
            kept: now.kept_messages,
            kept_bytes: now.kept_bytes,
        }
    }
}
