//! Opening: domains, builders, joining, names. It puts the halves of a handle together, the data half from `path/` and
//! the control half from `control/`.
//!
//! | module | holds |
//! |---|---|
//! | [`domain`] | opening a runtime directory |
//! | [`channel`] | creating a channel |
//! | [`receiver`] | the builder of a receiver |
//! | [`endpoint`] | creating an endpoint |
//! | [`listener`] | listeners, and connections to them |
//! | [`window`] | creating a window, and attaching to one |
//! | [`join`] | joining a channel that exists |
//! | [`waiting`] | joining a channel that does not exist yet |
//! | [`levels`] | channels on two levels: relays and their followers |

pub(crate) mod channel;
pub(crate) mod domain;
pub(crate) mod endpoint;
#[cfg(feature = "net")]
pub(crate) mod gateway;
pub(crate) mod join;
pub(crate) mod levels;
pub(crate) mod listener;
pub(crate) mod receiver;
pub(crate) mod waiting;
pub(crate) mod window;
