//! How ranks meet.
//!
//! | each rank | says | when it has heard that from all |
//! |---|---|---|
//! | 1 | who it is, and which newest checkpoint it has | it knows who they are, and the line |
//! | 2 | which ranks it agrees with | it restores its checkpoint, and removes later ones |
//! | 3 | that it has done so | it begins |
//!
//! A rank that ends before the third step, or begins again, is met anew: nothing has changed. One that ends in the
//! third step lets all meet again.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use corewire::{
    ChannelName, ConnectError, Domain, Endpoint, EndpointError, Event, MessageError, Peer,
    Selector, Wait,
};
use corewire_os::random_u128;
use serde::{Deserialize, Serialize};

use super::ComputationError;
use super::computation::{AGREED, Computation, DONE, FINISHED, HELLO, MESSAGE, REQUEST, Restored};
use super::files::{Checkpoint, Files};
use super::gathering::{Gathering, channel_of, name_of};
use super::part::{Part, PartRules, recovery_line};
use crate::engine::in_thread;
use crate::error::of_one_host;
use crate::frame::{decode, encode};
use crate::join::NAME_BYTES_MAX;

/// How long the call looks for a rank that is not there before it does something else.
const LOOK_FOR: Duration = Duration::from_millis(2);

impl Computation {
    /// Begins to join a computation as the rank `rank` of `ranks`, counted from 0. All ranks give the same name and the
    /// same directory, in which their checkpoints are; the directory of a new computation holds none. Ranks have the
    /// names `NAME.rank.0` and so on in the domain; one that gathers has the name `NAME.rank.0.requests`, too.
    pub fn builder(
        domain: &Domain,
        name: &str,
        directory: impl Into<PathBuf>,
        rank: usize,
        ranks: usize,
    ) -> ComputationBuilder {
        ComputationBuilder::new(domain, name, directory.into(), rank, ranks)
    }
}

/// Builder of a computation, returned by [`Computation::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing is joined before `join`"]
pub struct ComputationBuilder {
    domain: Domain,
    name: String,
    directory: PathBuf,
    rank: usize,
    ranks: usize,
    every: Duration,
    wait: Wait,
    timeout: Option<Duration>,
}

/// What a rank says first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Hello {
    ranks: usize,
    /// Device and number of the directory.
    directory: (u64, u64),
    /// A random number: which of the processes that have had the rank.
    life: u64,
    newest: u64,
}

/// What a rank says when it has restored its checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Done {
    /// Of all ranks: which processes have agreed.
    lives: Vec<u64>,
    /// The number of the checkpoint that it has restored.
    number: u64,
}

/// What is known of another rank.
#[derive(Debug, Default)]
struct Other {
    peer: Option<Peer>,
    hello: Option<Hello>,
    /// With which processes it agrees.
    agrees: Option<Vec<u64>>,
    done: Option<Done>,
    /// Messages that have come from a rank that has begun already.
    early: Vec<(u64, corewire::OwnedMessage)>,
}

impl ComputationBuilder {
    pub(super) fn new(
        domain: &Domain,
        name: &str,
        directory: PathBuf,
        rank: usize,
        ranks: usize,
    ) -> Self {
        Self {
            domain: domain.clone(),
            name: name.to_owned(),
            directory,
            rank,
            ranks,
            every: Duration::from_secs(10),
            wait: Wait::default(),
            timeout: None,
        }
    }

    /// How often [`Computation::checkpoint_if_due`] takes a checkpoint; all ranks should say the same. Default: 10 s.
    pub fn every(mut self, time: Duration) -> Self {
        self.every = time;
        self
    }

    /// How calls wait. Default: [`Wait::Adaptive`].
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// How long the others may take to be there. Default: for ever.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Waits until there is a process for each rank, and restores the last checkpoints that belong together. Returns the
    /// state of this rank, or nothing at the beginning.
    ///
    /// # Errors
    /// [`ComputationError`]: among others, `Taken` if another process has this rank, and `Timeout`.
    pub fn join(self) -> Result<(Computation, Option<Vec<u8>>), ComputationError> {
        if self.rank >= self.ranks {
            return Err(ComputationError::Rank { rank: self.rank, ranks: self.ranks });
        }
        // It is a part of names of files, too.
        let longest = channel_of(&name_of("", self.ranks.saturating_sub(1))).len();
        of_one_host(&self.name, ComputationError::OtherHost)?;
        ChannelName::check(&self.name, NAME_BYTES_MAX - longest)?;
        let deadline =
            self.timeout.and_then(|after| Some((Instant::now().checked_add(after)?, after)));
        let files = Files::open(
            &self.directory,
            self.domain.runtime_directory(),
            &self.name,
            self.rank,
            self.ranks,
            deadline.map(|(at, _)| at),
        )?;
        loop {
            let meeting = self.meeting(&files)?;
            if let Some(last) = files.finished()? {
                return meeting.over(last);
            }
            if let Some(begun) = meeting.run(deadline)? {
                return Ok(begun);
            }
        }
    }

    fn gathering(&self) -> Gathering {
        Gathering::new(&self.domain, &name_of(&self.name, self.rank), self.ranks, self.wait)
    }

    fn meeting(&self, files: &Files) -> Result<Meeting<'_>, ComputationError> {
        let endpoint = self.domain.endpoint(&name_of(&self.name, self.rank)).wait(self.wait);
        let endpoint = match endpoint.peers(4 * self.ranks.max(1)).create() {
            Err(EndpointError::AlreadyExists(holder)) => {
                return Err(ComputationError::Taken {
                    name: self.name.clone(),
                    rank: self.rank,
                    holder: holder
                        .pid
                        .map_or("another process".to_owned(), |pid| format!("process {pid}")),
                });
            }
            other => other?,
        };
        let life = u64::try_from(random_u128()? & u128::from(u64::MAX)).unwrap_or_default();
        files.sweep()?;
        let (directory, newest) = (files.directory()?, files.newest()?);
        let hello = Hello { ranks: self.ranks, directory, life, newest };
        let others = (0..self.ranks).map(|_| Other::default()).collect();
        let files = files.clone();
        let (linking, linked) = (BTreeSet::new(), mpsc::channel());
        let (agrees, done) = (None, None);
        Ok(Meeting { builder: self, endpoint, files, hello, others, linking, linked, agrees, done })
    }
}

/// How linking with a rank has ended.
type Linked = (usize, Result<(), ConnectError>);

/// A rank that meets the others.
struct Meeting<'a> {
    builder: &'a ComputationBuilder,
    endpoint: Endpoint,
    files: Files,
    hello: Hello,
    /// By rank; the own one is empty.
    others: Vec<Other>,
    /// Ranks with which a thread is linking this one, and how such attempts end.
    linking: BTreeSet<usize>,
    linked: (mpsc::Sender<Linked>, mpsc::Receiver<Linked>),
    /// With which processes this one agrees.
    agrees: Option<Vec<u64>>,
    /// What it has restored.
    done: Option<(Done, Option<Checkpoint>)>,
}

/// What a meeting leads to: nothing if all must meet again.
type Begun = Option<(Computation, Option<Vec<u8>>)>;

impl Meeting<'_> {
    fn run(mut self, deadline: Option<(Instant, Duration)>) -> Result<Begun, ComputationError> {
        loop {
            self.look_for_others()?;
            if !self.handle_events()? {
                return Ok(None);
            }
            self.agree()?;
            self.restore()?;
            let own = self.done.as_ref().map(|(done, _)| &done.lives);
            let is_agreed = own.is_some() && own == self.agrees.as_ref();
            if is_agreed && self.all(|other| other.done.as_ref().map(|done| &done.lives)) {
                return self.begin().map(Some);
            }
            if let Some((at, after)) = deadline
                && Instant::now() >= at
            {
                let is_missing = |rank: &usize| self.others[*rank].done.is_none();
                let rank = self.ranks().find(is_missing).unwrap_or_default();
                return Err(ComputationError::Timeout {
                    name: self.builder.name.clone(),
                    rank,
                    after,
                });
            }
        }
    }

    /// Whether all others have said this of the processes with which this one agrees.
    fn all(&self, said: impl Fn(&Other) -> Option<&Vec<u64>>) -> bool {
        self.agrees.is_some()
            && self.ranks().all(|rank| said(&self.others[rank]) == self.agrees.as_ref())
    }

    /// The other ranks.
    fn ranks(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.builder.rank;
        (0..self.builder.ranks).filter(move |rank| *rank != own)
    }

    fn rank_of(&self, peer: Peer) -> Option<usize> {
        let name = self.endpoint.name_of(peer)?;
        let rank = name.strip_prefix(&self.builder.name)?.strip_prefix(".rank.")?.parse().ok()?;
        (rank < self.builder.ranks && rank != self.builder.rank).then_some(rank)
    }

    /// Links with the ranks that are there, with each in a thread of its own: one may be stopped.
    fn look_for_others(&mut self) -> Result<(), ComputationError> {
        while let Ok((rank, linked)) = self.linked.1.try_recv() {
            self.linking.remove(&rank);
            match linked {
                // It is not there, ends, or is stopped.
                Err(
                    ConnectError::NotFound(_)
                    | ConnectError::NoAnswer { .. }
                    | ConnectError::Refused { .. },
                )
                | Ok(()) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let is_missing =
            |rank: &usize| self.others[*rank].peer.is_none() && !self.linking.contains(rank);
        let missing: Vec<_> = self.ranks().filter(is_missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let there = self.builder.domain.endpoints().unwrap_or_default();
        for rank in missing {
            let name = name_of(&self.builder.name, rank);
            if !there.iter().any(|one| one.as_str() == name) {
                continue;
            }
            self.linking.insert(rank);
            let (connector, linked) = (self.endpoint.connector(), self.linked.0.clone());
            in_thread(move || {
                let _ = linked.send((rank, connector.connect(&name).map(drop)));
            })?;
        }
        Ok(())
    }

    /// There is a link with a rank's process. False if all must meet again: another one was there before.
    fn met(&mut self, rank: usize, peer: Peer) -> Result<bool, ComputationError> {
        if self.others[rank].peer == Some(peer) {
            return Ok(true);
        }
        let is_first = self.others[rank].peer.is_none();
        self.others[rank] = Other { peer: Some(peer), ..Other::default() };
        let frame = encode(&self.hello);
        self.send(rank, HELLO, &frame)?;
        Ok(is_first)
    }

    /// These are the first messages on a link, so there is room.
    fn send(&mut self, rank: usize, tag: u64, frame: &[u8]) -> Result<(), ComputationError> {
        let Some(peer) = self.others[rank].peer else { return Ok(()) };
        match self.endpoint.send(peer, tag, frame) {
            // Its end is reported by an event.
            Ok(())
            | Err(
                MessageError::PeerDied { .. }
                | MessageError::PeerLeft { .. }
                | MessageError::PeerLost { .. },
            ) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// False if all must meet again.
    fn handle_events(&mut self) -> Result<bool, ComputationError> {
        let mut pause = LOOK_FOR;
        while let Some(event) = self.event(pause)? {
            pause = Duration::ZERO;
            match event {
                Event::Came(peer) => {
                    if let Some(rank) = self.rank_of(peer)
                        && !self.met(rank, peer)?
                    {
                        return Ok(false);
                    }
                }
                Event::Received(message) => {
                    let peer = message.source();
                    // What a process has said before another one took its rank counts no more.
                    let of = self.others.iter().position(|other| other.peer == Some(peer));
                    let Some(rank) = of else { continue };
                    let other = &mut self.others[rank];
                    match message.tag() {
                        HELLO => {
                            other.hello = decode(&message);
                            self.check_size(rank)?;
                        }
                        AGREED => other.agrees = decode(&message),
                        DONE => other.done = decode(&message),
                        tag @ (MESSAGE | REQUEST | FINISHED) => other.early.push((tag, message)),
                        _ => {}
                    }
                }
                Event::Gone { peer, .. } => {
                    let of = self.others.iter_mut().find(|other| other.peer == Some(peer));
                    if let Some(other) = of {
                        *other = Other::default();
                        if self.done.is_some() {
                            return Ok(false);
                        }
                    }
                }
            }
        }
        Ok(true)
    }

    fn event(
        &mut self,
        pause: Duration,
    ) -> Result<Option<Event<corewire::OwnedMessage>>, ComputationError> {
        match self.endpoint.within(pause).receive_event(Selector::any()) {
            Err(MessageError::Interrupted) => Ok(None),
            other => Ok(other?),
        }
    }

    /// Whether a rank was told of as many ranks as this one, and of the same directory.
    fn check_size(&self, rank: usize) -> Result<(), ComputationError> {
        let own = self.builder.ranks;
        match &self.others[rank].hello {
            Some(Hello { ranks: its, .. }) if *its != own => {
                let name = self.builder.name.clone();
                Err(ComputationError::Size { name, rank, its: *its, own })
            }
            Some(Hello { directory, .. }) if *directory != self.hello.directory => {
                Err(ComputationError::Directory { name: self.builder.name.clone(), rank })
            }
            _ => Ok(()),
        }
    }

    /// What everybody has said, this rank included, once all have.
    fn hellos(&self) -> Option<Vec<&Hello>> {
        let hello = |rank: usize| match rank == self.builder.rank {
            true => Some(&self.hello),
            false => self.others[rank].hello.as_ref(),
        };
        (0..self.builder.ranks).map(hello).collect()
    }

    /// Says which ranks it agrees with, whenever that changes.
    fn agree(&mut self) -> Result<(), ComputationError> {
        let Some(hellos) = self.hellos() else { return Ok(()) };
        let lives: Vec<u64> = hellos.iter().map(|hello| hello.life).collect();
        if self.agrees.as_ref() == Some(&lives) {
            return Ok(());
        }
        let frame = encode(&lives);
        self.agrees = Some(lives);
        for rank in self.ranks() {
            self.send(rank, AGREED, &frame)?;
        }
        Ok(())
    }

    /// Restores a checkpoint once everybody agrees.
    fn restore(&mut self) -> Result<(), ComputationError> {
        let (Some(hellos), Some(lives)) = (self.hellos(), &self.agrees) else { return Ok(()) };
        if self.done.is_some() || !self.all(|other| other.agrees.as_ref()) {
            return Ok(());
        }
        let line = recovery_line(hellos.iter().map(|hello| hello.newest));
        let restored = self.files.restore(line)?;
        let number = restored.as_ref().map_or(0, |checkpoint| checkpoint.mark.number);
        let done = Done { lives: lives.clone(), number };
        let frame = encode(&done);
        self.done = Some((done, restored));
        for rank in self.ranks() {
            self.send(rank, DONE, &frame)?;
        }
        Ok(())
    }

    /// All ranks have finished: there is nobody to meet.
    fn over(self, last: Checkpoint) -> Result<(Computation, Option<Vec<u8>>), ComputationError> {
        let Self { builder, endpoint, files, .. } = self;
        let state = last.state.to_vec();
        let restored = Restored {
            base: last.mark.number,
            part: Part::restore(last.mark, PartRules::default()),
            state: Some(last.state),
            peers: vec![None; builder.ranks],
            early: Vec::new(),
        };
        let (name, parts) = (builder.name.clone(), (builder.gathering(), restored));
        let over = Computation::new(name, builder.rank, endpoint, files, builder.every, parts)?;
        Ok((over, Some(state)))
    }

    fn begin(self) -> Result<(Computation, Option<Vec<u8>>), ComputationError> {
        let Self { builder, endpoint, files, others, done, .. } = self;
        let (done, checkpoint) = done.unzip();
        let all = others.iter().filter_map(|other| other.done.as_ref()).chain(&done);
        let base = all.map(|done| done.number).max().unwrap_or(0);
        let checkpoint = checkpoint.flatten();
        let state = checkpoint.as_ref().map(|checkpoint| checkpoint.state.to_vec());
        let part = match &checkpoint {
            Some(checkpoint) => Part::restore(checkpoint.mark.clone(), PartRules::default()),
            None => Part::new(builder.ranks, PartRules::default()),
        };
        let restored = Restored {
            part,
            base,
            state: checkpoint.map(|checkpoint| checkpoint.state),
            peers: others.iter().map(|other| other.peer).collect(),
            early: others.into_iter().map(|other| other.early).collect(),
        };
        let (name, parts) = (builder.name.clone(), (builder.gathering(), restored));
        let computation =
            Computation::new(name, builder.rank, endpoint, files, builder.every, parts)?;
        Ok((computation, state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This process may hear of a rank's second process before it hears of the end of the first one.
    #[test]
    fn all_meet_again_if_a_rank_has_a_second_process_before_the_first_has_gone() {
        let path = std::env::temp_dir().join(format!("corewire-second-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let domain = Domain::open_at(&path.join("run")).unwrap();
        let builder = ComputationBuilder::new(&domain, "sums", path.join("states"), 0, 2);
        let place = builder.domain.runtime_directory();
        let files = Files::open(&builder.directory, place, "sums", 0, 2, None).unwrap();
        let mut meeting = builder.meeting(&files).unwrap();

        // Two that have the rank one after the other.
        let mut process = |life: u64| {
            let mut endpoint = domain.endpoint(&name_of("sums", 1)).create().unwrap();
            let to_rank_0 = endpoint.peer(&name_of("sums", 0)).unwrap();
            let hello = Hello { life, ..meeting.hello.clone() };
            endpoint.send(to_rank_0, HELLO, &encode(&hello)).unwrap();
            loop {
                if let Some(Event::Came(peer)) = meeting.event(Duration::from_secs(60)).unwrap() {
                    break (endpoint, peer);
                }
            }
        };
        let (first, one) = process(1);
        drop(first);
        let (_second, other) = process(2);

        assert!(meeting.met(1, one).unwrap());
        meeting.others[1].hello = Some(Hello { life: 1, ..meeting.hello.clone() });
        assert!(meeting.met(1, one).unwrap(), "the same process is no other one");
        assert!(!meeting.met(1, other).unwrap(), "they must meet again");
        let left = &meeting.others[1];
        assert!(
            left.peer == Some(other) && left.hello.is_none(),
            "of the first one nothing is left"
        );
        drop(meeting);
        let _ = std::fs::remove_dir_all(path);
    }
}
