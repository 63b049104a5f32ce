//! Torture of groups: five processes are members of one, propose all the time, and are killed at any time and started
//! again, or are stopped for a while.
//!
//! No entry that anybody has seen may be lost, or differ between two processes; a command that was decided is where its
//! member was told, once; nobody hangs. With a file that holds also when all are killed at once.
//! `COREWIRE_TORTURE_KILLS` sets the number of kills (default: 40), `COREWIRE_TORTURE_STOPS` the number of stops (default:
//! 2), `COREWIRE_TORTURE_STOP_MS` their length (default: 300), `COREWIRE_TORTURE_ENDS` how often all are killed at once
//! (default: 5), `COREWIRE_SEED` the seed.
//!
//! A process of this program is a member if `COREWIRE_TORTURE_MEMBER` says so.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, exit};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::given::{Random, given};
use crate::members::{join, now_ms};
use corewire::Domain;
use corewire_group::Decision;

/// Longer than anything takes on a crowded machine; only a failure waits this long.
const LIMIT: Duration = Duration::from_secs(60);
const MEMBERS: usize = 5;
/// Commands that a member proposes at once, now and then.
const BURST: usize = 50;
const MEMBER: &str = "COREWIRE_TORTURE_MEMBER";
const DIRECTORY: &str = "COREWIRE_TORTURE_DIRECTORY";
const FILE: &str = "COREWIRE_TORTURE_FILE";

/// A member: writes `J`, then `D index command` for each entry, and `A index milliseconds command` for each of its own
/// commands when it is decided.
fn be_member(directory: &Path, label: &str) -> ! {
    let domain = Domain::open_at(directory).unwrap();
    let group = join(&domain, std::env::var_os(FILE).map(PathBuf::from).as_deref(), LIMIT);
    println!("J {}", group.member());
    // The whole log each time would take all the time.
    let mut decided = group.decided(group.seen().unwrap().decided.saturating_sub(200));
    std::thread::spawn(move || {
        while let Ok(Some(Decision::Entry(entry))) = decided.next_timeout(LIMIT) {
            let command = str::from_utf8(&entry.command).unwrap();
            if writeln!(std::io::stdout(), "D {} {command}", entry.index).is_err() {
                break;
            }
        }
        eprintln!("bad: nothing is decided any more");
        exit(1);
    });
    for number in 0u64.. {
        let command = format!("{label}-{number}");
        // Enough for one that is stopped to miss something.
        for part in (0..BURST).filter(|_| number % 16 == 0) {
            group.submit(format!("{command}-{part}").as_bytes()).unwrap();
        }
        match group.propose_timeout(command.as_bytes(), LIMIT) {
            Ok(index) => println!("A {index} {} {command}", now_ms()),
            Err(error) => {
                eprintln!("bad: {command}: {error}");
                exit(1);
            }
        }
        // Five of these on two processors: they should not only compete.
        std::thread::park_timeout(Duration::from_millis(1));
    }
    exit(0)
}

/// What a member has written.
enum Line {
    Joined,
    Decided(usize, String),
    /// With the time in milliseconds.
    Own(usize, f64, String),
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        match kind {
            "J" => Some(Self::Joined),
            "D" => Some(Self::Decided(words.next()?.parse().ok()?, words.next()?.into())),
            "A" => Some(Self::Own(
                words.next()?.parse().ok()?,
                words.next()?.parse().ok()?,
                words.next()?.into(),
            )),
            _ => None,
        }
    }
}

/// Which member, in which of its lives, has written what.
type Said = (usize, usize, Line);

struct Scene {
    directory: PathBuf,
    file: Option<PathBuf>,
    children: Vec<Child>,
    /// How often each was started.
    starts: Vec<usize>,
    has_joined: Vec<bool>,
    lines: (Sender<Said>, Receiver<Said>),
    /// What is decided, as far as anybody has said.
    log: Vec<Option<String>>,
    places: HashMap<String, usize>,
    own_count: usize,
    /// When the commands of each were decided since the last time that somebody looked.
    times: Vec<Vec<f64>>,
}

impl Scene {
    fn start(has_file: bool) -> Self {
        let name = format!("corewire-group-torture-{}-{has_file}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let mut scene = Self {
            file: has_file.then(|| directory.join("the log")),
            directory,
            children: Vec::new(),
            starts: vec![0; MEMBERS],
            has_joined: vec![false; MEMBERS],
            lines: channel(),
            log: Vec::new(),
            places: HashMap::new(),
            own_count: 0,
            times: vec![Vec::new(); MEMBERS],
        };
        for index in 0..MEMBERS {
            let child = scene.spawn(index);
            scene.children.push(child);
        }
        scene.wait_for(|scene| scene.has_joined.iter().all(|has| *has));
        scene
    }

    fn spawn(&mut self, index: usize) -> Child {
        self.starts[index] += 1;
        self.has_joined[index] = false;
        let start = self.starts[index];
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "torture::groups_survive_kills_and_stops", "--nocapture"]);
        command.env(MEMBER, format!("{index}-{start}")).env(DIRECTORY, &self.directory);
        if let Some(file) = &self.file {
            command.env(FILE, file);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let lines = self.lines.0.clone();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(line) = Line::parse(&line) {
                    let _ = lines.send((index, start, line));
                }
            }
        });
        child
    }

    fn take(&mut self, (index, start, line): Said) {
        match line {
            Line::Joined => {
                if start == self.starts[index] {
                    self.has_joined[index] = true;
                }
            }
            Line::Decided(place, command) => self.decided(place, command),
            Line::Own(place, time, command) => {
                if start == self.starts[index] {
                    self.times[index].push(time);
                }
                self.own_count += 1;
                self.decided(place, command);
            }
        }
    }

    fn decided(&mut self, place: usize, command: String) {
        if self.log.len() <= place {
            self.log.resize(place + 1, None);
        }
        let before = self.places.insert(command.clone(), place);
        assert!(before.is_none_or(|before| before == place), "{command} is at two places");
        let found = self.log[place].get_or_insert_with(|| command.clone());
        assert_eq!(*found, command, "two entries at {place}");
    }

    fn check(&mut self) {
        for (index, child) in self.children.iter_mut().enumerate() {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "member {index} has ended: {ended:?}");
        }
    }

    fn wait_for(&mut self, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + LIMIT;
        while !is_so(self) {
            assert!(Instant::now() < until, "nothing goes on: {:?}", self.has_joined);
            if let Ok(line) = self.lines.1.recv_timeout(Duration::from_millis(100)) {
                self.take(line);
            }
            self.check();
        }
    }

    /// Until everybody's commands have been decided `count` more times.
    fn wait_for_own(&mut self, count: usize) {
        self.times.iter_mut().for_each(Vec::clear);
        self.wait_for(|scene| scene.times.iter().all(|times| times.len() >= count));
    }

    /// Kills one at a time, sometimes two, and sometimes one again before it is a member.
    fn kill(&mut self, kills: u64, random: &mut Random) {
        let mut pauses = Vec::new();
        let mut killed = 0;
        while killed < kills {
            self.times.iter_mut().for_each(Vec::clear);
            self.wait_for_own(1 + usize::try_from(random.below(20)).unwrap());
            let first = usize::try_from(random.below(MEMBERS as u64)).unwrap();
            let mut victims = vec![first];
            if random.below(4) == 0 {
                victims.push((first + 1) % MEMBERS);
            }
            for victim in &victims {
                self.children[*victim].kill().unwrap();
            }
            let at = now_ms();
            for victim in &victims {
                self.children[*victim].wait().unwrap();
                killed += 1;
                self.times[*victim].clear();
            }
            for victim in victims.clone() {
                self.children[victim] = self.spawn(victim);
            }
            if random.below(4) == 0 {
                self.children[first].kill().unwrap();
                self.children[first].wait().unwrap();
                killed += 1;
                self.children[first] = self.spawn(first);
            }
            self.wait_for(|scene| {
                let later = |times: &Vec<f64>| times.iter().filter(|time| **time > at).count() > 3;
                scene.has_joined.iter().all(|has| *has) && scene.times.iter().all(later)
            });
            for (index, times) in self.times.iter().enumerate() {
                if !victims.contains(&index) {
                    let around = times.windows(2).filter(|pair| pair[1] > at);
                    pauses.push(around.take(20).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max));
                }
            }
        }
        pauses.sort_by(f64::total_cmp);
        let of = |part: usize| pauses[(pauses.len() - 1) * part / 100];
        println!(
            "{killed} kills, {} entries; longest pause of a survivor: {:.1} ms p50, {:.1} ms p99",
            self.log.len(),
            of(50),
            of(99)
        );
    }

    fn stop(&mut self, stops: u64, time: Duration, random: &mut Random) {
        for _ in 0..stops {
            let victim = usize::try_from(random.below(MEMBERS as u64)).unwrap();
            let pid = rustix::process::Pid::from_child(&self.children[victim]);
            rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
            let until = Instant::now() + time;
            while Instant::now() < until {
                if let Ok(line) = self.lines.1.recv_timeout(Duration::from_millis(10)) {
                    self.take(line);
                }
            }
            rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
            self.wait_for_own(10);
        }
    }

    /// Kills all at once, now and then before all of them are members again.
    fn end_all(&mut self, ends: u64, random: &mut Random) {
        for _ in 0..ends {
            if random.below(3) > 0 {
                self.wait_for_own(1 + usize::try_from(random.below(20)).unwrap());
            } else {
                let first = usize::try_from(random.below(MEMBERS as u64)).unwrap();
                self.wait_for(|scene| scene.has_joined[first]);
            }
            self.children.iter_mut().for_each(|child| child.kill().unwrap());
            self.children.iter_mut().for_each(|child| _ = child.wait().unwrap());
            self.children = (0..MEMBERS).map(|index| self.spawn(index)).collect();
        }
        self.wait_for(|scene| scene.has_joined.iter().all(|has| *has));
        self.wait_for_own(3);
    }

    /// A process that joins in the end gets everything that anybody has ever seen.
    fn end(&mut self) {
        let domain = Domain::open_at(&self.directory).unwrap();
        let group = join(&domain, self.file.as_deref(), LIMIT);
        let last = usize::try_from(group.propose_timeout(b"end", LIMIT).unwrap()).unwrap();
        let all: Vec<_> = group.decided(0).take(last + 1).collect();
        while let Ok(line) = self.lines.1.try_recv() {
            self.take(line);
        }
        for (place, decision) in all.iter().enumerate() {
            let Decision::Entry(entry) = decision else { panic!("{decision:?}") };
            let command = str::from_utf8(&entry.command).unwrap();
            if let Some(Some(seen)) = self.log.get(place) {
                assert_eq!(seen, command, "two entries at {place}");
            }
        }
        let count = self.log.iter().take(last).flatten().count();
        println!("{last} entries, {count} seen, {} answered", self.own_count);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Nobody is left to complain that the others are dead.
        self.children.iter_mut().for_each(|child| _ = child.kill());
        self.children.iter_mut().for_each(|child| _ = child.wait());
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

// Keeps P206, P216.
#[test]
fn groups_survive_kills_and_stops() {
    if let Ok(label) = std::env::var(MEMBER) {
        be_member(Path::new(&std::env::var(DIRECTORY).unwrap()), &label);
    }
    let kills = given("COREWIRE_TORTURE_KILLS", 40);
    let stops = given("COREWIRE_TORTURE_STOPS", 2);
    let stop = Duration::from_millis(given("COREWIRE_TORTURE_STOP_MS", 300));
    let seed = given("COREWIRE_SEED", u64::from(std::process::id()) << 20 | 1);
    println!("COREWIRE_SEED={seed}");
    let mut random = Random(seed);
    let mut scene = Scene::start(false);
    scene.kill(kills, &mut random);
    scene.stop(stops, stop, &mut random);
    scene.end();
}

// Keeps P209.
#[test]
fn a_file_survives_the_end_of_all_members() {
    let ends = given("COREWIRE_TORTURE_ENDS", 5);
    let seed = given("COREWIRE_SEED", u64::from(std::process::id()) << 20 | 1);
    println!("COREWIRE_SEED={seed}");
    let mut random = Random(seed);
    let mut scene = Scene::start(true);
    scene.end_all(ends, &mut random);
    scene.kill(ends, &mut random);
    scene.end();
}
