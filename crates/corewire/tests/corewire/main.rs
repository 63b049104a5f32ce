//! What users of the library rely on.

#[path = "../scratch/mod.rs"]
mod scratch;

mod addressed;
mod calls;
mod channel;
mod endpoint;
mod exposed;
mod held;
mod in_place;
mod latest;
mod levels;
mod listener;
mod policies;
mod progressing;
mod queue;
mod rejoin;
mod shared;
mod typed;
mod wait_set;
mod window;
