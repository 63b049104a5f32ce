//! `corewire mpi` among MPIs that only say what they are, and how ranks are shown. Real MPIs run in the tests of
//! `corewire-fabric`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::scratch::{Finished, Running, Scratch, line};

const MPICH: &str = "echo HYDRA build details:; echo '    Version:           5.0.2'";
const OPEN_MPI_4: &str = "echo 'mpirun (Open MPI) 4.1.4'";
const OPEN_MPI_5: &str = "echo 'mpirun (Open MPI) 5.0.11'";
const INTEL: &str = "echo 'Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 1 (id: 2)'";

/// A machine with a provider, and with these programs in `bin`, the only folder of `PATH` but for the shell's.
struct Machine {
    scratch: Scratch,
}

impl Machine {
    fn new(test: &str, programs: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new(test);
        let machine = Self { scratch };
        fs::create_dir(machine.path("bin")).unwrap();
        fs::create_dir(machine.path("it's a provider")).unwrap();
        fs::write(machine.provider(), "not loaded here").unwrap();
        for (name, script) in programs {
            machine.add(name, script);
        }
        machine
    }

    /// A file of the machine.
    fn path(&self, name: &str) -> PathBuf {
        self.scratch.temporary().join(name)
    }

    fn provider(&self) -> PathBuf {
        self.path("it's a provider/libcorewire-fi.so")
    }

    fn launcher(&self, name: &str) -> String {
        self.path("bin").join(name).to_str().unwrap().to_owned()
    }

    /// Written by another process: while this one writes it, a child that another test starts has it open, too, and what
    /// is open for writing cannot be run.
    fn add(&self, name: &str, script: &str) {
        let shell = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let mut command = Command::new("sh");
        let command = command.args(["-c", shell, &self.launcher(name), script]);
        assert!(command.status().unwrap().success());
    }

    fn command(&self, before: &str, words: &[&str]) -> Command {
        let mut command = self.scratch.command(&format!("mpi {before}"));
        command.arg("--provider").arg(self.provider());
        if !words.is_empty() {
            command.arg("--").args(words);
        }
        command.env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()));
        for name in ["FI_PROVIDER_PATH", "FI_PROVIDER", "LD_LIBRARY_PATH", "OMPI_MCA_osc"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, before: &str, words: &[&str]) -> Finished {
        Running::start(&mut self.command(before, words)).finish()
    }

    /// The environment in which `printenv` runs by the launcher `name`.
    fn environment(&self, name: &str) -> BTreeMap<String, String> {
        self.add(name, &format!("{}\n[ \"$1\" = --version ] || exec printenv -0", self.of(name)));
        let done = self.run("", &[&self.launcher(name), "go"]);
        done.expect_code(0);
        let lines = done.text().split('\0').filter_map(|line| line.split_once('='));
        lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// What the launcher `name` does so far, only if it is asked for its version.
    fn of(&self, name: &str) -> String {
        let script = fs::read_to_string(self.launcher(name)).unwrap();
        let said = script.lines().nth(1).unwrap();
        format!("[ \"$1\" != --version ] || {{ {said}; }}")
    }
}

#[test]
fn a_launcher_runs_in_the_environment_of_its_mpi() {
    let machine = Machine::new(
        "mpi-environment",
        &[
            ("mpiexec", MPICH),
            ("mpirun.openmpi", OPEN_MPI_4),
            ("mpirun.five", OPEN_MPI_5),
            ("mpiexec.hydra", INTEL),
        ],
    );
    let folder = machine.provider().parent().unwrap().canonicalize().unwrap();
    let of = |name: &str| {
        let all = machine.environment(name);
        assert_eq!(all["FI_PROVIDER_PATH"], folder.to_str().unwrap());
        assert_eq!(all["FI_PROVIDER"], "corewire");
        assert_eq!(all["COREWIRE_RUNTIME_DIR"], machine.scratch.runtime().to_str().unwrap());
        all
    };
    let mpich = of("mpiexec");
    assert_eq!(mpich["MPIR_CVAR_CH4_NETMOD"], "ofi");
    assert_eq!(mpich["MPIR_CVAR_NOLOCAL"], "1");
    let four = of("mpirun.openmpi");
    for (name, value) in [
        ("OMPI_MCA_pml", "cm"),
        ("OMPI_MCA_mtl", "ofi"),
        ("OMPI_MCA_mtl_ofi_provider_include", "corewire"),
        ("OMPI_MCA_osc", "pt2pt"),
    ] {
        assert_eq!(four.get(name).map(String::as_str), Some(value), "{name}");
    }
    let five = of("mpirun.five");
    assert_eq!(five["OMPI_MCA_opal_common_ofi_provider_include"], "corewire");
    assert_eq!(five.get("OMPI_MCA_osc"), None, "it would end in MPI_Init");
    assert_eq!(of("mpiexec.hydra")["I_MPI_FABRICS"], "ofi");
}

#[test]
fn a_shell_gets_the_same_environment() {
    let machine = Machine::new("mpi-shell", &[("mpiexec", MPICH), ("mpirun.openmpi", OPEN_MPI_4)]);
    let printed = machine.run("", &[]);
    printed.expect_code(0);
    let text = printed.text();
    for (index, mpi) in ["# MPICH 5.0.2 (", "# Open MPI 4.1.4 ("].into_iter().enumerate() {
        let line = text.lines().nth(index).unwrap();
        assert!(line.starts_with(mpi) && line.ends_with(" can use corewire"), "{text}");
    }
    let script = format!("{text}\nprintenv FI_PROVIDER_PATH MPIR_CVAR_NOLOCAL OMPI_MCA_osc");
    let shell = Command::new("sh").args(["-c", &script]).output().unwrap();
    let folder = machine.provider().parent().unwrap().canonicalize().unwrap();
    let expected = format!("{}\n1\npt2pt\n", folder.display());
    assert_eq!(String::from_utf8(shell.stdout).unwrap(), expected);
    // With a command, the same for its MPI alone.
    let printed = machine.run("--print", &[&machine.launcher("mpiexec"), "-n", "4"]);
    assert!(printed.text().contains("MPIR_CVAR") && !printed.text().contains("OMPI"));
    let report = machine.run("--json", &[]).json();
    assert_eq!(report["mpis"][0]["kind"], "mpich");
    assert_eq!(report["mpis"][1]["version"], "4.1.4");
    assert_eq!(report["environment"]["FI_PROVIDER"], "corewire");
}

#[test]
fn the_command_takes_the_place_of_corewire() {
    let machine = Machine::new("mpi-exec", &[]);
    machine.run("", &["sh", "-c", "exit 7"]).expect_code(7);
    let done = machine.run("", &["sh", "-c", "kill -TERM $$"]);
    assert_eq!(done.status.signal(), Some(15));
    // What is sent to corewire comes to the command, which has the same process.
    let script = "trap 'echo trapped; exit 9' TERM; echo $$; while :; do read it; done";
    let mut command = machine.command("", &["sh", "-c", script]);
    let mut running = Running::start_unread(command.stdin(std::process::Stdio::piped()));
    let _input = running.input();
    let mut output = std::io::BufReader::new(running.child.stdout.take().unwrap());
    assert_eq!(line(&mut output), format!("{}\n", running.id()));
    running.signal(Signal::TERM);
    assert_eq!(line(&mut output), "trapped\n");
    running.finish().expect_code(9);
    machine.run("", &["no-such-program"]).expect_line(127, "cannot run no-such-program");
    machine.run("", &["/"]).expect_line(126, "cannot run /");
}

#[test]
fn an_mpi_that_cannot_use_the_provider_is_not_run() {
    let machine = Machine::new("mpi-obstacles", &[("mpiexec", MPICH), ("ran", "exit 0")]);
    let refused = |name: &str, why: &str| {
        let launcher = machine.launcher(name);
        machine.run("", &[&launcher, "-n", "2", "true"]).expect_line(1, why);
        let report = machine.run("--json", &[&launcher]).json();
        assert!(report["mpis"][0]["obstacle"].as_str().unwrap().contains(why), "{report}");
    };
    machine.add("mpichversion", "echo 'MPICH Version: 4.0.2'; echo 'MPICH Device:    ch4:ucx'");
    refused("mpiexec", "built for ch4:ucx, without libfabric");
    let mut doctor = machine.scratch.command("doctor --json");
    doctor.env("PATH", machine.path("bin"));
    let findings = Running::start(&mut doctor).finish().json();
    let mut all = findings.as_array().unwrap().iter();
    let finding = all.find(|finding| finding["check"] == "MPI").unwrap();
    assert_eq!(finding["level"], "improvable");
    assert!(finding["found"].as_str().unwrap().contains("ch4:ucx"), "{finding}");
    machine.add("mpichversion", "echo 'MPICH Device:    ch4:ofi ucx'");
    machine.run("", &[&machine.launcher("mpiexec"), "-n"]).expect_code(0);
    fs::create_dir(machine.path("lib")).unwrap();
    fs::write(machine.path("lib/libfabric.so.1"), b"\x7fELF\x001.11.2\x00").unwrap();
    refused("mpiexec", "its libfabric is 1.11, and 1.17 or later is needed");
    machine.add("mpirun", OPEN_MPI_4);
    machine.add("ompi_info", "echo mca:mtl:psm2:version");
    refused("mpirun", "built without libfabric");
}

#[test]
fn a_provider_that_is_not_there_is_named() {
    let machine = Machine::new("mpi-no-provider", &[]);
    // Not beside what cargo has built.
    let program = machine.path("corewire");
    let copy = ["-c", "cp \"$0\" \"$1\"", env!("CARGO_BIN_EXE_corewire")];
    assert!(Command::new("sh").args(copy).arg(&program).status().unwrap().success());
    let run = |folder: &Path| {
        let mut command = Command::new(&program);
        command.args(["mpi", "--json"]).env("COREWIRE_RUNTIME_DIR", machine.scratch.runtime());
        command.env("PATH", folder).output().unwrap()
    };
    let missing = run(&machine.path("bin"));
    let said = String::from_utf8(missing.stderr).unwrap();
    assert_eq!((missing.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("libcorewire-fi.so is neither in ") && said.contains("--provider"));
    // What cargo builds has another name.
    fs::write(machine.path("libcorewire_fabric.so"), "").unwrap();
    let found = run(&machine.path("bin"));
    let report: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    let folder = Path::new(report["provider"].as_str().unwrap());
    assert!(folder.join("libcorewire-fi.so").is_file(), "{report}");
    fs::create_dir(machine.path("../lib")).unwrap();
    fs::create_dir(machine.path("../lib/corewire")).unwrap();
    let installed = machine.path("../lib/corewire/libcorewire-fi.so");
    fs::write(&installed, "").unwrap();
    let found = run(&machine.path("bin"));
    let report: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    let expected = installed.parent().unwrap().canonicalize().unwrap();
    assert_eq!(report["provider"], expected.to_str().unwrap());
}

#[test]
fn a_runtime_directory_is_made_where_none_is_named() {
    let machine = Machine::new("mpi-directory", &[]);
    let words = ["sh", "-c", "echo \"$COREWIRE_RUNTIME_DIR\""];
    let mut command = machine.command("", &words);
    command.env_remove("COREWIRE_RUNTIME_DIR").env("XDG_RUNTIME_DIR", machine.scratch.temporary());
    let done = Running::start(&mut command).finish();
    let directory = machine.path("corewire");
    assert_eq!(done.text(), format!("{}\n", directory.display()));
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o7777, 0o700);
    // Ranks would be refused one by one.
    fs::set_permissions(&directory, PermissionsExt::from_mode(0o777)).unwrap();
    let mut command = machine.command("", &words);
    command.env("COREWIRE_RUNTIME_DIR", &directory);
    Running::start(&mut command).finish().expect_line(1, "mode 0777");
}

#[test]
fn ranks_are_shown_by_job() {
    let scratch = Scratch::new("mpi-ranks");
    let domain = corewire::Domain::open_at(&scratch.runtime()).unwrap();
    let name = |job: u32, rank: u32| format!("mpi-{job}-{rank}-0");
    let _ranks = [(20, 0), (3, 10), (3, 9)]
        .map(|(job, rank)| domain.endpoint(&name(job, rank)).create().unwrap());
    let _other = domain.endpoint("server").create().unwrap();
    let text = scratch.run("ls").text().to_owned();
    let lines = text.lines().map(|line| line.split_whitespace().take(4).collect::<Vec<_>>());
    let lines: Vec<_> = lines.map(|words| words.join(" ")).collect();
    let pid = std::process::id();
    let expected = [
        "job rank endpoint pid".to_owned(),
        format!("3 9 {} {pid}", name(3, 9)),
        format!("3 10 {} {pid}", name(3, 10)),
        format!("20 0 {} {pid}", name(20, 0)),
    ];
    assert!(lines.ends_with(&expected), "{text}");
    assert!(lines[1].starts_with("server"), "{text}");
    let rows = scratch.run("ls --json").json();
    let ranks =
        rows.as_array().unwrap().iter().map(|row| (row["job"].as_u64(), row["rank"].as_u64()));
    let mut ranks: Vec<_> = ranks.collect();
    ranks.sort_unstable();
    let expected = [(None, None), (Some(3), Some(9)), (Some(3), Some(10)), (Some(20), Some(0))];
    assert_eq!(ranks, expected);
    let metrics = scratch.run("metrics").text().to_owned();
    let of_job = "corewire_endpoint_peers{endpoint=\"mpi-20-0-0\",job=\"20\",rank=\"0\"} 0";
    assert!(metrics.contains(of_job), "{metrics}");
    assert!(metrics.contains("corewire_endpoint_peers{endpoint=\"server\"} 0"), "{metrics}");
    let top = scratch.run("top --once --interval 0.05 --sort name").text().to_owned();
    let names = top.lines().map(|line| line.trim_start().split("  ").next().unwrap());
    let names: Vec<_> = names.take(5).collect();
    assert_eq!(
        names[1..],
        ["job 20, 1 endpoint", "rank 0", "job 3, 2 endpoints", "rank 9"],
        "{top}"
    );
}
