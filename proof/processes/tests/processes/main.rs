//! Real processes that join, leave, are stopped and die.

#[path = "../roles/mod.rs"]
mod roles;
#[path = "../tracer/mod.rs"]
mod tracer;

mod calls;
mod circuits;
mod costs;
mod deaths;
mod endpoints;
mod exchanges;
mod exposures;
mod held;
mod hosts;
mod large;
mod listeners;
mod mesh;
mod patterns;
mod refusals;
mod relays;
mod stopped;
mod torture;
mod tuned;
mod windows;
