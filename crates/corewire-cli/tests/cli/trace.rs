//! `trace`: a call over two monitors, recorded and read back.

use std::collections::HashMap;
use std::io::BufReader;
use std::path::Path;
use std::process::{Child, ChildStderr, Command};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::circuits::{add_at, circuits, routes, start, stay_at};
use crate::desk::Serving;
use crate::scratch::{Running, Scratch, eventually, line};

/// Records a call from monitor 201 to a service at 200.
fn recorded(scratch: &Scratch, options: &str, file: &Path) {
    let mut command = scratch.command(&format!("trace {options} --out"));
    let mut trace = Recording::start(command.arg(file));
    assert_eq!(add_at(scratch, 201), "{\"sum\":13}\n");
    // `INT` is ignored by what a shell has started in the background.
    trace.signal(Signal::TERM);
    while !line(&mut trace.said).contains("written") {}
    trace.child.wait().unwrap();
}

/// A trace that is being recorded.
struct Recording {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Recording {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        assert!(line(&mut said).contains("recording"));
        Self { child, said }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

/// A slice of the Trace Event form, with the arrows that begin and end there.
#[derive(Debug)]
struct Slice {
    pid: u64,
    name: String,
    began: f64,
    bytes: u64,
    from: Vec<String>,
    to: Vec<String>,
}

fn slices(events: &[Value]) -> Vec<Slice> {
    let mut slices: Vec<Slice> = Vec::new();
    for event in events {
        let arrow = || event["id"].as_str().unwrap().to_owned();
        match event["ph"].as_str().unwrap() {
            "X" => slices.push(Slice {
                pid: event["pid"].as_u64().unwrap(),
                name: event["name"].as_str().unwrap().to_owned(),
                began: event["ts"].as_f64().unwrap(),
                bytes: event["args"]["bytes"].as_u64().unwrap(),
                from: Vec::new(),
                to: Vec::new(),
            }),
            "s" => slices.last_mut().unwrap().from.push(arrow()),
            "f" => slices.last_mut().unwrap().to.push(arrow()),
            _ => {}
        }
    }
    slices
}

// Keeps P200.
#[test]
fn a_traced_call_shows_the_four_parties_in_order_with_their_arrows() {
    let scratch = Scratch::new("trace");
    let _monitors = start(&scratch, 200..202);
    let _serving = Serving::start(&scratch.runtime(), "desk");
    let knows = |routes: &Value| routes["names"] == json!([{ "service": "desk", "monitor": 200 }]);
    eventually(|| routes(&scratch).iter().all(knows));

    let file = scratch.temporary().join("call.json");
    recorded(&scratch, "--format json", &file);
    let recorded: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let events = recorded["traceEvents"].as_array().unwrap();
    let named: HashMap<u64, &str> = events
        .iter()
        .filter(|event| event["ph"] == "M")
        .map(|event| (event["pid"].as_u64().unwrap(), event["args"]["name"].as_str().unwrap()))
        .collect();
    let slices = slices(events);
    // A request has two numbers of eight bytes.
    let sent = slices.iter().find(|slice| slice.name == "send" && slice.bytes == 16).unwrap();
    let (mut at, mut way) = (sent, vec![(named[&sent.pid], "send")]);
    while let Some(arrow) = at.from.first() {
        let next = slices.iter().find(|slice| slice.to.contains(arrow)).unwrap();
        assert!(next.began >= at.began, "{next:?} before {at:?}");
        way.push((named[&next.pid], &next.name));
        at = next;
    }
    let service = named[&u64::from(std::process::id())];
    assert_eq!(
        way,
        [
            ("corewire", "send"),
            ("monitor 201", "forward"),
            ("monitor 200", "forward"),
            (service, "serve"),
            ("monitor 200", "forward"),
            ("monitor 201", "forward"),
            ("corewire", "receive"),
        ]
    );
    assert_eq!(at.pid, sent.pid);

    let file = scratch.temporary().join("call.pftrace");
    recorded_in_protobuf(&scratch, &file);
}

/// Reads the file by Perfetto's own schema, if `make test` has found it: its Python package.
fn recorded_in_protobuf(scratch: &Scratch, file: &Path) {
    recorded(scratch, "", file);
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/perfetto/bin/python");
    if !python.exists() {
        println!("Perfetto's Python package is not there: the file was not read back");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/read_trace.py");
    let read = Command::new(python).arg(script).arg(file).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let way = String::from_utf8(read.stdout).unwrap();
    let way: Vec<&str> = way.lines().collect();
    assert_eq!(way.len(), 7, "{way:?}");
    assert_eq!(way[1], "monitor 201 forward");
    assert_eq!(way[2], "monitor 200 forward");
    assert!(way[3].ends_with(" serve"), "{way:?}");
    assert_eq!((way[0], way[6]), ("corewire send", "corewire receive"));
}

// Keeps P200.
#[test]
fn a_trace_needs_a_monitor_and_ends_with_its_command() {
    let scratch = Scratch::new("trace-none");
    scratch.run("trace --for 1").expect_line(1, "no monitor runs");
    scratch.run("trace --for 0").expect_line(2, "no time in seconds");
    let _monitors = start(&scratch, [200]);
    let _serving = Serving::start(&scratch.runtime(), "desk");
    let mut trace = Recording::start(&mut scratch.command("trace"));
    trace.signal(Signal::KILL);
    trace.child.wait().unwrap();
    // The monitor goes on, and can be asked again.
    let client = stay_at(&scratch, 200);
    eventually(|| circuits(&scratch) == [(200, 1)]);
    drop(client);
    let file = scratch.temporary().join("again.json");
    let mut command = scratch.command("trace --for 0.1 --format json --out");
    Running::start(command.arg(&file)).finish().expect_code(0);
    assert!(serde_json::from_slice::<Value>(&std::fs::read(&file).unwrap()).is_ok());
}
