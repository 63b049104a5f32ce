//! Queues and last values.

use std::io::{BufReader, Write};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::scratch::{Running, Scratch, eventually, line};

// Keeps P243.
#[test]
fn each_job_of_a_queue_is_written_by_one_worker() {
    let scratch = Scratch::new("queue");
    let mut owner =
        Running::start(scratch.command("send jobs --queue --lines").stdin(Stdio::piped()));
    let workers =
        [(); 3].map(|()| Running::start(&mut scratch.command("receive jobs --queue --lines")));
    let mut input = owner.input();
    for job in 0..1000 {
        writeln!(input, "job {job}").unwrap();
    }
    // Another process adds some.
    eventually(|| scratch.run("ls").text().contains("jobs.queue "));
    let mut other =
        Running::start(scratch.command("send jobs --queue --lines").stdin(Stdio::piped()));
    let mut more = other.input();
    writeln!(more, "one more").unwrap();
    drop(more);
    let done = other.finish();
    done.expect_code(0);
    assert!(done.errors.contains("jobs exists: adding jobs to it"), "{}", done.errors);
    drop(input);
    owner.finish().expect_code(0);
    let mut lines = Vec::new();
    for worker in workers {
        let done = worker.finish();
        done.expect_code(0);
        lines.extend(done.text().lines().map(str::to_owned));
    }
    lines.sort_unstable();
    let mut expected: Vec<_> = (0..1000).map(|job| format!("job {job}")).collect();
    expected.push("one more".to_owned());
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

// Keeps P243.
#[test]
fn a_job_whose_worker_was_killed_goes_to_another_and_jobs_that_are_left_are_said() {
    let scratch = Scratch::new("queue-kill");
    let mut owner =
        scratch.command("send jobs --queue --lines").stdin(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(owner.stderr.take().unwrap());
    let mut input = owner.stdin.take().unwrap();
    writeln!(input, "first").unwrap();
    // It has the job, and cannot write it: its output is a pipe that is full.
    let mut held = scratch.command("receive jobs --queue --json");
    let (reader, writer) = std::io::pipe().unwrap();
    let full = [0; 1 << 16];
    (&writer).write_all(&full).unwrap();
    let held = Running::start_unread(held.stdout(writer));
    eventually(|| {
        let rows = scratch.run("ls --json").json();
        rows.as_array().unwrap().iter().any(|row| row["name"] == "jobs.queue" && row["peers"] == 1)
    });
    held.signal(Signal::KILL);
    held.finish();
    drop(reader);
    let next = scratch.run("receive jobs --queue --json --count 1");
    next.expect_code(0);
    assert_eq!(next.json()["sequence"], 0);
    writeln!(input, "second").unwrap();
    writeln!(input, "third").unwrap();
    drop(input);
    // Nobody does them.
    let waits = line(&mut errors);
    assert!(waits.contains("waiting: 2 jobs are not done, no worker has one"), "{waits}");
    assert!(waits.contains("corewire receive jobs --queue"), "{waits}");
    kill_process(Pid::from_child(&owner), Signal::TERM).unwrap();
    assert!(line(&mut errors).contains("2 jobs were not done"));
    owner.wait().unwrap();
    scratch.run("receive jobs --queue --no-wait").expect_line(1, "jobs");
    scratch.run("send jobs --queue --overwrite").expect_line(2, "--overwrite");
    scratch.run("send jobs --at-most-once").expect_line(2, "--queue");
}

// Keeps P242.
#[test]
fn the_last_value_stays_until_its_writer_ends() {
    let scratch = Scratch::new("latest");
    let mut writer = scratch.command("send config --latest --lines");
    let mut writer = writer.stdin(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(writer.stderr.take().unwrap());
    let reader = Running::start(&mut scratch.command("receive config --latest --lines"));
    let mut input = writer.stdin.take().unwrap();
    input.write_all(b"one\ntwo\nthree\n").unwrap();
    eventually(|| {
        let found = scratch.run("receive config --latest --count 1 --json").json();
        found["sequence"] == 2 && found["bytes"] == "dGhyZWU="
    });
    drop(input);
    let kept = line(&mut errors);
    assert!(kept.contains("config keeps its last value until a signal"), "{kept}");
    assert_eq!(scratch.run("receive config --latest --count 1 --lines").text(), "three\n");
    kill_process(Pid::from_child(&writer), Signal::TERM).unwrap();
    writer.wait().unwrap();
    let done = reader.finish();
    done.expect_code(0);
    assert!(done.text().ends_with("three\n") && !done.text().contains('\0'), "{}", done.text());
    let empty = Running::start(scratch.command("send config --latest").stdin(Stdio::null()));
    empty.finish().expect_line(1, "there is no value");
}

// Keeps P243.
#[test]
fn a_queue_does_what_it_has_accepted_though_its_input_fails_and_an_input_without_marks_is_one_job()
{
    let scratch = Scratch::new("queue-input");
    let mut owner = scratch.command("send jobs --queue --lines --largest 100");
    let mut owner = owner.stdin(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(owner.stderr.take().unwrap());
    let mut input = owner.stdin.take().unwrap();
    writeln!(input, "first").unwrap();
    eventually(|| scratch.run("ls").text().contains("jobs.queue "));
    let file = scratch.file(b"two\nlines");
    scratch.run(&format!("send jobs --queue {}", file.display())).expect_code(0);
    input.write_all(&[b'x'; 101]).unwrap();
    let failed = line(&mut errors);
    assert!(failed.contains("has more than 100 bytes"), "{failed}");
    // Others may still add some.
    scratch.run(&format!("send jobs --queue {}", file.display())).expect_code(0);
    let done = scratch.run("receive jobs --queue -0");
    done.expect_code(0);
    assert_eq!(done.text(), "first\0two\nlines\0two\nlines\0");
    assert_eq!(owner.wait().unwrap().code(), Some(2));
    // An endpoint is no queue.
    let serving = Running::start(&mut scratch.command("serve jobs -- cat"));
    eventually(|| scratch.run("ls").text().contains("jobs "));
    scratch.run("receive jobs --queue --no-wait").expect_line(1, "queue jobs does not exist");
    serving.signal(Signal::TERM);
    serving.finish();
}

// Keeps P242.
#[test]
fn an_input_without_marks_is_one_value_and_one_that_fails_is_no_end() {
    let scratch = Scratch::new("latest-input");
    let bytes = crate::scratch::noise(100_000);
    let file = scratch.file(&bytes);
    let writer =
        Running::start(&mut scratch.command(&format!("send config --latest {}", file.display())));
    eventually(|| scratch.run("ls").text().contains("config "));
    let found = scratch.run("receive config --latest --count 1");
    assert_eq!(found.output, bytes);
    writer.signal(Signal::TERM);
    writer.finish();
    let long = scratch.run(&format!("send config --latest --largest 99999 {}", file.display()));
    long.expect_line(2, "the input has more than 99999 bytes: raise --largest");
    let mut writer = scratch.command("send config --latest --lines --largest 10");
    let mut writer = Running::start(writer.stdin(Stdio::piped()));
    let mut input = writer.input();
    writeln!(input, "one").unwrap();
    let reader = Running::start(&mut scratch.command("receive config --latest --lines"));
    eventually(|| {
        let rows = scratch.run("ls --json").json();
        rows.as_array().unwrap().iter().any(|row| row["name"] == "config" && row["receivers"] == 1)
    });
    input.write_all(&[b'x'; 11]).unwrap();
    drop(input);
    writer.finish().expect_code(2);
    reader.finish().expect_code(3);
}
