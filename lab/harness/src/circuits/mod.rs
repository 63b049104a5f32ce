//! Circuits of the interface that is made for measurements, through one and more monitors ([`crate::calls`] has the
//! interface and its service).
//!
//! [`apart`] has each party in a process on a processor of its own. Where there are too few processors, [`rig`] has all of
//! them in two threads of one process, neither of which sleeps: about what a circuit costs if every party has a core of its
//! own. Neighbours on the way are always in different threads, so each hop crosses from core to core. Either offers the
//! same [`Chain`]s, and says where its parties are.
//!
//! [`printed`] has the thesis' protocol over the same rings, in a rig as well.
//!
//! [`flooded`] and [`many`] have each party in a process of its own, where the kernel puts it, which sleeps when it has
//! nothing to do: binding while links are flooded, and thousands of circuits.

pub mod apart;
pub mod chain;
pub mod flooded;
pub mod many;
pub mod printed;
pub mod rig;

use std::fmt::Debug;

use corewire_os::processor;

use self::apart::Apart;
use self::chain::Chain;
use self::rig::Rig;
use crate::failure::{Doing, Failure};
use crate::program::Program;
use crate::role::Role;

/// Clients, monitors and services of the ways that are compared.
pub trait Parties: Debug {
    /// The clients with so many monitors on their way; the direct one with none.
    ///
    /// # Panics
    /// If there is no such way.
    fn chain(&mut self, monitors: usize) -> &mut Chain;

    /// Where the parties are, in words.
    fn placement(&self) -> String;
}

/// Starts a direct client, and chains of one to `monitors` monitors with so many clients of one service each: as processes
/// if each can have a processor, as two threads if not.
///
/// # Errors
/// If there are not even two processors, or a party cannot be started.
pub fn start(
    program: Program,
    role: &Role<apart::Part>,
    monitors: usize,
    clients: usize,
) -> Result<Box<dyn Parties>, Failure> {
    let cpus = processor::allowed().doing("ask for processors")?;
    match cpus[..] {
        _ if cpus.len() >= apart::processors(monitors) => {
            Ok(Box::new(Apart::start(program, role, monitors, clients, &cpus)?))
        }
        [one, other, ..] => Ok(Box::new(Rig::start(program, monitors, clients, [one, other])?)),
        _ => Err(Failure::other("circuits are measured between two processors; there is one")),
    }
}
