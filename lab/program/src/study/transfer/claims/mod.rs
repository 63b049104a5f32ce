//! The claims of the paper, each with what was found here and whether it holds. All of it is computed from the points of a
//! run. Where the library has a mechanism in another form than the paper, the form as printed is compared.
//!
//! `speed` has those about copies, latency and bandwidth, `costs` those about set-up, caches, and use in MPI.

mod costs;
mod speed;

use super::results::{Claim, Transfer};
use super::ways::Id;
use crate::study::page::units::nanoseconds;

/// A computed answer: what was found, and whether the claim holds.
type Answer = Option<(String, bool)>;

const KIB: u64 = 1024;
/// Figures that differ by less are alike.
const ALIKE: f64 = 1.03;
/// The mechanisms that copy by the kernel, and through a network interface.
const KERNEL: [Id; 2] = [Id::KernelPut, Id::KernelGet];
const NETWORK: [Id; 2] = [Id::NetworkPut, Id::NetworkGet];

fn claim(place: &str, paper: &str, figure: &str, answer: Answer) -> Claim {
    let (here, holds) = answer.map_or((None, None), |(here, holds)| (Some(here), Some(holds)));
    let [place, paper, figure] = [place, paper, figure].map(str::to_owned);
    Claim { place, paper, figure, here, holds }
}

/// All claims.
pub(super) fn of(found: &Transfer) -> Vec<Claim> {
    speed::of(found).into_iter().chain(costs::of(found)).collect()
}

/// `12 µs with kernel get`.
fn said(id: Id, time: f64) -> String {
    format!("{} with {}", nanoseconds(time), id.name())
}
