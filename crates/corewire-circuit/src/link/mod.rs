//! Links: what joins a program and its monitor, or two monitors.
//!
//! | module | holds |
//! |---|---|
//! | [`socket`] | the lanes of a link that are sockets |
//! | [`ring`] | the data lane of a link that is a ring |
//! | [`capability`] | capabilities of messages, which travel in the control lane |
//! | [`sent`] | where descriptors that nobody takes are closed |
//! | [`attach`] | how a program becomes a neighbour of its monitor |
//! | [`control`] | the thread that reads a program's control lane |
//! | [`hub`] | the link of a program's clients, shared by its threads |
//! | [`trace`] | what this process records of its frames |

pub mod attach;
pub mod capability;
pub mod control;
pub mod hub;
pub mod ring;
pub mod sent;
pub mod socket;
pub mod trace;
