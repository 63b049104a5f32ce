//! What an engine promises, over the transport in memory.

mod ends;
mod engine;
mod hostile;
mod offers;
mod rendezvous;
mod told;
