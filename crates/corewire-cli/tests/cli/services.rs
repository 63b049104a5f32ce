//! `call` with methods of services, and what `ls` and `metrics` say of services.

use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use corewire::Domain;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::desk::{self, Serving, announce};
use crate::scratch::{Finished, Running, Scratch, eventually, line, stop};

/// `corewire call` with these words, and then one argument that may have spaces.
fn call(scratch: &Scratch, words: &str, arguments: &Value) -> Finished {
    let mut command = scratch.command(&format!("call {words}"));
    Running::start(command.arg(arguments.to_string())).finish()
}

fn numbers(left: i64, right: i64) -> Value {
    json!({ "numbers": { "left": left, "right": right } })
}

/// Waits until this number of clients is bound to `desk`.
fn await_clients(scratch: &Scratch, count: usize) {
    eventually(|| service(scratch, "desk")["bindings"] == count);
}

fn service(scratch: &Scratch, name: &str) -> Value {
    let rows = scratch.run("ls --json").json();
    let is_it = |row: &&Value| row["kind"] == "service" && row["name"] == name;
    rows.as_array().unwrap().iter().find(is_it).cloned().unwrap_or_default()
}

// Keeps P170.
#[test]
fn a_method_is_called_with_json_by_any_driver() {
    let scratch = Scratch::new("methods");
    let _serving = Serving::start(&scratch.runtime(), "desk");
    for driver in ["", "--driver ump", "--driver sock", "--driver local --driver sock"] {
        let done = call(&scratch, &format!("desk add {driver}"), &numbers(6, 7));
        done.expect_code(0);
        assert_eq!((done.text(), done.errors.as_str()), ("{\"sum\":13}\n", ""), "{driver}");
    }
    let done = call(&scratch, "desk add", &json!([{ "left": "0x10", "right": -1 }]));
    assert_eq!(done.text(), "{\"sum\":15}\n");
    let mut piped = scratch.command("call desk add -");
    let mut piped = Running::start(piped.stdin(Stdio::piped()));
    piped.input().write_all(numbers(1, 2).to_string().as_bytes()).unwrap();
    assert_eq!(piped.finish().text(), "{\"sum\":3}\n");

    let failed = call(&scratch, "desk add", &numbers(i64::MAX, 1));
    failed.expect_code(4);
    assert_eq!((failed.text(), failed.errors.as_str()), ("{\"error\":\"OVERFLOW\"}\n", ""));
    scratch.run("call desk drop").expect_line(1, "desk dropped the request without a reply");
    scratch.run("call desk hold --timeout 0.05").expect_line(1, "no reply of desk within 0.05 s");
    let done = call(&scratch, "desk add --driver local", &numbers(1, 1));
    done.expect_line(1, "local: the service is in another process");
}

#[test]
fn the_parts_of_a_stream_are_lines_of_json() {
    let scratch = Scratch::new("streams-of-json");
    let _serving = Serving::start(&scratch.runtime(), "desk");
    let part = |number: u32| {
        format!("{{\"name\":\"n{number}\",\"price\":{:?}}}\n", f64::from(number) / 2.0)
    };
    for driver in ["ump", "sock"] {
        let list =
            |count: u32| call(&scratch, &format!("desk list --driver {driver}"), &json!([count]));
        let done = list(2000);
        done.expect_code(0);
        assert_eq!(done.text(), (1..=2000).map(part).collect::<String>());
        let full = list(3);
        full.expect_code(4);
        let error = "{\"error\":{\"FULL\":{\"limit\":3,\"why\":\"full\"}}}\n";
        assert_eq!(full.text(), format!("{}{error}", (1..=3).map(part).collect::<String>()));
        let gone = list(4);
        gone.expect_code(4);
        assert!(gone.text().ends_with("{\"error\":\"GONE\"}\n"), "{}", gone.text());
        let some = call(&scratch, "desk list --count 2", &json!([4_000_000_000_u32]));
        some.expect_code(0);
        assert_eq!(some.text(), part(1) + &part(2));
    }
    let once = call(&scratch, "desk add --count 2", &numbers(1, 2));
    once.expect_line(2, "--count: `add` answers once, not in parts");
    scratch.run("call desk --count 2").expect_line(2, "--count is for a METHOD");
    // A struct is an object, or its fields in order.
    let done = call(&scratch, "desk add", &json!([[6, 7]]));
    assert_eq!(done.text(), "{\"sum\":13}\n");
    let wrong = call(&scratch, "desk add", &json!([[6]]));
    wrong.expect_line(2, "add: numbers: 1 fields: exactly 2 are necessary");
}

// Keeps P171.
#[test]
fn messages_are_sent_and_events_are_lines_of_json() {
    let scratch = Scratch::new("events");
    let serving = Serving::start(&scratch.runtime(), "desk");
    let mut all = Running::start_unread(&mut scratch.command("call desk --events"));
    let noted = Running::start(&mut scratch.command("call desk --events noted --count 2"));
    await_clients(&scratch, 2);
    announce(&serving.outbox, "bell", &json!({ "strokes": 3 }));
    // The longest one does not fit into the rings of a client that has gone at once.
    let long = "x".repeat(100_000);
    for (line, driver) in [("one", "ump"), (&long, "sock"), (&long, "ump")] {
        let sent = call(&scratch, &format!("desk note --driver {driver}"), &json!([line]));
        sent.expect_code(0);
        assert_eq!((sent.text(), sent.errors.as_str()), ("", ""));
    }
    let noted = noted.finish();
    noted.expect_code(0);
    let lines = noted.text().lines().map(|line| serde_json::from_str(line).unwrap());
    let event = |line: &str| json!({ "event": "noted", "arguments": { "line": line } });
    assert_eq!(lines.collect::<Vec<Value>>(), [event("one"), event(&long)]);
    let mut lines = BufReader::new(all.child.stdout.take().unwrap());
    let first = line(&mut lines);
    assert_eq!(first, "{\"event\":\"bell\",\"arguments\":{\"strokes\":3}}\n");
    for expected in ["one", &long, &long] {
        let found: Value = serde_json::from_str(&line(&mut lines)).unwrap();
        assert_eq!(found, event(expected));
    }
    all.signal(Signal::TERM);
    let all = all.finish();
    all.expect_code(0);
    assert_eq!(all.errors, "");

    // The end of the service is the end of its events.
    let last = Running::start(&mut scratch.command("call desk --events"));
    await_clients(&scratch, 1);
    drop(serving);
    last.finish().expect_code(0);
}

// Keeps P171.
#[test]
fn standard_error_says_where_events_are_missing() {
    let scratch = Scratch::new("events-lost");
    let serving = Serving::start(&scratch.runtime(), "desk");
    let mut slow = Running::start_unread(&mut scratch.command("call desk --events"));
    await_clients(&scratch, 1);
    slow.stop();
    let sent = 5000;
    let long = json!({ "line": "x".repeat(1000) });
    for number in 0..sent {
        // The service keeps a limited number of events that it has not sent.
        if number % 1000 == 0 {
            assert_eq!(call(&scratch, "desk add", &numbers(1, 1)).text(), "{\"sum\":2}\n");
        }
        announce(&serving.outbox, "noted", &long);
    }
    assert_eq!(call(&scratch, "desk add", &numbers(1, 1)).text(), "{\"sum\":2}\n");
    slow.signal(Signal::CONT);
    let mut lines = BufReader::new(slow.child.stdout.take().unwrap());
    // Bells are left out, too, until there is room.
    let (mut came, mut bells) = (0, 0);
    while !line(&mut lines).contains("bell") {
        came += 1;
        announce(&serving.outbox, "bell", &json!({ "strokes": 1 }));
        bells += 1;
    }
    slow.signal(Signal::TERM);
    let slow = slow.finish();
    slow.expect_line(0, "events are missing here");
    let missing = slow.errors.split_whitespace().find_map(|word| word.parse::<u64>().ok());
    let missing = missing.unwrap();
    assert!((sent - came..=sent - came + bells).contains(&missing), "{missing}, {came}, {bells}");
}

// Keeps P174.
#[test]
fn the_interface_is_printed_as_a_file_and_as_json() {
    let scratch = Scratch::new("interface");
    let _serving = Serving::start(&scratch.runtime(), "desk");
    let canonical = corewire_idl::format(corewire_idl::Source::new("desk.if", desk::FILE)).unwrap();
    let without_gaps = |text: &str| text.replace("\n\n", "\n");
    let printed = scratch.run("call desk --interface");
    printed.expect_code(0);
    assert_eq!(without_gaps(printed.text()), without_gaps(&canonical));
    assert_eq!(scratch.run("call desk --interface --json").text(), desk::interface().to_json());
}

// Keeps P170.
#[test]
fn wrong_methods_and_arguments_are_named() {
    let scratch = Scratch::new("methods-wrong");
    let _serving = Serving::start(&scratch.runtime(), "desk");
    let domain = Domain::open_at(&scratch.runtime()).unwrap();
    let _endpoint = domain.endpoint("end").create().unwrap();
    let _channel = domain.sender("log").create().unwrap();
    for (words, expected) in [
        ("call desk ad", "desk has no method `ad`: did you mean `add`?"),
        ("call desk frobnicate", "its methods: `add`, `note`, `swap`"),
        ("call desk add", "add: numbers: missing"),
        ("call desk add {", "the arguments are not JSON"),
        ("call desk add 5", "an object or an array of all arguments"),
        ("call desk add [{\"left\":1,\"rigth\":2}]", "did you mean `right`?"),
        ("call desk bell", "`corewire call desk --events bell` prints it"),
        ("call desk --events bel", "did you mean `bell`?"),
        ("call desk --events add", "`add` of desk is a method, not an event"),
        ("call desk --events add --count 0", "count"),
        ("call desk", "a METHOD is needed (`add`, `note`, `swap`"),
        ("call end add", "end is an endpoint, not a service"),
        ("call log add", "log is a channel, not a service"),
        ("call end --driver ump", "--driver is for a METHOD"),
        ("call desk add --driver tcp", "is no driver"),
        ("call desk --json", "--interface"),
        ("call desk --copy-to x", "METHOD"),
    ] {
        scratch.run(words).expect_line(2, expected);
    }
}

// Keeps P172.
#[test]
fn files_travel_with_arguments_and_replies() {
    let scratch = Scratch::new("files");
    let _serving = Serving::start(&scratch.runtime(), "desk");
    let bytes = crate::scratch::noise(300_000);
    let file = scratch.file(&bytes);
    let path = file.to_string_lossy().into_owned();
    for driver in ["ump", "sock"] {
        let words = format!("desk give --driver {driver} --copy-to -");
        let copied = call(&scratch, &words, &json!({ "file": path }));
        copied.expect_code(0);
        assert!(copied.output == bytes, "{} bytes came", copied.output.len());
    }
    let target = scratch.temporary().join("copy");
    let mut command = scratch.command("call desk give");
    command.arg(json!([{ "fd": 0 }]).to_string()).arg("--copy-to").arg(&target);
    let done = Running::start(command.stdin(std::fs::File::open(&file).unwrap())).finish();
    done.expect_code(0);
    assert_eq!(done.text(), "{\"file\":{\"capability\":0}}\n");
    assert!(std::fs::read(&target).unwrap() == bytes);

    let both = json!({ "first": { "path": path }, "second": path });
    let done = call(&scratch, "desk swap", &both);
    assert_eq!(done.json(), json!({ "second": { "capability": 0 }, "first": { "capability": 1 } }));
    let two = call(&scratch, "desk swap --copy-to -", &both);
    two.expect_line(1, "the reply has 2 capabilities: --copy-to needs exactly one descriptor");
    let done = call(&scratch, "desk forward", &json!({ "to": "someone" }));
    assert_eq!(done.json(), json!({ "to": { "capability": 0 } }));
    let domain = Domain::open_at(&scratch.runtime()).unwrap();
    let grid = domain.window("grid", 4096).create().unwrap();
    let _endpoint = domain.endpoint("end").create().unwrap();
    let done = call(&scratch, "desk share", &json!({ "memory": "grid" }));
    assert_eq!(done.json(), json!({ "memory": { "capability": 0 } }));
    let mut found = [0; 6];
    grid.get(0, &mut found).unwrap();
    assert_eq!(&found, b"shared");
    for (memory, expected) in [
        (json!("gird"), "memory: window gird does not exist"),
        (json!("end"), "memory: end is a channel, an endpoint or a listener, not a window"),
        (json!({ "fd": 0 }), "a name is needed: the type is window"),
    ] {
        call(&scratch, "desk share", &json!([memory])).expect_line(2, expected);
    }
    for (file, expected) in [
        (json!("/no/such/file"), "file: cannot open /no/such/file: No such file"),
        (json!({ "fd": 1000 }), "use descriptor 1000"),
        (json!({ "capability": 0 }), "nothing was received"),
    ] {
        call(&scratch, "desk give", &json!([file])).expect_line(2, expected);
    }
    // Without the shell's descriptor 3, the command has one of its own there.
    for (redirection, code) in [("3<\"$1\"", 0), ("3<&-", 2)] {
        let mut command = Command::new("sh");
        let script = format!("exec \"$0\" call desk give '[{{\"fd\":3}}]' {redirection}");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_corewire"), &path]);
        command.env("COREWIRE_RUNTIME_DIR", scratch.runtime());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let done = Running::start(&mut command).finish();
        done.expect_code(code);
        assert_eq!(done.errors.contains("use descriptor 3"), code == 2, "{}", done.errors);
    }
    let done = call(&scratch, "desk forward", &json!([{ "fd": 0 }]));
    done.expect_line(2, "a name is needed: the type is endpoint");
    let done = call(&scratch, "desk give --copy-to /no/such/directory/x", &json!([path]));
    done.expect_line(1, "cannot write /no/such/directory/x");
}

// Keeps P170.
#[test]
fn a_call_waits_for_its_service_within_its_time() {
    let scratch = Scratch::new("methods-wait");
    scratch.run("call desk add {} --no-wait").expect_line(1, "service desk does not exist");
    scratch.run("call desk add --timeout 0.05").expect_line(1, "no reply of desk within 0.05 s");
    let mut early = scratch.command("call desk add");
    let mut early = early.arg(numbers(2, 2).to_string()).spawn().unwrap();
    let mut notes = BufReader::new(early.stderr.take().unwrap());
    assert!(line(&mut notes).starts_with("corewire: waiting for desk in "));
    let serving = Serving::start(&scratch.runtime(), "desk");
    assert_eq!(early.wait_with_output().unwrap().stdout, b"{\"sum\":4}\n");
    drop(serving);
    // Nobody reads what connects to this listener.
    let domain = Domain::open_at(&scratch.runtime()).unwrap();
    let _listener = domain.listener("mute").unwrap();
    scratch.run("call mute add --timeout 0.05").expect_line(1, "no reply of mute within 0.05 s");
}

/// Serves `desk` in this process if another test has started it.
#[test]
#[ignore = "a part of another test"]
fn a_service_in_a_process_of_its_own() {
    let Some(runtime) = std::env::var_os("DESK_RUNTIME_DIR") else { return };
    let domain = Domain::open_at(&PathBuf::from(runtime)).unwrap();
    let (mut core, mut desk) = desk::core(&domain, "desk");
    while core.serve_one(None, &mut desk).unwrap() {}
}

// Keeps P239.
#[test]
fn what_a_service_has_served_is_counted_though_clients_have_gone() {
    let scratch = Scratch::new("totals");
    let _serving = Serving::start(&scratch.runtime(), "desk");
    for driver in ["ump", "sock"] {
        for _ in 0..2 {
            let done = call(&scratch, &format!("desk add --driver {driver}"), &numbers(6, 7));
            done.expect_code(0);
        }
        call(&scratch, &format!("desk list --driver {driver}"), &json!([5])).expect_code(0);
        call(&scratch, &format!("desk drop --driver {driver}"), &json!([])).expect_code(1);
    }
    await_clients(&scratch, 0);
    let row = service(&scratch, "desk");
    let of = |row: &Value| ["requests", "replies", "errors"].map(|key| row[key].as_u64().unwrap());
    assert_eq!(of(&row["totals"]), [8, 8, 2], "{row}");
    let methods = row["methods"].as_array().unwrap();
    let named = |name: &str| methods.iter().find(|one| one["method"] == name).unwrap();
    assert_eq!(of(named("add")), [4, 4, 0]);
    assert_eq!(of(named("list")), [2, 2, 0]);
    assert_eq!(of(named("drop")), [2, 2, 2]);
    assert_eq!(named("add")["request_bytes"], 4 * 16);
    assert!(named("list")["reply_bytes"].as_u64().unwrap() > 10 * 8, "{row}");
    let [half, most] = ["p50_ns", "p99_ns"].map(|key| named("add")[key].as_u64().unwrap());
    assert!(0 < half && half <= most, "{row}");
    let metrics = scratch.run("metrics").text().to_owned();
    let pid = std::process::id();
    let labels = format!("service=\"desk\",pid=\"{pid}\",method=\"add\"");
    for expected in [
        format!("corewire_service_requests_total{{{labels}}} 4\n"),
        format!("corewire_service_call_seconds_count{{{labels}}} 1\n"),
        format!("corewire_service_call_seconds_bucket{{{labels},le=\"+Inf\"}} 1\n"),
    ] {
        assert!(metrics.contains(&expected), "{expected}: {metrics}");
    }
    let top = scratch.run("top --json --interval 0.05").json();
    assert_eq!(top["services"][0]["requests"], 8, "{top}");
    assert_eq!(top["services"][0]["requests_per_s"], 0.0, "{top}");
    // What went to clients that have gone is counted for the endpoint, too.
    let rows = scratch.run("ls --json").json();
    let is_rings = |row: &&Value| row["name"] == "desk.rings";
    let rings = rows.as_array().unwrap().iter().find(is_rings).unwrap();
    assert_eq!(rings["peers"], 0, "{rings}");
    assert!(rings["received_messages"].as_u64().unwrap() >= 4, "{rings}");
}

// Keeps P170, P173.
#[test]
fn a_call_learns_that_its_service_died() {
    for driver in ["ump", "sock"] {
        let scratch = Scratch::new(&format!("methods-death-{driver}"));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "services::a_service_in_a_process_of_its_own", "--ignored"]);
        command.env("DESK_RUNTIME_DIR", scratch.runtime()).stdout(Stdio::null());
        let mut server = command.spawn().unwrap();
        let words = format!("call desk --events bell --count 1 --driver {driver}");
        let bell = Running::start(&mut scratch.command(&words));
        eventually(|| service(&scratch, "desk")["bindings"] == 1);
        let words = format!("call desk hold --driver {driver}");
        let waiting = Running::start(&mut scratch.command(&words));
        let events = Running::start(&mut scratch.command("call desk --events noted"));
        // The request has arrived.
        bell.finish().expect_code(0);
        eventually(|| service(&scratch, "desk")["bindings"] == 2);
        stop(&server);
        let rows = scratch.run("ls --json").json();
        let silent = json!({
            "kind": "silent", "name": "desk", "is_endpoint": false, "is_service": true, "is_window": false,
            "pid": server.id(), "part_of": null,
        });
        assert!(rows.as_array().unwrap().contains(&silent), "{rows}");
        server.kill().unwrap();
        server.wait().unwrap();
        waiting.finish().expect_line(3, "desk died before it replied");
        events.finish().expect_line(3, "desk died");
    }
}

// Keeps P173.
#[test]
fn ls_and_metrics_show_who_is_bound() {
    let scratch = Scratch::new("bindings");
    let _serving = Serving::start(&scratch.runtime(), "desk");
    let domain = Domain::open_at(&scratch.runtime()).unwrap();
    // They never answer.
    let busy = ["busy", "idle"].map(|name| desk::core(&domain, name));
    let listener = Running::start(&mut scratch.command("call desk --events --driver sock"));
    let other = Running::start(&mut scratch.command("call desk --events --driver ump"));
    await_clients(&scratch, 2);
    let row = service(&scratch, "desk");
    assert_eq!(row["interface"], "desk");
    assert_eq!(row["hash"], desk::interface().hash.to_string());
    let mut clients = row["clients"].as_array().unwrap().clone();
    clients.sort_by_key(|client| client["driver"].as_str().unwrap().to_owned());
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let of = |running: &Running, driver: &str| json!({ "pid": running.child.id(), "uid": uid, "gid": gid, "driver": driver });
    assert_eq!(clients, [of(&listener, "sock"), of(&other, "ump")]);
    assert_eq!(service(&scratch, "busy")["clients"], Value::Null);
    let text = scratch.run("ls").text().to_owned();
    let pid = std::process::id();
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines = lines.collect::<Vec<_>>();
    for expected in [format!("busy {pid} - - - - - -"), format!("desk {pid} desk 2 0 0 - -")] {
        assert!(lines.contains(&expected), "{expected}: {text}");
    }
    let is_listed = |text: &str| text.lines().any(|line| line.starts_with("desk.rings "));
    assert!(!is_listed(&text) && text.contains("--all lists"), "{text}");
    assert!(is_listed(scratch.run("ls --all").text()));
    let metrics = scratch.run("metrics").text().to_owned();
    let expected = format!("corewire_service_bindings{{service=\"desk\",pid=\"{pid}\"}} 2\n");
    assert!(metrics.contains(&expected), "{metrics}");
    assert_eq!(metrics.matches("corewire_service_bindings{").count(), 1, "{metrics}");
    for client in [listener, other] {
        client.signal(Signal::TERM);
        client.finish().expect_code(0);
    }
    await_clients(&scratch, 0);
    drop(busy);
}
