//! The processes of one measurement: starts and pins them, waits for their steps, and collects their
//! reports. Kills them if the controller gives up.

use std::any::Any;
use std::cell::OnceCell;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use corewire::Domain;
use corewire_os::fork::Descriptor;
use corewire_os::{process, processor};
use corewire_ring::sync::pause;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::board::{Board, READY};
use super::output::{complaint, reports_of};
use super::places::{Assignment, relax};
use super::program::Program;
use super::report::Report;
use super::role::{Letter, Role, Seat};
use crate::failure::{Doing, Failure};

/// The controller's side of a crew. When it is dropped, its processes are killed and its directory is
/// removed.
#[derive(Debug)]
pub struct Crew {
    parts: Parts,
    /// The processes that were started here. They may have started others.
    workers: Vec<Child>,
    /// Their process descriptors.
    lives: Vec<Descriptor>,
    domain: OnceCell<Domain>,
    kept: Vec<Box<dyn Any>>,
}

/// What a crew has before its workers are started.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) program: Program,
    pub(super) board: Board,
    pub(super) directory: Directory,
    /// When the run fails because it takes too long.
    pub(super) deadline: Option<Instant>,
    /// The processors that this process may use.
    pub(super) cpus: Vec<usize>,
    pub(super) assignment: Assignment,
    /// Number of processes that take part in the measurement.
    pub(super) processes: usize,
}

/// The directory of a crew, which only this user can enter. It is removed at the end.
#[derive(Debug)]
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn create(path: PathBuf) -> Result<Self, Failure> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.doing(format_args!("make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Crew {
    pub(super) fn new(parts: Parts) -> Self {
        let (workers, lives, kept) = (Vec::new(), Vec::new(), Vec::new());
        Self { parts, workers, lives, domain: OnceCell::new(), kept }
    }

    /// The directory of the crew, which is removed at the end.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.parts.directory.0
    }

    /// What all processes of the crew share.
    #[must_use]
    pub fn board(&self) -> &Board {
        &self.parts.board
    }

    /// The domain of the crew, in its directory.
    ///
    /// # Errors
    /// If the domain cannot be opened.
    pub fn domain(&self) -> Result<&Domain, Failure> {
        if let Some(domain) = self.domain.get() {
            return Ok(domain);
        }
        let domain = Domain::open_at(self.directory()).doing("open a domain")?;
        Ok(self.domain.get_or_init(|| domain))
    }

    /// Keeps a value until the run ends.
    pub fn keep(&mut self, kept: Box<dyn Any>) {
        self.kept.push(kept);
    }

    /// Whether loops that poll must yield, because not every process has a processor of its own.
    #[must_use]
    pub fn is_oversubscribed(&self) -> bool {
        self.parts.assignment.is_oversubscribed
    }

    /// The command line of worker `index`, program first, for a launcher.
    ///
    /// # Errors
    /// If the order cannot be written as JSON.
    pub fn command_of<O: Serialize>(
        &self,
        index: usize,
        role: &Role<O>,
        order: &O,
    ) -> Result<Vec<String>, Failure> {
        let seat = Seat {
            index,
            board: self.parts.board.path(),
            directory: self.directory().to_owned(),
            cpu: self.parts.assignment.workers.get(index).copied().flatten(),
            must_yield: self.parts.assignment.is_oversubscribed,
        };
        let order = serde_json::to_value(order).doing("write an order")?;
        let letter = Letter { role: role.name.to_owned(), seat, order };
        let letter = serde_json::to_string(&letter).doing("write an order")?;
        let program = std::env::current_exe().doing("find this program")?;
        let program = program.to_string_lossy().into_owned();
        let arguments = self.parts.program.arguments.iter().map(|&word| word.to_owned());
        Ok([program].into_iter().chain(arguments).chain([letter]).collect())
    }

    /// Starts the next worker. After the last one, pins the controller if it takes part.
    ///
    /// # Errors
    /// If the process cannot be started, or the controller cannot be pinned.
    pub fn add_worker<O: Serialize>(&mut self, role: &Role<O>, order: &O) -> Result<(), Failure> {
        let words = self.command_of(self.workers.len(), role, order)?;
        self.add(Command::new(&words[0]).args(&words[1..]))?;
        match self.parts.assignment.controller {
            Some(cpu) if self.workers.len() == self.parts.assignment.workers.len() => {
                processor::pin_to(cpu).doing(format_args!("keep to processor {cpu}"))
            }
            _ => Ok(()),
        }
    }

    /// Starts a process: a launcher, which starts the workers itself.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn add(&mut self, command: &mut Command) -> Result<(), Failure> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().doing(format_args!("start {name}"))?;
        let life = process::life_of(child.id());
        self.workers.push(child);
        self.lives.push(life.doing("watch a process")?);
        Ok(())
    }

    /// Takes the last worker out of the crew, for a caller that kills it.
    pub fn take_worker(&mut self) -> Option<Child> {
        self.lives.pop();
        self.workers.pop()
    }

    /// The ids of the processes that were started here.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.workers.iter().map(Child::id)
    }

    /// Processor time that these processes have used, in seconds.
    ///
    /// # Errors
    /// If one of them has been waited for.
    pub fn processor_seconds(&self) -> Result<f64, Failure> {
        let of = |pid| process::processor_seconds(pid).doing("read a processor time");
        self.pids().map(of).sum()
    }

    /// Waits until all workers are [`READY`]. Sleeps meanwhile, for a controller that does not take
    /// part.
    ///
    /// # Errors
    /// If a worker fails, the user wants an end, or the time is up.
    pub fn await_ready(&mut self) -> Result<(), Failure> {
        let workers = self.parts.assignment.workers.len();
        while !(0..workers).all(|worker| self.parts.board.has_reached(worker, READY)) {
            self.check()?;
            self.await_an_end(Duration::from_micros(200))?;
        }
        Ok(())
    }

    /// Waits until worker `index` has reached `step`. Polls, for a controller that takes part.
    ///
    /// # Errors
    /// As [`Self::await_ready`], and if this worker ends before the step.
    pub fn await_step(&mut self, index: usize, step: u64) -> Result<(), Failure> {
        let mut polls = 0u64;
        while !self.parts.board.has_reached(index, step) {
            pause();
            polls += 1;
            if self.is_oversubscribed() && polls.is_multiple_of(64) {
                std::thread::yield_now();
            }
            if polls.is_multiple_of(1 << 20) {
                self.check()?;
                let has_ended = has_ended(&mut self.workers[index])?;
                if has_ended && !self.parts.board.has_reached(index, step) {
                    return Err(Failure::other("a worker ended early"));
                }
            }
        }
        Ok(())
    }

    /// For a loop that polls for something from the workers: waits a moment, and checks that they run.
    ///
    /// # Errors
    /// As [`Self::await_ready`], and if a worker has ended.
    pub fn look(&mut self) -> Result<(), Failure> {
        relax(self.is_oversubscribed());
        self.check()?;
        for worker in &mut self.workers {
            if has_ended(worker)? {
                return Err(Failure::other("a worker ended early"));
            }
        }
        Ok(())
    }

    /// Fails if a process has failed, the user wants an end, or the time is up.
    fn check(&mut self) -> Result<(), Failure> {
        self.check_statuses()?;
        (self.parts.program.check)()?;
        if self.parts.deadline.is_some_and(|deadline| Instant::now() > deadline) {
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

    /// Like [`await_step`](Self::await_step), and sleeps meanwhile.
    ///
    /// # Errors
    /// As [`Self::await_ready`].
    pub fn await_step_asleep(&mut self, index: usize, step: u64) -> Result<(), Failure> {
        while !self.parts.board.has_reached(index, step) {
            self.check()?;
            self.await_an_end(Duration::from_millis(5))?;
        }
        Ok(())
    }

    /// Lets workers that wait for it begin.
    pub fn go(&self) {
        self.parts.board.go();
    }

    /// Waits until all workers have ended.
    ///
    /// # Errors
    /// If a worker fails, the user wants an end, or the time is up.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.await_ends()
    }

    /// Waits for the reports of the workers, in the order in which they were started. Meanwhile it only
    /// checks whether they have ended, so that it does not disturb them.
    ///
    /// # Errors
    /// As [`Self::finish`], and if a report cannot be read.
    pub fn reports<R: DeserializeOwned>(mut self) -> Result<Vec<R>, Failure> {
        self.await_ends()?;
        let reports: Vec<Vec<R>> =
            self.workers.iter_mut().map(reports_of).collect::<Result<_, _>>()?;
        Ok(reports.into_iter().flatten().collect())
    }

    fn await_ends(&mut self) -> Result<(), Failure> {
        loop {
            let mut are_over = true;
            for worker in &mut self.workers {
                are_over &= has_ended(worker)?;
            }
            if are_over {
                return self.check_statuses();
            }
            self.check()?;
            self.await_an_end(Duration::from_millis(20))?;
        }
    }

    /// Sleeps until a running process ends, at most for `most`.
    fn await_an_end(&mut self, most: Duration) -> Result<(), Failure> {
        let mut running = Vec::new();
        for (worker, life) in self.workers.iter_mut().zip(&self.lives) {
            if !has_ended(worker)? {
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

    /// Adds the number of cores and of processes to a report.
    pub fn describe(&self, report: &mut Report) {
        let (cores, processes) = (self.parts.cpus.len(), self.parts.processes);
        report.value("cores", cores);
        report.value("processes", processes);
        report.value("oversubscribed", self.is_oversubscribed());
        if self.is_oversubscribed() {
            report.note(format!("oversubscribed: {processes} processes on {cores} cores"));
        }
    }
}

fn has_ended(worker: &mut Child) -> Result<bool, Failure> {
    Ok(worker.try_wait().doing("look after a process")?.is_some())
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // The process may have ended by itself.
            let _ = worker.kill();
            let _ = worker.wait();
        }
        // Before its directory.
        self.domain.take();
        if self.parts.assignment.controller.is_some() {
            let _ = processor::keep_to(&self.parts.cpus);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Places;
    use crate::setup::Setup;

    fn setup() -> Setup {
        let program = Program { arguments: &["work"], check: || Ok(()) };
        Setup::new(program, 1).places(Places::Anywhere)
    }

    fn shell(command: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]);
        shell
    }

    #[test]
    fn reports_are_lines_of_json_among_others() {
        let mut crew = setup().crew().unwrap();
        let directory = crew.directory().to_owned();
        assert!(directory.is_dir());
        crew.add(&mut shell("echo banner; echo '{\"a\": 1}'; echo '{\"a\": 2}'")).unwrap();
        let reports: Vec<serde_json::Value> = crew.reports().unwrap();
        assert_eq!(reports, [serde_json::json!({"a": 1}), serde_json::json!({"a": 2})]);
        assert!(!directory.exists(), "nothing is left");
    }

    #[test]
    fn a_worker_that_fails_ends_every_wait_with_its_reason() {
        for wait in [
            Crew::finish,
            |mut crew: Crew| crew.await_step(0, 1),
            |mut crew: Crew| crew.await_ready(),
        ] {
            let mut crew = setup().crew().unwrap();
            crew.add(&mut shell("echo 'cannot do this: no' >&2; echo more >&2; exit 1")).unwrap();
            assert_eq!(wait(crew).unwrap_err().message, "cannot do this: no");
        }
    }

    #[test]
    fn a_worker_that_ends_before_its_step_is_not_waited_for() {
        let mut crew = setup().crew().unwrap();
        crew.add(&mut shell("exit 0")).unwrap();
        assert_eq!(crew.await_step(0, 1).unwrap_err().message, "a worker ended early");
    }
}
