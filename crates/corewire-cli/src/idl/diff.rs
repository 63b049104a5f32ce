//! `corewire idl diff`: what changes between two versions of an interface, and whether it breaks.

use std::path::{Path, PathBuf};

use corewire_idl::form::Interface;
use corewire_idl::{Change, Diff, Source, diff};
use corewire_os::file::read_regular_text;
use serde::Serialize;

use crate::failure::Failure;
use crate::output;

/// The largest JSON form that is read: far more than the largest possible interface needs.
const FORM_BYTES_MAX: u64 = 64 << 20;

const EXAMPLES: &str = "\
Examples:
  corewire idl diff calculator.json calculator.if
  corewire idl diff old/calculator.if new/calculator.if --json\n\
\n\
OLD and NEW are interface files, or JSON forms (the name ends with .json) that \
'corewire idl json' has written. Each change is a line that begins with breaks: or \
compatible:. A change breaks if a process of one version and a process of the other \
cannot bind, or misunderstand a value. Documentation and names of types are not \
compared. docs/interfaces.md lists the compatible changes.\n\
\n\
--json prints an object with the keys breaks and changes: an array of objects with \
the keys effect (breaks or compatible), kind, subject, message and notes.\n\
\n\
Exit codes: 0 nothing breaks, 1 something breaks, 2 wrong usage, or a file that \
cannot be read or has errors.";

/// Compare two versions of an interface, and say what breaks
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The old version: an interface file, or a JSON form
    old: PathBuf,
    /// The new version: an interface file, or a JSON form
    new: PathBuf,
    /// Make the types of this file known to OLD and NEW; can be given several times
    #[arg(short, long, value_name = "FILE")]
    import: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    breaks: bool,
    changes: &'a [Change],
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let imports = super::read_all(&args.import)?;
    let (old, new) = (interface(&args.old, &imports)?, interface(&args.new, &imports)?);
    let found = diff(&old, &new);
    if args.json {
        output::print_json(&Report { breaks: found.breaks(), changes: &found.changes })?;
    } else {
        output::print(&text(&found))?;
    }
    if found.breaks() { Err(Failure::quiet(1)) } else { Ok(()) }
}

fn text(found: &Diff) -> String {
    if found.is_empty() { "no changes\n".into() } else { found.render() }
}

/// The interface in a file of either kind. Its warnings are the business of `check`.
fn interface(path: &Path, imports: &[Source]) -> Result<Interface, Failure> {
    if path.extension().is_some_and(|ending| ending == "json") {
        return form(path);
    }
    let checked = super::check_after(super::read(path)?, imports).run();
    checked.into_result().map(|(interface, _)| interface).map_err(|found| {
        super::report(&found);
        Failure::quiet(2)
    })
}

fn form(path: &Path) -> Result<Interface, Failure> {
    let text = read_regular_text(path, FORM_BYTES_MAX);
    let text = text.map_err(|error| super::unreadable(path, &error))?;
    Interface::from_json(&text)
        .map_err(|error| Failure::usage(format!("{}: {error}", super::shown(path))))
}
