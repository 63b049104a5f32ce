//! The processes of the tests: `corewire-role ROLE DIRECTORY CHANNEL [OPTION]...`. Each prints
//! lines that report its progress, so that a test can wait for an event instead of for a time.
//!
//! | role | does |
//! |---|---|
//! | `sender` | sends numbered messages of mixed lengths until its standard input ends |
//! | `receiver` | waits for the channel, checks every message, prints how it ended |
//! | `counted-sender`, `counted-receiver` | exchange a given number of 48-byte messages |
//! | `counted-exchange` | sends long messages back and forth from an endpoint to another one: `OWN-OTHER` |
//! | `deaf-sender`, `deaf-receiver` | cannot read from their sockets once they are joined |
//! | `forker` | forks `count` times while two threads open, create, join and drop |
//! | `leave-children` | has a channel, and children that were forked meanwhile and do not end |
//! | `real-time` | makes descriptors in a real-time thread beside an ordinary one of the same core |
//! | `mixed-filters` | makes descriptors in threads of which some may not hand a lock over |
//! | `fork` | forks with live handles, and checks what child and parent can do |
//! | `faults` | runs a scenario under a supervisor, which makes a system call fail |
//! | `look` | prints what it sees of a domain and what it may do there, one line for each |
//! | `idle` | opens `count` connections to every process, sends nothing, prints how many are kept |
//! | `copier` | copies messages out until the end, checks each, prints how many it missed |
//! | `holder` | joins to copy messages out, but never reads |
//! | `intruder` | joins by hand and tries to write the sender's memory; prints what was refused |
//! | `torture-sender`, `torture-receiver` | take part in channels at random, until told to leave |
//! | `exec` | has a channel, and executes itself as `left`, which prints what it still has |
//! | `talker` | sends numbered messages from an endpoint to the endpoint `sink` |
//! | `far-sink` | receives numbered messages of another host, by the file of hosts that the channel's name is |
//! | `quiet-sender`, `quiet-receiver` | are idle, then exchange a hundred messages |
//! | `found` | says what the kernel gives it |
//! | `limited` | creates channels under a limit on file sizes |
//! | `sleeper` | sleeps as a receiver, and is refused system calls meanwhile |
//! | `by-hand` | joins by hand as a guest, and requests what guests do not get |
//! | `names` | creates `count` channels, and keeps them |
//! | `rows` | joins `count` times, says what is refused |
//! | `bad-guest` | holds up a sender that evicts after `count` ms as it can: `trickle`, `rejoin`, `stop` |
//! | `evicting-sender` | sends as fast as it can, says how much that was |
//! | `echo` | sends back the large messages that it gets; may be refused copies after `count` of them |
//! | `push`, `pull` | send or receive messages of `count` bytes as long as the endpoint `parent` is there |
//! | `burst` | sends numbered messages of any length, at most `count` bytes of them, or loans; says what was refused |
//! | `hold` | receives messages and keeps some, in place, as long as the endpoint `parent` is there |
//! | `collide` | sends a message of `count` bytes before it receives one |
//! | `mesh` | links with `count` others, under a limit of descriptors, says how many it has open |
//! | `exchange` | takes part in a case of a property test, which it reads from its standard input |
//! | `listen` | sends back a packet of each of `count` clients of its listener, and keeps the listener |
//! | `connect` | connects when the listener exists, exchanges a packet, says how that ended |
//! | `crowd` | connects to a listener until it is refused, `count` times at most |
//! | `fork-listener` | forks with a listener and connections, and checks what child and parent can do |
//! | `serve-calls` | serves calls until its standard input ends, says who binds and who goes |
//! | `make-calls` | makes `count` calls and one without a reply, says by which driver and how that ended |
//! | `keep-calling` | makes calls until its standard input ends, says how many |
//! | `pass-descriptors` | sends a message with as many descriptors as a line of its input says, says what became of them |
//! | `monitor` | is the monitor with the number of the channel's name, until its standard input ends |
//! | `ring` | joins all monitors to a ring, and says how many circuits they have when it is asked |
//! | `attack-monitor` | does to a monitor what the channel's name says, says how that ended |
//! | `misbehave` | binds and sends `count` messages that are none, says how that ended |
//! | `work` | does the jobs of a queue, notes each in a file |
//! | `watch` | reads a last value until its writer ends, says how many |
//! | `add-under-lock` | adds to numbers of a window under its lock; `count` is its place |
//! | `own-window` | has a window until its standard input ends; with `shared` others can only read it |
//! | `close-window` | shuts down its connections while it has the lock of a window |
//! | `hold-window` | with `count` enters a fence of two; holds the lock of a window until its standard input ends |
//! | `intrude-window` | attaches to a window to read, and tries to write to it |
//! | `visit-window` | as a guest attaches to a window, and calls what guests have no part in |
//! | `fork-window` | forks with a window, and checks what child and parent can do |
//! | `expose` | exposes memory and serves until its standard input ends; with `keep` it makes no call before a line of it |
//! | `visit` | makes `count` accesses to exposed memory at random, and compares; without end if there is no `count` |
//! | `tuned` | sends a message of `count` bytes from an endpoint to another one, and says how it went |
//! | `follow` | takes part in a program of `count` operations on a window, as process `group` of `receivers` |
//! | `lock` | locks the files of the channel's name that it can open, prints which |
//!
//! `groups=G,G` followed by `uid=N` make it a process of another user before it opens anything.
//! `shared` makes a sender one of several. `overwrite` and `evict-ms=N` set the policy for a
//! sender's slow receivers. `levels` gives its channel two levels; `group=N` sets the last-level
//! cache of a role. `driver=NAME` is what a client binds by, `within-ms=N` how long that may take, `monitor=N` the number
//! of its monitor, and `monitors-of=UID:DIRECTORY` the domain of that. `rule=bind:NAME:UID,UID` and `rule=export:...` are
//! a monitor's rules. `container` gives it process numbers, mounts and a `/proc` of its own. `keep` makes a receiver hold all messages. `owner=UID` and `access=group:GID` or
//! `access=users:UID,UID` set how it opens the domain.

mod by_hand;
mod circuits;
mod copying;
mod counted;
mod executed;
mod exposing;
mod faults;
mod forked;
mod guest;
mod hosts;
mod in_place;
mod intruder;
mod large;
mod listening;
mod mesh;
mod patterns;
mod refuse;
mod stream;
mod supervised;
mod talker;
mod torturer;
mod tuned;
mod typed;
mod windows;

use std::process::ExitCode;
use std::time::Duration;

use corewire::{Access, Domain, Levels, Wait};

/// The options of a role.
pub(crate) struct Options {
    pub(crate) channel: String,
    pub(crate) wait: Wait,
    pub(crate) count: u64,
    pub(crate) receivers: usize,
    pub(crate) slots: usize,
    pub(crate) nap_one_in: u64,
    pub(crate) is_shared: bool,
    pub(crate) is_filtered_later: bool,
    pub(crate) waiter: u128,
    pub(crate) slow: Slow,
    pub(crate) levels: Levels,
    pub(crate) group: u32,
    pub(crate) has_snapshots: bool,
    pub(crate) keeps: bool,
    pub(crate) worst: guest::Worst,
    pub(crate) driver: Option<corewire_bind::Driver>,
    pub(crate) bind_within: Duration,
    pub(crate) monitor: corewire_bind::MonitorAt,
    pub(crate) rules: Vec<corewire_circuit::node::Rule>,
}

/// The policy for slow receivers.
#[derive(Clone, Copy)]
pub(crate) enum Slow {
    Block,
    Overwrite,
    Evict(Duration),
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corewire-role: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let mut words = std::env::args().skip(1);
    let mut word = || words.next().ok_or("corewire-role ROLE DIRECTORY CHANNEL [OPTION]...");
    let (role, directory, channel) = (word()?, word()?, word()?);
    if role == "faults" {
        return faults::run(&channel, directory.as_ref(), &word()?);
    }
    let wait = Wait::default();
    let (mut groups, mut builder) = (Vec::new(), Domain::builder().path(directory.as_ref()));
    let mut options = Options {
        channel,
        wait,
        count: 0,
        receivers: 8,
        slots: 4096,
        nap_one_in: 0,
        is_shared: false,
        is_filtered_later: false,
        waiter: 0,
        slow: Slow::Block,
        levels: Levels::One,
        group: 0,
        has_snapshots: false,
        keeps: false,
        worst: guest::Worst::Nothing,
        driver: None,
        bind_within: Duration::from_secs(60),
        monitor: corewire_bind::MonitorAt::default(),
        rules: Vec::new(),
    };
    for option in words {
        match option.split_once('=').unwrap_or((&option, "")) {
            ("count", value) => options.count = value.parse()?,
            ("receivers", value) => options.receivers = value.parse()?,
            ("slots", value) => options.slots = value.parse()?,
            ("nap-one-in", value) => options.nap_one_in = value.parse()?,
            ("shared", _) => options.is_shared = true,
            ("overwrite", _) => options.slow = Slow::Overwrite,
            ("evict-ms", value) => {
                options.slow = Slow::Evict(Duration::from_millis(value.parse()?));
            }
            ("levels", _) => options.levels = Levels::Two,
            ("group", value) => options.group = value.parse()?,
            ("snapshots", _) => options.has_snapshots = true,
            ("keep", _) => options.keeps = true,
            ("driver", value) => options.driver = Some(value.parse()?),
            ("within-ms", value) => options.bind_within = Duration::from_millis(value.parse()?),
            ("monitor", value) => options.monitor = options.monitor.number(value.parse()?),
            ("monitors-of", value) => {
                let (owner, path) = value.split_once(':').ok_or("monitors-of=UID:DIRECTORY")?;
                let monitors = Domain::builder().owner(owner.parse()?).path(path.as_ref());
                options.monitor = options.monitor.domain(&monitors.open()?);
            }
            ("rule", rule) => options.rules.push(circuits::rule(rule)?),
            ("trickle", _) => options.worst = guest::Worst::Trickle,
            ("stop", _) => options.worst = guest::Worst::Stop,
            ("rejoin", _) => options.worst = guest::Worst::Rejoin,
            ("spin", _) => options.wait = Wait::Spin,
            ("park", _) => options.wait = Wait::Park,
            ("groups", list) => groups = guest::numbers(list)?,
            ("uid", value) => guest::become_user(value.parse()?, &groups)?,
            ("owner", value) => builder = builder.owner(value.parse()?),
            ("access", rule) => builder = builder.access(access(rule)?),
            ("refuse", value) => {
                let (call, errno) = value.split_once(':').ok_or("refuse=CALL:ERRNO")?;
                refuse::refuse_beyond_streams(call.parse()?, errno.parse()?)?;
            }
            ("not-dumpable", _) => refuse::become_opaque()?,
            ("user-namespace", _) => refuse::enter_user_namespace()?,
            ("no-membarrier", _) => refuse::refuse_membarrier()?,
            ("no-waitv", _) => refuse::refuse_waitv()?,
            ("no-peer-life", _) => refuse::refuse_peer_life()?,
            ("filter-later", _) => options.is_filtered_later = true,
            ("waiter", value) => options.waiter = value.parse()?,
            _ => return Err(format!("no option {option}").into()),
        }
    }
    match role.as_str() {
        "idle" => return guest::idle(directory.as_ref(), options.count),
        "intruder" => return intruder::run(directory.as_ref(), &options.channel),
        "torture-sender" => return torturer::send(directory.as_ref(), &options),
        "torture-receiver" => return torturer::receive(directory.as_ref(), &options),
        "lock" => return guest::lock(directory.as_ref(), &options.channel),
        "by-hand" => return by_hand::run(directory.as_ref(), &options),
        "left" => return executed::say_what_is_left(directory.as_ref()),
        "found" => return refuse::say_what_is_found(),
        "forker" => return forked::fork_beside_churning(directory.as_ref(), &options),
        "mixed-filters" => return forked::mix_filters(&options),
        "real-time" => return forked::share_core_with_real_time(&options),
        _ => {}
    }
    let domain = builder.open()?;
    match role.as_str() {
        "sender" => stream::send(&domain, &options),
        "receiver" => stream::receive(&domain, &options),
        "copier" => copying::copy(&domain, &options),
        "holder" => copying::hold(&domain, &options),
        "counted-sender" => counted::send(&domain, &options),
        "counted-receiver" => counted::receive(&domain, &options),
        "counted-exchange" => counted::exchange(&domain, &options),
        "deaf-sender" => refuse::deaf_sender(&domain, &options),
        "deaf-receiver" => refuse::deaf_receiver(&domain, &options),
        "look" => guest::look(&domain, &options),
        "names" => guest::take_names(&domain, &options),
        "rows" => guest::take_rows(&domain, &options),
        "bad-guest" => guest::misbehave(&domain, &options),
        "evicting-sender" => guest::send_evicting(&domain, &options),
        "fork" => forked::run(&domain, &options, directory.as_ref()),
        "leave-children" => forked::leave_children(&domain, &options),
        "exec" => executed::execute(&domain, &options, directory.as_ref()),
        "talker" => talker::talk(&domain, &options),
        "far-sink" => hosts::sink(&domain, &options),
        "work" => patterns::work(&domain, directory.as_ref(), &options),
        "watch" => patterns::watch(&domain, &options),
        "add-under-lock" => windows::add(&domain, &options),
        "own-window" => windows::own(&domain, &options),
        "close-window" => windows::close(&domain, &options),
        "hold-window" => windows::hold(&domain, &options),
        "intrude-window" => windows::intrude(&domain, &options),
        "fork-window" => windows::fork(&domain, &options),
        "visit-window" => windows::visit(&domain, &options),
        "expose" => exposing::expose(&domain, &options),
        "visit" => exposing::visit(&domain, &options),
        "tuned" => tuned::send_one(&domain, &options),
        "follow" => windows::follow(&domain, &options),
        "mesh" => mesh::run(&domain, &options),
        "echo" => large::echo(&domain, &options),
        "listen" => listening::listen(&domain, &options),
        "connect" => listening::connect(&domain, &options),
        "crowd" => listening::crowd(&domain, &options),
        "fork-listener" => listening::fork(&domain, &options, directory.as_ref()),
        "push" => large::push(&domain, &options),
        "pull" => large::pull(&domain, &options),
        "burst" => in_place::burst(&domain, &options),
        "hold" => in_place::hold(&domain, &options),
        "exchange" => large::exchange(&domain, &options),
        "collide" => large::collide(&domain, &options),
        "quiet-sender" => refuse::quiet_sender(&domain, &options),
        "quiet-receiver" => refuse::quiet_receiver(&domain, &options),
        "limited" => refuse::limited(&domain, &options),
        "sleeper" => refuse::sleep(&domain, &options),
        "crowded-sender" => refuse::crowded_sender(&domain, &options),
        "serve-calls" => typed::serve(&domain, &options),
        "make-calls" => typed::call(&domain, &options),
        "keep-calling" => typed::keep_calling(&domain, &options),
        "pass-descriptors" => typed::pass(&domain, &options),
        "monitor" => circuits::monitor(&domain, &options),
        "ring" => circuits::ring(&domain, &options),
        "attack-monitor" => circuits::attack(&domain, &options),
        "misbehave" => typed::misbehave(&domain, &options),
        other => Err(format!("no role {other}").into()),
    }
}

fn access(rule: &str) -> Result<Access, Box<dyn std::error::Error>> {
    match rule.split_once(':') {
        Some(("group", gid)) => Ok(Access::Group(gid.parse()?)),
        Some(("users", list)) => Ok(Access::Users(guest::numbers(list)?)),
        _ => Err(format!("no access rule {rule}").into()),
    }
}
