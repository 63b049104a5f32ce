//! `corewire study compare`: shows the results of several machines side by side (ZIMP, Figures 6
//! and 38 to 45).

use std::path::{Path, PathBuf};

use corewire_os::file;

use super::journal::Journal;
use super::output;
use super::results::Results;
use super::runner::Study;
use super::zimp::{comparison, results::Zimp};
use crate::study::failure::{Doing, Failure};

/// Put the results of several machines side by side, in one page.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  corewire study compare laptop.json server.json --out compare.html"
)]
pub(crate) struct Args {
    /// The results.json of each machine
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The page to write
    #[arg(long, value_name = "FILE", default_value = "compare.html")]
    out: PathBuf,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut all = Vec::new();
    for file in &args.files {
        let results = Results::<Zimp>::read(file)?;
        let none = || Failure::usage(format!("{} holds no results of study zimp", file.display()));
        all.push((label(file), results.ok_or_else(none)?));
    }
    let page = comparison::page(&all).html();
    file::write(&args.out, page.as_bytes()).doing(format_args!("write {}", args.out.display()))?;
    println!("{}", args.out.display());
    Ok(())
}

/// The name of a machine: the name of the file, or that of its directory if the file is called
/// `results`.
fn label(file: &Path) -> String {
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = stem(file).unwrap_or_default();
    if name != "results" {
        return name;
    }
    file.parent().and_then(stem).filter(|name| !name.is_empty()).unwrap_or(name)
}

/// Draw the page of results again, or that of a study that was interrupted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  corewire study report corewire-study-zimp --plots")]
pub(crate) struct ReportArgs {
    /// Directory of the results of a study
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Write each plot as a file of its own as well (SVG)
    #[arg(long)]
    plots: bool,
}

/// Runs the `report` command.
pub(crate) fn report(args: &ReportArgs) -> Result<(), Failure> {
    // A journal is of a study that is not finished yet, whatever was there before.
    let has_some = report_some(args, true)? || report_some(args, false)?;
    let directory = args.directory.display();
    has_some
        .then_some(())
        .ok_or_else(|| Failure::usage(format!("{directory} holds no results of a study")))
}

/// Draws the page of whichever study the directory has. Returns whether it has one.
fn report_some(args: &ReportArgs, is_unfinished: bool) -> Result<bool, Failure> {
    Ok(redraw::<super::zimp::Study>(args, is_unfinished)?
        || redraw::<super::nemesis::Study>(args, is_unfinished)?
        || redraw::<super::active::Study>(args, is_unfinished)?
        || redraw::<super::interfaces::Study>(args, is_unfinished)?
        || redraw::<super::routing::Study>(args, is_unfinished)?
        || redraw::<super::protocols::Study>(args, is_unfinished)?
        || redraw::<super::collectives::Study>(args, is_unfinished)?
        || redraw::<super::transfer::Study>(args, is_unfinished)?
        || redraw::<super::mpi::Study>(args, is_unfinished)?)
}

/// Draws the page of this study from its journal, or from its results, if the directory has them.
fn redraw<S: Study>(args: &ReportArgs, is_unfinished: bool) -> Result<bool, Failure> {
    let directory = &args.directory;
    let results = match is_unfinished {
        true => match Journal::<S>::look(directory)? {
            Some((header, entries)) => Some(Results::of(&header, &entries)?),
            None => None,
        },
        false => Results::<S::Body>::read(&directory.join("results.json"))?,
    };
    let Some(results) = results else { return Ok(false) };
    // Results of an earlier study stay as they are until this one is finished.
    if !is_unfinished {
        output::write_results(directory, &results)?;
    }
    output::write_page(directory, &results)?;
    if args.plots {
        output::write_plots(directory, &results)?;
    }
    output::print(directory, &results)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_named_after_their_directory() {
        let labels =
            ["laptop.json", "server/results.json", "results.json"].map(|it| label(Path::new(it)));
        assert_eq!(labels, ["laptop", "server", "results"]);
    }
}
