//! The processes of the tests: `corewire-role ROLE DIRECTORY CHANNEL [OPTION]...`. Each prints lines
//! that say how far it is, so that a test can wait for something that happened instead of for a
//! while.
//!
//! | role | does |
//! |---|---|
//! | `sender` | sends numbered messages of mixed lengths until its standard input ends |
//! | `receiver` | waits for the channel, checks every message, says how it ended |
//! | `counted-sender`, `counted-receiver` | exchange a given number of 48-byte messages |
//! | `fork` | forks with live handles, and checks what child and parent can do |
//! | `faults` | goes through a scenario under a supervisor, who has a system call fail |

mod counted;
mod faults;
mod forked;
mod refuse;
mod stream;
mod supervised;

use std::process::ExitCode;

use corewire::{Domain, Wait};

/// What a role was asked for.
pub(crate) struct Options {
    pub(crate) channel: String,
    pub(crate) wait: Wait,
    pub(crate) count: u64,
    pub(crate) receivers: usize,
    pub(crate) slots: usize,
    pub(crate) nap_one_in: u64,
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corewire-role: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let mut words = std::env::args().skip(1);
    let mut word = || words.next().ok_or("corewire-role ROLE DIRECTORY CHANNEL [OPTION]...");
    let (role, directory, channel) = (word()?, word()?, word()?);
    if role == "faults" {
        return faults::run(&channel, directory.as_ref(), &word()?);
    }
    let wait = Wait::default();
    let mut options = Options { channel, wait, count: 0, receivers: 8, slots: 4096, nap_one_in: 0 };
    for option in words {
        match option.split_once('=').unwrap_or((&option, "")) {
            ("count", value) => options.count = value.parse()?,
            ("receivers", value) => options.receivers = value.parse()?,
            ("slots", value) => options.slots = value.parse()?,
            ("nap-one-in", value) => options.nap_one_in = value.parse()?,
            ("spin", _) => options.wait = Wait::Spin,
            ("park", _) => options.wait = Wait::Park,
            ("no-membarrier", _) => refuse::refuse_membarrier()?,
            _ => return Err(format!("no option {option}").into()),
        }
    }
    let domain = Domain::open_at(directory.as_ref())?;
    match role.as_str() {
        "sender" => stream::send(&domain, &options),
        "receiver" => stream::receive(&domain, &options),
        "counted-sender" => counted::send(&domain, &options),
        "counted-receiver" => counted::receive(&domain, &options),
        "fork" => forked::run(&domain, &options, directory.as_ref()),
        other => Err(format!("no role {other}").into()),
    }
}
