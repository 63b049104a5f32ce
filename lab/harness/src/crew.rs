//! The processes of one measurement: starts and pins them, waits for their steps, and collects their
//! reports. Kills them if the controller gives up.

use std::any::Any;
use std::cell::OnceCell;
use std::fs::DirBuilder;
use std::io::Read;
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
use super::places::{Assignment, relax};
use super::program::Program;
use super::report::Report;
use super::role::{Letter, Role, Seat};
use crate::failure::{Doing, Failure};

/// The controller's side of a crew. When it is dropped, its processes are killed and its directory is
/// removed.
#[derive(Debug)]
pub struct Crew {
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
    /// The processes that were started here. They may have started others.
    pub(super) workers: Vec<Child>,
    /// Their process descriptors.
    pub(super) lives: Vec<Descriptor>,
    pub(super) domain: OnceCell<Domain>,
    pub(super) kept: Vec<Box<dyn Any>>,
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
    /// The directory of the crew, which is removed at the end.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory.0
    }

    /// What all processes of the crew share.
    #[must_use]
    pub fn board(&self) -> &Board {
        &self.board
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
        self.assignment.is_oversubscribed
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
            board: self.board.path(),
            directory: self.directory().to_owned(),
            cpu: self.assignment.workers.get(index).copied().flatten(),
            must_yield: self.is_oversubscribed(),
        };
        let order = serde_json::to_value(order).doing("write an order")?;
        let letter = Letter { role: role.name.to_owned(), seat, order };
        let letter = serde_json::to_string(&letter).doing("write an order")?;
        let program = std::env::current_exe().doing("find this program")?;
        let mut words = vec![program.to_string_lossy().into_owned()];
        words.extend(self.program.arguments.iter().map(|&word| word.to_owned()));
        words.push(letter);
        Ok(words)
    }

    /// Starts the next worker. After the last one, pins the controller if it takes part.
    ///
    /// # Errors
    /// If the process cannot be started, or the controller cannot be pinned.
    pub fn add_worker<O: Serialize>(&mut self, role: &Role<O>, order: &O) -> Result<(), Failure> {
        let words = self.command_of(self.workers.len(), role, order)?;
        self.add(Command::new(&words[0]).args(&words[1..]))?;
        match self.assignment.controller {
            Some(cpu) if self.workers.len() == self.assignment.workers.len() => {
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
        let workers = 0..self.assignment.workers.len();
        self.await_asleep(Duration::from_micros(200), |crew| {
            Ok(workers.clone().all(|worker| crew.board.has_reached(worker, READY)))
        })
    }

    /// Waits until worker `index` has reached `step`. Polls, for a controller that takes part.
    ///
    /// # Errors
    /// As [`Self::await_ready`], and if this worker ends before the step.
    pub fn await_step(&mut self, index: usize, step: u64) -> Result<(), Failure> {
        let mut polls = 0u64;
        while !self.board.has_reached(index, step) {
            pause();
            polls += 1;
            if self.is_oversubscribed() && polls.is_multiple_of(64) {
                std::thread::yield_now();
            }
            if polls.is_multiple_of(1 << 20) {
                self.check()?;
                let has_ended = has_ended(&mut self.workers[index])?;
                if has_ended && !self.board.has_reached(index, step) {
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
        (self.program.check)()?;
        if self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
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
        self.await_asleep(Duration::from_millis(5), |crew| Ok(crew.board.has_reached(index, step)))
    }

    /// Lets workers that wait for it begin.
    pub fn go(&self) {
        self.board.go();
    }

    /// Waits until all workers have ended.
    ///
    /// # Errors
    /// If a worker fails, the user wants an end, or the time is up.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.await_ends()
    }

    /// The same, at the end of a benchmark, which the crew [describes](Self::describe).
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_with(self, report: &mut Report) -> Result<(), Failure> {
        self.describe(report);
        self.finish()
    }

    /// Waits for the reports of the workers, in the order in which they were started. Meanwhile it only
    /// checks whether they have ended, so that it does not disturb them.
    ///
    /// # Errors
    /// As [`Self::finish`], and if a report cannot be read.
    pub fn reports<R: DeserializeOwned>(mut self) -> Result<Vec<R>, Failure> {
        self.await_ends()?;
        let reports: Result<Vec<Vec<R>>, _> = self.workers.iter_mut().map(reports_of).collect();
        Ok(reports?.into_iter().flatten().collect())
    }

    /// Waits until all workers are ready, lets them go, and waits for their reports.
    ///
    /// # Errors
    /// As [`Self::reports`].
    pub fn run<R: DeserializeOwned>(mut self) -> Result<Vec<R>, Failure> {
        self.await_ready()?;
        self.go();
        self.reports()
    }

    /// The same for a crew whose first worker reports for all.
    ///
    /// # Errors
    /// As [`Self::run`], and if there is no report.
    pub fn first_report<R: DeserializeOwned>(self) -> Result<R, Failure> {
        let first = self.run()?.into_iter().next();
        first.ok_or_else(|| Failure::other("nobody reported"))
    }

    fn await_ends(&mut self) -> Result<(), Failure> {
        self.await_asleep(Duration::from_millis(20), |crew| {
            let ended = crew.workers.iter_mut().map(has_ended).collect::<Result<Vec<_>, _>>()?;
            Ok(ended.into_iter().all(|has_ended| has_ended))
        })?;
        self.check_statuses()
    }

    /// Waits for something. Looks after it whenever a process ends, and at least this often.
    fn await_asleep(
        &mut self,
        often: Duration,
        mut is_there: impl FnMut(&mut Self) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        while !is_there(self)? {
            self.check()?;
            self.await_an_end(often)?;
        }
        Ok(())
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
        let (cores, processes) = (self.cpus.len(), self.processes);
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

/// The reports of a process that has ended and of the processes that it started, one line each.
fn reports_of<R: DeserializeOwned>(worker: &mut Child) -> Result<Vec<R>, Failure> {
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
    match reason(&text) {
        "" => Failure::other(format!("a process ended: {status}")),
        line => Failure::other(line),
    }
}

/// The line that says why a process failed. Launchers print more than the processes that they start,
/// and draw frames around it.
fn reason(text: &str) -> &str {
    let ours = text.lines().find(|line| line.starts_with("cannot "));
    let says = |line: &&str| line.contains(char::is_alphanumeric);
    let last = || text.lines().map(str::trim).rfind(says);
    ours.or_else(last).unwrap_or_default()
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
        if self.assignment.controller.is_some() {
            let _ = processor::keep_to(&self.cpus);
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

    #[test]
    fn the_reason_is_the_line_of_ours_or_the_last_one() {
        assert_eq!(reason("frame\ncannot open it: no\n-----\nmore"), "cannot open it: no");
        assert_eq!(reason("first\n  last word\n----\n"), "last word");
        assert_eq!(reason(""), "");
    }
}
