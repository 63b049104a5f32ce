//! `corewire monitor`: forwards circuits for a core, a cache domain or the host.

mod family;
mod policy;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use corewire::Access;
use corewire_circuit::monitor::{Handle, Monitor, Options};
use corewire_circuit::wire::{NODES_MAX, NodeId};
use corewire_os::event::wait_readable;
use corewire_os::{process, processor};
use rustix::event::{EventfdFlags, eventfd};

use crate::failure::Failure;
use crate::signals::Signals;
use crate::{access, output};

/// How often the policy file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  corewire monitor
  corewire monitor --per cache --pin
  corewire monitor --number 3 --poll-ns 20000
  corewire monitor --policy /etc/corewire/policy.toml --access users:1001
  corewire monitor --listen 0.0.0.0:7421

A monitor forwards circuits: connections of services and clients that share no memory,
and many connections over few rings. One per host is enough; with --per core or --per
cache there is one process for each, with the number of its first core, and programs
use that of their own core. See corewire routes for how several are joined.

The policy file says who may serve and who may reach which names. Without a rule for a
name only this user may. Users and groups are names or numbers:

  [[rule]]
  allow = \"bind\"            # or \"export\"
  names = \"calculator*\"     # one name, or the beginning of some and *
  users = [\"alice\", 1001]   # groups = [\"staff\"], too; without both: everybody

The file is read again when it changes; while it is wrong, the policy stays as it was.
Circuits that are open stay open.

--access lets other users connect to the monitor: their programs open this user's domain \
as guests. The policy still says what they may do. As with corewire send, the rule stays \
with the runtime directory, and what this user starts there from then on follows it.

--listen takes connections of other hosts, and hands each to the process that has the \
endpoint which is wanted: nothing of what they send passes through the monitor. The file \
of hosts says who may reach which endpoints: $COREWIRE_HOSTS, or corewire/hosts.toml in \
$XDG_CONFIG_HOME or ~/.config. See docs/hosts.md; corewire doctor checks the file.

INT, TERM or HUP ends a monitor, and with it its circuits; other bindings stay.

Exit codes: 1 failed, 2 wrong usage; otherwise it runs until a signal ends it.";

/// Forward circuits between services and clients that share no memory
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The monitor's number, 0 to 255; programs on the core of this number use it
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number, conflicts_with = "per")]
    number: usize,
    /// Run one monitor for each core, or for each last-level cache
    #[arg(long, value_name = "WHAT")]
    per: Option<family::Per>,
    /// Keep each monitor on its core or cache; without --per on the core of its number
    #[arg(long)]
    pin: bool,
    /// How long a monitor looks for messages before it sleeps, in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 30_000)]
    poll_ns: u64,
    /// Who may serve and reach which names
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Let other users connect: group:NAME or users:UID,UID
    #[arg(long, value_name = "RULE", value_parser = access::rule)]
    access: Option<Access>,
    /// Take connections of other hosts at this address, for the endpoints of this one; may be given more than once
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "per")]
    listen: Vec<String>,
    /// End with the process that has started it
    #[arg(long, hide = true)]
    child: bool,
    /// The processors to keep to
    #[arg(long, hide = true, value_delimiter = ',')]
    cores: Vec<usize>,
}

fn number(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number < NODES_MAX);
    number.ok_or_else(|| format!("{text:?} is no number from 0 to {}", NODES_MAX - 1))
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(per) = args.per {
        return family::run(args, per);
    }
    if args.child {
        process::end_with_parent()?;
    }
    match &args.cores[..] {
        [] if args.pin => processor::pin_to(args.number)?,
        [] => {}
        cores => processor::keep_to(cores)?,
    }
    let signals = Signals::catch()?;
    let domain = access::open_domain_with(args.access.clone())?;
    let node = NodeId::new(args.number).ok_or_else(|| Failure::usage("no such number"))?;
    let mut options = Options::new(node).report(|text| output::note(text));
    options.poll = Duration::from_nanos(args.poll_ns);
    if let Some(file) = &args.policy {
        options.policy = policy::read(file)?;
    }
    let gateways =
        args.listen.iter().map(|address| domain.gateway(address).map_err(Failure::other));
    let gateways = gateways.collect::<Result<Vec<_>, _>>()?;
    let mut monitor = Monitor::start(domain, options).map_err(Failure::other)?;
    for gateway in &gateways {
        output::note(format!("takes connections of other hosts at {}", gateway.address()));
    }
    output::note(format!("monitor {node} is ready"));
    let handle = monitor.handle();
    let has_failed = eventfd(0, EventfdFlags::CLOEXEC).map_err(Failure::other)?;
    thread::scope(|scope| {
        scope.spawn(|| tend(&signals, &has_failed, &handle, args.policy.as_deref()));
        let ran = monitor.run().map_err(Failure::other);
        // Circuits end, and their ends are told, before the process does.
        drop(monitor);
        if ran.is_err() {
            let _ = rustix::io::write(&has_failed, &1_u64.to_le_bytes());
        }
        ran.and_then(|()| signals.end())
    })
}

/// Ends the monitor on a signal, and reads its policy again when the file has changed. Returns, too, when the monitor has
/// failed.
fn tend(signals: &Signals, has_failed: &OwnedFd, handle: &Handle, policy: Option<&Path>) {
    let changed_at = || policy.and_then(|file| file.metadata().ok()?.modified().ok());
    let mut seen = changed_at();
    while signals.caught().is_none() {
        let until = policy.map(|_| Instant::now() + LOOK_EVERY);
        let seen_now = wait_readable(&[signals.descriptor(), has_failed.as_fd()], until);
        if seen_now.is_ok_and(|readable| readable.last() == Some(&true)) {
            return;
        }
        let now = changed_at();
        if let Some(file) = policy
            && now != seen
        {
            seen = now;
            match policy::read(file) {
                Ok(policy) => {
                    handle.set_policy(policy);
                    output::note(format!("{}: read again", file.display()));
                }
                Err(failure) => {
                    output::note(format!("{}; the policy stays as it was", failure.message));
                }
            }
        }
    }
    handle.stop();
}
