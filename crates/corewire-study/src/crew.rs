//! The processes of one run: starts them, lets them begin together, and collects their reports. Kills
//! them if they take too long.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use corewire_os::fork::Descriptor;
use corewire_os::{process, processor, random_u128};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::de::DeserializeOwned;

use crate::board::{Board, Step, WORKERS_MAX};
use crate::failure::{Doing, Failure};
use crate::interrupt;
use crate::mechanisms::{Id, Kept, Mechanism, Shape, Site, Visit, with};
use crate::worker::{Order, Task};

/// What a run does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Job {
    pub(crate) mechanism: Id,
    pub(crate) shape: Shape,
    pub(crate) task: Task,
}

/// Time allowed in addition to the planned time of a run.
const PATIENCE: Duration = Duration::from_secs(20);

impl Job {
    /// Number of processes.
    pub(crate) fn processes(self) -> u32 {
        self.shape.senders + self.shape.receivers
    }

    /// Whether there are more processes than processors that this process may use.
    pub(crate) fn is_oversubscribed(self, cores: usize) -> bool {
        self.processes() as usize > cores
    }

    fn time(self) -> Duration {
        match self.task {
            Task::Stream { warm_up, measured } | Task::PingPong { warm_up, measured } => {
                warm_up + measured
            }
            Task::Count { .. } => 3 * PATIENCE,
        }
    }
}

/// The processes of a run, and what they share.
pub(crate) struct Crew {
    /// The processes that were started here. They may have started others.
    workers: Vec<Child>,
    /// Their process descriptors.
    lives: Vec<Descriptor>,
    board: Board,
    deadline: Instant,
    directory: PathBuf,
    kept: Vec<Kept>,
}

impl Crew {
    /// Starts the processes, and waits until all of them have opened their ends.
    pub(crate) fn start(job: Job, scratch: &Path) -> Result<Self, Failure> {
        let mut crew = Self::new(scratch, job.time())?;
        let sites = crew.set_up(job)?;
        crew.spawn(job, &sites)?;
        crew.await_ready(job.processes())?;
        Ok(crew)
    }

    /// A crew without processes, for a run that takes about `time`, with a directory of its own in
    /// `scratch`.
    pub(crate) fn new(scratch: &Path, time: Duration) -> Result<Self, Failure> {
        let name = format!("{:016x}", random_u128().doing("name a run")? >> 64);
        let crew = Self {
            workers: Vec::new(),
            lives: Vec::new(),
            board: Board::create()?,
            deadline: Instant::now() + time + PATIENCE,
            directory: scratch.join(name),
            kept: Vec::new(),
        };
        std::fs::create_dir_all(&crew.directory)
            .doing(format_args!("make {}", crew.directory.display()))?;
        Ok(crew)
    }

    /// The directory of the run, which is removed at the end.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Path at which the processes open the board.
    pub(crate) fn board(&self) -> String {
        self.board.path()
    }

    /// Keeps a value until the run ends.
    pub(crate) fn keep(&mut self, kept: Kept) {
        self.kept.push(kept);
    }

    /// Sets up the sites of a run: one, or two for round trips.
    fn set_up(&mut self, job: Job) -> Result<Vec<Site>, Failure> {
        struct SetUp<'a>(&'a mut Site);
        impl Visit for SetUp<'_> {
            type Out = Result<Kept, Failure>;
            fn visit<M: Mechanism>(self) -> Result<Kept, Failure> {
                M::set_up(self.0)
            }
        }
        let shape = job.shape;
        let firsts = match job.task {
            Task::PingPong { .. } => vec![1, 0],
            _ => vec![shape.senders],
        };
        let mut sites = Vec::new();
        for (number, first_receiver) in firsts.into_iter().enumerate() {
            let (directory, ticket) = (self.directory.clone(), Vec::new());
            let mut site = Site { shape, directory, number, first_receiver, ticket };
            let kept = with(job.mechanism, SetUp(&mut site))?;
            self.keep(kept);
            sites.push(site);
        }
        Ok(sites)
    }

    fn spawn(&mut self, job: Job, sites: &[Site]) -> Result<(), Failure> {
        let cpus = processor::allowed().doing("ask for processors")?;
        let must_yield = job.is_oversubscribed(cpus.len());
        let program = std::env::current_exe().doing("find this program")?;
        if job.processes() > WORKERS_MAX {
            let limit = format!("{} processes; at most {WORKERS_MAX}", job.processes());
            return Err(Failure::usage(limit));
        }
        for worker in 0..job.processes() {
            let order = Order {
                mechanism: job.mechanism,
                task: job.task,
                sites: sites.to_vec(),
                worker,
                board: self.board.path(),
                cpu: (!must_yield).then(|| cpus[worker as usize]),
                must_yield,
            };
            let text = serde_json::to_string(&order).doing("write an order")?;
            let mut command = Command::new(&program);
            self.add(command.args(["worker", &text]))?;
        }
        Ok(())
    }

    /// Starts a process.
    pub(crate) fn add(&mut self, command: &mut Command) -> Result<(), Failure> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().doing(format_args!("start {name}"))?;
        let life = process::life_of(child.id());
        self.workers.push(child);
        self.lives.push(life.doing("watch a process")?);
        Ok(())
    }

    /// Waits until `processes` processes have opened their ends.
    pub(crate) fn await_ready(&mut self, processes: u32) -> Result<(), Failure> {
        loop {
            let mut workers = 0..processes;
            if workers.all(|worker| self.board.has_reached(worker, Step::Ready)) {
                return Ok(());
            }
            self.check()?;
            self.await_an_end(Duration::from_micros(200))?;
        }
    }

    /// Fails if a process has failed, an interrupt was requested, or the time is up.
    fn check(&mut self) -> Result<(), Failure> {
        self.check_statuses()?;
        if interrupt::is_wanted() {
            return Err(interrupt::failure());
        }
        if Instant::now() > self.deadline {
            return Err(Failure::other("it did not end in time: a message or a mark got stuck"));
        }
        Ok(())
    }

    fn check_statuses(&mut self) -> Result<(), Failure> {
        for worker in &mut self.workers {
            if let Some(status) = worker.try_wait().doing("look after a process")?
                && !status.success()
            {
                return Err(complaint(worker, &status.to_string()));
            }
        }
        Ok(())
    }

    /// The process ids, senders first.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.workers.iter().map(Child::id)
    }

    /// Lets the processes begin.
    pub(crate) fn go(&self) {
        self.board.go();
    }

    /// Waits for the reports of the processes, in the order in which they were started. Meanwhile it
    /// only checks whether they have ended, so that it does not disturb them.
    pub(crate) fn finish<R: DeserializeOwned>(mut self) -> Result<Vec<R>, Failure> {
        while !self.have_ended()? {
            self.check()?;
            self.await_an_end(Duration::from_millis(20))?;
        }
        let reports: Vec<Vec<R>> =
            self.workers.iter_mut().map(reports).collect::<Result<_, _>>()?;
        Ok(reports.into_iter().flatten().collect())
    }

    /// Sleeps until a running process ends, at most for `most`.
    fn await_an_end(&mut self, most: Duration) -> Result<(), Failure> {
        let mut running = Vec::new();
        for (worker, life) in self.workers.iter_mut().zip(&self.lives) {
            if worker.try_wait().doing("look after a process")?.is_none() {
                running.push(PollFd::new(life, PollFlags::IN));
            }
        }
        let most = Timespec { tv_sec: 0, tv_nsec: i64::from(most.subsec_nanos()) };
        match poll(&mut running, Some(&most)) {
            // A signal, such as Ctrl-C, interrupts the wait.
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error).doing("wait for a process"),
        }
    }

    fn have_ended(&mut self) -> Result<bool, Failure> {
        for worker in &mut self.workers {
            if worker.try_wait().doing("look after a process")?.is_none() {
                return Ok(false);
            }
        }
        self.check_statuses()?;
        Ok(true)
    }
}

/// The reports of a process that has ended and of the processes that it started, one line each.
fn reports<R: DeserializeOwned>(worker: &mut Child) -> Result<Vec<R>, Failure> {
    let mut text = String::new();
    if let Some(output) = &mut worker.stdout {
        output.read_to_string(&mut text).doing("read a report")?;
    }
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).doing("read a report")).collect()
}

/// The reason that a failed process gave.
fn complaint(worker: &mut Child, status: &str) -> Failure {
    let mut text = String::new();
    if let Some(errors) = &mut worker.stderr {
        // If this fails, the exit status is still known.
        let _ = errors.read_to_string(&mut text);
    }
    // Launchers print more than the processes that they start, and draw frames around it.
    let ours = text.lines().find(|line| line.starts_with("cannot "));
    let says = |line: &&str| line.contains(char::is_alphanumeric);
    let last = || text.lines().map(str::trim).rfind(says);
    let mut line = ours.or_else(last).unwrap_or_default().to_owned();
    if line.is_empty() {
        let _ = write!(line, "a process ended: {status}");
    }
    Failure::other(line)
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // The process may have ended by itself.
            let _ = worker.kill();
            let _ = worker.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
