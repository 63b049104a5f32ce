//! Circuits without input and output: `node` and `ends` of `corewire-circuit`, the same source that
//! runs in monitors and programs, joined by lanes that a test empties as it likes.
//!
//! [`World`] has the parties, the lanes between them, and the oracle: every end receives a prefix of what the other one
//! has sent, in order and once; everything if both end gracefully; nothing is left when all circuits have ended. The
//! explorer takes every step that is possible in a small world, the simulator random ones in a large one.

pub mod explorer;
pub mod random;
pub mod simulator;
pub mod world;

pub use world::World;
