//! Two processes that exchange messages of some sizes, under a tuning file of their own: what users get with such a file.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use corewire::Domain;
use corewire_os::event::wait_readable;
use corewire_os::process::life_of;
use corewire_os::processor::pin_to;

use crate::failure::Failure;
use crate::output;

/// The endpoint of the process that receives.
const NAME: &str = "tuned";
/// Messages of each size that are timed; fewer of long ones.
const MESSAGES: usize = 40;
const MESSAGE_BYTES: u64 = 16 << 20;
/// Messages of each size before them.
const UNTIMED: usize = 4;
/// Time for the other process to come, and for all messages.
const PATIENCE: Duration = Duration::from_secs(20);

/// What one of the two does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Role {
    Receive,
    Send,
}

/// Does it, on this processor. The one that sends prints the time of each size, in nanoseconds.
pub(super) fn run(role: Role, cpu: usize, sizes: &[u64]) -> Result<(), Failure> {
    pin_to(cpu)?;
    let domain = Domain::open()?;
    match role {
        Role::Receive => receive(&domain),
        Role::Send => send(&domain, sizes),
    }
}

fn receive(domain: &Domain) -> Result<(), Failure> {
    let mut endpoint = domain.endpoint(NAME).create()?;
    loop {
        let request = endpoint.receive_request().map_err(Failure::other)?;
        // Reads all of it, as a program would.
        let sum = request.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        let is_last = request.is_empty();
        request.reply(&[sum]).map_err(Failure::other)?;
        if is_last {
            return Ok(());
        }
    }
}

fn send(domain: &Domain, sizes: &[u64]) -> Result<(), Failure> {
    let mut endpoint = domain.endpoint(&format!("tuner-{}", std::process::id())).create()?;
    let found = endpoint.peer_when_created(NAME, Some(PATIENCE));
    let peer = found.map_err(Failure::other)?;
    let mut times = BTreeMap::new();
    for &bytes in sizes {
        let mut message = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        let timed = usize::try_from(MESSAGE_BYTES / bytes.max(1)).unwrap_or(MESSAGES);
        let mut own = Vec::new();
        for number in 0..UNTIMED + timed.clamp(5, MESSAGES) {
            let start = Instant::now();
            message.fill(number.to_le_bytes()[0]);
            endpoint.call(peer, &message).map_err(Failure::other)?;
            if number >= UNTIMED {
                own.push(start.elapsed().as_secs_f64() * 1e9);
            }
        }
        own.sort_by(f64::total_cmp);
        times.insert(bytes, own[own.len() / 2]);
    }
    endpoint.call(peer, b"").map_err(Failure::other)?;
    output::print_line(&times)
}

/// The processors of a pair, and the directory in which they meet.
#[derive(Debug)]
pub(super) struct Crew {
    pub(super) cpus: [usize; 2],
    pub(super) directory: PathBuf,
}

/// The two processes, which end with this value.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Crew {
    /// The time of a message of each of these sizes and its reply, in nanoseconds, under this text of a tuning file.
    pub(super) fn times(&self, text: &str, sizes: &[u64]) -> Result<Vec<f64>, Failure> {
        let file = self.directory.join("candidate.toml");
        std::fs::write(&file, text)
            .map_err(|error| Failure::other(format!("cannot write {}: {error}", file.display())))?;
        let [send, receive] = self.cpus;
        let mut running = Running(vec![self.start(&file, "receive", receive, &[])?]);
        running.0.push(self.start(&file, "send", send, sizes)?);
        let sender = &mut running.0[1];
        let life = life_of(sender.id())?;
        if wait_readable(&[life.as_fd()], Some(Instant::now() + PATIENCE))? != [true] {
            return Err(Failure::other(format!("a measurement took longer than {PATIENCE:?}")));
        }
        let status = sender.wait().map_err(Failure::other)?;
        let mut text = String::new();
        if let Some(output) = &mut sender.stdout {
            output.read_to_string(&mut text).map_err(Failure::other)?;
        }
        let times: BTreeMap<u64, f64> = match status.success() {
            true => serde_json::from_str(&text).map_err(Failure::other)?,
            false => return Err(Failure::other(format!("a measurement failed: {status}"))),
        };
        let time =
            |size| times.get(size).copied().ok_or_else(|| Failure::other("a size is missing"));
        sizes.iter().map(time).collect()
    }

    fn start(&self, file: &Path, role: &str, cpu: usize, sizes: &[u64]) -> Result<Child, Failure> {
        let program = std::env::current_exe().map_err(Failure::other)?;
        let mut command = Command::new(program);
        command.args(["tune", "--probe", role, "--cpu", &cpu.to_string()]);
        if !sizes.is_empty() {
            let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
            command.args(["--sizes", &sizes.join(",")]);
        }
        command
            .env("COREWIRE_TUNING", file)
            .env("COREWIRE_RUNTIME_DIR", self.directory.join("run"));
        command.env_remove("COREWIRE_OWNER");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().map_err(|error| Failure::other(format!("cannot start a process: {error}")))
    }
}
