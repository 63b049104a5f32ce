//! Networks under corewire's endpoints: connections to endpoints of other hosts.
//!
//! | module | contents |
//! |---|---|
//! | [`hosts`] | the file that names hosts, and what they may reach |
//! | [`open`] | how a connection begins: addresses, TLS, and what both sides say |
//! | [`link`] | one connection after that: which bytes mean what, and what may be sent. No clock, no system calls |
//! | [`tcp`] | the kernel's TCP under an engine |
//! | [`tls`] | certificates, and sessions |
//! | `wire` | what a socket's bytes are, with TLS or without |
//!
//! What travels is drawn in `corewire_layout::net`.

#![forbid(unsafe_code)]

pub mod hosts;
pub mod link;
pub mod open;
pub mod tcp;
pub mod tls;
mod wire;
