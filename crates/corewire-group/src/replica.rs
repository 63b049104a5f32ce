//! One member's part of the log, without input and output.
//!
//! The leader gives places to the commands of each member in the order of their numbers. The acceptor publishes an entry
//! if the leader of its view asks, for the place that is next: then the entry is decided. A member that waits in vain
//! ([`Input::Late`]) asks who knows a later view, and proposes one, though that is another member's task. Leader and new
//! acceptor are among those that have promised, so neither is stopped.
//!
//! More than 600 lines, because promises, places and the log of a view change together.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hash;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::agreement::{Ballot, Proposal, Rules, Step, Vote, Word};
use crate::kept::{Batch, Entry, Kept, Snapshot};
use crate::member::{Member, View};
use crate::sessions::{END, Sessions};

/// Entries that a message to a member which is behind has at most.
const ENTRIES_PER_MESSAGE: usize = 64;

/// How many things a member may wait for: the last answers to its proposal, its own commands, and a change.
pub(crate) const WAITS: usize = 3;

/// What one member says to another one. Between two members messages arrive in order.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message<C> {
    /// To the leader: let these be decided.
    Ask(Batch<C>),
    /// The leader of this view, to its acceptor: decide these from this place on.
    Accept(u64, u64, Batch<C>),
    /// About the view that follows the one with this number.
    Next(u64, Box<Word>),
    /// This view was decided. Also the answer to a member that still speaks of an earlier view.
    Decided(Box<View>),
    /// The latest view that I know has this number: is there a later one? Who knows an earlier one asks back.
    Known(u64),
    /// Let me be a member. Asked of all.
    Join,
    /// I leave. Asked of all.
    Leave,
    /// I hear what is published from now on, and miss what was published before.
    Missing(Missing),
    /// This was decided before what follows.
    Snapshot(Box<Snapshot<C>>),
    /// This was decided, from this place on.
    Entries(u64, Vec<Entry<C>>),
    /// Behind the entries that were missing: this answers the question of the first number. Everything before this place
    /// is decided, and the acceptor takes entries of the leader of the view with the second number there.
    Complete(u32, u64, u64),
    /// I have everything. To all, from a member that has said before that something is missing.
    HasAll,
}

impl<C> Message<C> {
    pub(crate) fn map<D>(self, to: &mut impl FnMut(C) -> D) -> Message<D> {
        match self {
            Self::Ask(batch) => Message::Ask(batch.map(to)),
            Self::Accept(view, place, batch) => Message::Accept(view, place, batch.map(to)),
            Self::Next(number, word) => Message::Next(number, word),
            Self::Decided(view) => Message::Decided(view),
            Self::Known(number) => Message::Known(number),
            Self::Join => Message::Join,
            Self::Leave => Message::Leave,
            Self::Missing(missing) => Message::Missing(missing),
            Self::Snapshot(snapshot) => Message::Snapshot(Box::new(snapshot.map(to))),
            Self::Entries(place, entries) => {
                Message::Entries(place, entries.into_iter().map(|one| one.map(to)).collect())
            }
            Self::Complete(number, view, until) => Message::Complete(number, view, until),
            Self::HasAll => Message::HasAll,
        }
    }
}

/// A question for entries.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Missing {
    /// Counts a member's questions.
    pub number: u32,
    /// The first entry that is missing.
    pub first: u64,
    /// The place behind the last one, if it is an acceptor that asks before it begins. Otherwise only the acceptor knows
    /// it.
    pub until: Option<u64>,
}

/// What the acceptor says to all members at once. When it dies, all living members have read, or will read, the same
/// publications: a channel with several receivers keeps that promise.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Publication<C> {
    /// I accept entries of the leader of the view with this number, at this place and behind it.
    Begin(u64, u64),
    /// These are decided from this place on.
    Learn(u64, Batch<C>),
}

impl<C> Publication<C> {
    pub(crate) fn map<D>(self, to: &mut impl FnMut(C) -> D) -> Publication<D> {
        match self {
            Self::Begin(view, place) => Publication::Begin(view, place),
            Self::Learn(place, batch) => Publication::Learn(place, batch.map(to)),
        }
    }
}

/// What happens to a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input<C> {
    /// Its program wants these decided, one after the other: at least one, and no more than one publication can have.
    Propose(Vec<C>),
    /// A client wants this decided. Its commands come in their order, perhaps again, and perhaps to other members, too.
    Relay(Entry<C>),
    /// A client has ended, as the kernel says; everything that it had said to this member has come. The command is an empty
    /// one, for the entry that ends its session.
    ClientGone(Member, C),
    /// Another member, or one that will be, has said this.
    Message(Member, Message<C>),
    /// An acceptor has published this, at this position of the channel; the own publications come, too. Positions grow.
    Publication(u64, Publication<C>),
    /// A process has ended, as the kernel says; everything that it had said before has come.
    Gone(Member),
    /// A process that would be a member has met this member.
    Met(Member),
    /// The link with a process that was met has ended, and there is another one. What either side has said last may be
    /// lost, also if something that it has said behind that comes now.
    Relinked(Member),
    /// It was stopped for too long, and some publications are lost for it. What is published from this position on comes.
    Missed(u64),
    /// Its program has made this of all entries before a place. They need not be kept.
    Truncate(u64, C),
    /// Its program leaves the group.
    Leave,
    /// Its program makes this member the leader, though the present one may live.
    Lead,
    /// What it [waits](Replica::waits) for has not come for a while. The member whose task it is may be stopped, which is
    /// no death.
    Late,
}

/// What a member does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<C> {
    /// Sends a message.
    Send(Member, Message<C>),
    /// Publishes.
    Publish(Publication<C>),
    /// The entries at these places are decided, and [kept](Replica::entry). They come in order, each once.
    Decided(Range<u64>),
    /// This stands for entries that this member has not seen. The next one is behind it.
    Snapshot(Box<Snapshot<C>>),
    /// There is a new view.
    View(Box<View>),
}

/// What an acceptor knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Accepting<C> {
    /// Whose leader's entries it takes.
    view: u64,
    next: u64,
    /// What it has published and not read yet, with their places.
    unread: VecDeque<(u64, Batch<C>)>,
}

/// What a leader knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Leading {
    /// The place of the next entry, once it is known.
    next: Option<u64>,
    /// Of each member the last command that has a place.
    placed: BTreeMap<Member, u64>,
}

/// A member's part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Replica<C> {
    me: Member,
    view: View,
    has_been_member: bool,
    /// The members of the view before. Some may have left, and still answer.
    before: Vec<Member>,
    rules: Rules,
    /// Who has ended.
    gone: BTreeSet<Member>,
    /// Who wants to be a member, and who wants to be none.
    joining: BTreeSet<Member>,
    leaving: BTreeSet<Member>,
    wants_to_lead: bool,
    /// What this leader has asked the acceptor for may be lost: it begins again with a view of its own.
    begins_again: bool,
    // The next view.
    vote: Vote,
    proposal: Option<Proposal>,
    /// It has chosen a view in which another member takes the part of an acceptor that lives: nothing more is decided
    /// before the next view.
    rests: bool,
    /// Whose higher ballot was met.
    yields_to: Option<Ballot>,
    /// Words about views that follow a view that has not come yet.
    early: Vec<(Member, u64, Word)>,
    // What was decided.
    kept: Kept<C>,
    /// Entries behind a gap.
    ahead: BTreeMap<u64, Entry<C>>,
    /// The place behind the last one that any acceptor has spoken of.
    spoken: u64,
    /// Whether it has everything that any acceptor has published and it has not heard. Else it learns: it neither would
    /// be a member nor says who is the next acceptor.
    is_complete: bool,
    /// Before which position of the channel it has read everything that comes.
    position: u64,
    /// From which position on everything comes.
    hears_from: u64,
    /// The acceptor that has sent what it had published before that.
    covered_by: Option<Member>,
    /// How often it has asked for entries.
    questions: u32,
    /// Who misses entries.
    learners: BTreeMap<Member, Missing>,
    /// Members that learn.
    incomplete: BTreeSet<Member>,
    /// The view of which an acceptor has said that it begins, and where.
    begun: Option<(u64, u64)>,
    // The own commands: those that are not all decided, how many there are, and up to which number they are decided.
    own: VecDeque<Batch<C>>,
    own_count: u64,
    own_decided: u64,
    /// Those of clients, which this member relays.
    relayed: BTreeMap<Member, VecDeque<Entry<C>>>,
    leading: Option<Leading>,
    accepting: Option<Accepting<C>>,
}

impl<C: Clone + Eq + Hash> Replica<C> {
    /// A member that makes a group alone, with what an earlier one has decided.
    pub(crate) fn found(
        me: Member,
        kept: Kept<C>,
        rules: Rules,
        out: &mut impl FnMut(Output<C>),
    ) -> Self {
        let start = kept.next();
        let view = View { start, ..View::first(me) };
        let mut replica = Self { kept, spoken: start, ..Self::new(me, view, rules) };
        replica.take_roles(out);
        replica
    }

    /// A member that makes a group alone.
    pub fn found_empty(me: Member, rules: Rules, out: &mut impl FnMut(Output<C>)) -> Self {
        Self::found(me, Kept::default(), rules, out)
    }

    /// One of several founders, who agree on the first view beforehand.
    pub fn of_view(me: Member, view: View, rules: Rules, out: &mut impl FnMut(Output<C>)) -> Self {
        let mut replica = Self::new(me, view, rules);
        replica.take_roles(out);
        replica
    }

    /// One that would be a member of a group whose living members it [meets](Input::Met). What acceptors publish from
    /// this position of the channel on comes. It learns first, so that every member has the whole log.
    #[must_use]
    pub fn join(me: Member, position: u64, rules: Rules) -> Self {
        let mut outside = View::first(me);
        (outside.number, outside.members) = (0, Vec::new());
        let replica = Self::new(me, outside, rules);
        Self { is_complete: false, position, hears_from: position, ..replica }
    }

    fn new(me: Member, view: View, rules: Rules) -> Self {
        Self {
            me,
            has_been_member: view.has(me),
            view,
            before: Vec::new(),
            rules,
            gone: BTreeSet::new(),
            joining: BTreeSet::new(),
            leaving: BTreeSet::new(),
            wants_to_lead: false,
            begins_again: false,
            vote: Vote::default(),
            proposal: None,
            rests: false,
            yields_to: None,
            early: Vec::new(),
            kept: Kept::default(),
            ahead: BTreeMap::new(),
            spoken: 0,
            is_complete: true,
            position: 0,
            hears_from: 0,
            covered_by: None,
            questions: 0,
            learners: BTreeMap::new(),
            incomplete: BTreeSet::new(),
            begun: None,
            own: VecDeque::new(),
            own_count: 0,
            own_decided: 0,
            relayed: BTreeMap::new(),
            leading: None,
            accepting: None,
        }
    }

    /// The present view, as far as this member knows.
    #[must_use]
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// The entry at a place, if it is decided, and no snapshot stands for it.
    #[must_use]
    pub fn entry(&self, place: u64) -> Option<&Entry<C>> {
        self.kept.get(place)
    }

    /// What stands for the entries that are not kept.
    #[must_use]
    pub fn snapshot(&self) -> Option<&Snapshot<C>> {
        self.kept.snapshot()
    }

    /// Whether the entry at a place counts for nothing: it is the end of a client's session, or a command of a client that
    /// was decided before.
    #[must_use]
    pub fn is_void(&self, place: u64) -> bool {
        self.kept.is_void(place)
    }

    /// Whether a client's command is decided, and where if that is known here.
    #[must_use]
    pub fn place_of_client(&self, client: Member, number: u64) -> Option<Option<u64>> {
        let is_decided = number <= self.kept.sessions().last_of(client);
        is_decided.then(|| self.kept.place_of(client, number))
    }

    /// The number of the last command of a client that is decided.
    #[must_use]
    pub fn last_of_client(&self, client: Member) -> u64 {
        self.kept.sessions().last_of(client)
    }

    /// Whether it is a member, as far as it knows.
    #[must_use]
    pub fn is_member(&self) -> bool {
        self.view.has(self.me)
    }

    /// How many commands of clients it relays.
    #[must_use]
    pub fn relayed_count(&self) -> usize {
        self.relayed.values().map(VecDeque::len).sum()
    }

    /// Clients whose sessions have not ended.
    pub fn sessions(&self) -> impl Iterator<Item = Member> + '_ {
        self.kept.sessions().open()
    }

    /// Whether it is the leader, as far as it knows.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leading.is_some()
    }

    /// How many entries are decided.
    #[must_use]
    pub fn decided_count(&self) -> u64 {
        self.next()
    }

    /// Whether it would be a member of a group of which nobody lives. Then it has to found one.
    #[must_use]
    pub fn is_orphaned(&self) -> bool {
        !self.has_been_member && self.nobody_lives()
    }

    fn nobody_lives(&self) -> bool {
        self.view.members.iter().all(|member| self.gone.contains(member))
    }

    /// Whether it has every entry that was decided before it was a member, and has missed none since.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether nobody needs this member any more: it has left, and the acceptor of the present view has begun.
    #[must_use]
    pub fn has_left(&self) -> bool {
        let has_begun = self.begun.is_some_and(|(view, _)| view >= self.view.number);
        let has_left = self.has_been_member && !self.view.has(self.me);
        has_left && (has_begun || self.nobody_lives())
    }

    /// How many commands its program has wanted decided.
    #[must_use]
    pub const fn proposed_count(&self) -> u64 {
        self.own_count
    }

    /// How many of its own commands are not decided.
    #[must_use]
    pub const fn undecided_count(&self) -> u64 {
        self.own_count.saturating_sub(self.own_decided)
    }

    fn next(&self) -> u64 {
        self.kept.next()
    }

    /// Something has happened.
    pub fn handle(&mut self, input: Input<C>, out: &mut impl FnMut(Output<C>)) {
        match input {
            Input::Propose(commands) => {
                let batch = Batch { from: self.me, first: self.own_count + 1, commands };
                self.own_count += batch.len();
                self.own.push_back(batch.clone());
                if self.view.has(self.me) {
                    self.say(self.view.leader, Message::Ask(batch), out);
                }
            }
            Input::Relay(entry) => self.relay(entry, out),
            Input::ClientGone(client, nothing) => {
                if self.is_known(client) {
                    self.relay_end(client, nothing, out);
                }
            }
            Input::Message(from, message) => self.on_message(from, message, out),
            Input::Publication(position, publication) => {
                self.has_read(position + 1);
                self.on_publication(publication, out);
            }
            Input::Gone(member) => {
                self.gone.insert(member);
                self.joining.remove(&member);
                self.learners.remove(&member);
                self.incomplete.remove(&member);
                if self.yields_to.is_some_and(|ballot| ballot.place == member.place) {
                    self.yields_to = None;
                }
                // It may have told only some of us.
                if self.view.number > 0 {
                    let message = Message::Decided(Box::new(self.view.clone()));
                    self.send_to_all(&message, out);
                    self.send_to_former(&message, out);
                }
            }
            Input::Met(member) => {
                if !self.view.has(self.me) && !self.gone.contains(&member) {
                    if !self.view.has(member) {
                        self.view.members.push(member);
                    }
                    let message = match self.is_complete {
                        true => Message::Join,
                        false => Message::Missing(self.missing()),
                    };
                    self.say(member, message, out);
                }
            }
            Input::Relinked(member) => self.say_again(member, out),
            // An acceptor that has begun has everything, or has published it itself.
            Input::Missed(position) if self.accepting.is_some() => {
                self.has_read(position);
                let Some(accepting) = &mut self.accepting else { return };
                let view = accepting.view;
                let unread = std::mem::take(&mut accepting.unread);
                for (place, batch) in unread {
                    self.on_publication(Publication::Learn(place, batch), out);
                }
                self.on_publication(Publication::Begin(view, self.next()), out);
            }
            Input::Missed(position) => {
                self.has_read(position);
                (self.hears_from, self.covered_by) = (position, None);
                if self.has_been_member && !self.view.has(self.me) {
                    // It may have missed that another acceptor has begun.
                    self.begun = Some((self.view.number, self.next()));
                }
                self.is_complete = false;
                self.incomplete.insert(self.me);
                self.ask_for_entries(out);
            }
            Input::Truncate(next, state) => _ = self.kept.truncate(next, state),
            Input::Leave => {
                self.leaving.insert(self.me);
                self.send_to_all(&Message::Leave, out);
            }
            Input::Lead => {
                let View { leader, acceptor, .. } = self.view;
                self.wants_to_lead =
                    self.view.has(self.me) && ![leader, acceptor].contains(&self.me);
            }
            Input::Late => self.be_late(out),
        }
        self.look_for_change(out);
    }

    /// Whether a client has a session, or commands that may begin one.
    fn is_known(&self, client: Member) -> bool {
        self.kept.sessions().last_of(client) > 0 || self.relayed.contains_key(&client)
    }

    /// Asks for a client's command, unless it is decided or was asked for.
    fn relay(&mut self, entry: Entry<C>, out: &mut impl FnMut(Output<C>)) {
        let sessions = self.kept.sessions();
        let is_late =
            sessions.has_ended(entry.from) || entry.number <= sessions.last_of(entry.from);
        let waiting = self.relayed.entry(entry.from).or_default();
        let is_asked = waiting.back().is_some_and(|last| last.number >= entry.number);
        if !entry.from.is_client() || is_late || is_asked {
            if waiting.is_empty() {
                self.relayed.remove(&entry.from);
            }
            return;
        }
        waiting.push_back(entry.clone());
        if self.may_relay() {
            self.say(self.view.leader, Message::Ask(Batch::one(entry)), out);
        }
    }

    /// Asks for the end of a client's session, behind its commands.
    fn relay_end(&mut self, client: Member, nothing: C, out: &mut impl FnMut(Output<C>)) {
        let waiting = self.relayed.entry(client).or_default();
        if waiting.back().is_none_or(|last| last.number != END) {
            let entry = Entry { from: client, number: END, command: nothing };
            waiting.push_back(entry.clone());
            if self.may_relay() {
                self.say(self.view.leader, Message::Ask(Batch::one(entry)), out);
            }
        }
    }

    /// Whether it has read what was decided before the present view began: a client's command that is among that is not
    /// asked for again.
    fn may_relay(&self) -> bool {
        self.view.has(self.me)
            && self
                .begun
                .is_some_and(|(begun, first)| begun >= self.view.number && self.next() >= first)
    }

    /// Asks the leader for what clients wait for.
    fn relay_again(&mut self, out: &mut impl FnMut(Output<C>)) {
        if !self.relayed.is_empty() && self.may_relay() {
            let entries: Vec<_> = self.relayed.values().flatten().cloned().collect();
            for entry in entries {
                self.say(self.view.leader, Message::Ask(Batch::one(entry)), out);
            }
        }
    }

    /// Says something to a member, or to itself.
    fn say(&mut self, to: Member, message: Message<C>, out: &mut impl FnMut(Output<C>)) {
        if to == self.me {
            self.on_message(to, message, out);
        } else if !self.gone.contains(&to) {
            out(Output::Send(to, message));
        }
    }

    /// Says again what another process may not have heard, and asks again for its answers.
    fn say_again(&mut self, to: Member, out: &mut impl FnMut(Output<C>)) {
        if self.gone.contains(&to) || self.rules.trusts_new_links() {
            return;
        }
        // A word about the next view may be lost: whose task it is proposes it once more.
        self.proposal = None;
        self.say(to, Message::Known(self.view.number), out);
        if self.leaving.contains(&self.me) {
            self.say(to, Message::Leave, out);
        }
        match (self.is_complete, self.view.has(self.me)) {
            // The answer to the question before may have a gap.
            (false, _) => self.ask_for_entries(out),
            (true, true) => self.say(to, Message::HasAll, out),
            (true, false) if self.has_been_member => {}
            (true, false) => self.say(to, Message::Join, out),
        }
        if to == self.view.leader {
            self.ask_again(out);
        }
        let leads = self.leading.is_some() && !self.rules.leads_on();
        self.begins_again |= leads && to == self.view.acceptor;
    }

    fn send_to_all(&mut self, message: &Message<C>, out: &mut impl FnMut(Output<C>)) {
        for member in self.view.members.clone() {
            if member != self.me {
                self.say(member, message.clone(), out);
            }
        }
    }

    fn on_message(&mut self, from: Member, message: Message<C>, out: &mut impl FnMut(Output<C>)) {
        match message {
            // Nobody sends a batch without commands.
            Message::Ask(batch) | Message::Accept(_, _, batch) if batch.commands.is_empty() => {}
            Message::Ask(batch) => self.place(batch, out),
            Message::Accept(view, place, batch) => self.accept(from, view, place, batch, out),
            Message::Next(number, word) => self.agree(from, number, *word, out),
            // The leader has begun.
            Message::Decided(view) if view.number == self.view.number => {
                if from == self.view.leader && from != self.me {
                    self.ask_again(out);
                }
            }
            Message::Decided(view) => self.adopt(*view, out),
            Message::Known(number) => {
                let is_for_it = number > 0 || self.view.has(from);
                if number < self.view.number && is_for_it && !self.rules.keeps_views_secret() {
                    self.send_view(from, out);
                } else if number > self.view.number {
                    self.say(from, Message::Known(self.view.number), out);
                }
            }
            Message::Join => {
                if !self.view.has(from) && !self.gone.contains(&from) {
                    self.joining.insert(from);
                } else {
                    // It does not know yet that it is a member, and has everything.
                    self.incomplete.remove(&from);
                    self.learners.remove(&from);
                }
            }
            Message::Leave => _ = self.leaving.insert(from),
            Message::Missing(missing) => {
                self.learners.insert(from, missing);
                if self.view.has(from) {
                    self.incomplete.insert(from);
                }
                self.teach(out);
            }
            Message::Snapshot(snapshot) => self.catch_up(*snapshot, out),
            Message::Entries(place, entries) => {
                for (place, entry) in (place..).zip(entries) {
                    self.on_publication(Publication::Learn(place, Batch::one(entry)), out);
                }
            }
            Message::Complete(number, view, until) => {
                self.on_publication(Publication::Begin(view, until), out);
                self.complete(from, number, view, out);
            }
            Message::HasAll => {
                self.incomplete.remove(&from);
                self.learners.remove(&from);
            }
        }
    }

    // The leader.

    /// Gives commands their places, and asks the acceptor to decide them there.
    fn place(&mut self, batch: Batch<C>, out: &mut impl FnMut(Output<C>)) {
        // A leader that does not know yet which places are free drops the request. The member asks again.
        let must_wait = self.rests || self.must_rest();
        let Some(leading) = &mut self.leading else { return };
        let Some(next) = leading.next.filter(|_| !must_wait) else { return };
        if batch.from.is_client() {
            let placed = leading.placed.get(&batch.from).copied();
            if batch.len() != 1 || !Sessions::may_place(placed, batch.first) {
                return;
            }
            let last = if batch.first == END { Sessions::PLACED_END } else { batch.first };
            leading.placed.insert(batch.from, last);
        } else {
            let placed = leading.placed.entry(batch.from).or_default();
            // They have places already, or earlier commands of this member were dropped and must come first. A batch is
            // decided as a whole, so no other part of one has places.
            if batch.first != placed.saturating_add(1) && !self.rules.decides_twice() {
                return;
            }
            *placed = batch.last();
        }
        leading.next = Some(next + batch.len());
        let accept = Message::Accept(self.view.number, next, batch);
        self.say(self.view.acceptor, accept, out);
    }

    /// A living acceptor may leave only after it has decided everything that it was asked for; and if another one can
    /// take its place.
    fn must_rest(&self) -> bool {
        let View { members, acceptor, .. } = &self.view;
        let lives = |member: &Member| !self.gone.contains(member);
        let stays = |member: &Member| lives(member) && !self.leaving.contains(member);
        let has_all = |member: &Member| !self.incomplete.contains(member);
        let has_successor = || members.iter().any(|member| stays(member) && has_all(member));
        self.leaving.contains(acceptor) && lives(acceptor) && has_successor()
    }

    /// Whether the leader knows where it begins.
    fn begin_to_lead(&mut self, out: &mut impl FnMut(Output<C>)) {
        let next = self.next();
        let Some(leading) = &mut self.leading else { return };
        let begun = self.begun.filter(|(view, _)| *view == self.view.number);
        let begun = if self.rules.leads_too_early() { Some((0, next)) } else { begun };
        let Some((_, first)) = begun.filter(|_| leading.next.is_none()) else { return };
        if next < first {
            return;
        }
        leading.next = Some(first);
        leading.placed = self.kept.sessions().last().clone();
        let (view, members) = (self.view.clone(), self.view.members.clone());
        for member in members {
            // A member that has asked in vain asks again.
            self.say(member, Message::Decided(Box::new(view.clone())), out);
        }
        self.ask_again(out);
    }

    // The acceptor.

    fn accept(
        &mut self,
        from: Member,
        view: u64,
        place: u64,
        batch: Batch<C>,
        out: &mut impl FnMut(Output<C>),
    ) {
        let Some(accepting) = &mut self.accepting else { return self.send_view(from, out) };
        if view != accepting.view {
            return self.send_view(from, out);
        }
        if place == accepting.next {
            accepting.next = place + batch.len();
            accepting.unread.push_back((place, batch.clone()));
            out(Output::Publish(Publication::Learn(place, batch)));
        }
    }

    fn send_view(&mut self, to: Member, out: &mut impl FnMut(Output<C>)) {
        self.say(to, Message::Decided(Box::new(self.view.clone())), out);
    }

    /// Begins to accept once everything before is known.
    fn begin_to_accept(&mut self, out: &mut impl FnMut(Output<C>)) {
        if self.view.acceptor != self.me || !self.view.has(self.me) {
            self.accepting = None;
            return;
        }
        let number = self.view.number;
        let is_too_early = self.next() < self.view.start && !self.rules.begins_too_early();
        if self.accepting.is_none() && is_too_early {
            return;
        }
        let start = self.view.start;
        let accepting = self.accepting.get_or_insert_with(|| Accepting {
            view: 0,
            next: start,
            unread: VecDeque::new(),
        });
        if accepting.view != number {
            accepting.view = number;
            out(Output::Publish(Publication::Begin(number, accepting.next)));
        }
        // It knows everything before its own entries.
        self.has_all(out);
    }

    // Everybody.

    fn on_publication(&mut self, publication: Publication<C>, out: &mut impl FnMut(Output<C>)) {
        match publication {
            Publication::Begin(view, first) => {
                self.spoken = self.spoken.max(first);
                if self.begun.is_none_or(|(begun, _)| begun < view) {
                    self.begun = Some((view, first));
                    self.relay_again(out);
                }
            }
            Publication::Learn(_, batch) if batch.commands.is_empty() => {}
            Publication::Learn(place, batch) => {
                self.spoken = self.spoken.max(place.saturating_add(batch.len()));
                let before = self.next();
                if place == before {
                    // Nearly always.
                    self.decide(batch);
                } else {
                    let unknown = (place..=u64::MAX)
                        .zip(batch.entries())
                        .filter(|(place, _)| *place >= before);
                    self.ahead.extend(unknown);
                }
                self.decide_ahead(before, out);
            }
        }
        self.begin_to_accept(out);
        self.begin_to_lead(out);
        self.teach(out);
    }

    fn ask_for_entries(&mut self, out: &mut impl FnMut(Output<C>)) {
        self.questions += 1;
        let message = Message::Missing(self.missing());
        self.send_to_all(&message, out);
        self.send_to_former(&message, out);
    }

    /// Says something to those who were members in the view before.
    fn send_to_former(&mut self, message: &Message<C>, out: &mut impl FnMut(Output<C>)) {
        for member in self.before.clone() {
            if !self.view.has(member) {
                self.say(member, message.clone(), out);
            }
        }
    }

    fn missing(&self) -> Missing {
        let is_acceptor = self.view.has(self.me) && self.view.acceptor == self.me;
        let until = is_acceptor.then_some(self.view.start);
        Missing { number: self.questions, first: self.next(), until }
    }

    /// Sends those who miss entries what they miss, as soon as all of it is here.
    fn teach(&mut self, out: &mut impl FnMut(Output<C>)) {
        let next = self.next();
        let has_all = self.accepting.as_ref().is_some_and(|one| one.next == next);
        let can = |missing: &Missing| missing.until.map_or(has_all, |until| next >= until);
        let ready = self.learners.iter().filter(|(_, missing)| can(missing));
        let ready: Vec<_> = ready.map(|(member, missing)| (*member, *missing)).collect();
        for (member, Missing { number, first, .. }) in ready {
            self.learners.remove(&member);
            let mut first = first;
            if let Some(snapshot) = self.kept.snapshot().filter(|one| one.next > first).cloned() {
                first = snapshot.next;
                self.say(member, Message::Snapshot(Box::new(snapshot)), out);
            }
            while first < next {
                let part = self.kept.part(first, ENTRIES_PER_MESSAGE);
                let count = part.len() as u64;
                self.say(member, Message::Entries(first, part), out);
                first += count;
            }
            let view = self.accepting.as_ref().map_or(0, |accepting| accepting.view);
            self.say(member, Message::Complete(number, view, next), out);
        }
    }

    /// Has everything, unless it has missed something again.
    fn complete(&mut self, from: Member, number: u32, view: u64, out: &mut impl FnMut(Output<C>)) {
        // An acceptor of the past does not know what its successor has published.
        let is_acceptor = !self.view.has(self.me) || from == self.view.acceptor;
        let is_asked = view == 0 && self.view.acceptor == self.me;
        if number == self.questions && (is_acceptor || is_asked || self.rules.believes_all()) {
            self.covered_by = Some(from);
            self.has_all(out);
        }
    }

    /// It has read everything that comes before this position.
    pub fn has_read(&mut self, position: u64) {
        self.position = self.position.max(position);
    }

    /// Whether nobody can take the acceptor's part: it has ended, and all others have missed something.
    #[must_use]
    pub fn nobody_knows(&self) -> bool {
        let mut living = self.view.members.iter().filter(|member| !self.gone.contains(member));
        self.gone.contains(&self.view.acceptor)
            && living.all(|member| self.incomplete.contains(member))
    }

    fn has_all(&mut self, out: &mut impl FnMut(Output<C>)) {
        if std::mem::replace(&mut self.is_complete, true) {
            return;
        }
        self.incomplete.remove(&self.me);
        if self.view.has(self.me) {
            self.send_to_all(&Message::HasAll, out);
        } else {
            self.send_to_all(&Message::Join, out);
        }
    }

    fn decide(&mut self, batch: Batch<C>) {
        let (from, last) = (batch.from, batch.last());
        self.kept.push_all(batch);
        if from == self.me {
            self.own_decided = self.own_decided.max(last);
        } else if from.is_client() {
            self.forget_relayed(from);
        }
    }

    /// Decides what was behind a gap, and says what is decided since this place was next.
    fn decide_ahead(&mut self, before: u64, out: &mut impl FnMut(Output<C>)) {
        while let Some((place, entry)) = self.ahead.pop_first() {
            match place.cmp(&self.next()) {
                Ordering::Less => {}
                Ordering::Equal => self.decide(Batch::one(entry)),
                Ordering::Greater => {
                    self.ahead.insert(place, entry);
                    break;
                }
            }
        }
        // A member's commands are decided in their order.
        while self.own.front().is_some_and(|own| own.last() <= self.own_decided) {
            self.own.pop_front();
        }
        let next = self.next();
        if let Some(Accepting { unread, .. }) = &mut self.accepting {
            while unread.front().is_some_and(|(place, batch)| place + batch.len() <= next) {
                unread.pop_front();
            }
        }
        if next > before {
            out(Output::Decided(before..next));
        }
    }

    /// What is decided of a client is not asked for any more; nor is anything once its session has ended.
    fn forget_relayed(&mut self, client: Member) {
        let sessions = self.kept.sessions();
        let (last, has_ended) = (sessions.last_of(client), sessions.has_ended(client));
        if let Some(waiting) = self.relayed.get_mut(&client) {
            waiting.retain(|entry| !has_ended && entry.number > last);
            if waiting.is_empty() {
                self.relayed.remove(&client);
            }
        }
    }

    /// Takes a snapshot for what is missing.
    fn catch_up(&mut self, snapshot: Snapshot<C>, out: &mut impl FnMut(Output<C>)) {
        if snapshot.next <= self.next() {
            return;
        }
        self.ahead = self.ahead.split_off(&snapshot.next);
        self.kept.replace(snapshot.clone());
        self.own_decided = self.own_decided.max(self.kept.sessions().last_of(self.me));
        for client in self.relayed.keys().copied().collect::<Vec<_>>() {
            self.forget_relayed(client);
        }
        self.spoken = self.spoken.max(snapshot.next);
        let before = self.next();
        out(Output::Snapshot(Box::new(snapshot)));
        self.decide_ahead(before, out);
    }

    /// Asks the leader for what is not decided.
    fn ask_again(&mut self, out: &mut impl FnMut(Output<C>)) {
        if !self.view.has(self.me) {
            return;
        }
        for batch in self.own.clone() {
            self.say(self.view.leader, Message::Ask(batch), out);
        }
        self.relay_again(out);
    }

    // The next view.

    fn adopt(&mut self, view: View, out: &mut impl FnMut(Output<C>)) {
        if view.number <= self.view.number {
            return;
        }
        let View { members, acceptor, .. } = std::mem::replace(&mut self.view, view);
        self.before = members;
        // What this acceptor has published before this member heard anything is not covered yet.
        let is_new = self.view.acceptor != acceptor && self.covered_by != Some(self.view.acceptor);
        if is_new && self.hears_from > self.view.since && !self.rules.believes_all() {
            self.is_complete = false;
            if self.view.has(self.me) {
                self.incomplete.insert(self.me);
            }
        }
        self.has_been_member |= self.view.has(self.me);
        (self.vote, self.proposal, self.yields_to) = (Vote::default(), None, None);
        (self.rests, self.begins_again) = (false, false);
        self.joining.retain(|member| !self.view.has(*member));
        self.incomplete.retain(|member| self.view.has(*member));
        // Who has become a member has everything.
        let Self { learners, incomplete, view, .. } = self;
        learners.retain(|member, _| !view.has(*member) || incomplete.contains(member));
        self.leaving.retain(|member| self.view.has(*member));
        self.wants_to_lead &= self.view.leader != self.me;
        self.spoken = self.spoken.max(self.view.start);
        out(Output::View(Box::new(self.view.clone())));
        self.take_roles(out);
        if self.leaving.contains(&self.me) {
            // Those that have come do not know yet.
            self.send_to_all(&Message::Leave, out);
        }
        if !self.is_complete {
            // Another acceptor has to answer, or this one knows where its entries end.
            self.ask_for_entries(out);
        }
        self.ask_again(out);
        for (from, number, word) in std::mem::take(&mut self.early) {
            if number >= self.view.number {
                self.agree(from, number, word, out);
            }
        }
    }

    fn take_roles(&mut self, out: &mut impl FnMut(Output<C>)) {
        let leads = self.view.leader == self.me && self.view.has(self.me);
        self.leading = leads.then(|| Leading { next: None, placed: BTreeMap::new() });
        self.begin_to_accept(out);
        self.begin_to_lead(out);
        self.teach(out);
    }

    /// Proposes another view if one is needed, and if it is for this member to do so.
    fn look_for_change(&mut self, out: &mut impl FnMut(Output<C>)) {
        // Nearly always: nobody has come, gone or wants anything.
        if self.is_calm() || self.proposal.is_some() || !self.may_propose() {
            return;
        }
        // A member that has met a higher ballot leaves it to the other one, unless it is its own task.
        let wants = self.wants_to_lead && self.yields_to.is_none();
        if (self.coordinator() == Some(self.me) || wants) && self.is_due() {
            self.propose(out);
        }
    }

    /// Whether there is no reason for another view.
    fn is_calm(&self) -> bool {
        let View { members, leader, acceptor, .. } = &self.view;
        let is_alone = leader != acceptor
            || !members.iter().any(|member| member != leader && self.is_able(member));
        self.joining.is_empty()
            && self.leaving.is_empty()
            && !self.wants_to_lead
            && !self.begins_again
            && (is_alone || self.rules.unites_roles())
            && !members.iter().any(|member| self.gone.contains(member))
    }

    /// Whether a member can have a role.
    fn is_able(&self, member: &Member) -> bool {
        !self.gone.contains(member) && !self.incomplete.contains(member)
    }

    fn may_propose(&self) -> bool {
        self.view.has(self.me) && (self.is_complete || self.rules.replaces_incomplete())
    }

    /// Whether another view is needed, if all members that live answer.
    fn is_due(&self) -> bool {
        let living = self.view.members.iter().filter(|member| !self.gone.contains(member));
        self.wanted(&living.copied().collect()).is_some()
    }

    fn propose(&mut self, out: &mut impl FnMut(Output<C>)) {
        let round = self.vote.promised.round + 1;
        let ballot = Ballot { round, place: self.me.place };
        self.proposal = Some(Proposal::new(ballot));
        self.send_to_voters(&Word::Prepare(ballot), out);
    }

    /// What this member waits for: as long as one of these is the same, nothing of it has come. If it stays the same for
    /// long, [`Input::Late`] is due.
    ///
    /// The first one is that others answer its proposal, of which a majority has: that is soon, if at all.
    #[must_use]
    pub fn waits(&self) -> [Option<(u64, u64, u32)>; WAITS] {
        let (number, round) = (self.view.number, self.vote.promised.round);
        let is_in = self.view.has(self.me);
        // Who has promised something to another member gives it time.
        let relayed = || Some(self.relayed.values().flatten().next()?.number);
        let own = (!self.own.is_empty()).then_some(self.own_decided + 1).or_else(relayed);
        let own = own.filter(|_| is_in).map(|own| (number, own, round));
        let is_behind = self.begun.is_some_and(|(begun, _)| begun > number);
        let would_be = !self.has_been_member && !self.view.members.is_empty();
        let changes = is_in && (!self.is_calm() || is_behind) || would_be;
        let next = if self.is_complete { 0 } else { self.next() };
        let changes = changes || is_in && !self.is_complete;
        let proposal = self
            .proposal
            .as_ref()
            .filter(|one| one.may_choose(self.quorum()) && one.ballot >= self.vote.promised);
        let chooses = proposal.map(|one| (number, 0, one.ballot.round));
        [chooses, own, changes.then_some((number, next, round))]
    }

    /// What it waits for has not come for a while. Proposes, whose task it may be; if a majority has answered a proposal
    /// already, goes on without the others.
    fn be_late(&mut self, out: &mut impl FnMut(Output<C>)) {
        if self.waits() == [None; WAITS] {
            return;
        }
        // Those that would be members may be, by a view that has not come.
        let known = Message::Known(self.view.number);
        self.send_to_all(&known, out);
        self.send_to_former(&known, out);
        for member in self.joining.clone() {
            self.say(member, known.clone(), out);
        }
        if !self.is_complete {
            // The same question: who has heard it, and did not know yet whose it was, may have forgotten it.
            let missing = Message::Missing(self.missing());
            self.send_to_all(&missing, out);
        }
        if !self.may_propose() || self.rules.never_proposes_late() {
            return;
        }
        self.yields_to = None;
        let is_passed = |proposal: &Proposal| proposal.ballot < self.vote.promised;
        if self.proposal.as_ref().is_some_and(is_passed) {
            self.proposal = None;
        }
        let waits = !self.own.is_empty() || !self.relayed.is_empty();
        let waits_for_leader = waits && self.view.leader != self.me;
        if self.proposal.is_some() {
            self.choose(true, out);
        } else if waits_for_leader || self.is_due() {
            self.propose(out);
        }
    }

    /// Chooses the next view, once a majority has promised; the others are not waited for if `is_late`.
    fn choose(&mut self, is_late: bool, out: &mut impl FnMut(Output<C>)) {
        let quorum = self.quorum();
        let Some(proposal) = self.proposal.as_ref().filter(|one| one.may_choose(quorum)) else {
            return;
        };
        let promised = proposal.promised_by();
        let answers = |member: &Member| promised.contains(member) || self.gone.contains(member);
        let wanted = match proposal.accepted_before(self.rules) {
            Some(view) => Some(view),
            None if !is_late && !answers(&self.view.leader) => return,
            None if !self.may_propose() => None,
            None => match self.wanted(&promised) {
                None if !is_late && !self.view.members.iter().all(answers) => return,
                wanted => wanted,
            },
        };
        match (wanted, &mut self.proposal) {
            (Some(view), Some(proposal)) => {
                let lives = !self.gone.contains(&self.view.acceptor);
                self.rests |= lives && view.acceptor != self.view.acceptor;
                let word = proposal.choose(view);
                self.send_to_voters(&word, out);
            }
            _ => self.proposal = None,
        }
    }

    fn quorum(&self) -> usize {
        self.view.quorum() - usize::from(self.rules.needs_no_majority())
    }

    /// Whose task it is to propose the next view: the leader's, or that of the first one that can.
    fn coordinator(&self) -> Option<Member> {
        let View { members, leader, .. } = &self.view;
        let breaks = self.rules.replaces_incomplete();
        let has_all = |member: &Member| breaks || !self.incomplete.contains(member);
        let can = |member: &&Member| !self.gone.contains(member) && has_all(member);
        Some(leader).filter(can).or_else(|| members.iter().find(can)).copied()
    }

    /// The view that is needed now, if it is not the present one. These members have `promised` to take part in the
    /// choice: they are not stopped, and only they get a role.
    fn wanted(&self, promised: &BTreeSet<Member>) -> Option<View> {
        let View { founder, number, members, leader, acceptor, start, since } = &self.view;
        let rules = &self.rules;
        let lives = |member: &Member| !self.gone.contains(member);
        let stays = |member: &Member| lives(member) && !self.leaving.contains(member);
        let leads = self.leading.as_ref().is_some_and(|leading| leading.next.is_some());
        let has_rested =
            leads && self.leading.as_ref().and_then(|one| one.next) == Some(self.next());
        // An acceptor that lives is replaced by the leader alone, once it has decided everything.
        let keeps_acceptor = match (lives(acceptor), stays(acceptor)) {
            (false, _) => false,
            (true, true) => promised.contains(acceptor) || !rules.replaces_silent_acceptors(),
            (true, false) => !has_rested && !rules.replaces_at_once(),
        };
        // One that stays, and has everything; better another one than this one; else one that would leave.
        let trusts = rules.trusts_silent_acceptors();
        let other = |than: Member| {
            let answers = |one: &&Member| trusts || promised.contains(one);
            let able = || members.iter().filter(|one| self.is_able(one)).filter(answers);
            let fit = || able().filter(|member| stays(member));
            fit().find(|one| **one != than).or_else(|| fit().next()).or_else(|| able().next())
        };
        let answers = promised.contains(leader) || rules.trusts_silent_leaders();
        let shares = keeps_acceptor && leader == acceptor && !rules.unites_roles();
        let next_leader = match stays(leader) && answers && !shares {
            _ if self.wants_to_lead => self.me,
            true => *leader,
            false => *other(*acceptor)?,
        };
        let next_acceptor = if keeps_acceptor { *acceptor } else { *other(next_leader)? };
        let has_role = |member: &Member| [next_leader, next_acceptor].contains(member);
        let keeps = |member: &&Member| stays(member) || has_role(member);
        let joining = self.joining.iter().filter(|member| lives(member));
        let pool: BTreeSet<Member> = members.iter().chain(joining).copied().collect();
        let next: Vec<Member> = pool.iter().filter(keeps).copied().collect();
        let is_other = next != *members || next_leader != *leader || next_acceptor != *acceptor;
        let is_new = is_other || self.begins_again;
        let (start, since) = match next_acceptor == *acceptor {
            true => (*start, *since),
            false => (self.first_of_next_acceptor(), self.position),
        };
        is_new.then_some(View {
            founder: *founder,
            number: number + 1,
            members: next,
            leader: next_leader,
            acceptor: next_acceptor,
            start,
            since,
        })
    }

    /// Everything that the acceptor has decided has come: it has ended, or has rested.
    fn first_of_next_acceptor(&self) -> u64 {
        if self.rules.begins_too_early() {
            return self.spoken.saturating_sub(1);
        }
        self.spoken
    }

    fn send_to_voters(&mut self, word: &Word, out: &mut impl FnMut(Output<C>)) {
        let number = self.view.number;
        for member in self.view.members.clone() {
            // A view may be decided meanwhile.
            if self.view.number == number {
                self.say(member, Message::Next(number, Box::new(word.clone())), out);
            }
        }
    }

    /// A word about the next view.
    fn agree(&mut self, from: Member, number: u64, word: Word, out: &mut impl FnMut(Output<C>)) {
        if number < self.view.number {
            // An answer needs none.
            if matches!(word, Word::Prepare(_) | Word::Accept(..)) {
                self.send_view(from, out);
            }
            return;
        }
        if number > self.view.number {
            // That view comes from another member, which may be stopped.
            self.early.push((from, number, word));
            return self.say(from, Message::Known(self.view.number), out);
        }
        if !self.view.has(self.me) {
            return;
        }
        if let Some(answer) = self.vote.answer(&word) {
            return self.say(from, Message::Next(number, Box::new(answer)), out);
        }
        let quorum = self.quorum();
        let Some(proposal) = &mut self.proposal else { return };
        match proposal.on_message(from, word, quorum) {
            Step::Nothing => {}
            Step::Choose => self.choose(false, out),
            Step::GiveUp(ballot) => {
                self.proposal = None;
                self.yields_to = Some(ballot);
                self.vote.promised = self.vote.promised.max(ballot);
            }
            Step::Decided(view) => {
                let told: BTreeSet<Member> =
                    self.view.members.iter().chain(&view.members).copied().collect();
                for member in told {
                    if member != self.me {
                        self.say(member, Message::Decided(Box::new(view.clone())), out);
                    }
                }
                self.adopt(view, out);
            }
        }
    }
}
