//! What can be read of a damaged log.

use std::ops::Range;
use std::path::Path;

use rustix::io::Errno;

use super::format::{At, Beginning, Content};
use super::new::New;
use super::{LogFileError, failed, open_locked};

/// What [`salvage_log`] has copied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Salvaged {
    /// How many entries the new file has.
    pub entries: u64,
    /// The indices that could not be read. The entries behind them have lower indices in the new file. What was at the end
    /// of the log cannot be known.
    pub missing: Vec<Range<u64>>,
    /// A snapshot stands for the entries before this index.
    pub snapshot_before: Option<u64>,
    /// Bytes in which no record could be read.
    pub skipped_bytes: u64,
}

/// Copies everything that can be read of the log in the file `from` to a new log in the file `to`, which must not exist.
/// `from` stays as it is.
///
/// ```
/// # let directory = std::env::temp_dir().join(format!("corewire-doc-salvage-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// # let (from, to) = (directory.join("orders.log"), directory.join("readable.log"));
/// # let domain = corewire::Domain::open_at(&directory.join("domain"))?;
/// # let group = corewire_group::Group::builder(&domain, "orders").file(&from).join()?;
/// # group.propose(b"one")?;
/// # drop((group, domain));
/// let salvaged = corewire_group::salvage_log(&from, &to)?;
/// println!("{} entries; not readable: {:?}", salvaged.entries, salvaged.missing);
/// # assert_eq!(salvaged.entries, 1);
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`LogFileError`]: a file cannot be read or written; `from` is no log, or both of its headers are damaged; another
/// process has it.
pub fn salvage_log(from: &Path, to: &Path) -> Result<Salvaged, LogFileError> {
    let path = from.to_owned();
    // Joining follows a link, too.
    let from = &std::fs::canonicalize(from).map_err(failed("find", from))?;
    let file = open_locked(from)?.ok_or(LogFileError::InUse(path.clone()))?;
    let failed_to_read = failed("read", from);
    let header = match Beginning::read(&file).map_err(failed_to_read)? {
        Beginning::Log(header) | Beginning::Old(header) => header,
        Beginning::Version(found) => return Err(LogFileError::Version { path, found }),
        Beginning::Damaged => return Err(LogFileError::Headers(path)),
        Beginning::Empty => return Err(LogFileError::Empty(path)),
        Beginning::Other => return Err(LogFileError::NotALog(path)),
    };
    let end = file.length().map_err(failed_to_read)?;
    let (mut new, mut salvaged) = (New::begin(to, None)?, Salvaged::default());
    let (mut at, mut expected, mut next) = (header.first, 0, 0);
    let mut bytes = Vec::new();
    while at < end {
        let record = header.marks.read(&mut At { file: &file, at }, end - at, &mut bytes);
        let Some((length, _)) = record.map_err(failed_to_read)? else {
            let next = header.marks.find(&file, at, end, |_| true).map_err(failed_to_read)?;
            let Some(place) = next else { break };
            salvaged.skipped_bytes += place - at;
            at = place;
            continue;
        };
        at += length;
        match postcard::from_bytes(&bytes) {
            Ok(Content::Snapshot(snapshot)) if expected == 0 && next == 0 => {
                (expected, next) = (snapshot.next, snapshot.next);
                salvaged.snapshot_before = Some(next);
                new.write(&Content::Snapshot(snapshot))?;
            }
            Ok(Content::Entry(index, entry)) if index >= expected => {
                if index > expected {
                    salvaged.missing.push(expected..index);
                }
                new.write(&Content::Entry(next, entry))?;
                salvaged.entries += 1;
                (expected, next) = (index + 1, next + 1);
            }
            // A copy of what was there before.
            _ => salvaged.skipped_bytes += length,
        }
    }
    salvaged.skipped_bytes += end.saturating_sub(at);
    match new.finish(false)? {
        Some(_) => Ok(salvaged),
        None => {
            let is_there = to.symlink_metadata().is_ok();
            let error = if is_there { Errno::EXIST } else { Errno::NOENT };
            let (path, errno) = (to.to_owned(), error.raw_os_error());
            Err(LogFileError::Os { what: "make", path, errno })
        }
    }
}
