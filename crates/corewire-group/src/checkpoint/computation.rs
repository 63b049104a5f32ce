//! A rank, as its program sees it.
//!
//! More than 600 lines, because sending, receiving and the checkpoint of a rank use the same numbers of messages.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire::{Endpoint, Event, MessageError, OwnedMessage, Peer, Selector};

use super::ComputationError;
use super::files::{Checkpoint, Files, Progress};
use super::gathering::{Gathering, name_of};
use super::part::{Arrival, Header, Part};
use super::writer::Writer;
use crate::frame::Command;

/// What messages are.
pub(super) const HELLO: u64 = 0;
pub(super) const AGREED: u64 = 1;
pub(super) const DONE: u64 = 2;
/// Of the program: a header, and what the program has sent.
pub(super) const MESSAGE: u64 = 3;
/// Asks for the state of a checkpoint with this number, and answers that: see `gathering`.
pub(super) const REQUEST: u64 = 4;
pub(super) const REPLY: u64 = 5;
/// This rank has finished.
pub(super) const FINISHED: u64 = 6;

const HEADER_BYTES: usize = 16;
/// Messages that one look takes at most, and that wait for the program before `checkpoint_if_due` takes no more.
const MESSAGES_AT_ONCE: usize = 256;
/// How often a rank that has finished looks whether a checkpoint is due.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Times that a rank looks for room before it waits.
const LOOKS: u32 = 1000;

/// One rank of a parallel computation, whose processes may be killed.
///
/// The ranks exchange messages, and take checkpoints: the program says what its state is, whenever it is asked. When a
/// rank's process ends, all others hear of it, join again, and go on from a common past state, together with a new
/// process. So a state must say where the program is, such that it can go on from there: what it has sent is sent, and
/// what it has received is in the state.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("corewire-doc-computation-{}", std::process::id()));
/// # let files = dir.join("checkpoints");
/// use corewire::Domain;
/// use corewire_group::Computation;
///
/// let domain = Domain::open_at(&dir)?;
/// # let other = { let (domain, files) = (domain.clone(), files.clone()); std::thread::spawn(move || {
/// #     let (mut all, _) = Computation::builder(&domain, "sum", files, 1, 2).join().unwrap();
/// #     all.send(0, &5u64.to_le_bytes()).unwrap();
/// #     all.finish(Vec::new).unwrap();
/// # }) };
/// // Rank 0 of 2. It adds up what rank 1 sends.
/// let (mut all, restored) = Computation::builder(&domain, "sum", files, 0, 2).join()?;
/// let mut sum = restored.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
/// while sum < 5 {
///     let received = all.receive(1, || sum.to_le_bytes().to_vec())?;
///     sum += u64::from_le_bytes((*received).try_into()?);
///     all.checkpoint_if_due(|| sum.to_le_bytes().to_vec())?;
/// }
/// all.finish(|| sum.to_le_bytes().to_vec())?;
/// # other.join().unwrap();
/// # drop(domain); std::fs::remove_dir_all(&dir)?;
/// # Ok(())
/// # }
/// ```
pub struct Computation {
    name: String,
    rank: usize,
    /// Ends before the endpoint: when another process has the rank, nothing more is written here.
    writer: Writer,
    endpoint: Endpoint,
    /// By rank, as all that follow.
    peers: Vec<Option<Peer>>,
    part: Part<Command>,
    /// What has come and is not processed.
    inbox: Vec<VecDeque<OwnedMessage>>,
    has_finished: Vec<bool>,
    /// Whether this rank has.
    is_final: bool,
    files: Files,
    pub(super) gathering: Gathering,
    /// The state at the last checkpoint, and the number of the one before it.
    last: Option<Arc<Vec<u8>>>,
    before_last: u64,
    // When the next checkpoint is due.
    every: Duration,
    start: Instant,
    base: u64,
    ended: Option<usize>,
}

/// What a rank begins with.
pub(super) struct Restored {
    pub(super) part: Part<Command>,
    pub(super) state: Option<Arc<Vec<u8>>>,
    /// The highest number that any rank has restored.
    pub(super) base: u64,
    pub(super) peers: Vec<Option<Peer>>,
    pub(super) early: Vec<Vec<(u64, OwnedMessage)>>,
}

/// A message.
pub struct Received {
    from: usize,
    message: OwnedMessage,
}

impl Received {
    /// Who has sent it.
    #[must_use]
    pub const fn from(&self) -> usize {
        self.from
    }
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.message.get(HEADER_BYTES..).unwrap_or_default()
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received").field("from", &self.from).field("bytes", &&**self).finish()
    }
}

fn header_of(bytes: &[u8]) -> Option<Header> {
    let word = |at: usize| bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes);
    Some(Header { number: word(0)?, index: word(8)? })
}

impl Computation {
    pub(super) fn new(
        name: String,
        rank: usize,
        endpoint: Endpoint,
        files: Files,
        every: Duration,
        (gathering, restored): (Gathering, Restored),
    ) -> Result<Self, ComputationError> {
        let Restored { part, state, base, peers, early } = restored;
        let ranks = peers.len();
        let before_last = part.number().saturating_sub(1);
        // Nobody is met if all have finished.
        let is_over = ranks > 1 && peers.iter().all(Option::is_none);
        let mut all = Self {
            name,
            rank,
            endpoint,
            part,
            peers,
            inbox: (0..ranks).map(|_| VecDeque::new()).collect(),
            has_finished: vec![is_over; ranks],
            is_final: false,
            files: files.clone(),
            gathering,
            last: state,
            before_last,
            every,
            start: Instant::now(),
            base,
            writer: Writer::start(files)?,
            ended: None,
        };
        for (from, messages) in early.into_iter().enumerate() {
            for (tag, message) in messages {
                all.take(from, tag, message)?;
            }
        }
        for to in all.others() {
            for sent in all.part.unsettled(to).clone() {
                all.put(to, MESSAGE, &header_bytes(sent.header), &sent.bytes.0)?;
            }
        }
        Ok(all)
    }

    /// This process's rank.
    #[must_use]
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.peers.len()
    }

    /// The number of this rank's last checkpoint.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.part.number()
    }

    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.rank;
        (0..self.peers.len()).filter(move |rank| *rank != own)
    }

    fn check_rank(&self, asked: usize) -> Result<(), ComputationError> {
        match asked < self.ranks() && asked != self.rank {
            true => Ok(()),
            false => Err(ComputationError::NoSuchRank { asked, size: self.ranks() }),
        }
    }

    /// Whether there are others to speak with.
    pub(super) fn check_others(&mut self) -> Result<(), ComputationError> {
        match self.has_finished.iter().all(|has| *has) {
            true => Err(ComputationError::Finished(self.name.clone())),
            false => self.check(),
        }
    }

    /// Sends a message to a rank. Waits only for room.
    ///
    /// # Errors
    /// [`ComputationError::Ended`] if the process of any rank has ended, `NoSuchRank`, or `File` if a checkpoint could not
    /// be written.
    pub fn send(&mut self, to: usize, bytes: &[u8]) -> Result<(), ComputationError> {
        self.check_rank(to)?;
        self.check_others()?;
        let header = self.part.send(to, Command::copy(bytes));
        self.put(to, MESSAGE, &header_bytes(header), bytes)
    }

    /// Receives the next message of a rank. Waits for it. A checkpoint may be due before this message is processed: then
    /// `state` is called first, and must return the state before it.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn receive(
        &mut self,
        from: usize,
        mut state: impl FnMut() -> Vec<u8>,
    ) -> Result<Received, ComputationError> {
        self.check_rank(from)?;
        if self.inbox[from].is_empty() {
            self.check_others()?;
        }
        loop {
            self.answer(&mut state)?;
            if let Some(received) = self.process(from, &mut state)? {
                return Ok(received);
            }
            self.receive_until(None)?;
        }
    }

    /// Receives the next message of any rank. Otherwise like [`receive`](Self::receive).
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn receive_any(
        &mut self,
        mut state: impl FnMut() -> Vec<u8>,
    ) -> Result<Received, ComputationError> {
        loop {
            if let Some(received) = self.receive_any_until(None, &mut state)? {
                return Ok(received);
            }
        }
    }

    /// Receives the next message of any rank; `None` if there is none within `timeout`. Otherwise like
    /// [`receive`](Self::receive).
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn receive_any_timeout(
        &mut self,
        timeout: Duration,
        state: impl FnMut() -> Vec<u8>,
    ) -> Result<Option<Received>, ComputationError> {
        self.receive_any_until(Instant::now().checked_add(timeout), state)
    }

    fn receive_any_until(
        &mut self,
        until: Option<Instant>,
        mut state: impl FnMut() -> Vec<u8>,
    ) -> Result<Option<Received>, ComputationError> {
        if self.inbox.iter().all(VecDeque::is_empty) {
            self.check_others()?;
        }
        loop {
            self.answer(&mut state)?;
            for from in self.others() {
                if let Some(received) = self.process(from, &mut state)? {
                    return Ok(Some(received));
                }
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
            self.receive_until(until)?;
        }
    }

    /// Takes the first message of a rank that has come.
    fn process(
        &mut self,
        from: usize,
        state: &mut impl FnMut() -> Vec<u8>,
    ) -> Result<Option<Received>, ComputationError> {
        while let Some(message) = self.inbox[from].pop_front() {
            let Some(header) = header_of(&message) else { continue };
            let arrival = match self.part.receive(from, header) {
                Arrival::CheckpointFirst(number) => {
                    self.checkpoint_numbered(number, state())?;
                    self.part.receive(from, header)
                }
                other => other,
            };
            match arrival {
                Arrival::Process => return Ok(Some(Received { from, message })),
                Arrival::Again => {}
                Arrival::Gap | Arrival::CheckpointFirst(_) => {
                    return Err(ComputationError::Gap(from));
                }
            }
        }
        Ok(None)
    }

    /// Takes a checkpoint now. Others take one when they hear of it by a message.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn checkpoint(&mut self, state: impl FnOnce() -> Vec<u8>) -> Result<(), ComputationError> {
        self.check()?;
        self.checkpoint_numbered(self.part.number() + 1, state())
    }

    /// Takes a checkpoint if one is [due](super::ComputationBuilder::every), and another rank has not caused one
    /// meanwhile, and does what others have asked for. Returns at once otherwise. A program calls this once in a while,
    /// at the latest whenever it takes a new step.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn checkpoint_if_due(
        &mut self,
        mut state: impl FnMut() -> Vec<u8>,
    ) -> Result<(), ComputationError> {
        // What has come and is not processed stays small, even if others send more than this rank receives.
        if self.inbox.iter().map(VecDeque::len).sum::<usize>() < MESSAGES_AT_ONCE {
            self.receive_until(Some(self.start))?;
        }
        self.answer(&mut state)?;
        match self.due() > self.part.number() {
            true => self.checkpoint_numbered(self.due(), state()),
            false => Ok(()),
        }
    }

    /// The number that the last checkpoint should have by now.
    fn due(&self) -> u64 {
        let count = self.start.elapsed().as_nanos() / self.every.as_nanos().max(1);
        self.base.saturating_add(u64::try_from(count).unwrap_or(u64::MAX))
    }

    pub(super) fn checkpoint_numbered(
        &mut self,
        number: u64,
        state: Vec<u8>,
    ) -> Result<(), ComputationError> {
        for Progress { rank, number, received } in self.writer.progress() {
            let processed = received.get(self.rank).copied().unwrap_or(0);
            self.part.settle(rank, number, processed);
        }
        let before = self.part.number();
        if self.part.checkpoint(number) {
            let state = Arc::new(state);
            (self.last, self.before_last) = (Some(Arc::clone(&state)), before);
            let (mark, is_final) = (self.part.mark().clone(), self.is_final);
            self.writer.write(Checkpoint { mark, before, is_final, state })?;
            // One that came out of turn: the next one is due a whole time later.
            if number > self.due() {
                (self.base, self.start) = (number, Instant::now());
            }
        }
        Ok(())
    }

    /// The state at the last checkpoint, if there is one.
    pub(super) fn last_state(&self) -> Option<Arc<Vec<u8>>> {
        self.last.clone()
    }

    /// The state at the first checkpoint with this number or a higher one; none if there is a later one.
    pub(super) fn state_of(&self, number: u64) -> Option<Arc<Vec<u8>>> {
        self.last_state().filter(|_| self.before_last < number)
    }

    /// Takes a last checkpoint, and waits until all ranks have finished, and have theirs on the disk. Messages that
    /// have not been received are lost. If a rank starts again with the same directory when all have finished, it gets
    /// its last state, and its other calls return [`ComputationError::Finished`]. To compute anew, remove the files
    /// first.
    ///
    /// # Errors
    /// As for [`send`](Self::send). A rank whose process ends before it has finished lets all others fail: they join
    /// again.
    pub fn finish(mut self, mut state: impl FnMut() -> Vec<u8>) -> Result<(), ComputationError> {
        self.check()?;
        self.is_final = true;
        self.checkpoint_numbered(self.part.number() + 1, state())?;
        self.writer.sync()?;
        for other in self.others() {
            self.put(other, FINISHED, &[], &[])?;
        }
        while !self.others().all(|other| self.has_finished[other]) {
            // The others may go on for long, and what they need of this rank's checkpoints goes on with them.
            for from in self.others() {
                while self.process(from, &mut state)?.is_some() {}
            }
            self.checkpoint_if_due(&mut state)?;
            self.receive_until(Instant::now().checked_add(self.every.min(LOOK_AGAIN)))?;
        }
        self.writer.finish()?;
        // The last thing that it says goes out before its end.
        Ok(self.endpoint.flush()?)
    }

    // The endpoint.

    /// Whether the computation goes on.
    fn check(&mut self) -> Result<(), ComputationError> {
        self.writer.check()?;
        match self.ended {
            Some(rank) => Err(ComputationError::Ended { name: self.name.clone(), rank }),
            None => Ok(()),
        }
    }

    fn rank_of(&self, peer: Peer) -> Option<usize> {
        self.peers.iter().position(|one| *one == Some(peer))
    }

    /// Sends something. While there is no room, takes what comes.
    pub(super) fn put(
        &mut self,
        to: usize,
        tag: u64,
        header: &[u8],
        bytes: &[u8],
    ) -> Result<(), ComputationError> {
        let Some(peer) = self.peers[to] else { return Ok(()) };
        let mut looks = 0;
        loop {
            match self.endpoint.now().send_gather(peer, tag, &[header, bytes]) {
                Ok(()) => return Ok(()),
                Err(MessageError::Full { .. }) => {}
                Err(error) => return Err(self.failed(to, error)),
            }
            // Nothing that is waited for here is reported.
            looks += 1;
            let pause = if looks < LOOKS { Duration::ZERO } else { Duration::from_millis(1) };
            self.receive_for(Some(pause), false)?;
        }
    }

    /// Waits until something has come, or until a time, and takes all that is there.
    pub(super) fn receive_until(&mut self, until: Option<Instant>) -> Result<(), ComputationError> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        self.receive_for(left, true)?;
        self.check()
    }

    /// Takes what comes. With `answers` the caller answers those who ask for a state: if somebody does, it does not wait.
    fn receive_for(
        &mut self,
        first: Option<Duration>,
        answers: bool,
    ) -> Result<(), ComputationError> {
        self.check()?;
        if !self.gathering.listens() {
            let event = match first {
                None => self.endpoint.receive_event(Selector::any()).map(Some),
                Some(time) => self.endpoint.within(time).receive_event(Selector::any()),
            };
            return match self.note(event)? {
                true => self.take_all().map(drop),
                false => Ok(()),
            };
        }
        // What is there is not announced a second time.
        let has_any = self.take_all()?;
        let is_asked = answers && self.gathering.is_asked();
        if !has_any && !is_asked && first != Some(Duration::ZERO) {
            self.gathering.wait(&mut self.endpoint, first)?;
            self.take_all()?;
        }
        Ok(())
    }

    /// Takes what is there; false if there is nothing.
    fn take_all(&mut self) -> Result<bool, ComputationError> {
        self.gathering.look();
        for taken in 0..MESSAGES_AT_ONCE {
            let event = self.endpoint.now().receive_event(Selector::any());
            if !self.note(event)? {
                return Ok(taken > 0);
            }
        }
        Ok(true)
    }

    /// Keeps what has come; false if nothing has.
    fn note(
        &mut self,
        event: Result<Option<Event<OwnedMessage>>, MessageError>,
    ) -> Result<bool, ComputationError> {
        match event {
            Ok(None) | Err(MessageError::Interrupted) => return Ok(false),
            Ok(Some(Event::Received(message))) => {
                if let Some(from) = self.rank_of(message.source()) {
                    self.take(from, message.tag(), message)?;
                }
            }
            Ok(Some(Event::Gone { peer, .. })) => {
                if let Some(rank) = self.rank_of(peer)
                    && !self.has_finished[rank]
                {
                    // It may have finished, and have told others only.
                    match self.is_final && self.files.has_finished(rank)? {
                        true => self.has_finished[rank] = true,
                        false => _ = self.ended.get_or_insert(rank),
                    }
                }
            }
            Ok(Some(Event::Came(_))) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn take(
        &mut self,
        from: usize,
        tag: u64,
        message: OwnedMessage,
    ) -> Result<(), ComputationError> {
        match tag {
            MESSAGE => self.inbox[from].push_back(message),
            REQUEST => {
                if let Some(number) = message.first_chunk().copied().map(u64::from_le_bytes) {
                    let rank = name_of(&self.name, from);
                    self.gathering.take_request(from, &rank, number)?;
                }
            }
            REPLY => self.gathering.take_answer(from, message),
            FINISHED => self.has_finished[from] = true,
            _ => {}
        }
        Ok(())
    }

    fn failed(&mut self, rank: usize, error: MessageError) -> ComputationError {
        match error {
            MessageError::PeerDied { .. }
            | MessageError::PeerLeft { .. }
            | MessageError::PeerLost { .. }
            | MessageError::PeerCutOff { .. }
            | MessageError::UnknownPeer => {
                let rank = *self.ended.get_or_insert(rank);
                ComputationError::Ended { name: self.name.clone(), rank }
            }
            other => other.into(),
        }
    }
}

fn header_bytes(header: Header) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&header.number.to_le_bytes());
    bytes[8..].copy_from_slice(&header.index.to_le_bytes());
    bytes
}

impl fmt::Debug for Computation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Computation")
            .field("name", &self.name)
            .field("rank", &self.rank)
            .field("ranks", &self.ranks())
            .field("number", &self.number())
            .finish_non_exhaustive()
    }
}
