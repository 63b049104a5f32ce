//! Networks under corewire's endpoints: connections to endpoints of other hosts.
//!
//! | module | contents |
//! |---|---|
//! | [`link`] | one connection: which bytes mean what, and what may be sent. No clock, no system calls |
//! | [`tcp`] | the kernel's TCP under an engine |
//!
//! What travels is drawn in `corewire_layout::net`.

#![forbid(unsafe_code)]

pub mod link;
pub mod tcp;
