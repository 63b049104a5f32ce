//! The papers' own rings, as they are printed: what ours are compared with, on the model of coherent
//! caches and on the machine. Whoever shares one trusts the others; nobody may die.

mod zimp;

pub use zimp::{Zimp, ZimpEntry, ZimpReceiver, ZimpSender};
