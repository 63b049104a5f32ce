//! Ranks that are killed and stopped.
//!
//! Every test here keeps P231.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::job::Job;
use crate::mpis::Mpi;
use crate::place::Place;

fn kills() -> u32 {
    let given = std::env::var("COREWIRE_MPI_KILLS").ok();
    given.map_or(1, |given| given.parse().expect("a number of kills"))
}

/// The processes of the ranks, as they tell, when the token goes around.
fn running(job: &mut Job, ranks: usize) -> Vec<Pid> {
    let [lines, _] = job.lines([("process ", ranks), ("running", 1)]);
    let mut all = vec![None; ranks];
    for line in lines {
        let (process, rank) = line.split_once(" of rank ").expect("process P of rank R");
        all[rank.parse::<usize>().unwrap()] = Pid::from_raw(process.parse().unwrap());
    }
    all.into_iter().map(|process| process.expect("every rank tells")).collect()
}

/// After `job` has ended, the next one finds the runtime directory swept.
fn expect_swept(mpi: &Mpi, place: &Place) {
    let program = mpi.compile("ring");
    let mut job = Job::start(place, mpi.launcher(2).arg(&program));
    job.line("look");
    job.answer();
    job.expect_success();
    assert_eq!(place.files(), Vec::<String>::new(), "left in the runtime directory");
}

pub(crate) fn a_killed_rank_ends_the_job(mpi: &Mpi) {
    let program = mpi.compile("killed");
    let place = Place::new("killed");
    for kill in 0..kills() {
        let mut job = Job::start(&place, mpi.launcher(3).arg(&program));
        let ranks = running(&mut job, 3);
        kill_process(ranks[kill as usize % 3], Signal::KILL).unwrap();
        let (status, output) = job.finish();
        assert!(!status.success(), "{output}");
    }
    expect_swept(mpi, &place);
}

/// What the launcher starts lives on when a rank dies, so that it does not notice. The error of the provider ends each
/// rank, one after the other.
pub(crate) fn those_that_wait_for_a_killed_rank_get_an_error(mpi: &Mpi) {
    let program = mpi.compile("killed");
    let place = Place::new("error");
    let mut waits = Vec::new();
    for kill in 0..kills() {
        let mut command = mpi.launcher(3);
        // Launchers may end before they have passed on what an aborting rank says.
        command.args(["sh", "-c", "\"$0\" 2>> \"$TMPDIR/errors\"; exec sleep 1000"]).arg(&program);
        let mut job = Job::start(&place, &mut command);
        let ranks = running(&mut job, 3);
        let victim = kill as usize % 3;
        let [waiting, other] = [1, 2]
            .map(|after| pidfd_open(ranks[(victim + after) % 3], PidfdFlags::empty()).unwrap());
        kill_process(ranks[victim], Signal::KILL).unwrap();
        let began = Instant::now();
        job.wait_for(&waiting);
        waits.push(began.elapsed());
        job.wait_for(&other);
        let errors = place.temporary().join("errors");
        let said = fs::read_to_string(&errors).unwrap();
        assert!(said.contains("rror"), "nothing says why: {said:?}");
        fs::remove_file(errors).unwrap();
    }
    waits.sort();
    let at = |part: usize| waits[(waits.len() * part / 100).min(waits.len() - 1)];
    let [half, most] = [at(50), at(99)].map(|wait: Duration| wait.as_secs_f64() * 1e3);
    println!("{}: a rank ends {half:.1} ms after the kill (median), {most:.1} ms (p99)", mpi.name);
    expect_swept(mpi, &place);
}

pub(crate) fn a_stopped_rank_holds_up_only_those_that_wait_for_it(mpi: &Mpi) {
    let program = mpi.compile("stopped");
    let place = Place::new("stopped");
    let mut job = Job::start(&place, mpi.launcher(4).arg(&program));
    let [lines, _] = job.lines([("process ", 1), ("others are done", 1)]);
    let stopped = lines[0].split_once(" of rank ").unwrap().0.to_owned();
    let status = fs::read_to_string(format!("/proc/{stopped}/status")).unwrap();
    let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap().trim();
    assert!(state.starts_with('T'), "{state}");
    kill_process(Pid::from_raw(stopped.parse().unwrap()).unwrap(), Signal::CONT).unwrap();
    job.line("look");
    job.answer();
    job.expect_success();
}
