//! The choices that no constant makes right on every machine: from which size on what is used, which routine copies, how
//! long a wait polls.
//!
//! `corewire tune` measures them and writes a file. A process reads it when it opens its first domain, and keeps what it has
//! read. Without a file it uses constants ([`Tuning::default`]).
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the choices, and which this process has |
//! | `file.rs` | the file: where it is, what it must look like |
//!
//! # Cost
//! One file is looked for and read, once for a process. Nothing per message: an endpoint keeps its choices, and a copy of
//! less than 512 bytes asks nobody.

mod file;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::OnceLock;

use corewire_ring::copying::{self, NextReader, Plan};
use corewire_transfer::thresholds::Thresholds;

pub use self::file::TuningError;

/// Number of cells of an endpoint, and bytes of each, where nothing was measured.
const CELLS: (u64, u64) = (64, 16 << 10);

/// What corewire chooses on a machine: see [the file](Self::parse).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    thresholds: Thresholds,
    cells: (u64, u64),
    spin_ns: Option<u64>,
    copies: [Plan; READERS.len()],
}

/// Who reads a copy next, in the order of [`Tuning`]'s plans, with the name in a file.
const READERS: [(NextReader, &str); 3] =
    [(NextReader::Peer, "peer"), (NextReader::Own, "own"), (NextReader::Nobody, "nobody")];

impl Default for Tuning {
    /// The choices where nothing was measured.
    fn default() -> Self {
        let copies = READERS.map(|(next, _)| Plan::untuned(next));
        Self { thresholds: Thresholds::UNTUNED, cells: CELLS, spin_ns: None, copies }
    }
}

impl Tuning {
    /// Longer messages of an endpoint are offered in their sender's memory, in bytes; others are copied through cells.
    #[must_use]
    pub fn offered_above(&self) -> u64 {
        self.thresholds.offered_above
    }

    /// The same while the cells have no room for the message.
    #[must_use]
    pub fn offered_if_scarce_above(&self) -> u64 {
        self.thresholds.offered_if_scarce_above
    }

    /// Messages of up to this many bytes stay in the heap of a sender whose receiver grants that: the default of
    /// [`EndpointBuilder::in_place_up_to`](crate::EndpointBuilder::in_place_up_to).
    #[must_use]
    pub fn in_place_up_to(&self) -> u64 {
        self.thresholds.in_place_up_to
    }

    /// Offered messages of at least this many bytes are copied from both ends, if both allow it.
    #[must_use]
    pub fn both_sides_from(&self) -> u64 {
        self.thresholds.both_from
    }

    /// Number of cells of an endpoint, and bytes of each: the default of
    /// [`EndpointBuilder::cells`](crate::EndpointBuilder::cells).
    #[must_use]
    pub fn cells(&self) -> (u64, u64) {
        self.cells
    }

    /// How long a wait polls before it sleeps, in nanoseconds. `None`: about as long as a wake-up takes, which each process
    /// measures itself.
    #[must_use]
    pub fn spin_ns(&self) -> Option<u64> {
        self.spin_ns
    }

    /// The name of the routine that copies so many bytes for this next reader: `peer` (another core), `own` (this core) or
    /// `nobody` (nobody soon). `None` for another name.
    ///
    /// ```
    /// let tuning = corewire::Tuning::default();
    /// assert_eq!(tuning.copy_routine("peer", 4096), Some("library"));
    /// assert_eq!(tuning.copy_routine("me", 4096), None);
    /// ```
    #[must_use]
    pub fn copy_routine(&self, next_reader: &str, bytes: usize) -> Option<&'static str> {
        let index = READERS.iter().position(|(_, name)| *name == next_reader)?;
        Some(self.copies[index].routine(bytes).name())
    }

    pub(crate) fn thresholds(&self) -> Thresholds {
        self.thresholds
    }
}

/// What this process uses: see [`tuning`].
#[derive(Debug)]
pub struct TuningInUse {
    /// The choices.
    pub tuning: Tuning,
    /// The file in which they are, or in which they would be if it could be used.
    pub path: Option<PathBuf>,
    /// Why that file is not used.
    pub problem: Option<TuningError>,
}

/// The choices of this process. The first call, or the first domain that is opened, looks for a file: the one that
/// `COREWIRE_TUNING` names, an absolute path (`none` for no file), else `corewire/tuning.toml` in `$XDG_CONFIG_HOME` (or
/// `~/.config`), then in the directories of `$XDG_CONFIG_DIRS` (or `/etc/xdg`). A file that cannot be used is reported to the
/// standard error output, once, and the process goes on without it.
///
/// ```
/// let in_use = corewire::tuning();
/// match (&in_use.path, &in_use.problem) {
///     (Some(path), Some(problem)) => println!("{} is not used: {problem}", path.display()),
///     (Some(path), None) => println!("tuned by {}", path.display()),
///     (None, _) => println!("not tuned"),
/// }
/// println!("messages of more than {} bytes are offered", in_use.tuning.offered_above());
/// ```
pub fn tuning() -> &'static TuningInUse {
    static IN_USE: OnceLock<TuningInUse> = OnceLock::new();
    IN_USE.get_or_init(|| {
        let (path, read) = match file::find() {
            None => (None, Ok(Tuning::default())),
            Some(path) => {
                let read = Tuning::read(&path);
                (Some(path), read)
            }
        };
        let (tuning, problem) = match read {
            Ok(tuning) => (tuning, None),
            Err(problem) => {
                let place = path.as_deref().unwrap_or_else(|| "".as_ref()).display();
                let text = format!("corewire: tuning file {place} is not used: {problem}\n");
                let _ = io::stderr().write_all(text.as_bytes());
                (Tuning::default(), Some(problem))
            }
        };
        for ((next, _), plan) in READERS.iter().zip(tuning.copies) {
            copying::set_plan(*next, plan);
        }
        TuningInUse { tuning, path, problem }
    })
}
