//! The processes that measure one MPI over one way. They are started once, and then wait asleep for their turns.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::shapes::Shape;
use crate::study::distances::Lines;
use crate::study::failure::{Doing, Failure};
use crate::study::interrupt;

/// How long ranks may take to start. Those of some MPIs take seconds where there are more than processors.
const START_MAX: Duration = Duration::from_secs(60);
/// How long a block may take. A rank that takes longer ends by itself before.
const BLOCK_MAX: Duration = Duration::from_secs(40);
/// How long ranks may take to end.
const END_MAX: Duration = Duration::from_secs(20);
/// How long a launcher may take to end after its ranks.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How often it is looked whether the user wants an end.
const LOOK: Duration = Duration::from_millis(250);

/// One rank.
struct Rank {
    stream: UnixStream,
    /// What it has said and nobody has read yet.
    heard: Vec<u8>,
    /// The process, to end it if it is stuck.
    process: OwnedFd,
}

/// The ranks, and what started them.
pub(super) struct Session {
    launcher: Child,
    /// The launcher, to wait for.
    launched: OwnedFd,
    ranks: Vec<Rank>,
    /// Each rank has a processor of its own.
    has_places: bool,
    log: PathBuf,
    /// Memory that the ranks map by its path.
    _kept: Vec<OwnedFd>,
}

/// A block of operations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Took {
    /// Time of all operations.
    pub(super) took_ns: f64,
    pub(super) line_ns: Lines,
}

/// What a session is to be.
pub(super) struct Plan<'a> {
    /// Starts the ranks, or is the only process. The socket, the memory of the lines and `arguments` are added.
    pub(super) command: Command,
    pub(super) arguments: &'a [&'a str],
    pub(super) ranks: usize,
    /// The processors of the ranks; empty if they are where the kernel puts them.
    pub(super) cpus: &'a [usize],
    /// A directory of its own.
    pub(super) directory: &'a Path,
}

impl Session {
    /// Starts the ranks, and waits until all are ready.
    pub(super) fn start(plan: Plan<'_>) -> Result<Self, Failure> {
        let Plan { mut command, arguments, ranks, cpus, directory } = plan;
        fs::create_dir_all(directory).doing("make a directory")?;
        let (socket, log) = (directory.join("s"), directory.join("log"));
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).doing("listen to ranks")?;
        listener.set_nonblocking(true).doing("listen to ranks")?;
        let memory = || memfd_create("corewire-study", MemfdFlags::CLOEXEC).doing("make memory");
        let (lines, floor) = (memory()?, memory()?);
        let path = |file: &OwnedFd| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let run = directory.join("run");
        fs::create_dir_all(&run).doing("make a directory")?;
        fs::set_permissions(&run, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .doing("make a directory")?;
        command.env("FLOOR_FILE", path(&floor)).env("COREWIRE_RUNTIME_DIR", &run);
        command.arg(&socket).arg(path(&lines)).args(arguments);
        let output = File::create(&log).doing("make a log")?;
        command.stdin(Stdio::null()).stdout(output.try_clone().doing("make a log")?).stderr(output);
        // Signals from the terminal are for the study.
        let launcher = command.process_group(0).spawn();
        let program = command.get_program().to_owned();
        let mut launcher = launcher.doing(format_args!("start {}", program.display()))?;
        let launched = pidfd_open(Pid::from_child(&launcher), PidfdFlags::empty());
        if launched.is_err() {
            let _ = launcher.kill();
        }
        let launched = launched.doing("watch a launcher")?;
        let has_places = !cpus.is_empty();
        let _kept = vec![lines, floor];
        let mut session = Self { launcher, launched, ranks: Vec::new(), has_places, log, _kept };
        session.greet(&listener, ranks, cpus)?;
        Ok(session)
    }

    /// Lets all ranks connect, and tells each where to run.
    fn greet(
        &mut self,
        listener: &UnixListener,
        count: usize,
        cpus: &[usize],
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + START_MAX;
        let mut came: Vec<Option<Rank>> = Vec::new();
        came.resize_with(count, || None);
        while came.iter().any(Option::is_none) {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.look(deadline, "its ranks did not start")?;
                    self.rest(Some(listener));
                    continue;
                }
                Err(error) => return Err(error).doing("listen to ranks"),
            };
            let (number, rank) = self.meet(stream, deadline)?;
            let place = came.get_mut(number).filter(|place| place.is_none());
            *place.ok_or_else(|| Failure::other("there are more ranks than wanted"))? = Some(rank);
        }
        self.ranks = came.into_iter().flatten().collect();
        for index in 0..count {
            let place = cpus.get(index).map_or("anywhere".to_owned(), |cpu| format!("cpu {cpu}"));
            self.tell(index, &place)?;
        }
        for index in 0..count {
            match self.hear(index, deadline)?.as_str() {
                "ready" => {}
                other => return Err(Failure::other(format!("a rank said {other:?}"))),
            }
        }
        Ok(())
    }

    /// A rank that has connected, and its number.
    fn meet(&mut self, stream: UnixStream, deadline: Instant) -> Result<(usize, Rank), Failure> {
        stream.set_nonblocking(false).doing("listen to ranks")?;
        stream.set_read_timeout(Some(LOOK)).doing("listen to ranks")?;
        let peer = socket_peercred(&stream).doing("ask which rank it is")?;
        let process = pidfd_open(peer.pid, PidfdFlags::empty()).doing("watch a rank")?;
        self.ranks.push(Rank { stream, heard: Vec::new(), process });
        let said = self.hear(self.ranks.len() - 1, deadline)?;
        let number = said.strip_prefix("rank ").and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| Failure::other(format!("a rank said {said:?}")))?;
        let rank = self.ranks.pop().ok_or_else(|| Failure::other("no rank came"))?;
        Ok((number, rank))
    }

    /// Whether to wait on.
    fn look(&mut self, deadline: Instant, what: &str) -> Result<(), Failure> {
        interrupt::check()?;
        if let Some(status) = self.launcher.try_wait().doing("wait for ranks")? {
            return Err(self.ended(status));
        }
        if Instant::now() > deadline {
            return Err(self.with_log(what.to_owned()));
        }
        Ok(())
    }

    /// A rank is gone, which the launcher will say more about.
    fn lost(&mut self) -> Failure {
        self.await_launcher(LAST_WORDS);
        self.with_log("a rank has ended".to_owned())
    }

    /// Waits for the launcher to end. Returns whether it has.
    fn await_launcher(&mut self, most: Duration) -> bool {
        let deadline = Instant::now() + most;
        while matches!(self.launcher.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                return false;
            }
            self.rest(None);
        }
        true
    }

    /// Waits until the launcher has ended or a rank wants to connect, for a while.
    fn rest(&self, listener: Option<&UnixListener>) {
        let launcher = PollFd::new(&self.launched, PollFlags::IN);
        let others = listener.map(|it| PollFd::new(it, PollFlags::IN));
        let mut all: Vec<PollFd<'_>> = std::iter::once(launcher).chain(others).collect();
        // A signal wakes it, too.
        let _ = poll(&mut all, Timespec::try_from(LOOK).ok().as_ref());
    }

    fn ended(&self, status: ExitStatus) -> Failure {
        self.with_log(format!("it ended ({status})"))
    }

    /// What the ranks said to nobody in particular is a part of the reason.
    fn with_log(&self, what: String) -> Failure {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let is_said = |line: &&str| line.chars().any(char::is_alphabetic);
        let said: Vec<&str> = log.lines().map(str::trim).filter(is_said).collect();
        // MPIs give the reason in the last line of many, or in the first.
        let (first, last) = (said.first(), said.last().filter(|_| said.len() > 1));
        let said: Vec<String> =
            first.into_iter().chain(last).map(|line| line.chars().take(200).collect()).collect();
        match said.is_empty() {
            true => Failure::other(what),
            false => Failure::other(format!("{what}: {}", said.join(" ... "))),
        }
    }

    fn tell(&mut self, rank: usize, line: &str) -> Result<(), Failure> {
        let written = self.ranks[rank].stream.write_all(format!("{line}\n").as_bytes());
        written.map_err(|_| self.lost())
    }

    /// The next line of a rank.
    fn hear(&mut self, rank: usize, deadline: Instant) -> Result<String, Failure> {
        loop {
            let heard = &mut self.ranks[rank].heard;
            if let Some(end) = heard.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = heard.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                return match line.strip_prefix("failed ") {
                    Some(why) => Err(self.with_log(why.to_owned())),
                    None => Ok(line),
                };
            }
            let mut piece = [0; 512];
            match self.ranks[rank].stream.read(&mut piece) {
                Ok(0) => return Err(self.lost()),
                Ok(length) => self.ranks[rank].heard.extend_from_slice(&piece[..length]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                {
                    self.look(deadline, "it did not end a block in time")?;
                }
                Err(error) => return Err(error).doing("listen to a rank"),
            }
        }
    }

    /// Makes all ranks perform so many calls of a shape, after `warm` that are not timed.
    pub(super) fn block(&mut self, shape: Shape, count: u32, warm: u32) -> Result<Took, Failure> {
        let has_line = u32::from(self.has_places);
        let Shape { measure, bytes } = shape;
        let order = format!("{} {bytes} {count} {warm} {has_line}", measure.id());
        let deadline = Instant::now() + BLOCK_MAX;
        for rank in 0..self.ranks.len() {
            self.tell(rank, &order)?;
        }
        let mut first = None;
        // Those that wait for another one say nothing; the one with the reason may be any of them.
        for rank in (0..self.ranks.len()).rev() {
            first = Some(self.hear(rank, deadline)?);
        }
        let said = first.unwrap_or_default();
        let figures = said.strip_prefix("took ").map(|rest| {
            rest.split(' ').filter_map(|figure| figure.parse::<f64>().ok()).collect::<Vec<_>>()
        });
        match figures.as_deref() {
            Some(&[took_ns, before, after]) if took_ns > 0.0 => {
                Ok(Took { took_ns, line_ns: self.has_places.then_some([before, after]) })
            }
            _ => Err(Failure::other(format!("a rank said {said:?}"))),
        }
    }

    /// Ends all ranks as a program ends.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        for rank in 0..self.ranks.len() {
            self.tell(rank, "end")?;
        }
        let deadline = Instant::now() + END_MAX;
        loop {
            if let Some(status) = self.launcher.try_wait().doing("wait for ranks")? {
                return if status.success() { Ok(()) } else { Err(self.ended(status)) };
            }
            interrupt::check()?;
            if Instant::now() > deadline {
                return Err(self.with_log("its ranks did not end".to_owned()));
            }
            self.rest(None);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if matches!(self.launcher.try_wait(), Ok(Some(_))) {
            return;
        }
        for rank in &self.ranks {
            let _ = pidfd_send_signal(&rank.process, Signal::KILL);
        }
        let group = Pid::from_child(&self.launcher);
        // A launcher that sees its ranks end removes what they leave.
        if !self.await_launcher(LAST_WORDS) {
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.launcher.wait();
        }
    }
}
