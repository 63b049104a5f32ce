//! `send` and `receive`.

use std::io::{BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use corewire::Domain;
use rustix::process::Signal;

use crate::scratch::{Running, Scratch, eventually, files_in, line, noise};

/// A sender of lines that is fed through a pipe.
fn start_sender(scratch: &Scratch, args: &str) -> (Running, ChildStdin) {
    let mut running = Running::start(scratch.command(args).stdin(Stdio::piped()));
    let input = running.input();
    (running, input)
}

#[test]
fn receivers_that_wait_get_every_byte() {
    let scratch = Scratch::new("waiting");
    let start = || Running::start(&mut scratch.command("receive stream"));
    let receivers = [start(), start(), start()];
    scratch.await_waiters(3);
    let bytes = noise(5_000_003);
    let mut sender = Running::start(scratch.command("send stream").stdin(Stdio::piped()));
    let mut input = sender.input();
    for piece in bytes.chunks(70_001) {
        input.write_all(piece).unwrap();
    }
    drop(input);
    sender.finish().expect_code(0);
    for receiver in receivers {
        let receiver = receiver.finish();
        receiver.expect_code(0);
        assert!(receiver.output == bytes, "{} bytes came", receiver.output.len());
    }
}

#[test]
fn what_is_in_the_channel_outlives_the_sender() {
    let scratch = Scratch::new("outlives");
    // More than a pipe and the receiver hold: it is stuck while the sender comes and goes. The rest
    // fits the window even where the second-level cache is small.
    let bytes = noise(200_000);
    let path = scratch.file(&bytes);
    let receiver = Running::start_unread(&mut scratch.command("receive stream"));
    scratch.await_waiters(1);
    let mut sender = scratch.command("send stream --chunk 9999");
    Running::start(sender.arg(path)).finish().expect_code(0);
    let receiver = receiver.finish();
    receiver.expect_code(0);
    assert!(receiver.output == bytes, "{} bytes came", receiver.output.len());
}

#[test]
fn each_line_is_a_message() {
    let scratch = Scratch::new("lines");
    let receiver = Running::start(&mut scratch.command("receive log --lines"));
    let counting = Running::start(&mut scratch.command("receive log --lines --count 2"));
    scratch.await_waiters(2);
    let long = "x".repeat(200_000);
    let text = format!("first\n\nthird\r\n{long}\nno line end");
    let path = scratch.file(text.as_bytes());
    let mut sender = scratch.command("send log --lines --largest 200000");
    Running::start(sender.arg(path)).finish().expect_code(0);
    let receiver = receiver.finish();
    receiver.expect_code(0);
    assert_eq!(receiver.text(), format!("{text}\n"));
    let counting = counting.finish();
    counting.expect_code(0);
    assert_eq!(counting.text(), "first\n\n");
}

// Keeps P37.
#[test]
fn messages_are_prompt_and_a_killed_sender_is_told_from_the_end() {
    let scratch = Scratch::new("killed");
    let mut receiver = Running::start_unread(&mut scratch.command("receive log --lines"));
    let mut output = BufReader::new(receiver.child.stdout.take().unwrap());
    scratch.await_waiters(1);
    let mut sender = Running::start(
        scratch.command("send log --lines --wait-receivers 1").stdin(Stdio::piped()),
    );
    let mut input = sender.input();
    for text in ["one\n", "two\n", "three\n"] {
        input.write_all(text.as_bytes()).unwrap();
        // The next is written only when this one has come.
        assert_eq!(line(&mut output), text);
    }
    sender.child.kill().unwrap();
    assert_eq!(sender.finish().status.code(), None);
    let receiver = receiver.finish();
    receiver.expect_line(3, "died");
    assert_eq!(line(&mut output), "");
    drop(input);
}

#[test]
fn an_empty_input_ends_those_who_wait() {
    let scratch = Scratch::new("empty");
    let receiver = Running::start(&mut scratch.command("receive nothing"));
    scratch.await_waiters(1);
    scratch.run("send nothing").expect_code(0);
    let receiver = receiver.finish();
    receiver.expect_code(0);
    assert!(receiver.output.is_empty());
}

#[test]
fn an_input_that_fails_is_not_taken_for_the_end() {
    let scratch = Scratch::new("too-long");
    let receiver = Running::start(&mut scratch.command("receive log --lines"));
    scratch.await_waiters(1);
    let path = scratch.file(b"short\nfar too long\n");
    let mut sender = scratch.command("send log --lines --largest 5");
    Running::start(sender.arg(path)).finish().expect_line(2, "line 2 has more than 5 bytes");
    let receiver = receiver.finish();
    receiver.expect_line(3, "died");
    assert_eq!(receiver.text(), "short\n");
}

#[test]
fn a_reader_that_goes_ends_receive_quietly() {
    let scratch = Scratch::new("reader-goes");
    let mut receiver = Running::start_unread(&mut scratch.command("receive stream"));
    scratch.await_waiters(1);
    let mut sender = Running::start(scratch.command("send stream").stdin(Stdio::piped()));
    let mut input = sender.input();
    let mut output = receiver.child.stdout.take().unwrap();
    input.write_all(b"first").unwrap();
    let mut first = [0; 5];
    output.read_exact(&mut first).unwrap();
    drop(output);
    // More than once: a process that another test just starts has the pipe, too, for a moment.
    eventually(|| {
        input.write_all(b"more").unwrap();
        receiver.child.try_wait().unwrap().is_some()
    });
    let receiver = receiver.finish();
    receiver.expect_code(0);
    let place = scratch.runtime().display().to_string();
    assert_eq!(receiver.errors, format!("corewire: waiting for stream in {place}\n"));
    drop(input);
    sender.finish().expect_code(0);
}

#[test]
fn a_receiver_may_begin_with_the_oldest() {
    let scratch = Scratch::new("oldest");
    let mut sender = Running::start(scratch.command("send log --lines").stdin(Stdio::piped()));
    let mut input = sender.input();
    input.write_all(b"one\ntwo\n").unwrap();
    eventually(|| {
        let rows = scratch.run("ls --json").json();
        rows[0]["sent"] == 2
    });
    let receiver = scratch.run("receive log --lines --oldest --no-wait --count 2");
    receiver.expect_code(0);
    assert_eq!(receiver.text(), "one\ntwo\n");
    drop(input);
    sender.finish().expect_code(0);
}

#[test]
fn a_name_belongs_to_one_sender_at_a_time() {
    let scratch = Scratch::new("taken");
    let mut first = Running::start(scratch.command("send log").stdin(Stdio::piped()));
    let input = first.input();
    eventually(|| scratch.run("ls").text().contains("log"));
    scratch.run("send log").expect_line(1, "already exists");
    drop(input);
    first.finish().expect_code(0);
    scratch.run("receive log --no-wait").expect_line(1, "does not exist");
    scratch.run("send log").expect_code(0);
}

#[test]
fn a_channel_that_overwrites_says_what_was_missed() {
    let scratch = Scratch::new("overwrites");
    let lines: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
    let path = scratch.file(lines.as_bytes());
    let receiver = Running::start(&mut scratch.command("receive log --lines"));
    scratch.await_waiters(1);
    // It does not wait for those that are just joining.
    let mut sender = scratch.command("send log --lines --overwrite --wait-receivers 1");
    Running::start(sender.arg(path)).finish().expect_code(0);
    let receiver = receiver.finish();
    receiver.expect_code(0);
    let received = String::from_utf8(receiver.output).unwrap();
    let mut numbers = received.lines().map(|line| line[5..].parse::<u64>().unwrap());
    let last = numbers.by_ref().last();
    assert_eq!(last, Some(19_999));
    let missed = 20_000 - received.lines().count();
    let said = format!("{missed} messages were overwritten");
    assert!(missed == 0 || receiver.errors.contains(&said), "{}", receiver.errors);
}

#[test]
fn several_commands_send_on_one_channel_and_it_ends_with_the_last() {
    let scratch = Scratch::new("shared");
    let receiver = Running::start(&mut scratch.command("receive log --lines"));
    scratch.await_waiters(1);
    let start = || {
        let mut command = scratch.command("send log --lines --shared 4");
        let mut running = Running::start(command.stdin(Stdio::piped()));
        let input = running.input();
        (running, input)
    };
    let (first, mut first_input) = start();
    writeln!(first_input, "from the first").unwrap();
    let (second, mut second_input) = start();
    writeln!(second_input, "from the second").unwrap();
    eventually(|| scratch.run("ls --json").json()[0]["sent"] == 2);
    drop(first_input);
    first.finish().expect_code(0);
    writeln!(second_input, "and more").unwrap();
    drop(second_input);
    second.finish().expect_code(0);
    let receiver = receiver.finish();
    receiver.expect_code(0);
    let mut lines: Vec<_> = std::str::from_utf8(&receiver.output).unwrap().lines().collect();
    assert_eq!(lines.last(), Some(&"and more"));
    lines.sort_unstable();
    assert_eq!(lines, ["and more", "from the first", "from the second"]);
}

#[test]
fn on_two_levels_every_receiver_gets_every_line() {
    let scratch = Scratch::new("levels");
    let receivers: Vec<_> = [4_000_000, 4_000_000, 5_000_000]
        .map(|cache| format!("receive log --lines --cache-domain {cache}"))
        .iter()
        .map(|args| Running::start(&mut scratch.command(args)))
        .collect();
    scratch.await_waiters(3);
    let mut sender = Running::start(
        scratch.command("send log --lines --levels two --wait-receivers 3").stdin(Stdio::piped()),
    );
    let lines: String = (0..5000).map(|number| format!("line {number}\n")).collect();
    sender.input().write_all(lines.as_bytes()).unwrap();
    sender.finish().expect_code(0);
    for receiver in receivers {
        let done = receiver.finish();
        done.expect_code(0);
        assert_eq!(done.text(), lines);
    }
    scratch.run("send log --levels two --overwrite").expect_line(2, "two levels");
}

#[test]
fn send_says_how_many_messages_had_no_receiver() {
    let scratch = Scratch::new("unheard");
    let path = scratch.file(b"one\ntwo\nthree\n");
    for args in ["send log --lines", "send log --lines --shared 2"] {
        let done = Running::start(scratch.command(args).arg(&path)).finish();
        done.expect_line(0, "3 of 3 messages were sent while log had no receiver");
        assert!(done.errors.contains("--wait-receivers 1"), "{}", done.errors);
    }
    scratch.run("send log").expect_code(0);
    let receiver = Running::start(&mut scratch.command("receive log"));
    scratch.await_waiters(1);
    let done = Running::start(scratch.command("send log --lines").arg(&path)).finish();
    done.expect_code(0);
    assert_eq!(done.errors, "");
    receiver.finish().expect_code(0);

    // Some messages are sent before the first receiver joins.
    let (sender, mut input) = start_sender(&scratch, "send log --lines");
    input.write_all(b"unheard\n").unwrap();
    eventually(|| scratch.run("ls --json").json()[0]["sent"] == 1);
    let receiver = Running::start(&mut scratch.command("receive log --lines"));
    eventually(|| scratch.run("ls --json").json()[0]["receivers"] == 1);
    input.write_all(b"heard\n").unwrap();
    drop(input);
    sender.finish().expect_line(0, "1 of 2 messages");
    assert_eq!(receiver.finish().text(), "heard\n");
}

/// Is the signal ignored here, and so by the processes that are started here? A shell lets its background
/// jobs ignore INT, and `nohup` lets its command ignore HUP.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn a_signal_closes_the_channel_in_order() {
    let scratch = Scratch::new("signals");
    for (signal, args) in [
        (Signal::INT, "send log --lines"),
        (Signal::TERM, "send log --lines --shared 2"),
        (Signal::HUP, "send log --lines --wait-receivers 1"),
    ] {
        if is_ignored(signal) {
            println!("skipped: this process ignores {signal:?}");
            continue;
        }
        let mut receiver = Running::start_unread(&mut scratch.command("receive log --lines"));
        let mut output = BufReader::new(receiver.child.stdout.take().unwrap());
        scratch.await_waiters(1);
        let (sender, mut input) = start_sender(&scratch, args);
        input.write_all(b"one\nwithout an end").unwrap();
        assert_eq!(line(&mut output), "one\n");
        // It waits for input now.
        sender.signal(signal);
        let sender = sender.finish();
        assert_eq!(sender.status.signal(), Some(signal.as_raw()), "{}", sender.errors);
        assert_eq!(sender.errors, "");
        receiver.finish().expect_code(0);
        assert_eq!(line(&mut output), "");
        drop(input);
        let files = files_in(&scratch.runtime());
        let is_of_channel = |file: &String| file.starts_with("n.") || file.starts_with("m.");
        assert!(!files.iter().any(is_of_channel), "{files:?}");
    }
    // Before anything is sent.
    let (sender, input) = start_sender(&scratch, "send log --wait-receivers 1");
    eventually(|| scratch.run("ls").text().contains("log"));
    sender.signal(Signal::TERM);
    assert_eq!(sender.finish().status.signal(), Some(Signal::TERM.as_raw()));
    drop(input);
}

#[test]
fn a_signal_ends_a_sender_that_waits_for_room() {
    let scratch = Scratch::new("signal-full");
    // Nobody reads the receiver's output, so it soon receives no more.
    let receiver = Running::start_unread(&mut scratch.command("receive stream"));
    scratch.await_waiters(1);
    let sender =
        Running::start(scratch.command("send stream --chunk 4K /dev/zero").stdin(Stdio::null()));
    let sent = || scratch.run("ls --json").json()[0]["sent"].as_u64();
    let mut last = None;
    eventually(|| {
        let before = std::mem::replace(&mut last, sent());
        before.is_some_and(|sent| sent > 0) && before == last
    });
    sender.signal(Signal::TERM);
    assert_eq!(sender.finish().status.signal(), Some(Signal::TERM.as_raw()));
    receiver.finish().expect_code(0);
}

#[test]
fn a_second_signal_ends_a_sender_at_once() {
    let scratch = Scratch::new("signal-twice");
    let receiver = Running::start_unread(&mut scratch.command("receive stream"));
    scratch.await_waiters(1);
    let sender =
        Running::start(scratch.command("send stream --chunk 4K /dev/zero").stdin(Stdio::null()));
    let receivers = || scratch.run("ls --json").json()[0]["receivers"].as_u64();
    eventually(|| receivers() == Some(1));
    // A stopped receiver never makes room.
    receiver.stop();
    sender.signal(Signal::INT);
    sender.signal(Signal::TERM);
    let signal = sender.finish().status.signal();
    assert!([Signal::INT, Signal::TERM].map(Signal::as_raw).contains(&signal.unwrap()));
    receiver.signal(Signal::CONT);
    receiver.finish();
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let scratch = Scratch::new("nohup");
    let receiver = Running::start(&mut scratch.command("receive log --lines"));
    scratch.await_waiters(1);
    let send = scratch.command("send log --lines");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(send.get_program());
    command.args(send.get_args()).env("COREWIRE_RUNTIME_DIR", scratch.runtime());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut sender = Running::start(&mut command);
    let mut input = sender.input();
    input.write_all(b"one\n").unwrap();
    eventually(|| scratch.run("ls --json").json()[0]["sent"] == 1);
    sender.signal(Signal::HUP);
    input.write_all(b"two\n").unwrap();
    drop(input);
    sender.finish().expect_code(0);
    assert_eq!(receiver.finish().text(), "one\ntwo\n");
}

/// A sender that overwrites does not wait for a receiver that waits for the channel.
#[test]
fn a_receiver_that_comes_late_begins_with_the_oldest_message() {
    let scratch = Scratch::new("late");
    let receiver = Running::start(&mut scratch.command("receive log --lines"));
    scratch.await_waiters(1);
    receiver.stop();
    let (sender, mut input) = start_sender(&scratch, "send log --lines --overwrite");
    input.write_all(b"one\ntwo\n").unwrap();
    eventually(|| scratch.run("ls --json").json()[0]["sent"] == 2);
    receiver.signal(Signal::CONT);
    eventually(|| scratch.run("ls --json").json()[0]["receivers"] == 1);
    drop(input);
    sender.finish().expect_code(0);
    assert_eq!(receiver.finish().text(), "one\ntwo\n");
}

#[test]
fn a_receiver_that_follows_goes_on_with_each_next_sender() {
    let scratch = Scratch::new("follow");
    let mut receiver =
        Running::start_unread(&mut scratch.command("receive log --lines --follow --count 4"));
    let mut output = BufReader::new(receiver.child.stdout.take().unwrap());
    let send = |args: &str, text: &str, output: &mut BufReader<_>| {
        scratch.await_waiters(1);
        let (sender, mut input) = start_sender(&scratch, args);
        input.write_all(text.as_bytes()).unwrap();
        assert_eq!(line(output), text);
        (sender, input)
    };
    let (first, input) = send("send log --lines", "one\n", &mut output);
    drop(input);
    first.finish().expect_code(0);
    let (mut second, input) = send("send log --lines", "two\n", &mut output);
    second.child.kill().unwrap();
    second.finish();
    drop(input);
    let (third, input) = send("send log --lines --shared 3", "three\n", &mut output);
    third.signal(Signal::TERM);
    third.finish();
    drop(input);
    let overwriting = "send log --lines --overwrite --wait-receivers 1";
    let (fourth, input) = send(overwriting, "four\n", &mut output);
    let receiver = receiver.finish();
    receiver.expect_code(0);
    let place = scratch.runtime().display().to_string();
    let waiting = format!("waiting for log in {place}");
    let expected = [
        waiting.clone(),
        format!("log was closed; {waiting}"),
        "log begins again".into(),
        format!("the sender of log died; {waiting}"),
        "log begins again".into(),
        format!("log was closed; {waiting}"),
        "log begins again".into(),
    ];
    let said: Vec<_> =
        receiver.errors.lines().map(|line| line.strip_prefix("corewire: ").unwrap()).collect();
    assert_eq!(said, expected);
    drop(input);
    fourth.finish().expect_code(0);
}

#[test]
fn messages_of_any_bytes_pass_framed_and_ended_by_nul() {
    let scratch = Scratch::new("framed");
    let messages: [&[u8]; 4] = [b"a line\n", b"", b"\0\xff\0", &noise(200_000)];
    let frame = |message: &&[u8]| {
        let length = u32::try_from(message.len()).unwrap().to_le_bytes();
        [&length, *message].concat()
    };
    let framed: Vec<u8> = messages.iter().flat_map(frame).collect();
    let [in_frames, in_json] = ["receive any --framed", "receive any --json"]
        .map(|args| Running::start(&mut scratch.command(args)));
    scratch.await_waiters(2);
    let path = scratch.file(&framed);
    Running::start(scratch.command("send any --framed").arg(path)).finish().expect_code(0);
    let in_frames = in_frames.finish();
    in_frames.expect_code(0);
    assert!(in_frames.output == framed, "{} bytes came", in_frames.output.len());
    let in_json = in_json.finish();
    in_json.expect_code(0);
    let objects: Vec<serde_json::Value> =
        in_json.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), messages.len());
    for (number, (object, message)) in objects.iter().zip(messages).enumerate() {
        assert_eq!(object["sequence"], number);
        assert!(object["time_s"].as_f64().unwrap() > 1.7e9 && object["type"].is_null());
        let bytes = STANDARD.decode(object["bytes"].as_str().unwrap()).unwrap();
        assert!(bytes == message, "message {number}");
    }
    let help = scratch.run("receive --help");
    for key in objects[0].as_object().unwrap().keys() {
        assert!(help.text().contains(key.as_str()), "{key} is not in the help");
    }

    let zeroes = b"one\0two\nlines\0\0last\0";
    let receiver = Running::start(&mut scratch.command("receive any -0"));
    scratch.await_waiters(1);
    let path = scratch.file(zeroes);
    Running::start(scratch.command("send any --null").arg(path)).finish().expect_code(0);
    assert_eq!(receiver.finish().output, zeroes);
}

#[test]
fn a_frame_that_is_cut_off_is_not_taken_for_the_end() {
    let scratch = Scratch::new("cut-off");
    let receiver = Running::start(&mut scratch.command("receive any"));
    scratch.await_waiters(1);
    let path = scratch.file(b"\x02\0\0\0ok\x09\0\0\0cut");
    let done = Running::start(scratch.command("send any --framed").arg(path)).finish();
    done.expect_line(2, "ends within message 2: 7 of its 13 bytes");
    let receiver = receiver.finish();
    receiver.expect_line(3, "died");
    assert_eq!(receiver.text(), "ok");
}

#[corewire::message(name = "test.Tick.1")]
struct Tick {
    price: u64,
}

#[test]
fn a_channel_of_a_type_is_read_as_bytes() {
    let scratch = Scratch::new("typed");
    let domain = Domain::open_at(&scratch.runtime()).unwrap();
    let mut sender = domain.sender("ticks").typed::<Tick>().create().unwrap();
    let [raw, json] = ["receive ticks --count 1", "receive ticks --json --count 1"]
        .map(|args| Running::start(&mut scratch.command(args)));
    sender.wait_for_receivers(2).unwrap();
    sender.send(&Tick { price: 0x0102 }).unwrap();
    let raw = raw.finish();
    raw.expect_line(0, "ticks carries values of type test.Tick.1, 8 bytes each");
    assert_eq!(raw.output, [2, 1, 0, 0, 0, 0, 0, 0]);
    let found = json.finish().json();
    assert_eq!(found["bytes"], "AgEAAAAAAAA=");
    assert_eq!(found["type"], serde_json::json!({ "name": "test.Tick.1", "bytes": 8 }));
}
