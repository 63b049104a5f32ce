//! Work queues among threads; `proof/kill` has processes that are killed.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use corewire::{ChannelName, MessageError, QueueError};

use crate::scratch::Scratch;

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn every_job_is_done_once_in_order_of_acceptance() {
    let scratch = Scratch::new("queue-once");
    let domain = scratch.domain();
    let queue = domain.queue("jobs").capacity(20).create().unwrap();
    let done = Mutex::new(Vec::new());
    let count = 2000;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut worker = domain.queue("jobs").worker().unwrap();
                let mut last = None;
                while let Some(job) = worker.take().unwrap() {
                    assert!(last.is_none_or(|last| job.number() > last), "out of order");
                    assert!(!job.is_repeated());
                    last = Some(job.number());
                    done.lock().unwrap().push((job.number(), job.to_vec()));
                    job.done().unwrap();
                }
                // It is so for good.
                assert!(worker.take().unwrap().is_none());
            });
        }
        let produce = |from: u64| {
            let domain = &domain;
            move || {
                let mut producer = domain.queue("jobs").producer().unwrap();
                for number in 0..count {
                    let bytes = [8, 100, 5000, 200_000][usize::try_from(number % 4).unwrap()];
                    let mut job = vec![7; bytes];
                    job[..8].copy_from_slice(&(from << 32 | number).to_le_bytes());
                    producer.push(&job).unwrap();
                }
            }
        };
        let producing = [scope.spawn(produce(1)), scope.spawn(produce(2))];
        for number in 0..count {
            queue.push(&number.to_le_bytes()).unwrap();
        }
        producing.into_iter().for_each(|one| one.join().unwrap());
        queue.finish();
        assert_eq!(queue.push(b"late").unwrap_err(), QueueError::Finished);
        assert!(queue.wait_until_done(LONG).unwrap());
    });
    let done = done.into_inner().unwrap();
    let numbers: BTreeSet<_> = done.iter().map(|(number, _)| *number).collect();
    assert_eq!((done.len() as u64, numbers.len() as u64), (3 * count, 3 * count));
    let jobs: BTreeSet<_> = done.iter().map(|(_, job)| job[..8].to_vec()).collect();
    assert_eq!(jobs.len() as u64, 3 * count);
    assert!(done.iter().all(|(_, job)| job[8..].iter().all(|byte| *byte == 7)));
    let view = queue.view();
    assert_eq!((view.waiting, view.running, view.done), (0, 0, 3 * count));
}

#[test]
fn a_job_goes_back_before_all_others_if_its_worker_leaves_or_drops_it() {
    let scratch = Scratch::new("queue-back");
    let domain = scratch.domain();
    let queue = domain.queue("jobs").create().unwrap();
    (0..4u8).for_each(|job| queue.push(&[job]).unwrap());
    let [mut first, mut second] = [(); 2].map(|()| domain.queue("jobs").worker().unwrap());
    let job = first.take().unwrap().unwrap();
    assert_eq!((&job[..], job.is_repeated()), (&[0][..], false));
    drop(job);
    let job = second.take().unwrap().unwrap();
    assert_eq!((&job[..], job.is_repeated()), (&[0][..], true));
    job.done().unwrap();
    std::mem::forget(second.take().unwrap().unwrap());
    let running = first.take().unwrap().unwrap();
    assert_eq!(&running[..], [2]);
    drop(second);
    running.done().unwrap();
    // It is on its way back, or there.
    let mut rest = Vec::new();
    queue.finish();
    while let Some(job) = first.take().unwrap() {
        rest.push((job[0], job.is_repeated()));
        job.done().unwrap();
    }
    rest.sort_unstable();
    assert_eq!(rest, [(1, true), (3, false)]);
    assert_eq!(queue.view().repeated, 2);
}

#[test]
fn at_most_once_a_job_is_handed_out_once() {
    let scratch = Scratch::new("queue-most");
    let domain = scratch.domain();
    let queue = domain.queue("jobs").at_most_once().create().unwrap();
    (0..3u8).for_each(|job| queue.push(&[job]).unwrap());
    let mut worker = domain.queue("jobs").worker().unwrap();
    drop(worker.take().unwrap().unwrap());
    worker.take().unwrap().unwrap().done().unwrap();
    drop(worker);
    queue.finish();
    let mut worker = domain.queue("jobs").worker().unwrap();
    let job = worker.take().unwrap().unwrap();
    assert_eq!((&job[..], job.is_repeated()), (&[2][..], false));
    drop(job);
    assert!(worker.take().unwrap().is_none());
    assert!(queue.wait_until_done(Duration::ZERO).unwrap());
    assert_eq!(queue.view().done, 3);
}

// Keeps P243.
#[test]
fn workers_hear_of_the_end_though_the_owner_ends_at_once() {
    let scratch = Scratch::new("queue-end");
    let domain = scratch.domain();
    for round in 0..100 {
        let builder = domain.queue("jobs");
        let builder = if round % 2 == 0 { builder } else { builder.at_most_once() };
        let queue = builder.create().unwrap();
        let work = || {
            let mut worker = domain.queue("jobs").worker().unwrap();
            let mut bytes = 0;
            while let Some(job) = worker.take().unwrap() {
                bytes += job.len();
                job.done().unwrap();
            }
            assert!(worker.take().unwrap().is_none());
            bytes
        };
        thread::scope(|scope| {
            let working = [(); 3].map(|()| scope.spawn(work));
            while queue.view().idle_workers < 3 {
                thread::yield_now();
            }
            queue.push(&vec![7; 300_000]).unwrap();
            queue.push(&[8; 20]).unwrap();
            queue.push(&[9; 3]).unwrap();
            queue.finish();
            assert!(queue.wait_until_done(LONG).unwrap());
            drop(queue);
            let bytes = working.map(|one| one.join().unwrap());
            assert_eq!(bytes.iter().sum::<usize>(), 300_023);
        });
    }
}

// Keeps P243.
#[test]
fn at_most_once_a_job_that_its_worker_has_not_seen_goes_back() {
    let scratch = Scratch::new("queue-unseen");
    let domain = scratch.domain();
    let queue = domain.queue("jobs").at_most_once().create().unwrap();
    let mut first = domain.queue("jobs").worker().unwrap();
    assert!(first.take_timeout(Duration::ZERO).is_err());
    queue.push(b"job").unwrap();
    while !first.is_ready().unwrap() {
        thread::yield_now();
    }
    drop(first);
    let mut second = domain.queue("jobs").worker().unwrap();
    assert_eq!(&second.take().unwrap().unwrap()[..], b"job");
    queue.finish();
    assert!(queue.wait_until_done(LONG).unwrap());
}

// Keeps P243.
#[test]
fn an_interrupt_loses_no_job() {
    let scratch = Scratch::new("queue-interrupt");
    let domain = scratch.domain();
    let queue = domain.queue("jobs").create().unwrap();
    let mut worker = domain.queue("jobs").worker().unwrap();
    queue.push(b"one").unwrap();
    let interrupter = worker.interrupter();
    let job = worker.take().unwrap().unwrap();
    interrupter.interrupt();
    job.done().unwrap();
    assert!(queue.wait_until_done(LONG).unwrap());
    let next = worker.take().map(drop);
    assert_eq!(next, Err(QueueError::Message(MessageError::Interrupted)));
}

#[test]
fn mistakes_and_ends_are_named() {
    let scratch = Scratch::new("queue-errors");
    let domain = scratch.domain();
    let name = ChannelName::new("jobs").unwrap();
    let not_there = domain.queue("jobs").worker().unwrap_err();
    assert_eq!(not_there, QueueError::NotFound(name.clone()));
    let late = domain.queue("jobs").producer_timeout(Duration::from_millis(10)).unwrap_err();
    assert_eq!(late.to_string(), "queue jobs was not created within 10ms");
    // An endpoint of the name is no queue.
    let endpoint = domain.endpoint("jobs").create().unwrap();
    assert_eq!(domain.queue("jobs").producer().unwrap_err(), QueueError::NotFound(name.clone()));
    drop(endpoint);
    let queue = domain.queue("jobs").largest(10).capacity(2).create().unwrap();
    assert!(domain.queue("jobs").create().is_err());
    let long = QueueError::TooLong { max: 10, asked: 11 };
    let mut producer = domain.queue("jobs").producer().unwrap();
    assert_eq!(queue.push(&[0; 11]).unwrap_err(), long);
    assert_eq!(producer.push(&[0; 11]).unwrap_err(), long);
    producer.push(&[1; 10]).unwrap();
    queue.try_push(&[2]).unwrap();
    assert_eq!(queue.try_push(&[3]).unwrap_err(), QueueError::Full { capacity: 2 });
    let mut worker = domain.queue("jobs").worker().unwrap();
    thread::scope(|scope| {
        // The producer waits for room, until a job is done.
        let pushing = scope.spawn(|| producer.push(&[3]));
        worker.take().unwrap().unwrap().done().unwrap();
        pushing.join().unwrap().unwrap();
    });
    for _ in 0..2 {
        worker.take().unwrap().unwrap().done().unwrap();
    }
    let late = worker.take_timeout(Duration::from_millis(5)).unwrap_err();
    assert!(matches!(late, QueueError::Message(MessageError::Timeout { .. })));
    worker.interrupter().interrupt();
    assert!(matches!(worker.take(), Err(QueueError::Message(MessageError::Interrupted))));
    // It was asked for, and comes.
    queue.push(&[4]).unwrap();
    assert_eq!(worker.take().unwrap().unwrap()[..], [4]);
    drop(queue);
    for ended in [worker.take().map(drop).unwrap_err(), producer.push(&[5]).unwrap_err()] {
        assert!(matches!(ended, QueueError::Message(MessageError::PeerLeft { .. })), "{ended}");
    }
}
