//! Replaces a file as a whole: other processes read the old text or the new text, and a failure leaves the old text.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

/// How many names for the new file are tried: one that a killed process has left may exist.
const NAMES_MAX: u32 = 100;

/// Replaces the text of the file at `path`. The file keeps its permissions, and its owner and group where this process
/// may set them. A symbolic link stays, and the file that it names is replaced.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let target = fs::canonicalize(path)?;
    // Renaming needs permission for the folder only, but a file that is read-only is not to be changed.
    OpenOptions::new().write(true).open(&target)?;
    let (beside, file) = create_beside(&target)?;
    let written = fill(&file, &target, text).and_then(|()| fs::rename(&beside, &target));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Writes the text to the file at `path`, which may exist. A file that has this text already keeps its time, so that
/// builds do not begin again.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let is_new = match fs::read(path) {
        Ok(old) if old == text.as_bytes() => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        _ => false,
    };
    if is_new {
        // An empty file has the permissions that new files of this user have, and is replaced.
        OpenOptions::new().write(true).create_new(true).open(path)?;
    }
    replace(path, text).inspect_err(|_| {
        if is_new {
            let _ = fs::remove_file(path);
        }
    })
}

fn fill(mut file: &File, target: &Path, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    let old = target.metadata()?;
    // Only a privileged process may give a file away. Setting the owner resets bits of the mode, so it comes first.
    let _ = fchown(file, Some(old.uid()), Some(old.gid()));
    file.set_permissions(old.permissions())?;
    file.sync_all()
}

/// A new file in the folder of `target`, for this user only until it is complete.
fn create_beside(target: &Path) -> io::Result<(PathBuf, File)> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let process = std::process::id();
    let mut last = io::Error::from(ErrorKind::AlreadyExists);
    for number in 0..NAMES_MAX {
        let beside = target.with_file_name(format!(".corewire-{process}-{number}"));
        match options.open(&beside) {
            Ok(file) => return Ok((beside, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_and_a_file_that_was_left_behind_stay() {
        let folder = std::env::temp_dir().join(format!("corewire-whole-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("a.if"), folder.join("link.if"));
        let left = folder.join(format!(".corewire-{}-0", std::process::id()));
        fs::write(&file, "old").unwrap();
        fs::write(&left, "left").unwrap();
        symlink("a.if", &link).unwrap();
        replace(&link, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::read_to_string(&left).unwrap(), "left");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        fs::remove_dir_all(&folder).unwrap();
    }
}
