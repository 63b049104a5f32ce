//! The request whose handler runs.

use std::time::Instant;

use super::client_id::ClientId;
use crate::tag::Tag;

/// What a reply is about. There is one at a time, in what a reply borrows.
pub(super) struct Asked {
    pub(super) client: ClientId,
    pub(super) tag: Tag,
    /// When the request came, if it is timed.
    pub(super) began: Option<Instant>,
    pub(super) is_error: bool,
    pub(super) is_owed: bool,
}

impl Asked {
    /// No request.
    pub(super) const NONE: Self = Self {
        client: ClientId { index: 0, generation: 0 },
        tag: Tag(0),
        began: None,
        is_error: false,
        is_owed: false,
    };
}
