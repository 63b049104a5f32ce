//! Starts roles, and waits for the lines that they print.

#![allow(dead_code, reason = "each test uses what it needs")]

pub(crate) mod users;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use corewire_layout::name::{ChannelName, RECORD_BYTES};
use rustix::process::{Pid, Signal, kill_process};

/// A separate runtime directory, removed at the end.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corewire-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Waits until a process waits for this channel and its note is complete. Returns the number of
    /// the waiter.
    pub(crate) fn waiter(&self, channel: &str) -> u128 {
        let name = ChannelName::new(channel).unwrap();
        loop {
            let is_complete = |file: &String| {
                let note = std::fs::metadata(self.0.join(file));
                note.is_ok_and(|note| note.len() == RECORD_BYTES as u64)
            };
            let mut files = self.files().into_iter().filter(is_complete);
            let waiter = files.find_map(|file| name.waiter_of_file(&file));
            match waiter {
                Some(waiter) => return waiter,
                None => thread::yield_now(),
            }
        }
    }

    /// The names of the files in it.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Far more than a role takes to say something: a test that waits longer fails, and says where, instead of hanging.
/// `COREWIRE_TEST_LIMIT` is for runs that are longer.
fn patience() -> Duration {
    let given = std::env::var("COREWIRE_TEST_LIMIT").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(600))
}

/// A running role; killed when dropped.
pub(crate) struct Role {
    pub(crate) child: Child,
    /// The lines of its output. They are read as they arrive, so a role never waits for a test to
    /// read.
    lines: Receiver<String>,
}

/// Starts a process that communicates through pipes.
pub(crate) fn start_role(
    role: &str,
    directory: &Directory,
    channel: &str,
    options: impl IntoIterator<Item: AsRef<OsStr>>,
) -> Child {
    Command::new(env!("CARGO_BIN_EXE_corewire-role"))
        .arg(role)
        .arg(directory.path())
        .arg(channel)
        .args(options)
        // Tests rely on what the library does on a machine that was not tuned.
        .env("COREWIRE_TUNING", "none")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

impl Role {
    pub(crate) fn start(
        role: &str,
        directory: &Directory,
        channel: &str,
        options: &[&str],
    ) -> Self {
        Self::of(start_role(role, directory, channel, options))
    }

    pub(crate) fn of(mut child: Child) -> Self {
        let output = BufReader::new(child.stdout.take().unwrap());
        let (told, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            lines.take_while(|line| told.send(line.clone()).is_ok()).count()
        });
        Self { child, lines }
    }

    /// The same, with what it says on standard error kept for [`Role::error`].
    pub(crate) fn start_quietly(
        role: &str,
        directory: &Directory,
        channel: &str,
        options: &[&str],
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corewire-role"));
        command.arg(role).arg(directory.path()).arg(channel).args(options).stderr(Stdio::piped());
        command.env("COREWIRE_TUNING", "none");
        Self::of(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// What it has said on standard error, once it has ended; `None` if it runs, or has said nothing.
    pub(crate) fn error(&mut self) -> Option<String> {
        self.child.try_wait().unwrap()?;
        let mut text = String::new();
        let mut error = self.child.stderr.take()?;
        std::io::Read::read_to_string(&mut error, &mut text).unwrap();
        (!text.is_empty()).then_some(text)
    }

    /// How it ended.
    pub(crate) fn ending(&mut self) -> String {
        self.child.wait().unwrap().to_string()
    }

    /// The next line it prints, if one comes within `time`: `Some(None)` at its end.
    pub(crate) fn line_within(&mut self, time: Duration) -> Option<Option<String>> {
        match self.lines.recv_timeout(time) {
            Ok(line) => Some(Some(line)),
            Err(mpsc::RecvTimeoutError::Disconnected) => Some(None),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
        }
    }

    /// The next line that it prints; `None` at the end of its output.
    #[track_caller]
    pub(crate) fn line(&mut self) -> Option<String> {
        let patience = patience();
        match self.line_within(patience) {
            Some(line) => line,
            None => panic!("process {} has printed nothing for {patience:?}", self.id()),
        }
    }

    /// Reads lines until one begins with `word`. Returns the rest of that line.
    #[track_caller]
    pub(crate) fn until(&mut self, word: &str) -> String {
        let mut last = None;
        while let Some(line) = self.line() {
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
            last = Some(line);
        }
        panic!("a role ended before it said {word:?}; its last line was {last:?}");
    }

    /// The number in the last line so far that begins with `word`, or `otherwise`.
    pub(crate) fn latest(&mut self, word: &str, otherwise: u64) -> u64 {
        let numbers =
            self.lines.try_iter().filter_map(|line| line.strip_prefix(word)?.parse().ok());
        numbers.last().unwrap_or(otherwise)
    }

    /// Reads lines until one begins with `word` and holds a number above `bound`.
    #[track_caller]
    pub(crate) fn until_past(&mut self, word: &str, bound: u64) -> u64 {
        loop {
            let number = self.until(word).parse().unwrap();
            if number > bound {
                return number;
            }
        }
    }

    /// Writes a line to its standard input.
    pub(crate) fn say(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    /// Ends its standard input.
    pub(crate) fn hang_up(&mut self) {
        drop(self.child.stdin.take());
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The numbers of its open descriptors.
    pub(crate) fn descriptors(&self) -> BTreeSet<u64> {
        let all = std::fs::read_dir(format!("/proc/{}/fd", self.id())).unwrap();
        all.map(|one| one.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
    }

    /// Lets it open so many descriptors and no more; what is open stays. `None` lets it open as many as it may.
    pub(crate) fn limit_descriptors(&mut self, more: Option<usize>) {
        let more = more.map(|more| more.to_string()).unwrap_or_default();
        self.say(&format!("limit {more}"));
        assert_eq!(self.until("limited"), "");
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it, and waits until the kernel reports it as stopped.
    pub(crate) fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
        let path = format!("/proc/{}/stat", self.child.id());
        while !std::fs::read_to_string(&path).unwrap().contains(") T ") {
            thread::yield_now();
        }
    }

    /// Continues it.
    pub(crate) fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }

    pub(crate) fn is_success(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Random numbers from a seed. The seed is printed, so that a run can be repeated.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn from_environment() -> Self {
        let time = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let given = std::env::var("COREWIRE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or(u64::try_from(time & 0xffff_ffff).unwrap());
        println!("COREWIRE_SEED={seed}");
        Self::new(seed)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
