//! The output of a study: a page, results, tables, a few lines on the terminal.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use corewire_harness::statistics::Spread;
use corewire_os::file;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::study::failure::{Doing, Failure};
use crate::study::report::{self, PageError};
use crate::study::results::Results;

/// The longest file of results.
pub(crate) const BYTES_MAX: u64 = 256 << 20;

/// Makes the directory that a study writes to, and looks whether it can: before it measures for hours.
pub(crate) fn make(directory: &Path) -> Result<(), Failure> {
    fs::create_dir_all(directory).doing(format_args!("make {}", directory.display()))?;
    for name in ["results.json", "points.csv", "report.html"] {
        let path = directory.join(name);
        file::check_writable(&path).doing(format_args!("write {}", path.display()))?;
    }
    Ok(())
}

/// Writes page, results and tables to `directory`.
pub(crate) fn write(directory: &Path, results: &Results) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(results).doing("write results")?;
    put(directory, "results.json", &(json + "\n"))?;
    put(directory, "points.csv", &points(results)?)?;
    put(directory, "latencies.csv", &latencies(results)?)?;
    put(directory, "report.html", &report::render(results).doing("draw the page")?)
}

/// Writes each plot of the page to `directory`, as a file of its own.
pub(crate) fn write_plots(directory: &Path, results: &Results) -> Result<(), Failure> {
    for (stem, svg) in report::plots(results).doing("draw the plots")? {
        put(directory, &format!("{stem}.svg"), &svg)?;
    }
    Ok(())
}

/// Writes one file.
pub(crate) fn put(directory: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = directory.join(name);
    file::write(&path, text.as_bytes()).doing(format_args!("write {}", path.display()))
}

/// Reads results from a file.
pub(crate) fn read(path: &Path) -> Result<Results, Failure> {
    let text = file::read_regular_text(path, BYTES_MAX);
    let text = text.doing(format_args!("read {}", path.display()))?;
    let results: Results = serde_json::from_str(&text)
        .doing(format_args!("read {}: it holds no results of a study", path.display()))?;
    if results.format != crate::study::results::FORMAT {
        return Err(Failure::usage(format!(
            "{} has format {}; this program reads {}",
            path.display(),
            results.format,
            crate::study::results::FORMAT
        )));
    }
    Ok(results)
}

/// The results of a study that writes one page, `results.json` and one table.
pub(crate) trait Study: Serialize + DeserializeOwned {
    /// The names that `results.json` may have for it.
    const NAMES: &[&str];
    /// The format of `results.json` that this program reads.
    const FORMAT: u32;

    /// The medians, as CSV.
    fn table(&self) -> Result<String, Failure>;

    /// The page, as HTML.
    fn page(&self) -> Result<String, PageError>;

    /// The SVG of every figure, with the stem of its file name.
    fn plots(&self) -> Result<Vec<(String, String)>, PageError>;

    /// Prints the main figures, and where the page is.
    fn print(&self, directory: &Path);

    /// The text of `results.json`.
    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Writes page, results and table to `directory`.
    fn write(&self, directory: &Path) -> Result<(), Failure> {
        put(directory, "results.json", &(self.json().doing("write results")? + "\n"))?;
        put(directory, "points.csv", &self.table()?)?;
        put(directory, "report.html", &self.page().doing("draw the page")?)
    }

    /// Draws the page of `directory` again, if it holds results of this study. Returns whether it does.
    fn redraw(directory: &Path, with_plots: bool) -> Result<bool, Failure> {
        for name in Self::NAMES {
            let Some(results) = read_study::<Self>(directory, name, Self::FORMAT)? else {
                continue;
            };
            results.write(directory)?;
            if with_plots {
                for (stem, svg) in results.plots().doing("draw the plots")? {
                    put(directory, &format!("{stem}.svg"), &svg)?;
                }
            }
            results.print(directory);
            return Ok(true);
        }
        Ok(false)
    }
}

/// Reads the results of study `study` from `directory`; `None` if it holds none of it.
fn read_study<R: DeserializeOwned>(
    directory: &Path,
    study: &str,
    format: u32,
) -> Result<Option<R>, Failure> {
    let path = directory.join("results.json");
    let text = match file::read_regular_text(&path, BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.doing(format_args!("read {}", path.display()))?,
    };
    let found: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    if found["study"] != study {
        return Ok(None);
    }
    if found["format"] != format {
        let (path, other) = (path.display(), &found["format"]);
        return Err(Failure::usage(format!(
            "{path} has format {other}; this program reads {format}"
        )));
    }
    serde_json::from_value(found).doing("read results").map(Some)
}

fn points(results: &Results) -> Result<String, Failure> {
    let mut table = csv::Writer::from_writer(Vec::new());
    let heads = [
        "mechanism",
        "bytes",
        "receivers",
        "senders",
        "oversubscribed",
        "messages_per_s",
        "messages_per_s_min",
        "messages_per_s_max",
        "lost_share",
        "sender_cpu_ns",
        "receiver_cpu_ns",
        "why_not",
    ];
    table.write_record(heads).doing("write a table")?;
    for point in &results.points {
        let rate = point.messages_per_s();
        let of = |of: fn(&crate::study::results::Run) -> f64| Spread::of(point.runs.iter().map(of));
        let reason = point.impossible.iter().chain(&point.failures).next().cloned();
        let row = [
            point.mechanism.clone(),
            point.bytes.to_string(),
            point.receivers.to_string(),
            point.senders.to_string(),
            point.oversubscribed.to_string(),
            number(rate.map(|rate| rate.median)),
            number(rate.map(|rate| rate.min)),
            number(rate.map(|rate| rate.max)),
            number(rate.map(|_| point.lost_share())),
            number(of(|run| run.sender_cpu_ns).map(|times| times.median)),
            number(of(|run| run.receiver_cpu_ns).map(|times| times.median)),
            reason.unwrap_or_default(),
        ];
        table.write_record(row).doing("write a table")?;
    }
    text(table)
}

fn latencies(results: &Results) -> Result<String, Failure> {
    let mut table = csv::Writer::from_writer(Vec::new());
    let heads = ["mechanism", "bytes", "oversubscribed", "p50_ns", "p99_ns", "why_not"];
    table.write_record(heads).doing("write a table")?;
    for latency in &results.latencies {
        let median = |times: &[f64]| number(Spread::of(times.iter().copied()).map(|it| it.median));
        let row = [
            latency.mechanism.clone(),
            latency.bytes.to_string(),
            latency.oversubscribed.to_string(),
            median(&latency.p50_ns),
            median(&latency.p99_ns),
            latency.impossible.clone().unwrap_or_default(),
        ];
        table.write_record(row).doing("write a table")?;
    }
    text(table)
}

/// Formats with three decimals; an empty text for `None`.
fn number(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.3}")).unwrap_or_default()
}

fn text(table: csv::Writer<Vec<u8>>) -> Result<String, Failure> {
    let bytes = table.into_inner().doing("write a table")?;
    String::from_utf8(bytes).doing("write a table")
}

/// Prints a table of the rates of one receiver, and where the page is.
pub(crate) fn print(directory: &Path, results: &Results) {
    let one = |point: &&crate::study::results::Point| (point.receivers, point.senders) == (1, 1);
    let mut sizes: Vec<u64> = results.points.iter().filter(one).map(|point| point.bytes).collect();
    sizes.dedup();
    println!("one receiver, million messages per second:");
    let heads: String = sizes.iter().map(|size| format!("{:>9}", size_words(*size))).collect();
    println!("{:<32}{heads}", "");
    for mechanism in &results.mechanisms {
        let cell = |size: &u64| match results.rate(&mechanism.id, *size, 1) {
            Some(rate) => format!("{:>9.3}", rate / 1e6),
            None => format!("{:>9}", "-"),
        };
        println!("{:<32}{}", mechanism.name, sizes.iter().map(cell).collect::<String>());
    }
    println!("\n{}", directory.join("report.html").display());
}

fn size_words(bytes: u64) -> String {
    match bytes {
        ..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
