//! `ls` and `doctor`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;

use crate::scratch::{Running, Scratch, eventually, files_in};

#[test]
fn ls_shows_what_is_there() {
    let scratch = Scratch::new("ls");
    let empty = scratch.run("ls");
    empty.expect_code(0);
    assert!(
        empty.text().starts_with("No channels, endpoints, services or windows in "),
        "{}",
        empty.text()
    );
    assert_eq!(scratch.run("ls --json").json(), serde_json::json!([]));

    let mut sender =
        Running::start(scratch.command("send log --receivers 5").stdin(Stdio::piped()));
    let input = sender.input();
    let receiver = Running::start(&mut scratch.command("receive log"));
    eventually(|| scratch.run("ls --json").json()[0]["receivers"] == 1);
    let row = &scratch.run("ls --json").json()[0];
    assert_eq!(row["name"], "log");
    assert_eq!(row["pid"], sender.child.id());
    assert_eq!(row["receivers_max"], 5);
    assert_eq!(row["sent"], 0);
    assert_eq!(row["lag_max"], 0);
    let text = scratch.run("ls");
    let line = text.text().lines().nth(1).unwrap();
    assert!(line.starts_with("log ") && line.contains(" 1/5 "), "{line}");

    // A dead sender's channel is not shown, and what it left is gone.
    sender.child.kill().unwrap();
    sender.finish();
    receiver.finish().expect_code(3);
    assert!(scratch.run("ls").text().starts_with("No channels"));
    assert!(files_in(&scratch.runtime()).is_empty(), "{:?}", files_in(&scratch.runtime()));
    drop(input);
}

// Keeps P94.
#[test]
fn processes_that_are_stopped_are_shown_and_delay_nobody() {
    let scratch = Scratch::new("silent");
    let names = |kind: &str, count: u32| -> Vec<_> {
        (0..count).map(|index| format!("{kind}-{index:02}")).collect()
    };
    let start = |name: &String| {
        Running::start(scratch.command(&format!("send {name}")).stdin(Stdio::piped()))
    };
    let stopped: Vec<_> = names("stopped", 3).iter().map(start).collect();
    let _live: Vec<_> = names("live", 20).iter().map(start).collect();
    eventually(|| scratch.run("ls --json").json().as_array().unwrap().len() == 23);
    for process in &stopped {
        process.stop();
    }
    let timed = |args: &str| {
        let began = std::time::Instant::now();
        let finished = scratch.run(args);
        // A single stopped process used to take ten seconds.
        assert!(began.elapsed().as_secs() < 5, "{args}: {:?}", began.elapsed());
        println!("{args}: {:?}", began.elapsed());
        finished.expect_code(0);
        finished
    };
    let rows = timed("ls --json").json();
    let of_kind = |kind: &str| {
        let rows = rows.as_array().unwrap().iter().filter(|row| row["kind"] == kind);
        rows.map(|row| row["pid"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(of_kind("channel").len(), 20);
    let mut pids: Vec<_> = stopped.iter().map(|it| u64::from(it.child.id())).collect();
    let mut found = of_kind("silent");
    found.sort_unstable();
    pids.sort_unstable();
    assert_eq!(found, pids);
    let text = timed("ls").text().to_owned();
    assert_eq!(text.lines().count(), 24, "{text}");
    assert!(text.contains(&format!("does not answer (pid {})", pids[0])), "{text}");
    let metrics = timed("metrics").text().to_owned();
    assert_eq!(metrics.matches("corewire_silent{").count(), 3, "{metrics}");
    assert_eq!(metrics.matches("corewire_senders{").count(), 20, "{metrics}");
    let top = timed("top --once").text().to_owned();
    for name in names("live", 20).iter().chain(&names("stopped", 3)) {
        assert!(top.contains(name.as_str()), "{name}: {top}");
    }
    for process in &stopped {
        process.signal(Signal::CONT);
    }
}

// Keeps P94.
#[test]
fn more_channels_are_shown_than_the_observer_has_descriptors() {
    let scratch = Scratch::new("many");
    let domain = corewire::Domain::open_at(&scratch.runtime()).unwrap();
    let create = |index| {
        let name = format!("c{index}");
        domain.sender(&name).slots(64).window_bytes(64 << 10).receivers(1).create().unwrap()
    };
    let senders: Vec<_> = (0..300).map(create).collect();
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 40 && exec \"$0\" ls --json", env!("CARGO_BIN_EXE_corewire")]);
    limited.env("COREWIRE_RUNTIME_DIR", scratch.runtime());
    let looked = limited.output().unwrap();
    let rows: serde_json::Value = serde_json::from_slice(&looked.stdout).unwrap();
    let shown = rows.as_array().unwrap().iter().filter(|row| row["kind"] == "channel").count();
    assert_eq!(shown, senders.len());
}

#[test]
fn windows_are_shown_with_their_participants() {
    let scratch = Scratch::new("windows");
    let domain = corewire::Domain::open_at(&scratch.runtime()).unwrap();
    let window = domain.window("grid", 5000).participants_max(3).create().unwrap();
    let mut other = domain.attach_window("grid", corewire::WindowRights::WRITE).unwrap();
    window.count(4, 7).unwrap();
    let lock = other.lock(corewire::WindowLocking::Exclusive).unwrap();
    let pid = std::process::id();
    let participants = serde_json::json!([{"row": 0, "pid": pid}, {"row": 1, "pid": pid}]);
    let row = &scratch.run("ls --json").json()[0];
    assert_eq!((&row["kind"], &row["name"]), (&"window".into(), &"grid".into()));
    assert_eq!((&row["pid"], &row["bytes"]), (&pid.into(), &5000.into()));
    assert_eq!((&row["participants"], &row["participants_max"]), (&participants, &3.into()));
    assert_eq!((&row["rights"], &row["counters"][4]), (&"atomic".into(), &7.into()));
    assert_eq!((&row["locked_by"], &row["readers"]), (&1.into(), &0.into()));
    let text = scratch.run("ls").text().to_owned();
    assert!(text.contains(&format!("locked by {pid}")) && text.contains(" 2/3 "), "{text}");
    let top = scratch.run("top --once").text().to_owned();
    assert!(top.contains("grid, 4.9 KiB, locked by participant 1"), "{top}");
    let top = scratch.run("top --json").json();
    assert_eq!(top["windows"][0]["participants"], participants);
    let metrics = scratch.run("metrics").text().to_owned();
    let counted =
        format!("corewire_window_counter_total{{window=\"grid\",pid=\"{pid}\",counter=\"4\"}} 7");
    assert!(metrics.contains(&counted), "{metrics}");
    drop(lock);
    let _lock = other.lock(corewire::WindowLocking::Shared).unwrap();
    let text = scratch.run("ls").text().to_owned();
    assert!(text.contains("locked by a reader"), "{text}");
}

// Keeps P173.
#[test]
fn services_are_shown_with_their_process() {
    let scratch = Scratch::new("services");
    let domain = corewire::Domain::open_at(&scratch.runtime()).unwrap();
    let _channel = domain.sender("channel").create().unwrap();
    let listener = domain.listener("service").unwrap();
    let rows = scratch.run("ls --json").json();
    let pid = std::process::id();
    let expected = serde_json::json!({
        "kind": "service", "name": "service", "pid": pid,
        "interface": null, "hash": null, "bindings": null, "clients": null,
        "totals": null, "methods": null, "part_of": null,
    });
    assert_eq!(rows[1], expected);
    // Its program has not met anybody: it might have taken the question for a client.
    assert!(listener.try_accept().unwrap().is_none());
    let text = scratch.run("ls").text().to_owned();
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines: Vec<_> = lines.collect();
    let title = "service pid interface clients requests errors p50 p99".to_owned();
    assert!(lines.starts_with(&[title, format!("service {pid} - - - - - -")]), "{text}");
    let metrics = scratch.run("metrics").text().to_owned();
    let expected = format!("corewire_service{{service=\"service\",pid=\"{pid}\"}} 1\n");
    assert!(metrics.contains(&expected), "{metrics}");
    let top = scratch.run("top --once --json");
    top.expect_code(0);
    drop(listener);
    let rows = scratch.run("ls --json").json();
    assert_eq!(rows.as_array().unwrap().len(), 1);
}

// Keeps P95.
#[test]
fn endpoints_are_shown_with_their_peers_and_what_they_keep() {
    let scratch = Scratch::new("endpoints");
    let domain = corewire::Domain::open_at(&scratch.runtime()).unwrap();
    let mut server = domain.endpoint("server").budget(1 << 20).create().unwrap();
    let mut client = domain.endpoint("client").create().unwrap();
    let to = client.peer("server").unwrap();
    for number in 0..10u64 {
        client.send(to, number, &[7; 100]).unwrap();
    }
    // All but one stay until a receive asks for them.
    let mut buffer = [0; 100];
    server.receive_into(corewire::Selector::tag(9), &mut buffer).unwrap();
    let rows = scratch.run("ls --json").json();
    let row = rows.as_array().unwrap().iter().find(|row| row["name"] == "server").unwrap();
    assert_eq!((&row["kind"], &row["peers"]), (&"endpoint".into(), &1.into()));
    assert_eq!((&row["kept_bytes"], &row["budget_bytes"]), (&(9 * 228).into(), &(1 << 20).into()));
    assert_eq!(row["most_kept_of"], "client");
    let text = scratch.run("ls").text().to_owned();
    assert!(text.contains("server") && text.contains("client"), "{text}");
    // What is counted privately is shown once the endpoint has made a call.
    server.progress().unwrap();
    client.progress().unwrap();
    let metrics = scratch.run("metrics").text().to_owned();
    let has = |line: String| assert!(metrics.contains(&line), "{line}\n{metrics}");
    let pid = std::process::id();
    let (client_row, server_row) = (
        format!("{{endpoint=\"client\",peer=\"server\",pid=\"{pid}\"}}"),
        format!("{{endpoint=\"server\",peer=\"client\",pid=\"{pid}\"}}"),
    );
    has(format!("corewire_peer_sent_messages_total{client_row} 10"));
    has(format!("corewire_peer_sent_bytes_total{client_row} 1000"));
    has(format!("corewire_peer_received_messages_total{server_row} 10"));
    has(format!("corewire_peer_kept_bytes{server_row} {}", 9 * 228));
    let report = scratch.run("top --once --json --interval 0.05").json();
    let row = &report["endpoints"][1];
    assert_eq!((&row["name"], &row["kept"]), (&"server".into(), &9.into()));
    assert_eq!((&row["peers"][0]["name"], &row["peers"][0]["kept"]), (&"client".into(), &9.into()));
    let help = scratch.run("top --help").text().to_owned();
    for key in [row, &row["peers"][0]].iter().flat_map(|row| row.as_object().unwrap().keys()) {
        assert!(help.contains(key.as_str()), "{key} is not in the help");
    }
    let top = scratch.run("top --once --interval 0.05").text().to_owned();
    assert!(top.contains("  from client") && top.contains("  to client"), "{top}");
    assert_eq!(server.discard(corewire::Selector::any()).unwrap(), 9);
    assert!(scratch.run("ls").text().contains(" 0 B/1 MiB"), "{}", scratch.run("ls").text());
}

#[test]
fn doctor_measures_lines_for_the_model() {
    let scratch = Scratch::new("measure");
    let file = scratch.temporary().join("this machine.json");
    let mut command = scratch.command("doctor --json --measure");
    let done = Running::start(command.arg(&file)).finish();
    if std::thread::available_parallelism().unwrap().get() < 2 {
        done.expect_line(1, "needs two processors");
        return;
    }
    done.expect_code(0);
    let measured = done.json();
    let processors = measured["processors"].as_array().unwrap().len();
    let pairs: Vec<Vec<f64>> = serde_json::from_value(measured["pairs_ns"].clone()).unwrap();
    assert_eq!(pairs.len(), processors);
    for (from, row) in pairs.iter().enumerate() {
        for (to, &ns) in row.iter().enumerate() {
            assert_eq!(ns > 0.0, from != to, "{pairs:?}");
        }
    }
    let read = corewire::Topology::read(&file).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), measured);
    let mut command = scratch.command("doctor --measure /no/such/directory/file");
    Running::start(&mut command).finish().expect_line(1, "/no/such/directory/file");
}

#[test]
fn doctor_looks_at_everything() {
    let scratch = Scratch::new("doctor");
    let done = scratch.run("doctor");
    done.expect_code(0);
    let text = done.text();
    for check in [
        "cores",
        "caches",
        "last-level caches",
        "processor clock",
        "waiting for names",
        "kernel",
        "membarrier",
        "FUTEX_WAITV",
        "lockable memory",
        "descriptors",
        "shared huge pages",
        "cross-process copy",
        "tuning",
        "runtime directory",
        "foreign files",
        "a channel",
        "MPI",
    ] {
        let is_there = |line: &str| line.get(12..).is_some_and(|rest| rest.starts_with(check));
        assert!(text.lines().any(is_there), "{check:?} is not in {text}");
    }
    let findings = scratch.run("doctor --json").json();
    for finding in findings.as_array().unwrap() {
        let is_good = finding["level"] == "good";
        assert_eq!(is_good, finding["advice"].is_null(), "{finding}");
    }
    assert!(files_in(&scratch.temporary()).is_empty());
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn doctor_says_when_the_runtime_directory_is_bad() {
    let scratch = Scratch::new("doctor-bad");
    let expect = |why: &str| {
        let done = scratch.run("doctor");
        done.expect_line(1, "checks are bad");
        assert!(done.errors.starts_with("corewire: 2 of "), "{}", done.errors);
        let findings = scratch.run("doctor --json").json();
        let of = |check: &str| {
            let mut all = findings.as_array().unwrap().iter();
            all.find(|finding| finding["check"] == check).cloned()
        };
        let [directory, channel] =
            ["runtime directory", "a channel"].map(|check| of(check).unwrap());
        assert_eq!((&directory["level"], &channel["level"]), (&"bad".into(), &"bad".into()));
        assert!(directory["found"].as_str().unwrap().contains(why), "{directory}");
        assert!(channel["found"].as_str().unwrap().contains("not in the runtime directory"));
        assert_eq!(of("foreign files"), None);
    };
    std::fs::write(scratch.runtime(), "not a directory").unwrap();
    expect("Not a directory");
    scratch.run("ls").expect_line(1, "runtime directory");
    std::fs::remove_file(scratch.runtime()).unwrap();
    std::fs::create_dir(scratch.runtime()).unwrap();
    mode(&scratch.runtime(), 0o777);
    expect("mode 0777");
    if !rustix::process::geteuid().is_root() {
        mode(&scratch.runtime(), 0o500);
        expect("mode 0500: its owner may not read, write and enter it: chmod 0700 it");
    }
    mode(&scratch.runtime(), 0o700);
    scratch.run("doctor").expect_code(0);
}

#[test]
fn doctor_lists_foreign_files() {
    let scratch = Scratch::new("doctor-foreign");
    scratch.run("ls").expect_code(0);
    let found = || {
        let findings = scratch.run("doctor --json").json();
        let mut all = findings.as_array().unwrap().iter();
        let finding = all.find(|finding| finding["check"] == "foreign files").unwrap();
        let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        [text("level"), text("found"), text("advice")]
    };
    assert_eq!(found()[0], "good");
    for number in 0..7 {
        std::fs::create_dir(scratch.runtime().join(format!("dir {number}\n"))).unwrap();
    }
    let [level, all, advice] = found();
    assert_eq!(level, "improvable");
    let expected = "7 in the runtime directory: dir 0\\n (a directory), ";
    assert!(all.starts_with(expected) && all.ends_with(", and 2 more"), "{all}");
    assert!(advice.contains("corewire did not make them"), "{advice}");
    std::fs::write(scratch.runtime().join("n.log"), "hello").unwrap();
    let [_, all, advice] = found();
    assert!(all.starts_with("8 in the runtime directory: "), "{all}");
    assert!(advice.starts_with("remove n.log: while it is there, nothing can be named log"));
    scratch.run("send log").expect_line(1, "n.log");
}

#[test]
fn a_domain_that_is_open_to_others_is_used_by_its_owner_as_before() {
    use std::os::unix::fs::MetadataExt;
    let scratch = Scratch::new("access");
    let mut sender =
        Running::start(scratch.command("send log --access users:65534").stdin(Stdio::piped()));
    let input = sender.input();
    let is_open = || scratch.run("ls --json --owner 4000000000").errors.contains("not to user 40");
    eventually(is_open);
    let own = std::fs::metadata(scratch.runtime()).unwrap().uid();
    eventually(|| scratch.run("ls --json").json()[0]["name"] == "log");
    eventually(|| scratch.run(&format!("ls --json --owner {own}")).json()[0]["name"] == "log");
    let mut command = scratch.command("ls --json");
    let found = Running::start(command.env("COREWIRE_OWNER", own.to_string())).finish().json();
    assert_eq!(found[0]["receivers"], 0);
    let done = scratch.run(&format!("doctor --owner {own}"));
    assert!(done.text().contains("1 channel\n"), "{}", done.text());
    let done = scratch.run("--owner 4000000000 doctor");
    done.expect_line(1, "2 of ");
    drop(input);
    sender.finish().expect_code(0);
}

#[test]
fn ls_shows_for_whom_a_loan_waits() {
    use corewire::{Domain, Selector};
    let scratch = Scratch::new("loan-waits");
    let domain = Domain::open_at(&scratch.runtime()).unwrap();
    let mut camera = domain.endpoint("camera").create().unwrap();
    let mut viewer = domain.endpoint("viewer").create().unwrap();
    let peer = camera.peer("viewer").unwrap();
    let row = || {
        let all = scratch.run("ls --json").json();
        let mut rows = all.as_array().unwrap().clone();
        rows.retain(|row| row["name"] == "camera");
        rows.remove(0)
    };
    // What the viewer grants grows with what it is asked for.
    let (mut kept, mut refused) = (Vec::new(), 0);
    while refused < 3 {
        match camera.now().loan(peer, 2 << 20) {
            Ok(image) if image.is_in_place() => {
                camera.send_loan(image, 7).unwrap();
                kept.push(viewer.receive(Selector::any()).unwrap());
                refused = 0;
            }
            Ok(_) => {}
            Err(_) => refused += 1,
        }
        // Asks, answers, hears the answer.
        camera.progress().unwrap();
        viewer.progress().unwrap();
        camera.progress().unwrap();
    }
    assert_eq!(kept.len(), 3, "6 MiB");
    assert_eq!(row()["loan_waits_for"], serde_json::Value::Null);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| camera.loan(peer, 2 << 20).unwrap().is_in_place());
        eventually(|| row()["loan_waits_for"] == "viewer");
        let found = row();
        assert_eq!(found["loan_bytes"], 2 << 20);
        assert_eq!(found["unreleased_bytes"], 6 << 20);
        let text = scratch.run("ls").text().to_owned();
        assert!(text.contains("a loan of 2 MiB waits: viewer keeps 6 MiB"), "{text}");
        kept.remove(0);
        while !waiting.is_finished() {
            viewer.progress().unwrap();
        }
        assert!(waiting.join().unwrap());
    });
    assert_eq!(row()["loan_bytes"], serde_json::Value::Null);
}
