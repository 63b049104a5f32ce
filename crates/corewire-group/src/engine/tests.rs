//! What a member makes of news that it hears late, and in another order than they happened.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::*;
use crate::group::Group;
use crate::member::View;
use crate::replica::Message;

const PATIENCE: Duration = Duration::from_secs(60);
/// Where a process of this test finds the group.
const DIRECTORY: &str = "COREWIRE_TEST_LATE_NEWS";
const THIS_TEST: &str = "engine::tests::a_successor_lives_whose_predecessor_is_heard_of_later";

/// A process of this test that is a member as long as its input is open.
struct Process(Child, BufReader<ChildStdout>);

impl Process {
    /// Waits until it is a member.
    fn start(directory: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", THIS_TEST, "--nocapture"]).env(DIRECTORY, directory);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("is a member") {
            assert!(output.read_line(&mut line).unwrap() > 0, "it becomes a member");
        }
        Self(child, output)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn end(mut self) {
        self.0.stdin.take();
        std::io::copy(&mut self.1, &mut std::io::sink()).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

/// An engine that does only what the test makes it do. It has become a member.
fn member_without_a_thread(domain: &Domain) -> Engine {
    let (place, name) = (3, "late");
    let endpoint = domain.endpoint(&name_of(name, place)).peers(16).create().unwrap();
    let me = Member::at(place, endpoint.incarnation());
    let sender = domain.sender(&channel_of(name)).open_shared(16).unwrap();
    let receiver = domain.receiver(&channel_of(name)).snapshots().join().unwrap();
    let (report, bell): (Arc<Tell>, _) = (Arc::new(|_: &str| {}), Arc::new(Bell::new().unwrap()));
    let mut engine =
        Engine::new(domain, name, me, endpoint, (sender, receiver), (None, report), bell);
    (0..place).for_each(|place| engine.ask(place));
    let began = Instant::now();
    while !engine.is_member() {
        assert!(began.elapsed() < PATIENCE, "it has become a member");
        engine.turn().unwrap();
        std::thread::yield_now();
    }
    engine
}

// Keeps P221.
#[test]
fn a_successor_lives_whose_predecessor_is_heard_of_later() {
    let join = |domain| Group::builder(domain, "late").join_timeout(PATIENCE).unwrap();
    if let Ok(directory) = std::env::var(DIRECTORY) {
        let _member = join(&Domain::open_at(directory.as_ref()).unwrap());
        println!("is a member");
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let path = std::env::temp_dir().join(format!("corewire-late-{}", std::process::id()));
    let domain = Domain::open_at(&path).unwrap();
    let others: Vec<Group> = (0..3).map(|_| join(&domain)).collect();
    let mut late = member_without_a_thread(&domain);

    // Both are linked with it and greet it. It hears first from another member that the second one is a member.
    let at_last_place = |view: &View| view.members.iter().find(|one| one.place == 4).copied();
    let directory = path.to_str().unwrap();
    let process = Process::start(directory);
    let predecessor = at_last_place(&others[0].wait_for_members(5, PATIENCE).unwrap()).unwrap();
    process.kill();
    let process = Process::start(directory);
    let began = Instant::now();
    let (successor, view) = loop {
        assert!(began.elapsed() < PATIENCE, "the others have taken it in");
        let view = others[0].view().unwrap();
        match at_last_place(&view) {
            Some(member) if member != predecessor => break (member, view),
            _ => std::thread::yield_now(),
        }
    };
    late.handle(Input::Message(view.leader, Message::Decided(Box::new(view))));
    let has_greeted = |late: &Engine, member| late.links.get(&member).is_some_and(|it| it.has_been);
    while !has_greeted(&late, successor) || late.lives(predecessor) {
        assert!(began.elapsed() < PATIENCE, "the successor greets, and its predecessor has ended");
        let _ = (late.poll_endpoint().unwrap(), late.take_answers().unwrap());
    }
    assert!(late.lives(successor));

    // One that it never was linked with: who is there now tells.
    let unmet = Member { life: !successor.life, ..successor };
    late.links.insert(unmet, MemberLink::new(&late.buffers));
    late.ask_if_unlinked(unmet.place);
    while late.lives(unmet) {
        assert!(began.elapsed() < PATIENCE, "the one that it never met has ended");
        late.take_answers().unwrap();
    }
    assert!(late.lives(successor) && !late.asking.contains_key(&unmet.place));

    // Nobody is left out.
    let _ = late.turn().unwrap();
    others[0].submit(b"one").unwrap();
    others[0].flush(PATIENCE).unwrap();
    assert!(others[0].view().unwrap().has(successor));
    process.end();
    drop((late, others, domain));
    let _ = std::fs::remove_dir_all(path);
}
