//! Worlds in which messages come, and processes die, in every order that can be: of members of a group, and of
//! [ranks](checkpoints) of a computation.
//!
//! More than 600 lines, because each action is applied, and checked, where the state of the world is.

pub mod checkpoints;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use corewire_group::{Entry, Input, Member, Message, Output, Publication, Replica, Rules, View};
use stateright::{Model, Property};

/// What is decided: a number.
type Command = u8;

/// How often every member looks who else can do what it waits for, before the group must have gone on.
const ROUNDS_MAX: u32 = 3;

/// What a world may do.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Members at the beginning.
    pub members: u8,
    /// Processes that start later, and want to be members.
    pub late: u8,
    /// Commands that programs want decided.
    pub commands: u8,
    /// How many of them a program gives at once: they go together.
    pub at_once: u8,
    /// Processes that die.
    pub deaths: u8,
    /// Members that leave.
    pub leaves: u8,
    /// Times that a member takes the lead from one that lives.
    pub takes: u8,
    /// Times that a process misses what was published.
    pub misses: u8,
    /// Times that a process makes a snapshot of what is decided.
    pub snapshots: u8,
    /// Processes that are stopped, and may continue at any time.
    pub stops: u8,
    /// Times that a member finds that what it waits for is late, at any time. When nothing else happens, members find that
    /// as often as it takes.
    pub lates: u8,
    /// Times that the link between two processes ends, and they link again.
    pub cuts: u8,
    /// Commands of a client.
    pub asks: u8,
    /// Times that the client takes another home, and asks for all of its commands again.
    pub moves: u8,
    /// Whether the client may end.
    pub ends: bool,
    /// The rules.
    pub rules: Rules,
}

/// A state of the world. Successors share what a step does not change: most of the time went into copies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    replicas: BTreeMap<Member, Arc<Replica<Command>>>,
    /// Those that have died are in it, too.
    dead: BTreeSet<Member>,
    queues: Queues,
    /// Pairs whose words are lost: the second has ended the link, and the first does not know yet.
    unheard: BTreeSet<(Member, Member)>,
    /// All publications in their order, each with its publisher; and how many of them each process has read.
    channel: Arc<Vec<(Member, Publication<Command>)>>,
    read: BTreeMap<Member, usize>,
    /// Who is stopped now.
    stopped: BTreeSet<Member>,
    /// What they had not sent yet.
    unsent: Queues,
    /// Who has ever missed something.
    missed: BTreeSet<Member>,
    /// Who knows of whose death.
    noticed: BTreeSet<(Member, Member)>,
    /// What anybody has ever decided, by the group's founder and the place.
    decided: Arc<BTreeMap<(Member, u64), Entry<Command>>>,
    /// What anybody has ever taken for the view of a number.
    views: Arc<BTreeMap<(Member, u64), View>>,
    commands: u8,
    late: u8,
    deaths: u8,
    leaves: u8,
    takes: u8,
    misses: u8,
    snapshots: u8,
    stops: u8,
    lates: u8,
    cuts: u8,
    client: Client,
    is_broken: bool,
}

/// A client, which says at once what it says to a member.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Client {
    asked: u8,
    moves: u8,
    home: Option<Member>,
    /// Members that are linked with it.
    linked: BTreeSet<Member>,
    has_ended: bool,
}

impl Client {
    const ITSELF: Member = Member::client_of_life(0);

    fn command(number: u8) -> Input<Command> {
        let number = u64::from(number);
        Input::Relay(Entry { from: Self::ITSELF, number, command: 100 })
    }
}

/// What each process has said to each other one, and is not heard yet. `None`: the link to it is a new one.
type Queues = BTreeMap<(Member, Member), VecDeque<Option<Message<Command>>>>;

/// What happens next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The next message between two members comes.
    Deliver(Member, Member),
    /// A member reads what was published next.
    Read(Member),
    /// A member learns that another one has died.
    Notice(Member, Member),
    /// A process starts that would be a member, at this place.
    Start(u8),
    /// A program wants a command decided.
    Propose(Member),
    /// A member leaves.
    Leave(Member),
    /// A member takes the lead.
    Lead(Member),
    /// A process was stopped for so long that it misses what it has not read.
    Miss(Member),
    /// A process makes a snapshot of what is decided.
    Truncate(Member),
    /// A process is stopped, and has sent everything before, or nothing of what nobody has received yet.
    Stop(Member, bool),
    /// It continues.
    Continue(Member),
    /// What a member waits for is late.
    Late(Member),
    /// A process ends its link with another one, and links with it again. Of what the other one has not heard it has got so
    /// many messages; so many behind them are lost. The other one knows at once, or all that it says before it hears of
    /// the new link is lost.
    Cut(Member, Member, [usize; 2], bool),
    /// The client asks its home for its next command.
    Ask,
    /// The client takes this home.
    Settle(Member),
    /// The client ends.
    EndClient,
    /// A member learns that the client has ended.
    NoticeClient(Member),
    /// A member that has left ends.
    End(Member),
    /// A process dies.
    Die(Member),
    /// A process dies in the middle of what it does when the next message comes, after so many outputs.
    DieInside(Member, Member, usize),
}

impl Action {
    /// Whether it happens by itself, sooner or later.
    #[must_use]
    pub fn is_by_itself(&self) -> bool {
        matches!(
            self,
            Self::Deliver(..)
                | Self::Read(_)
                | Self::Notice(..)
                | Self::NoticeClient(_)
                | Self::End(_)
        )
    }
}

impl World {
    fn new(limits: &Limits) -> Self {
        let member = |place| Member { place, life: 0 };
        let members: Vec<Member> = (0..limits.members).map(member).collect();
        let acceptor = members[1 % members.len()];
        let view = View {
            leader: members[0],
            acceptor,
            members: members.clone(),
            ..View::first(members[0])
        };
        let mut world = Self {
            replicas: BTreeMap::new(),
            dead: BTreeSet::new(),
            queues: BTreeMap::new(),
            channel: Arc::default(),
            read: BTreeMap::new(),
            missed: BTreeSet::new(),
            noticed: BTreeSet::new(),
            decided: Arc::default(),
            views: Arc::default(),
            commands: limits.commands,
            late: limits.late,
            deaths: limits.deaths,
            leaves: limits.leaves,
            takes: limits.takes,
            misses: limits.misses,
            snapshots: limits.snapshots,
            stops: limits.stops,
            lates: limits.lates,
            cuts: limits.cuts,
            client: Client { moves: limits.moves, ..Client::default() },
            unheard: BTreeSet::new(),
            stopped: BTreeSet::new(),
            unsent: BTreeMap::new(),
            is_broken: false,
        };
        for me in members {
            let mut outputs = Vec::new();
            let out = &mut |output| outputs.push(output);
            let replica = Replica::of_view(me, view.clone(), limits.rules, out);
            world.replicas.insert(me, Arc::new(replica));
            world.apply(me, outputs);
        }
        world
    }

    /// A process starts that would be a member. It reads what is published from now on.
    fn start(&mut self, place: u8, rules: Rules) {
        let me = Member { place, life: 0 };
        self.read.insert(me, self.channel.len());
        // Of those that would be members only one at a time does this: all others are members.
        let members: Vec<Member> = self.replicas.keys().copied().collect();
        let mut outputs = Vec::new();
        let replica = match members.is_empty() {
            true => Replica::found_empty(me, rules, &mut |output| outputs.push(output)),
            false => Replica::join(me, self.channel.len() as u64, rules),
        };
        self.replicas.insert(me, Arc::new(replica));
        self.apply(me, outputs);
        for member in members {
            self.step(me, Input::Met(member));
        }
    }

    /// Whether everybody who lives is a member, as far as it knows.
    fn all_are_members(&self) -> bool {
        self.replicas.iter().all(|(me, replica)| replica.view().has(*me))
    }

    fn has_left(&self, member: Member) -> bool {
        self.replicas.get(&member).is_some_and(|replica| replica.has_left())
    }

    fn lives(&self, member: Member) -> bool {
        !self.dead.contains(&member)
    }

    fn runs(&self, member: Member) -> bool {
        self.lives(member) && !self.stopped.contains(&member)
    }

    fn stop(&mut self, member: Member, has_sent: bool) {
        self.stopped.insert(member);
        if !has_sent {
            let queues = std::mem::take(&mut self.queues).into_iter();
            let (unsent, sent): (BTreeMap<_, _>, _) =
                queues.partition(|(pair, _)| pair.0 == member);
            self.queues = sent;
            self.unsent.extend(unsent);
        }
    }

    fn go_on(&mut self, member: Member) {
        self.stopped.remove(&member);
        let unsent = std::mem::take(&mut self.unsent).into_iter();
        let (its, others): (BTreeMap<_, _>, _) = unsent.partition(|(pair, _)| pair.0 == member);
        self.unsent = others;
        self.queues.extend(its);
    }

    fn apply(&mut self, me: Member, outputs: Vec<Output<Command>>) {
        let view = self.replicas.get(&me).map(|replica| replica.view());
        let group = view.map_or(me, |view| view.founder);
        // What one learns that is no member yet is its own business.
        let is_member = view.is_none_or(|view| view.number > 0);
        for output in outputs {
            match output {
                Output::Send(to, message) => {
                    if self.lives(to) && !self.unheard.contains(&(me, to)) {
                        self.queues.entry((me, to)).or_default().push_back(Some(message));
                    }
                }
                Output::Publish(publication) => {
                    Arc::make_mut(&mut self.channel).push((me, publication));
                }
                Output::Decided(_) if !is_member => {}
                Output::Snapshot(_) => {}
                Output::Decided(places) => {
                    let replica = self.replicas.get(&me).map(Arc::clone);
                    let entries = places.map(|place| {
                        let entry = replica.as_ref().and_then(|replica| replica.entry(place));
                        (place, entry.cloned())
                    });
                    for (place, entry) in entries {
                        match entry {
                            Some(entry) => self.check_decided(group, place, &entry),
                            // It says that it is decided, and does not have it.
                            None => self.is_broken = true,
                        }
                    }
                }
                Output::View(view) => match self.views.get(&(view.founder, view.number)) {
                    Some(found) => self.is_broken |= *found != *view,
                    None => {
                        let views = Arc::make_mut(&mut self.views);
                        views.insert((view.founder, view.number), *view);
                    }
                },
            }
        }
    }

    fn check_decided(&mut self, group: Member, place: u64, entry: &Entry<Command>) {
        // Agreement: nobody has decided anything else there. Once: nothing is decided at two places.
        match self.decided.get(&(group, place)) {
            Some(found) => self.is_broken |= found != entry,
            None => {
                let decided = Arc::make_mut(&mut self.decided);
                decided.insert((group, place), entry.clone());
            }
        }
        let same = |((of, _), one): &(&(Member, u64), &Entry<_>)| *of == group && *one == entry;
        self.is_broken |= self.decided.iter().filter(same).count() != 1;
    }

    /// What a member does, with its outputs.
    fn outputs(&mut self, me: Member, input: Input<Command>) -> Vec<Output<Command>> {
        let mut outputs = Vec::new();
        if let Some(replica) = self.replicas.get_mut(&me) {
            Arc::make_mut(replica).handle(input, &mut |output| outputs.push(output));
        }
        outputs
    }

    fn step(&mut self, me: Member, input: Input<Command>) {
        let outputs = self.outputs(me, input);
        self.apply(me, outputs);
    }

    /// What somebody reads next, and where it is.
    fn unread(&self, reader: Member) -> Option<(usize, &Publication<Command>)> {
        let at = self.read.get(&reader).copied().unwrap_or(0);
        self.channel.get(at).map(|(_, publication)| (at, publication))
    }

    /// Whether somebody has read all that another one has published.
    fn has_read_all(&self, reader: Member, publisher: Member) -> bool {
        let at = self.read.get(&reader).copied().unwrap_or(0);
        self.channel.iter().skip(at).all(|(by, _)| *by != publisher)
    }

    /// The next message between two members.
    #[must_use]
    pub fn front(&self, from: Member, to: Member) -> Option<&Message<Command>> {
        self.queues.get(&(from, to))?.front()?.as_ref()
    }

    fn take_message(&mut self, from: Member, to: Member) -> Option<Option<Message<Command>>> {
        let queue = self.queues.get_mut(&(from, to))?;
        let message = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&(from, to));
        }
        message
    }

    /// Ends a link, and makes a new one, of which the other process hears behind what it has got.
    fn cut(&mut self, by: Member, of: Member, [got, lost]: [usize; 2], knows: bool) {
        let queue = self.queues.entry((by, of)).or_default();
        queue.drain(got..got + lost);
        queue.insert(got, None);
        self.queues.remove(&(of, by));
        // What a stopped process had not sent ends with the link, too.
        self.unsent.remove(&(of, by));
        match knows {
            true => _ = self.queues.insert((of, by), VecDeque::from([None])),
            false => _ = self.unheard.insert((of, by)),
        }
    }

    /// What a process hears next from another one.
    fn hear(
        &mut self,
        to: Member,
        from: Member,
        message: Option<Message<Command>>,
    ) -> Input<Command> {
        match message {
            Some(message) => Input::Message(from, message),
            None => {
                // The other one hears of the new link, too, before anything that is said now.
                if self.unheard.remove(&(to, from)) {
                    self.queues.entry((to, from)).or_default().push_back(None);
                }
                Input::Relinked(from)
            }
        }
    }

    fn die(&mut self, member: Member) {
        self.dead.insert(member);
        self.replicas.remove(&member);
        self.queues.retain(|(_, to), _| *to != member);
        // What it had not sent is lost.
        self.unsent.retain(|(from, to), _| *to != member && *from != member);
        self.stopped.remove(&member);
        self.read.remove(&member);
        self.noticed.retain(|(reader, _)| *reader != member);
        self.client.linked.remove(&member);
    }

    /// Whether this member learns of the client's end: it was linked with it, or leads and finds its session.
    fn will_notice_client(&self, member: Member) -> bool {
        let finds =
            |replica: &Arc<Replica<_>>| replica.leads() && replica.sessions().next().is_some();
        self.client.has_ended
            && self.runs(member)
            && (self.client.linked.contains(&member)
                || self.replicas.get(&member).is_some_and(finds))
    }

    /// Whether nothing more can happen by itself, as long as those that are stopped stay so.
    fn is_settled(&self) -> bool {
        let readers = || self.replicas.keys().filter(|reader| self.runs(**reader));
        !self.queues.keys().any(|(_, to)| self.runs(*to))
            && !readers().any(|reader| self.has_left(*reader))
            && readers().all(|reader| {
                self.unread(*reader).is_none()
                    && !self.will_notice_client(*reader)
                    && self.dead.iter().all(|dead| self.noticed.contains(&(*reader, *dead)))
            })
    }

    /// Lets happen what may happen by itself, and then finds every member that waits late, again and again: as time passes.
    fn after_a_while(&self, limits: &Limits) -> Self {
        let mut world = self.clone();
        let go_on = |world: &mut Self| {
            while !world.is_settled() {
                let mut actions = Vec::new();
                limits.actions(world, &mut actions);
                let happens = actions.into_iter().find(Action::is_by_itself);
                match happens.and_then(|action| limits.next_state(world, action)) {
                    Some(next) => *world = next,
                    None => break,
                }
            }
        };
        go_on(&mut world);
        for _ in 0..ROUNDS_MAX {
            let waiting: Vec<Member> = world.replicas.keys().copied().collect();
            for member in waiting {
                // Who waits for the last answers to a proposal waits for less long than all others.
                let chooses = |world: &Self| {
                    let replicas = world.replicas.iter().filter(|(one, _)| world.runs(**one));
                    let mut proposers = replicas.filter(|(_, one)| one.waits()[0].is_some());
                    proposers.next().map(|(one, _)| *one)
                };
                for late in [chooses(&world), Some(member)].into_iter().flatten() {
                    if world.runs(late) {
                        world.step(late, Input::Late);
                        go_on(&mut world);
                    }
                }
            }
        }
        world
    }

    /// Whether enough run for the group to go on, and everything is decided that a running member wants.
    fn has_gone_on(&self) -> bool {
        // A group of which too many have died, or have missed something that those who have died knew, is over, and a later one may be founded.
        let lasts = |view: &&View| {
            let whole = |member: &&Member| {
                let replica = self.replicas.get(member).filter(|_| self.runs(**member));
                replica.is_some_and(|one| one.is_complete() || !self.missed.contains(member))
            };
            view.number > 0 && view.members.iter().filter(whole).count() >= view.quorum()
        };
        // A later view that only those know who are stopped is none for the others, unless they want something.
        let running = self.replicas.iter().filter(|(member, _)| self.runs(**member));
        let views = running.map(|(_, replica)| replica.view());
        let latest = views.max_by_key(|view| view.number);
        let Some(view) = latest.filter(lasts) else { return true };
        // What an acceptor has published is decided: one that is stopped holds the log up.
        if self.stopped.contains(&view.acceptor) {
            return true;
        }
        let running = view.members.iter().filter(|member| self.runs(**member));
        let members = running.clone().filter_map(|member| self.replicas.get(member));
        let count = self.decided.keys().filter(|(of, _)| *of == view.founder).count() as u64;
        let members_have_all = members.clone().all(|replica| {
            replica.undecided_count() == 0
                && replica.relayed_count() == 0
                && (!self.client.has_ended
                    || !self.stopped.is_empty()
                    || replica.sessions().next().is_none())
                && (replica.view() == view || !self.stopped.is_empty())
                && replica.decided_count() == count
        });
        // A process that joins is a member, unless all that it has asked have died.
        // A member knows that it is one.
        let is_in = |one: &Member, replica: &Replica<Command>| match view.has(*one) {
            true => replica.view().has(*one),
            false => replica.view().number > 0,
        };
        let mut running_ones = self.replicas.iter().filter(|(one, _)| self.runs(**one));
        let all_are_in = running_ones.all(|(one, replica)| is_in(one, replica));
        let can_lead = |member: &Member| {
            self.replicas.get(member).is_some_and(|one| one.is_complete() && one.view() == view)
        };
        let are_apart =
            view.leader != view.acceptor || running.clone().filter(|one| can_lead(one)).count() < 2;
        members_have_all
            && all_are_in
            && are_apart
            && self.lives(view.leader)
            && self.lives(view.acceptor)
    }
}

impl Limits {
    /// The links that a process can end: if something is on its way, and the other one knows of the last end.
    fn cuts(&self, world: &World, by: Member, actions: &mut Vec<Action>) {
        for &of in world.replicas.keys().filter(|of| **of != by) {
            let is_new = |pair| {
                world.unheard.contains(&pair)
                    || world.queues.get(&pair).is_some_and(|queue| queue.contains(&None))
            };
            let on_its_way = |pair| world.queues.get(&pair).map_or(0, VecDeque::len);
            let (there, back) = (on_its_way((by, of)), on_its_way((of, by)));
            if is_new((by, of)) || is_new((of, by)) || there + back == 0 {
                continue;
            }
            for got in 0..=there {
                for lost in 0..=there - got {
                    actions
                        .extend([true, false].map(|knows| Action::Cut(by, of, [got, lost], knows)));
                }
            }
        }
    }
}

impl Model for Limits {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.late > 0 && world.all_are_members() {
            actions.push(Action::Start(self.members + world.late - 1));
        }
        if self.ends && !world.client.has_ended && world.client.home.is_some() {
            actions.push(Action::EndClient);
        }
        let may_die = |member: &Member| world.deaths > 0 && world.lives(*member);
        for (&(from, to), queue) in &world.queues {
            let Some(message) = queue.front().filter(|_| world.runs(to)) else { continue };
            actions.push(Action::Deliver(from, to));
            if may_die(&to) {
                let count = {
                    let mut outputs = 0;
                    if let Some(mut replica) = world.replicas.get(&to).map(|it| Replica::clone(it))
                    {
                        let input = match message {
                            Some(message) => Input::Message(from, message.clone()),
                            None => Input::Relinked(from),
                        };
                        replica.handle(input, &mut |_| outputs += 1);
                    }
                    outputs
                };
                // Before and behind everything it does is `Die`.
                actions.extend((1..count).map(|kept| Action::DieInside(from, to, kept)));
            }
        }
        for &reader in world.replicas.keys() {
            if !world.runs(reader) {
                actions.push(Action::Continue(reader));
                if may_die(&reader) {
                    actions.push(Action::Die(reader));
                }
                continue;
            }
            if world.stops > 0 {
                actions.push(Action::Stop(reader, true));
                if world.queues.keys().any(|(from, _)| *from == reader) {
                    actions.push(Action::Stop(reader, false));
                }
            }
            if world.lates > 0
                && world
                    .replicas
                    .get(&reader)
                    .is_some_and(|one| one.waits().iter().any(Option::is_some))
            {
                actions.push(Action::Late(reader));
            }
            if world.cuts > 0 {
                self.cuts(world, reader, actions);
            }
            if world.unread(reader).is_some() {
                actions.push(Action::Read(reader));
            }
            for &dead in &world.dead {
                let has_all =
                    !world.queues.contains_key(&(dead, reader)) && world.has_read_all(reader, dead);
                if has_all && !world.noticed.contains(&(reader, dead)) {
                    actions.push(Action::Notice(reader, dead));
                }
            }
            let is_member = world.replicas.get(&reader).is_some_and(|one| one.view().has(reader));
            if world.commands > 0 && is_member {
                actions.push(Action::Propose(reader));
            }
            if world.client.home != Some(reader) && world.client.moves > 0 && is_member {
                actions.push(Action::Settle(reader));
            }
            if world.client.home == Some(reader) && world.client.asked < self.asks && is_member {
                actions.push(Action::Ask);
            }
            if world.will_notice_client(reader) {
                actions.push(Action::NoticeClient(reader));
            }
            if world.leaves > 0 && is_member {
                actions.push(Action::Leave(reader));
            }
            if world.takes > 0 && is_member {
                actions.push(Action::Lead(reader));
            }
            if world.misses > 0 && world.unread(reader).is_some() {
                actions.push(Action::Miss(reader));
            }
            let decided = world.replicas.get(&reader).map_or(0, |replica| replica.decided_count());
            if world.snapshots > 0 && decided > 0 {
                actions.push(Action::Truncate(reader));
            }
            if world.has_left(reader) {
                actions.push(Action::End(reader));
            }
            if may_die(&reader) {
                actions.push(Action::Die(reader));
            }
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        match action {
            Action::Deliver(from, to) => {
                let message = world.take_message(from, to)?;
                let input = world.hear(to, from, message);
                world.step(to, input);
            }
            Action::Read(reader) => {
                let (at, publication) = world.unread(reader)?;
                let publication = publication.clone();
                world.read.insert(reader, at + 1);
                world.step(reader, Input::Publication(at as u64, publication));
            }
            Action::Notice(reader, dead) => {
                world.noticed.insert((reader, dead));
                world.step(reader, Input::Gone(dead));
                if world.replicas.get(&reader).is_some_and(|replica| replica.is_orphaned()) {
                    let mut outputs = Vec::new();
                    let replica = Replica::found_empty(reader, self.rules, &mut |output| {
                        outputs.push(output)
                    });
                    world.replicas.insert(reader, Arc::new(replica));
                    world.apply(reader, outputs);
                }
            }
            Action::Start(place) => {
                world.late -= 1;
                world.start(place, self.rules);
            }
            Action::Propose(member) => {
                let count = world.commands.min(self.at_once);
                let commands = (world.commands - count..world.commands).rev().collect();
                world.commands -= count;
                world.step(member, Input::Propose(commands));
            }
            Action::Ask => {
                world.client.asked += 1;
                let home = world.client.home?;
                world.step(home, Client::command(world.client.asked));
            }
            Action::Settle(member) => {
                world.client.moves -= 1;
                world.client.home = Some(member);
                world.client.linked.insert(member);
                for number in 1..=world.client.asked {
                    world.step(member, Client::command(number));
                }
            }
            Action::EndClient => {
                world.client = Client {
                    has_ended: true,
                    linked: std::mem::take(&mut world.client.linked),
                    asked: self.asks,
                    ..Client::default()
                };
            }
            Action::NoticeClient(member) => {
                world.client.linked.remove(&member);
                world.step(member, Input::ClientGone(Client::ITSELF, 0));
            }
            Action::Leave(member) => {
                world.leaves -= 1;
                world.step(member, Input::Leave);
            }
            Action::Lead(member) => {
                world.takes -= 1;
                world.step(member, Input::Lead);
            }
            Action::Miss(member) => {
                world.misses -= 1;
                world.missed.insert(member);
                let at = world.channel.len();
                world.read.insert(member, at);
                world.step(member, Input::Missed(at as u64));
            }
            Action::Truncate(member) => {
                world.snapshots -= 1;
                let next = world.replicas.get(&member).map_or(0, |replica| replica.decided_count());
                world.step(member, Input::Truncate(next, 0));
            }
            Action::Stop(member, has_sent) => {
                world.stops -= 1;
                world.stop(member, has_sent);
            }
            Action::Continue(member) => world.go_on(member),
            Action::Late(member) => {
                world.lates -= 1;
                world.step(member, Input::Late);
            }
            Action::Cut(by, of, counts, knows) => {
                world.cuts -= 1;
                world.cut(by, of, counts, knows);
            }
            Action::End(member) => world.die(member),
            Action::Die(member) => {
                world.deaths -= 1;
                world.die(member);
            }
            Action::DieInside(from, to, kept) => {
                let message = world.take_message(from, to)?;
                let input = world.hear(to, from, message);
                let mut outputs = world.outputs(to, input);
                outputs.truncate(kept);
                world.deaths -= 1;
                world.apply(to, outputs);
                world.die(to);
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "one view of each number, one entry at each place",
                |_, world: &World| !world.is_broken,
            ),
            Property::always("there is one group", |_, world: &World| {
                let members = world.replicas.iter().filter(|(me, one)| one.view().has(**me));
                let founders: BTreeSet<_> = members.map(|(_, one)| one.view().founder).collect();
                founders.len() < 2
            }),
            Property::always("what is settled has gone on", |limits: &Self, world: &World| {
                let is_over = || world.after_a_while(limits).has_gone_on();
                !world.is_settled() || world.stopped.is_empty() && world.has_gone_on() || is_over()
            }),
        ]
    }
}
