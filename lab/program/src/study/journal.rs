//! The measurements so far, one line for each run, so that an interrupted study can continue where it
//! stopped.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use corewire_os::file::read_regular_text;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::study::failure::{Doing, Failure};
use crate::study::mechanisms::{Id, Shape};
use crate::study::output::BYTES_MAX;
use crate::study::plan::Plan;
use crate::study::results::{Count, Machine, Run, SystemCall};

/// Name of the file.
const FILE: &str = "progress.jsonl";

/// How the first line begins.
const HEADER_BEGINS: &str = "{\"version\":";

/// The first line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header<P = Plan> {
    pub(crate) version: String,
    pub(crate) began: String,
    pub(crate) plan: P,
    pub(crate) machine: Machine,
}

/// Each of the other lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Entry {
    /// A run of throughput, or why it failed.
    Stream {
        mechanism: Id,
        shape: Shape,
        run: u32,
        found: Result<Run, String>,
    },
    /// A run of round trips: median and 99th percentile, in nanoseconds.
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

/// What an unfinished run has measured.
pub(crate) type Unfinished<P, E> = (Header<P>, Vec<E>);

/// The journal of a directory.
#[derive(Debug)]
pub(crate) struct Journal<P = Plan, E = Entry> {
    path: PathBuf,
    file: File,
    pub(crate) header: Header<P>,
    pub(crate) entries: Vec<E>,
}

impl<P, E> Journal<P, E>
where
    P: PartialEq + Serialize + DeserializeOwned,
    E: Serialize + DeserializeOwned,
{
    /// Continues the unfinished run in `directory`, if it has the same plan and version, or begins a
    /// new one with `header`.
    ///
    /// An unfinished run of another plan is an error: it is not overwritten.
    pub(crate) fn open(directory: &Path, header: Header<P>) -> Result<Self, Failure> {
        let path = directory.join(FILE);
        if let Some(Found { header: found, entries, bytes }) = read(&path)? {
            if found.plan != header.plan || found.version != header.version {
                return Err(Failure::usage(format!(
                    "{} holds an unfinished run of other settings: give those again to finish it, \
                     another --out, or remove {FILE}",
                    directory.display()
                )));
            }
            let file = OpenOptions::new().append(true).open(&path);
            let file = file.doing(format_args!("write {}", path.display()))?;
            // An incomplete last line would spoil the next one.
            file.set_len(bytes).doing(format_args!("write {}", path.display()))?;
            return Ok(Self { path, file, header: found, entries });
        }
        let file = File::create(&path).doing(format_args!("write {}", path.display()))?;
        let mut journal = Self { path, file, header, entries: Vec::new() };
        let line = serde_json::to_string(&journal.header).doing("write a journal")?;
        journal.write(&line)?;
        Ok(journal)
    }

    /// The unfinished run in `directory`; `None` if there is none.
    pub(crate) fn look(directory: &Path) -> Result<Option<Unfinished<P, E>>, Failure> {
        Ok(read(&directory.join(FILE))?.map(|found| (found.header, found.entries)))
    }

    /// Appends an entry.
    pub(crate) fn add(&mut self, entry: E) -> Result<(), Failure> {
        let line = serde_json::to_string(&entry).doing("write a journal")?;
        self.write(&line)?;
        self.entries.push(entry);
        Ok(())
    }

    fn write(&mut self, line: &str) -> Result<(), Failure> {
        self.file
            .write_all(format!("{line}\n").as_bytes())
            .doing(format_args!("write {}", self.path.display()))
    }

    /// Removes the journal, when everything is measured and the results are written.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        std::fs::remove_file(&self.path).doing(format_args!("remove {}", self.path.display()))
    }
}

/// What a journal holds.
struct Found<P, E> {
    header: Header<P>,
    entries: Vec<E>,
    /// Length up to the end of the last complete line.
    bytes: u64,
}

/// Reads a journal. Everything after the first incomplete or invalid line is ignored.
fn read<P: DeserializeOwned, E: DeserializeOwned>(
    path: &Path,
) -> Result<Option<Found<P, E>>, Failure> {
    let text = match read_regular_text(path, BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.doing(format_args!("read {}", path.display()))?,
    };
    let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let Some(first) = lines.next() else {
        // A run that was stopped in its first line has measured nothing.
        return match text.is_empty() || text.starts_with(HEADER_BEGINS) {
            true => Ok(None),
            false => Err(Failure::usage(format!(
                "{} holds no journal of a study: remove it, or give another --out",
                path.display()
            ))),
        };
    };
    let header = serde_json::from_str(first)
        .doing(format_args!("read {}: it is no journal of a study", path.display()))?;
    let mut found = Found { header, entries: Vec::new(), bytes: first.len() as u64 };
    for line in lines {
        let Ok(entry) = serde_json::from_str(line) else { break };
        found.entries.push(entry);
        found.bytes += line.len() as u64;
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::machine;
    use crate::study::plan::{Effort, Plan, Wishes};

    #[test]
    fn a_line_that_was_not_written_whole_spoils_no_other() {
        let directory = std::env::temp_dir().join(format!("study-journal-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let header = || Header {
            version: "1".to_owned(),
            began: String::new(),
            plan: Plan::new(Effort::Quick, Wishes::default(), &[Id::Zimp], 2),
            machine: machine::describe(String::new()).unwrap(),
        };
        let entry = |run| Entry::RoundTrip {
            mechanism: Id::Zimp,
            bytes: 64,
            run,
            found: Err("a reason".to_owned()),
        };
        let mut journal = Journal::open(&directory, header()).unwrap();
        journal.add(entry(0)).unwrap();
        let path = directory.join(FILE);
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"round_trip\": {\"mecha");
        std::fs::write(&path, text).unwrap();
        let mut journal = Journal::open(&directory, header()).unwrap();
        assert_eq!(journal.entries, [entry(0)]);
        journal.add(entry(1)).unwrap();
        let journal: Journal = Journal::open(&directory, header()).unwrap();
        assert_eq!(journal.entries, [entry(0), entry(1)]);
        journal.finish().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
