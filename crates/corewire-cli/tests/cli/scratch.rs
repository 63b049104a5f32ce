//! A place for one test, and processes in it.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Bytes of the note of a receiver that waits for a channel.
const NOTE_BYTES: u64 = 76;
/// Far more than anything here takes: a test that waits longer fails instead of hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A directory of a test's own: the runtime directory, the temporary one and its files.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corewire-cli-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("tmp")).unwrap();
        Self(path)
    }

    pub(crate) fn runtime(&self) -> PathBuf {
        self.0.join("run")
    }

    pub(crate) fn temporary(&self) -> PathBuf {
        self.0.join("tmp")
    }

    /// A file that holds `bytes`.
    pub(crate) fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.join("file");
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// `corewire` with these arguments, separated by spaces, and nothing on its input.
    pub(crate) fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corewire"));
        command.args(args.split_whitespace());
        command.env("COREWIRE_RUNTIME_DIR", self.runtime()).env("TMPDIR", self.temporary());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, args: &str) -> Finished {
        Running::start(&mut self.command(args)).finish()
    }

    /// Waits until `count` receivers wait for a channel.
    pub(crate) fn await_waiters(&self, count: usize) {
        eventually(|| {
            let files = std::fs::read_dir(self.runtime()).into_iter().flatten().flatten();
            // Who is just writing one looks for itself.
            let is_note = |file: &std::fs::DirEntry| {
                file.file_name().to_string_lossy().starts_with("w.")
                    && file.metadata().is_ok_and(|note| note.len() == NOTE_BYTES)
            };
            files.filter(is_note).count() == count
        });
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process whose output is being read.
pub(crate) struct Running {
    pub(crate) child: Child,
    output: Option<mpsc::Receiver<Vec<u8>>>,
    errors: mpsc::Receiver<Vec<u8>>,
}

/// A process that has ended.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: String,
}

/// Stops a process, and waits until none of its threads runs any more.
pub(crate) fn stop(child: &Child) {
    let process = Pid::from_child(child);
    kill_process(process, Signal::STOP).unwrap();
    waitid(WaitId::Pid(process), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT).unwrap();
}

impl Running {
    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it.
    pub(crate) fn stop(&self) {
        stop(&self.child);
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn start(command: &mut Command) -> Self {
        let mut running = Self::start_unread(command);
        let output = running.child.stdout.take().unwrap();
        running.output = Some(read_all(output));
        running
    }

    /// Nobody reads its output yet. No signal is ignored in it, also if the tests themselves ignore some.
    pub(crate) fn start_unread(command: &mut Command) -> Self {
        static CAUGHT: Once = Once::new();
        CAUGHT.call_once(|| {
            // What is caught here has its usual effect here, and in a program that is started.
            for signal in [SIGINT, SIGHUP, SIGTERM] {
                let always = Arc::new(AtomicBool::new(true));
                signal_hook::flag::register_conditional_default(signal, always).unwrap();
            }
        });
        let mut child = command.spawn().unwrap();
        let errors = read_all(child.stderr.take().unwrap());
        Self { child, output: None, errors }
    }

    pub(crate) fn input(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    /// Waits for its end; what is left of its output is read.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Finished {
        let output = self.output.take().or_else(|| self.child.stdout.take().map(read_all));
        let mut status = None;
        eventually(|| {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let output = output.map(|reader| all_of(&reader)).unwrap_or_default();
        let errors = String::from_utf8(all_of(&self.errors)).unwrap();
        Finished { status: status.unwrap(), output, errors }
    }
}

impl Finished {
    #[track_caller]
    pub(crate) fn expect_code(&self, code: i32) {
        assert_eq!(self.status.code(), Some(code), "standard error: {}", self.errors);
    }

    /// It failed with `code`, and said why in one line that holds `word`. A line before that says
    /// where it waited does not count.
    #[track_caller]
    pub(crate) fn expect_line(&self, code: i32, word: &str) {
        self.expect_code(code);
        let said = self.errors.lines().filter(|line| !line.starts_with("corewire: waiting for "));
        let said: Vec<_> = said.collect();
        assert_eq!(said.len(), 1, "{:?}", self.errors);
        assert!(said[0].starts_with("corewire: "), "{:?}", self.errors);
        assert!(said[0].contains(word), "{word:?} is not in {:?}", self.errors);
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.output).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.output).unwrap()
    }
}

fn read_all(mut from: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (send, all_of_it) = mpsc::channel();
    thread::spawn(move || {
        let mut all = Vec::new();
        from.read_to_end(&mut all).unwrap();
        let _ = send.send(all);
    });
    all_of_it
}

#[track_caller]
fn all_of(reader: &mpsc::Receiver<Vec<u8>>) -> Vec<u8> {
    let all = reader.recv_timeout(PATIENCE);
    all.expect("a process that has ended has left one that keeps its output open")
}

/// The next line.
#[track_caller]
pub(crate) fn line(from: &mut BufReader<impl Read + AsFd>) -> String {
    let (mut line, limit) = (Vec::new(), Timespec::try_from(PATIENCE).unwrap());
    while line.last() != Some(&b'\n') {
        if from.buffer().is_empty() {
            let came = poll(&mut [PollFd::new(from.get_ref(), PollFlags::IN)], Some(&limit));
            let so_far = String::from_utf8_lossy(&line);
            assert_eq!(came, Ok(1), "no line came within {PATIENCE:?}, only {so_far:?}");
        }
        let buffer = from.fill_buf().unwrap();
        let length =
            buffer.iter().position(|byte| *byte == b'\n').map_or(buffer.len(), |at| at + 1);
        if length == 0 {
            break;
        }
        line.extend_from_slice(&buffer[..length]);
        from.consume(length);
    }
    String::from_utf8(line).unwrap()
}

/// Looks until `is_so`.
#[track_caller]
pub(crate) fn eventually(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "it did not happen within {PATIENCE:?}");
        thread::yield_now();
    }
}

/// Bytes without a pattern that a wrong order would hide in.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut all = Vec::with_capacity(bytes + 8);
    while all.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.extend_from_slice(&state.to_le_bytes());
    }
    all.truncate(bytes);
    all
}

/// How many files a directory holds; none if it is not there.
pub(crate) fn files_in(path: &Path) -> Vec<String> {
    let files = std::fs::read_dir(path).into_iter().flatten().flatten();
    files.map(|file| file.file_name().to_string_lossy().into_owned()).collect()
}
