//! The papers' own rings, as they are printed: what ours are compared with, on the model of coherent
//! caches and on the machine. Whoever shares one trusts the others; nobody may die.

mod barrelfish;
mod barrelfish_mp;
mod nemesis;
mod zimp;

pub use barrelfish::{Flow, UMP_BYTES, Ump, UmpReceiver, UmpSender};
pub use barrelfish_mp::{BarrelfishMp, BarrelfishMpReceiver, BarrelfishMpSender};
pub use nemesis::{FreeQueue, Nemesis, NemesisOptions, NemesisQueue, Piece};
pub use zimp::{Zimp, ZimpEntry, ZimpReceiver, ZimpSender};
