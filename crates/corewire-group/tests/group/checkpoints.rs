//! Checkpoints of a parallel computation whose processes are killed.
//!
//! Four processes send each other numbered messages at random, and check that each number comes once and in order, across
//! all kills. `COREWIRE_TORTURE_RESTORES` sets how often somebody is killed and all go on from a common state (default:
//! 20), `COREWIRE_SEED` the seed. A process of this program is a rank if `COREWIRE_TORTURE_RANK` says so.
//!
//! Every test here keeps P210.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, exit};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::given::{Random, given};
use corewire::Domain;
use corewire_group::{Computation, ComputationBuilder, ComputationError, Gathered};
use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything takes on a crowded machine; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(60);
const RANKS: usize = 4;
const RANK: &str = "COREWIRE_TORTURE_RANK";
const DIRECTORY: &str = "COREWIRE_TORTURE_DIRECTORY";

/// A domain of its own, and a directory in it for checkpoints, which go with it.
struct Scratch(PathBuf, Domain);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corewire-{test}-{}", std::process::id()));
        let domain = Domain::open_at(&path).unwrap();
        Self(path, domain)
    }

    fn builder(&self, rank: usize, ranks: usize) -> ComputationBuilder {
        let files = self.0.join("checkpoints");
        Computation::builder(&self.1, "test", files, rank, ranks).timeout(PATIENCE)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a rank has done: how many messages it has sent to each other one, and received.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Counts {
    steps: u64,
    sent: [u64; RANKS],
    received: [u64; RANKS],
}

impl Counts {
    fn decode(bytes: &[u8]) -> Self {
        let mut words = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let mut word = || words.next().unwrap();
        Self { steps: word(), sent: [(); 4].map(|()| word()), received: [(); 4].map(|()| word()) }
    }

    fn encode(&self) -> Vec<u8> {
        let words = [self.steps].into_iter().chain(self.sent).chain(self.received);
        words.flat_map(u64::to_le_bytes).collect()
    }
}

/// Whether states belong together: nothing was received that was not sent.
fn is_consistent(counts: &[Counts]) -> bool {
    let pairs = (0..RANKS).flat_map(|from| (0..RANKS).map(move |to| (from, to)));
    pairs.into_iter().all(|(from, to)| counts[to].received[from] <= counts[from].sent[to])
}

/// A message of this number: as long as it likes to be.
fn message(number: u64) -> Vec<u8> {
    let length = if number.is_multiple_of(50) { 40_000 } else { 8 + number % 200 };
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(usize::try_from(length).unwrap(), u8::try_from(number % 251).unwrap());
    bytes
}

/// A rank: writes `R steps counts` when it has restored a state, and `S steps` now and then.
fn be_rank(directory: &Path, rank: usize, seed: u64) -> ! {
    let domain = Domain::open_at(directory).unwrap();
    let mut random = Random(seed);
    loop {
        match work(&domain, directory, rank, &mut random) {
            ComputationError::Ended { .. } => {}
            error => {
                eprintln!("bad: rank {rank}: {error}");
                exit(1);
            }
        }
    }
}

fn work(domain: &Domain, directory: &Path, rank: usize, random: &mut Random) -> ComputationError {
    let files = directory.join("checkpoints");
    let builder = Computation::builder(domain, "test", files, rank, RANKS).timeout(PATIENCE);
    // Each has another idea of when to take one.
    let builder = builder.every(Duration::from_millis(3 + rank as u64));
    let (mut all, restored) = match builder.join() {
        Ok(joined) => joined,
        Err(error) => return error,
    };
    let mut counts = restored.map_or(Counts::decode(&[0; 72]), |bytes| Counts::decode(&bytes));
    println!("R {rank} {} {:?} {:?}", counts.steps, counts.sent, counts.received);
    loop {
        if let Err(error) = step(&mut all, &mut counts, random) {
            return error;
        }
        if counts.steps.is_multiple_of(100) {
            println!("S {rank} {}", counts.steps);
        }
    }
}

fn step(
    all: &mut Computation,
    counts: &mut Counts,
    random: &mut Random,
) -> Result<(), ComputationError> {
    counts.steps += 1;
    let mut to = || (all.rank() + 1 + usize::try_from(random.below(3)).unwrap()) % RANKS;
    for to in [to(), to()] {
        all.send(to, &message(counts.sent[to] + 1))?;
        counts.sent[to] += 1;
    }
    while let Some(received) = all.receive_any_timeout(Duration::ZERO, || counts.encode())? {
        let number = counts.received[received.from()] + 1;
        assert!(*received == message(number)[..], "{number} is due of {}", received.from());
        counts.received[received.from()] = number;
    }
    if all.rank() == 0 && random.below(500) == 0 {
        let Gathered { number, states } = all.gather(|| counts.encode())?;
        let states: Vec<Counts> = states.iter().map(|state| Counts::decode(state)).collect();
        assert!(is_consistent(&states), "{number}: {states:?}");
    }
    all.checkpoint_if_due(|| counts.encode())?;
    // Four of these on two processors: none should be far ahead.
    std::thread::yield_now();
    Ok(())
}

/// What a rank has written.
enum Line {
    Restored(Counts),
    Steps(u64),
}

/// Which rank has written what.
type Said = (usize, Line);

fn parse(line: &str) -> Option<Said> {
    let (kind, rest) = line.split_once(' ')?;
    let numbers: Vec<u64> = rest
        .split(|one: char| !one.is_ascii_digit())
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().unwrap())
        .collect();
    let rank = usize::try_from(*numbers.first()?).ok()?;
    match kind {
        "R" => Some((
            rank,
            Line::Restored(Counts {
                steps: numbers[1],
                sent: numbers[2..6].try_into().unwrap(),
                received: numbers[6..10].try_into().unwrap(),
            }),
        )),
        "S" => Some((rank, Line::Steps(numbers[1]))),
        _ => None,
    }
}

struct Scene {
    scratch: Scratch,
    seed: u64,
    children: Vec<Child>,
    lines: (Sender<Said>, Receiver<Said>),
    /// The states that were restored last.
    restored: Vec<Option<Counts>>,
    steps: Vec<u64>,
}

impl Scene {
    fn spawn(&mut self, rank: usize) -> Child {
        self.seed += 1;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "checkpoints::a_computation_survives_kills", "--nocapture"]);
        command.env(RANK, format!("{rank} {}", self.seed)).env(DIRECTORY, &self.scratch.0);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let lines = self.lines.0.clone();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(line) = parse(&line) {
                    let _ = lines.send(line);
                }
            }
        });
        child
    }

    fn wait_for(&mut self, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(
                Instant::now() < until,
                "nothing goes on: {:?} {:?}",
                self.restored,
                self.steps
            );
            match self.lines.1.recv_timeout(Duration::from_millis(100)) {
                Ok((rank, Line::Restored(counts))) => self.restored[rank] = Some(counts),
                Ok((rank, Line::Steps(steps))) => self.steps[rank] = steps,
                Err(_) => {}
            }
            for (rank, child) in self.children.iter_mut().enumerate() {
                let ended = child.try_wait().unwrap();
                assert!(ended.is_none(), "rank {rank} has ended: {ended:?}");
            }
        }
    }

    /// Kills some at once, and waits until all have gone on from states that belong together.
    fn kill(&mut self, random: &mut Random) {
        let first = usize::try_from(random.below(RANKS as u64)).unwrap();
        let count =
            if random.below(4) == 0 { RANKS } else { 1 + usize::from(random.below(4) == 0) };
        let victims: Vec<usize> = (0..count).map(|more| (first + more) % RANKS).collect();
        self.restored.fill(None);
        victims.iter().for_each(|rank| self.children[*rank].kill().unwrap());
        victims.iter().for_each(|rank| _ = self.children[*rank].wait().unwrap());
        for rank in victims {
            self.children[rank] = self.spawn(rank);
        }
        // Now and then one that has hardly begun.
        if random.below(4) == 0 {
            self.children[first].kill().unwrap();
            self.children[first].wait().unwrap();
            self.children[first] = self.spawn(first);
        }
        self.wait_for(|scene| scene.restored.iter().all(Option::is_some));
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.children.iter_mut().for_each(|child| _ = child.kill());
        self.children.iter_mut().for_each(|child| _ = child.wait());
    }
}

#[test]
fn a_computation_survives_kills() {
    if let Ok(rank) = std::env::var(RANK) {
        let (rank, seed) = rank.split_once(' ').unwrap();
        let directory = std::env::var(DIRECTORY).unwrap();
        be_rank(Path::new(&directory), rank.parse().unwrap(), seed.parse().unwrap());
    }
    let restores = given("COREWIRE_TORTURE_RESTORES", 20);
    let seed = given("COREWIRE_SEED", u64::from(std::process::id()) << 20 | 1);
    println!("COREWIRE_SEED={seed}");
    let mut random = Random(seed);
    let mut scene = Scene {
        scratch: Scratch::new("checkpoints-torture"),
        seed,
        children: Vec::new(),
        lines: channel(),
        restored: vec![None; RANKS],
        steps: vec![0; RANKS],
    };
    for rank in 0..RANKS {
        let child = scene.spawn(rank);
        scene.children.push(child);
    }
    scene.wait_for(|scene| scene.restored.iter().all(Option::is_some));
    let (mut is_from_the_beginning, mut unsettled) = (0, 0);
    for _ in 0..restores {
        // A few steps, or many.
        let ahead = 1 + random.below(20) * 100;
        scene.steps = vec![0; RANKS];
        let from: Vec<u64> = scene
            .restored
            .iter()
            .map(|one| one.as_ref().map_or(0, |counts| counts.steps))
            .collect();
        scene.wait_for(|scene| {
            (0..RANKS).all(|rank| scene.steps[rank] >= from[rank].saturating_add(ahead))
        });
        scene.kill(&mut random);
        let restored: Vec<Counts> = scene.restored.iter().flatten().cloned().collect();
        assert!(is_consistent(&restored), "{restored:?}");
        is_from_the_beginning += u64::from(restored.iter().all(|counts| counts.steps == 0));
        for from in 0..RANKS {
            unsettled += (0..RANKS)
                .map(|to| restored[from].sent[to] - restored[to].received[from])
                .sum::<u64>();
        }
    }
    scene.wait_for(|scene| scene.steps.iter().all(|steps| *steps > 0));
    let steps: u64 = scene.steps.iter().sum();
    println!(
        "{restores} restores, {is_from_the_beginning} of them to the beginning, {unsettled} messages \
         sent again, {steps} steps in the end"
    );
    assert!(restores < 5 || is_from_the_beginning < restores / 2);
}

#[test]
fn states_belong_together_and_messages_come_again() {
    let scratch = Scratch::new("checkpoints-threads");
    // Rank 0 sends ten numbers, of which rank 1 has received three when both end.
    let (mut zero, mut one) = join_both(&scratch);
    assert_eq!((zero.1.take(), one.1.take()), (None, None));
    for number in 0..10u8 {
        zero.0.send(1, &[number]).unwrap();
    }
    for number in 0..3u8 {
        assert_eq!(*one.0.receive(0, || unreachable!("none is due")).unwrap(), [number]);
    }
    zero.0.checkpoint(|| b"ten".to_vec()).unwrap();
    zero.0.send(1, b"later").unwrap();
    let mut states = 0;
    let mut state = || {
        states += 1;
        b"ten of eleven".to_vec()
    };
    for number in 3..10u8 {
        assert_eq!(*one.0.receive(0, &mut state).unwrap(), [number]);
    }
    assert_eq!(*one.0.receive(0, &mut state).unwrap(), *b"later");
    assert_eq!((states, one.0.number()), (1, 1), "a checkpoint before the message behind one");
    drop((zero, one));

    let (zero, mut one) = join_both(&scratch);
    assert_eq!(zero.1.as_deref(), Some(&b"ten"[..]));
    assert_eq!(one.1.as_deref(), Some(&b"ten of eleven"[..]));
    let none = one.0.receive_any_timeout(Duration::from_millis(20), Vec::new).unwrap();
    assert!(none.is_none(), "{none:?}");
    // Rank 1 goes back to the beginning: its file is gone. So does rank 0.
    drop((zero, one));
    std::fs::remove_file(scratch.0.join("checkpoints/test.1.1")).unwrap();
    let (zero, one) = join_both(&scratch);
    assert_eq!((zero.1, one.1), (None, None));
}

type Joined = (Computation, Option<Vec<u8>>);

fn join_both(scratch: &Scratch) -> (Joined, Joined) {
    std::thread::scope(|scope| {
        let one = scope.spawn(|| scratch.builder(1, 2).join().unwrap());
        (scratch.builder(0, 2).join().unwrap(), one.join().unwrap())
    })
}

#[test]
fn messages_that_were_under_way_come_again() {
    let scratch = Scratch::new("checkpoints-under-way");
    let (mut zero, mut one) = join_both(&scratch);
    for number in 0..10u8 {
        zero.0.send(1, &[number]).unwrap();
    }
    for number in 0..3u8 {
        assert_eq!(*one.0.receive(0, Vec::new).unwrap(), [number]);
    }
    one.0.checkpoint(|| b"three".to_vec()).unwrap();
    zero.0.checkpoint(|| b"ten".to_vec()).unwrap();
    drop((zero, one));
    let (zero, mut one) = join_both(&scratch);
    assert_eq!(one.1.as_deref(), Some(&b"three"[..]));
    for number in 3..10u8 {
        assert_eq!(*one.0.receive(0, Vec::new).unwrap(), [number]);
    }
    // A rank that is left alone hears of it, and finds a new one.
    drop(zero);
    let ended = one.0.receive(0, Vec::new).unwrap_err();
    assert_eq!(ended, ComputationError::Ended { name: "test".into(), rank: 0 });
    assert_eq!(one.0.send(0, b"x").unwrap_err(), ended);
}

#[test]
fn states_are_gathered() {
    let scratch = Scratch::new("checkpoints-gather");
    let (mut zero, mut one) = join_both(&scratch);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // It answers while it waits for a message.
            assert_eq!(*one.0.receive(0, || b"one".to_vec()).unwrap(), *b"end");
            one.0.finish(|| b"end one".to_vec()).unwrap();
        });
        let sent = || scratch.1.observe("test.rank.0.requests").map_or(0, |it| it.look().sent);
        let is_published = (1..=1_000_000).any(|number| {
            let gathered = zero.0.gather(|| b"zero".to_vec()).unwrap();
            assert_eq!(gathered.number, number);
            assert_eq!(gathered.states.len(), 2);
            assert_eq!((&*gathered.states[0], &*gathered.states[1]), (&b"zero"[..], &b"one"[..]));
            // By messages until the other one hears the channel.
            sent() > 10
        });
        assert!(is_published);
        zero.0.send(1, b"end").unwrap();
        zero.0.finish(|| b"end zero".to_vec()).unwrap();
    });
    let (zero, one) = join_both(&scratch);
    assert_eq!(zero.1.as_deref(), Some(&b"end zero"[..]));
    assert_eq!(one.1.as_deref(), Some(&b"end one"[..]));
}

#[test]
fn a_stopped_rank_that_gathers_holds_up_no_other_one() {
    const GATHERS: &str = "COREWIRE_TEST_GATHERS";
    if let Ok(directory) = std::env::var(GATHERS) {
        let files = Path::new(&directory).join("checkpoints");
        let domain = Domain::open_at(Path::new(&directory)).unwrap();
        let (mut all, _) = Computation::builder(&domain, "test", files, 0, 2).join().unwrap();
        while all.gather(Vec::new).is_ok() {}
        exit(0);
    }
    let scratch = Scratch::new("checkpoints-stop");
    let mut command = Command::new(std::env::current_exe().unwrap());
    let own = "checkpoints::a_stopped_rank_that_gathers_holds_up_no_other_one";
    command.args(["--exact", own]).env(GATHERS, &scratch.0).stdout(Stdio::null());
    let mut other = command.spawn().unwrap();
    let (mut all, _) = scratch.builder(1, 2).join().unwrap();
    // It answers, and never waits, until it hears the other one's channel.
    let is_heard = || {
        let requests = scratch.1.observe("test.rank.0.requests");
        requests.is_ok_and(|requests| !requests.look().receivers.is_empty())
    };
    while !is_heard() {
        all.checkpoint_if_due(Vec::new).unwrap();
    }
    let pid = Pid::from_child(&other);
    kill_process(pid, Signal::STOP).unwrap();
    for _ in 0..20 {
        // There may be a last request, and nothing waits for the stopped process.
        let received = all.receive_any_timeout(Duration::from_millis(10), Vec::new);
        assert!(matches!(received, Ok(None)), "{received:?}");
    }
    kill_process(pid, Signal::CONT).unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    let ended = all.receive_any(Vec::new).unwrap_err();
    assert_eq!(ended, ComputationError::Ended { name: "test".into(), rank: 0 });
}

#[test]
fn mistakes_are_named() {
    let scratch = Scratch::new("checkpoints-mistakes");
    let (mut zero, _one) = join_both(&scratch);
    let said = zero.0.send(0, b"x").unwrap_err().to_string();
    assert_eq!(said, "rank 0: the others of 2 ranks are meant");
    assert!(zero.0.receive(2, Vec::new).is_err());
    let said = scratch.builder(2, 2).join().unwrap_err().to_string();
    assert_eq!(said, "rank 2: the 2 ranks of a computation are counted from 0");
    let said = scratch.builder(1, 2).join().unwrap_err().to_string();
    assert!(said.starts_with("rank 1 of computation test is taken by process"), "{said}");
    drop((zero, _one));
    let late = scratch.builder(0, 2).timeout(Duration::from_millis(1)).join().unwrap_err();
    assert!(matches!(late, ComputationError::Timeout { rank: 1, .. }), "{late}");
    std::thread::scope(|scope| {
        let elsewhere = scratch.0.join("elsewhere");
        let other = Computation::builder(&scratch.1, "test", elsewhere, 1, 2).timeout(PATIENCE);
        let other = scope.spawn(|| other.join().unwrap_err());
        let own = scratch.builder(0, 2).join().unwrap_err();
        assert!(own.to_string().contains("has its checkpoints in another directory"), "{own}");
        other.join().unwrap();
    });
    std::thread::scope(|scope| {
        let other = scope.spawn(|| scratch.builder(1, 3).timeout(PATIENCE).join().unwrap_err());
        let own = scratch.builder(0, 2).join().unwrap_err();
        assert!(own.to_string().contains("says that there are 3 ranks, this one 2"), "{own}");
        let said = other.join().unwrap().to_string();
        assert!(said.contains("says that there are 2 ranks, this one 3"), "{said}");
    });
}

#[test]
fn ranks_finish_at_any_time() {
    for round in 0..30 {
        let scratch = Scratch::new(&format!("checkpoints-finish-{round}"));
        // Some finish as soon as they begin, while others still meet.
        std::thread::scope(|scope| {
            for rank in 0..3u8 {
                let scratch = &scratch;
                scope.spawn(move || {
                    let own = rank;
                    let rank = usize::from(rank);
                    let (mut all, _) = scratch.builder(rank, 3).join().unwrap();
                    if rank == round % 3 {
                        all.send((rank + 1) % 3, b"one more").unwrap();
                        all.checkpoint(|| b"on the way".to_vec()).unwrap();
                    }
                    all.finish(|| vec![own]).unwrap();
                });
            }
        });
        // It is over: a rank that starts again needs nobody.
        let (mut one, state) = scratch.builder(1, 3).join().unwrap();
        assert_eq!(state, Some(vec![1]));
        let over = ComputationError::Finished("test".into());
        assert_eq!(one.send(0, b"x").unwrap_err(), over);
        assert_eq!(one.receive(0, Vec::new).unwrap_err(), over);
        assert_eq!(one.receive_any(Vec::new).unwrap_err(), over);
        assert_eq!(one.gather(Vec::new).unwrap_err(), over);
        one.finish(|| vec![1]).unwrap();
    }
}

#[test]
fn files_that_are_missing_are_noticed() {
    let scratch = Scratch::new("checkpoints-missing");
    let (mut zero, mut one) = join_both(&scratch);
    let files = scratch.0.join("checkpoints");
    let count = |rank: usize| {
        let names = std::fs::read_dir(&files).unwrap().map(|entry| entry.unwrap().file_name());
        let is_of = |name: &std::ffi::OsString| {
            name.to_str().unwrap().starts_with(&format!("test.{rank}."))
        };
        names.filter(is_of).count()
    };
    for number in 1..=6u8 {
        // What receives nothing needs only its last one.
        zero.0.send(1, &[number]).unwrap();
        one.0.send(0, &[number]).unwrap();
        zero.0.receive(1, || vec![number]).unwrap();
        one.0.receive(0, || vec![number]).unwrap();
        zero.0.checkpoint(|| vec![number]).unwrap();
        one.0.checkpoint(|| vec![number]).unwrap();
    }
    drop((zero, one));
    assert!(count(0) < 6, "those that no state needs are removed");
    let kept = count(0);
    for entry in std::fs::read_dir(&files).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("test.1.") {
            std::fs::remove_file(path).unwrap();
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(|| scratch.builder(1, 2).timeout(Duration::from_secs(1)).join());
        let error = scratch.builder(0, 2).join().unwrap_err().to_string();
        assert!(error.contains("a checkpoint of rank 0 with number 0"), "{error}");
    });
    assert_eq!(count(0), kept, "nothing more is removed");
}
