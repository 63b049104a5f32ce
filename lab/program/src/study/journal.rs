//! The measurements so far, one line for each run, so that an interrupted study can continue where it
//! stopped.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use corewire_os::file::read_regular_text;
use serde::{Deserialize, Serialize};

use super::machine;
use super::output::BYTES_MAX;
use super::results::{Body, Machine};
use super::runner::{Entry, Study};
use crate::study::failure::{Doing, Failure};

/// Name of the file.
const FILE: &str = "progress.jsonl";

/// How the first line begins.
const HEADER_BEGINS: &str = "{\"version\":";

/// The first line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Header<S: Study> {
    pub(crate) version: String,
    pub(crate) name: String,
    pub(crate) began: String,
    /// What was asked for.
    pub(crate) study: S,
    pub(crate) machine: Machine,
}

impl<S: Study> Header<S> {
    /// Whether runs under both headers can be compared.
    fn is_of_same_runs_as(&self, other: &Self) -> bool {
        let machine = |it: &Self| (it.machine.processor.clone(), it.machine.cores);
        (&self.study, &self.name, &self.version) == (&other.study, &other.name, &other.version)
            && machine(self) == machine(other)
    }
}

/// What an unfinished run has measured.
pub(crate) type Unfinished<S> = (Header<S>, Vec<Entry<S>>);

/// The journal of a directory.
#[derive(Debug)]
pub(crate) struct Journal<S: Study> {
    path: PathBuf,
    file: File,
    pub(crate) header: Header<S>,
    pub(crate) entries: Vec<Entry<S>>,
}

impl<S: Study> Journal<S> {
    /// Continues the unfinished run in `directory`, if it is of the same study and version, or begins a new one.
    ///
    /// An unfinished run of another study is an error: it is not overwritten.
    pub(crate) fn open(directory: &Path, study: &S, queue_limits: String) -> Result<Self, Failure> {
        let path = directory.join(FILE);
        let header = Header {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: study.name().to_owned(),
            began: machine::now()?,
            study: study.clone(),
            machine: machine::describe(queue_limits)?,
        };
        // What is no journal is refused before it is opened to be written: a pipe would wait.
        read::<S>(&path)?;
        let file = Self::lock(&path)?;
        if let Some(Found { header: found, entries, bytes }) = read(&path)? {
            let Some(header) = found.filter(|it| it.is_of_same_runs_as(&header)) else {
                return Err(Failure::usage(format!(
                    "{} holds an unfinished run of other settings, or of another machine or version: give \
                     those again to finish it, another --out, or remove {FILE}",
                    directory.display()
                )));
            };
            // An incomplete last line would spoil the next one.
            file.set_len(bytes).doing(format_args!("write {}", path.display()))?;
            return Ok(Self { path, file, header, entries });
        }
        file.set_len(0).doing(format_args!("write {}", path.display()))?;
        let mut journal = Self { path, file, header, entries: Vec::new() };
        let line = serde_json::to_string(&journal.header).doing("write a journal")?;
        journal.write(&line)?;
        Ok(journal)
    }

    /// Opens the file to append to it, for this process alone.
    fn lock(path: &Path) -> Result<File, Failure> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.doing(format_args!("write {}", path.display()))?;
        let lock = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        // One that ends removes the file, which may be the one that was opened here.
        let is_there = |file: &File| {
            let (own, named) = (file.metadata()?, path.metadata()?);
            Ok::<_, std::io::Error>(own.ino() == named.ino())
        };
        match lock.is_ok() && is_there(&file).unwrap_or(false) {
            true => Ok(file),
            false => Err(Failure::usage(format!("{}: another study writes there", path.display()))),
        }
    }

    /// The unfinished run in `directory`; `None` if there is none of this study.
    pub(crate) fn look(directory: &Path) -> Result<Option<Unfinished<S>>, Failure> {
        let Some(Found { header, entries, .. }) = read(&directory.join(FILE))? else {
            return Ok(None);
        };
        let is_own = |header: &Header<S>| S::Body::NAMES.contains(&header.name.as_str());
        Ok(header.filter(is_own).map(|header| (header, entries)))
    }

    /// Appends an entry.
    pub(crate) fn add(&mut self, mut entry: Entry<S>) -> Result<(), Failure> {
        let mut line = serde_json::to_string(&entry).doing("write a journal")?;
        // JSON has no word for what is not a number.
        if serde_json::from_str::<Entry<S>>(&line).is_err() {
            entry.found = Err("a figure is not a number".to_owned());
            line = serde_json::to_string(&entry).doing("write a journal")?;
        }
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
struct Found<S: Study> {
    /// `None` if it is of a study of another kind.
    header: Option<Header<S>>,
    entries: Vec<Entry<S>>,
    /// Length up to the end of the last complete line.
    bytes: u64,
}

/// Reads a journal. Everything after the first incomplete or invalid line is ignored.
fn read<S: Study>(path: &Path) -> Result<Option<Found<S>>, Failure> {
    let text = match read_regular_text(path, BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.doing(format_args!("read {}", path.display()))?,
    };
    let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let no_journal = || {
        let path = path.display();
        Failure::usage(format!(
            "{path} holds no journal of a study: remove it, or give another --out"
        ))
    };
    let Some(first) = lines.next() else {
        // A run that was stopped in its first line has measured nothing.
        let is_own = text.is_empty() || text.starts_with(HEADER_BEGINS);
        return if is_own { Ok(None) } else { Err(no_journal()) };
    };
    if !first.starts_with(HEADER_BEGINS) {
        return Err(no_journal());
    }
    let header = serde_json::from_str(first).ok();
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
    use crate::study::fixture::Nothing;

    #[test]
    fn a_line_that_was_not_written_whole_spoils_no_other() {
        let directory = std::env::temp_dir().join(format!("study-journal-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let open = || Journal::open(&directory, &Nothing, String::new()).unwrap();
        let entry = |run| Entry { job: 64, run, line_ns: None, found: Err("a reason".to_owned()) };
        open().add(entry(0)).unwrap();
        let path = directory.join(FILE);
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"job\": 64, \"ru");
        std::fs::write(&path, text).unwrap();
        let mut journal = open();
        assert_eq!(journal.entries, [entry(0)]);
        journal.add(entry(1)).unwrap();
        let second = Journal::open(&directory, &Nothing, String::new()).unwrap_err();
        assert!(second.message.contains("another study writes there"), "{}", second.message);
        drop(journal);
        let journal = open();
        assert_eq!(journal.entries, [entry(0), entry(1)]);
        journal.finish().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
