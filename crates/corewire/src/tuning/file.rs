//! The file: where it is, and what it must look like.

use std::path::{Path, PathBuf};

use corewire_layout::endpoint::EndpointSizes;
use corewire_os::{file, processor};
use corewire_ring::copying::{CLASSES, PLANNED_FROM_BYTES, Plan, Routine};
use serde::Deserialize;

use super::{READERS, Tuning};

/// The version of the file that this library reads.
const TUNING_FORMAT: u64 = 1;
/// Bytes of a file at most.
const TUNING_BYTES_MAX: u64 = 64 << 10;

const VARIABLE: &str = "COREWIRE_TUNING";
/// The value of that variable for no file.
const NO_FILE: &str = "none";
/// In a directory of settings.
const FILE: &str = "corewire/tuning.toml";
/// No threshold is larger.
const THRESHOLD_MAX: u64 = 1 << 40;
const SPIN_MAX_NS: u64 = 1_000_000;

/// Why a file is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TuningError {
    /// It cannot be read, is no regular file, is too long, or others may change it.
    #[error("{0}")]
    Unreadable(String),
    /// It is of another version.
    #[error(
        "it has format {found}; this corewire reads format {TUNING_FORMAT}: run `corewire tune` again"
    )]
    Format {
        /// Its version.
        found: u64,
    },
    /// It is no TOML, has an unknown key, or a value of another type.
    #[error("{0}")]
    Text(String),
    /// It is for another processor.
    #[error("it is for the processor {measured:?}; this is {here:?}: run `corewire tune` here")]
    Processor {
        /// The processor model in the file.
        measured: String,
        /// The one of this machine.
        here: String,
    },
    /// A value is not possible.
    #[error("{key} = {found}: {possible}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        found: String,
        /// What is possible.
        possible: String,
    },
}

#[derive(Deserialize)]
struct Version {
    format: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "format")]
    _format: u64,
    processor: String,
    #[serde(default)]
    messages: Messages,
    #[serde(default)]
    copies: Vec<Copy>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Messages {
    offered_above_bytes: Option<u64>,
    offered_if_scarce_above_bytes: Option<u64>,
    in_place_up_to_bytes: Option<u64>,
    both_sides_from_bytes: Option<u64>,
    cells: Option<u64>,
    cell_bytes: Option<u64>,
    spin_ns: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Copy {
    next_reader: String,
    from_bytes: u64,
    routine: String,
}

impl Tuning {
    /// The choices in the text of a file. Keys that are missing keep their [defaults](Self::default).
    ///
    /// ```
    /// let text = r#"
    ///     format = 1
    ///     processor = "any"                    # or the model in /proc/cpuinfo
    ///
    ///     [messages]
    ///     offered_above_bytes = 65536
    ///     offered_if_scarce_above_bytes = 32768
    ///     in_place_up_to_bytes = 16384
    ///     both_sides_from_bytes = 65536
    ///     cells = 64
    ///     cell_bytes = 16384                   # a power of two from 4 KiB to 256 KiB
    ///     spin_ns = 20000                      # before a wait sleeps
    ///
    ///     [[copies]]
    ///     next_reader = "peer"                 # or "own" (this core), "nobody" (nobody soon)
    ///     from_bytes = 65536                   # 512 times a power of two; up to the next one
    ///     routine = "library"                  # string, avx2, avx2-streaming, avx512, ...
    /// "#;
    /// let tuning = corewire::Tuning::parse(text)?;
    /// assert_eq!(tuning.offered_above(), 65536);
    /// # Ok::<_, corewire::TuningError>(())
    /// ```
    ///
    /// # Errors
    /// [`TuningError`], which names the key, what was found and what is possible.
    pub fn parse(text: &str) -> Result<Self, TuningError> {
        let bad = |error: toml::de::Error| {
            let message = error.message().trim().replace('\n', ", ");
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map(|before| format!("line {}: ", before.split('\n').count()));
            TuningError::Text(line.unwrap_or_default() + &message)
        };
        // The version first: another one may have other keys.
        let Version { format: found } = toml::from_str(text).map_err(bad)?;
        if found != TUNING_FORMAT {
            return Err(TuningError::Format { found });
        }
        let file: File = toml::from_str(text).map_err(bad)?;
        let here = processor::model_name().unwrap_or_default();
        if file.processor != "any" && file.processor != here {
            return Err(TuningError::Processor { measured: file.processor, here });
        }
        let mut tuning = Self::default();
        tuning.take(&file.messages)?;
        tuning.take_copies(&file.copies)?;
        Ok(tuning)
    }

    /// The choices in the file at `path`. Links are followed; only its owner, who is this user or root, may be able to write
    /// it.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse), and [`TuningError::Unreadable`].
    pub fn read(path: &Path) -> Result<Self, TuningError> {
        let text = file::read_settings(path, TUNING_BYTES_MAX);
        Self::parse(&text.map_err(|error| TuningError::Unreadable(error.to_string()))?)
    }

    fn take(&mut self, messages: &Messages) -> Result<(), TuningError> {
        let thresholds = &mut self.thresholds;
        for (key, given, target) in [
            ("offered_above_bytes", messages.offered_above_bytes, &mut thresholds.offered_above),
            (
                "offered_if_scarce_above_bytes",
                messages.offered_if_scarce_above_bytes,
                &mut thresholds.offered_if_scarce_above,
            ),
            ("in_place_up_to_bytes", messages.in_place_up_to_bytes, &mut thresholds.in_place_up_to),
            ("both_sides_from_bytes", messages.both_sides_from_bytes, &mut thresholds.both_from),
        ] {
            if let Some(bytes) = given {
                *target = within(key, bytes, 0, THRESHOLD_MAX)?;
            }
        }
        let (cells, cell_bytes) = &mut self.cells;
        *cells = messages.cells.unwrap_or(*cells);
        *cell_bytes = messages.cell_bytes.unwrap_or(*cell_bytes);
        // The other sizes have nothing to do with it.
        EndpointSizes::new(1, 1, 256, *cells, *cell_bytes).map_err(|error| TuningError::Value {
            key: "cells and cell_bytes",
            found: format!("{cells} and {cell_bytes}"),
            possible: error.to_string(),
        })?;
        if let Some(ns) = messages.spin_ns {
            self.spin_ns = Some(within("spin_ns", ns, 0, SPIN_MAX_NS)?);
        }
        Ok(())
    }

    fn take_copies(&mut self, copies: &[Copy]) -> Result<(), TuningError> {
        for (index, (_, name)) in READERS.iter().enumerate() {
            let mut own: Vec<(usize, Routine)> = Vec::new();
            for copy in copies.iter().filter(|copy| copy.next_reader == *name) {
                let class = class_of(copy.from_bytes)?;
                if own.last().is_some_and(|last| last.0 >= class) {
                    return Err(TuningError::Value {
                        key: "from_bytes",
                        found: copy.from_bytes.to_string(),
                        possible: format!("more than in the entry for \"{name}\" before it"),
                    });
                }
                own.push((class, routine_of(&copy.routine)?));
            }
            let plan = self.copies[index];
            let routine = |class| {
                let entry = own.iter().rev().find(|(from, _)| *from <= class);
                entry.map_or_else(|| plan.routine(Plan::least_bytes(class)), |entry| entry.1)
            };
            self.copies[index] = Plan::new(std::array::from_fn(routine));
        }
        let is_known = |copy: &&Copy| !READERS.iter().any(|(_, name)| copy.next_reader == *name);
        match copies.iter().find(is_known) {
            None => Ok(()),
            Some(copy) => Err(TuningError::Value {
                key: "next_reader",
                found: format!("{:?}", copy.next_reader),
                possible: "it is \"peer\", \"own\" or \"nobody\"".to_owned(),
            }),
        }
    }
}

fn within(key: &'static str, found: u64, min: u64, max: u64) -> Result<u64, TuningError> {
    if (min..=max).contains(&found) {
        return Ok(found);
    }
    let possible = format!("{min} to {max} are possible");
    Err(TuningError::Value { key, found: found.to_string(), possible })
}

/// The class of copies that begins with so many bytes.
fn class_of(bytes: u64) -> Result<usize, TuningError> {
    let class = (0..CLASSES).find(|class| Plan::least_bytes(*class) as u64 == bytes);
    class.ok_or_else(|| TuningError::Value {
        key: "from_bytes",
        found: bytes.to_string(),
        possible: format!(
            "{PLANNED_FROM_BYTES} times a power of two is possible, up to {}",
            Plan::least_bytes(CLASSES - 1)
        ),
    })
}

fn routine_of(name: &str) -> Result<Routine, TuningError> {
    let possible = || Routine::ALL.into_iter().filter(|routine| routine.is_possible());
    possible().find(|routine| routine.name() == name).ok_or_else(|| TuningError::Value {
        key: "routine",
        found: format!("{name:?}"),
        possible: format!(
            "possible here: {}",
            possible().map(Routine::name).collect::<Vec<_>>().join(", ")
        ),
    })
}

/// The file of this process, if there is one.
pub(super) fn find() -> Option<PathBuf> {
    file::find_settings(VARIABLE, FILE).filter(|path| path.as_os_str() != NO_FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(rest: &str) -> Result<Tuning, String> {
        let text = format!("format = 1\nprocessor = \"any\"\n{rest}");
        Tuning::parse(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_missing_keeps_its_default() {
        assert_eq!(parse(""), Ok(Tuning::default()));
        let tuning = parse("[messages]\noffered_above_bytes = 65536\nspin_ns = 0").unwrap();
        assert_eq!((tuning.offered_above(), tuning.spin_ns()), (65536, Some(0)));
        assert_eq!(tuning.both_sides_from(), Tuning::default().both_sides_from());
    }

    #[test]
    fn a_routine_copies_from_its_size_to_the_next_one() {
        let entry = |from, routine| {
            format!(
                "[[copies]]\nnext_reader = \"own\"\nfrom_bytes = {from}\nroutine = \"{routine}\"\n"
            )
        };
        let other = Routine::ALL.into_iter().rfind(|it| it.is_possible()).unwrap().name();
        let tuning = parse(&(entry(4096, other) + &entry(65536, "library"))).unwrap();
        let names = [600, 4095, 4096, 65535, 65536, 1 << 30]
            .map(|bytes| tuning.copy_routine("own", bytes).unwrap());
        assert_eq!(names, ["library", "library", other, other, "library", "library"]);
        assert_eq!(tuning.copies[0], Tuning::default().copies[0]);
        let wrong = parse(&(entry(65536, "library") + &entry(4096, "library")));
        let before = "from_bytes = 4096: more than in the entry for \"own\" before it";
        assert_eq!(wrong, Err(before.to_owned()));
    }

    #[test]
    fn each_wrong_value_is_named() {
        for (text, expected) in [
            ("[messages]\ncell_bytes = 5000", "cells and cell_bytes = 64 and 5000: "),
            ("[messages]\nspin_ns = 2000000", "spin_ns = 2000000: 0 to 1000000 are possible"),
            ("[messages]\ncells = -1", "invalid value: integer `-1`, expected u64"),
            ("[messages]\nsize = 1", "unknown field `size`, expected one of "),
            ("speed = 1", "unknown field `speed`, expected one of "),
            (
                "[[copies]]\nnext_reader = \"own\"\nfrom_bytes = 500\nroutine = \"library\"",
                "from_bytes = 500: 512 times",
            ),
            (
                "[[copies]]\nnext_reader = \"own\"\nfrom_bytes = 512\nroutine = \"fast\"",
                "routine = \"fast\": possible here: library",
            ),
            (
                "[[copies]]\nnext_reader = \"me\"\nfrom_bytes = 512\nroutine = \"library\"",
                "next_reader = \"me\": it is \"peer\"",
            ),
            ("[[copies]]", "missing field `next_reader`"),
            ("so it is", "line 3: "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let format = |text| Tuning::parse(text).unwrap_err();
        assert_eq!(format("format = 2\nnew = 7"), TuningError::Format { found: 2 });
        assert!(matches!(format("processor = \"any\""), TuningError::Text(_)));
        let other = format("format = 1\nprocessor = \"Z80\"");
        assert!(other.to_string().starts_with("it is for the processor \"Z80\"; "), "{other}");
    }
}
