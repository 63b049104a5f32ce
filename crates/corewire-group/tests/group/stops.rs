//! Torture of groups by stops: groups of five processes, side by side, half of them with a file. Members are killed, stopped
//! for a while, leave and join, also while another one is stopped.
//!
//! The log of all members of a group is the same, a command that was answered is in it once, at its place, and every group
//! goes on after the last stop. What is printed: how long a member that runs has waited for a command while a majority ran
//! and the acceptor was not stopped, and how long each group took to go on after a stop.
//!
//! `COREWIRE_TORTURE_GROUPS` sets the number of groups (default: 1), `COREWIRE_TORTURE_KILLS` that of kills (default: 6), and
//! `COREWIRE_TORTURE_STOPS` that of stops (default: 3), of all groups together; `COREWIRE_TORTURE_STOP_MS` the longest stop
//! (default: 1500; the shortest is a second, and most are nearer to it); `COREWIRE_SEED` the seed. `make torture-stops` runs
//! it at length.
//!
//! A process of this program is a member if `COREWIRE_STOPS_MEMBER` says so.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio, exit};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::given::{Random, given};
use crate::members::{join, now_ms};
use corewire::Domain;
use corewire_group::Decision;
use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything takes on a crowded machine; only a failure waits this long. Longer than any stop.
const LIMIT: Duration = Duration::from_secs(150);
const MEMBERS: usize = 5;
const MEMBER: &str = "COREWIRE_STOPS_MEMBER";
const DIRECTORY: &str = "COREWIRE_STOPS_DIRECTORY";
const FILE: &str = "COREWIRE_STOPS_FILE";

/// A member. Writes `J` with its place, `V` with number, place of the leader and of the acceptor of each view, `D index
/// command` for each entry, and `A index milliseconds command` for each of its own commands when it is decided. Leaves when
/// its standard input ends.
fn be_member(label: &str) -> ! {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    let domain = Domain::open_at(&directory).unwrap();
    let group = join(&domain, std::env::var_os(FILE).map(PathBuf::from).as_deref(), LIMIT);
    println!("J {}", group.member());
    let is_leaving = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    let mut decided = group.decided(group.seen().unwrap().decided.saturating_sub(200));
    std::thread::spawn(move || {
        while let Ok(Some(Decision::Entry(entry))) = decided.next_timeout(LIMIT) {
            let command = str::from_utf8(&entry.command).unwrap();
            let _ = writeln!(std::io::stdout(), "D {} {command}", entry.index);
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::stdin().read_line(&mut String::new());
            is_leaving.store(true, relaxed);
        });
        // Also while the other thread waits for a command.
        scope.spawn(|| {
            let mut view = 0;
            while !is_leaving.load(relaxed) {
                if let Ok(now) = group.view()
                    && now.number != view
                {
                    view = now.number;
                    println!("V {view} {} {}", now.leader, now.acceptor);
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
        });
        for number in 0_u64.. {
            if is_leaving.load(relaxed) {
                return;
            }
            let command = format!("{label}-{number}");
            match group.propose_timeout(command.as_bytes(), LIMIT) {
                Ok(index) => println!("A {index} {} {command}", now_ms()),
                Err(error) => {
                    eprintln!("bad: {command}: {error}");
                    exit(1);
                }
            }
            // Many of these on few processors: they should not only compete.
            std::thread::park_timeout(Duration::from_millis(10));
        }
    });
    match group.leave(LIMIT) {
        Ok(()) => exit(0),
        Err(error) => {
            eprintln!("bad: {label} cannot leave: {error}");
            exit(1);
        }
    }
}

/// What a member has written.
enum Line {
    Joined(u8),
    View {
        number: u64,
        acceptor: u8,
    },
    Decided(usize, String),
    /// With the time in milliseconds.
    Own(usize, f64, String),
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let mut next = || words.next();
        match kind {
            "J" => Some(Self::Joined(next()?.parse().ok()?)),
            "V" => {
                let number = next()?.parse().ok()?;
                next()?;
                Some(Self::View { number, acceptor: next()?.parse().ok()? })
            }
            "D" => Some(Self::Decided(next()?.parse().ok()?, next()?.into())),
            "A" => Some(Self::Own(next()?.parse().ok()?, next()?.parse().ok()?, next()?.into())),
            _ => None,
        }
    }
}

/// Which process has written what.
type Said = (u64, Line);

struct Process {
    child: Child,
    place: Option<u8>,
    /// When its last command was decided, since it runs.
    last: Option<f64>,
}

/// A group, and what is known of it.
struct Scene {
    directory: PathBuf,
    file: Option<PathBuf>,
    processes: BTreeMap<u64, Process>,
    started: u64,
    lines: (Sender<Said>, Receiver<Said>),
    log: Vec<Option<String>>,
    places: HashMap<String, usize>,
    acceptor: (u64, u8),
    stopped: Option<u64>,
    /// The acceptor was the one that is stopped.
    is_excused: bool,
    /// From then on gaps count.
    counts_from: f64,
    longest_ms: f64,
    settled_ms: f64,
    own_count: usize,
}

impl Scene {
    fn start(number: u64) -> Self {
        let name = format!("corewire-group-stops-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let mut scene = Self {
            file: (number % 2 == 1).then(|| directory.join("the log")),
            directory,
            processes: BTreeMap::new(),
            started: 0,
            lines: channel(),
            log: Vec::new(),
            places: HashMap::new(),
            acceptor: (0, 0),
            stopped: None,
            is_excused: false,
            counts_from: f64::MAX,
            longest_ms: 0.0,
            settled_ms: 0.0,
            own_count: 0,
        };
        (0..MEMBERS).for_each(|_| scene.spawn());
        scene.wait_until_whole();
        scene
    }

    fn spawn(&mut self) {
        self.started += 1;
        let id = self.started;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "stops::groups_go_on_beside_members_that_are_stopped",
            "--nocapture",
        ]);
        command.env(MEMBER, id.to_string()).env(DIRECTORY, &self.directory);
        if let Some(file) = &self.file {
            command.env(FILE, file);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let lines = self.lines.0.clone();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(line) = Line::parse(&line) {
                    let _ = lines.send((id, line));
                }
            }
        });
        self.processes.insert(id, Process { child, place: None, last: None });
    }

    fn take(&mut self, id: u64, line: Line) {
        match line {
            Line::Joined(place) => {
                if let Some(process) = self.processes.get_mut(&id) {
                    process.place = Some(place);
                }
            }
            Line::View { number, acceptor } => {
                if number > self.acceptor.0 {
                    self.acceptor = (number, acceptor);
                }
                self.look_who_is_stopped();
            }
            Line::Decided(place, command) => self.decided(place, command),
            Line::Own(place, time, command) => {
                self.own_count += 1;
                let counts_from = self.counts_from;
                let is_stopped = self.stopped == Some(id);
                if let Some(process) = self.processes.get_mut(&id).filter(|_| !is_stopped) {
                    let before = process.last.replace(time).filter(|last| *last > counts_from);
                    if let Some(before) = before
                        && !self.is_excused
                    {
                        self.longest_ms = self.longest_ms.max(time - before);
                    }
                }
                self.decided(place, command);
            }
        }
    }

    /// What an acceptor has published is decided: one that is stopped holds the log up.
    fn look_who_is_stopped(&mut self) {
        let stopped = self.stopped.and_then(|id| self.processes.get(&id)?.place);
        self.is_excused |= stopped == Some(self.acceptor.1);
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

    fn hear(&mut self, time: Duration) {
        if let Ok((id, line)) = self.lines.1.recv_timeout(time) {
            self.take(id, line);
        }
        for (id, process) in &mut self.processes {
            let ended = process.child.try_wait().unwrap();
            assert!(ended.is_none(), "member {id} has ended: {ended:?}");
        }
    }

    fn wait_for(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + LIMIT;
        while !is_so(self) {
            assert!(Instant::now() < until, "{what}: {}", self.seen());
            self.hear(Duration::from_millis(100));
        }
    }

    /// What is known of the processes, and what they say of themselves.
    fn seen(&self) -> String {
        let now = now_ms();
        let known = self.processes.iter().map(|(id, process)| {
            let ago = process.last.map(|last| (now - last).round());
            let pid = process.child.id();
            format!("{id}: process {pid} at {:?}, last answered {ago:?} ms ago", process.place)
        });
        let known: Vec<_> = known.collect();
        let domain = Domain::open_at(&self.directory).unwrap();
        let seen = corewire_group::look(&domain, Duration::from_secs(1));
        format!("{known:#?}, stopped {:?}, {seen:#?}", self.stopped)
    }

    fn hear_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.hear(Duration::from_millis(10));
        }
    }

    /// Until all are members, and commands of each are decided from now on.
    fn wait_until_whole(&mut self) {
        let now = now_ms();
        self.wait_for("not whole again", |scene| {
            let is_in = |process: &Process| process.last.is_some_and(|last| last > now);
            scene.processes.values().all(is_in)
        });
        self.counts_from = now_ms();
        self.is_excused = false;
    }

    fn running(&self, random: &mut Random) -> u64 {
        let running: Vec<u64> = self
            .processes
            .iter()
            .filter(|(id, process)| self.stopped != Some(**id) && process.place.is_some())
            .map(|(id, _)| *id)
            .collect();
        running[usize::try_from(random.below(running.len() as u64)).unwrap()]
    }

    /// Kills a member that runs.
    fn kill(&mut self, random: &mut Random) {
        let id = self.running(random);
        let mut process = self.processes.remove(&id).unwrap();
        process.child.kill().unwrap();
        process.child.wait().unwrap();
        self.spawn();
    }

    /// Lets a member that runs leave; another process joins first.
    fn leave(&mut self, random: &mut Random) {
        let id = self.running(random);
        self.spawn();
        let mut process = self.processes.remove(&id).unwrap();
        drop(process.child.stdin.take());
        let until = Instant::now() + LIMIT;
        while process.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "member {id} cannot leave");
            self.hear(Duration::from_millis(10));
        }
        assert!(process.child.wait().unwrap().success());
    }

    /// Stops a member for a while, in which others are killed and leave.
    fn stop(&mut self, time: Duration, kills: &mut u64, random: &mut Random) {
        let id = self.running(random);
        let pid = Pid::from_child(&self.processes[&id].child);
        kill_process(pid, Signal::STOP).unwrap();
        self.stopped = Some(id);
        self.look_who_is_stopped();
        let until = Instant::now() + time;
        self.hear_for(time.mul_f64(random.below(100) as f64 / 400.0));
        // With one that is stopped and one that is killed three of five run.
        if *kills > 0 && random.below(3) > 0 {
            *kills -= 1;
            self.kill(random);
        }
        self.hear_for(until.saturating_duration_since(Instant::now()));
        kill_process(pid, Signal::CONT).unwrap();
        let began = now_ms();
        self.stopped = None;
        if let Some(process) = self.processes.get_mut(&id) {
            process.last = None;
        }
        self.wait_until_whole();
        self.settled_ms = self.settled_ms.max(now_ms() - began);
    }

    fn torture(&mut self, mut kills: u64, mut stops: u64, longest: Duration, random: &mut Random) {
        let shortest = Duration::from_secs(1);
        while kills + stops > 0 {
            let (which, all) = (random.below(kills + stops + 1), kills + stops);
            if which < stops {
                stops -= 1;
                // Most are short.
                let part = (random.below(1000) as f64 / 1000.0).powi(4);
                let time = shortest + longest.saturating_sub(shortest).mul_f64(part);
                self.stop(time, &mut kills, random);
            } else if which < all {
                kills -= 1;
                self.kill(random);
                self.wait_until_whole();
            } else {
                self.leave(random);
                self.wait_until_whole();
            }
        }
    }

    /// A process that joins in the end gets everything that anybody has ever seen.
    fn end(&mut self) {
        let domain = Domain::open_at(&self.directory).unwrap();
        let group = join(&domain, self.file.as_deref(), LIMIT);
        let last = usize::try_from(group.propose_timeout(b"end", LIMIT).unwrap()).unwrap();
        let all: Vec<_> = group.decided(0).take(last + 1).collect();
        while let Ok((id, line)) = self.lines.1.try_recv() {
            self.take(id, line);
        }
        let mut seen = HashMap::new();
        for (place, decision) in all.iter().enumerate() {
            let Decision::Entry(entry) = decision else { panic!("{decision:?}") };
            let command = str::from_utf8(&entry.command).unwrap();
            assert!(seen.insert(command, place).is_none(), "{command} is decided twice");
            if let Some(Some(other)) = self.log.get(place) {
                assert_eq!(other, command, "two entries at {place}");
            }
        }
        println!(
            "{last} entries, {} answered; longest pause {:.0} ms, settled within {:.0} ms",
            self.own_count, self.longest_ms, self.settled_ms
        );
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Nobody is left to complain that the others are dead.
        self.processes.values_mut().for_each(|process| _ = process.child.kill());
        self.processes.values_mut().for_each(|process| _ = process.child.wait());
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

// Keeps P221.
#[test]
fn groups_go_on_beside_members_that_are_stopped() {
    if let Ok(label) = std::env::var(MEMBER) {
        be_member(&label);
    }
    let groups = given("COREWIRE_TORTURE_GROUPS", 1);
    let kills = given("COREWIRE_TORTURE_KILLS", 6).div_ceil(groups);
    let stops = given("COREWIRE_TORTURE_STOPS", 3).div_ceil(groups);
    let longest = Duration::from_millis(given("COREWIRE_TORTURE_STOP_MS", 1500));
    let seed = given("COREWIRE_SEED", u64::from(std::process::id()) << 20 | 1);
    println!("COREWIRE_SEED={seed}");
    let ended = std::thread::scope(|scope| {
        let group = |number: u64| {
            scope.spawn(move || {
                let mut random = Random(seed.wrapping_add(number << 8) | 1);
                let mut scene = Scene::start(number);
                scene.torture(kills, stops, longest, &mut random);
                scene.end();
                (scene.longest_ms, scene.settled_ms)
            })
        };
        let threads: Vec<_> = (0..groups).map(group).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let most = |of: fn(&(f64, f64)) -> f64| ended.iter().map(of).fold(0.0, f64::max);
    println!(
        "{} kills and {} stops in {groups} groups: longest pause {:.0} ms, settled within {:.0} ms",
        kills * groups,
        stops * groups,
        most(|one| one.0),
        most(|one| one.1)
    );
}
