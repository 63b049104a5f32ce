//! Members that are killed inside a collective call: all others return an error with the name of the dead, and none hangs.
//!
//! `COREWIRE_TORTURE_KILLS` sets the number of kills inside each call (default: 2), `COREWIRE_TORTURE_MEMBERS` the number
//! of members (default: 2, then 4), `COREWIRE_SEED` the seed. Prints how long the others took, from the moment on which
//! the process descriptor of the dead one was readable.
//!
//! A process of this program is a member if `COREWIRE_TORTURE_CALL` says which call to make.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, exit};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use corewire::Domain;
use corewire_group::{CollectiveError, Communicator, Group};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::given::given;

/// Longer than anything takes on a crowded machine; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(60);
const CALLS: [&str; 12] = [
    "barrier",
    "broadcast",
    "reduce",
    "allreduce",
    "gather",
    "allgather",
    "scatter",
    "reduce_scatter",
    "scan",
    "all_to_all",
    "iallreduce",
    "iallgather",
];
const CALL: &str = "COREWIRE_TORTURE_CALL";
const DIRECTORY: &str = "COREWIRE_TORTURE_DIRECTORY";

/// Microseconds of a clock that all processes share.
fn now() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

/// A member: writes `C` when it calls, and then `E rank-of-the-dead time-of-the-error time-of-the-descriptor`.
fn be_member(directory: &Path, call: &str, members: usize, length: usize) -> ! {
    let domain = Domain::open_at(directory).unwrap();
    let group = Group::builder(&domain, "deaths").join_timeout(PATIENCE).unwrap();
    let view = group.wait_for_members(members, PATIENCE).unwrap();
    let mut all = Communicator::builder(&domain, &group, &view).connect().unwrap();
    let mut pids = vec![0; members];
    all.gather(0, &[std::process::id()], &mut pids).unwrap();
    all.broadcast(0, &mut pids).unwrap();
    let (seen, ends) = channel();
    for (rank, pid) in pids.into_iter().enumerate().filter(|(rank, _)| *rank != all.rank()) {
        let seen = seen.clone();
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        std::thread::spawn(move || {
            poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None).unwrap();
            let _ = seen.send((rank, now()));
        });
    }
    println!("C");
    let mut values = vec![1u64; length];
    let mut long = vec![0u64; length * members];
    let error = loop {
        let outcome = match call {
            "barrier" => all.barrier(),
            "broadcast" => all.broadcast(0, &mut values),
            "reduce" => all.reduce(0, &mut values, u64::wrapping_add),
            "allreduce" => all.allreduce(&mut values, u64::wrapping_add),
            "gather" => all.gather(0, &values, &mut long),
            "allgather" => all.allgather(&values, &mut long),
            "scatter" => all.scatter(0, &long, &mut values),
            "reduce_scatter" => all.reduce_scatter(&mut long, &mut values, u64::wrapping_add),
            "scan" => all.scan(&mut values, u64::wrapping_add),
            "iallreduce" => {
                let started = all.iallreduce(&values, u64::wrapping_add);
                started.and_then(|started| all.wait(started)).map(drop)
            }
            "iallgather" => all.iallgather(&values).and_then(|it| all.wait(it)).map(drop),
            _ => all.all_to_all(&long.clone(), &mut long),
        };
        if let Err(error) = outcome {
            break error;
        }
    };
    let at = now();
    let CollectiveError::Ended { member, .. } = error else { panic!("{error}") };
    let rank = view.members.iter().position(|one| *one == member).unwrap();
    let (dead, readable) = ends.recv_timeout(PATIENCE).unwrap();
    assert_eq!(dead, rank, "another one was named");
    println!("E {rank} {at} {readable}");
    // It keeps what others may still need until all have ended.
    let _ = std::io::stdin().read_line(&mut String::new());
    exit(0)
}

/// One round: what the survivors have written.
struct Round {
    children: Vec<Child>,
    lines: Receiver<(usize, String)>,
}

impl Round {
    fn start(directory: &Path, call: &str, members: usize, length: u64) -> Self {
        let (to, lines) = channel();
        let children = (0..members).map(|index| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([
                "--exact",
                "deaths::nobody_hangs_when_a_member_is_killed",
                "--nocapture",
            ]);
            command.env(CALL, format!("{call} {members} {length}")).env(DIRECTORY, directory);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let output = BufReader::new(child.stdout.take().unwrap());
            let to = to.clone();
            std::thread::spawn(move || {
                for line in output.lines().map_while(Result::ok) {
                    let _ = to.send((index, line));
                }
            });
            child
        });
        Self { children: children.collect(), lines }
    }

    /// The next line of each of these that begins with a word.
    fn expect(&self, mut of: Vec<usize>, word: &str) -> Vec<String> {
        let mut found = Vec::new();
        while !of.is_empty() {
            let (index, line) = self.lines.recv_timeout(PATIENCE).expect("somebody hangs");
            if line.starts_with(word) {
                of.retain(|one| *one != index);
                found.push(line);
            }
        }
        found
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        self.children.iter_mut().for_each(|child| _ = child.kill());
        self.children.iter_mut().for_each(|child| _ = child.wait());
    }
}

fn percentile(times: &mut [f64], part: usize) -> f64 {
    times.sort_by(f64::total_cmp);
    times[(times.len() - 1) * part / 100]
}

// Keeps P211, P215.
#[test]
fn nobody_hangs_when_a_member_is_killed() {
    if let Ok(call) = std::env::var(CALL) {
        let [call, members, length] = call.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let directory = PathBuf::from(std::env::var(DIRECTORY).unwrap());
        be_member(&directory, call, members.parse().unwrap(), length.parse().unwrap());
    }
    let kills = given("COREWIRE_TORTURE_KILLS", 2);
    let sizes = match given("COREWIRE_TORTURE_MEMBERS", 0) {
        0 => vec![2, 4],
        members => vec![usize::try_from(members).unwrap()],
    };
    let mut seed = given("COREWIRE_SEED", u64::from(std::process::id()) << 20 | 1);
    println!("COREWIRE_SEED={seed}");
    let mut below = |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let name = format!("corewire-group-deaths-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    for members in sizes {
        for call in CALLS {
            let (mut late, mut bare, mut whole) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..kills {
                let mut round = {
                    // Short values, and values that go in pieces.
                    let length = [1, 16, 20_000][usize::try_from(below(3)).unwrap()];
                    Round::start(&directory, call, members, length)
                };
                round.expect((0..members).collect(), "C");
                let until = Instant::now() + Duration::from_micros(below(3000));
                while Instant::now() < until {
                    std::thread::yield_now();
                }
                let victim = usize::try_from(below(members as u64)).unwrap();
                let killed = now();
                round.children[victim].kill().unwrap();
                let survivors = (0..members).filter(|index| *index != victim).collect();
                for line in round.expect(survivors, "E") {
                    let times = line.split(' ').skip(2).map(|word| word.parse::<f64>().unwrap());
                    let [error, readable] = times.collect::<Vec<_>>().try_into().unwrap();
                    late.push(error - readable);
                    bare.push(readable - killed);
                    whole.push(error - killed);
                }
            }
            println!(
                "{members} members, {call}: {} survivors return {:.0} us p50, {:.0} us p99 behind the \
                 descriptor; behind the kill: descriptor {:.0} us p99, error {:.0} us p99",
                late.len(),
                percentile(&mut late, 50),
                percentile(&mut late, 99),
                percentile(&mut bare, 99),
                percentile(&mut whole, 99),
            );
        }
    }
    let _ = std::fs::remove_dir_all(directory);
}
