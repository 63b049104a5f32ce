//! Messages that take several frames: on both sides their parts follow each other. Only pieces of messages that were asked
//! for may lie between them, and what concerns those.

use corewire_endpoint::transport::PeerViolation;
use corewire_layout::net::{FrameKind, Header};

/// Whether messages that take several frames are whole.
#[derive(Debug, Default)]
pub(super) struct Whole {
    /// The length of such a message, and what is left of it; 0 between messages.
    total: u64,
    left: u64,
    /// Whether a program has sent it.
    is_message: bool,
}

impl Whole {
    /// Whether no message has come in part.
    #[inline]
    pub(super) const fn is_between(&self) -> bool {
        self.left == 0
    }

    /// A frame begins.
    pub(super) fn begin(&mut self, header: &Header) -> Result<(), PeerViolation> {
        if matches!(header.kind, FrameKind::Piece | FrameKind::Pull) {
            return Ok(());
        }
        if header.kind != FrameKind::Rest {
            if self.left > 0 {
                return refuse("what is left of a message before the next one", self.left);
            }
            if let Some(total) = header.total {
                (self.total, self.left) = (total, total - header.bytes);
            }
            self.is_message = !matches!(
                header.kind,
                FrameKind::Offer
                    | FrameKind::Notice
                    | FrameKind::Acknowledgement
                    | FrameKind::Dropped
            );
            return Ok(());
        }
        if header.bytes > self.left || header.number != self.total - self.left {
            return refuse("the offset of a part of a message", header.number);
        }
        self.left -= header.bytes;
        Ok(())
    }

    /// Whether the end of this frame is the end of a message that a program has sent, also of one that was offered.
    pub(super) fn end(&self, header: &Header) -> bool {
        match header.kind {
            FrameKind::Piece => header.immediate == Some(header.bytes),
            FrameKind::Pull => false,
            _ => self.left == 0 && self.is_message,
        }
    }
}

/// The other side breaks the rules.
pub(super) fn refuse<T>(word: &'static str, found: u64) -> Result<T, PeerViolation> {
    Err(PeerViolation { word, found, position: 0 })
}
