//! The rings of the papers, as printed: the rings of corewire are compared with them, on the model
//! of coherent caches and on real machines. All processes that share one trust each other, and none
//! of them may die.

mod barrelfish;
mod barrelfish_mp;
mod nemesis;
mod zimp;

pub use barrelfish::{Flow, UMP_BYTES, Ump, UmpReceiver, UmpSender};
pub use barrelfish_mp::{BarrelfishMp, BarrelfishMpReceiver, BarrelfishMpSender};
pub use nemesis::{FreeQueue, Nemesis, NemesisOptions, NemesisQueue, Piece};
pub use zimp::{Zimp, ZimpEntry, ZimpReceiver, ZimpSender};
