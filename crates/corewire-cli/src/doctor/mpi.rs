//! Which MPIs of this machine can send their messages through corewire.

use super::Finding;
use crate::mpi::find::{self, Mpi};
use crate::mpi::provider;
use crate::units;

/// The provider, if there is an MPI that can use it, and each MPI.
pub(super) fn checks() -> Vec<Finding> {
    let mpis = find::in_path();
    if mpis.is_empty() {
        return vec![Finding::good("MPI", "none in PATH")];
    }
    let mut findings: Vec<_> = mpis.iter().map(mpi).collect();
    if mpis.iter().any(|mpi| mpi.obstacle.is_none()) {
        findings.push(library());
    }
    findings
}

fn mpi(mpi: &Mpi) -> Finding {
    let check = "MPI";
    match &mpi.obstacle {
        None => Finding::good(check, format!("{}: corewire mpi runs it", mpi.text())),
        Some(why) => {
            let advice = "its messages do not go over corewire: put another MPI into PATH";
            Finding::improvable(check, format!("{}: {why}", mpi.text()), advice)
        }
    }
}

fn library() -> Finding {
    let check = "MPI provider";
    match provider::find() {
        Ok(folder) => {
            let path = folder.join(provider::FILE);
            Finding::good(check, units::printable(&path.to_string_lossy()))
        }
        Err(failure) => {
            let advice = "without it corewire mpi runs no MPI: copy it to one of these places";
            Finding::improvable(check, failure.message, advice)
        }
    }
}
