//! Runs each example of the help texts and of the documents as a reader would, with the example programs, channels and
//! files that it names, in a domain of its own. `rows.rs` says what each needs, and what must come of it. An example
//! without a row is an error, and so is a row without an example. Benches and studies measure for minutes: of these
//! only the arguments are checked.
//!
//! The programs of `examples` must be built: `cargo test --workspace` does so, otherwise `cargo build -p corewire-examples`.

mod rows;
mod texts;

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};

use rows::{ARGUMENTS_ONLY, Row};
use texts::Shown;

/// How long what must happen may take before an example has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Examples that run at the same time.
const AT_A_TIME: usize = 4;
/// Absolute paths of examples, which are below the folder of the example here.
const MOVED: [&str; 3] = [" /usr/src/", " /var/lib/", " /etc/corewire/"];
/// The port of `corewire metrics` in examples. Another process may have it.
const PORT: &str = "9464";

/// Where all examples run.
struct Machine {
    folder: PathBuf,
    port: String,
}

impl Machine {
    /// The programs are in one folder. A shell fills it: a child that another test starts has open what this process is
    /// writing, and what is open for writing cannot be run.
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("corewire-examples-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("bin")).unwrap();
        let programs = Path::new(env!("CARGO_BIN_EXE_corewire")).parent().unwrap();
        for program in ["calculator", "file_server", "shop", "corewire-lab"] {
            let is_built = programs.join(program).exists();
            assert!(is_built, "build {program}: cargo build -p corewire-examples -p corewire-lab");
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let machine = Self { folder, port };
        let mut fill = Command::new("bash");
        fill.args(["-ec", rows::PROGRAMS]).arg(programs);
        assert!(fill.current_dir(machine.folder.join("bin")).status().unwrap().success());
        machine
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Where one example runs: its domain, its files, what it prints, and the processes that run there.
struct Place<'a> {
    machine: &'a Machine,
    row: &'a Row,
    folder: PathBuf,
    processes: Vec<Child>,
}

impl<'a> Place<'a> {
    fn new(machine: &'a Machine, row: &'a Row, number: usize) -> Self {
        let folder = machine.folder.join(number.to_string());
        for part in ["work", "tmp"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        if row.user.is_some() {
            for part in ["", "work", "tmp"] {
                fs::set_permissions(folder.join(part), Permissions::from_mode(0o777)).unwrap();
            }
        }
        Self { machine, row, folder, processes: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What is in a file, for people.
    fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path(name)).unwrap_or_default()).into_owned()
    }

    /// A shell with this script, in a process group of its own. It is the first process that fails which decides.
    fn shell(&self, script: &str, user: Option<u32>) -> Command {
        let mut command = Command::new("bash");
        if let Some(user) = user {
            command = Command::new("setpriv");
            let ids = [format!("--reuid={user}"), format!("--regid={user}")];
            command.args(ids).args(["--clear-groups", "bash"]);
        }
        command.args(["-e", "-o", "pipefail", "-c", script]);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.machine.folder.join("bin").display()));
        command.env("COREWIRE_RUNTIME_DIR", self.path("run")).env("TMPDIR", self.path("tmp"));
        command.env("HOME", self.path("work")).env("OUTPUT", self.path("output"));
        command.env("EXAMPLES", concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
        command
            .env("PORT", &self.machine.port)
            .env_remove("COREWIRE_OWNER")
            .env_remove("COREWIRE_MONITOR");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(self.append("errors"));
        command.current_dir(self.path("work")).process_group(0);
        command
    }

    fn append(&self, name: &str) -> File {
        File::options().append(true).create(true).open(self.path(name)).unwrap()
    }

    /// Looks until a script of the row succeeds. Each look is a process, so that no other wait is needed.
    fn await_success(&self, script: &str) -> Result<(), String> {
        let began = Instant::now();
        while !script.is_empty() {
            let mut command = self.shell(script, None);
            if command.stderr(Stdio::null()).status().unwrap().success() {
                break;
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("this does not succeed: {script}"));
            }
        }
        Ok(())
    }

    fn run(&mut self, shown: &Shown) -> Result<(), String> {
        let row = self.row;
        if !self.shell(row.before, None).status().unwrap().success() {
            return Err(format!("this fails: {}", row.before));
        }
        for script in &row.beside {
            let started = self.shell(script, None).spawn().unwrap();
            self.processes.push(started);
        }
        self.await_success(row.ready)?;
        let script = shown.script.strip_prefix("$ ").unwrap_or(&shown.script);
        let script = MOVED.iter().fold(script.to_owned(), |script, path| {
            script.replace(path, &path.replacen('/', "", 1))
        });
        let script = script.replace(PORT, &self.machine.port);
        let terminal = "script -qefc 'stty cols 120 rows 40; exec bash -e -o pipefail -c \"$LINE\"' \"$OUTPUT\"";
        let mut command = self.shell(if row.is_on_terminal { terminal } else { &script }, row.user);
        command.env("LINE", &script);
        if !row.is_on_terminal {
            command.stdout(self.append("output"));
        }
        if row.input.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut example = command.spawn().unwrap();
        // It stays open.
        let mut input = example.stdin.take();
        if let (Some(input), Some(text)) = (&mut input, row.input) {
            input.write_all(text.as_bytes()).unwrap();
        }
        self.processes.push(example);
        if row.lives.is_empty() {
            self.expect_end(shown)?;
            // Beside it, others may have something to do yet.
            return self.await_success(row.after);
        }
        self.await_success(row.lives)?;
        self.end_all(Signal::TERM)?;
        self.await_success(row.after)
    }

    /// The example ends by itself, as it should.
    fn expect_end(&mut self, shown: &Shown) -> Result<(), String> {
        let (row, began) = (self.row, Instant::now());
        let example = self.processes.last().unwrap();
        let status = loop {
            match ended(example) {
                Some(status) => break status,
                None if began.elapsed() > PATIENCE => return Err("it does not end".to_owned()),
                None => std::thread::yield_now(),
            }
        };
        if status.exit_status() != Some(row.code) {
            return Err(format!("it ends with {status:?}"));
        }
        let output = self.text("output");
        match &shown.output {
            Some(expected) if !agree(expected, &output) => {
                Err(format!("it should print {expected:?}"))
            }
            _ if !output.contains(row.prints) => Err(format!("it should print {:?}", row.prints)),
            _ => Ok(()),
        }
    }

    /// Ends all processes by a signal: the example first, then what runs beside it.
    fn end_all(&mut self, signal: Signal) -> Result<(), String> {
        let began = Instant::now();
        for process in self.processes.iter().rev() {
            let _ = kill_process_group(Pid::from_child(process), signal);
            while ended(process).is_none() {
                if began.elapsed() > PATIENCE {
                    return Err("a signal does not end it".to_owned());
                }
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let _ = self.end_all(Signal::KILL);
        for process in &mut self.processes {
            let _ = process.wait();
        }
    }
}

/// How a process has ended, if it has. Its number stays taken, so that a signal to its group reaches no other group.
fn ended(process: &Child) -> Option<WaitIdStatus> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    waitid(WaitId::Pid(Pid::from_child(process)), options).unwrap()
}

/// Whether this was printed. Three dots in a line of a document stand for what is not the same each time.
fn agree(shown: &str, printed: &str) -> bool {
    let (shown, printed) = (shown.trim_end(), printed.trim_end());
    let is_same = |(shown, printed): (&str, &str)| match shown.split_once("...") {
        Some((start, end)) => {
            printed.len() >= start.len() + end.len()
                && printed.starts_with(start)
                && printed.ends_with(end)
        }
        None => shown == printed,
    };
    shown.lines().count() == printed.lines().count()
        && shown.lines().zip(printed.lines()).all(is_same)
}

#[test]
fn three_dots_stand_for_what_varies() {
    assert!(agree("a\npid ... runs\n", "a\npid 17 runs"));
    for printed in ["a", "a\npid 17", "a\npid 17 runs\nb", "b\npid 17 runs"] {
        assert!(!agree("a\npid ... runs", printed), "{printed}");
    }
}

#[test]
fn every_example_works_as_it_is_shown() {
    let machine = Machine::new();
    let rows: BTreeMap<_, _> = rows::all().into_iter().map(|row| (row.script, row)).collect();
    // What stands in several texts runs once, unless different outputs are shown.
    let mut shown = texts::all();
    let mut failed = Vec::new();
    for script in rows.keys() {
        if !shown.iter().any(|it| it.script == *script) {
            failed.push(format!("no text shows the row {script:?}"));
        }
    }
    shown.sort_by(|one, other| (&one.script, &one.output).cmp(&(&other.script, &other.output)));
    shown.dedup_by(|one, other| (&one.script, &one.output) == (&other.script, &other.output));
    let mut work = Vec::new();
    let arguments_only = ARGUMENTS_ONLY.map(rows::arguments_of);
    for mut example in shown {
        let of_lab = arguments_only.iter().find(|row| example.script.starts_with(row.script));
        match (rows.get(example.script.as_str()), of_lab) {
            (Some(row), _) => work.push((example, row)),
            (None, Some(row)) => {
                example.script.push_str(" --help");
                work.push((example, row));
            }
            _ => failed.push(format!("{}: no row for {:?}", example.place, example.script)),
        }
    }
    // These take longest.
    work.sort_by_key(|(example, _)| !example.script.starts_with("corewire model "));
    let (work, failed) = (Mutex::new(work.into_iter().enumerate()), Mutex::new(failed));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let next = work.lock().unwrap().next();
                    let Some((number, (example, row))) = next else { break };
                    if let Err(why) = run(&machine, number, &example, row) {
                        failed.lock().unwrap().push(why);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} examples:\n\n{}", failed.len(), failed.join("\n\n"));
}

/// Runs an example where that is possible.
fn run(machine: &Machine, number: usize, shown: &Shown, row: &Row) -> Result<(), String> {
    let began = Instant::now();
    let mut place = Place::new(machine, row, number);
    if !place.shell(row.needs, None).stderr(Stdio::null()).status().unwrap().success() {
        eprintln!("not run: {}, because this fails: {}", shown.script, row.needs);
        return Ok(());
    }
    let done = place.run(shown);
    eprintln!("{:.1} s: {}", began.elapsed().as_secs_f64(), shown.script);
    done.map_err(|why| {
        let (output, errors) = (place.text("output"), place.text("errors"));
        let output = output.chars().take(2000).collect::<String>();
        format!("{}: {}\n{why}\noutput: {output}\nerrors: {errors}", shown.place, shown.script)
    })
}
