//! The MPIs of this machine, and how each starts and compiles a program.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::place;

/// An MPI that is here.
#[derive(Debug)]
pub(crate) struct Mpi {
    pub(crate) name: String,
    launcher: PathBuf,
    compiler: PathBuf,
    is_open_mpi: bool,
}

/// A program that was compiled for one test.
pub(crate) struct Program(PathBuf);

impl AsRef<OsStr> for Program {
    fn as_ref(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The wheel of this version of MPICH.
pub(crate) fn mpich(version: &str) -> Option<Mpi> {
    let folder = place::root().join(format!("target/mpi/mpich-{version}"));
    let programs = folder.join("bin");
    let (launcher, compiler) = (programs.join("mpiexec"), programs.join("mpicc"));
    let name = format!("MPICH {version}");
    // Written when everything is there.
    if !folder.join("complete").is_file() {
        return skip(&name, &format!("it is not in {}", folder.display()));
    }
    Some(Mpi { name, launcher, compiler, is_open_mpi: false })
}

/// The system's Open MPI, if it is one of 4.x with libfabric.
pub(crate) fn open_mpi() -> Option<Mpi> {
    let name = "Open MPI 4";
    let is_four = |launcher: &&str| {
        let version = output(launcher, &["--version"]).unwrap_or_default();
        version.contains("(Open MPI) 4.") || version.contains("(OpenRTE) 4.")
    };
    let Some(launcher) = ["mpirun.openmpi", "mpirun"].into_iter().find(is_four) else {
        return skip(name, "mpirun of Open MPI 4 is not in PATH");
    };
    let is_its = |compiler: &&str| {
        output(compiler, &["--showme:version"]).is_some_and(|said| said.contains("Open MPI 4."))
    };
    let Some(compiler) = ["mpicc.openmpi", "mpicc"].into_iter().find(is_its) else {
        return skip(name, "mpicc of Open MPI 4 is not in PATH");
    };
    if !output("ompi_info", &["--parsable"]).is_some_and(|all| all.contains("mca:mtl:ofi:")) {
        return skip(name, "it was built without libfabric");
    }
    let (launcher, compiler) = (launcher.into(), compiler.into());
    Some(Mpi { name: name.to_owned(), launcher, compiler, is_open_mpi: true })
}

fn skip(name: &str, why: &str) -> Option<Mpi> {
    eprintln!("SKIPPED: tests of {name}: {why}");
    None
}

/// What a program prints; `None` if it cannot be run, or fails.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let done = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    let all = [done.stdout, done.stderr].concat();
    done.status.success().then(|| String::from_utf8_lossy(&all).into_owned())
}

impl Mpi {
    /// Compiles `c/NAME.c`.
    pub(crate) fn compile(&self, name: &str) -> Program {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/mpi/c/{name}.c"));
        let mut folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi");
        folder.push(self.name.replace(' ', "-"));
        std::fs::create_dir_all(&folder).unwrap();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Its own name: another test may compile the same program.
        let program = Program(folder.join(format!("{name}-{}-{number}", std::process::id())));
        let mut command = Command::new(&self.compiler);
        command.args(["-O1", "-Wall", "-o"]).arg(&program.0).arg(source).stdin(Stdio::null());
        let done = command.output().unwrap_or_else(|error| panic!("{:?}: {error}", self.compiler));
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{} does not compile {name}.c: {said}", self.name);
        program
    }

    /// The command that starts `ranks` ranks of a program, which is to be added.
    pub(crate) fn launcher(&self, ranks: usize) -> Command {
        let mut command = Command::new(&self.launcher);
        if self.is_open_mpi {
            command.args(["--oversubscribe", "--bind-to", "none"]);
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            command.env("OMPI_MCA_pml", "cm").env("OMPI_MCA_mtl", "ofi");
            command.env("OMPI_MCA_mtl_ofi_provider_include", "corewire");
            command.env("OMPI_MCA_osc", "pt2pt");
        } else {
            command.env("MPIR_CVAR_CH4_NETMOD", "ofi").env("MPIR_CVAR_NOLOCAL", "1");
        }
        command.args(["-n", &ranks.to_string()]);
        command
    }
}
