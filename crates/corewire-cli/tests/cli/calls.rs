//! `serve` and `call`.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use crate::scratch::{Finished, Running, Scratch, eventually, noise};

fn serve(scratch: &Scratch, args: &str, command: &[&str]) -> Running {
    Running::start_unread(scratch.command(&format!("serve {args} --")).args(command))
}

fn start_call(scratch: &Scratch, args: &str, request: &[u8]) -> Running {
    let mut command = scratch.command(&format!("call {args}"));
    let mut running = Running::start(command.stdin(Stdio::piped()));
    running.input().write_all(request).unwrap();
    running
}

fn call(scratch: &Scratch, args: &str, request: &[u8]) -> Finished {
    start_call(scratch, args, request).finish()
}

/// A pipe in the file system, from which `cat` reads.
fn pipe(scratch: &Scratch) -> PathBuf {
    let path = scratch.temporary().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    path
}

/// Ends a server by a signal.
fn end(server: Running) -> Finished {
    server.signal(Signal::TERM);
    let server = server.finish();
    assert_eq!(server.status.signal(), Some(15), "{}", server.errors);
    server
}

// Keeps P105.
#[test]
fn each_request_is_the_input_of_a_command_whose_output_is_the_reply() {
    let scratch = Scratch::new("serve");
    // The first call waits for the server.
    let first = start_call(&scratch, "echo", b"early");
    let server = serve(&scratch, "echo", &["cat"]);
    assert_eq!(first.finish().output, b"early");
    for bytes in [0, 1, 100, 5000, 3_000_000] {
        let request = noise(bytes);
        let reply = call(&scratch, "echo", &request);
        reply.expect_code(0);
        assert!(reply.output == request, "{} of {bytes} bytes came", reply.output.len());
    }
    let calls: Vec<_> = (0..20).map(|n| start_call(&scratch, "echo", &[n; 100])).collect();
    for (number, reply) in (0..20).zip(calls) {
        assert_eq!(reply.finish().output, [number; 100]);
    }
    assert_eq!(end(server).errors, "");
    // One that reads nothing, and asks who called.
    let server = serve(&scratch, "who", &["sh", "-c", "echo $COREWIRE_PEER"]);
    let reply = call(&scratch, "who", &noise(1_000_000));
    assert!(reply.text().starts_with("call-"), "{:?}", reply.output);
    end(server);
}

// Keeps P105.
#[test]
fn a_command_that_fails_ends_its_call_with_an_error() {
    let scratch = Scratch::new("serve-fails");
    let server = serve(&scratch, "bad", &["sh", "-c", "echo half; exit 7"]);
    let failed = call(&scratch, "bad", b"x");
    failed.expect_line(1, "bad dropped the request without a reply");
    assert_eq!(failed.output, b"");
    let server = end(server);
    assert!(server.errors.contains("sh for a request of call-"), "{}", server.errors);
    assert!(server.errors.contains("exit status: 7"), "{}", server.errors);
    scratch.run("serve none -- /no/such/program").expect_line(2, "no program /no/such/program");
    let text = scratch.file(b"text");
    scratch.run(&format!("serve none -- {}", text.display())).expect_line(2, "no program");
    scratch.run("serve none -- no-such-program").expect_line(2, "no program no-such-program");
    scratch.run("serve none --jobs 0 -- cat").expect_line(2, "1..=1024");
    scratch.run("call none --no-wait").expect_line(1, "endpoint none does not exist");
    scratch.run("call none --timeout 0").expect_line(2, "0.001");
}

// Keeps P105.
#[test]
fn a_slow_command_holds_up_no_other_call_and_is_waited_for_at_the_end() {
    let scratch = Scratch::new("serve-slow");
    let pipe = pipe(&scratch);
    let script = format!("read -r word; test $word != slow || cat {}; echo $word", pipe.display());
    let server = serve(&scratch, "words --jobs 2", &["sh", "-c", &script]);
    let slow = start_call(&scratch, "words", b"slow\n");
    // When the pipe has a reader, the slow command runs.
    let writer = File::options().write(true).open(&pipe).unwrap();
    assert_eq!(call(&scratch, "words", b"fast\n").text(), "fast\n");
    assert_eq!(call(&scratch, "words", b"fast\n").text(), "fast\n");
    server.signal(Signal::TERM);
    drop(writer);
    assert_eq!(slow.finish().text(), "slow\n");
    let server = server.finish();
    assert_eq!(server.status.signal(), Some(15), "{}", server.errors);
}

#[test]
fn a_call_ends_when_its_time_has_passed() {
    let scratch = Scratch::new("serve-late");
    let pipe = pipe(&scratch);
    let server = serve(&scratch, "late", &["cat", &pipe.to_string_lossy()]);
    let late = call(&scratch, "late --timeout 0.05", b"x");
    late.expect_line(1, "no reply of late within 0.05 s");
    // Nobody waits for the command any more.
    end(server);
    // One that does not exist replies as little.
    call(&scratch, "nobody --timeout 0.05", b"x").expect_line(1, "no reply of nobody within");
}

#[test]
fn replies_that_are_owed_are_sent_before_the_end() {
    let scratch = Scratch::new("serve-flushes");
    let pipe = pipe(&scratch);
    let script = format!("cat {}; head -c 5000000 /dev/zero", pipe.display());
    let server = serve(&scratch, "zeroes", &["sh", "-c", &script]);
    let waiting = start_call(&scratch, "zeroes", b"x");
    // When the pipe has a reader, the command runs.
    let writer = File::options().write(true).open(&pipe).unwrap();
    server.signal(Signal::TERM);
    drop(writer);
    let reply = waiting.finish();
    reply.expect_code(0);
    assert!(reply.output == vec![0; 5_000_000], "{} bytes came", reply.output.len());
    assert_eq!(server.finish().status.signal(), Some(15));
}

#[test]
fn a_call_learns_that_its_server_died() {
    let scratch = Scratch::new("serve-dies");
    let pipe = pipe(&scratch);
    let path = pipe.to_string_lossy();
    let server = serve(&scratch, "mortal", &["sh", "-c", &format!("echo begun >&2; cat {path}")]);
    let waiting = start_call(&scratch, "mortal", b"x");
    // When the pipe has a reader, the request has arrived.
    let writer = File::options().write(true).open(&pipe).unwrap();
    server.signal(Signal::KILL);
    waiting.finish().expect_line(3, "mortal died before it replied");
    drop(writer);
    server.finish();
}

#[test]
fn messages_that_are_no_requests_do_not_end_serve() {
    let scratch = Scratch::new("serve-messages");
    let pipe = pipe(&scratch);
    let server = serve(&scratch, "calm --jobs 1", &["cat", &pipe.to_string_lossy()]);
    let waiting = start_call(&scratch, "calm", b"x");
    // The only job is taken when the pipe has a reader.
    let mut writer = File::options().write(true).open(&pipe).unwrap();
    let domain = corewire::Domain::open_at(&scratch.runtime()).unwrap();
    let mut other = domain.endpoint("other").create().unwrap();
    let peer = other.peer("calm").unwrap();
    for tag in [0, u64::MAX] {
        other.send(peer, tag, b"no request").unwrap();
    }
    // They come before this request, which waits for the job.
    let next = start_call(&scratch, "calm", b"y");
    writer.write_all(b"done").unwrap();
    drop(writer);
    assert_eq!(waiting.finish().text(), "done");
    drop(File::options().write(true).open(&pipe).unwrap());
    next.finish().expect_code(0);
    end(server);
}

/// Waits until no process holds the other end of a pipe that is open for writing.
fn await_reader_gone(writer: &mut File) {
    eventually(|| writer.write_all(b"\n").is_err());
}

// Keeps P226.
#[test]
fn a_command_that_goes_too_far_is_ended_with_all_that_it_has_started() {
    let scratch = Scratch::new("serve-limits");
    let pids = scratch.temporary().join("pids");
    let other = format!("sleep 1000 & echo $! >>{}", pids.display());
    let script = format!(
        "read -r word; case $word in late) {other}; wait;; long) {other}; yes;; *) echo $word;; esac"
    );
    let late = serve(&scratch, "late --timeout 0.5", &["sh", "-c", &script]);
    call(&scratch, "late", b"late\n").expect_line(1, "late dropped the request without a reply");
    let far = serve(&scratch, "far --largest 100K", &["sh", "-c", &script]);
    call(&scratch, "far", b"long\n").expect_line(1, "far dropped the request without a reply");
    // A command that had no time to say which process it has started has started none.
    let is_there = |pid: &str| std::path::Path::new("/proc").join(pid).join("exe").exists();
    eventually(|| !std::fs::read_to_string(&pids).unwrap_or_default().lines().any(is_there));
    let long = call(&scratch, "far", &noise(102_401));
    long.expect_line(1, "far dropped the request without a reply");
    assert_eq!(call(&scratch, "far", b"fine\n").text(), "fine\n");
    let said = end(late).errors;
    assert!(said.contains("ended after 0.5 s (--timeout)"), "{said}");
    let said = end(far).errors;
    assert!(said.contains("ended: its reply is longer than 100 KiB (--largest)"), "{said}");
    assert!(said.contains("are more than 100 KiB (--largest); not run"), "{said}");
    scratch.run("serve none --timeout 0 -- cat").expect_line(2, "0.001");
    scratch.run("serve none --largest 1T -- cat").expect_line(2, "unknown unit");
}

// Keeps P226.
#[test]
fn a_command_ends_whose_caller_has_gone() {
    let scratch = Scratch::new("serve-gone");
    let pipe = pipe(&scratch);
    let script = format!("read -r word; test $word = short || cat {}; echo", pipe.display());
    let server = serve(&scratch, "gone --jobs 1", &["sh", "-c", &script]);
    for signal in [Signal::KILL, Signal::TERM] {
        let waiting = start_call(&scratch, "gone", b"long\n");
        let mut writer = File::options().write(true).open(&pipe).unwrap();
        // These wait: the only job is taken. The second one has gone before its turn.
        let next = start_call(&scratch, "gone", b"short\n");
        let second = start_call(&scratch, "gone", b"long\n");
        second.signal(signal);
        second.finish();
        waiting.signal(signal);
        waiting.finish();
        await_reader_gone(&mut writer);
        assert_eq!(next.finish().text(), "\n");
    }
    let said = end(server).errors;
    assert_eq!(said.matches("ended: its caller has gone").count(), 2, "{said}");
}
