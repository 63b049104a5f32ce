//! Where the provider is: `FI_PROVIDER_PATH` names a folder, from which libfabric loads what ends with `fi.so`.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::units;

/// The provider's file.
pub(crate) const FILE: &str = "libcorewire-fi.so";
/// The same as cargo names it in its output.
const BUILT: &str = "libcorewire_fabric.so";
/// The folder beside it that holds it under its own name.
const FOLDER: &str = "corewire-fi";

/// The folder of the provider that `--provider` names.
pub(super) fn of(given: &Path) -> Result<PathBuf, Failure> {
    let shown = units::printable(&given.to_string_lossy());
    let folder = if given.is_dir() { given } else { given.parent().unwrap_or(given) };
    let is_named = given.is_dir() || given.file_name().is_some_and(|name| name == FILE);
    if !is_named || !folder.join(FILE).is_file() {
        let why = format!("--provider {shown}: this is no file {FILE}, and no folder with one");
        return Err(Failure::usage(why));
    }
    // The current directory of the ranks may be another.
    folder.canonicalize().map_err(|error| Failure::usage(format!("--provider {shown}: {error}")))
}

/// The folder of the provider that was installed or built with this program.
pub(crate) fn find() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().and_then(|path| path.canonicalize());
    let own = own.map_err(|error| Failure::other(format!("cannot find this program: {error}")))?;
    let beside = own.parent().unwrap_or(&own);
    let installed = beside.join("../lib/corewire");
    for folder in [beside, &installed] {
        if folder.join(FILE).is_file() {
            return folder.canonicalize().map_err(Failure::other);
        }
    }
    for folder in [beside.to_owned(), beside.join("deps")] {
        if let Some(linked) = linked(&folder) {
            return Ok(linked);
        }
    }
    let shown = units::printable(&beside.to_string_lossy());
    Err(Failure::other(format!(
        "{FILE} is neither in {shown} nor in ../lib/corewire from there: name it with --provider (a build makes it: cargo \
         build --release -p corewire-fabric)"
    )))
}

/// A folder with a link of the provider's name to what cargo has built in `output`.
fn linked(output: &Path) -> Option<PathBuf> {
    if !output.join(BUILT).is_file() {
        return None;
    }
    let folder = output.join(FOLDER);
    let _ = std::fs::create_dir(&folder);
    let _ = symlink(Path::new("..").join(BUILT), folder.join(FILE));
    folder.join(FILE).is_file().then_some(folder)
}
