//! What has been measured so far, a line for each run, so that an interrupted study goes on where it was.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::{Doing, Failure};
use crate::mechanisms::{Id, Shape};
use crate::plan::Plan;
use crate::results::{Count, Machine, Run, SystemCall};

/// The file's name.
const FILE: &str = "progress.jsonl";

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) version: String,
    pub(crate) began: String,
    pub(crate) plan: Plan,
    pub(crate) machine: Machine,
}

/// Another line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Entry {
    /// A run of throughput, or what went wrong.
    Stream {
        mechanism: Id,
        shape: Shape,
        run: u32,
        found: Result<Run, String>,
    },
    /// A run of round trips: median and 99 of 100, in nanoseconds.
    RoundTrip {
        mechanism: Id,
        bytes: usize,
        run: u32,
        found: Result<[f64; 2], String>,
    },
    /// A row of Table I.
    Count {
        mechanism: Id,
        shape: Shape,
        found: Result<Count, String>,
    },
    SystemCall(SystemCall),
}

/// The journal of a directory.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    pub(crate) header: Header,
    pub(crate) entries: Vec<Entry>,
}

impl Journal {
    /// Goes on with what `directory` holds, if that is a run of the same plan, or begins with `header`.
    ///
    /// A run of another plan is a failure: nothing is measured over it.
    pub(crate) fn open(directory: &Path, header: Header) -> Result<Self, Failure> {
        let path = directory.join(FILE);
        if let Some((found, entries)) = read(&path)? {
            if found.plan != header.plan || found.version != header.version {
                return Err(Failure::usage(format!(
                    "{} holds an unfinished run of other settings: give those again to finish it, \
                     another --out, or remove {FILE}",
                    directory.display()
                )));
            }
            let file = OpenOptions::new().append(true).open(&path);
            let file = file.doing(format_args!("write {}", path.display()))?;
            return Ok(Self { path, file, header: found, entries });
        }
        let file = File::create(&path).doing(format_args!("write {}", path.display()))?;
        let mut journal = Self { path, file, header, entries: Vec::new() };
        let line = serde_json::to_string(&journal.header).doing("write a journal")?;
        journal.write(&line)?;
        Ok(journal)
    }

    /// What `directory` holds of an unfinished run; `None` if there is none.
    pub(crate) fn look(directory: &Path) -> Result<Option<(Header, Vec<Entry>)>, Failure> {
        read(&directory.join(FILE))
    }

    /// Keeps an entry.
    pub(crate) fn add(&mut self, entry: Entry) -> Result<(), Failure> {
        let line = serde_json::to_string(&entry).doing("write a journal")?;
        self.write(&line)?;
        self.entries.push(entry);
        Ok(())
    }

    fn write(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.file, "{line}").doing(format_args!("write {}", self.path.display()))
    }

    /// Removes it: all is measured, and the results are written.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        std::fs::remove_file(&self.path).doing(format_args!("remove {}", self.path.display()))
    }
}

/// Reads a journal. A last line that was not written whole is as if it were not there.
fn read(path: &Path) -> Result<Option<(Header, Vec<Entry>)>, Failure> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.doing(format_args!("read {}", path.display()))?,
    };
    let mut lines = BufReader::new(file).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return Ok(None) };
    let header = serde_json::from_str(&first)
        .doing(format_args!("read {}: it is no journal of a study", path.display()))?;
    let entries = lines.map_while(|line| serde_json::from_str(&line).ok()).collect();
    Ok(Some((header, entries)))
}
