//! Where things are: the repository, the provider, and a folder for one test.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The provider that was built with these tests.
fn provider() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let deps = own.parent().unwrap();
    let name = "libcorewire_fabric.so";
    let places = [deps.join(name), deps.parent().unwrap().join(name)];
    // Both may be there, and one be old.
    let built = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).ok();
    let newest = places.iter().filter(|path| built(path).is_some()).max_by_key(|path| built(path));
    newest.cloned().unwrap_or_else(|| panic!("cargo has not built {name}: {places:?}"))
}

/// Folders of one test: the runtime directory, a temporary one, and one with the provider under its name. While it is
/// there, no other test starts jobs.
pub(crate) struct Place {
    folder: PathBuf,
    _lock: File,
}

impl Place {
    pub(crate) fn new(test: &str) -> Self {
        let lock = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi.lock");
        let lock = File::create(lock).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let name = format!("cw-mpi-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        fs::create_dir(folder.join("tmp")).unwrap();
        fs::create_dir(folder.join("fi")).unwrap();
        symlink(provider(), folder.join("fi/libcorewire-fi.so")).unwrap();
        fs::DirBuilder::new().mode(0o700).create(folder.join("run")).unwrap();
        Self { folder, _lock: lock }
    }

    pub(crate) fn runtime(&self) -> PathBuf {
        self.folder.join("run")
    }

    pub(crate) fn temporary(&self) -> PathBuf {
        self.folder.join("tmp")
    }

    /// For `FI_PROVIDER_PATH`.
    pub(crate) fn providers(&self) -> PathBuf {
        self.folder.join("fi")
    }

    /// Files of the runtime directory.
    pub(crate) fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.runtime()).unwrap().flatten();
        files.map(|file| file.file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
