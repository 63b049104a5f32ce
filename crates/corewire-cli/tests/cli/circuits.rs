//! `monitor`, `circuits` and `routes`, with real monitors.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use corewire::{Access, Domain};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::desk::Serving;
use crate::scratch::{Running, Scratch, eventually};

/// A process that is killed at the end of its test.
pub(crate) struct Killed(pub(crate) Option<Running>);

impl Drop for Killed {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            running.signal(Signal::KILL);
            running.finish();
        }
    }
}

/// Monitors with numbers that no core has: programs use the first one unless they say otherwise.
pub(crate) fn start(scratch: &Scratch, numbers: impl IntoIterator<Item = usize>) -> Vec<Killed> {
    let start = |number| {
        let monitor = Running::start(&mut scratch.command(&format!("monitor --number {number}")));
        eventually(|| routes(scratch).iter().any(|routes| routes["monitor"] == number));
        Killed(Some(monitor))
    };
    numbers.into_iter().map(start).collect()
}

pub(crate) fn routes(scratch: &Scratch) -> Vec<Value> {
    scratch.run("routes show --json").json().as_array().cloned().unwrap_or_default()
}

/// How many circuits there are at each monitor.
pub(crate) fn circuits(scratch: &Scratch) -> Vec<(u64, usize)> {
    let all = scratch.run("circuits --json").json();
    let of =
        |one: &Value| (one["monitor"].as_u64().unwrap(), one["circuits"].as_array().unwrap().len());
    all.as_array().unwrap().iter().map(of).collect()
}

/// Calls the service from a client at this monitor.
pub(crate) fn add_at(scratch: &Scratch, monitor: usize) -> String {
    let mut command = scratch.command("call desk add --driver circuit");
    command.env("COREWIRE_MONITOR", monitor.to_string());
    let arguments = json!({ "numbers": { "left": 6, "right": 7 } });
    let done = Running::start(command.arg(arguments.to_string())).finish();
    format!("{}{}", done.text(), done.errors)
}

/// A client at this monitor that stays bound.
pub(crate) fn stay_at(scratch: &Scratch, monitor: usize) -> Killed {
    let mut command = scratch.command("call desk --events --driver circuit");
    Killed(Some(Running::start(command.env("COREWIRE_MONITOR", monitor.to_string()))))
}

// Keeps P197.
#[test]
fn a_client_reaches_its_service_over_four_monitors() {
    let scratch = Scratch::new("four-monitors");
    let _monitors = start(&scratch, 200..204);
    let _serving = Serving::start(&scratch.runtime(), "desk");
    // Known everywhere.
    let knows = |routes: &Value| routes["names"] == json!([{ "service": "desk", "monitor": 200 }]);
    eventually(|| routes(&scratch).iter().all(knows));

    scratch.run("routes ring").expect_code(0);
    eventually(|| routes(&scratch).iter().all(|routes| routes["version"] == 1));
    assert_eq!(add_at(&scratch, 201), "{\"sum\":13}\n");
    let client = stay_at(&scratch, 201);
    // 201, 202, 203, 200: all the way round.
    eventually(|| circuits(&scratch) == [(200, 1), (201, 1), (202, 1), (203, 1)]);
    let shown = scratch.run("circuits --monitor 202");
    assert!(shown.text().contains("monitor 201  monitor 203  open"), "{}", shown.text());

    // The open circuit keeps its way, the next one uses the new route.
    scratch.run("routes via 201 200 200").expect_code(0);
    eventually(|| routes(&scratch).iter().all(|routes| routes["version"] == 2));
    let other = stay_at(&scratch, 201);
    eventually(|| circuits(&scratch) == [(200, 2), (201, 2), (202, 1), (203, 1)]);

    // Monitors that start later get the table, whatever their number.
    let _late = start(&scratch, [204, 199]);
    eventually(|| routes(&scratch).iter().all(|routes| routes["version"] == 2));

    scratch.run("routes fat-tree --monitors 200,202,201,203,204 --group 2").expect_code(0);
    eventually(|| routes(&scratch).iter().all(|routes| routes["version"] == 3));
    assert_eq!(add_at(&scratch, 203), "{\"sum\":13}\n");
    drop((client, other));
    let nobody = |(_, count): &(u64, usize)| *count == 0;
    eventually(|| circuits(&scratch).iter().all(nobody));
}

// Keeps P197.
#[test]
fn the_death_of_a_monitor_ends_its_circuits_and_the_next_goes_around() {
    let scratch = Scratch::new("monitor-dies");
    let mut monitors = start(&scratch, 200..204);
    scratch.run("routes ring").expect_code(0);
    let _serving = Serving::start(&scratch.runtime(), "desk");
    eventually(|| add_at(&scratch, 201) == "{\"sum\":13}\n");
    // That of the call has ended: the next one is the client's.
    eventually(|| circuits(&scratch).iter().all(|(_, count)| *count == 0));
    let mut client = stay_at(&scratch, 201);
    // One that is still opening would go around, as it should.
    let open = |one: &Value| one["monitor"] == 201 && one["circuits"][0]["phase"] == "open";
    let all = || scratch.run("circuits --json").json();
    eventually(|| all().as_array().unwrap().iter().any(open));
    assert!(circuits(&scratch).contains(&(202, 1)));

    drop(monitors.remove(2));
    let ended = client.0.take().unwrap().finish();
    ended.expect_code(1);
    assert!(ended.errors.contains("monitor 202 has ended"), "{}", ended.errors);
    // 201 has another neighbour, and nothing of the circuit is left.
    assert_eq!(add_at(&scratch, 201), "{\"sum\":13}\n");
    eventually(|| circuits(&scratch) == [(200, 0), (201, 0), (203, 0)]);
    // A ring does not need a monitor.
    scratch.run("call desk drop --driver ump").expect_line(1, "desk dropped the request");
}

#[test]
fn top_and_metrics_show_monitors() {
    let scratch = Scratch::new("monitors-shown");
    let _monitors = start(&scratch, [200, 201]);
    let _serving = Serving::start(&scratch.runtime(), "desk");
    eventually(|| add_at(&scratch, 201) == "{\"sum\":13}\n");
    let _client = stay_at(&scratch, 201);
    eventually(|| circuits(&scratch) == [(200, 1), (201, 1)]);

    let report = scratch.run("top --once --json --interval 0.05").json();
    let all: Vec<_> = report["monitors"].as_array().unwrap().iter().collect();
    let [service_side, client_side] = all[..] else { panic!("{report}") };
    assert_eq!((&service_side["monitor"], &service_side["circuits"]), (&200.into(), &1.into()));
    let trunk = json!({ "to": "monitor 200", "circuits": 1 });
    assert!(client_side["links"].as_array().unwrap().contains(&trunk), "{client_side}");
    let help = scratch.run("top --help");
    for key in service_side.as_object().unwrap().keys() {
        assert!(help.text().contains(key.as_str()), "{key} is not in the help");
    }
    let text = scratch.run("top --once --interval 0.05 --filter monitor");
    assert!(text.text().contains("\nmonitor 201, 1 circuit "), "{}", text.text());
    assert!(text.text().contains("\n  monitor 200, 1 circuit"), "{}", text.text());

    let (metrics, help) = (scratch.run("metrics"), scratch.run("metrics --help"));
    let of_monitors = metrics.text().lines().filter(|line| line.starts_with("corewire_monitor_"));
    assert_eq!(of_monitors.clone().count(), 18, "{}", metrics.text());
    assert!(of_monitors.clone().any(|line| {
        line.starts_with("corewire_monitor_circuits{monitor=\"200\",") && line.ends_with(" 1")
    }));
    for line in of_monitors {
        let name = line.split('{').next().unwrap();
        assert!(help.text().lines().any(|line| line.trim() == name), "{name} is not in the help");
    }
}

#[test]
fn mistakes_are_named() {
    let scratch = Scratch::new("monitor-mistakes");
    scratch.run("circuits").expect_code(0);
    scratch.run("routes ring").expect_line(1, "no monitor runs in the domain");
    scratch.run("monitor --number 256").expect_line(2, "\"256\" is no number from 0 to 255");
    let _monitors = start(&scratch, [200]);
    scratch.run("monitor --number 200").expect_line(1, "monitor 200 runs already: it is process");
    scratch
        .run("routes ring --monitors 200,200")
        .expect_line(2, "monitor 200 is in the table twice");
    scratch.run("routes via 200 201 200").expect_line(2, "leads through 200");
    scratch.run("circuits --monitor 7").expect_line(1, "monitor 7 does not run");
    scratch.run("routes via 200 7 201").expect_line(1, "monitor 7 does not run");
    scratch.run("routes ring --monitors 200,8").expect_line(1, "monitor 8 does not run");
    scratch.run("routes fat-tree --monitors 9,200").expect_line(1, "monitor 9 does not run");
    let missing = scratch.run("call nobody add --driver circuit --timeout 0.1 null");
    assert!(missing.errors.contains("nobody"), "{}", missing.errors);
}

#[test]
fn a_monitor_that_is_not_there_is_named_as_it_was_given() {
    let scratch = Scratch::new("monitor-named");
    let domain = Domain::open_at(&scratch.runtime()).unwrap();
    let _serving = Serving::start_in(&domain, "desk");
    let _monitors = start(&scratch, [200]);
    for (number, why) in [("7", "monitor 7 does not run"), ("abc", "COREWIRE_MONITOR is \"abc\"")] {
        let add = "call desk add --driver circuit --timeout 5 [{\"left\":6,\"right\":7}]";
        let done = Running::start(scratch.command(add).env("COREWIRE_MONITOR", number)).finish();
        assert!(done.errors.contains(why), "{}", done.errors);
    }
}

#[test]
fn an_owner_who_has_admitted_guests_uses_all_commands_as_before() {
    let scratch = Scratch::new("monitor-owner");
    let mut monitor = scratch.command("monitor --number 200 --access users:65534");
    let _monitor = Killed(Some(Running::start(&mut monitor)));
    eventually(|| routes(&scratch).iter().any(|routes| routes["monitor"] == 200));
    for command in ["ls", "doctor", "metrics", "top --once", "circuits", "routes show"] {
        scratch.run(command).expect_code(0);
    }
    let fed = |words: &str, text: &[u8]| {
        let file = std::fs::File::open(scratch.file(text)).unwrap();
        Running::start(scratch.command(words).stdin(file)).finish()
    };
    let _serving = Killed(Some(Running::start(&mut scratch.command("serve upper -- tr a-z A-Z"))));
    eventually(|| scratch.run("ls --json").text().contains("upper"));
    assert_eq!(fed("call upper", b"hello").text(), "HELLO");
    fed("log events", b"one\n").expect_code(0);
    let receiver = Running::start(&mut scratch.command("receive log --lines"));
    fed("send log --lines --wait-receivers 1", b"a\nb\n").expect_code(0);
    assert_eq!(receiver.finish().text(), "a\nb\n");

    // The rule stays, and can be taken back.
    assert!(scratch.runtime().join("rule").exists());
    fed("send log --lines --access owner", b"").expect_code(0);
    assert!(!scratch.runtime().join("rule").exists());
    scratch.run("ls").expect_code(0);
}

#[test]
fn each_command_takes_an_owner_or_says_why_not() {
    let scratch = Scratch::new("owners");
    let own = rustix::process::geteuid().as_raw();
    let file = scratch.file(b"x");
    let file = file.to_str().unwrap();
    let (creates, none) = ("which only processes of user 4000000000 do", "works in no domain");
    let commands = [
        ("send log", creates),
        ("serve upper -- cat", creates),
        ("call upper", creates),
        ("log events", creates),
        ("monitor", creates),
        ("bench latency", none),
        ("study zimp", none),
        ("model broadcast", none),
        (&format!("idl check {file}"), none),
    ];
    for (command, why) in commands {
        scratch.run(&format!("--owner 4000000000 {command}")).expect_line(2, why);
    }
    for command in ["ls", "metrics", "top --once", "circuits", "routes show", "receive log"] {
        let done = scratch.run(&format!("{command} --owner 4000000000"));
        assert!(done.errors.contains("user 4000000000"), "{command}: {}", done.errors);
    }
    // The own number is as good as none.
    let mut command = scratch.command(&format!("--owner {own} serve upper -- tr a-z A-Z"));
    let _serving = Killed(Some(Running::start(&mut command)));
    eventually(|| scratch.run("ls --json").text().contains("upper"));
}

// Keeps P203.
#[test]
fn other_users_reach_what_the_policy_file_says() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can start processes of other users");
        return;
    }
    let scratch = Scratch::new("monitor-policy");
    // Other users may not be able to read the folder of the build.
    let program = scratch.temporary().join("corewire");
    std::fs::copy(env!("CARGO_BIN_EXE_corewire"), &program).unwrap();
    let call = |user: u32, words: &str| {
        let mut command = Command::new(&program);
        command.args(words.split_whitespace()).uid(user).gid(user);
        command.env("COREWIRE_RUNTIME_DIR", scratch.runtime()).stdin(Stdio::null());
        Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).finish()
    };
    // The command asks a service for its interface before it calls by circuit.
    let users = Access::Users(vec![65534, 12345]);
    let domain = Domain::builder().path(&scratch.runtime()).access(users).open().unwrap();
    let _serving = ["desk", "other"].map(|name| Serving::start_in(&domain, name));
    let policy = scratch.file(b"[[rule]]\nallow = 'bind'\nnames = 'desk'\nusers = [65534]\n");
    let mut monitor = scratch.command("monitor --number 200 --access users:65534,12345 --policy");
    let _monitor = Killed(Some(Running::start(monitor.arg(policy))));
    let known = || scratch.run("routes show --json --owner 0").text().to_owned();
    eventually(|| known().contains("desk") && known().contains("other"));

    let add = "call --owner 0 desk add --driver circuit [{\"left\":6,\"right\":7}]";
    let done = call(65534, add);
    assert_eq!((done.text(), done.errors.as_str()), ("{\"sum\":13}\n", ""));
    let reason = "the monitor's rules do not let user 12345, group 12345, reach desk";
    call(12345, add).expect_line(1, reason);
    let other = "call --owner 0 other add --driver circuit [{\"left\":6,\"right\":7}]";
    call(65534, other).expect_line(1, "no rule of the monitor lets user 65534 reach other");
    for asking in ["circuits --owner 0", "routes show --owner 0", "routes show --json --owner 0"] {
        let asked = call(65534, asking);
        asked.expect_line(1, "monitor 200 refuses: only the monitor's own user may ask it");
        assert!(!asked.text().contains("no monitor"), "{}", asked.text());
    }
    // The owner's other processes follow the rule that stays with the directory.
    let _sender = Killed(Some(Running::start(
        scratch.command("send prices --lines --wait-receivers 1").stdin(Stdio::piped()),
    )));
    eventually(|| scratch.run("ls --json").text().contains("prices"));
    assert!(call(65534, "ls --owner 0").text().contains("prices"));
    call(65534, "serve mine --owner 0 -- cat").expect_line(2, "A guest can receive, look and call");
}

// Keeps P223.
#[test]
fn links_that_the_table_does_not_need_end() {
    let scratch = Scratch::new("links-end");
    let _monitors = start(&scratch, 200..208);
    // Each link is counted at both of its ends.
    let links = || -> usize {
        let is_trunk = |link: &&Value| link["to"].as_str().unwrap().starts_with("monitor ");
        let count =
            |routes: &Value| routes["links"].as_array().unwrap().iter().filter(is_trunk).count();
        routes(&scratch).iter().map(count).sum()
    };
    eventually(|| links() == 2 * 28);
    let _serving = Serving::start(&scratch.runtime(), "desk");
    let knows = |routes: &Value| routes["names"].as_array().unwrap().len() == 1;
    eventually(|| routes(&scratch).iter().all(knows));
    // A circuit keeps the link on which it is: 205 is no neighbour of 200 in the ring.
    let client = stay_at(&scratch, 205);
    eventually(|| circuits(&scratch).contains(&(205, 1)));
    scratch.run("routes ring").expect_code(0);
    eventually(|| links() == 2 * 9);
    assert!(circuits(&scratch).contains(&(205, 1)), "its circuit is there");
    drop(client);
    eventually(|| links() == 2 * 8);
    assert_eq!(add_at(&scratch, 203), "{\"sum\":13}\n");

    scratch.run("routes fat-tree").expect_code(0);
    eventually(|| links() == 2 * 13);
    assert_eq!(add_at(&scratch, 206), "{\"sum\":13}\n");
    // One that comes later has no place in the tree, and one link.
    let _late = start(&scratch, [208]);
    eventually(|| links() == 2 * 14);
    scratch.run("routes direct").expect_code(0);
    eventually(|| links() == 2 * 36);
    assert_eq!(add_at(&scratch, 208), "{\"sum\":13}\n");
}
