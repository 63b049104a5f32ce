//! The results of a benchmark: keys for programs, and lines for people.

use serde_json::{Map, Value};

use super::statistics::{Spread, thousandths};

/// The results of a benchmark.
///
/// ```
/// use corewire_harness::report::Report;
///
/// let mut report = Report::default();
/// report.value("bytes", 48);
/// report.figure("one_way_ns", "a message, one way", 61.26, "ns");
/// report.ratio("to the bare line of the same round", &[1.2, 1.1, 1.4]);
/// let keys: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
/// assert_eq!(keys["one_way_ns"], 61.3);
/// assert_eq!(keys["ratio_max"], 1.4);
/// assert_eq!(report.to_text().lines().count(), 2);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    values: Map<String, Value>,
    lines: Vec<String>,
}

impl Report {
    /// Adds a key.
    ///
    /// # Panics
    /// The report has that key already.
    #[track_caller]
    pub fn value(&mut self, key: &str, value: impl Into<Value>) {
        let before = self.values.insert(key.to_owned(), value.into());
        assert!(before.is_none(), "{key} is the key of two figures");
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Adds a line.
    pub fn note(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    /// Adds a figure with one decimal, as a key and as a line.
    pub fn figure(&mut self, key: &str, words: &str, value: f64, unit: &str) {
        self.value(key, (value * 10.0).round() / 10.0);
        self.note(format!("{words:<44} {value:>10.1} {unit}"));
    }

    /// Adds a rate: the key in messages per second, the line in millions of them.
    pub fn rate(&mut self, key: &str, words: &str, per_second: f64) {
        self.value(key, per_second.round());
        self.note(format!("{words:<44} {:>10.1} M messages/s", per_second / 1e6));
    }

    /// Adds a figure without a unit, with three decimals, as a key and as a line.
    pub fn number(&mut self, key: &str, words: &str, value: f64) {
        self.value(key, thousandths(value));
        self.note(format!("{words:<44} {value:>10.3}"));
    }

    /// Adds the median of times and what one in a hundred exceeds, in nanoseconds: `{key}_p50` and `{key}_p99`.
    pub fn p50_p99(&mut self, key: &str, words: &str, times: [f64; 2]) {
        for (end, time) in ["p50", "p99"].into_iter().zip(times) {
            self.figure(&format!("{key}_{end}"), &format!("{words}, {end}"), time, "ns");
        }
    }

    /// Adds the keys of a spread: `{key}`, `{key}_min` and `{key}_max`.
    pub fn spread(&mut self, key: &str, spread: Spread) {
        let Spread { median, min, max } = spread;
        for (end, figure) in [("", median), ("_min", min), ("_max", max)] {
            self.value(&format!("{key}{end}"), thousandths(figure));
        }
    }

    /// Adds the line of a spread.
    pub fn spread_note(&mut self, words: &str, spread: Spread) {
        let Spread { median, min, max } = spread;
        self.note(format!("{words:<44} {median:>10.3} ({min:.3} to {max:.3})"));
    }

    /// Adds a ratio with its spread, as the keys `ratio`, `ratio_min` and `ratio_max` and as a line.
    pub fn ratio(&mut self, words: &str, ratios: &[f64]) {
        self.ratios("ratio", words, ratios);
    }

    /// The same under another key.
    pub fn ratios(&mut self, key: &str, words: &str, ratios: &[f64]) {
        self.spread(key, Spread::of(ratios.iter().copied()).unwrap_or_default());
        self.ratios_note(words, ratios);
    }

    /// Adds the line of the spread of `ratios`, which also says how many there are.
    pub fn ratios_note(&mut self, words: &str, ratios: &[f64]) {
        let spread = Spread::of(ratios.iter().copied()).unwrap_or_default();
        let (Spread { median, min, max }, rounds) = (spread, ratios.len());
        self.note(format!("{words:<44} {median:>10.3} (median of {rounds}; {min:.3} to {max:.3})"));
    }

    /// All keys, as one JSON object in one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        Value::Object(self.values.clone()).to_string()
    }

    /// All lines, each with its line break.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }
}

impl From<Report> for Value {
    /// The keys.
    fn from(report: Report) -> Self {
        Self::Object(report.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_has_three_keys_and_one_line() {
        let mut report = Report::default();
        report.ratio("to something", &[1.23456, 1.0, 2.0]);
        let keys: Value = serde_json::from_str(&report.to_json()).unwrap();
        let expected = serde_json::json!({"ratio": 1.235, "ratio_min": 1.0, "ratio_max": 2.0});
        assert_eq!(keys, expected);
        let line = format!("{:<44}      1.235 (median of 3; 1.000 to 2.000)\n", "to something");
        assert_eq!(report.to_text(), line);
    }

    #[test]
    fn figures_and_rates_are_rounded_for_their_readers() {
        let mut report = Report::default();
        report.figure("ns", "a time", 12.34, "ns");
        report.rate("messages_per_s", "a rate", 12_345_678.9);
        assert_eq!(report.to_json(), r#"{"ns":12.3,"messages_per_s":12345679.0}"#);
        assert!(report.to_text().ends_with("12.3 M messages/s\n"), "{}", report.to_text());
    }

    #[test]
    fn without_ratios_all_figures_are_zero() {
        let mut report = Report::default();
        report.ratio("to something", &[]);
        assert!(report.to_json().contains("\"ratio\":0.0"));
    }
}
