//! A monitor for each core or cache: one process for each, started again if it has ended.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use corewire_os::event::wait_readable;
use corewire_os::processor;

use super::Args;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::{access, output};

/// How often the processes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How soon one is started again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// For what there is one monitor each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Per {
    /// Each core that this process may use.
    Core,
    /// Each last-level cache.
    Cache,
}

/// A monitor to run.
struct Member {
    number: usize,
    cores: Vec<usize>,
    child: Option<Child>,
    started: Instant,
}

/// The cores of each monitor, by its number: the first of them.
fn groups(per: Per) -> Result<Vec<(usize, Vec<usize>)>, Failure> {
    let mut groups: Vec<(Option<String>, Vec<usize>)> = Vec::new();
    for core in processor::allowed()? {
        let cache = match per {
            Per::Core => Some(core.to_string()),
            Per::Cache => processor::last_level(core),
        };
        match groups.iter_mut().find(|(found, _)| *found == cache) {
            Some((_, cores)) => cores.push(core),
            None => groups.push((cache, vec![core])),
        }
    }
    let numbered = groups.into_iter().filter_map(|(_, cores)| Some((*cores.first()?, cores)));
    Ok(numbered.collect())
}

pub(super) fn run(args: &Args, per: Per) -> Result<(), Failure> {
    let signals = Signals::catch()?;
    let groups = groups(per)?;
    if let Some((number, _)) =
        groups.iter().find(|(number, _)| *number >= corewire_circuit::wire::NODES_MAX)
    {
        return Err(Failure::usage(format!("core {number}: a monitor's number is at most 255")));
    }
    let mut members = Vec::new();
    for (number, cores) in groups {
        let child = Some(start(args, number, &cores)?);
        members.push(Member { number, cores, child, started: Instant::now() });
    }
    while signals.caught().is_none() {
        let _ = wait_readable(&[signals.descriptor()], Some(Instant::now() + LOOK_EVERY));
        for member in &mut members {
            let ended = match &mut member.child {
                Some(child) => child.try_wait().ok().flatten(),
                None => None,
            };
            if let Some(status) = ended {
                output::note(format!("monitor {}: {status}", member.number));
                member.child = None;
            }
            if member.child.is_none() && member.started.elapsed() >= AGAIN_AFTER {
                member.child = start(args, member.number, &member.cores).ok();
                member.started = Instant::now();
            }
        }
    }
    for mut child in members.into_iter().filter_map(|member| member.child) {
        let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = child.wait();
    }
    signals.end()
}

fn start(args: &Args, number: usize, cores: &[usize]) -> Result<Child, Failure> {
    let program = std::env::current_exe().map_err(Failure::other)?;
    let mut command = Command::new(program);
    command.args(["monitor", "--child", "--number", &number.to_string()]);
    command.args(["--poll-ns", &args.poll_ns.to_string()]);
    if args.pin {
        let cores: Vec<_> = cores.iter().map(ToString::to_string).collect();
        command.args(["--cores", &cores.join(",")]);
    }
    if let Some(policy) = &args.policy {
        command.arg("--policy").arg(policy);
    }
    if let Some(rule) = &args.access {
        command.arg("--access").arg(rule.to_string());
    }
    if let Some(owner) = access::chosen_owner() {
        command.arg("--owner").arg(owner.to_string());
    }
    command.spawn().map_err(Failure::other)
}
