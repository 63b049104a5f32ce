//! `send` and `receive`.

use std::io::{BufReader, Read, Write};
use std::process::Stdio;

use crate::scratch::{Running, Scratch, eventually, line, noise};

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
    // More than a pipe holds: the receiver is stuck while the sender comes and goes.
    let bytes = noise(400_000);
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
    input.write_all(b"second").unwrap();
    let receiver = receiver.finish();
    receiver.expect_code(0);
    assert_eq!(receiver.errors, "");
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
    let mut sender = scratch.command("send log --lines --overwrite");
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
