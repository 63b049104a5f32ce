//! `corewire send --queue` and `receive --queue`: jobs for the processes that ask for them.

use std::time::{Duration, Instant};

use corewire::{Domain, EndpointError, Producer, Queue, QueueError, QueueView};

use crate::failure::Failure;
use crate::input::Input;
use crate::records::{READ_BYTES, Records, Splitter};
use crate::signals::Signals;
use crate::sink::Sink;
use crate::{output, units};

/// How often a call that waits looks for signals.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// How long the command waits before it says for what.
const SILENT: Duration = Duration::from_secs(1);

/// Where jobs go.
enum Jobs {
    Own(Queue),
    Others(Box<Producer>),
}

/// Why no more jobs are added.
enum Ended {
    Signal,
    Failed(Failure),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Jobs {
    fn push(&mut self, job: &[u8], signals: &Signals) -> Result<(), Ended> {
        loop {
            let pushed = match self {
                Self::Own(queue) => queue.push_timeout(job, LOOKS_EVERY),
                Self::Others(producer) => producer.push(job),
            };
            match pushed {
                Ok(()) => return Ok(()),
                _ if signals.is_over() => return Err(Ended::Signal),
                Err(QueueError::Full { .. }) => {}
                Err(error) => return Err(Ended::Failed(error.into())),
            }
        }
    }
}

/// Makes each message of the input a job: in a queue of this process if there is none of this name yet.
pub(crate) fn send(
    domain: &Domain,
    name: &str,
    is_at_most_once: bool,
    (records, largest): (Records, usize),
    input: &mut Input,
    signals: &Signals,
) -> Result<(), Failure> {
    let builder = domain.queue(name).largest(largest);
    let own = if is_at_most_once { builder.clone().at_most_once() } else { builder.clone() };
    let mut jobs = match own.create() {
        Ok(queue) => Jobs::Own(queue),
        Err(EndpointError::AlreadyExists(_)) => {
            output::note(format!("{name} exists: adding jobs to it"));
            Jobs::Others(Box::new(builder.producer()?))
        }
        Err(error) => return Err(error.into()),
    };
    let interrupting = match &jobs {
        Jobs::Own(_) => None,
        Jobs::Others(producer) => Some(signals.interrupt(producer.interrupter())),
    };
    let pushed = push_all(&mut jobs, (records, largest), input, signals);
    drop(interrupting);
    let Jobs::Own(queue) = jobs else {
        return match pushed {
            Ok(()) | Err(Ended::Signal) => Ok(()),
            Err(Ended::Failed(failure)) => Err(failure),
        };
    };
    // Jobs that were accepted are done, also those of others, whatever the input was.
    let (outcome, is_over) = match pushed {
        Ok(()) => (Ok(()), false),
        Err(Ended::Signal) => (Ok(()), true),
        Err(Ended::Failed(failure)) => {
            let left = queue.view();
            if left.waiting + left.running > 0 {
                output::note(format!("{}: no more jobs are added", failure.message));
            }
            (Err(failure), signals.is_over())
        }
    };
    if is_over || !wait_until_done(name, &queue, signals)? {
        say_lost(queue.view());
    }
    outcome
}

fn push_all(
    jobs: &mut Jobs,
    (records, largest): (Records, usize),
    input: &mut Input,
    signals: &Signals,
) -> Result<(), Ended> {
    let bytes = if records == Records::Chunks { largest } else { READ_BYTES };
    let (mut buffer, mut splitter) = (vec![0; bytes], Splitter::new(records, largest));
    loop {
        match input.read(&mut buffer, signals)? {
            None => return Err(Ended::Signal),
            Some(0) => return splitter.finish(|job| jobs.push(job, signals)),
            Some(bytes) => splitter.split(&buffer[..bytes], |job| jobs.push(job, signals))?,
        }
    }
}

/// Waits until all jobs are done, also those that others add meanwhile; false after a signal.
fn wait_until_done(name: &str, queue: &Queue, signals: &Signals) -> Result<bool, Failure> {
    let mut says_at = Some(Instant::now() + SILENT);
    let mut is_finishing = false;
    loop {
        if queue.wait_until_done(LOOKS_EVERY)? {
            if std::mem::replace(&mut is_finishing, true) {
                return Ok(true);
            }
            queue.finish();
            continue;
        }
        if signals.is_over() {
            return Ok(false);
        }
        if says_at.take_if(|at| *at <= Instant::now()).is_some() {
            let QueueView { waiting, running, .. } = queue.view();
            let count = units::grouped(waiting + running);
            let workers = match running {
                0 => format!("no worker has one: corewire receive {name} --queue is one"),
                _ => format!("{} are at workers", units::grouped(running)),
            };
            output::note(format!("waiting: {count} jobs are not done, {workers}"));
        }
    }
}

/// Says how many jobs end with the queue.
fn say_lost(view: QueueView) {
    let lost = view.waiting + view.running;
    if lost > 0 {
        output::note(format!("{} jobs were not done", units::grouped(lost)));
    }
}

/// Takes jobs, writes each, and says then that it is done; up to `left` of them.
pub(crate) fn receive(
    domain: &Domain,
    name: &str,
    left: u64,
    waits: bool,
    sink: &mut Sink,
) -> Result<(), Failure> {
    let builder = domain.queue(name);
    let mut worker = match builder.clone().worker() {
        Err(QueueError::NotFound(_)) if waits => {
            output::waiting(name, domain);
            builder.worker_timeout(Duration::MAX)?
        }
        worker => worker?,
    };
    for _ in 0..left {
        let Some(job) = worker.take()? else { break };
        sink.put(job.number(), &job)?;
        // A job that nobody can read goes back.
        sink.flush()?;
        job.done()?;
    }
    Ok(())
}
