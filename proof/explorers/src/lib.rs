//! What is without input and output, in every order of events that can be, or in random ones.
//!
//! | module | explores |
//! |---|---|
//! | [`senders`] | the protocol of several senders in one ring: every state of small worlds, a death at every step |
//! | [`circuits`] | monitors and programs: every state of small worlds, random large ones |
//! | [`groups`] | members of groups, and ranks of computations: every order of messages and deaths |
//! | [`matching`] | random programs of endpoint calls, beside a model of which receive gets which message |

#![forbid(unsafe_code)]

pub mod circuits;
pub mod groups;
pub mod matching;
pub mod senders;
