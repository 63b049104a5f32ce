//! Queues whose workers are killed and stopped, and last values with readers in other processes.
//!
//! `COREWIRE_TORTURE_JOBS` sets the number of jobs (default: 20,000), `COREWIRE_TORTURE_KILLS` that of kills (default: 20),
//! `COREWIRE_TORTURE_UPDATES` that of updates (default: 100,000).

use std::time::{Duration, Instant};

use corewire::Domain;

use crate::roles::{Directory, Random, Role};

/// Longer than anything takes on a crowded machine.
const LIMIT: Duration = Duration::from_secs(600);
const WORKERS: usize = 8;

fn given(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// How often each job was done.
fn done(directory: &Directory, jobs: u64) -> Vec<u32> {
    let bytes = std::fs::read(directory.path().with_extension("done")).unwrap();
    let mut times = vec![0; usize::try_from(jobs).unwrap()];
    for number in bytes.as_chunks::<8>().0 {
        times[usize::try_from(u64::from_le_bytes(*number)).unwrap()] += 1;
    }
    times
}

/// Gives jobs to eight workers, of which one after the other is killed and replaced.
fn with_kills(test: &str, at_most_once: bool) -> (Vec<u32>, u64, u64) {
    let directory = Directory::new(test);
    let _ = std::fs::remove_file(directory.path().with_extension("done"));
    let domain = Domain::open_at(directory.path()).unwrap();
    let (jobs, kills) =
        (given("COREWIRE_TORTURE_JOBS", 20_000), given("COREWIRE_TORTURE_KILLS", 20));
    let builder = domain.queue("jobs").capacity(1000);
    let builder = if at_most_once { builder.at_most_once() } else { builder };
    let queue = builder.create().unwrap();
    let start = || Role::start("work", &directory, "jobs", &[]);
    let mut workers: Vec<_> = std::iter::repeat_with(start).take(WORKERS).collect();
    let mut random = Random::from_environment();
    let (mut killed, mut pushed) = (0, 0);
    let began = Instant::now();
    while pushed < jobs || killed < kills {
        assert!(began.elapsed() < LIMIT, "{:?}", queue.view());
        // As many jobs between two kills as there are for each.
        let next = match (killed + 1).checked_mul(jobs) {
            Some(all) if killed < kills => all / (kills + 1),
            _ => jobs,
        };
        while pushed < next.min(jobs) {
            queue.push(&pushed.to_le_bytes()).unwrap();
            pushed += 1;
        }
        if killed < kills {
            let index = usize::try_from(random.below(WORKERS as u64)).unwrap();
            let worker = &mut workers[index];
            worker.until("works");
            worker.kill();
            workers[index] = start();
            killed += 1;
        }
    }
    queue.finish();
    assert!(queue.wait_until_done(LIMIT).unwrap());
    for mut worker in workers {
        assert!(worker.is_success());
    }
    let times = done(&directory, jobs);
    let repeated = queue.view().repeated;
    let _ = std::fs::remove_file(directory.path().with_extension("done"));
    println!("{jobs} jobs, {killed} kills, {repeated} went back, in {:?}", began.elapsed());
    (times, killed, repeated)
}

// Keeps P243.
#[test]
fn a_queue_does_each_job_at_least_once_whatever_is_killed() {
    let (times, killed, repeated) = with_kills("queue-least", false);
    assert!(times.iter().all(|&times| times >= 1));
    // A worker has one job at a time.
    assert!(repeated <= killed, "{repeated} of {killed}");
    let twice = times.iter().map(|&times| u64::from(times) - 1).sum::<u64>();
    assert!(twice <= repeated, "{twice} of {repeated}");
}

// Keeps P243.
#[test]
fn a_queue_does_each_job_at_most_once_and_loses_one_with_a_kill() {
    let (times, killed, repeated) = with_kills("queue-most", true);
    assert!(times.iter().all(|&times| times <= 1));
    let lost = times.iter().filter(|&&times| times == 0).count() as u64;
    println!("{lost} lost");
    assert!(lost <= killed && repeated <= killed, "{lost} lost, {repeated} went back of {killed}");
}

// Keeps P243.
#[test]
fn a_worker_that_is_stopped_keeps_its_job_and_holds_up_no_other() {
    let directory = Directory::new("queue-stopped");
    let domain = Domain::open_at(directory.path()).unwrap();
    let queue = domain.queue("jobs").create().unwrap();
    let mut workers = [(); 3].map(|()| Role::start("work", &directory, "jobs", &[]));
    workers.iter_mut().for_each(|worker| drop(worker.until("works")));
    // Wherever it is: asking, with a job, or saying that it has done it.
    workers[0].stop();
    for job in 0..5000_u64 {
        queue.push(&job.to_le_bytes()).unwrap();
    }
    let began = Instant::now();
    while queue.view().done < 4999 {
        assert!(began.elapsed() < LIMIT, "{:?}", queue.view());
        std::thread::yield_now();
    }
    assert_eq!(queue.view().repeated, 0);
    workers[0].go_on();
    queue.finish();
    assert!(queue.wait_until_done(LIMIT).unwrap());
    for mut worker in workers {
        assert!(worker.is_success());
    }
    assert!(done(&directory, 5000).iter().all(|&times| times == 1));
    std::fs::remove_file(directory.path().with_extension("done")).unwrap();
}

// Keeps P242.
#[test]
fn readers_of_a_last_value_in_other_processes_see_it_whole_and_never_go_back() {
    let directory = Directory::new("latest-readers");
    let domain = Domain::open_at(directory.path()).unwrap();
    let updates = given("COREWIRE_TORTURE_UPDATES", 100_000);
    for bytes in [8, 1000] {
        let mut writer = domain.latest("value").largest(bytes).values(4).create().unwrap();
        let start = || Role::start("watch", &directory, "value", &[]);
        let mut readers: Vec<_> = std::iter::repeat_with(start).take(3).collect();
        readers.iter_mut().for_each(|reader| drop(reader.until("reads")));
        for number in 1..=updates {
            // One that is killed or stopped means nothing to the writer.
            if number == updates / 2 {
                readers[0].kill();
                readers[1].stop();
            }
            writer.set(&number.to_le_bytes().repeat(bytes / 8)).unwrap();
        }
        readers[1].go_on();
        drop(writer);
        for mut reader in readers.into_iter().skip(1) {
            let said = reader.until("last");
            assert!(said.starts_with(&format!("{updates} of ")), "{said}");
            assert!(reader.is_success());
        }
    }
}
