//! Names of endpoints.
//!
//! | name | whose |
//! |---|---|
//! | `mpi-JOB-RANK-N` | the N-th endpoint of a rank; the job is the process that started it |
//! | `fi-PID-N` | the N-th endpoint of another process |
//! | `svc-SERVICE` | one that was opened with a service, which others find by it |

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::address::Address;
use crate::errors::{NO_DATA, Outcome};

/// Where launchers say which rank a process is: MPICH and Intel MPI, Open MPI, PMIx, Slurm.
const RANKS: [&str; 4] = ["PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"];

/// A name for a new endpoint, and another one with each call.
pub(crate) fn next() -> String {
    static COUNT: Mutex<u32> = Mutex::new(0);
    let mut count = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
    let number = *count;
    *count = count.wrapping_add(1);
    let rank = RANKS.iter().find_map(|name| std::env::var(name).ok()?.parse::<u32>().ok());
    match rank {
        Some(rank) => format!("mpi-{}-{rank}-{number}", std::os::unix::process::parent_id()),
        None => format!("fi-{}-{number}", std::process::id()),
    }
}

/// The part of a name that all endpoints of one process share.
pub(crate) fn process_of(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((process, _)) if !name.starts_with("svc-") => process,
        _ => name,
    }
}

/// The address of the endpoint of this machine that was opened with a service.
pub(crate) fn of_service(node: Option<&str>, service: &str) -> Outcome<Address> {
    if !node.is_none_or(is_here) {
        return Err(NO_DATA);
    }
    Address::new(&format!("svc-{service}"), None).map_err(|_| NO_DATA)
}

/// Whether a node is this machine: its name, or an address of it.
pub(crate) fn is_here(node: &str) -> bool {
    if let Ok(address) = node.parse::<IpAddr>() {
        // The kernel knows its own addresses.
        return UdpSocket::bind(SocketAddr::new(address, 0)).is_ok();
    }
    let own = rustix::system::uname();
    node == "localhost" || own.nodename().to_str() == Ok(node)
}
