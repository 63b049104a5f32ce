//! `top` and `metrics`.

use std::collections::BTreeSet;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use prometheus_parse::{Scrape, Value};

use crate::scratch::{Running, Scratch, eventually, files_in, line};

/// A channel that runs: a sender that is fed lines, and a receiver.
struct Channel {
    sender: Running,
    receiver: Running,
}

impl Channel {
    fn start(scratch: &Scratch, name: &str) -> Self {
        let mut command = scratch.command(&format!("send {name} --lines --wait-receivers 1"));
        let sender = Running::start(command.stdin(Stdio::piped()));
        let receiver = Running::start(&mut scratch.command(&format!("receive {name}")));
        eventually(|| {
            scratch
                .run("ls --json")
                .json()
                .as_array()
                .unwrap()
                .iter()
                .any(|row| row["name"] == name && row["receivers"] == 1)
        });
        Self { sender, receiver }
    }
}

#[test]
fn top_once_says_what_moves() {
    let scratch = Scratch::new("top");
    let nothing = scratch.run("top --once --interval 0.05").text().to_owned();
    assert!(nothing.starts_with("No services, channels, endpoints or windows in "), "{nothing}");
    let mut channel = Channel::start(&scratch, "prices");
    let _other = Channel::start(&scratch, "log");
    let mut input = channel.sender.input();
    let feeding = std::thread::spawn(move || {
        while input.write_all(b"a line that is longer than forty-eight bytes, by some\n").is_ok() {}
    });
    // What was sent in an interval, when the sender has begun.
    let report = || scratch.run("top --once --json --interval 0.2").json();
    eventually(|| report()["channels"][1]["messages_per_s"].as_f64().unwrap() > 0.0);
    let report = report();
    assert_eq!((&report["interval_s"], &report["unseen"]), (&0.2.into(), &serde_json::json!([])));
    let [log, prices] = [0, 1].map(|index| &report["channels"][index]);
    assert_eq!((&log["name"], &prices["name"]), (&"log".into(), &"prices".into()));
    assert_eq!(log["messages_per_s"], 0.0);
    assert_eq!(prices["pid"], channel.sender.child.id());
    assert_eq!(prices["receivers"][0]["pid"], channel.receiver.child.id());
    for key in ["messages_per_s", "bytes_per_s"] {
        assert!(prices[key].as_f64().unwrap() > 0.0, "{key} of {prices}");
        assert!(prices["receivers"][0][key].as_f64().unwrap() > 0.0, "{key} of {prices}");
    }
    let help = scratch.run("top --help");
    let keys = [&report, prices, &prices["receivers"][0]];
    for key in keys.iter().flat_map(|object| object.as_object().unwrap().keys()) {
        assert!(help.text().contains(key.as_str()), "{key} is not in the help");
    }
    let text = scratch.run("top --once --interval 0.1");
    let lines: Vec<_> = text.text().lines().collect();
    assert!(lines[0].starts_with("name"), "{lines:?}");
    assert!(lines[1].starts_with("prices") && lines[2].starts_with("  row 0"), "{lines:?}");
    assert_eq!(scratch.run("top --once --interval 0.1 --filter log").text().lines().count(), 3);
    channel.sender.child.kill().unwrap();
    feeding.join().unwrap();
}

#[test]
fn top_estimates_the_bytes_of_short_messages() {
    let scratch = Scratch::new("top-short");
    let mut channel = Channel::start(&scratch, "short");
    let mut input = channel.sender.input();
    let feeding = std::thread::spawn(move || while input.write_all(b"seven b\n").is_ok() {});
    let report = || scratch.run("top --once --json --interval 0.2").json()["channels"][0].clone();
    let moves = |channel: &serde_json::Value| {
        [channel, &channel["receivers"][0]]
            .iter()
            .all(|it| it["messages_per_s"].as_f64() > Some(0.0))
    };
    let mut found = serde_json::Value::Null;
    eventually(|| {
        found = report();
        moves(&found)
    });
    for row in [&found, &found["receivers"][0]] {
        let of = |key: &str| row[key].as_f64().unwrap();
        let length = of("bytes_per_s") / of("messages_per_s");
        assert!((length - 7.0).abs() < 1e-6, "{row}");
        assert!(of("estimated_bytes_per_s") <= of("bytes_per_s"), "{row}");
    }
    channel.sender.child.kill().unwrap();
    feeding.join().unwrap();
}

#[test]
fn top_needs_a_terminal_and_sane_options() {
    let scratch = Scratch::new("top-usage");
    scratch.run("top --interval 0").expect_line(2, "0.05 to 3600");
}

fn value(scrape: &Scrape, metric: &str, channel: &str) -> f64 {
    let is_it = |sample: &&prometheus_parse::Sample| {
        sample.metric == metric && sample.labels.get("channel") == Some(channel)
    };
    let sample = scrape.samples.iter().find(is_it);
    match sample.unwrap_or_else(|| panic!("no {metric} of {channel} in {scrape:?}")).value {
        Value::Counter(value) | Value::Gauge(value) => value,
        ref other => panic!("{metric} is {other:?}"),
    }
}

fn parsed(text: &str) -> Scrape {
    let lines = text.lines().map(|line| Ok(line.to_owned()));
    let scrape = Scrape::parse(lines).unwrap();
    // The parser passes over what it does not understand.
    let samples = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(scrape.samples.len(), samples, "{text}");
    let metrics: BTreeSet<_> = scrape.samples.iter().map(|sample| &sample.metric).collect();
    for metric in metrics {
        assert!(scrape.docs.contains_key(metric), "{metric} is not explained");
    }
    scrape
}

// Keeps P59.
/// The names in a text that begin as metrics of corewire do, without what a histogram adds.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("corewire_"));
    words.map(|word| word.strip_suffix("_bucket").unwrap_or(word)).collect()
}

// Keeps P240.
#[test]
fn the_page_and_the_dashboard_have_the_metrics_that_there_are() {
    let scratch = Scratch::new("metrics-page");
    let text = scratch.run("metrics").text().to_owned();
    let mut rows = BTreeSet::new();
    for (help, kind) in text.lines().zip(text.lines().skip(1)) {
        if let Some((name, meaning)) =
            help.strip_prefix("# HELP ").and_then(|it| it.split_once(' '))
        {
            let kind = kind.rsplit(' ').next().unwrap();
            rows.insert(format!("| `{name}` | {kind} | {meaning} |"));
        }
    }
    let page = include_str!("../../../../docs/metrics.md");
    let listed = page.lines().filter(|line| line.starts_with("| `corewire_"));
    assert_eq!(listed.map(str::to_owned).collect::<BTreeSet<_>>(), rows);
    let names = metrics_in(&text);
    let dashboard = include_str!("../../../../examples/metrics/grafana.json");
    let panels = serde_json::from_str::<serde_json::Value>(dashboard).unwrap();
    assert!(panels["panels"].as_array().unwrap().len() > 5);
    for text in [page, dashboard] {
        let unknown: Vec<_> = metrics_in(text).difference(&names).copied().collect();
        assert_eq!(unknown, [""; 0]);
    }
}

#[test]
fn metrics_are_what_prometheus_reads() {
    let scratch = Scratch::new("metrics");
    assert_eq!(parsed(scratch.run("metrics").text()).samples.len(), 1);
    let mut channel = Channel::start(&scratch, "log");
    channel.sender.input().write_all(b"one\ntwo\nthree\n").unwrap();
    channel.receiver.child.wait().unwrap();
    let mut channel = Channel::start(&scratch, "log");
    let mut input = channel.sender.input();
    input.write_all(b"one\ntwo\n").unwrap();
    let metrics = || parsed(scratch.run("metrics").text());
    eventually(|| value(&metrics(), "corewire_received_messages_total", "log") == 2.0);
    let scrape = metrics();
    let help = scratch.run("metrics --help");
    for sample in &scrape.samples {
        let name = &sample.metric;
        assert!(help.text().lines().any(|line| line.trim() == name), "{name} is not in the help");
    }
    for (metric, expected) in [
        ("corewire_sent_messages_total", 2.0),
        ("corewire_receivers", 1.0),
        ("corewire_senders", 1.0),
        ("corewire_joins_total", 1.0),
        ("corewire_receiver_lag_messages", 0.0),
        ("corewire_missed_messages_total", 0.0),
    ] {
        assert_eq!(value(&scrape, metric, "log"), expected, "{metric}");
    }

    let file = scratch.temporary().join("corewire.prom");
    std::fs::write(&file, "old").unwrap();
    Running::start(scratch.command("metrics --file").arg(&file)).finish().expect_code(0);
    assert_eq!(
        value(&parsed(&std::fs::read_to_string(&file).unwrap()), "corewire_receivers", "log"),
        1.0
    );
    assert_eq!(files_in(&scratch.temporary()), ["corewire.prom"]);
    scratch.run("metrics --file /no/such/directory/file").expect_line(1, "/no/such/directory/file");
    // Beyond the limit on file sizes, the kernel would end the process by SIGXFSZ.
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -f 0 && exec \"$0\" metrics --file \"$1\""]);
    limited.args([env!("CARGO_BIN_EXE_corewire"), file.to_str().unwrap()]);
    limited.env("COREWIRE_RUNTIME_DIR", scratch.runtime());
    let refused = limited.output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("File too large"), "{said}");
}

// Keeps P59.
#[test]
fn metrics_are_served_on_the_loopback_interface() {
    let scratch = Scratch::new("metrics-port");
    let _channel = Channel::start(&scratch, "log");
    let mut serving = Running::start_unread(&mut scratch.command("metrics --port 0"));
    let url = line(&mut BufReader::new(serving.child.stdout.take().unwrap()));
    let address = url.strip_prefix("http://").unwrap().trim_end().strip_suffix("/metrics").unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{url}");
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for _ in 0..2 {
        let answer = ask("GET /metrics");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("version=0.0.4"), "{head}");
        assert_eq!(value(&parsed(body), "corewire_receivers", "log"), 1.0);
    }
    assert!(ask("GET /").starts_with("HTTP/1.1 404"));
    assert!(ask("POST /metrics").starts_with("HTTP/1.1 405"));
    serving.child.kill().unwrap();
}
