//! The distance between the cores of a measurement. Some hosts move the cores while a program runs: for
//! a second they are two threads of one core, then two cores of different clusters. Figures at different
//! distances cannot be compared, so each measurement says at which distance it ran.

use corewire_ring::region::Region;
use serde_json::Value;

use super::line::{BYTES, LINES, RawLine};
use super::places::on_two;
use super::report::Report;
use super::statistics::median;
use crate::failure::Failure;

/// Between two threads of one core, a line takes less than this.
const ONE_CORE_NS_BELOW: f64 = 60.0;
/// Round trips that are counted: one to five milliseconds.
const TRIPS: u64 = 16 * LINES as u64;

/// What the time of a line says about two processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// They are hyperthreads of one core, or there is only one processor.
    OneCore,
    /// They are two cores.
    TwoCores,
    /// They were one of these before the measurement, and the other one after it.
    Changed,
}

impl Class {
    /// The class of a line's time.
    const fn of(line_ns: f64) -> Self {
        if line_ns < ONE_CORE_NS_BELOW { Self::OneCore } else { Self::TwoCores }
    }

    /// Its name in reports: `one core`, `two cores` or `changed`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneCore => "one core",
            Self::TwoCores => "two cores",
            Self::Changed => "changed",
        }
    }
}

/// Cores whose distance was measured before a measurement.
#[derive(Debug)]
pub struct Watch {
    cores: Vec<usize>,
    before_ns: Option<f64>,
}

impl Watch {
    /// Measures the distance of these cores before a measurement.
    ///
    /// # Errors
    /// If a thread cannot be pinned to one of them.
    pub fn start(cores: Vec<usize>) -> Result<Self, Failure> {
        let before_ns = longest_ns(&cores)?;
        Ok(Self { cores, before_ns })
    }

    /// Measures it again, after the measurement.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn stop(self) -> Result<Distance, Failure> {
        let after_ns = longest_ns(&self.cores)?;
        let line_ns = self.before_ns.zip(after_ns).map(|(before, after)| [before, after]);
        Ok(Distance { cores: self.cores, line_ns })
    }
}

/// The distance of the cores of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Distance {
    /// The cores that the measurement used.
    pub cores: Vec<usize>,
    /// The time of a line one way, before and after: from the first core to that one of the others to
    /// which it took longest. `None` with a single core.
    pub line_ns: Option<[f64; 2]>,
}

impl Distance {
    /// The class of both times.
    #[must_use]
    pub fn class(&self) -> Class {
        let Some([before, after]) = self.line_ns else { return Class::OneCore };
        let class = Class::of(before);
        if class == Class::of(after) { class } else { Class::Changed }
    }

    /// Adds the keys `line_ns` (the mean of both times; null with a single core) and `distance`, and a
    /// line.
    pub fn describe(&self, report: &mut Report) {
        let line_ns = self.line_ns.map(|[before, after]| f64::midpoint(before, after));
        report.value("line_ns", line_ns.map(|ns| (ns * 10.0).round() / 10.0));
        report.value("distance", self.class().name());
        report.note(self.words());
    }

    /// In words, such as `cores 0 and 1, a line takes 64 ns (another core)`.
    #[must_use]
    pub fn words(&self) -> String {
        let cores = names(&self.cores);
        let Some([before, after]) = self.line_ns else {
            return format!("{cores} alone, no line goes to another core");
        };
        let line_ns = f64::midpoint(before, after);
        let (takes, others) = match self.cores.len() {
            ..=2 => ("takes", "another core"),
            _ => ("takes up to", "other cores"),
        };
        let others = match self.class() {
            Class::OneCore => "hyperthreads of one core",
            Class::TwoCores => others,
            Class::Changed => {
                return format!(
                    "{cores}, a line took {before:.0} ns before and {after:.0} ns after (the cores moved)"
                );
            }
        };
        format!("{cores}, a line {takes} {line_ns:.0} ns ({others})")
    }
}

/// Adds the keys `one_core_rounds` and `one_core_ratio` (the median; null without such rounds), and a line: the `ratios`
/// of those rounds in which the cores were hyperthreads of one core. `lines` are the times of a line before and after each
/// round.
pub fn describe_one_core(report: &mut Report, ratios: &[f64], lines: [&[f64]; 2]) {
    let [before, after] = lines;
    let is_one_core = |line: f64| Class::of(line) == Class::OneCore;
    let rounds = ratios.iter().zip(before.iter().zip(after));
    let rounds =
        rounds.filter(|(_, (before, after))| is_one_core(**before) && is_one_core(**after));
    let ratios: Vec<f64> = rounds.map(|(ratio, _)| *ratio).collect();
    report.value("one_core_rounds", ratios.len());
    if ratios.is_empty() {
        return report.value("one_core_ratio", Value::Null);
    }
    let words = format!("ratio between two hyperthreads, {} rounds", ratios.len());
    report.number("one_core_ratio", &words, median(ratios));
}

/// `core 0`, `cores 0 and 1`, `cores 0 to 3`, or `7 cores from 0 to 12`.
fn names(cores: &[usize]) -> String {
    let (Some(first), Some(last)) = (cores.first(), cores.last()) else { return "no core".into() };
    match cores.len() {
        1 => format!("core {first}"),
        2 => format!("cores {first} and {last}"),
        count if first + count == last + 1 => format!("cores {first} to {last}"),
        count => format!("{count} cores from {first} to {last}"),
    }
}

/// The longest time of a line from the first of these cores to one of the others; `None` without
/// others.
fn longest_ns(cores: &[usize]) -> Result<Option<f64>, Failure> {
    let Some((&first, others)) = cores.split_first() else { return Ok(None) };
    let times = others.iter().map(|&other| line_ns([first, other], TRIPS));
    let times = times.collect::<Result<Vec<f64>, _>>()?;
    Ok(times.into_iter().max_by(f64::total_cmp))
}

/// The time of a line from core to core, one way, in nanoseconds: the median of `rounds` measurements of
/// a few milliseconds each.
///
/// # Errors
/// If a thread cannot be pinned to one of the cores.
pub fn median_line_ns(cores: [usize; 2], rounds: usize) -> Result<f64, Failure> {
    let times = (0..rounds).map(|_| line_ns(cores, TRIPS));
    Ok(median(times.collect::<Result<Vec<f64>, _>>()?))
}

/// The median time of a line from core to core, one way, over `trips` round trips between two threads.
fn line_ns(cores: [usize; 2], trips: u64) -> Result<f64, Failure> {
    let memory = Region::private(BYTES).ok_or_else(|| Failure::other("no memory for lines"))?;
    let [mut one, mut other] = [RawLine::new(&memory), RawLine::new(&memory)];
    let (line_ns, ()) = on_two(cores, || one.ask(trips), || other.answer(trips))?;
    Ok(line_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_between_hyperthreads_are_reported_apart() {
        let mut report = Report::default();
        let [before, after] = [[35.0, 35.0, 70.0, 36.0], [36.0, 70.0, 70.0, 34.0]];
        describe_one_core(&mut report, &[1.0, 5.0, 6.0, 2.0], [&before, &after]);
        let json: Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!((&json["one_core_rounds"], &json["one_core_ratio"]), (&2.into(), &1.5.into()));
        let mut report = Report::default();
        describe_one_core(&mut report, &[6.0], [&[70.0], &[70.0]]);
        assert!(report.to_json().contains(r#""one_core_ratio":null"#), "{}", report.to_json());
    }

    fn of(cores: &[usize], line_ns: Option<[f64; 2]>) -> Distance {
        Distance { cores: cores.to_vec(), line_ns }
    }

    #[test]
    fn sixty_nanoseconds_divide_one_core_from_two() {
        let class = |times| of(&[0, 1], Some(times)).class();
        assert_eq!(class([31.0, 59.9]), Class::OneCore);
        assert_eq!(class([60.0, 300.0]), Class::TwoCores);
        assert_eq!(class([31.0, 64.0]), Class::Changed);
        assert_eq!(class([64.0, 31.0]), Class::Changed);
        assert_eq!(of(&[0], None).class(), Class::OneCore);
    }

    #[test]
    fn a_report_says_the_distance_in_words_and_in_keys() {
        for (distance, words, keys) in [
            (
                of(&[0, 1], Some([63.0, 65.0])),
                "cores 0 and 1, a line takes 64 ns (another core)\n",
                r#"{"line_ns":64.0,"distance":"two cores"}"#,
            ),
            (
                of(&[0, 1], Some([30.0, 32.0])),
                "cores 0 and 1, a line takes 31 ns (hyperthreads of one core)\n",
                r#"{"line_ns":31.0,"distance":"one core"}"#,
            ),
            (
                of(&[2, 3], Some([30.0, 70.0])),
                "cores 2 and 3, a line took 30 ns before and 70 ns after (the cores moved)\n",
                r#"{"line_ns":50.0,"distance":"changed"}"#,
            ),
            (
                of(&[0, 1, 2], Some([120.0, 120.0])),
                "cores 0 to 2, a line takes up to 120 ns (other cores)\n",
                r#"{"line_ns":120.0,"distance":"two cores"}"#,
            ),
            (
                of(&[5], None),
                "core 5 alone, no line goes to another core\n",
                r#"{"line_ns":null,"distance":"one core"}"#,
            ),
        ] {
            let mut report = Report::default();
            distance.describe(&mut report);
            assert_eq!((report.to_text(), report.to_json()), (words.to_owned(), keys.to_owned()));
        }
    }

    #[test]
    fn cores_are_named_shortly() {
        assert_eq!(names(&[0, 2, 4, 9]), "4 cores from 0 to 9");
        assert_eq!(names(&[4, 5, 6]), "cores 4 to 6");
    }

    #[test]
    fn a_single_core_is_not_measured() {
        let distance = Watch::start(vec![3]).and_then(Watch::stop).unwrap();
        assert_eq!(distance, of(&[3], None));
    }
}
