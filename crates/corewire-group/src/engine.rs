//! A member's replica, with the endpoint and the channel that it speaks by.
//!
//! ```text
//!  endpoint NAME.0 ... NAME.63   one of each member: messages to one other member
//!  channel  NAME                 all members send on it and receive from it: what an acceptor publishes
//! ```
//!
//! Nothing here waits. What cannot be sent now stays in a queue: a member that is stopped holds up nobody else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

use corewire::{
    ConnectError, Connector, Endpoint, Event, MessageError, Peer, ReceiveError, Selector,
    SendError, SharedSender, SnapshotReceiver,
};
use corewire_os::event::{Bell, wait_readable};

use crate::agreement::Rules;
use crate::error::GroupError;
use crate::frame::{Command, Frame, Published, Seen, decode, encode};
use crate::member::{MEMBERS_MAX, Member};
use crate::replica::{Input, Output, Replica};

/// Frames that one turn takes from each source, so that all get their turn.
const FRAMES_PER_TURN: usize = 256;

/// The name of the endpoint at a place.
pub(crate) fn name_of(group: &str, place: u8) -> String {
    format!("{group}.{place}")
}

/// The place of an endpoint, if it is one of the group's.
pub(crate) fn place_of(group: &str, name: &str) -> Option<u8> {
    let number = name.strip_prefix(group)?.strip_prefix('.')?;
    let place: u8 = number.parse().ok()?;
    (usize::from(place) < MEMBERS_MAX && number == place.to_string()).then_some(place)
}

/// How far the attempt to link with the member at a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Linking {
    /// A thread connects.
    Asked,
    /// There is a link, and the other one has not said yet who it is.
    Linked,
}

/// A member's engine.
pub(crate) struct Engine {
    name: String,
    me: Member,
    replica: Replica<Command>,
    endpoint: Endpoint,
    sender: SharedSender,
    receiver: SnapshotReceiver,
    /// Who is at the other end of each link, once it has said so.
    peers: BTreeMap<Peer, Option<Member>>,
    /// The link to each member, and what is not sent yet. Of one that has no link, too.
    links: BTreeMap<Member, (Option<Peer>, VecDeque<Vec<u8>>)>,
    linking: BTreeMap<u8, Linking>,
    gone: BTreeSet<Member>,
    unpublished: VecDeque<Vec<u8>>,
    connector: Connector,
    outcomes: (mpsc::Sender<(u8, ConnectError)>, mpsc::Receiver<(u8, ConnectError)>),
    bell: Arc<Bell>,
    /// Where the own commands were decided, until their callers ask.
    places: BTreeMap<u64, u64>,
    own_count: u64,
    frame: Vec<u8>,
    /// Something was decided, or the view is another one.
    has_news: bool,
}

impl Engine {
    pub(crate) fn new(
        name: &str,
        me: Member,
        endpoint: Endpoint,
        channel: (SharedSender, SnapshotReceiver),
        bell: Arc<Bell>,
    ) -> Self {
        let (sender, receiver) = channel;
        Self {
            name: name.to_owned(),
            me,
            replica: Replica::join(me, Rules::default()),
            connector: endpoint.connector(),
            endpoint,
            sender,
            receiver,
            peers: BTreeMap::new(),
            links: BTreeMap::new(),
            linking: BTreeMap::new(),
            gone: BTreeSet::new(),
            unpublished: VecDeque::new(),
            outcomes: mpsc::channel(),
            bell,
            places: BTreeMap::new(),
            own_count: 0,
            frame: Vec::new(),
            has_news: false,
        }
    }

    pub(crate) fn me(&self) -> Member {
        self.me
    }

    pub(crate) fn replica(&self) -> &Replica<Command> {
        &self.replica
    }

    pub(crate) fn lives(&self, member: Member) -> bool {
        !self.gone.contains(&member)
    }

    pub(crate) fn is_member(&self) -> bool {
        self.replica.view().has(self.me)
    }

    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Founds the group if this process would be a member and no member lives.
    pub(crate) fn found_if_alone(&mut self) {
        if self.linking.is_empty() && !self.is_member() && self.replica.is_orphaned() {
            let mut outputs = Vec::new();
            self.replica =
                Replica::found(self.me, Rules::default(), &mut |output| outputs.push(output));
            self.apply(outputs);
        }
    }

    /// What a joining process waits for.
    pub(crate) fn waits_for(&self) -> String {
        let places: Vec<_> = self.linking.keys().map(u8::to_string).collect();
        match places.is_empty() {
            true => "its members do not take this process in".to_owned(),
            false => format!("the processes at these places do not answer: {}", places.join(", ")),
        }
    }

    /// Nothing can be decided any more: too many members of the view have ended.
    pub(crate) fn check_majority(&self) -> Result<(), GroupError> {
        let view = self.replica.view();
        let ended: Vec<_> =
            view.members.iter().filter(|member| self.gone.contains(member)).collect();
        if !self.is_member() || view.members.len() - ended.len() >= view.quorum() {
            return Ok(());
        }
        let places: Vec<_> = ended.iter().map(|member| member.place.to_string()).collect();
        Err(GroupError::Lost {
            name: self.name.clone(),
            of: view.members.len(),
            ended: places.join(", "),
        })
    }

    /// Wants this decided. Returns the number of the command among this member's.
    pub(crate) fn propose(&mut self, command: &[u8]) -> u64 {
        self.own_count += 1;
        self.handle(Input::Propose(Command(command.into())));
        self.own_count
    }

    /// Where a command of this member was decided. Asked once for each.
    pub(crate) fn take_place(&mut self, number: u64) -> Option<u64> {
        self.places.remove(&number)
    }

    /// Whether a snapshot stands for a command of this member whose place this member has not seen.
    pub(crate) fn is_passed_over(&self, number: u64) -> bool {
        let snapshot = self.replica.snapshot();
        let last = snapshot.and_then(|snapshot| snapshot.last.get(&self.me));
        last.is_some_and(|last| number <= *last) && !self.places.contains_key(&number)
    }

    pub(crate) fn truncate(&mut self, next: u64, state: &[u8]) {
        self.handle(Input::Truncate(next, Command(state.into())));
    }

    pub(crate) fn leave(&mut self) {
        self.handle(Input::Leave);
    }

    pub(crate) fn lead(&mut self) {
        self.handle(Input::Lead);
    }

    /// Handles what has come, and sends what there is room for. True if anything was done.
    pub(crate) fn turn(&mut self) -> Result<bool, GroupError> {
        let has_heard = self.hear()?;
        let has_read = self.read()?;
        while let Ok((place, error)) = self.outcomes.1.try_recv() {
            self.not_linked(place, &error);
        }
        let has_sent = self.send()?;
        Ok(has_heard || has_read || has_sent)
    }

    /// Announces that the caller will wait. False if there is something to do first.
    pub(crate) fn arm(&mut self) -> Result<bool, GroupError> {
        self.bell.silence();
        Ok(self.endpoint.arm()? && self.receiver.arm()?)
    }

    /// Waits until something may have come, after `arm`.
    pub(crate) fn wait(&self, until: Option<Instant>) -> Result<(), GroupError> {
        let descriptors = (self.endpoint.readiness(), self.receiver.readiness()?);
        wait_readable(&[descriptors.0.as_fd(), descriptors.1.as_fd(), self.bell.as_fd()], until)?;
        Ok(())
    }

    pub(crate) fn descriptors(
        &self,
    ) -> Result<(corewire::Readiness, corewire::Readiness), GroupError> {
        Ok((self.endpoint.readiness(), self.receiver.readiness()?))
    }

    // Links.

    /// Links with the process at this place, in a thread of its own: it may be stopped.
    pub(crate) fn link(&mut self, place: u8) {
        if place == self.me.place || self.linking.contains_key(&place) {
            return;
        }
        self.linking.insert(place, Linking::Asked);
        let (connector, name) = (self.connector.clone(), name_of(&self.name, place));
        let (outcomes, bell) = (self.outcomes.0.clone(), Arc::clone(&self.bell));
        let connect = move || {
            if let Err(error) = connector.connect(&name) {
                let _ = outcomes.send((place, error));
                bell.ring();
            }
        };
        let thread = std::thread::Builder::new().name("corewire-group-link".to_owned());
        if thread.spawn(connect).is_err() {
            self.linking.remove(&place);
        }
    }

    fn not_linked(&mut self, place: u8, error: &ConnectError) {
        if self.linking.get(&place) != Some(&Linking::Asked) {
            return;
        }
        self.linking.remove(&place);
        match error {
            // It has ended.
            ConnectError::NotFound(_) => {
                for member in self.known_at(place) {
                    self.ended(member);
                }
            }
            // It is stopped, or has no room now.
            _ => self.link(place),
        }
    }

    /// Members at a place that are not known to have ended.
    fn known_at(&self, place: u8) -> Vec<Member> {
        let members = self.replica.view().members.iter().chain(self.links.keys());
        let at = members.filter(|one| one.place == place && !self.gone.contains(one));
        let at: BTreeSet<Member> = at.copied().collect();
        at.into_iter().collect()
    }

    /// The kernel has reported the end of a process.
    fn ended(&mut self, member: Member) {
        if self.gone.insert(member) {
            self.links.remove(&member);
            self.unpublished.push_back(encode(&Published::Mark(self.me, member)));
        }
    }

    // The endpoint.

    fn hear(&mut self) -> Result<bool, GroupError> {
        let mut has_any = false;
        for _ in 0..FRAMES_PER_TURN {
            let event = match self.endpoint.try_receive_event(Selector::any()) {
                Ok(None) => break,
                Ok(Some(event)) => event,
                Err(MessageError::Interrupted) => continue,
                Err(error) => return Err(error.into()),
            };
            has_any = true;
            match event {
                Event::Came(peer) => {
                    self.peers.insert(peer, None);
                    let name = self.endpoint.name_of(peer).unwrap_or_default();
                    if let Some(place) = place_of(&self.name, name) {
                        self.linking.insert(place, Linking::Linked);
                        self.tell(peer, &Frame::Hello(self.me));
                    }
                }
                Event::Received(message) => {
                    let from = message.source();
                    if let Some(frame) = decode(&message) {
                        self.take(from, frame);
                    }
                }
                Event::Gone { peer, .. } => {
                    let name = self.endpoint.name_of(peer).unwrap_or_default();
                    let place = place_of(&self.name, name);
                    match (self.peers.remove(&peer).flatten(), place) {
                        (Some(member), _) => self.ended(member),
                        (None, Some(place)) => {
                            self.linking.remove(&place);
                            self.known_at(place).into_iter().for_each(|one| self.ended(one));
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(has_any)
    }

    fn take(&mut self, from: Peer, frame: Frame) {
        let member = self.peers.get(&from).copied().flatten();
        match (frame, member) {
            (Frame::Hello(member), None) => self.met(from, member),
            (Frame::Message(message), Some(member)) => {
                self.handle(Input::Message(member, message));
            }
            (Frame::Look, _) => {
                let seen = self.seen();
                self.tell(from, &Frame::Seen(seen));
            }
            _ => {}
        }
    }

    fn met(&mut self, peer: Peer, member: Member) {
        // Its place is its own for as long as it lives: whoever had it before has ended.
        let before = self.known_at(member.place);
        before.into_iter().filter(|one| *one != member).for_each(|one| self.ended(one));
        self.linking.remove(&member.place);
        self.peers.insert(peer, Some(member));
        self.links.entry(member).or_default().0 = Some(peer);
        self.handle(Input::Met(member));
    }

    /// Sends a short frame beside the queues; if there is no room, it is lost.
    fn tell(&mut self, peer: Peer, frame: &Frame) {
        let _ = self.endpoint.try_send(peer, 0, &encode(frame));
    }

    pub(crate) fn seen(&self) -> Seen {
        let view = self.replica.view().clone();
        Seen {
            member: self.me,
            pid: std::process::id(),
            decided: self.replica.decided_count(),
            undecided: self.replica.undecided_count() as u64,
            ended: view.members.iter().filter(|one| self.gone.contains(one)).copied().collect(),
            view,
        }
    }

    // The channel.

    fn read(&mut self) -> Result<bool, GroupError> {
        let mut has_any = false;
        for _ in 0..FRAMES_PER_TURN {
            let got = match self.receiver.try_receive() {
                Ok(None) => break,
                Ok(Some(mut snapshot)) => Ok(snapshot.copy_into(&mut self.frame).is_ok()),
                Err(error) => Err(error),
            };
            has_any = true;
            match got {
                Ok(true) => match decode(&self.frame) {
                    Some(Published::Publication(one)) => self.handle(Input::Publication(one)),
                    Some(Published::Mark(by, of)) if by == self.me => self.handle(Input::Gone(of)),
                    _ => {}
                },
                // Evicted while it copied: the next call says so.
                Ok(false) | Err(ReceiveError::Interrupted) => {}
                Err(ReceiveError::Evicted) => {
                    self.receiver.rejoin_now()?;
                    self.handle(Input::Missed);
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(has_any)
    }

    // What the replica does.

    fn handle(&mut self, input: Input<Command>) {
        let mut outputs = Vec::new();
        self.replica.handle(input, &mut |output| outputs.push(output));
        self.apply(outputs);
    }

    fn apply(&mut self, outputs: Vec<Output<Command>>) {
        for output in outputs {
            match output {
                Output::Send(to, message) => {
                    if !self.gone.contains(&to) {
                        let frame = encode(&Frame::Message(message));
                        self.links.entry(to).or_default().1.push_back(frame);
                    }
                }
                Output::Publish(publication) => {
                    self.unpublished.push_back(encode(&Published::Publication(publication)));
                }
                Output::Decided(place, entry) => {
                    self.has_news = true;
                    if entry.from == self.me {
                        self.places.insert(entry.number, place);
                    }
                }
                Output::Snapshot(_) => self.has_news = true,
                Output::View(view) => {
                    self.has_news = true;
                    for member in view.members {
                        let has_link = self.links.get(&member).is_some_and(|one| one.0.is_some());
                        if member != self.me && !has_link && !self.gone.contains(&member) {
                            self.link(member.place);
                        }
                    }
                }
            }
        }
    }

    fn send(&mut self) -> Result<bool, GroupError> {
        let mut has_any = false;
        for (peer, queue) in self.links.values_mut() {
            let Some(peer) = *peer else { continue };
            while let Some(frame) = queue.front() {
                match self.endpoint.try_send(peer, 0, frame) {
                    Ok(()) => _ = queue.pop_front(),
                    Err(MessageError::Full { .. }) => break,
                    // Its end is reported by an event.
                    Err(_) => queue.clear(),
                }
                has_any = true;
            }
        }
        while let Some(frame) = self.unpublished.front() {
            match self.sender.try_send(frame) {
                Ok(()) => _ = self.unpublished.pop_front(),
                Err(SendError::Full { .. } | SendError::Joining { .. }) => break,
                Err(error) => return Err(error.into()),
            }
            has_any = true;
        }
        Ok(has_any)
    }

    /// Whether something waits for room.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unpublished.is_empty()
            || self.links.values().any(|(peer, queue)| peer.is_some() && !queue.is_empty())
    }
}
