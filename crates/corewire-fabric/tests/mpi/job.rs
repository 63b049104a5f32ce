//! A job that runs, within a limit. What it has started ends with it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use crate::place::Place;

/// In the environment of every process of a job.
const MARK: &str = "COREWIRE_TEST_JOB";

/// How long a job may take.
fn limit() -> Duration {
    let given = std::env::var("COREWIRE_MPI_LIMIT").ok().and_then(|limit| limit.parse().ok());
    Duration::from_secs(given.unwrap_or(100))
}

/// A job whose output is being read.
pub(crate) struct Job {
    child: Child,
    mark: String,
    lines: Receiver<String>,
    /// What it has printed so far.
    output: String,
    until: Instant,
}

impl Job {
    /// Starts `command` with the provider of `place`.
    pub(crate) fn start(place: &Place, command: &mut Command) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        command.env("FI_PROVIDER_PATH", place.providers()).env("FI_PROVIDER", "corewire");
        command.env("COREWIRE_RUNTIME_DIR", place.runtime()).env("TMPDIR", place.temporary());
        command.env(MARK, &mark).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (send, lines) = channel();
        read_lines(child.stdout.take().unwrap(), send.clone());
        read_lines(child.stderr.take().unwrap(), send);
        let output = format!("{command:?}\n");
        Self { child, mark, lines, output, until: Instant::now() + limit() }
    }

    fn next(&mut self) -> Option<String> {
        let left = self.until.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => {
                self.output += &line;
                self.output.push('\n');
                Some(line)
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                self.fail("it has not ended in time")
            }
        }
    }

    /// The rest of the next line that begins with `start`.
    #[track_caller]
    pub(crate) fn line(&mut self, start: &str) -> String {
        let [mut lines] = self.lines([(start, 1)]);
        lines.remove(0)
    }

    /// The rests of so many lines for each beginning, in any order: ranks write at the same time.
    #[track_caller]
    pub(crate) fn lines<const N: usize>(&mut self, wanted: [(&str, usize); N]) -> [Vec<String>; N] {
        let mut found = [const { Vec::new() }; N];
        while (0..N).any(|index| found[index].len() < wanted[index].1) {
            let Some(line) = self.next() else {
                self.fail(&format!("it ended before it printed {wanted:?}"));
            };
            for (found, (start, _)) in found.iter_mut().zip(wanted) {
                found.extend(line.strip_prefix(start).map(str::to_owned));
            }
        }
        found
    }

    /// Lets rank 0 go on.
    pub(crate) fn answer(&mut self) {
        let input = self.child.stdin.as_mut().unwrap();
        if let Err(error) = input.write_all(b"\n").and_then(|()| input.flush()) {
            self.fail(&format!("it does not read: {error}"));
        }
    }

    /// Waits for its end and that of all its processes. Returns what it has printed, too.
    #[track_caller]
    pub(crate) fn finish(mut self) -> (ExitStatus, String) {
        while self.next().is_some() {}
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > self.until => self.fail("it has not ended in time"),
                None => thread::yield_now(),
            }
        };
        while !self.processes().is_empty() {
            if Instant::now() > self.until {
                self.fail("it has left processes behind");
            }
            thread::yield_now();
        }
        (status, std::mem::take(&mut self.output))
    }

    /// Waits until one of its processes has ended.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, process: &OwnedFd) {
        let left = self.until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap();
        if poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&left)) != Ok(1) {
            self.fail("a process has not ended in time");
        }
    }

    fn read_rest(&mut self) {
        while let Ok(line) = self.lines.recv() {
            self.output += &line;
            self.output.push('\n');
        }
    }

    #[track_caller]
    pub(crate) fn expect_success(self) -> String {
        let (status, output) = self.finish();
        assert!(status.success(), "{status}:\n{output}");
        output
    }

    #[track_caller]
    pub(crate) fn fail(&mut self, why: &str) -> ! {
        let waits = self.processes().iter().map(|process| waits(*process)).collect::<String>();
        self.end();
        self.read_rest();
        panic!("{why}. The job:\n{}{waits}", self.output);
    }

    /// Its processes that have not ended.
    fn processes(&self) -> Vec<Pid> {
        let mark = format!("{MARK}={}", self.mark).into_bytes();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_marked = |number: &i32| {
            let environment = fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|line| line == mark)
        };
        numbers.filter(is_marked).filter_map(Pid::from_raw).collect()
    }

    /// Kills what is left of it. Some may start others meanwhile.
    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            for process in left {
                let _ = kill_process(process, Signal::KILL);
            }
            thread::yield_now();
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.end();
    }
}

/// Where a process waits.
fn waits(process: Pid) -> String {
    let number = process.as_raw_nonzero();
    let read = |file: &str| {
        let text = fs::read(format!("/proc/{number}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&text).replace('\0', " ").trim().to_owned()
    };
    let stat = read("stat");
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('?');
    format!("process {number}, state {state}, in {}: {}\n", read("wchan"), read("cmdline"))
}

fn read_lines(from: impl Read + Send + 'static, to: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            if to.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
}
