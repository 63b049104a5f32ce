//! `log`, and groups in `ls`, `top` and `metrics`.

use std::io::{BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::scratch::{Running, Scratch, eventually, line};

/// A member that stays.
fn stay(scratch: &Scratch) -> Running {
    let before = members(scratch).len();
    let member = Running::start(&mut scratch.command("log orders --stay"));
    eventually(|| members(scratch).len() > before);
    member
}

/// Those that answer.
fn members(scratch: &Scratch) -> Vec<Value> {
    let all = scratch.run("ls --json").json();
    let is_member = |row: &&Value| row["kind"] == "member" && row["view"].is_u64();
    all.as_array().unwrap().iter().filter(is_member).cloned().collect()
}

/// A member that proposes these lines and leaves. Returns what it has printed.
fn propose(scratch: &Scratch, lines: &str) -> String {
    let mut running = Running::start(scratch.command("log orders").stdin(Stdio::piped()));
    running.input().write_all(lines.as_bytes()).unwrap();
    let done = running.finish();
    done.expect_code(0);
    done.text().to_owned()
}

#[test]
fn lines_are_decided_at_the_same_index_for_all() {
    let scratch = Scratch::new("log-lines");
    let mut staying = vec![stay(&scratch), stay(&scratch), stay(&scratch)];
    assert_eq!(propose(&scratch, "one\ntwo\n"), "one\ntwo\n");
    assert_eq!(propose(&scratch, "three"), "one\ntwo\nthree\n");

    // The first one leads.
    let first = staying.remove(0);
    first.signal(Signal::KILL);
    first.finish();
    assert_eq!(propose(&scratch, "four\n"), "one\ntwo\nthree\nfour\n");
    let from = scratch.run("log orders --from 2 --json");
    from.expect_code(0);
    let keys = |line: &str| {
        let entry: Value = serde_json::from_str(line).unwrap();
        (entry["index"].as_u64().unwrap(), entry["number"].as_u64().unwrap())
    };
    assert_eq!(from.text().lines().map(keys).collect::<Vec<_>>(), [(2, 1), (3, 1)]);
    for member in staying {
        member.signal(Signal::TERM);
        let done = member.finish();
        assert_eq!(done.text(), "one\ntwo\nthree\nfour\n", "{}", done.errors);
    }
}

// Keeps P207.
// Keeps P245.
#[test]
fn clients_append_and_follow() {
    let scratch = Scratch::new("log-clients");
    let none = scratch.run("log orders --append --timeout 0");
    none.expect_code(1);
    assert_eq!(none.errors, "corewire: no member of group orders has answered within 0ns\n");
    let member = stay(&scratch);
    let mut follower =
        scratch.command("log orders --follow --json").stdout(Stdio::piped()).spawn().unwrap();
    let mut followed = BufReader::new(follower.stdout.take().unwrap());
    let mut appends = Running::start(scratch.command("log orders --append").stdin(Stdio::piped()));
    appends.input().write_all(b"one\ntwo").unwrap();
    let done = appends.finish();
    done.expect_code(0);
    assert_eq!(done.text(), "");
    assert_eq!(propose(&scratch, "three"), "one\ntwo\nthree\n");
    let entries = [(); 3].map(|()| serde_json::from_str::<Value>(&line(&mut followed)).unwrap());
    follower.kill().unwrap();
    follower.wait().unwrap();
    let texts: Vec<_> = entries.iter().map(|entry| entry["bytes"].as_str().unwrap()).collect();
    assert_eq!(texts, ["b25l", "dHdv", "dGhyZWU="]);
    assert_eq!(entries[0]["client"].as_str().unwrap().len(), 16);
    assert_eq!((&entries[0]["member"], &entries[2]["client"]), (&Value::Null, &Value::Null));
    assert_eq!(members(&scratch).len(), 1);
    member.signal(Signal::TERM);
    member.finish();
}

#[test]
fn a_member_says_when_its_group_has_lost_its_majority() {
    let scratch = Scratch::new("log-lost");
    let (first, second) = (stay(&scratch), stay(&scratch));
    first.signal(Signal::KILL);
    first.finish();
    let second = second.finish();
    second.expect_line(1, "has lost its majority: of 2 members these have ended: 0");
}

#[test]
fn a_newcomer_says_who_does_not_answer_and_ends_in_time() {
    let scratch = Scratch::new("log-silent");
    // The first one lets others in, the second one leads.
    let members = [stay(&scratch), stay(&scratch)];
    let silent = [format!("process {} does not answer", members[0].id()), "answer: 1".to_owned()];
    for (member, silent) in members.iter().zip(silent) {
        member.stop();
        let refused = scratch.run("log orders --timeout 2");
        member.signal(Signal::CONT);
        refused.expect_code(1);
        assert_eq!(refused.errors.matches(&silent).count(), 2, "{}", refused.errors);
        assert!(refused.errors.contains("waiting: "), "{}", refused.errors);
        assert!(refused.errors.contains("within 2s"), "{}", refused.errors);
    }
    for member in members {
        member.signal(Signal::TERM);
        member.finish();
    }
}

#[test]
fn lines_that_are_not_decided_end_in_time_while_the_input_is_open() {
    let scratch = Scratch::new("log-open-input");
    let others = [stay(&scratch), stay(&scratch)];
    let mut running =
        Running::start(scratch.command("log orders --timeout 2").stdin(Stdio::piped()));
    let mut input = running.input();
    // No line is waited for.
    std::thread::park_timeout(Duration::from_millis(2500));
    input.write_all(b"one\n").unwrap();
    eventually(|| members(&scratch).iter().filter(|one| one["decided"] == 1).count() == 3);
    others.iter().for_each(|other| other.stop());
    let began = Instant::now();
    input.write_all(b"two\n").unwrap();
    let done = running.finish();
    others.iter().for_each(|other| other.signal(Signal::CONT));
    assert!(began.elapsed() >= Duration::from_secs(2));
    done.expect_code(1);
    let silent = "the members at these places do not answer: 0, 1";
    let errors = &done.errors;
    assert!(errors.contains(&format!("waiting: lines are not decided: {silent}")), "{errors}");
    assert!(errors.contains(&format!("no line was decided within 2s: {silent}")), "{errors}");
    assert!(errors.contains("1 of 2 lines that were read are known to be decided"), "{errors}");
    drop(input);
    for other in others {
        other.signal(Signal::TERM);
        other.finish();
    }
}

// Keeps P239.
#[test]
fn members_that_died_are_counted_and_receive_no_longer() {
    let scratch = Scratch::new("log-deaths");
    let staying = [stay(&scratch), stay(&scratch), stay(&scratch)];
    for died in 1..=3 {
        let killed = stay(&scratch);
        killed.signal(Signal::KILL);
        killed.finish();
        let metrics = scratch.run("metrics").text().to_owned();
        for (name, count) in [("deaths_total", died), ("receivers", 3), ("senders", 3)] {
            let line = format!("corewire_{name}{{channel=\"orders.log\"}} {count}\n");
            assert!(metrics.contains(&line), "{line}{metrics}");
        }
    }
    for member in staying {
        member.signal(Signal::TERM);
        member.finish();
    }
}

#[test]
fn ls_shows_the_members_with_their_roles() {
    let scratch = Scratch::new("log-ls");
    let staying = [stay(&scratch), stay(&scratch), stay(&scratch)];
    propose(&scratch, "one\n");
    eventually(|| members(&scratch).iter().all(|one| one["decided"] == 1 && one["members"] == 3));
    let count = |role: &str| members(&scratch).iter().filter(|one| one[role] == true).count();
    assert_eq!((count("leads"), count("accepts")), (1, 1));
    let text = scratch.run("ls").text().to_owned();
    let title = text.lines().find(|line| line.starts_with("group ")).unwrap();
    let words: Vec<_> = title.split_whitespace().collect();
    assert_eq!(words, ["group", "member", "pid", "role", "view", "decided", "behind", "undecided"]);
    let top = scratch.run("top --once --json --interval 0.05 --filter orders").json();
    let [group] = &top["groups"].as_array().unwrap()[..] else { panic!("{top}") };
    assert_eq!((&group["group"], &group["decided"]), (&"orders".into(), &1.into()));
    assert_eq!(group["members"].as_array().unwrap().len(), 3);
    let leads = |member: &&Value| member["leads"] == true;
    assert_eq!(group["members"].as_array().unwrap().iter().filter(leads).count(), 1);
    let top = scratch.run("top --once --interval 0.05 --filter orders").text().to_owned();
    assert!(top.lines().any(|line| line.starts_with("group orders, view ")), "{top}");
    assert!(top.lines().any(|line| line.starts_with("  member 2")), "{top}");
    let metrics = scratch.run("metrics").text().to_owned();
    let of = |name: &str| {
        let lines = metrics.lines().filter_map(|line| line.strip_prefix(name));
        let lines = lines.filter(|line| line.starts_with("{group=\"orders\",member="));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    assert_eq!((of("corewire_group_decided_total"), of("corewire_group_leads")), (3, 1));
    for member in staying {
        member.signal(Signal::TERM);
        member.finish();
    }
}

#[test]
fn a_file_outlives_all_members() {
    let scratch = Scratch::new("log-file");
    let file = scratch.temporary().join("log").display().to_string();
    let run = |input: &str| {
        let mut running = Running::start(
            scratch.command(&format!("log orders --file {file}")).stdin(Stdio::piped()),
        );
        running.input().write_all(input.as_bytes()).unwrap();
        running.finish()
    };
    run("one\ntwo\n").expect_code(0);
    let all = run("three\n");
    assert_eq!(all.text(), "one\ntwo\nthree\n", "{}", all.errors);
    // What is torn is cut and kept, and said; what is damaged is left, and what can be read is copied.
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, [&whole[..], b"torn"].concat()).unwrap();
    let all = run("");
    assert_eq!(all.text(), "one\ntwo\nthree\n", "{}", all.errors);
    assert!(all.errors.contains("cut 4 bytes off"), "{}", all.errors);
    assert_eq!(std::fs::read(format!("{file}.cut-1")).unwrap(), b"torn");
    let mut damaged = whole.clone();
    damaged[8192 + 30] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    run("four\n").expect_line(1, "is damaged at byte 8192");
    let copied = scratch.run(&format!("log orders --file {file} --salvage {file}.new"));
    copied.expect_code(0);
    assert!(copied.errors.contains("2 entries copied"), "{}", copied.errors);
    assert!(copied.errors.contains("missing: the entries of index 0 to 0"), "{}", copied.errors);
    assert_eq!(std::fs::read(&file).unwrap(), damaged);
    std::fs::write(&file, "").unwrap();
    run("four\n").expect_line(1, "is empty");
    std::fs::write(&file, "a letter").unwrap();
    run("four\n").expect_line(1, "is not the file of a log");
    scratch.run("log orders --file no/such/file").expect_line(1, "cannot find the directory of");
    let member = stay(&scratch);
    run("four\n").expect_line(1, "has its log in memory only, not in");
    member.signal(Signal::TERM);
    member.finish();
}

#[test]
fn a_file_in_use_is_said_and_is_an_error_in_time() {
    let (scratch, other) = (Scratch::new("log-in-use"), Scratch::new("log-in-use-too"));
    let file = scratch.temporary().join("log").display().to_string();
    let command = format!("log orders --file {file} --stay --timeout 3");
    let first = Running::start(scratch.command(&command).stdin(Stdio::null()));
    while !std::path::Path::new(&file).exists() {
        std::thread::yield_now();
    }
    let refused = other.run(&command);
    refused.expect_code(1);
    assert_eq!(refused.errors.matches("another process has").count(), 2, "{}", refused.errors);
    assert!(refused.errors.contains("waiting: "), "{}", refused.errors);
    first.signal(Signal::TERM);
    first.finish();
}

#[test]
fn mistakes_are_named() {
    let scratch = Scratch::new("log-mistakes");
    scratch.run("log a/b").expect_line(2, "a/b");
    scratch.run("log orders /no/such/file").expect_line(2, "/no/such/file");
    let mut running =
        Running::start(scratch.command("log orders --largest 8").stdin(Stdio::piped()));
    running.input().write_all(b"far too long\n").unwrap();
    running.finish().expect_line(2, "line 1 has more than 8 bytes");
}
