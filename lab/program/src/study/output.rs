//! The files of a study: results, tables, page; and the lines on the terminal.

use std::fs;
use std::path::Path;

use corewire_os::file;

use super::results::{Body, Results};
use crate::study::failure::{Doing, Failure};

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

/// Writes results and tables to `directory`.
pub(crate) fn write_results<B: Body>(
    directory: &Path,
    results: &Results<B>,
) -> Result<(), Failure> {
    let json = match B::IS_DENSE {
        true => serde_json::to_string(results),
        false => serde_json::to_string_pretty(results),
    };
    put(directory, "results.json", &(json.doing("write results")? + "\n"))?;
    for (stem, table) in B::tables(results) {
        put(directory, &format!("{stem}.csv"), &table.csv()?)?;
    }
    Ok(())
}

/// Writes the page to `directory`.
pub(crate) fn write_page<B: Body>(directory: &Path, results: &Results<B>) -> Result<(), Failure> {
    put(directory, "report.html", &B::page(results).html())
}

/// Writes each plot of the page to `directory`, as a file of its own.
pub(crate) fn write_plots<B: Body>(directory: &Path, results: &Results<B>) -> Result<(), Failure> {
    for (stem, svg) in B::page(results).plots() {
        put(directory, &format!("{stem}.svg"), &svg)?;
    }
    Ok(())
}

/// Writes one file.
fn put(directory: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = directory.join(name);
    file::write(&path, text.as_bytes()).doing(format_args!("write {}", path.display()))
}

/// Prints the main figures, and where the page is.
pub(crate) fn print<B: Body>(directory: &Path, results: &Results<B>) -> Result<(), Failure> {
    let shown = B::summary(results).into_iter().filter(|table| !table.rows.is_empty());
    let tables: String = shown.map(|table| table.text() + "\n").collect();
    crate::print(&format!("{tables}{}\n", directory.join("report.html").display()))
}
