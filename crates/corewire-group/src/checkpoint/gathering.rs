//! What a rank has for gathering the states of all ranks (ZIMP, section IV-C2); the calls are in `gather`.
//!
//! ```text
//!  the rank that gathers ══▶ all others: the number of a checkpoint, published once
//!  each other one          takes that checkpoint, if it has not, and sends the state of it
//! ```
//!
//! A rank has a channel for its requests, `NAME.rank.R.requests`, from the first time on that it gathers. It sends that
//! request to each rank by itself, and the others join the channel when they get it, in threads of their own: the process
//! that lets them in may be stopped. Each says in its answers whether it hears the channel, and a request is published once
//! all do. One request of a rank is under way at a time, so there is always room.
//!
//! | what | bytes |
//! |---|---|
//! | a request | the number |
//! | an answer | the number that was asked for; that of the last checkpoint here; flags; the state, if there is one |

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use corewire::{
    Domain, Endpoint, JoinError, MessageError, OwnedMessage, ReceiveError, Receiver,
    ReceiverBuilder, Sender, Source, Wait, WaitError, WaitSet,
};

use super::ComputationError;
use crate::engine::in_thread;
use crate::join::LOOKS_AFTER;

/// A request.
const REQUEST_BYTES: usize = 8;
/// What an answer has before the state.
const ANSWER_BYTES: usize = 24;
/// It has a state.
const HAS_STATE: u64 = 1;
/// Who answers hears the channel.
const HEARS: u64 = 2;
/// Slots of the channel, of which one is used at a time.
const SLOTS: usize = 16;

/// The name of a rank's endpoint.
pub(super) fn name_of(computation: &str, rank: usize) -> String {
    format!("{computation}.rank.{rank}")
}

/// The name of the channel of the rank with an endpoint of this name.
pub(super) fn channel_of(rank: &str) -> String {
    format!("{rank}.requests")
}

/// Where a state is.
enum Place {
    Own(Arc<Vec<u8>>),
    /// Behind the head of an answer.
    Of(OwnedMessage),
}

/// The state of a rank, where it has come: it derefs to its bytes. Those of other ranks lie in memory of this rank's endpoint,
/// or of the other's, until they are dropped.
pub struct GatheredState(Place);

impl Deref for GatheredState {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Place::Own(state) => state,
            Place::Of(answer) => answer.get(ANSWER_BYTES..).unwrap_or_default(),
        }
    }
}

impl PartialEq for GatheredState {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for GatheredState {}

impl fmt::Debug for GatheredState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GatheredState").field(&&**self).finish()
    }
}

/// The states of all ranks at checkpoints that belong together.
#[derive(Debug, PartialEq, Eq)]
pub struct Gathered {
    /// Their number; some ranks' own ones are higher.
    pub number: u64,
    /// The states, by rank.
    pub states: Vec<GatheredState>,
}

/// An answer to a request for a state.
struct Answer {
    /// What was asked for, and the number of the last checkpoint there.
    asked: u64,
    last: u64,
    state: Option<Place>,
}

impl Answer {
    fn of(message: OwnedMessage) -> Option<(Self, bool)> {
        let word = |at: usize| message.get(at..)?.first_chunk().copied().map(u64::from_le_bytes);
        let (asked, last, flags) = (word(0)?, word(8)?, word(16)?);
        let has_state = flags & HAS_STATE != 0;
        let state = has_state.then(|| Place::Of(message));
        Some((Self { asked, last, state }, flags & HEARS != 0))
    }
}

/// What a rank has for gathering.
pub(super) struct Gathering {
    domain: Domain,
    /// The name of its endpoint.
    name: String,
    wait: Wait,
    set: WaitSet,
    /// The channel for its requests.
    sender: Option<Sender>,
    /// By rank: who hears it, and whose it hears.
    hears: Vec<bool>,
    receivers: Vec<Requests>,
    joined: (mpsc::Sender<Joined>, mpsc::Receiver<Joined>),
    /// Threads end when it does.
    life: Arc<()>,
    /// Who asks for a state, and of which number.
    asked: VecDeque<(usize, u64)>,
    answers: Vec<Option<Answer>>,
}

/// The channel of a rank, if it could be joined.
type Joined = (usize, Option<Box<Receiver>>);

/// How this rank gets the requests of another one.
enum Requests {
    ByMessage,
    /// A thread joins its channel.
    Joins,
    Published(Box<Receiver>),
    /// The channel has ended, or cannot be joined. Requests come by message, if any.
    Ended,
}

impl Gathering {
    pub(super) fn new(domain: &Domain, name: &str, ranks: usize, wait: Wait) -> Self {
        Self {
            domain: domain.clone(),
            name: name.to_owned(),
            wait,
            set: WaitSet::new(wait),
            sender: None,
            hears: vec![false; ranks],
            receivers: (0..ranks).map(|_| Requests::ByMessage).collect(),
            joined: mpsc::channel(),
            life: Arc::new(()),
            asked: VecDeque::new(),
            answers: (0..ranks).map(|_| None).collect(),
        }
    }

    /// Asks all others for a state, if all hear the channel; false if they must be asked by messages. Creates the channel.
    pub(super) fn publish(&mut self, own: usize, number: u64) -> Result<bool, ComputationError> {
        self.answers.fill_with(|| None);
        let ranks = self.hears.len();
        if ranks == 1 {
            return Ok(true);
        }
        let all_hear = (0..ranks).all(|rank| rank == own || self.hears[rank]);
        if let Some(sender) = &mut self.sender {
            return Ok(all_hear && sender.try_send(&number.to_le_bytes()).is_ok());
        }
        let sender = self.domain.sender(&channel_of(&self.name)).slots(SLOTS);
        let sender = sender.window_bytes(SLOTS << 12).largest_message(REQUEST_BYTES);
        self.sender = Some(sender.receivers(ranks).wait(self.wait).create()?);
        Ok(false)
    }

    /// Whether this rank has answered the request for this number.
    pub(super) fn is_answered(&self, rank: usize, number: u64) -> bool {
        self.answers[rank].as_ref().is_some_and(|answer| answer.asked == number)
    }

    /// What the others have answered, with the own state; and the highest number of a last checkpoint among them. No states
    /// if one is missing.
    pub(super) fn take_states(
        &mut self,
        own: usize,
        state: Option<Arc<Vec<u8>>>,
    ) -> (u64, Option<Vec<GatheredState>>) {
        let answers: Vec<_> = self.answers.iter_mut().map(Option::take).collect();
        let most = answers.iter().flatten().map(|answer| answer.last).max().unwrap_or(0);
        let states = answers.into_iter().map(|answer| answer.and_then(|answer| answer.state));
        let mut states: Vec<Option<Place>> = states.collect();
        states[own] = state.map(Place::Own);
        (most, states.into_iter().map(|one| one.map(GatheredState)).collect())
    }

    /// Who asks for a state next, and of which number.
    pub(super) fn next_asked(&mut self) -> Option<(usize, u64)> {
        self.asked.pop_front()
    }

    /// What stands before a state, or before nothing, in an answer.
    pub(super) fn head_of_answer(
        &self,
        to: usize,
        (asked, last): (u64, u64),
        has_state: bool,
    ) -> Vec<u8> {
        let hears = matches!(self.receivers[to], Requests::Published(_));
        let flags = if hears { HEARS } else { 0 } | if has_state { HAS_STATE } else { 0 };
        [asked, last, flags].map(u64::to_le_bytes).concat()
    }

    /// A request has come by message, of a rank with an endpoint of this name.
    pub(super) fn take_request(
        &mut self,
        from: usize,
        name: &str,
        number: u64,
    ) -> Result<(), ComputationError> {
        self.asked.push_back((from, number));
        let Requests::ByMessage = &self.receivers[from] else { return Ok(()) };
        self.receivers[from] = Requests::Joins;
        let receiver = self.domain.receiver(&channel_of(name)).wait(self.wait);
        let (joined, life) = (self.joined.0.clone(), Arc::downgrade(&self.life));
        in_thread(move || join(from, &receiver, &joined, &life))?;
        Ok(())
    }

    /// An answer has come.
    pub(super) fn take_answer(&mut self, from: usize, message: OwnedMessage) {
        if let Some((answer, hears)) = Answer::of(message) {
            self.hears[from] = hears;
            self.answers[from] = Some(answer);
        }
    }

    /// Takes the requests that were published.
    pub(super) fn look(&mut self) {
        while let Ok((from, receiver)) = self.joined.1.try_recv() {
            self.receivers[from] = receiver.map_or(Requests::Ended, Requests::Published);
        }
        for (from, requests) in self.receivers.iter_mut().enumerate() {
            let Requests::Published(receiver) = requests else { continue };
            let has_ended = loop {
                match receiver.try_receive() {
                    Ok(Some(message)) => {
                        let number = message.first_chunk().copied().map(u64::from_le_bytes);
                        self.asked.extend(number.map(|number| (from, number)));
                    }
                    Ok(None) | Err(ReceiveError::Interrupted) => break false,
                    Err(_) => break true,
                }
            };
            if has_ended {
                *requests = Requests::Ended;
            }
        }
    }

    /// Whether somebody asks for a state.
    pub(super) fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Whether it hears a channel, or is about to.
    pub(super) fn listens(&self) -> bool {
        let listens = |one: &Requests| matches!(one, Requests::Joins | Requests::Published(_));
        self.receivers.iter().any(listens)
    }

    /// Waits until a message or a request may be there.
    pub(super) fn wait(
        &mut self,
        endpoint: &mut Endpoint,
        most: Option<Duration>,
    ) -> Result<(), ComputationError> {
        let mut sources: Vec<&mut dyn Source> = vec![endpoint];
        let mut joins = false;
        for requests in &mut self.receivers {
            match requests {
                Requests::Published(receiver) => sources.push(&mut **receiver),
                Requests::Joins => joins = true,
                Requests::ByMessage | Requests::Ended => {}
            }
        }
        // Nothing wakes it when a thread has joined.
        let soon = joins.then_some(LOOKS_AFTER);
        match self.set.wait(&mut sources, most.into_iter().chain(soon).min()) {
            Err(WaitError::Endpoint(MessageError::Interrupted)) => Ok(()),
            waited => Ok(_ = waited?),
        }
    }
}

/// Joins a channel of requests; gives up if it ends, or if nobody wants it any more. Without it requests come by message.
fn join(from: usize, receiver: &ReceiverBuilder, joined: &mpsc::Sender<Joined>, life: &Weak<()>) {
    while life.strong_count() > 0 {
        // The call that asks for the descriptor waits for that process, too.
        let receiver = receiver.clone().join();
        let ready = receiver.and_then(|receiver| receiver.readiness().map(|_| receiver));
        let found = match ready {
            // It is stopped.
            Err(JoinError::NoAnswer { .. }) => continue,
            found => found.ok().map(Box::new),
        };
        let _ = joined.send((from, found));
        return;
    }
}
