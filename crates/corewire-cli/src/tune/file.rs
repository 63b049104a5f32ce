//! The file: its text, and where it is.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use corewire::Tuning;
use corewire_os::processor;
use corewire_ring::copying::{Plan, Routine};

use super::decide::{Decision, Gain, Spin};
use crate::failure::Failure;
use crate::units;

/// What was found.
pub(super) struct Findings {
    pub(super) offered_above: Decision<u64>,
    /// Longer messages are copied from both ends.
    pub(super) both_above: Decision<u64>,
    pub(super) in_place_up_to: Decision<u64>,
    pub(super) cells: Decision<(u64, u64)>,
    pub(super) spin: Option<Spin>,
    pub(super) copies: Vec<Copies>,
    pub(super) distances: Vec<(String, [usize; 2])>,
}

/// The routines of copies for one next reader.
pub(super) struct Copies {
    pub(super) reader: &'static str,
    pub(super) untuned: Plan,
    /// By class of sizes.
    pub(super) decisions: Vec<Decision<Routine>>,
}

/// How sure a decision is.
fn why(gain: Gain) -> String {
    let Gain { median, least, most } = gain;
    format!("{median:.2} times as fast as the default ({least:.2} to {most:.2})")
}

impl Findings {
    /// The text of the file.
    pub(super) fn text(&self) -> String {
        let default = Tuning::default();
        let model = processor::model_name();
        let distances: Vec<String> = self
            .distances
            .iter()
            .map(|(name, [one, two])| format!("{name}: {one} and {two}"))
            .collect();
        let mut text = format!(
            "# What corewire follows on this machine. Written by `corewire tune` {}.\n\
             # Processors: {}. Without an entry the default is used.\n\
             format = 1\n\
             processor = {}\n\n[messages]\n",
            env!("CARGO_PKG_VERSION"),
            distances.join("; "),
            serde_json::Value::from(model.unwrap_or_else(|| "any".to_owned())),
        );
        number(&mut text, "offered_above_bytes", self.offered_above, default.offered_above());
        if let Some(above) = self.offered_above.value()
            && above < default.offered_if_scarce_above()
        {
            let _ = writeln!(text, "offered_if_scarce_above_bytes = {above}");
        }
        number(&mut text, "in_place_up_to_bytes", self.in_place_up_to, default.in_place_up_to());
        let both_from = match self.both_above {
            Decision::Default => Decision::Default,
            Decision::Undecided(above, gain) => Decision::Undecided(above + 1, gain),
            Decision::Better(above, gain) => Decision::Better(above + 1, gain),
        };
        number(&mut text, "both_sides_from_bytes", both_from, default.both_sides_from());
        match self.cells {
            Decision::Default => {
                let (cells, bytes) = default.cells();
                let _ =
                    writeln!(text, "# cells = {cells}, cell_bytes = {bytes}: nothing was better");
            }
            Decision::Undecided((cells, bytes), gain) => {
                let _ = writeln!(
                    text,
                    "# cells = {cells}, cell_bytes = {bytes}: undecided, {}",
                    why(gain)
                );
            }
            Decision::Better((cells, bytes), gain) => {
                let _ = writeln!(text, "# {}\ncells = {cells}\ncell_bytes = {bytes}", why(gain));
            }
        }
        if let Some(spin) = self.spin {
            let [median, least, most] = [spin.median, spin.least, spin.most].map(|ns| ns.round());
            let took = format!("a wake-up took {median} ns ({least} to {most})");
            let _ = match spin.is_sure() {
                true => writeln!(text, "# {took}\nspin_ns = {median}"),
                false => writeln!(text, "# spin_ns = {median}: undecided, {took}"),
            };
        }
        for copies in &self.copies {
            copies.write(&mut text);
        }
        text
    }

    /// What was decided, for people.
    pub(super) fn summary(&self) -> String {
        let text = self.text();
        text.lines()
            .filter(|line| {
                !line.is_empty() && !line.starts_with("# What") && !line.starts_with("# Proc")
            })
            .filter(|line| !line.starts_with("format") && !line.starts_with("processor"))
            .fold(String::new(), |all, line| all + line + "\n")
    }
}

fn number(text: &mut String, key: &str, decision: Decision<u64>, default: u64) {
    let _ = match decision {
        Decision::Default => writeln!(text, "# {key} = {default}: nothing was better"),
        Decision::Undecided(value, gain) => {
            writeln!(text, "# {key} = {value}: undecided, {}", why(gain))
        }
        Decision::Better(value, gain) => writeln!(text, "# {}\n{key} = {value}", why(gain)),
    };
}

impl Copies {
    fn write(&self, text: &mut String) {
        let is_better = |decision: &Decision<Routine>| decision.value().is_some();
        let undecided: Vec<String> = self
            .decisions
            .iter()
            .enumerate()
            .filter(|(_, decision)| matches!(decision, Decision::Undecided(..)))
            .map(|(class, _)| units::size(Plan::least_bytes(class) as u64))
            .collect();
        let _ = writeln!(text);
        if !undecided.is_empty() {
            let _ = writeln!(
                text,
                "# Undecided for {}: copies of {}.",
                self.reader,
                undecided.join(", ")
            );
        }
        if !self.decisions.iter().any(is_better) {
            let _ = writeln!(
                text,
                "# Copies that are read next by {}: nothing was better.",
                self.reader
            );
            return;
        }
        let mut last = None;
        for (class, decision) in self.decisions.iter().enumerate() {
            let from = Plan::least_bytes(class);
            let routine = decision.value().unwrap_or_else(|| self.untuned.routine(from));
            if last == Some(routine) {
                continue;
            }
            last = Some(routine);
            let reason = match decision {
                Decision::Better(_, gain) => why(*gain),
                Decision::Default | Decision::Undecided(..) => "the default".to_owned(),
            };
            let reader = self.reader;
            let _ = writeln!(
                text,
                "[[copies]]\nnext_reader = \"{reader}\"\nfrom_bytes = {from}\nroutine = \"{routine}\"  # {reason}"
            );
        }
    }
}

/// The file of this user.
pub(super) fn of_user() -> Option<PathBuf> {
    let variable =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let settings = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")));
    Some(settings?.join("corewire/tuning.toml"))
}

/// Fails before anything is measured if the file cannot be written.
pub(super) fn check_writable(path: &Path) -> Result<(), Failure> {
    let cannot = |error| Failure::other(format!("cannot write {}: {error}", path.display()));
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(cannot)?;
    }
    corewire_os::file::check_writable(path).map_err(cannot)
}

/// Writes it.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = corewire_os::file::write(path, text.as_bytes());
    written.map_err(|error| Failure::other(format!("cannot write {}: {error}", path.display())))
}
