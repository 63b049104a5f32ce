//! The command line as its users see it: real processes, real pipes.

mod calls;
mod circuits;
mod containers;
mod desk;
mod examples;
mod files;
mod idl;
mod live;
mod log;
mod look;
mod mpi;
mod patterns;
mod scratch;
mod services;
mod streams;
mod trace;
mod tune;
mod usage;
