//! Generated code of Barrelfish's own interfaces, if there are any on this machine: see
//! `crates/corewire-idl/tests/idl/corpus.rs`. All messages are sent with random arguments, by each driver.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use corewire_idl::corpus;
use corewire_idl::rust::{generate, round_trip};

/// How often each message is sent by each driver, unless `COREWIRE_TIMES` says otherwise.
const TIMES: u32 = 1000;

/// The modules of a program: Rust of each interface, and what sends its messages.
struct Program {
    root: PathBuf,
    modules: String,
    count: usize,
    /// Most interfaces are the same for each architecture.
    seen: HashSet<String>,
}

impl Program {
    fn new() -> Self {
        let root = std::env::temp_dir().join(format!("corewire-corpus-{}", std::process::id()));
        std::fs::create_dir_all(root.join("src")).unwrap();
        let modules = "#![forbid(unsafe_code)]\n#![deny(warnings)]\n".to_owned();
        Self { root, modules, count: 0, seen: HashSet::new() }
    }

    fn add(&mut self, interface: &corewire_idl::form::Interface, path: &str) {
        let code = generate(interface).unwrap_or_else(|error| panic!("{path}: {error}"));
        if !self.seen.insert(code.clone()) {
            return;
        }
        let number = self.count;
        self.count += 1;
        let trips = round_trip(interface, &format!("crate::m{number}"));
        let trips = trips.unwrap_or_else(|error| panic!("{path}: {error}"));
        std::fs::write(self.root.join(format!("src/m{number}.rs")), code).unwrap();
        std::fs::write(self.root.join(format!("src/t{number}.rs")), trips).unwrap();
        writeln!(
            self.modules,
            "#[allow(missing_docs, dead_code)]\npub mod m{number};\n\
             #[allow(unused, non_camel_case_types)]\nmod t{number};"
        )
        .unwrap();
    }

    /// Writes a main program that sends all messages, and prints how many were compared.
    fn finish(&self) {
        let runs = (0..self.count).fold(String::new(), |mut runs, number| {
            writeln!(runs, "        compared += t{number}::run(&place.domain, driver, times, 1);")
                .unwrap();
            runs
        });
        let main = format!(
            "{}
fn main() {{
    corewire_processes::interfaces::pin();
    let times = std::env::args().nth(1).unwrap().parse().unwrap();
    for driver in corewire_processes::interfaces::DRIVERS {{
        let place = corewire_processes::interfaces::Place::new(\"corpus\");
        let mut compared = 0;
{runs}        println!(\"{{driver}}: {{compared}} messages compared\");
    }}
}}
",
            self.modules
        );
        std::fs::write(self.root.join("src/main.rs"), main).unwrap();
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (bind, interfaces) = (here.join("../../crates/corewire-bind"), here);
        let manifest = format!(
            "[package]\nname = \"corpus\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
             [profile.dev]\nopt-level = 1\ndebug = false\nincremental = false\n\n\
             [dependencies]\ncorewire-bind = {{ path = {bind:?} }}\n\
             corewire-processes = {{ path = {interfaces:?} }}\n"
        );
        std::fs::write(self.root.join("Cargo.toml"), manifest).unwrap();
        std::fs::copy(here.join("../../Cargo.lock"), self.root.join("Cargo.lock")).unwrap();
    }

    /// Compiles it without a warning.
    fn build(&self) {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--offline", "--quiet"])
            .env("CARGO_TARGET_DIR", self.root.join("target"))
            .env_remove("CARGO_BUILD_TARGET")
            .current_dir(&self.root)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success() && !said.contains("warning"), "{said}");
    }

    fn run(&self) {
        let times = std::env::var("COREWIRE_TIMES").unwrap_or_else(|_| TIMES.to_string());
        let mut program = Command::new(self.root.join("target/debug/corpus"));
        let ended = program.arg(times).stderr(Stdio::inherit()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        print!("{said}");
        assert!(ended.status.success(), "{}", ended.status);
        let compared = said.lines().filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
        let compared = compared.collect::<Vec<_>>();
        assert_eq!(compared.len(), 4, "each driver");
        assert!(compared.iter().all(|count| *count > 0 && *count == compared[0]));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

// Keeps P185.
#[test]
fn all_messages_of_a_tree_arrive_as_they_were_sent() {
    let Ok(trees) = std::env::var("COREWIRE_INTERFACES") else {
        println!("skipped: COREWIRE_INTERFACES names no tree of interface files");
        return;
    };
    let (mut program, mut files) = (Program::new(), 0);
    for tree in trees.split(':') {
        for file in corpus::check_tree(Path::new(tree)).unwrap().files {
            files += usize::from(!file.interfaces.is_empty());
            for (_, interface) in &file.interfaces {
                program.add(interface, &file.path);
            }
        }
    }
    assert!(program.count > 0, "no interface in {trees}");
    println!("{files} files with interfaces, {} different modules", program.count);
    program.finish();
    program.build();
    program.run();
}
