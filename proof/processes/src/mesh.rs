//! An endpoint that sends a message to each of many others and receives one of each, under the usual limit of descriptors.

use std::collections::BTreeSet;
use std::io::BufRead;

use corewire::{Domain, OperationHandle, Selector};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::{Options, Outcome};

/// The limit that many systems set, and that a process cannot raise.
const DESCRIPTORS_MAX: u64 = 1024;

/// Its name is `mesh-` and a number below `options.count`, which is how many there are.
pub(crate) fn run(domain: &Domain, options: &Options) -> Outcome {
    let limit = Some(DESCRIPTORS_MAX);
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit })?;
    let own: u64 = options.channel.trim_start_matches("mesh-").parse()?;
    let peers = usize::try_from(options.count)?;
    let mut endpoint = domain.endpoint(&options.channel).peers(peers).create()?;
    let mut lines = std::io::stdin().lock().lines();
    println!("ready {}", descriptors()?);
    lines.next().transpose()?;
    let others: BTreeSet<u64> = (0..options.count).filter(|other| *other != own).collect();
    let mut sends: Vec<OperationHandle> = Vec::new();
    for other in &others {
        let peer = endpoint.address(&format!("mesh-{other}"), None)?;
        sends.push(endpoint.isend(peer, own, own.to_le_bytes().to_vec())?);
    }
    let (mut missing, mut buffer) = (others, [0; 8]);
    while !missing.is_empty() {
        let status = endpoint.receive_into(Selector::any(), &mut buffer)?;
        let number = u64::from_le_bytes(buffer);
        if number != status.tag || !missing.remove(&number) {
            return Err(format!("a message of {number} with tag {}", status.tag).into());
        }
    }
    for send in sends {
        endpoint.wait(send)?.result?;
    }
    println!("linked");
    while lines.next().transpose()?.is_some() {
        println!("descriptors {}", descriptors()?);
    }
    Ok(())
}

fn descriptors() -> std::io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}
