//! Torture of channels of every kind: their senders and receivers join, leave, sleep, wait for
//! room, send in every way, are killed at any instruction, and are stopped for a while.
//!
//! Nothing that was sent may be lost, torn or out of order; all receivers of a channel must see one
//! order; no process may hang; nothing may be left behind. `COREWIRE_TORTURE_KILLS` sets the number
//! of kills (default: 60), `COREWIRE_TORTURE_STOPS` the number of stops (default: 0),
//! `COREWIRE_TORTURE_STOP_MS` the length of each stop in milliseconds (default: 1000),
//! `COREWIRE_TORTURE_CHANNELS` the number of channels at a time (default: 5). `COREWIRE_SEED`
//! repeats a run as far as the kernel allows.
//!
//! More than 600 lines, because each file of tests is a program that is linked by itself.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::process::Child;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::roles::{Directory, Random, start_role};
use corewire::Domain;
use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything takes on a crowded machine; only a failure waits this long.
const LIMIT: Duration = Duration::from_secs(90);
const CHANNEL: &str = "tortured";
/// More descriptors than a process has that is in no channel.
const DESCRIPTORS_MAX: u64 = 24;

fn given(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Block,
    Overwrite,
    Evict,
    SharedBlock,
    SharedEvict,
}

const KINDS: [Kind; 5] =
    [Kind::SharedBlock, Kind::Block, Kind::SharedEvict, Kind::Overwrite, Kind::Evict];

impl Kind {
    fn is_shared(self) -> bool {
        matches!(self, Self::SharedBlock | Self::SharedEvict)
    }

    fn options(self, evict_ms: u64) -> Vec<String> {
        let mut options = match self {
            Self::Block | Self::SharedBlock => vec![],
            Self::Overwrite => vec!["overwrite".to_owned()],
            Self::Evict | Self::SharedEvict => vec![format!("evict-ms={evict_ms}")],
        };
        if self.is_shared() {
            options.push("shared".to_owned());
        }
        options
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Sender,
    Receiver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not in the channel, as far as it has reported.
    Starting,
    In,
    /// It was asked to leave.
    Leaving,
    Clean,
}

/// A process that takes part in the channel.
struct Actor {
    part: Part,
    id: u64,
    child: Child,
    state: State,
    stopped_until: Option<Instant>,
    /// Number of lines that report progress.
    progress: u64,
    census: Option<String>,
    last: String,
    stay: Stay,
}

/// What a receiver reported about one stay in a channel.
#[derive(Debug, Clone, Default)]
struct Stay {
    id: u64,
    /// Number of senders that had been started when it joined.
    joined: u64,
    from: BTreeMap<u64, (u64, u64)>,
    tail: Option<(u64, String)>,
    end: String,
    epoch: u64,
    first: u64,
    last: u64,
    received: u64,
    missed: u64,
}

/// What a sender reported about itself.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    order: u64,
    committed: u64,
    is_closed: bool,
}

struct Scenario {
    kind: Kind,
    seed: u64,
    random: Random,
    directory: Directory,
    actors: BTreeMap<u64, Actor>,
    told: Sender<(u64, Option<String>)>,
    lines: Receiver<(u64, Option<String>)>,
    evict_ms: u64,
    slots: u64,
    next_id: u64,
    epoch: u64,
    senders: HashMap<u64, Sent>,
    stays: Vec<Stay>,
    blocks: HashMap<(u64, u64), String>,
    kills: u64,
    stops: u64,
    cap_finds: u64,
    evictions: u64,
    retries: u64,
}

impl Drop for Scenario {
    fn drop(&mut self) {
        for actor in self.actors.values_mut() {
            let _ = actor.child.kill();
            let _ = actor.child.wait();
        }
    }
}

impl Scenario {
    fn new(kind: Kind, index: u64, seed: u64) -> Self {
        let (told, lines) = mpsc::channel();
        let mut random = Random::new(seed);
        let slots = [64, 64, 256, 1024][usize::try_from(random.below(4)).unwrap()];
        Self {
            kind,
            seed,
            random,
            directory: Directory::new(&format!("torture-{index}")),
            actors: BTreeMap::new(),
            told,
            lines,
            evict_ms: 700,
            slots,
            next_id: 1,
            epoch: 1,
            senders: HashMap::new(),
            stays: Vec::new(),
            blocks: HashMap::new(),
            kills: 0,
            stops: 0,
            cap_finds: 0,
            evictions: 0,
            retries: 0,
        }
    }

    fn start(&mut self, part: Part) {
        let id = self.next_id;
        self.next_id += 1;
        // The upper half of a sender's id identifies the channel in which it sends.
        let (role, id) = match part {
            Part::Sender => ("torture-sender", self.epoch << 32 | id),
            Part::Receiver => ("torture-receiver", id),
        };
        let mut options = self.kind.options(self.evict_ms);
        options.push(format!("count={id}"));
        options.push(format!("slots={}", self.slots));
        options.push("receivers=32".to_owned());
        let nap_one_in = [0, 20, 1000][usize::try_from(self.random.below(3)).unwrap()];
        options.push(format!("nap-one-in={nap_one_in}"));
        if self.random.below(2) == 0 {
            options.push("park".to_owned());
        }
        let mut child = start_role(role, &self.directory, CHANNEL, options);
        let output = BufReader::new(child.stdout.take().unwrap());
        let told = self.told.clone();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = told.send((id, Some(line)));
            }
            let _ = told.send((id, None));
        });
        if part == Part::Sender {
            let order = self.senders.len() as u64;
            self.senders.insert(id, Sent { order, ..Sent::default() });
        }
        let actor = Actor {
            part,
            id,
            child,
            state: State::Starting,
            stopped_until: None,
            progress: 0,
            census: None,
            last: String::new(),
            stay: Stay { id, ..Stay::default() },
        };
        self.actors.insert(id, actor);
    }

    /// Handles one line of an actor. Waits for it until `until`.
    fn hear(&mut self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok((id, line)) => {
                self.heard(id, line);
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => unreachable!("the scenario has a sender itself"),
        }
    }

    fn heard(&mut self, id: u64, line: Option<String>) {
        let Some(line) = line else {
            let Some(mut actor) = self.actors.remove(&id) else { return };
            let status = actor.child.wait().unwrap();
            if actor.state != State::Clean || !status.success() {
                let Actor { last, part, .. } = &actor;
                self.fail(&format!("{part:?} {id:x} ended with {status}; it had said {last:?}"));
            }
            return;
        };
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        // What dead processes have reported counts too.
        if let (Some(sent), "at" | "closed") = (self.senders.get_mut(&id), word) {
            sent.committed = rest.parse().unwrap();
            sent.is_closed |= word == "closed";
        }
        if word == "block" {
            let mut words = rest.split(' ');
            let mut number = || words.next().unwrap().parse::<u64>().unwrap();
            let key = (number(), number());
            self.same_block(id, key, words.next().unwrap());
        }
        let order = self.senders.len() as u64;
        let mut stay = None;
        if let Some(actor) = self.actors.get_mut(&id) {
            let numbers = || rest.split(' ').map(|word| word.parse().unwrap_or(0));
            match word {
                "at" => actor.progress += 1,
                "created" => {
                    if actor.state == State::Starting {
                        actor.state = State::In;
                    }
                }
                "joined" => {
                    if actor.state == State::Starting {
                        actor.state = State::In;
                    }
                    actor.stay = Stay { id, joined: order, ..Stay::default() };
                }
                "from" => {
                    let [id, first, next] = [0, 1, 2].map(|index| numbers().nth(index).unwrap());
                    actor.stay.from.insert(id, (first, next));
                }
                "tail" => {
                    let block = numbers().nth(1).unwrap();
                    actor.stay.tail = Some((block, rest.split(' ').nth(2).unwrap().to_owned()));
                }
                "stay" => {
                    if actor.state == State::In {
                        actor.state = State::Starting;
                    }
                    actor.progress += 1;
                    let mut ended = std::mem::take(&mut actor.stay);
                    ended.end = rest.split(' ').next().unwrap().to_owned();
                    let figures: Vec<u64> = numbers().skip(1).collect();
                    (ended.epoch, ended.first, ended.last) = (figures[0], figures[1], figures[2]);
                    (ended.received, ended.missed) = (figures[3], figures[4]);
                    stay = Some(ended);
                }
                "retry" => self.retries += 1,
                "late" => {
                    println!(
                        "{:?}: {:?} {id:x} found at the cap only: {rest}",
                        self.kind, actor.part
                    );
                    self.cap_finds += 1;
                }
                "census" => actor.census = Some(rest.to_owned()),
                "clean" => actor.state = State::Clean,
                "joining" | "closed" | "done" | "block" => {}
                _ => panic!("{id:x} said {line:?}"),
            }
            if word != "census" {
                actor.last = line;
            }
        }
        if let Some(stay) = stay {
            self.evictions += u64::from(stay.end == "evicted");
            self.stays.push(stay);
        }
    }

    fn same_block(&mut self, id: u64, key: (u64, u64), hash: &str) {
        let first = self.blocks.entry(key).or_insert_with(|| hash.to_owned());
        if first != hash {
            let other = first.clone();
            self.fail(&format!("{id} saw {hash} where another saw {other}: block {key:?}"));
        }
    }

    /// Ends the test, and prints the state of every actor.
    fn fail(&mut self, what: &str) -> ! {
        let mut state = String::new();
        for actor in self.actors.values() {
            let path = format!("/proc/{}", actor.child.id());
            let read = |file| std::fs::read_to_string(format!("{path}/{file}")).unwrap_or_default();
            let Actor { part, id, state: is, last, stopped_until, progress, .. } = actor;
            let _ = writeln!(
                state,
                "  {part:?} {id:x} pid {} is {is:?}, stopped until {stopped_until:?}, progress \
                 {progress}, last said {last:?}; in {}, {}",
                actor.child.id(),
                read("wchan"),
                read("syscall").trim(),
            );
        }
        let Self { kind, seed, kills, stops, .. } = self;
        let now = Instant::now();
        eprintln!(
            "{kind:?} {seed} after {kills} kills and {stops} stops, at {now:?}: {what}\n{state}"
        );
        if std::env::var_os("COREWIRE_TORTURE_HOLD").is_some() {
            eprintln!("held for a debugger: a line on standard input ends it");
            let _ = std::io::stdin().lock().read_line(&mut String::new());
        }
        panic!("{kind:?} {seed}: {what}");
    }

    fn ids(&self, part: Part, mut which: impl FnMut(&Actor) -> bool) -> Vec<u64> {
        let actors = self.actors.values().filter(|actor| actor.part == part);
        actors.filter(|actor| which(actor)).map(|actor| actor.id).collect()
    }

    fn some(&mut self, ids: &[u64]) -> Option<u64> {
        let index = self.random.below(ids.len().max(1) as u64);
        ids.get(usize::try_from(index).unwrap()).copied()
    }

    fn kill(&mut self, id: u64) {
        let mut actor = self.actors.remove(&id).unwrap();
        actor.child.kill().unwrap();
        actor.child.wait().unwrap();
        self.kills += 1;
    }

    fn ask_to_leave(&mut self, id: u64) {
        // An actor that was asked before may be gone.
        let Some(actor) = self.actors.get_mut(&id) else { return };
        if actor.state == State::Clean {
            return;
        }
        actor.state = State::Leaving;
        drop(actor.child.stdin.take());
    }

    fn stop(&mut self, id: u64, duration: Duration) {
        let actor = self.actors.get_mut(&id).unwrap();
        kill_process(Pid::from_child(&actor.child), Signal::STOP).unwrap();
        actor.stopped_until = Some(Instant::now() + duration);
    }

    /// Continues actors whose stop is over. Returns when the next is due.
    fn continue_due(&mut self) -> Option<Instant> {
        let now = Instant::now();
        for actor in self.actors.values_mut() {
            if actor.stopped_until.is_some_and(|until| until <= now) {
                actor.stopped_until = None;
                // An actor that is killed meanwhile does not count.
                self.stops += 1;
                kill_process(Pid::from_child(&actor.child), Signal::CONT).unwrap();
            }
        }
        self.actors.values().filter_map(|actor| actor.stopped_until).min()
    }

    /// Handles lines until `is_so` returns true.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let limit = Instant::now() + LIMIT;
        while !is_so(self) {
            let due = self.continue_due();
            let until = due.unwrap_or(limit).min(limit);
            if !self.hear(until) && Instant::now() >= limit {
                self.fail(&format!("hangs: {what}"));
            }
        }
    }

    /// Waits until every actor that is not stopped makes progress or leaves.
    fn everybody_goes_on(&mut self) {
        let marks: HashMap<u64, u64> =
            self.actors.values().map(|actor| (actor.id, actor.progress)).collect();
        self.until("somebody does not go on", |scenario| {
            scenario.actors.values().all(|actor| {
                let is_free = actor.stopped_until.is_none();
                match actor.state {
                    State::Leaving | State::Clean => true,
                    _ => !is_free || marks.get(&actor.id).is_none_or(|mark| actor.progress > *mark),
                }
            })
        });
    }

    /// Handles a few lines.
    fn go_on_for_a_while(&mut self) {
        let due = self.continue_due();
        let patience = Instant::now() + Duration::from_millis(20);
        for _ in 0..self.random.below(60) {
            if !self.hear(due.unwrap_or(patience).min(patience)) {
                return;
            }
        }
    }

    fn fill_up(&mut self) {
        let senders = self.ids(Part::Sender, |actor| actor.state != State::Leaving).len() as u64;
        let senders_max = if self.kind.is_shared() { 4 } else { 1 };
        if senders == 0 {
            self.epoch += 1;
            self.start(Part::Sender);
        } else if senders < senders_max && (senders < 2 || self.random.below(2) == 0) {
            self.start(Part::Sender);
        }
        let receivers =
            self.ids(Part::Receiver, |actor| actor.state != State::Leaving).len() as u64;
        if receivers < 2 || receivers < 4 && self.random.below(2) == 0 {
            self.start(Part::Receiver);
        }
    }

    /// An actor that may go while the channel lives on, because another sender is certainly in the
    /// channel.
    fn dispensable(&mut self) -> Option<u64> {
        let is_in = |actor: &Actor| actor.state == State::In;
        let surely_in = self.ids(Part::Sender, is_in);
        // Stopped actors should be continued, with few exceptions.
        let may_go = self.random.below(20) == 0;
        let may_go = |actor: &Actor| may_go || actor.stopped_until.is_none();
        let mut ids = self.ids(Part::Receiver, may_go);
        let senders = self.ids(Part::Sender, may_go);
        ids.extend(senders.into_iter().filter(|id| surely_in.iter().any(|other| other != id)));
        self.some(&ids)
    }

    fn kill_all_senders(&mut self) {
        let stopped = self.ids(Part::Sender, |actor| actor.stopped_until.is_some());
        if !stopped.is_empty() && self.random.below(20) > 0 {
            return;
        }
        // Those first that may not be in the channel yet: if all others were dead, they would create it anew.
        for is_in in [false, true] {
            for id in self.ids(Part::Sender, |actor| (actor.state == State::In) == is_in) {
                self.kill(id);
            }
        }
    }

    fn act(&mut self) {
        match self.random.below(10) {
            0 => {
                // Several kills may come at once.
                for _ in 0..self.random.below(3) {
                    self.dispensable().into_iter().for_each(|id| self.kill(id));
                }
            }
            1 | 2 => {
                self.dispensable().into_iter().for_each(|id| self.ask_to_leave(id));
            }
            3 => self.kill_all_senders(),
            _ if !self.kind.is_shared() && self.random.below(3) == 0 => self.kill_all_senders(),
            _ => {
                self.dispensable().into_iter().for_each(|id| self.kill(id));
            }
        }
    }

    fn torture(&mut self, kills: u64, stops: u64, stop: Duration) {
        let start = Instant::now();
        (0..2).for_each(|_| self.fill_up());
        self.everybody_goes_on();
        while self.kills < kills || self.stops < stops {
            let stopped = self.actors.values().filter(|a| a.stopped_until.is_some()).count() as u64;
            if stopped < 2 && self.stops + stopped < stops {
                let ids: Vec<u64> = self.actors.keys().copied().collect();
                if let Some(id) = self.some(&ids)
                    && self.actors[&id].stopped_until.is_none()
                {
                    self.stop(id, stop);
                }
            }
            // Kills are spread over the stops.
            if self.kills * stops.max(1) <= kills * (self.stops + 1) && self.kills < kills {
                self.act();
            } else if let Some(due) = self.continue_due() {
                self.until("the next to be continued", |_| Instant::now() >= due);
            }
            self.fill_up();
            let is_stopped = self.actors.values().any(|actor| actor.stopped_until.is_some());
            match self.random.below(3) {
                // While an actor is stopped, others may have to wait for it.
                0 if !is_stopped => self.everybody_goes_on(),
                _ => self.go_on_for_a_while(),
            }
        }
        self.until("all to be continued", |scenario| {
            scenario.actors.values().all(|actor| actor.stopped_until.is_none())
        });
        self.everybody_goes_on();
        self.finish();
        self.check();
        let received: u64 = self.stays.iter().map(|stay| stay.received).sum();
        let missed: u64 = self.stays.iter().map(|stay| stay.missed).sum();
        println!(
            "{:?} {}: {} kills, {} stops, {} senders, {} stays, {received} messages received, \
             {missed} missed, {} blocks in one order, {} evictions, {} waits for a host, {} found \
             at the cap, {:.1} s",
            self.kind,
            self.seed,
            self.kills,
            self.stops,
            self.senders.len(),
            self.stays.len(),
            self.blocks.len(),
            self.evictions,
            self.retries,
            self.cap_finds,
            start.elapsed().as_secs_f64()
        );
    }

    /// Whatever number of processes have come and gone, the resources of a survivor must not grow.
    fn demand_little(&mut self, id: u64) {
        let limit = Instant::now() + LIMIT;
        loop {
            let actor = self.actors.get_mut(&id).unwrap();
            actor.census = None;
            writeln!(actor.child.stdin.as_mut().unwrap(), "census").unwrap();
            self.until("a census", |scenario| scenario.actors[&id].census.is_some());
            let census = self.actors[&id].census.clone().unwrap();
            let count = |word: &str| {
                let found = census.split(' ').find_map(|pair| pair.strip_prefix(word)).unwrap();
                found.parse::<u64>().unwrap()
            };
            // An actor reports how its last stay ended before it releases the memory.
            if count("maps=") == 0 && count("descriptors=") <= DESCRIPTORS_MAX {
                return;
            }
            if Instant::now() > limit {
                self.fail(&format!("{id} has {census}, and no channel is left"));
            }
        }
    }

    /// Makes every actor leave, and checks that nothing stays.
    fn finish(&mut self) {
        let all_in = |scenario: &Self| {
            scenario.actors.values().all(|actor| !matches!(actor.state, State::Starting))
        };
        self.until("all to be in", all_in);
        for id in self.ids(Part::Sender, |_| true) {
            self.ask_to_leave(id);
            self.until("a sender to leave", |scenario| !scenario.actors.contains_key(&id));
        }
        self.until("the receivers to see the end", |scenario| {
            scenario.actors.values().all(|actor| actor.state != State::In)
        });
        for id in self.ids(Part::Receiver, |actor| actor.state == State::Starting) {
            self.demand_little(id);
        }
        for id in self.ids(Part::Receiver, |actor| actor.state != State::Leaving) {
            self.ask_to_leave(id);
        }
        self.until("the receivers to leave", |scenario| scenario.actors.is_empty());
        let domain = Domain::open_at(self.directory.path()).unwrap();
        assert!(domain.channels().unwrap().is_empty());
        drop(domain);
        assert!(self.directory.files().is_empty(), "{:?}", self.directory.files());
    }

    /// Checks that the reports of receivers and senders agree.
    fn check(&mut self) {
        let mut ends: HashMap<u64, u64> = HashMap::new();
        let mut finals: HashMap<u64, u64> = HashMap::new();
        let stays = std::mem::take(&mut self.stays);
        for stay in &stays {
            // A receiver that left or was evicted saw no end.
            if !matches!(stay.end.as_str(), "ended" | "died") || stay.received == 0 {
                continue;
            }
            let misses = self.kind == Kind::Overwrite;
            let end = if misses { stay.first + stay.received + stay.missed } else { stay.last };
            let other = *ends.entry(stay.epoch).or_insert(end);
            if other != end {
                self.fail(&format!("the end is {other} and {end}: {stay:?}"));
            }
            if let (Some((block, hash)), false) = (&stay.tail, misses) {
                self.same_block(stay.id, (stay.epoch, *block), hash);
            }
            for (id, &(first, next)) in stay.from.iter().filter(|_| !misses) {
                let other = *finals.entry(*id).or_insert(next);
                let sender = self.senders[id];
                let is_too_late = sender.order >= stay.joined && first != 0;
                if other != next || is_too_late {
                    self.fail(&format!("{id:x} sent {other} or {next}, from {first}: {stay:?}"));
                }
            }
            let senders: Vec<(u64, Sent)> =
                self.senders.iter().map(|(id, it)| (*id, *it)).collect();
            for (id, sender) in senders {
                if id >> 32 != stay.epoch || sender.committed == 0 {
                    continue;
                }
                let got = if misses { Some(end) } else { stay.from.get(&id).map(|it| it.1) };
                let is_lost = match got {
                    Some(next) if sender.is_closed => next != sender.committed,
                    Some(next) => next < sender.committed,
                    None => sender.order >= stay.joined,
                };
                if is_lost {
                    self.fail(&format!("{id:x} committed {sender:?}, got {got:?}: {stay:?}"));
                }
            }
        }
        self.stays = stays;
        if self.cap_finds > 0 && self.stops == 0 {
            self.fail(&format!("{} messages were found at the cap only", self.cap_finds));
        }
    }
}

// Keeps P14.
#[test]
fn tortured_channels_lose_nothing_and_nobody_hangs() {
    let kills = given("COREWIRE_TORTURE_KILLS", 60);
    let stops = given("COREWIRE_TORTURE_STOPS", 0);
    let stop = Duration::from_millis(given("COREWIRE_TORTURE_STOP_MS", 1000));
    let channels = given("COREWIRE_TORTURE_CHANNELS", 5);
    let mut random = Random::from_environment();
    let shared_memory_files = || std::fs::read_dir("/dev/shm").map_or(0, Iterator::count);
    let before = shared_memory_files();
    let tortured: Vec<_> = (0..channels)
        .map(|index| {
            let seed = random.below(u64::MAX);
            let kind = KINDS[usize::try_from(index % 5).unwrap()];
            thread::spawn(move || {
                let mut scenario = Scenario::new(kind, index, seed);
                scenario.torture(kills.div_ceil(channels), stops.div_ceil(channels), stop);
                scenario.kills
            })
        })
        .collect();
    let ends: Vec<_> = tortured.into_iter().map(thread::JoinHandle::join).collect();
    let killed: u64 = ends.iter().filter_map(|end| end.as_ref().ok()).sum();
    println!("{killed} killed");
    assert!(ends.iter().all(Result::is_ok), "a channel failed; see above");
    assert_eq!(shared_memory_files(), before);
}
