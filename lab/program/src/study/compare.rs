//! `corewire study compare`: shows the results of several machines side by side (papers/000, Figures 6
//! and 38 to 45).

use std::path::{Path, PathBuf};

use corewire_os::file;

use crate::study::failure::{Doing, Failure};
use crate::study::output::Study;
use crate::study::{
    active, collect, collectives, interfaces, journal, nemesis, output, protocols, report, routing,
};

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
        all.push((label(file), output::read(file)?));
    }
    let page = report::render_comparison(&all).doing("draw the page")?;
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
    let (directory, plots) = (&args.directory, args.plots);
    if nemesis::results::Results::redraw(directory, plots)?
        || active::results::Results::redraw(directory, plots)?
        || interfaces::results::Results::redraw(directory, plots)?
        || routing::results::Results::redraw(directory, plots)?
        || protocols::results::Results::redraw(directory, plots)?
        || collectives::results::Results::redraw(directory, plots)?
    {
        return Ok(());
    }
    let results = match <journal::Journal>::look(&args.directory)? {
        Some((header, entries)) => collect::results(&header, &entries)?,
        None => output::read(&args.directory.join("results.json"))?,
    };
    output::write(&args.directory, &results)?;
    if args.plots {
        output::write_plots(&args.directory, &results)?;
    }
    output::print(&args.directory, &results);
    Ok(())
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
