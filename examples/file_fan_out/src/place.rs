//! A runtime directory for one run.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A directory that only this user can enter. It is removed with its content on drop.
pub(crate) struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    pub(crate) fn create() -> Result<Self, Failure> {
        let name = format!("corewire-fan-out-{:032x}", corewire_os::random_u128()?);
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
            Failure::other(format!("cannot make directory {}: {error}", path.display()))
        })?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // If something cannot be removed, it stays; drop cannot report an error.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
