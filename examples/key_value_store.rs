//! A key-value store, replicated in three processes. Any of them may be killed: the others go on with everything that was
//! ever answered, and a process that starts again gets all of it.
//!
//! `key_value_store` starts three replicas of itself and works with them; `key_value_store replica` is one.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use corewire::Domain;
use corewire_group::{DecidedEntry, Group, Proposed, Replicated, StateMachine};

/// What a replica does with each decided command: `key=value`, `key=` to delete, or `key` to read.
#[derive(Default)]
struct Store(BTreeMap<String, String>);

impl StateMachine for Store {
    /// The answer.
    type Output = String;

    fn apply(&mut self, entry: &DecidedEntry) -> String {
        let command = String::from_utf8_lossy(&entry.command);
        match command.split_once('=') {
            Some((key, "")) => _ = self.0.remove(key),
            Some((key, value)) => _ = self.0.insert(key.to_owned(), value.to_owned()),
            // A read goes through the log, too, so that it sees every write that was answered before it.
            None => return self.0.get(&*command).cloned().unwrap_or_else(|| "nothing".to_owned()),
        }
        "done".to_owned()
    }

    fn snapshot(&self) -> Vec<u8> {
        let lines: Vec<String> =
            self.0.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        lines.concat().into_bytes()
    }

    fn restore(&mut self, snapshot: &[u8]) {
        let text = String::from_utf8_lossy(snapshot);
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        self.0 = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    }
}

/// A replica: reads `key=value` or `key` from standard input, line by line, and answers each with a line.
fn replica() -> Result<(), Box<dyn Error>> {
    let group = Group::builder(&Domain::open()?, "example-store").join()?;
    let mut store = Replicated::new(group, Store::default()).snapshot_every(1000);
    println!("member {}", store.group().member());
    for line in stdin().lines() {
        let line = line?;
        match store.propose(line.as_bytes())? {
            Proposed::Applied { output, .. } => println!("{output}"),
            Proposed::Skipped { .. } => println!("done, and a snapshot has taken its place"),
        }
    }
    store.group().flush(Duration::from_secs(5))?;
    Ok(())
}

/// A replica and the pipes to it.
struct Replica {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Replica {
    fn start() -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child =
            command.arg("replica").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut replica = Self { child, output };
        // It is a member when it says so.
        replica.line()?;
        Ok(replica)
    }

    fn ask(&mut self, line: &str) -> Result<String, Box<dyn Error>> {
        writeln!(self.child.stdin.as_mut().ok_or("no input")?, "{line}")?;
        self.line()
    }

    fn line(&mut self) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("replica") {
        return replica();
    }
    let mut replicas = vec![Replica::start()?, Replica::start()?, Replica::start()?];
    replicas[0].ask("apples=3")?;
    replicas[1].ask("pears=5")?;
    for killed in 0..3 {
        // Kills it with SIGKILL: the first one leads and accepts.
        drop(replicas.remove(0));
        let other = replicas[0].ask(&format!("killed={killed}"))?;
        let (apples, pears) = (replicas[1].ask("apples")?, replicas[1].ask("pears")?);
        println!("after {} deaths: {other}, {apples} apples, {pears} pears", killed + 1);
        replicas.push(Replica::start()?);
    }
    println!("the newest replica knows: killed={}", replicas[2].ask("killed")?);
    Ok(())
}
