//! Which file a group has.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::{LogFileError, failed};

/// Which file a group has: the same one by whatever path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FileId {
    /// Any bytes, as a path may have.
    path: Vec<u8>,
    device: u64,
    directory: u64,
}

impl PartialEq for FileId {
    fn eq(&self, other: &Self) -> bool {
        let name = |id: &Self| id.path().file_name().map(ToOwned::to_owned);
        (self.device, self.directory, name(self)) == (other.device, other.directory, name(other))
    }
}

impl FileId {
    /// Of a path whose directory exists.
    pub(crate) fn of(path: &Path) -> Result<Self, LogFileError> {
        let is_other = path.metadata().is_ok_and(|metadata| !metadata.is_file());
        if path.file_name().is_none() || is_other {
            return Err(LogFileError::NotALog(path.to_owned()));
        }
        // The file that a link leads to.
        let followed = std::fs::canonicalize(path);
        let path = followed.as_deref().unwrap_or(path);
        let directory = std::fs::canonicalize(directory_of(path));
        let directory = directory.map_err(failed("find the directory of", path))?;
        let is = directory.metadata().map_err(failed("find the directory of", path))?;
        let path = directory.join(path.file_name().unwrap_or_default());
        Ok(Self { path: path.into_os_string().into_vec(), device: is.dev(), directory: is.ino() })
    }

    pub(crate) fn path(&self) -> PathBuf {
        OsString::from_vec(self.path.clone()).into()
    }

    /// The file beside it whose lock all processes of the group share.
    pub(crate) fn lock(&self) -> PathBuf {
        let path = self.path();
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".corewire-lock");
        path.with_file_name(name)
    }
}

/// Where the file is.
pub(super) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Makes a new name in the directory of a path outlive the machine.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}
