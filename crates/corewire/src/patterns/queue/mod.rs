//! Work queues: jobs that are handed out to the workers that ask for them.
//!
//! One process owns a queue. It has the jobs, and an endpoint, `NAME.queue`, which a thread of its own serves.
//! Producers and workers are linked with that endpoint by endpoints of their own, `NAME.` and a random number.
//!
//! | file | holds |
//! |---|---|
//! | `jobs` | which job goes to which worker |
//! | `owner` | the owner's side |
//! | `worker`, `producer` | the other sides |
//! | `wire` | what they say to each other |
//! | `error` | why a call fails |
//!
//! A job costs its producer a message and the answer that it was accepted, and its worker three messages: it asks, gets the
//! job, and says that it has done it; or, at most once, that it has got it, before its program sees it. The owner keeps a
//! job's bytes until then, and copies them into the ring of the worker. A worker has one job at a time: what a kill can lose
//! or repeat is one job.
//!
//! That a worker has died is the kernel's word. No time-out says so: a worker that is stopped keeps its job.

mod error;
mod jobs;
mod owner;
mod producer;
mod wire;
mod worker;

use std::time::Duration;

use corewire_endpoint::Peer;

use self::error::ENDPOINT;
pub use self::error::QueueError;
pub use self::jobs::{Delivery, QueueView};
pub use self::owner::Queue;
pub use self::producer::Producer;
pub use self::worker::{Job, Worker};
use crate::error::EndpointError;
use crate::open::domain::Domain;
use crate::path::endpoint::Endpoint;
use crate::wait::Wait;

impl Domain {
    /// Returns the builder of a queue, or of a producer or a worker of one: jobs are handed out to the workers that ask for
    /// them, first in, first out.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-queue-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// // One process has the queue.
    /// let queue = domain.queue("jobs").create()?;
    /// queue.push(b"resize a.png")?;
    ///
    /// // Others add jobs.
    /// let mut producer = domain.queue("jobs").producer()?;
    /// producer.push(b"resize b.png")?;
    ///
    /// // Others do them. If this process is killed before `done`, another worker gets the job.
    /// let mut worker = domain.queue("jobs").worker()?;
    /// queue.finish();
    /// let mut count = 0;
    /// while let Some(job) = worker.take()? {
    ///     assert!(job.starts_with(b"resize "));
    ///     job.done()?;
    ///     count += 1;
    /// }
    /// assert_eq!(count, 2);
    /// # drop((worker, producer, queue, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Accepted jobs survive workers and producers. They do not survive the owner: for commands that must outlive every
    /// process there is the replicated log of `corewire-group`.
    pub fn queue(&self, name: &str) -> QueueBuilder {
        QueueBuilder {
            domain: self.clone(),
            name: name.to_owned(),
            delivery: Delivery::default(),
            capacity: 1 << 16,
            largest: 1 << 20,
            peers: 1024,
            wait: Wait::default(),
        }
    }
}

/// Builder of a queue, a producer or a worker, returned by [`Domain::queue`].
#[derive(Debug, Clone)]
#[must_use = "nothing is created before `create`, `producer` or `worker`"]
pub struct QueueBuilder {
    domain: Domain,
    name: String,
    delivery: Delivery,
    capacity: usize,
    largest: usize,
    peers: usize,
    wait: Wait,
}

impl QueueBuilder {
    /// For the owner: a job whose worker dies, leaves, or gives it back is handed out again, before all that wait. A job
    /// may be done more than once: a worker that was killed may have done it. This is the default.
    pub fn at_least_once(mut self) -> Self {
        self.delivery = Delivery::AtLeastOnce;
        self
    }

    /// For the owner: a job is handed out once. A worker that is killed loses at most one job: the one that its program has.
    pub fn at_most_once(mut self) -> Self {
        self.delivery = Delivery::AtMostOnce;
        self
    }

    /// For the owner: the most jobs that wait or are at workers. A call that adds one more waits until there is room. The
    /// owner's process has them in its memory, each as long as it is. Default: 65,536.
    pub fn capacity(mut self, jobs: usize) -> Self {
        self.capacity = jobs.max(1);
        self
    }

    /// For the owner: the longest job in bytes. Default: 1 MiB.
    pub fn largest(mut self, bytes: usize) -> Self {
        self.largest = bytes;
        self
    }

    /// For the owner: the most workers and producers at one time, 1 to 1024. Default: 1024.
    pub fn peers(mut self, count_max: usize) -> Self {
        self.peers = count_max;
        self
    }

    /// How calls, or the owner's thread, wait. Default: [`Wait::Adaptive`].
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Makes this process the owner, with a thread that serves the queue.
    ///
    /// # Errors
    /// As for [`EndpointBuilder::create`](crate::EndpointBuilder::create): among others, the name is in use.
    pub fn create(self) -> Result<Queue, EndpointError> {
        let Self { domain, name, delivery, capacity, largest, peers, wait } = self;
        let endpoint = domain.endpoint(&(name + ENDPOINT)).peers(peers).wait(wait).create()?;
        Queue::start(endpoint, delivery, capacity, largest)
    }

    /// Makes this process a producer. Blocks until the owner answers.
    ///
    /// # Errors
    /// [`QueueError::NotFound`], `Connect`, `Endpoint`.
    pub fn producer(self) -> Result<Producer, QueueError> {
        let (endpoint, owner) = self.connect(None)?;
        Ok(Producer::new(endpoint, owner))
    }

    /// Like [`producer`](Self::producer), as soon as the queue exists; waits for at most `timeout`.
    ///
    /// # Errors
    /// As for [`producer`](Self::producer), with [`QueueError::NotCreated`] if it did not exist in time.
    pub fn producer_timeout(self, timeout: Duration) -> Result<Producer, QueueError> {
        let (endpoint, owner) = self.connect(Some(timeout))?;
        Ok(Producer::new(endpoint, owner))
    }

    /// Makes this process a worker. Blocks until the owner answers.
    ///
    /// # Errors
    /// As for [`producer`](Self::producer).
    pub fn worker(self) -> Result<Worker, QueueError> {
        let (endpoint, owner) = self.connect(None)?;
        Ok(Worker::new(endpoint, owner))
    }

    /// Like [`worker`](Self::worker), as soon as the queue exists; waits for at most `timeout`.
    ///
    /// # Errors
    /// As for [`producer_timeout`](Self::producer_timeout).
    pub fn worker_timeout(self, timeout: Duration) -> Result<Worker, QueueError> {
        let (endpoint, owner) = self.connect(Some(timeout))?;
        Ok(Worker::new(endpoint, owner))
    }

    /// An endpoint that is linked with the owner's.
    fn connect(&self, timeout: Option<Duration>) -> Result<(Endpoint, Peer), QueueError> {
        let random = corewire_os::random_u128().map_err(EndpointError::from)?;
        let low = u64::try_from(random & u128::from(u64::MAX)).unwrap_or(0);
        let own = format!("{}.{low:016x}", self.name);
        let mut endpoint = self.domain.endpoint(&own).peers(1).wait(self.wait).create()?;
        let owner = format!("{}{ENDPOINT}", self.name);
        let owner = match timeout {
            None => endpoint.peer(&owner),
            Some(timeout) => endpoint.peer_when_created(&owner, Some(timeout)),
        };
        Ok((endpoint, owner?))
    }
}
