//! The explorers and the simulator.

mod checkpoints;
mod circuits;
mod groups;
mod hostile_neighbours;
mod matching;
mod senders;
