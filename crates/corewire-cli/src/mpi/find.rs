//! The MPIs of this machine: which they are, and whether they can use a libfabric provider.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use serde::{Serialize, Serializer};

use super::ask::ask;
use super::libfabric::{self, Version};
use crate::units;

/// Programs of `PATH` that start an MPI's programs. Where several MPIs are installed, Debian adds the MPI's name.
const LAUNCHERS: [&str; 7] = [
    "mpiexec",
    "mpirun",
    "mpiexec.hydra",
    "mpiexec.mpich",
    "mpirun.mpich",
    "mpiexec.openmpi",
    "mpirun.openmpi",
];

/// How names of such programs begin.
const STARTS: [&str; 4] = ["mpiexec", "mpirun", "orterun", "prterun"];

/// The oldest libfabric that the provider is built for.
const LIBFABRIC_MIN: Version = Version { major: 1, minor: 17 };

/// Who made an MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Mpich,
    IntelMpi,
    OpenMpi,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mpich => "MPICH",
            Self::IntelMpi => "Intel MPI",
            Self::OpenMpi => "Open MPI",
        })
    }
}

/// An MPI that is installed here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Mpi {
    pub(crate) kind: Kind,
    pub(crate) version: String,
    pub(crate) launcher: PathBuf,
    /// The version of its libfabric, if it was found.
    #[serde(serialize_with = "as_text")]
    pub(crate) libfabric: Option<Version>,
    /// Why it cannot use the provider.
    pub(crate) obstacle: Option<String>,
}

fn as_text<S: Serializer>(version: &Option<Version>, to: S) -> Result<S::Ok, S::Error> {
    version.map(|version| version.to_string()).serialize(to)
}

impl Mpi {
    /// The first number of its version.
    pub(crate) fn major(&self) -> u32 {
        self.version.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// Asks the launcher at `path` what it is. `None` if it does not say so.
    fn at(path: PathBuf) -> Option<Self> {
        let (kind, version) = told(&ask(&path, &["--version"])?)?;
        // Links of alternatives lead to the folder with the MPI's other programs.
        let program = path.canonicalize().ok()?;
        let folders = [program.parent(), path.parent()];
        let folders: Vec<_> = folders.into_iter().flatten().collect();
        let other = |name: &str| {
            let all = folders.iter().map(|folder| folder.join(name));
            all.into_iter().find(|path| is_program(path))
        };
        let no_libfabric = match kind {
            Kind::Mpich => other("mpichversion").and_then(|it| lacks_ofi(&ask(&it, &[])?)),
            Kind::OpenMpi => other("ompi_info").and_then(|it| {
                let answer = ask(&it, &["--parsable"])?;
                let is_answer = answer.contains("mca:mtl:");
                (is_answer && !answer.contains("mca:mtl:ofi:"))
                    .then(|| "it was built without libfabric (no mtl:ofi in ompi_info)".to_owned())
            }),
            Kind::IntelMpi => None,
        };
        let libfabric = match no_libfabric {
            Some(_) => None,
            None => folders.iter().find_map(|folder| libfabric::version_for(folder)),
        };
        let too_old = libfabric.filter(|version| *version < LIBFABRIC_MIN).map(|version| {
            format!("its libfabric is {version}, and {LIBFABRIC_MIN} or later is needed")
        });
        let obstacle = no_libfabric.or(too_old);
        Some(Self { kind, version, launcher: path, libfabric, obstacle })
    }

    /// What a line says of it.
    pub(crate) fn text(&self) -> String {
        let Self { kind, version, launcher, libfabric, .. } = self;
        let libfabric = libfabric.map(|version| format!(", libfabric {version}"));
        let launcher = launcher.to_string_lossy();
        units::printable(&format!("{kind} {version} ({launcher}{})", libfabric.unwrap_or_default()))
    }
}

/// Kind and version, as an MPI's launcher tells them.
fn told(answer: &str) -> Option<(Kind, String)> {
    let after = |word: &str| {
        let rest = answer.split_once(word)?.1.split_whitespace().next()?;
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || ".-+".contains(c)));
        let version = &rest[..end.unwrap_or(rest.len())];
        version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
    };
    if answer.contains("Intel(R) MPI") {
        return Some((Kind::IntelMpi, after("Version ")?));
    }
    if answer.contains("HYDRA") {
        return Some((Kind::Mpich, after("Version:")?));
    }
    // `mpirun (Open MPI) 4.1.4`, `mpiexec (OpenRTE) 4.1.4`.
    let version = after("(Open MPI) ").or_else(|| after("(OpenRTE) "))?;
    Some((Kind::OpenMpi, version))
}

/// Why an MPICH with this `mpichversion` has no libfabric.
fn lacks_ofi(answer: &str) -> Option<String> {
    let device = answer.lines().find_map(|line| line.strip_prefix("MPICH Device:"))?.trim();
    let has_ofi = device.starts_with("ch4") && device.contains("ofi");
    (!has_ofi).then(|| {
        let device = units::printable(device);
        format!("it was built for {device}, without libfabric; pip install mpich has one with it")
    })
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

fn folders_of_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // An empty entry means the current directory.
    let or_here = |folder: PathBuf| if folder.as_os_str().is_empty() { ".".into() } else { folder };
    std::env::split_paths(&path).map(or_here).collect()
}

/// The MPIs whose launchers are in `PATH`, each once.
pub(crate) fn in_path() -> Vec<Mpi> {
    let mut known = BTreeSet::new();
    let mut mpis: Vec<Mpi> = Vec::new();
    for folder in folders_of_path() {
        for path in LAUNCHERS.map(|name| folder.join(name)) {
            let Ok(program) = path.canonicalize() else { continue };
            if !is_program(&path) || !known.insert(program) {
                continue;
            }
            let Some(mpi) = Mpi::at(path) else { continue };
            let is_same = |other: &Mpi| {
                other.kind == mpi.kind
                    && other.version == mpi.version
                    && other.launcher.parent() == mpi.launcher.parent()
            };
            if !mpis.iter().any(is_same) {
                mpis.push(mpi);
            }
        }
    }
    mpis
}

/// Is this the name of an MPI's launcher?
pub(crate) fn is_launcher(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default().as_bytes();
    STARTS.iter().any(|start| name.starts_with(start.as_bytes()))
}

/// The MPI that this program starts, if it is a launcher and says so. Other programs are not run to be asked.
pub(crate) fn launched_by(program: &OsString) -> Option<Mpi> {
    if !is_launcher(program) {
        return None;
    }
    let given = Path::new(program);
    if program.as_bytes().contains(&b'/') {
        return Mpi::at(given.to_owned());
    }
    let mut all = folders_of_path().into_iter().map(|folder| folder.join(given));
    all.find(|path| is_program(path)).and_then(Mpi::at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_say_what_they_are() {
        let hydra = "HYDRA build details:\n    Version:                                 5.0.2\n";
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 20260301 (id: 1)\n";
        for (answer, expected) in [
            (hydra, Some((Kind::Mpich, "5.0.2"))),
            (intel, Some((Kind::IntelMpi, "2021.18"))),
            ("mpirun (Open MPI) 5.0.11\n\nReport bugs", Some((Kind::OpenMpi, "5.0.11"))),
            ("mpiexec (OpenRTE) 4.1.4\n", Some((Kind::OpenMpi, "4.1.4"))),
            ("mpirun (Open MPI) 6.0.0rc1\n", Some((Kind::OpenMpi, "6.0.0rc1"))),
            ("HYDRA\nVersion: unknown", None),
            ("srun 24.05", None),
            ("", None),
        ] {
            let expected = expected.map(|(kind, version)| (kind, version.to_owned()));
            assert_eq!(told(answer), expected, "{answer:?}");
        }
    }

    #[test]
    fn an_mpich_without_libfabric_is_told_from_one_with_it() {
        for device in ["ch4:ofi ucx", "ch4:ucx ofi", "ch4:ofi"] {
            assert_eq!(lacks_ofi(&format!("MPICH Device:      {device}\n")), None);
        }
        for device in ["ch4:ucx", "ch3:nemesis"] {
            let why = lacks_ofi(&format!("MPICH Version: 4.0\nMPICH Device:   {device}\n"));
            assert!(why.unwrap().contains(&format!("built for {device}, without libfabric")));
        }
        assert_eq!(lacks_ofi("no such line"), None);
    }

    #[test]
    fn only_names_of_launchers_are_asked() {
        for name in ["mpiexec", "/opt/mpich/bin/mpirun", "mpiexec.hydra", "orterun"] {
            assert!(is_launcher(name.as_ref()), "{name}");
        }
        for name in ["./app", "srun", "/mpiexec/app", ""] {
            assert!(!is_launcher(name.as_ref()), "{name}");
        }
    }
}
