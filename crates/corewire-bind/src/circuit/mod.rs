//! The driver `circuit`: bindings through monitors, many of them over one link.
//!
//! | file | holds |
//! |---|---|
//! | [`ends`] | the ends of all circuits of a link, without input and output |
//! | [`lane`] | the lanes of a link that are sockets |
//! | [`ring`] | the data lane of a link that is a ring |
//! | `attach` | how a program becomes a neighbour of its monitor |
//! | `control` | the thread that reads the control lane |
//! | `capabilities` | capabilities of messages, which travel in the control lane |
//! | `hub` | the link of a program's clients, shared by its threads |
//! | `link` | one client's circuit |

mod attach;
mod capabilities;
mod control;
pub mod ends;
mod hub;
pub mod lane;
mod link;
pub mod ring;
pub mod trace;

pub use self::attach::MonitorAt;
pub(crate) use self::attach::{Attached, Data, attach};
pub(crate) use self::capabilities::{packet as packet_of, parse as capabilities_of};
pub(crate) use self::control::{Control, Load, News, descriptors_max};
pub(crate) use self::hub::Hub;
pub(crate) use self::link::CircuitLink;
