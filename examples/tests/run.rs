//! Runs every example in a domain of its own, and checks what it prints.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A runtime directory, removed after the test.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        let name = format!("corewire-example-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("COREWIRE_RUNTIME_DIR", &self.0).stdout(Stdio::piped());
        command
    }

    fn run(&self, program: &str) -> String {
        printed(&self.command(program).output().unwrap())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn hello_crosses_processes() {
    let directory = Directory::new("hello");
    let program = env!("CARGO_BIN_EXE_hello");
    let receiver = directory.command(program).arg("receive").spawn().unwrap();
    let sender = directory.command(program).arg("send").output().unwrap();
    assert_eq!(printed(&sender), "");
    let received = printed(&receiver.wait_with_output().unwrap());
    assert_eq!(received, "hello, cores\nwritten in place\n");
}

#[test]
fn hello_says_what_to_start_where_nobody_is() {
    let directory = Directory::new("hello-alone");
    let start = |what: &str| {
        let mut command = directory.command(env!("CARGO_BIN_EXE_hello"));
        let mut first = command.arg(what).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(first.stderr.take().unwrap()).read_line(&mut said).unwrap();
        (first, said)
    };
    for (first, second) in [("receive", "send"), ("send", "receive")] {
        let (first, said) = start(first);
        assert!(said.ends_with(&format!(": start `hello {second}`\n")), "{said:?}");
        let second = directory.command(env!("CARGO_BIN_EXE_hello")).arg(second).output().unwrap();
        let all = printed(&first.wait_with_output().unwrap()) + &printed(&second);
        assert_eq!(all, "hello, cores\nwritten in place\n");
    }
}

#[test]
fn hosts_ask_and_answer() {
    let [a, b] = ["hosts-a", "hosts-b"].map(Directory::new);
    let program = env!("CARGO_BIN_EXE_hosts");
    let file = std::env::temp_dir().join(format!("corewire-example-hosts-{}", std::process::id()));
    let write = |at: &str| {
        for own in ["a", "b"] {
            let text = format!(
                "own = {own:?}\n[hosts.a]\naddresses = [\"127.0.0.1:1\"]\n[hosts.b]\naddresses = \
                 [{at:?}]\n[[allow]]\nhosts = [\"a\"]\nendpoints = [\"sums\"]\n"
            );
            std::fs::write(file.with_extension(own), text).unwrap();
        }
    };
    write("127.0.0.1:1");
    let mut command = b.command(program);
    command.args(["serve", "127.0.0.1:0"]).env("COREWIRE_HOSTS", file.with_extension("b"));
    let mut server = command.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut said).unwrap();
    write(said.trim().strip_prefix("takes connections at ").unwrap());
    let mut command = a.command(program);
    command.args(["ask", "sums@b", "6", "7"]).env("COREWIRE_HOSTS", file.with_extension("a"));
    assert_eq!(printed(&command.output().unwrap()), "6 + 7 = 13, says sums@b\n");
    server.kill().unwrap();
    server.wait().unwrap();
    for own in ["a", "b"] {
        std::fs::remove_file(file.with_extension(own)).unwrap();
    }
}

#[test]
fn endpoints_ask_and_answer() {
    let directory = Directory::new("endpoints");
    let program = env!("CARGO_BIN_EXE_endpoints");
    let mut server = directory.command(program).arg("serve").spawn().unwrap();
    let asked = directory.command(program).args(["ask", "6", "7"]).output().unwrap();
    assert_eq!(printed(&asked), "6 x 7 = 42\n");
    assert_eq!(printed(&directory.command(program).arg("stop").output().unwrap()), "");
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_replicated_store_survives_the_kill_of_any() {
    let said = Directory::new("store").run(env!("CARGO_BIN_EXE_key_value_store"));
    let lines: Vec<_> = said.lines().collect();
    let after = |count| format!("after {count} deaths: done, 3 apples, 5 pears");
    assert_eq!(lines[..3], [after(1), after(2), after(3)]);
    assert_eq!(lines[3..], ["the newest replica knows: killed=2"]);
}

#[test]
fn a_computation_survives_the_kill_of_any() {
    let said = Directory::new("heat").run(env!("CARGO_BIN_EXE_heat_equation"));
    let lines: Vec<_> = said.lines().collect();
    for rank in 0..3 {
        let killed = format!("rank {rank} was killed; a new process goes on from ");
        assert!(lines[rank].starts_with(&killed), "{said}");
        assert_eq!(lines[3 + rank], format!("rank {rank}: the same answer"));
    }
}

#[test]
fn a_calculator_is_called_by_each_driver() {
    let directory = Directory::new("calculator");
    let run = |words: &[&str]| {
        let program = env!("CARGO_BIN_EXE_calculator");
        printed(&directory.command(program).args(words).output().unwrap())
    };
    let said = |driver: &str| {
        format!(
            "bound by {driver}\n6 x 7 = 42\n45 / 7 = 6 rest 3\n1 / 0: Division by zero\n\
             sums 6 and 15\nnoted: bound, and counted\n"
        )
    };
    assert_eq!(run(&["client", "--driver", "local"]), said("local"));
    // One core, for `lmp`.
    let core = first_core().to_string();
    let core = core.as_str();
    let mut service = directory.command(env!("CARGO_BIN_EXE_calculator"));
    let mut service = service.args(["service", "--core", core]).spawn().unwrap();
    // The first one waits for the service.
    assert_eq!(run(&["client", "--driver", "sock"]), said("sock"));
    assert_eq!(run(&["client", "--driver", "ump"]), said("ump"));
    assert_eq!(run(&["client", "--driver", "lmp", "--core", core]), said("lmp"));
    assert_eq!(run(&["client", "--core", core]), said("lmp"));
    assert_eq!(run(&["stop"]), "");
    assert!(service.wait().unwrap().success());
}

#[test]
fn versions_of_an_interface_understand_each_other_or_say_why_not() {
    let directory = Directory::new("versions");
    let run = |words: &[&str]| {
        let program = env!("CARGO_BIN_EXE_versions");
        printed(&directory.command(program).args(words).output().unwrap())
    };
    let one = "hello, Ada\nGreeted { name: \"Ada\" }\n";
    let two_at_one =
        "hello, Ada\nGreeted { name: \"Ada\", count: None }\nthe service does not have count\n";
    let two = "hallo, Ada\nGreeted { name: \"Ada\", count: Some(2) }\n2 greeted\n";
    for (version, called_by_two) in [("1", two_at_one), ("2", two)] {
        let mut service = directory.command(env!("CARGO_BIN_EXE_versions"));
        let mut service = service.args(["serve", version]).spawn().unwrap();
        assert_eq!(run(&["call", "1"]), one);
        assert_eq!(run(&["call", "2"]), called_by_two);
        let refused = run(&["call", "3"]);
        let differs = "argument `name` of message `greet`: the bound is 500 and was 64";
        assert!(refused.contains(differs), "{refused}");
        assert_eq!(run(&["stop"]), "");
        assert!(service.wait().unwrap().success());
    }
}

#[test]
fn a_shop_sells_refuses_and_is_followed() {
    let directory = Directory::new("shop");
    let program = env!("CARGO_BIN_EXE_shop");
    let run = |words: &[&str]| printed(&directory.command(program).args(words).output().unwrap());
    let mut service = directory.command(program).arg("serve").spawn().unwrap();
    let items = "10 tea at 4.25 (hot, green)\n3 coffee at 7.5 (hot)\n1000 ice at 0.1 ()\n";
    assert_eq!(run(&["items"]), items);
    assert_eq!(run(&["buy", "tea", "2"]), "8.5\n");
    let mut follower = directory.command(program).arg("follow").spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "sold 2 tea");
    assert_eq!(run(&["buy", "coffee", "4"]), "only 3 left\n");
    let refused = directory.command(program).args(["buy", "rum", "1"]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(said, "Error: There is no such item (name: \"rum\")\n");
    assert_eq!(run(&["buy", "ice", "30"]), "3\n");
    assert_eq!(lines.next().unwrap().unwrap(), "sold 30 ice");
    assert_eq!(run(&["log"]), "sold 2 tea\nsold 30 ice\n");
    follower.kill().unwrap();
    follower.wait().unwrap();
    assert_eq!(run(&["close"]), "");
    assert!(service.wait().unwrap().success());
}

#[test]
fn the_tutorial_prints_what_it_says() {
    let directory = Directory::new("tutorial");
    let program = env!("CARGO_BIN_EXE_tutorial");
    let mut service = directory.command(program).arg("serve").spawn().unwrap();
    let said = printed(&directory.command(program).output().unwrap());
    let (bound, rest) = said.split_once('\n').unwrap();
    assert!(["bound by ump", "bound by lmp"].contains(&bound), "{said}");
    assert_eq!(rest, "6 x 7 = 42\nThe result does not fit\nNoted { count: 1 }\n");
    service.kill().unwrap();
    let mut heard = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut heard).unwrap();
    assert_eq!(heard, "1: hello\n");
    service.wait().unwrap();
}

/// A core on which this process may run.
fn first_core() -> usize {
    let cores = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).find(|&core| cores.is_set(core)).unwrap()
}

#[test]
fn a_file_server_hands_out_descriptors() {
    let directory = Directory::new("file-server");
    let run = |words: &[&str], input: &str| {
        let mut command = directory.command(env!("CARGO_BIN_EXE_file_server"));
        command.args(words).stdin(std::fs::File::open(input).unwrap()).output().unwrap()
    };
    let here = env!("CARGO_MANIFEST_DIR");
    let program = env!("CARGO_BIN_EXE_file_server");
    let mut server = directory.command(program).args(["serve", here]).spawn().unwrap();
    let text = std::fs::read_to_string(format!("{here}/Cargo.toml")).unwrap();
    assert_eq!(printed(&run(&["cat", "Cargo.toml"], "/dev/null")), text);
    let refused = run(&["cat", "../Cargo.toml"], "/dev/null");
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("leads out of the directory"),
        "{refused:?}"
    );
    assert_eq!(printed(&run(&["keep", "mine"], &format!("{here}/build.rs"))), "");
    assert!(printed(&run(&["list"], "/dev/null")).contains("\nmine\n"));
    let kept = std::fs::read_to_string(format!("{here}/build.rs")).unwrap();
    for _ in 0..2 {
        assert_eq!(printed(&run(&["cat", "mine"], "/dev/null")), kept);
    }
    assert_eq!(printed(&run(&["stop"], "/dev/null")), "");
    assert!(server.wait().unwrap().success());
}

#[test]
fn events_come_to_clients() {
    let printed = Directory::new("events").run(env!("CARGO_BIN_EXE_events"));
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines[..3], ["21.0 degrees None", "22.0 degrees None", "23.0 degrees None"]);
    assert!(lines[3].starts_with("in tasks: Changed { temperature: 3"), "{printed}");
    assert!(lines[3].ends_with("warning: Some(\"it is hot\") }"), "{printed}");
}

#[test]
fn an_endpoint_is_awaited() {
    let printed = Directory::new("endpoint-tokio").run(env!("CARGO_BIN_EXE_endpoint_tokio"));
    assert_eq!(printed, "received 1000 messages\n");
}

#[test]
fn fan_out_reads_every_byte() {
    let sum: u64 = (0..200u64).map(|number| number * 100_000).sum();
    let line = format!("200 messages, sum of all bytes {sum}\n");
    assert_eq!(Directory::new("fan-out").run(env!("CARGO_BIN_EXE_fan_out")), line.repeat(3));
}

#[test]
fn typed_refuses_another_type() {
    let printed = Directory::new("typed").run(env!("CARGO_BIN_EXE_typed"));
    let expected = "7 at 101\n3 at 102\n\
        channel example-typed carries another version of example.Tick.1 (other fields, types or order)\n\
        channel example-typed carries example.Tick.1 of 16 bytes, but plain bytes were expected\n";
    assert_eq!(printed, expected);
}

// Keeps P20.
#[test]
fn readiness_ends_with_the_stream() {
    let printed = Directory::new("readiness").run(env!("CARGO_BIN_EXE_readiness"));
    assert_eq!(printed, "received 1000 messages\n");
}

#[test]
fn sensors_are_read_by_three() {
    let printed = Directory::new("sensors").run(env!("CARGO_BIN_EXE_sensors"));
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines[0], "above 310 K at [909, 5909] ms");
    assert_eq!(lines[1], "mean of 10000 samples 300.0 K");
    assert_eq!(lines[2], "recorded 1000 samples, the last of 9990 ms");
}

#[test]
fn a_log_of_three_writers_has_all_lines_each_in_order() {
    let directory = Directory::new("log");
    let program = env!("CARGO_BIN_EXE_log_multiplexer");
    let collecting = directory.command(program).args(["collect", "300"]).spawn().unwrap();
    let names = ["one", "two", "three"];
    let writers =
        names.map(|name| directory.command(program).args(["write", name]).spawn().unwrap());
    for writer in writers {
        printed(&writer.wait_with_output().unwrap());
    }
    let log = printed(&collecting.wait_with_output().unwrap());
    for name in names {
        let lines: Vec<_> = log.lines().filter(|line| line.starts_with(name)).collect();
        let expected: Vec<_> = (0..100).map(|number| format!("{name}: line {number}")).collect();
        assert_eq!(lines, expected);
    }
    assert_eq!(log.lines().count(), 300);
}

#[test]
fn every_price_is_read_or_known_to_be_missed() {
    let printed = Directory::new("prices").run(env!("CARGO_BIN_EXE_price_feed"));
    for (line, name) in printed.lines().zip(["quick", "slow"]) {
        assert_eq!(line, format!("the {name} reader: 200000 prices, read or known to be missed"));
    }
}

#[test]
fn tokio_awaits_every_message() {
    let printed = Directory::new("tokio").run(env!("CARGO_BIN_EXE_async_tokio"));
    assert_eq!(printed, "received 1000 messages\n");
}

#[test]
fn observe_sees_the_lag() {
    let printed = Directory::new("observe").run(env!("CARGO_BIN_EXE_observe"));
    assert!(printed.contains("40 sent, 64 slots"), "{printed}");
    assert!(printed.contains("lag 24"), "{printed}");
    assert!(printed.contains("joins 1"), "{printed}");
}
