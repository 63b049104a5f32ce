//! Groups, their log, collective calls and checkpoints; among threads, and among processes of this program.

#[path = "../given/mod.rs"]
mod given;
#[path = "../members/mod.rs"]
mod members;

mod checkpoints;
mod clients;
mod collectives;
mod deaths;
mod log;
mod over;
mod stops;
mod torture;
