//! Circuits of the interface that is made for measurements, through one and more monitors ([`crate::calls`] has the
//! interface and its service).
//!
//! [`rig`] has all parties in two threads of one process, each of which never sleeps: what a circuit costs if every party
//! has a core of its own, also where there are only two cores. Neighbours on the way are always in different threads, so
//! each hop crosses from core to core.

//!
//! [`printed`] has the thesis' protocol over the same rings, in a rig as well.
//!
//! [`flooded`] and [`many`] have each party in a process of its own, which sleeps when it has nothing to do: binding while
//! links are flooded, and thousands of circuits.

pub mod flooded;
pub mod many;
pub mod printed;
pub mod rig;
