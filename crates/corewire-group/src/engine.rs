//! A member's replica, with the endpoint and the channel that it speaks by.
//!
//! ```text
//!  endpoint NAME.member.0 to 63  one of each member: messages to one other member
//!  channel  NAME.log             all members send on it and receive from it: what an acceptor publishes
//!  file     if asked for         what an acceptor publishes is in it before
//! ```
//!
//! The kernel reports the end of a member's process, by the endpoint. This member then writes a mark into the channel:
//! when it reads the mark, it has read everything that the dead one had published. A member that was stopped for long is
//! evicted from the channel, joins it again, and asks for what it has missed.
//!
//! Nothing here waits. What cannot be sent now stays in a queue: a member that is stopped holds up nobody else.
//!
//! More than 600 lines, because what comes by the endpoint, by the channel and from the file changes the same state of one replica.

mod clients;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use corewire::{
    ConnectError, Connector, Domain, Endpoint, Event, JoinError, MessageError, OsError, Peer,
    Readiness, ReceiveError, Selector, SendError, SharedSender, SnapshotReceiver,
};
use corewire_os::event::{Bell, wait_readable};
use corewire_os::locked::SharedLock;
use corewire_os::process;
use corewire_os::report::Tell;

use self::clients::Clients;
use crate::agreement::Rules;
use crate::buffers::Buffers;
use crate::error::GroupError;
use crate::frame::{
    Command, FRAME_BYTES, FRAME_TAG, Frame, LENGTH_BYTES, MESSAGE_BYTES, Published, Seen, Unsent,
    append, encode, encode_in, frames,
};
use crate::kept::{Entry, Kept};
use crate::log_file::writer::{Done, Writer};
use crate::log_file::{Contents, FileId, LogFile, LogFileError};
use crate::member::{MEMBERS_MAX, Member};
use crate::replica::{Input, Output, Publication, Replica, WAITS};

/// How long a view may be on its way from a living member to this one.
const LATER_VIEW_WITHIN: Duration = Duration::from_secs(1);
/// How often members are asked what they know meanwhile.
const LOOKS_AFTER: Duration = Duration::from_millis(100);
/// How long what a member waits for may not come before it looks who else can do it: at first, and after it has looked in
/// vain. Each member waits a bit longer than another one, so that they do not all propose at the same time.
const LATE_AFTER: Duration = Duration::from_millis(200);
const LATE_AFTER_MAX: Duration = Duration::from_millis(500);
/// How long a proposer that has a majority waits for the leader's answer.
const ANSWERS_WITHIN: Duration = Duration::from_millis(60);
/// Frames that one turn takes from each source, so that all get their turn.
const FRAMES_PER_TURN: usize = 256;

/// How long to wait before it asks again for a link or a place in the channel.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

/// The name of the endpoint at a place.
pub(crate) fn name_of(group: &str, place: u8) -> String {
    format!("{group}.member.{place}")
}

/// The name of the channel.
pub(crate) fn channel_of(group: &str) -> String {
    format!("{group}.log")
}

/// The place of an endpoint, if it is one of the group's.
pub(crate) fn place_of(group: &str, name: &str) -> Option<u8> {
    let number = name.strip_prefix(group)?.strip_prefix(".member.")?;
    let place: u8 = number.parse().ok()?;
    (usize::from(place) < MEMBERS_MAX && number == place.to_string()).then_some(place)
}

/// The beginning of the names of clients' endpoints.
fn client_prefix(group: &str) -> String {
    format!("{group}.client.")
}

/// The name of a client's endpoint.
pub(crate) fn name_of_client(group: &str, client: Member) -> String {
    format!("{}{:016x}", client_prefix(group), client.life)
}

/// The client with an endpoint of this name.
fn client_of(group: &str, name: &str) -> Option<Member> {
    let number = name.strip_prefix(&client_prefix(group))?;
    u64::from_str_radix(number, 16).ok().map(Member::client_of_life)
}

/// How far the question is who is at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    /// A thread connects.
    Asked,
    /// There was no answer. A thread asks again from then on.
    Again(Instant),
}

/// A thread's answer.
enum Answer {
    /// Who is at this place; and who was known to have been there when a thread began to ask.
    Asked(u8, Vec<Member>, Result<Member, ConnectError>),
    /// The channel has taken this member in again, or not.
    Rejoined(Result<Box<SnapshotReceiver>, JoinError>),
    /// How far the file is written, as this writer says.
    Written(u64, Done),
    /// No process has this client's endpoint.
    ClientGone(Member),
    /// All of those have been looked for that a leader has looked for.
    LookedForClients,
}

/// Something that a member waits for.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// As long as the replica says the same, nothing of it has come.
    same: (u64, u64, u32),
    /// When it is late, and how long was waited for that.
    at: Instant,
    after: Duration,
}

/// What waits until it can be published: a message of several frames.
struct Unpublished {
    /// How many of the writer's jobs must be done before.
    after: u64,
    message: Vec<u8>,
}

/// The other end of a link.
struct Other {
    /// Who it is: its endpoint's name and incarnation tell. None if it just looks.
    member: Option<Member>,
    /// It has said which file it knows, and it is the same.
    has_greeted: bool,
}

/// What is said to a member.
struct MemberLink {
    /// None between two links, and before the first one.
    peer: Option<Peer>,
    has_been: bool,
    unsent: Unsent,
}

impl MemberLink {
    fn new(buffers: &Buffers) -> Self {
        Self { peer: None, has_been: false, unsent: Unsent::new(buffers.clone()) }
    }
}

/// Whether this member gets what is published.
enum Reading {
    Reads,
    /// It was evicted, and a thread joins again.
    Rejoins,
    /// It does. What it has published itself goes out before it is told that it has missed something.
    Rejoined,
}

/// How far a process is that has to found the group.
enum Founding {
    No,
    /// It reads what the old group has published, up to a mark of its own.
    Reads(Option<(LogFile, Contents)>),
}

/// A member's engine.
pub(crate) struct Engine {
    name: String,
    domain: Domain,
    me: Member,
    replica: Replica<Command>,
    founding: Founding,
    /// Which file the group has, and who writes it, if this member is its acceptor. No process may found the group anew
    /// while it is written: so it ends before the endpoint.
    file: Option<FileId>,
    report: Arc<Tell>,
    writer: Option<Writer>,
    /// Writers so far.
    writers: u64,
    endpoint: Endpoint,
    sender: SharedSender,
    receiver: SnapshotReceiver,
    reading: Reading,
    /// Who is at the other end of each link.
    peers: BTreeMap<Peer, Other>,
    /// Of each member, also of one that has no link.
    links: BTreeMap<Member, MemberLink>,
    asking: BTreeMap<u8, Asking>,
    /// What links have not had room for: which file this member knows.
    greetings: VecDeque<(Peer, Vec<u8>)>,
    gone: BTreeSet<Member>,
    /// Those of them whose marks have not been read.
    unmarked: BTreeSet<Member>,
    unpublished: VecDeque<Unpublished>,
    connector: Connector,
    answers: mpsc::Sender<Answer>,
    answered: mpsc::Receiver<Answer>,
    bell: Arc<Bell>,
    /// Clients that are linked with this member.
    clients: Clients,
    /// Own commands for which somebody waits, and where they were decided.
    places: BTreeMap<u64, Option<u64>>,
    own_count: u64,
    /// Those of them that the replica has not got yet: their bytes, and where each ends; and how many bytes the last such
    /// batch had.
    proposed: Vec<u8>,
    proposed_before: usize,
    proposed_ends: Vec<usize>,
    /// Memory of messages.
    buffers: Buffers,
    /// What the replica says: memory that is used again.
    outputs: Vec<Output<Command>>,
    /// The number of its view, if too few of its members live, and since when.
    minority: Option<(u64, Instant)>,
    /// What it waits for.
    waits: [Option<Waiting>; WAITS],
    /// Something has happened.
    has_news: bool,
    /// What this member cannot go on after.
    failed: Option<GroupError>,
    /// The lock that all processes of the group share, if it has a file.
    lock: Option<Arc<SharedLock>>,
    is_leaving: bool,
    /// Why places are not linked, other than that their processes do not answer.
    why_not: BTreeMap<u8, String>,
    /// Members that have said, since too many have ended, that they know of no later view; and when they were asked.
    knows_no_later: BTreeSet<Member>,
    looked_at: Option<Instant>,
}

/// What a member waits for.
pub(crate) struct Pause {
    endpoint: Readiness,
    receiver: Option<Readiness>,
    most: Duration,
}

impl Pause {
    /// Waits until something may have come, or the bell rings.
    pub(crate) fn wait(&self, bell: &Bell, deadline: Option<Instant>) -> Result<(), GroupError> {
        let mut descriptors = vec![self.endpoint.as_fd(), bell.as_fd()];
        descriptors.extend(self.receiver.as_ref().map(AsFd::as_fd));
        let until = Instant::now().checked_add(self.most);
        wait_readable(&descriptors, deadline.into_iter().chain(until).min())?;
        Ok(())
    }
}

/// Starts a thread for a call that may wait for another process.
pub(crate) fn in_thread(job: impl FnOnce() + Send + 'static) -> Result<(), OsError> {
    let thread = std::thread::Builder::new().name("corewire-group-ask".to_owned());
    let job = move || {
        process::block_all_signals();
        job();
    };
    thread.spawn(job).map(drop).map_err(|error| OsError {
        what: "start a thread of a group".into(),
        errno: error.raw_os_error().unwrap_or_default(),
    })
}

impl Engine {
    pub(crate) fn new(
        domain: &Domain,
        name: &str,
        me: Member,
        endpoint: Endpoint,
        channel: (SharedSender, SnapshotReceiver),
        (file, report): (Option<FileId>, Arc<Tell>),
        bell: Arc<Bell>,
    ) -> Self {
        let (sender, receiver) = channel;
        let (answers, answered) = mpsc::channel();
        Self {
            name: name.to_owned(),
            domain: domain.clone(),
            me,
            replica: Replica::join(me, receiver.next_sequence(), Rules::default()),
            founding: Founding::No,
            file,
            report,
            writer: None,
            writers: 0,
            failed: None,
            lock: None,
            knows_no_later: BTreeSet::new(),
            why_not: BTreeMap::new(),
            looked_at: None,
            is_leaving: false,
            reading: Reading::Reads,
            greetings: VecDeque::new(),
            unmarked: BTreeSet::new(),
            connector: endpoint.connector(),
            endpoint,
            sender,
            receiver,
            peers: BTreeMap::new(),
            links: BTreeMap::new(),
            asking: BTreeMap::new(),
            gone: BTreeSet::new(),
            unpublished: VecDeque::new(),
            answers,
            answered,
            minority: None,
            bell,
            clients: Clients::default(),
            places: BTreeMap::new(),
            own_count: 0,
            proposed: Vec::new(),
            proposed_before: 0,
            proposed_ends: Vec::new(),
            buffers: Buffers::default(),
            outputs: Vec::new(),
            waits: [None; WAITS],
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

    /// The group's file, while this process does not have the lock of its group.
    pub(crate) fn lacks_lock(&self) -> Option<&FileId> {
        self.file.as_ref().filter(|_| self.lock.is_none())
    }

    pub(crate) fn has_lock(&self) -> bool {
        self.lacks_lock().is_none()
    }

    /// Keeps the lock as long as this process belongs to the group. It asks the members that it has met so far to take
    /// it in: without the lock, another group may have the file.
    pub(crate) fn keep_lock(&mut self, lock: Option<SharedLock>) {
        self.lock = lock.map(Arc::new);
        if self.lock.is_some() {
            let met = self.links.iter().filter(|(_, link)| link.has_been);
            for member in met.map(|(member, _)| *member).collect::<Vec<_>>() {
                self.handle(Input::Met(member));
            }
        }
    }

    pub(crate) fn is_member(&self) -> bool {
        self.replica.is_member()
    }

    /// The longest command.
    pub(crate) fn command_bytes_max(&self) -> usize {
        self.sender.largest_message().saturating_sub(FRAME_BYTES)
    }

    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Founds the group if this process would be a member and no member lives. Before that it reads the group's file, and
    /// everything that former members have published. Only a process that has the group's door does this.
    pub(crate) fn found_if_alone(&mut self) -> Result<(), GroupError> {
        let is_alone = self.unanswered().is_empty() && self.replica.is_orphaned();
        if !is_alone || !matches!(self.founding, Founding::No) {
            return Ok(());
        }
        let loaded = match (&self.file, &self.lock) {
            (None, _) => None,
            (Some(_), None) => return Ok(()),
            (Some(file), Some(lock)) => match LogFile::load(&file.path(), lock, &*self.report)? {
                // A process that was its acceptor is about to end.
                None => return Ok(()),
                loaded => loaded,
            },
        };
        self.founding = Founding::Reads(loaded);
        self.mark(self.me);
        Ok(())
    }

    /// The own mark has come: nothing of an earlier group is left.
    fn found(&mut self, position: u64) -> Result<(), GroupError> {
        let Founding::Reads(loaded) = std::mem::replace(&mut self.founding, Founding::No) else {
            return Ok(());
        };
        let (file, contents) = loaded.unzip();
        let kept = contents.map(|Contents { snapshot, entries }| Kept::new(snapshot, entries));
        if file.is_some() {
            self.write_with(file)?;
        }
        let mut outputs = Vec::new();
        let out = &mut |output| outputs.push(output);
        self.replica = Replica::found(self.me, kept.unwrap_or_default(), Rules::default(), out);
        self.replica.has_read(position);
        self.apply(outputs);
        Ok(())
    }

    /// Starts the thread that writes the group's file.
    fn write_with(&mut self, file: Option<LogFile>) -> Result<(), GroupError> {
        let (Some(id), Some(lock)) = (&self.file, &self.lock) else { return Ok(()) };
        let (answers, bell) = (self.answers.clone(), Arc::clone(&self.bell));
        self.writers += 1;
        let number = self.writers;
        let tell = move |done| {
            let _ = answers.send(Answer::Written(number, done));
            bell.ring();
        };
        let report = Arc::clone(&self.report);
        self.writer = Some(Writer::start(id.path(), Arc::clone(lock), file, report, tell)?);
        Ok(())
    }

    /// This member is not the acceptor any more. What it has not published is not decided.
    fn end_writing(&mut self) {
        if let Some(writer) = self.writer.take() {
            let written = writer.done();
            // What it still says is about what nobody waits for.
            self.writers += 1;
            self.unpublished.retain(|one| one.after <= written);
            // The next writer counts from the beginning.
            self.unpublished.iter_mut().for_each(|one| one.after = 0);
        }
    }

    /// What this member knows, without what it speaks by.
    pub(crate) fn into_replica(mut self) -> Replica<Command> {
        self.pass_on();
        self.replica
    }

    /// What a joining process waits for.
    pub(crate) fn waits_for(&self) -> String {
        let place = |place: &u8| match self.why_not.get(place) {
            Some(why) => format!("{place} ({why})"),
            None => place.to_string(),
        };
        let places: Vec<_> = self.unanswered().iter().map(place).collect();
        if let Some(file) = &self.file
            && (self.lock.is_none() || self.replica.is_orphaned() && places.is_empty())
        {
            return format!("another process has {}", file.path().display());
        }
        match places.is_empty() {
            true => "its members do not take this process in".to_owned(),
            false => format!("the processes at these places do not answer: {}", places.join(", ")),
        }
    }

    /// Nothing can be decided any more: too many members of the view have ended. They may have left, and a later view be
    /// on its way: so this must last, and all processes of the group that live must say that they know of none. One of
    /// them may be stopped.
    pub(crate) fn check_majority(&mut self) -> Result<(), GroupError> {
        let view = self.replica.view();
        let (members, quorum, number) = (view.members.len(), view.quorum(), view.number);
        let ended: Vec<Member> =
            view.members.iter().filter(|member| self.gone.contains(member)).copied().collect();
        let has_majority = members - ended.len() >= quorum;
        if !self.is_member() && !self.is_leaving {
            return Err(GroupError::Excluded(self.name.clone()));
        }
        if !self.is_member() || has_majority && !self.replica.nobody_knows() {
            self.minority = None;
            return Ok(());
        }
        let now = Instant::now();
        let since = match self.minority {
            Some((of, since)) if of == number => since,
            _ => {
                self.knows_no_later.clear();
                now
            }
        };
        self.minority = Some((number, since));
        if self.looked_at.is_none_or(|at| now.saturating_duration_since(at) >= LOOKS_AFTER) {
            self.looked_at = Some(now);
            self.look_for_later_views();
        }
        let others = self.replica.view().members.iter().chain(self.links.keys());
        let mut others = others.filter(|one| **one != self.me && !self.gone.contains(one));
        let lasts = now.saturating_duration_since(since) >= LATER_VIEW_WITHIN;
        let all_have_said =
            self.unanswered().is_empty() && others.all(|other| self.knows_no_later.contains(other));
        if !lasts || !all_have_said {
            return Ok(());
        }
        let places: Vec<_> = ended.iter().map(|member| member.place.to_string()).collect();
        Err(GroupError::Lost { name: self.name.clone(), of: members, ended: places.join(", ") })
    }

    /// Asks all processes of the group which view they know, also those that this member has not met yet.
    fn look_for_later_views(&mut self) {
        // A directory that cannot be read now is read again.
        for name in self.domain.endpoints().unwrap_or_default() {
            let place = place_of(&self.name, name.as_str());
            let here = |other: &Other| other.member.is_some_and(|one| Some(one.place) == place);
            if let Some(place) = place.filter(|_| !self.peers.values().any(here)) {
                self.ask(place);
            }
        }
        for peer in self.links.values().filter_map(|link| link.peer).collect::<Vec<_>>() {
            self.send_short(peer, &Frame::Look);
        }
    }

    /// Wants this decided, from the next turn on, together with others. Returns the number of the command among this
    /// member's.
    pub(crate) fn propose(&mut self, command: &[u8]) -> u64 {
        let count = self.proposed_ends.len() + 1;
        let bytes = self.proposed.len() + command.len() + count * LENGTH_BYTES;
        if FRAME_BYTES + bytes > self.sender.largest_message().min(MESSAGE_BYTES) {
            self.pass_on();
        }
        if self.proposed_ends.is_empty() {
            self.proposed = self.buffers.take(self.proposed_before.max(command.len()));
            self.proposed.clear();
        }
        self.own_count += 1;
        self.proposed.extend_from_slice(command);
        self.proposed_ends.push(self.proposed.len());
        self.own_count
    }

    /// Gives the replica the commands that were proposed.
    pub(crate) fn pass_on(&mut self) {
        if self.proposed_ends.is_empty() {
            return;
        }
        self.proposed_before = self.proposed.len();
        let proposed = self.buffers.share(std::mem::take(&mut self.proposed));
        let mut begin = 0;
        let commands = self.proposed_ends.drain(..).map(|end| {
            let command = proposed.slice(begin..end);
            begin = end;
            Command(command)
        });
        let commands = commands.collect();
        self.handle(Input::Propose(commands));
    }

    /// How many of this member's commands are not decided.
    pub(crate) fn undecided_count(&self) -> u64 {
        self.replica.undecided_count() + self.proposed_ends.len() as u64
    }

    /// Somebody waits for the next command of this member.
    pub(crate) fn await_next(&mut self) {
        self.places.insert(self.own_count + 1, None);
    }

    /// Where such a command was decided.
    pub(crate) fn place_of(&self, number: u64) -> Option<u64> {
        self.places.get(&number).copied().flatten()
    }

    /// Nobody waits for it any more.
    pub(crate) fn forget(&mut self, number: u64) {
        self.places.remove(&number);
    }

    /// Whether a snapshot stands for a command of this member whose place this member has not seen.
    pub(crate) fn is_passed_over(&self, number: u64) -> bool {
        let snapshot = self.replica.snapshot();
        let last = snapshot.and_then(|snapshot| snapshot.last.get(&self.me));
        last.is_some_and(|last| number <= *last) && self.place_of(number).is_none()
    }

    pub(crate) fn truncate(&mut self, next: u64, state: &[u8]) {
        let snapshot_next = |replica: &Replica<_>| replica.snapshot().map(|snapshot| snapshot.next);
        let before = snapshot_next(&self.replica);
        self.handle(Input::Truncate(next, Command::copy(state)));
        let is_new = before != snapshot_next(&self.replica);
        let snapshot = self.replica.snapshot().filter(|_| is_new);
        if let (Some(writer), Some(snapshot)) = (&mut self.writer, snapshot) {
            writer.truncate(snapshot.clone());
        }
    }

    pub(crate) fn leave(&mut self) {
        self.is_leaving = true;
        self.pass_on();
        self.handle(Input::Leave);
    }

    pub(crate) fn lead(&mut self) {
        self.handle(Input::Lead);
    }

    /// Handles what has come, and sends what there is room for. True if anything was done.
    pub(crate) fn turn(&mut self) -> Result<bool, GroupError> {
        self.pass_on();
        let has_received = self.poll_endpoint()?;
        let has_read = self.read()?;
        let has_answers = self.take_answers()?;
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let is_late = self.check_late();
        self.clients.tend(&self.replica, &mut self.endpoint);
        self.look_for_clients();
        let has_sent = self.send()?;
        Ok(has_received || has_read || has_answers || is_late || has_sent)
    }

    /// Tells the replica if something that it waits for has not come for a while. That is no sign of a death: only the
    /// kernel knows.
    fn check_late(&mut self) -> bool {
        let now = Instant::now();
        let apart = Duration::from_millis(25 * u64::from(self.me.place % 8));
        let mut is_late = false;
        let waits = self.replica.waits();
        for (index, (what, wait)) in waits.into_iter().zip(&mut self.waits).enumerate() {
            let Some(what) = what else {
                *wait = None;
                continue;
            };
            let (first, apart) = match index {
                // Shorter than any other one: those who have promised let it come to an end.
                0 => (ANSWERS_WITHIN, Duration::ZERO),
                _ => (LATE_AFTER, apart),
            };
            let after = match *wait {
                Some(Waiting { same, at, .. }) if same == what && now < at => continue,
                Some(Waiting { same, after, .. }) if same == what => {
                    is_late = true;
                    (2 * after).min(LATE_AFTER_MAX)
                }
                _ => first,
            };
            *wait = Some(Waiting { same: what, at: now + after + apart, after });
        }
        if is_late {
            self.handle(Input::Late);
        }
        is_late
    }

    /// Announces that the caller will wait, and says what for, and for how long at most. `None` if there is something to
    /// do first.
    pub(crate) fn arm(&mut self) -> Result<Option<Pause>, GroupError> {
        self.bell.silence();
        if self.take_answers()? || !self.endpoint.arm()? {
            return Ok(None);
        }
        let receiver = match self.reading {
            Reading::Reads if !self.receiver.arm()? => return Ok(None),
            Reading::Reads => Some(self.receiver.readiness()?),
            // It gets nothing before it has joined again, which the bell says.
            Reading::Rejoins | Reading::Rejoined => None,
        };
        // What finds no room now is tried again soon.
        let is_soon = self.has_unsent()
            || self.asking.values().any(|asking| matches!(asking, Asking::Again(_)));
        let most = Duration::from_millis(if is_soon { 1 } else { 100 });
        Ok(Some(Pause { endpoint: self.endpoint.readiness(), receiver, most }))
    }

    /// What threads have found out.
    fn take_answers(&mut self) -> Result<bool, GroupError> {
        let mut has_any = false;
        while let Ok(answer) = self.answered.try_recv() {
            has_any = true;
            match answer {
                Answer::Asked(place, before, answer) => self.answered(place, before, answer),
                Answer::Rejoined(Ok(receiver)) => {
                    self.receiver = *receiver;
                    self.reading = Reading::Rejoined;
                }
                Answer::Rejoined(Err(JoinError::Forked)) => return Err(GroupError::Forked),
                Answer::Rejoined(Err(_)) => self.rejoin(AGAIN_AFTER)?,
                Answer::Written(number, done) if number == self.writers => {
                    let done = done.inspect_err(|error| self.send_failure(error))?;
                    if let Some(writer) = &mut self.writer {
                        writer.is_done(done);
                    }
                }
                Answer::Written(..) => {}
                Answer::LookedForClients => self.clients.looked(),
                Answer::ClientGone(client) => {
                    self.handle(Input::ClientGone(client, Command(Bytes::new())));
                }
            }
        }
        if self.asking.is_empty() {
            return Ok(has_any);
        }
        let now = Instant::now();
        let is_due = |asking: &Asking| matches!(asking, Asking::Again(at) if *at <= now);
        let due = self.asking.iter().filter(|(_, asking)| is_due(asking));
        let due: Vec<u8> = due.map(|(place, _)| *place).collect();
        for place in due {
            self.asking.remove(&place);
            self.ask(place);
        }
        Ok(has_any)
    }

    /// The group's file cannot be written, by this member or by any other one: all end, and say why.
    fn send_failure(&mut self, error: &LogFileError) {
        let frame = Frame::Failed(error.to_string());
        for peer in self.peers.keys().copied().collect::<Vec<_>>() {
            self.send_short(peer, &frame);
        }
    }

    /// Joins the channel again, in a thread: the process that lets receivers in may be stopped.
    fn rejoin(&mut self, pause: Duration) -> Result<(), GroupError> {
        self.reading = Reading::Rejoins;
        let builder = self.domain.receiver(&channel_of(&self.name)).snapshots();
        let (answers, bell) = (self.answers.clone(), Arc::clone(&self.bell));
        in_thread(move || {
            std::thread::park_timeout(pause);
            let joined = builder.join();
            // The call that asks for the descriptor waits for that process, too.
            let ready =
                joined.and_then(|receiver| receiver.readiness().map(|_| Box::new(receiver)));
            let _ = answers.send(Answer::Rejoined(ready));
            bell.ring();
        })?;
        Ok(())
    }

    // Links.

    /// Looks, in a thread, whether clients live of which nobody here would hear. One that is stopped holds the others up,
    /// and nothing else.
    fn look_for_clients(&mut self) {
        let unlinked = self.clients.unlinked(&self.replica);
        if unlinked.is_empty() {
            return;
        }
        let group = self.name.clone();
        let (connector, answers, bell) =
            (self.connector.clone(), self.answers.clone(), Arc::clone(&self.bell));
        let started = in_thread(move || {
            for client in unlinked {
                let connected = connector.connect(&name_of_client(&group, client));
                if matches!(connected, Err(ConnectError::NotFound(_))) {
                    let _ = answers.send(Answer::ClientGone(client));
                }
            }
            let _ = answers.send(Answer::LookedForClients);
            bell.ring();
        });
        if started.is_err() {
            // Without a thread now, later.
            self.clients.looked();
        }
    }

    /// Asks who is at a place, and links with that process, in a thread of its own: it may be stopped. Without a thread
    /// now, later.
    pub(crate) fn ask(&mut self, place: u8) {
        let before = self.known_at(place);
        if place == self.me.place {
            let others = before.into_iter().filter(|one| *one != self.me);
            return others.collect::<Vec<_>>().into_iter().for_each(|one| self.ended(one));
        }
        if self.asking.contains_key(&place) {
            return;
        }
        self.asking.insert(place, Asking::Asked);
        let (connector, name) = (self.connector.clone(), name_of(&self.name, place));
        let (answers, bell) = (self.answers.clone(), Arc::clone(&self.bell));
        let started = in_thread(move || {
            let found = connector.connect(&name).map(|it| Member::at(place, it));
            let _ = answers.send(Answer::Asked(place, before, found));
            bell.ring();
        });
        if started.is_err() {
            self.ask_again(place);
        }
    }

    fn ask_again(&mut self, place: u8) {
        self.asking.insert(place, Asking::Again(Instant::now() + AGAIN_AFTER));
    }

    /// Asks who is at a place if somebody may be there whom no link connects.
    fn ask_if_unlinked(&mut self, place: u8) {
        if self.has_unlinked(place) {
            self.ask(place);
        }
    }

    /// A place belongs to one process at a time. All who were known to have been there before somebody asked have ended,
    /// except the one that was found. No other order of events tells: after a stop this process may hear of a process
    /// long after that process's successor has become a member.
    fn answered(&mut self, place: u8, before: Vec<Member>, answer: Result<Member, ConnectError>) {
        self.asking.remove(&place);
        self.why_not.remove(&place);
        match answer {
            Ok(found) => {
                before.into_iter().filter(|one| *one != found).for_each(|one| self.ended(one));
                // The link has ended already, or this end has not heard of it yet.
                if !self.has_link(found) && self.lives(found) {
                    self.ask_again(place);
                }
            }
            Err(ConnectError::NotFound(_)) => before.into_iter().for_each(|one| self.ended(one)),
            // It is stopped, or it or this process has no room now.
            Err(error) => {
                if !matches!(error, ConnectError::NoAnswer { .. }) {
                    self.why_not.insert(place, error.to_string());
                }
                self.ask_again(place);
            }
        }
        // Another process may have come since, and its link have ended.
        if !self.asking.contains_key(&place) && self.has_unlinked(place) {
            self.ask_again(place);
        }
    }

    fn has_unlinked(&self, place: u8) -> bool {
        self.known_at(place).into_iter().any(|member| !self.has_link(member))
    }

    fn has_link(&self, member: Member) -> bool {
        self.peers.values().any(|other| other.member == Some(member))
    }

    /// Places of which it is not known who is there, or where a process has not greeted yet.
    fn unanswered(&self) -> BTreeSet<u8> {
        let silent = self.peers.values().filter(|other| !other.has_greeted);
        let silent = silent.filter_map(|other| other.member.map(|member| member.place));
        self.asking.keys().copied().chain(silent).collect()
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
            self.unmarked.insert(member);
            self.mark(member);
        }
    }

    fn mark(&mut self, member: Member) {
        self.publish_after(0, &Published::Mark(self.me, member));
    }

    // The endpoint.

    fn poll_endpoint(&mut self) -> Result<bool, GroupError> {
        let mut has_any = false;
        for _ in 0..FRAMES_PER_TURN {
            let event = match self.endpoint.now().receive_event(Selector::any()) {
                Ok(None) => break,
                Ok(Some(event)) => event,
                Err(MessageError::Interrupted) => continue,
                Err(error) => return Err(error.into()),
            };
            has_any = true;
            match event {
                Event::Came(peer) => self.on_peer(peer),
                Event::Received(message) => {
                    let from = message.source();
                    let message = Bytes::from_owner(message);
                    for frame in frames::<Frame<&[u8]>>(&message) {
                        self.take(from, frame.keep(&message));
                    }
                }
                Event::Gone { peer, why } => self.link_ended(peer, why),
            }
        }
        Ok(has_any)
    }

    fn on_peer(&mut self, peer: Peer) {
        let name = self.endpoint.name_of(peer).unwrap_or_default();
        if name.starts_with(&client_prefix(&self.name)) {
            if let Some(client) = client_of(&self.name, name) {
                self.clients.add(peer, client, &self.buffers);
            }
            return;
        }
        let place = place_of(&self.name, name);
        let member = place
            .zip(self.endpoint.incarnation_of(peer))
            .map(|(place, incarnation)| Member::at(place, incarnation));
        if let Some(member) = member {
            // What still comes by its link before would be out of order.
            self.peers.retain(|_, other| other.member != Some(member));
            if let Some(link) = self.links.get_mut(&member) {
                link.peer = None;
            }
            let hello: Frame = Frame::Hello(Box::new(self.file.clone()));
            self.greetings.push_back((peer, encode(&hello)));
        }
        self.peers.insert(peer, Other { member, has_greeted: false });
    }

    fn link_ended(&mut self, peer: Peer, why: MessageError) {
        if let Some(client) = self.clients.remove(peer) {
            // After any other end of the link the client may live: the leader looks for it.
            if matches!(why, MessageError::PeerDied { .. }) {
                self.handle(Input::ClientGone(client, Command(Bytes::new())));
            }
            return;
        }
        let Some(Other { member, has_greeted }) = self.peers.remove(&peer) else { return };
        let Some(member) = member else { return };
        if let Some(link) = self.links.get_mut(&member).filter(|link| link.peer == Some(peer)) {
            link.peer = None;
        }
        match why {
            // It may live, and nothing that it says can be believed.
            MessageError::PeerCutOff { .. } if has_greeted => self.failed = Some(why.into()),
            MessageError::PeerDied { .. } => {
                self.ended(member);
                self.ask_if_unlinked(member.place);
            }
            // Its process may live, and only the link has ended.
            _ if !self.has_link(member) => self.ask_again(member.place),
            _ => {}
        }
    }

    fn take(&mut self, from: Peer, frame: Frame) {
        if let Frame::OfClient(said) = frame {
            let longest = self.command_bytes_max();
            if let Some(entry) = self.clients.take(from, said, &self.replica, longest) {
                self.handle(Input::Relay(entry));
            }
            return;
        }
        let Some(&Other { member, has_greeted }) = self.peers.get(&from) else { return };
        match (frame, member.filter(|_| has_greeted)) {
            // A process that is joining ends; the members go on.
            (Frame::Hello(file), None) if *file != self.file && !self.is_member() => {
                self.failed = Some(GroupError::OtherFile {
                    name: self.name.clone(),
                    its: file.map(|file| file.path()),
                    given: self.file.as_ref().map(FileId::path),
                });
            }
            (Frame::Hello(file), None) if *file != self.file => {}
            (Frame::Hello(_), None) => self.greeted(from),
            (Frame::Message(message), Some(member)) => {
                self.handle(Input::Message(member, message));
            }
            (Frame::Failed(why), Some(member)) if self.file.is_some() => {
                self.failed = Some(GroupError::FileOfAll { place: member.place, why });
            }
            (Frame::Seen(seen), Some(member)) if seen.view.number <= self.replica.view().number => {
                self.knows_no_later.insert(member);
            }
            (Frame::Look, _) => {
                let seen = self.seen();
                self.send_short(from, &Frame::Seen(Box::new(seen)));
            }
            _ => {}
        }
    }

    fn greeted(&mut self, peer: Peer) {
        let Some(Other { member: Some(member), has_greeted }) = self.peers.get_mut(&peer) else {
            return;
        };
        *has_greeted = true;
        let member = *member;
        let link = self.links.entry(member).or_insert_with(|| MemberLink::new(&self.buffers));
        link.peer = Some(peer);
        let is_new = std::mem::replace(&mut link.has_been, true);
        if self.has_lock() {
            self.handle(if is_new { Input::Relinked(member) } else { Input::Met(member) });
        }
        self.ask_if_unlinked(member.place);
    }

    /// Sends a short frame beside the queues; if there is no room, it is lost.
    fn send_short(&mut self, peer: Peer, frame: &Frame) {
        let _ = self.endpoint.try_send(peer, FRAME_TAG, &encode(frame));
    }

    pub(crate) fn seen(&self) -> Seen {
        let view = self.replica.view().clone();
        Seen {
            member: self.me,
            pid: std::process::id(),
            decided: self.replica.decided_count(),
            undecided: self.undecided_count(),
            ended: view.members.iter().filter(|one| self.gone.contains(one)).copied().collect(),
            view,
        }
    }

    // The channel.

    fn read(&mut self) -> Result<bool, GroupError> {
        let mut has_any = false;
        match self.reading {
            Reading::Rejoins => return Ok(false),
            // What an acceptor has not published is not decided.
            Reading::Rejoined if !self.unpublished.is_empty() => return Ok(false),
            Reading::Rejoined => {
                self.reading = Reading::Reads;
                self.handle(Input::Missed(self.receiver.next_sequence()));
                // The marks may be among what it has missed.
                self.unmarked.clone().into_iter().for_each(|one| self.mark(one));
                if matches!(self.founding, Founding::Reads(_)) {
                    self.mark(self.me);
                }
            }
            Reading::Reads => {}
        }
        for _ in 0..FRAMES_PER_TURN {
            let position = self.receiver.next_sequence();
            let got = match self.receiver.try_receive() {
                Ok(None) => break,
                Ok(Some(mut snapshot)) => {
                    let mut message = self.buffers.take(snapshot.len());
                    Ok(snapshot.copy_into(&mut message).is_ok().then_some(message))
                }
                Err(error) => Err(error),
            };
            has_any = true;
            match got {
                Ok(Some(message)) => {
                    let message = self.buffers.share(message);
                    for frame in frames::<Published<&[u8]>>(&message) {
                        self.take_published(position, frame.keep(&message))?;
                    }
                }
                // Evicted while it copied: the next call says so.
                Ok(None) | Err(ReceiveError::Interrupted) => {}
                Err(ReceiveError::Evicted) => {
                    self.rejoin(Duration::ZERO)?;
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(has_any)
    }

    /// Something was published at this position.
    fn take_published(&mut self, position: u64, frame: Published) -> Result<(), GroupError> {
        match frame {
            Published::Publication(one) => self.handle(Input::Publication(position, one)),
            Published::Mark(by, of) if by == self.me && of == by => self.found(position)?,
            Published::Mark(by, of) if by == self.me => {
                self.replica.has_read(position + 1);
                if self.unmarked.remove(&of) {
                    self.handle(Input::Gone(of));
                }
            }
            Published::Mark(..) => {}
        }
        Ok(())
    }

    // What the replica does.

    fn handle(&mut self, input: Input<Command>) {
        self.has_news = true;
        let mut outputs = std::mem::take(&mut self.outputs);
        self.replica.handle(input, &mut |output| outputs.push(output));
        self.outputs = self.apply(outputs);
    }

    /// Does what the replica says. Returns the memory that this was in.
    fn apply(&mut self, mut outputs: Vec<Output<Command>>) -> Vec<Output<Command>> {
        for output in outputs.drain(..) {
            match output {
                Output::Send(to, message) => {
                    if !self.gone.contains(&to) {
                        let link =
                            self.links.entry(to).or_insert_with(|| MemberLink::new(&self.buffers));
                        link.unsent.push(&Frame::Message(message));
                    }
                }
                Output::Publish(publication) => self.publish(publication),
                Output::Decided(places) => self.tell_decided(places),
                // Readers find it where entries are missing.
                Output::Snapshot(_) => {}
                Output::View(view) => {
                    if view.acceptor != self.me {
                        self.end_writing();
                    }
                    for member in view.members {
                        self.ask_if_unlinked(member.place);
                    }
                }
            }
        }
        outputs
    }

    /// Tells those who wait for these entries.
    fn tell_decided(&mut self, places: Range<u64>) {
        if self.places.is_empty() && !self.clients.awaits_any() {
            return;
        }
        for place in places {
            let Some(Entry { from, number, .. }) = self.replica.entry(place) else { continue };
            if from.is_client() {
                if !self.replica.is_void(place) {
                    self.clients.decided(*from, *number, place);
                }
            } else if *from == self.me
                && let Some(waiting) = self.places.get_mut(number)
            {
                *waiting = Some(place);
            }
        }
    }

    /// Queues a publication, which the group's file has first.
    fn publish(&mut self, publication: Publication<Command>) {
        if self.file.is_some()
            && self.writer.is_none()
            && let Err(error) = self.write_with(None)
        {
            self.failed = Some(error);
        }
        let after = self.writer.as_mut().map_or(0, |writer| writer.take(&publication));
        self.publish_after(after, &Published::Publication(publication));
    }

    /// Queues something that is published once so many of the writer's jobs are done.
    fn publish_after(&mut self, after: u64, frame: &Published) {
        let largest = self.sender.largest_message().min(MESSAGE_BYTES);
        if let Some(last) = self.unpublished.back_mut().filter(|last| last.after == after)
            && append(&mut last.message, frame, largest)
        {
            return;
        }
        let message = encode_in(&self.buffers, frame);
        self.unpublished.push_back(Unpublished { after, message });
    }

    fn send(&mut self) -> Result<bool, GroupError> {
        let mut has_any = false;
        while let Some((peer, frame)) = self.greetings.front() {
            match self.endpoint.try_send(*peer, FRAME_TAG, frame) {
                Err(MessageError::Full { .. }) => break,
                _ => _ = self.greetings.pop_front(),
            }
            has_any = true;
        }
        for MemberLink { peer, unsent: queue, .. } in self.links.values_mut() {
            // Who this member is comes first.
            let is_greeted = |peer: &Peer| !self.greetings.iter().any(|(to, _)| to == peer);
            let Some(peer) = peer.filter(is_greeted) else { continue };
            while let Some(message) = queue.front() {
                match self.endpoint.try_send(peer, FRAME_TAG, message) {
                    Ok(()) => queue.pop(),
                    Err(MessageError::PeerDied { .. }) => queue.clear(),
                    // There is no room now, or no memory, or the link has ended, which an event reports: nothing may be
                    // left out.
                    Err(_) => break,
                }
                has_any = true;
            }
        }
        let written = self.writer.as_ref().map_or(0, Writer::done);
        while let Some(Unpublished { message, .. }) =
            self.unpublished.front().filter(|one| one.after <= written)
        {
            match self.sender.try_send(message) {
                Ok(()) => {
                    let sent = self.unpublished.pop_front();
                    sent.into_iter().for_each(|sent| self.buffers.put(sent.message));
                }
                Err(SendError::Full { .. } | SendError::Joining { .. }) => break,
                Err(error) => return Err(error.into()),
            }
            has_any = true;
        }
        Ok(has_any)
    }

    /// Whether something waits for room.
    fn has_unsent(&self) -> bool {
        let written = self.writer.as_ref().map_or(0, Writer::done);
        // The bell says when the file is written.
        self.unpublished.front().is_some_and(|one| one.after <= written)
            || !self.greetings.is_empty()
            || self.links.values().any(|link| link.peer.is_some() && !link.unsent.is_empty())
            || self.clients.has_unsent()
    }
}
