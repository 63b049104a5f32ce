//! The driver `circuit`: bindings through monitors, many of them over one link.

pub mod ends;
pub mod lane;
