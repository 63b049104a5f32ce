//! The control path: names, joining, leaving, death. None of it runs while messages flow.
//!
//! | module | holds |
//! |---|---|
//! | [`hub`] | the one control thread of the process |
//! | [`domain`] | a runtime directory, opened; this process's socket in it |
//! | [`builder`] | creating a channel, joining one |
//! | [`connection`] | what a peer that connects may ask for |
//! | [`endpoint`] | an endpoint's side: who its peers are |
//! | [`owner`] | the sender's side: who has joined, left, died |
//! | [`attach`] | the receiver's side: joining, and the sender's death |
//! | [`levels`] | channels on two levels: relays, and those who follow them |
//! | [`look`] | asking the processes that have names, one or all at once |
//! | [`observer`] | looking on without joining |
//! | [`waiting`] | waiting for a name that nobody has yet |
//! | [`shared`] | channels of several senders: entering, letting in, taking over, watching who takes part |

pub(crate) mod attach;
pub(crate) mod builder;
pub(crate) mod connection;
pub(crate) mod domain;
pub(crate) mod endpoint;
pub(crate) mod hub;
pub(crate) mod levels;
pub(crate) mod look;
pub(crate) mod observer;
pub(crate) mod owner;
pub(crate) mod sample;
pub(crate) mod shared;
pub(crate) mod waiting;
