//! What `corewire idl rust` and `corewire idl c-header` have in common.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use corewire_idl::Diagnostics;
use corewire_idl::form::Interface;
use corewire_os::file;

use super::outcome::{self, MessageFormat};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, clap::Args)]
pub(super) struct Files {
    /// The interface files
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Make the types of this file known to each FILE; can be given several times, and a later
    /// one may use the types of an earlier one
    #[arg(short, long, value_name = "FILE")]
    import: Vec<PathBuf>,
    /// Write a file for each FILE to this directory, instead of the code of one FILE to standard
    /// output
    #[arg(short, long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// How to print errors and warnings; json needs --output
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    message_format: MessageFormat,
}

/// Makes code of all files, and writes it if none of them has an error. A file is named as the interface file, with
/// this ending.
pub(super) fn run(
    args: &Files,
    ending: &str,
    generate: impl Fn(&Interface) -> Result<String, String>,
) -> Result<(), Failure> {
    if args.output.is_none() && args.files.len() > 1 {
        return Err(Failure::usage("code of several files needs --output DIRECTORY"));
    }
    if args.output.is_none() && args.message_format == MessageFormat::Json {
        return Err(Failure::usage("--message-format json needs --output DIRECTORY"));
    }
    let targets = args.output.as_deref().map(|folder| targets(folder, &args.files, ending));
    let targets = targets.transpose()?;
    let imports = super::read_all(&args.import)?;
    let (mut found, mut codes, mut refused) = (Diagnostics::default(), Vec::new(), Vec::new());
    for (path, source) in args.files.iter().zip(super::read_all(&args.files)?) {
        match super::check_after(source, &imports).run().into_result() {
            Ok((interface, warnings)) => {
                found.append(warnings);
                match generate(&interface) {
                    Ok(code) => codes.push(code),
                    Err(reason) => refused.push(format!("{}: {reason}", super::shown(path))),
                }
            }
            Err(diagnostics) => found.append(diagnostics),
        }
    }
    outcome::print(&found, args.message_format)?;
    if let Some((last, others)) = refused.split_last() {
        others.iter().for_each(output::note);
        return Err(Failure::other(last));
    }
    if found.has_errors() {
        return Err(Failure::quiet(1));
    }
    let Some(targets) = targets else {
        return codes.iter().try_for_each(|code| output::print(code));
    };
    for (path, code) in targets.iter().zip(codes) {
        write(path, &code).map_err(|error| {
            Failure::other(format!("cannot write {}: {error}", super::shown(path)))
        })?;
    }
    Ok(())
}

/// A file that has this text already keeps its time, so that builds do not begin again.
fn write(path: &Path, code: &str) -> io::Result<()> {
    match file::read_regular(path, code.len() as u64) {
        Ok(old) if old == code.as_bytes() => Ok(()),
        _ => file::write(path, code.as_bytes()),
    }
}

/// The files to write.
fn targets(folder: &Path, files: &[PathBuf], ending: &str) -> Result<Vec<PathBuf>, Failure> {
    if !folder.is_dir() {
        return Err(Failure::usage(format!("{} is not a directory", super::shown(folder))));
    }
    let mut seen = HashSet::new();
    let target = |path: &PathBuf| {
        let shown = super::shown(path);
        let stem =
            path.file_stem().ok_or_else(|| Failure::usage(format!("{shown}: no file name")))?;
        let target = folder.join(Path::new(stem).with_extension(ending));
        match seen.insert(target.clone()) {
            true => Ok(target),
            false => {
                let target = super::shown(&target);
                Err(Failure::usage(format!("{shown}: another FILE is written to {target}, too")))
            }
        }
    };
    files.iter().map(target).collect()
}
