//! What the engine calls a message, and what its frames say.

use corewire_endpoint::{Envelope, Space, Wants};
use corewire_layout::net::{FrameKind, FrameWants, Header};

/// The message at the head, of which so many bytes were taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    pub(super) envelope: Envelope,
    pub(super) total: u64,
    pub(super) taken: u64,
}

impl Message {
    /// That begins with this header.
    pub(super) fn of(header: &Header) -> Self {
        let Header { kind, wants, bytes, number, immediate, total } = *header;
        let space = match kind {
            FrameKind::Untagged => Space::Untagged,
            FrameKind::Request => Space::Request,
            FrameKind::Reply => Space::Reply,
            FrameKind::Dropped => Space::Dropped,
            FrameKind::Acknowledgement => Space::Acknowledgement,
            FrameKind::Offer => Space::Offer,
            FrameKind::Notice => Space::Notice,
            FrameKind::Data => Space::Data,
            // The others are no messages.
            _ => Space::Tagged,
        };
        let wants = match wants {
            FrameWants::Nothing => Wants::Nothing,
            FrameWants::Delivery => Wants::Delivery,
            FrameWants::Match => Wants::Match,
        };
        let envelope = Envelope { space, tag: number, immediate, wants };
        Self { envelope, total: total.unwrap_or(bytes), taken: 0 }
    }
}

/// The header of the next frame of a message.
pub(super) fn header_of(envelope: &Envelope, total: u64, sent: u64, bytes: u64) -> Header {
    let Envelope { space, tag, immediate, wants } = *envelope;
    let kind = match space {
        Space::Tagged => FrameKind::Tagged,
        Space::Untagged => FrameKind::Untagged,
        Space::Request => FrameKind::Request,
        Space::Reply => FrameKind::Reply,
        Space::Dropped => FrameKind::Dropped,
        Space::Acknowledgement => FrameKind::Acknowledgement,
        Space::Offer => FrameKind::Offer,
        Space::Notice => FrameKind::Notice,
        Space::Data => FrameKind::Data,
    };
    if sent > 0 {
        return Header::new(FrameKind::Rest, sent, bytes);
    }
    let wants = match wants {
        Wants::Nothing => FrameWants::Nothing,
        Wants::Delivery => FrameWants::Delivery,
        Wants::Match => FrameWants::Match,
    };
    let total = (total > bytes).then_some(total);
    Header { wants, immediate, total, ..Header::new(kind, tag, bytes) }
}
