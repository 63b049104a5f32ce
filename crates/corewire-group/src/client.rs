//! A client of a group: it proposes, and reads what is decided, and is no member.
//!
//! A client is linked with the group's members and speaks to one of them, its *home*. A command stays with the client until
//! that member has said where it was decided. If the home dies, or is silent for [`SILENT`], the client says everything that is
//! not answered to another member. A command that was decided before counts once: the log knows the last one of each client
//! ([`sessions`](crate::sessions)).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use corewire::{
    ChannelName, Domain, Endpoint, Event, MessageError, Options, Peer, Report, Selector,
};
use corewire_os::random_u128;

use crate::decided::{DecidedEntry, Decision};
use crate::engine::{in_thread, name_of_client, place_of};
use crate::error::{ClientError, of_one_host};
use crate::frame::{
    Command, FRAME_TAG, ForClient, Frame, OfClient, UNANSWERED_MAX, encode, frames,
};
use crate::join::NAME_BYTES_MAX;
use crate::member::Member;

/// How long the home may be silent while the client waits for an answer.
const SILENT: Duration = Duration::from_millis(500);
/// How often the client looks for members with which it is not linked, while it has none that answers.
const LOOKS_EVERY: Duration = Duration::from_millis(50);
/// Entries that a client asks for at one time.
const FOLLOWED: u32 = 256;

/// A client of a group, returned by [`GroupClient::connect`]: any number of processes may propose to a group and read its log
/// without being its members. They have no part in deciding, and cost the members nothing while they are silent.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("corewire-doc-client-{}", std::process::id()));
/// use std::time::Duration;
///
/// use corewire::Domain;
/// use corewire_group::{Decision, Group, GroupClient};
///
/// let domain = Domain::open_at(&dir)?;
/// let group = Group::builder(&domain, "orders").join()?; // in other processes
/// let mut client = GroupClient::connect(&domain, "orders", Duration::from_secs(10))?;
/// let index = client.propose(b"one more")?;
/// let Some(Decision::Entry(entry)) = client.next_decision(index, Duration::from_secs(10))? else { unreachable!() };
/// assert_eq!((entry.index, &entry.command[..]), (index, &b"one more"[..]));
/// # drop((client, group, domain)); std::fs::remove_dir_all(&dir)?;
/// # Ok(())
/// # }
/// ```
///
/// A command that was answered is decided; one that was not may be. A client that is dropped, or whose process dies, ends its
/// session: what it had proposed before stays decided.
pub struct GroupClient {
    name: String,
    domain: Domain,
    me: Member,
    endpoint: Endpoint,
    /// Members that have said that they are, or that may be.
    members: BTreeMap<Peer, Link>,
    /// The one that it speaks to.
    home: Option<Peer>,
    /// When the home has last said anything, and when it was asked whether it is there since then.
    heard_at: Instant,
    probed_at: Option<Instant>,
    looked_at: Option<Instant>,
    /// Places at which a thread connects, and those whose threads have ended.
    asking: BTreeSet<u8>,
    asked: (Sender<u8>, Receiver<u8>),
    founder: Option<Member>,
    command_bytes_max: u64,
    decided_count: u64,
    /// Commands so far.
    count: u64,
    unanswered: VecDeque<(u64, Command)>,
    /// The command whose index the program waits for, and the answer.
    awaited: Option<(u64, Option<Option<u64>>)>,
    /// The last command that was answered.
    answered: u64,
    follows: Option<Follows>,
    /// How often it has begun to follow.
    followings: u32,
    /// Whether the program waits for a decision.
    waits_for_decision: bool,
    /// Why the client has ended.
    ended: Option<ClientError>,
}

#[derive(Default)]
struct Link {
    /// It has welcomed this client.
    is_member: bool,
    /// The last command that it was asked for. It hears of each once: one that is stopped has them all when it continues.
    asked: u64,
}

/// What a client follows.
struct Follows {
    /// The index of the next decision.
    next: u64,
    /// Entries that were asked for and have not come.
    due: u32,
    come: VecDeque<Decision>,
}

impl GroupClient {
    /// Becomes a client of the group of this name. Waits until one of its members has answered, for at most `timeout`. It
    /// founds no group.
    ///
    /// # Errors
    /// [`ClientError::NoGroup`]: no member has answered in time; [`ClientError`].
    pub fn connect(domain: &Domain, name: &str, timeout: Duration) -> Result<Self, ClientError> {
        let longest = name_of_client("", Member::client_of_life(0)).len();
        of_one_host(name, ClientError::OtherHost)?;
        ChannelName::check(name, NAME_BYTES_MAX - longest)?;
        let life = u64::try_from(random_u128()? & u128::from(u64::MAX)).unwrap_or_default();
        let me = Member::client_of_life(life);
        let endpoint = domain.endpoint(&name_of_client(name, me)).peers(128).create()?;
        let mut client = Self {
            name: name.to_owned(),
            domain: domain.clone(),
            me,
            endpoint,
            members: BTreeMap::new(),
            home: None,
            heard_at: Instant::now(),
            probed_at: None,
            looked_at: None,
            asking: BTreeSet::new(),
            asked: channel(),
            founder: None,
            command_bytes_max: 0,
            decided_count: 0,
            count: 0,
            unanswered: VecDeque::new(),
            awaited: None,
            answered: 0,
            follows: None,
            followings: 0,
            waits_for_decision: false,
            ended: None,
        };
        let until = Instant::now().checked_add(timeout);
        match client.wait(until, |client| client.home.map(drop)) {
            Err(ClientError::Timeout(_)) => {
                Err(ClientError::NoGroup { name: name.to_owned(), after: timeout })
            }
            other => other.map(|()| client),
        }
    }

    /// The group's name.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.name
    }

    /// This client, as [`DecidedEntry::from`] has it.
    #[must_use]
    pub const fn id(&self) -> Member {
        self.me
    }

    /// Lets `command` be decided, and returns its index in the log. Waits for that, whatever members die meanwhile: it counts
    /// once.
    ///
    /// # Errors
    /// [`ClientError::TooLarge`]; `PassedOver` if it is decided and its index is not known; another [`ClientError`] after
    /// which nothing can be decided by this client any more.
    pub fn propose(&mut self, command: &[u8]) -> Result<u64, ClientError> {
        self.propose_until(command, None)
    }

    /// Like [`propose`](Self::propose), for at most `timeout`. After [`ClientError::Timeout`] the command may still be
    /// decided.
    ///
    /// # Errors
    /// [`ClientError::Timeout`]; otherwise as for [`propose`](Self::propose).
    pub fn propose_timeout(
        &mut self,
        command: &[u8],
        timeout: Duration,
    ) -> Result<u64, ClientError> {
        self.propose_until(command, Some(timeout))
    }

    fn propose_until(
        &mut self,
        command: &[u8],
        timeout: Option<Duration>,
    ) -> Result<u64, ClientError> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let number = self.begin(command, until)?;
        self.awaited = Some((number, None));
        let answer = self.wait(until, |client| client.awaited.and_then(|(_, answer)| answer));
        self.awaited = None;
        answer?.ok_or(ClientError::PassedOver)
    }

    /// Lets `command` be decided, and does not wait for that, but for room: 1,024 commands of a client may be under way.
    /// Commands of one client are decided in their order. [`flush`](Self::flush) waits for all.
    ///
    /// # Errors
    /// As for [`propose`](Self::propose).
    pub fn submit(&mut self, command: &[u8]) -> Result<(), ClientError> {
        self.begin(command, None)?;
        self.turn()
    }

    /// Like [`submit`](Self::submit), but waits for room for at most `timeout`.
    ///
    /// # Errors
    /// [`ClientError::Timeout`], and then the command was not submitted; otherwise as for [`submit`](Self::submit).
    pub fn submit_timeout(&mut self, command: &[u8], timeout: Duration) -> Result<(), ClientError> {
        self.begin(command, Instant::now().checked_add(timeout))?;
        self.turn()
    }

    /// Waits until every command of this client is decided, for at most `timeout`.
    ///
    /// # Errors
    /// [`ClientError::Timeout`], or what has ended the client.
    pub fn flush(&mut self, timeout: Duration) -> Result<(), ClientError> {
        let until = Instant::now().checked_add(timeout);
        self.wait(until, |client| client.unanswered.is_empty().then_some(()))
    }

    /// The maximum bytes of a command, which the group's first member has set.
    #[must_use]
    pub fn largest_command(&self) -> usize {
        usize::try_from(self.command_bytes_max).unwrap_or(usize::MAX)
    }

    /// How many commands this client has proposed or submitted, and how many of them, from the first one on, it knows to be
    /// decided.
    #[must_use]
    pub const fn own_commands(&self) -> (u64, u64) {
        (self.count, self.answered)
    }

    /// The decision of this index, or the next one behind it; `None` if it was not decided within `timeout`. With indexes that
    /// grow by one, this follows the log: members send entries ahead.
    ///
    /// # Errors
    /// What has ended the client.
    pub fn next_decision(
        &mut self,
        index: u64,
        timeout: Duration,
    ) -> Result<Option<Decision>, ClientError> {
        let until = Instant::now().checked_add(timeout);
        if self.follows.as_ref().is_none_or(|follows| follows.first() > index) {
            self.follow(index);
        }
        self.waits_for_decision = true;
        let found = self.wait(until, |client| {
            let follows = client.follows.as_mut()?;
            while let Some(decision) = follows.come.pop_front() {
                let end = match &decision {
                    Decision::Entry(entry) => entry.index + 1,
                    Decision::Snapshot { next, .. } => *next,
                };
                if end > index {
                    return Some(decision);
                }
            }
            None
        });
        self.waits_for_decision = false;
        match found {
            Err(ClientError::Timeout(_)) => Ok(None),
            found => found.map(Some),
        }
    }

    /// How many entries are decided, as the home has said last.
    #[must_use]
    pub const fn decided_count(&self) -> u64 {
        self.decided_count
    }

    /// Keeps a command, and says it to the home.
    fn begin(&mut self, command: &[u8], until: Option<Instant>) -> Result<u64, ClientError> {
        if command.len() as u64 > self.command_bytes_max {
            return Err(ClientError::TooLarge {
                name: self.name.clone(),
                asked: command.len(),
                max: self.command_bytes_max,
            });
        }
        self.wait(until, |client| (client.unanswered.len() < UNANSWERED_MAX).then_some(()))?;
        self.count += 1;
        if self.unanswered.is_empty() {
            self.heard_at = Instant::now();
        }
        self.unanswered.push_back((self.count, Command::copy(command)));
        self.ask_home();
        Ok(self.count)
    }

    /// Asks the home for what is not answered and what it was not asked for. What finds no room is copied, and sent when there
    /// is some.
    fn ask_home(&mut self) {
        let Some(home) = self.home else { return };
        let Some(link) = self.members.get_mut(&home) else { return };
        let asked = std::mem::replace(&mut link.asked, self.count);
        let at = self.unanswered.partition_point(|(number, _)| *number <= asked);
        for (number, command) in self.unanswered.range(at..).cloned().collect::<Vec<_>>() {
            if let Err(frame) = self.say(home, OfClient::Ask(number, command)) {
                let options = Options { report: Report::ErrorsOnly, ..Options::default() };
                // An event reports the member's end, and then another one is asked.
                let _ = self.endpoint.isend_with(home, FRAME_TAG, frame, options);
            }
        }
    }

    /// Says something to a member; gives back what finds no room.
    fn say(&mut self, peer: Peer, what: OfClient) -> Result<(), Vec<u8>> {
        let frame = encode(&Frame::OfClient(what));
        loop {
            match self.endpoint.try_send(peer, FRAME_TAG, &frame) {
                Err(MessageError::Interrupted) => {}
                Ok(()) => return Ok(()),
                Err(_) => return Err(frame),
            }
        }
    }

    /// Asks a member whether it is one, unless there is no room: then it has been asked.
    fn greet(&mut self, peer: Peer) {
        let _ = self.say(peer, OfClient::Hello);
    }

    /// Does what has come until `is_so` returns something.
    fn wait<T>(
        &mut self,
        until: Option<Instant>,
        mut is_so: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, ClientError> {
        let began = Instant::now();
        loop {
            self.turn()?;
            if let Some(found) = is_so(self) {
                return Ok(found);
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return Err(ClientError::Timeout(now.duration_since(began)));
            }
            let most = if self.home.is_some() { SILENT } else { LOOKS_EVERY };
            let left = until.map_or(most, |until| most.min(until - now));
            match self.endpoint.within(left).receive_event(Selector::any()) {
                Ok(Some(event)) => self.on_event(event),
                Ok(None) | Err(MessageError::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Handles what has come, and looks for a home. Never waits.
    fn turn(&mut self) -> Result<(), ClientError> {
        loop {
            match self.endpoint.now().receive_event(Selector::any()) {
                Ok(Some(event)) => self.on_event(event),
                Ok(None) => break,
                Err(MessageError::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        self.look_at_home();
        // A silent home may be stopped, and others may have come since.
        if self.home.is_none() || self.probed_at.is_some() {
            self.look_for_members()?;
        }
        self.ask_for_entries();
        Ok(())
    }

    /// Asks a silent home whether it is there, and takes another one if it stays silent: it may be stopped.
    fn look_at_home(&mut self) {
        let waits = !self.unanswered.is_empty() || self.waits_for_decision;
        let Some(home) = self.home.filter(|_| waits && self.heard_at.elapsed() >= SILENT) else {
            return;
        };
        match self.probed_at {
            None => {
                self.probed_at = Some(Instant::now());
                self.greet(home);
            }
            Some(at) if at.elapsed() >= SILENT => self.move_on(),
            Some(_) => {}
        }
    }

    fn on_event(&mut self, event: Event<corewire::OwnedMessage>) {
        match event {
            Event::Came(peer) => {
                let name = self.endpoint.name_of(peer).unwrap_or_default();
                if place_of(&self.name, name).is_some() {
                    self.members.insert(peer, Link::default());
                    self.greet(peer);
                }
            }
            Event::Received(message) => {
                let from = message.source();
                for frame in frames(&message) {
                    if let Frame::ForClient(what) = frame {
                        self.take(from, what);
                    }
                }
            }
            Event::Gone { peer, .. } => {
                self.members.remove(&peer);
                if self.home == Some(peer) {
                    self.move_on();
                }
            }
        }
    }

    fn take(&mut self, from: Peer, what: ForClient) {
        if self.home == Some(from) {
            self.heard_at = Instant::now();
            self.probed_at = None;
        }
        match what {
            ForClient::Welcome { founder, command_bytes_max, last, decided } => {
                if last < self.answered && self.founder.is_some_and(|known| known != founder) {
                    self.ended = Some(ClientError::FoundedAnew { name: self.name.clone() });
                    return;
                }
                self.founder = Some(founder);
                self.command_bytes_max = command_bytes_max;
                self.decided_count = self.decided_count.max(decided);
                if let Some(link) = self.members.get_mut(&from) {
                    link.is_member = true;
                    if self.home.is_none() {
                        self.settle(from);
                    }
                }
            }
            ForClient::NoMember => {
                // What it was asked for it has passed over.
                if let Some(link) = self.members.get_mut(&from) {
                    *link = Link::default();
                }
                if self.home == Some(from) {
                    self.move_on();
                }
            }
            ForClient::Decided(number, place) => {
                if let Some((awaited, answer)) = &mut self.awaited
                    && *awaited == number
                {
                    *answer = Some(place);
                }
                if let Ok(at) = self.unanswered.binary_search_by_key(&number, |(one, _)| *one) {
                    self.unanswered.remove(at);
                }
                self.answered = self.unanswered.front().map_or(self.count, |(one, _)| one - 1);
            }
            ForClient::Entry(following, index, entry) if self.follows(from, following) => {
                let command = entry.command.0.clone();
                let (from, number) = (entry.from, entry.number);
                let entry = DecidedEntry { index, from, number, command };
                self.came(index + 1, Decision::Entry(entry));
            }
            ForClient::Snapshot(following, next, state) if self.follows(from, following) => {
                let decision = Decision::Snapshot { next, state: state.0.clone() };
                self.came(next, decision);
            }
            ForClient::Entry(..) | ForClient::Snapshot(..) => {}
        }
    }

    /// Whether this is what it follows now.
    fn follows(&self, from: Peer, following: u32) -> bool {
        self.home == Some(from) && self.follows.is_some() && self.followings == following
    }

    /// A decision has come behind which this one is next.
    fn came(&mut self, next: u64, decision: Decision) {
        self.decided_count = self.decided_count.max(next);
        if let Some(follows) = &mut self.follows {
            follows.next = next;
            follows.due = follows.due.saturating_sub(1);
            follows.come.push_back(decision);
        }
    }

    /// Speaks to this member from now on, and says again what is not answered.
    fn settle(&mut self, peer: Peer) {
        self.home = Some(peer);
        self.heard_at = Instant::now();
        self.ask_home();
        self.probed_at = None;
        if let Some(follows) = &mut self.follows {
            follows.due = 0;
            self.followings = self.followings.wrapping_add(1);
        }
        self.ask_for_entries();
    }

    /// Takes another home, if there is one; later the same one again.
    fn move_on(&mut self) {
        let before = self.home.take();
        let mut members = self.members.iter().filter(|(_, link)| link.is_member);
        let behind = members.clone().find(|(peer, _)| before.is_none_or(|before| **peer > before));
        let next = behind.or_else(|| members.next()).map(|(peer, _)| *peer);
        if let Some(next) = next {
            self.settle(next);
        }
        // One that would be a member may be one by now.
        let others = self.members.iter().filter(|(_, link)| !link.is_member);
        for peer in others.map(|(peer, _)| *peer).collect::<Vec<_>>() {
            self.greet(peer);
        }
        self.looked_at = None;
    }

    /// Begins to follow the log at this index.
    fn follow(&mut self, index: u64) {
        self.follows = Some(Follows { next: index, due: 0, come: VecDeque::new() });
        self.followings = self.followings.wrapping_add(1);
        self.ask_for_entries();
    }

    /// Asks for entries ahead.
    fn ask_for_entries(&mut self) {
        let (Some(home), Some(follows)) = (self.home, &mut self.follows) else { return };
        let here = u32::try_from(follows.come.len()).unwrap_or(FOLLOWED) + follows.due;
        if here <= FOLLOWED / 2 {
            let count = FOLLOWED - here;
            let (following, from) = (self.followings, follows.next);
            // Without room now, later.
            if self.say(home, OfClient::Follow { following, from, count }).is_ok()
                && let Some(follows) = &mut self.follows
            {
                follows.due += count;
            }
        }
    }

    /// Links with the members that there are, each in a thread of its own: one may be stopped.
    fn look_for_members(&mut self) -> Result<(), ClientError> {
        if self.looked_at.is_some_and(|at| at.elapsed() < LOOKS_EVERY) {
            return Ok(());
        }
        self.looked_at = Some(Instant::now());
        while let Ok(place) = self.asked.1.try_recv() {
            self.asking.remove(&place);
        }
        for name in self.domain.endpoints()? {
            let Some(place) = place_of(&self.name, name.as_str()) else { continue };
            let is_linked = self.members.keys().any(|peer| {
                self.endpoint.name_of(*peer).is_some_and(|known| known == name.as_str())
            });
            if is_linked || !self.asking.insert(place) {
                continue;
            }
            let (connector, asked) = (self.endpoint.connector(), self.asked.0.clone());
            in_thread(move || {
                let _ = connector.connect(name.as_str());
                let _ = asked.send(place);
            })?;
        }
        let silent = self.members.iter().filter(|(_, link)| !link.is_member);
        for peer in silent.map(|(peer, _)| *peer).collect::<Vec<_>>() {
            self.greet(peer);
        }
        Ok(())
    }
}

impl Follows {
    /// The lowest index that it still returns.
    fn first(&self) -> u64 {
        match self.come.front() {
            Some(Decision::Entry(entry)) => entry.index,
            Some(Decision::Snapshot { .. }) => 0,
            None => self.next,
        }
    }
}

impl fmt::Debug for GroupClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupClient")
            .field("group", &self.name)
            .field("id", &self.me)
            .finish_non_exhaustive()
    }
}
