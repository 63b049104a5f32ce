//! Wrong usage, and help against it.

use std::path::Path;

use crate::scratch::{Running, Scratch};

// Keeps P37.
#[test]
fn wrong_usage_is_one_line_and_code_2() {
    let scratch = Scratch::new("usage");
    let cases = [
        ("frob", "frob"),
        ("send", "CHANNEL"),
        ("send a/b", "'/' is not allowed"),
        ("send .hidden", "'.' is not allowed"),
        ("send log /no/such/file", "/no/such/file"),
        ("send log /", "directory"),
        ("send log --receivers 0", "1..=1024"),
        ("send log --receivers 5000", "1..=1024"),
        ("send log --chunk 0", "1 byte to 256 MiB"),
        ("send log --wait-receivers 65", "--receivers 64"),
        ("send log --lines --chunk 5", "--chunk"),
        ("send log --largest 5", "--lines"),
        ("send log --framed --chunk 5", "--chunk"),
        ("send log --framed --lines", "--lines"),
        ("send log -0 --framed", "--framed"),
        ("receive log --json --lines", "--lines"),
        ("receive log -0 --framed", "--framed"),
        ("send log --access all", "group:NAME"),
        ("send log --access users:me", "not the number of a user"),
        ("send log --access group:no-such-group", "no-such-group"),
        ("send log --owner 5", "--owner"),
        ("ls --owner me", "not the number of a user"),
        ("receive a*b", "'*' is not allowed"),
        ("receive log --count 0", "count"),
        ("receive log --count -1", "invalid value '-1' for '--count"),
        ("call upper --timeout -1", "invalid value '-1' for '--timeout"),
        ("send log --receivers -5", "invalid value '-5' for '--receivers"),
        ("top --interval -0.5", "invalid value '-0.5' for '--interval"),
        ("ls --owner -1", "invalid value '-1' for '--owner"),
        ("receive log --frob", "--frob"),
        ("ls extra", "extra"),
        ("doctor extra", "extra"),
        ("top --interval 0", "0.05 to 3600"),
        ("metrics --port 99999", "99999"),
        ("send log --levels three", "three"),
        ("mpi mpiexec", "mpiexec"),
        ("mpi --json --print", "--print"),
        ("mpi --provider /no/such/file", "no file libcorewire-fi.so"),
        ("mpi --owner 5", "--owner"),
    ];
    for (args, word) in cases {
        let done = scratch.run(args);
        done.expect_line(2, word);
        assert!(done.output.is_empty(), "{args}: {}", done.text());
    }
    let name = "x".repeat(101);
    scratch.run(&format!("receive {name}")).expect_line(2, "at most 100");
    let mut command = scratch.command("ls");
    Running::start(command.env("COREWIRE_OWNER", "me"))
        .finish()
        .expect_line(2, "COREWIRE_OWNER=me");
    assert!(!scratch.runtime().exists(), "nothing was begun");
}

#[test]
fn every_command_has_help_with_an_example() {
    let scratch = Scratch::new("help");
    for command in [
        "",
        "send",
        "receive",
        "idl",
        "idl check",
        "idl format",
        "idl json",
        "idl diff",
        "ls",
        "top",
        "metrics",
        "doctor",
        "mpi",
    ] {
        let done = scratch.run(&format!("{command} --help"));
        done.expect_code(0);
        let text = done.text();
        assert!(text.contains("Example") && text.contains("\n  corewire "), "{text}");
        let summary = text.lines().next().unwrap();
        assert!(!summary.is_empty() && summary.chars().count() <= 100, "{summary}");
    }
    let done = scratch.run("");
    done.expect_code(2);
    assert!(done.errors.contains("Usage: corewire"), "{}", done.errors);
}

#[test]
fn what_measures_is_a_program_beside_this_one_that_gets_the_same_arguments() {
    let scratch = Scratch::new("lab");
    let program = scratch.temporary().join("corewire");
    // By other processes: what this one has open for writing, a child of another test has, too, for a moment,
    // and a program that somebody has open for writing cannot be run.
    let shell = |script: &str, argument: &Path| {
        let mut command = std::process::Command::new("sh");
        let done = command.args(["-c", script]).arg(argument).current_dir(scratch.temporary());
        assert!(done.status().unwrap().success(), "{script}");
    };
    shell("cp \"$0\" corewire", Path::new(env!("CARGO_BIN_EXE_corewire")));
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(&program);
        command.args(args).env("PATH", scratch.temporary());
        command.output().unwrap()
    };
    for (args, build) in [
        (
            &["study", "zimp", "--quick"][..],
            "cargo build --release -p corewire-lab --features rivals\n",
        ),
        (&["bench", "latency", "--help"], "cargo build --release -p corewire-lab\n"),
        (&["model", "broadcast"], "cargo build --release -p corewire-lab\n"),
    ] {
        let missing = run(args);
        let said = String::from_utf8_lossy(&missing.stderr).into_owned();
        assert_eq!(missing.status.code(), Some(2), "{said}");
        assert!(said.ends_with(build) && said.lines().count() == 1, "{said}");
    }
    let study = scratch.temporary().join("corewire-lab");
    shell("printf '#!/bin/sh\\necho \"$@\"\\nexit 5\\n' > \"$0\" && chmod 755 \"$0\"", &study);
    let found = run(&["study", "zimp", "--quick", "--help"]);
    assert_eq!(found.status.code(), Some(5));
    assert_eq!(String::from_utf8_lossy(&found.stdout), "study zimp --quick --help\n");
}
