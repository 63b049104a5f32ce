//! The measuring programs, which are in C because MPI's and libfabric's interfaces are: compiled when the study runs, each
//! with the compiler of its MPI.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::mpis::Installed;
use super::ways::Way;
use crate::study::failure::{Doing, Failure};

/// All sources.
const SOURCES: [(&str, &str); 8] = [
    ("conductor.h", include_str!("programs/conductor.h")),
    ("line.h", include_str!("programs/line.h")),
    ("fabric.h", include_str!("programs/fabric.h")),
    ("measure.c", include_str!("programs/measure.c")),
    ("direct.c", include_str!("programs/direct.c")),
    ("steps.c", include_str!("programs/steps.c")),
    ("floor_path.h", include_str!("programs/floor_path.h")),
    ("floor.c", include_str!("programs/floor.c")),
];

/// A compiler's lines that are shown if it fails.
const LINES: usize = 3;

/// Where sources and programs are.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    directory: PathBuf,
}

impl Programs {
    /// Writes the sources into `scratch`, once.
    pub(super) fn new(scratch: &Path) -> Result<Self, Failure> {
        let directory = scratch.join("programs");
        if !directory.is_dir() {
            fs::create_dir_all(&directory).doing("make a directory")?;
            for (name, text) in SOURCES {
                fs::write(directory.join(name), text).doing(format_args!("write {name}"))?;
            }
        }
        Ok(Self { directory })
    }

    /// The measuring program for an MPI.
    pub(super) fn measure(&self, mpi: &Installed) -> Result<PathBuf, Failure> {
        self.compile(&mpi.compiler, "measure.c", &format!("measure-{}", mpi.id.text()), &[])
    }

    /// The measuring program for libfabric.
    pub(super) fn direct(&self) -> Result<PathBuf, Failure> {
        self.compile(Path::new("cc"), "direct.c", "direct", &["-lfabric"])
    }

    /// The program whose calls are counted.
    pub(super) fn steps(&self) -> Result<PathBuf, Failure> {
        self.compile(Path::new("cc"), "steps.c", "steps", &["-lfabric", "-ldl"])
    }

    /// The directory that libfabric looks into for the provider of this way; an empty one for a provider of its own.
    pub(super) fn provider(&self, way: Way, corewire: Option<&Path>) -> Result<PathBuf, Failure> {
        let name = format!("provider-{}", way.text());
        let directory = self.directory.join(&name);
        fs::create_dir_all(&directory).doing("make a directory")?;
        match (way, corewire) {
            (Way::Corewire, Some(corewire)) => {
                let link = directory.join("libcorewire-fi.so");
                if !link.exists() {
                    let corewire = corewire.canonicalize().doing("find corewire's provider")?;
                    symlink(corewire, link).doing("name corewire's provider")?;
                }
            }
            (Way::Floor, _) => {
                let (library, options) =
                    (format!("{name}/libfloor-fi.so"), ["-fPIC", "-shared", "-fvisibility=hidden"]);
                self.compile(Path::new("cc"), "floor.c", &library, &options)?;
            }
            _ => {}
        }
        Ok(directory)
    }

    /// Compiles a program, if that is not done yet.
    fn compile(
        &self,
        compiler: &Path,
        source: &str,
        name: &str,
        arguments: &[&str],
    ) -> Result<PathBuf, Failure> {
        let program = self.directory.join(name);
        if program.is_file() {
            return Ok(program);
        }
        let mut command = Command::new(compiler);
        command.current_dir(&self.directory).args(["-O2", "-o", name, source]).args(arguments);
        let output = command.output().doing(format_args!("run {}", compiler.display()))?;
        if output.status.success() {
            return Ok(program);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let errors = said.lines().filter(|line| line.contains("error")).take(LINES);
        let errors = errors.collect::<Vec<_>>().join("; ");
        Err(Failure::other(format!("{} cannot compile {source}: {errors}", compiler.display())))
    }
}

/// Why nothing that needs libfabric's headers can be measured; `None` if it can.
pub(super) fn absence(scratch: &Path) -> Option<String> {
    let compiled = Programs::new(scratch).and_then(|programs| programs.provider(Way::Floor, None));
    compiled.err().map(|failure| format!("{} (Debian: gcc libfabric-dev)", failure.message))
}
