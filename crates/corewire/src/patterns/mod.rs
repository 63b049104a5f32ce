//! Patterns that programs ask for by name, made of channels and endpoints.
//!
//! | module | holds |
//! |---|---|
//! | [`latest`] | a value of one writer, of which readers want the newest |
//! | [`queue`] | jobs that are handed out to workers |

pub(crate) mod latest;
pub(crate) mod queue;
