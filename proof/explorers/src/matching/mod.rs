//! Random programs of sends, receives, probes, claims and cancels, with wildcards, compared with a
//! one-page model of which receive gets which message. They run on endpoints of the library, and on bare
//! engines over any transport.

pub mod beside;
pub mod party;
pub mod programs;
pub mod told;
