//! What every header begins with.

/// The text.
pub(super) const TEXT: &str = include_str!("support.h");
