//! How members find each other, and link.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire::{ConnectError, Domain, Endpoint, EndpointError, Peer, Wait};
use corewire_os::processor;
use serde::{Deserialize, Serialize};

use super::{CollectiveError, Communicator, CommunicatorBuilder, Tiers, Whose};
use crate::engine::name_of;
use crate::frame::{decode, encode};
use crate::group::Group;
use crate::member::{Member, View};

/// Members of a communicator over an endpoint at most.
const NAMES_MAX: usize = 255;
/// The tag of a member's first message: where it runs.
const HELLO: u64 = u64::MAX - 1;
/// Its maximum length: for every processor that Linux can have.
const HELLO_BYTES: usize = 32 << 10;

impl Communicator {
    /// Begins to make a communicator for the members of this view. Each of them makes one, for this view or for another
    /// one with the same members: views differ also in who leads.
    pub fn builder<'a>(
        domain: &'a Domain,
        group: &'a Group,
        view: &'a View,
    ) -> CommunicatorBuilder<'a> {
        CommunicatorBuilder::new(domain, Whose::View { group, view })
    }

    /// Begins to make a communicator over an endpoint, which it takes, with the endpoints of these names: by rank, the own
    /// one's among them, and the same in all. Without a group, and also of several hosts (feature `net` of `corewire`): then
    /// each name says of which host it is, `sum.2@b`, and `docs/hosts.md` says how hosts know each other. [`split`](Self::split) makes endpoints of this domain,
    /// whose names begin with the member's and `.with.`; other hosts reach them through `corewire monitor --listen`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-over-{}", std::process::id()));
    /// use corewire::Domain;
    /// use corewire_group::Communicator;
    ///
    /// let domain = Domain::open_at(&dir)?;
    /// let names = ["sum.0", "sum.1"]; // or "sum.0@a", "sum.1@b"
    /// # let other = { let domain = domain.clone(); std::thread::spawn(move || {
    /// #     let endpoint = domain.endpoint("sum.1").create().unwrap();
    /// #     let mut all = Communicator::over(&domain, endpoint, &names).connect().unwrap();
    /// #     all.allreduce(&mut [2u64], |one, other| one + other).unwrap();
    /// # }) };
    /// // Each of two processes does this, with its own name:
    /// let endpoint = domain.endpoint("sum.0").create()?;
    /// let mut all = Communicator::over(&domain, endpoint, &names).connect()?;
    /// let mut values = [all.rank() as u64 + 1];
    /// all.allreduce(&mut values, |one, other| one + other)?;
    /// assert_eq!(values, [3]);
    /// # other.join().unwrap();
    /// # drop((all, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn over<'a>(
        domain: &'a Domain,
        endpoint: Endpoint,
        names: &[impl AsRef<str>],
    ) -> CommunicatorBuilder<'a> {
        let names = names.iter().map(|name| name.as_ref().to_owned()).collect();
        CommunicatorBuilder::new(domain, Whose::Names { endpoint: Box::new(endpoint), names })
    }
}

/// The endpoint of a member's communicator with these members, which `key` tells.
pub(crate) fn name_with(group: &str, place: u8, key: u64) -> String {
    format!("{}.with.{key}", name_of(group, place))
}

/// Tells members in their order from others: their lives are random numbers. A view's number would not do: while the
/// members stay the same, their roles may change, which makes another view, and some members hear of that later.
fn key_of(members: &[Member]) -> u64 {
    members.iter().fold(0, |key, Member { life, .. }| key.rotate_left(1) ^ life)
}

impl<'a> CommunicatorBuilder<'a> {
    fn new(domain: &'a Domain, whose: Whose<'a>) -> Self {
        let timeout = Duration::from_secs(60);
        Self { domain, whose, tiers: Tiers::Auto, wait: Wait::default(), timeout }
    }

    /// Whether members of the same host, or of one host at the same last-level cache, first do a call among themselves. Default:
    /// [`Tiers::Auto`]. All members must say the same.
    pub fn tiers(mut self, tiers: Tiers) -> Self {
        self.tiers = tiers;
        self
    }

    /// How calls wait. Default: [`Wait::Adaptive`]. Those of a communicator [over](Communicator::over) an endpoint wait as that
    /// does.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// How long the others may take to create their endpoints. Default: 60 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Makes the communicator. Waits until all members have made theirs. A member of a group has one with the same members at a
    /// time: while they stay the same, also in a later view, the one that it has goes on working, and
    /// [`duplicate`](Communicator::duplicate) makes more. To make another one in this way, all drop theirs first.
    ///
    /// # Errors
    /// [`CollectiveError`]: among others, [`CollectiveError::Ended`] if a member of the group ends before, and
    /// [`CollectiveError::Names`] if the names are none of members.
    pub fn connect(self) -> Result<Communicator, CollectiveError> {
        let Self { domain, whose, tiers, wait, timeout } = self;
        let domain = domain.clone();
        let mut origin =
            Origin { domain, of: Of::Names(Arc::default()), key: None, tiers, wait, timeout };
        match whose {
            Whose::View { group, view } => {
                let members = view.members.clone();
                let rank = members.iter().position(|member| *member == group.member());
                let rank = rank.ok_or(CollectiveError::NoMember(view.number))?;
                origin.of = Of::Group { name: group.name().to_owned(), view: view.number };
                origin.key = Some(key_of(&members));
                origin.connect(members, rank, &mut |member| {
                    let name = group.name().to_owned();
                    match group.lives(member).unwrap_or(false) {
                        true => Ok(()),
                        false => Err(CollectiveError::Ended { name, member }),
                    }
                })
            }
            Whose::Names { endpoint, names } => {
                let (names, rank) = names_of(&endpoint, &names)?;
                let place = |rank| u8::try_from(rank).unwrap_or(u8::MAX);
                let members = (0..names.len()).map(|rank| Member { place: place(rank), life: 0 });
                let members = members.collect();
                origin.of = Of::Names(names);
                origin.link_all(*endpoint, members, rank, &mut |_| Ok(()))
            }
        }
    }
}

/// A member of a communicator over an endpoint: the name of its own, and its host's if that is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    name: String,
    host: Option<String>,
}

impl Named {
    /// The name of its endpoint in a communicator that was made of the first one, if `key` tells which.
    fn endpoint(&self, key: Option<u64>) -> String {
        let with = key.map_or_else(String::new, |key| format!(".with.{key}"));
        format!("{}{with}", self.name)
    }

    /// What others call that.
    fn address(&self, key: Option<u64>) -> String {
        let host = self.host.as_ref().map_or_else(String::new, |host| format!("@{host}"));
        self.endpoint(key) + &host
    }
}

/// The members of these names, and the rank of the own one.
fn names_of(
    endpoint: &Endpoint,
    names: &[String],
) -> Result<(Arc<[Named]>, usize), CollectiveError> {
    let wrong = |why: String| Err(CollectiveError::Names(why));
    if names.len() > NAMES_MAX {
        return wrong(format!("{} are given: at most {NAMES_MAX} are possible", names.len()));
    }
    let mut all: Vec<Named> = Vec::new();
    let mut own = None;
    for (rank, text) in names.iter().enumerate() {
        if text.contains("://") {
            return wrong(format!("{text} is an address: a name is needed"));
        }
        let (name, host) = match text.split_once('@') {
            Some((name, host)) => (name, Some(host.to_owned())),
            None => (text.as_str(), None),
        };
        let named = Named { name: name.to_owned(), host };
        if all.contains(&named) {
            return wrong(format!("{text} is given twice"));
        }
        if all.first().is_some_and(|first| first.host.is_some() != named.host.is_some()) {
            return wrong(format!(
                "{text}, beside {}: either all say their host, or none",
                names[0]
            ));
        }
        if endpoint.is_named(text)? {
            own = Some(rank);
        }
        all.push(named);
    }
    match own {
        Some(own) => Ok((all.into(), own)),
        None => wrong(format!("none of them is that of the endpoint, {}", endpoint.name())),
    }
}

/// Who the members are.
#[derive(Debug, Clone)]
pub(super) enum Of {
    /// Those of a view of the group of this name.
    Group {
        /// The group's name.
        name: String,
        view: u64,
    },
    /// Those of these names, by place.
    Names(Arc<[Named]>),
}

/// What a communicator was made with.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) domain: Domain,
    pub(super) of: Of,
    /// Tells the endpoints of its members from those of other communicators; `None` if they were given.
    pub(super) key: Option<u64>,
    pub(super) tiers: Tiers,
    pub(super) wait: Wait,
    pub(super) timeout: Duration,
}

impl Origin {
    /// Creates this member's endpoint, and links it with the others'. `lives` fails if a member has ended.
    pub(super) fn connect(
        self,
        members: Vec<Member>,
        rank: usize,
        lives: &mut dyn FnMut(Member) -> Result<(), CollectiveError>,
    ) -> Result<Communicator, CollectiveError> {
        let name = match &self.of {
            Of::Group { .. } => self.address(members[rank]),
            Of::Names(names) => names[usize::from(members[rank].place)].endpoint(self.key),
        };
        let endpoint = self.domain.endpoint(&name).wait(self.wait);
        let endpoint = endpoint.peers(members.len().saturating_sub(1).max(1)).create();
        let endpoint = endpoint.map_err(|error| match (error, &self.of) {
            (EndpointError::AlreadyExists(_), Of::Group { name, .. }) => {
                CollectiveError::Exists(name.clone())
            }
            (error, _) => error.into(),
        })?;
        self.link_all(endpoint, members, rank, lives)
    }

    /// Links this member's endpoint with the others'.
    fn link_all(
        mut self,
        mut endpoint: Endpoint,
        mut members: Vec<Member>,
        rank: usize,
        lives: &mut dyn FnMut(Member) -> Result<(), CollectiveError>,
    ) -> Result<Communicator, CollectiveError> {
        let deadline = Instant::now().checked_add(self.timeout);
        let mut peers = vec![None; members.len()];
        for other in (0..members.len()).filter(|other| *other != rank) {
            peers[other] = Some(self.link(&mut endpoint, members[other], lives, deadline)?);
        }
        if self.key.is_none() {
            for (member, peer) in members.iter_mut().zip(&peers) {
                let of_peer = |peer: &Peer| endpoint.incarnation_of(*peer).unwrap_or_default();
                let incarnation = peer.as_ref().map_or_else(|| endpoint.incarnation(), of_peer);
                *member = Member::at(member.place, incarnation);
            }
            self.key = Some(key_of(&members));
        }
        let hosts: Vec<_> = members.iter().map(|member| self.host(*member)).collect();
        let tiers = self.tiers;
        let mut all = Communicator {
            origin: self,
            endpoint: Some(endpoint),
            peers,
            sets: vec![(0..members.len()).collect()],
            members,
            rank,
            calls: 0,
            is_crowded: false,
            ended: None,
            buffer: Vec::new(),
            under_way: Vec::new(),
        };
        let seats = all.exchange_seats()?;
        all.sets = sets_of(&seats, &hosts, tiers);
        let cpus: BTreeSet<_> = (seats.iter().zip(&hosts))
            .flat_map(|(seat, host)| seat.cpus.iter().map(move |cpu| (host, *cpu)))
            .collect();
        all.is_crowded = all.size() > cpus.len();
        Ok(all)
    }

    /// What others call a member's endpoint.
    fn address(&self, member: Member) -> String {
        match &self.of {
            Of::Group { name, .. } => name_with(name, member.place, self.key.unwrap_or_default()),
            Of::Names(names) => names[usize::from(member.place)].address(self.key),
        }
    }

    /// A member's host, if there may be several.
    fn host(&self, member: Member) -> Option<String> {
        match &self.of {
            Of::Group { .. } => None,
            Of::Names(names) => names[usize::from(member.place)].host.clone(),
        }
    }

    /// Links with one other member as soon as it has its endpoint.
    fn link(
        &self,
        endpoint: &mut Endpoint,
        member: Member,
        lives: &mut dyn FnMut(Member) -> Result<(), CollectiveError>,
        deadline: Option<Instant>,
    ) -> Result<Peer, CollectiveError> {
        // Long enough to be woken by the name, short enough to hear of the member's end.
        let pause = match self.host(member) {
            None => Duration::from_millis(5),
            // Another host may be far away.
            Some(_) => Duration::from_secs(2),
        };
        let name = self.address(member);
        loop {
            let why = match endpoint.peer_when_created(&name, Some(pause)) {
                Err(why @ ConnectError::NotCreated { .. }) => why,
                Err(why) if why.may_come() => why,
                other => return Ok(other?),
            };
            lives(member)?;
            if deadline.is_none_or(|deadline| Instant::now() < deadline) {
                continue;
            }
            let after = self.timeout;
            return Err(match (&self.of, why) {
                (Of::Group { view, .. }, _) => {
                    CollectiveError::Timeout { member, view: *view, after }
                }
                (_, ConnectError::NotCreated { name, .. }) => {
                    ConnectError::NotCreated { name, after }.into()
                }
                (_, why) => why.into(),
            });
        }
    }
}

/// Where a member runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Seat {
    /// The last-level cache of its processor, in the kernel's notation.
    cache: String,
    /// The processors that it may use.
    cpus: Vec<usize>,
}

/// The ranks of each host, or of each cache if there is one host, in the order of their first ones.
fn sets_of(seats: &[Seat], hosts: &[Option<String>], tiers: Tiers) -> Vec<Vec<usize>> {
    let has_hosts = hosts.iter().any(|host| *host != hosts[0]);
    let mut sets: Vec<(&str, Vec<usize>)> = Vec::new();
    for (rank, (Seat { cache, .. }, host)) in seats.iter().zip(hosts).enumerate() {
        let place = if has_hosts { host.as_deref().unwrap_or_default() } else { cache };
        match sets.iter_mut().find(|(of, _)| *of == place) {
            Some((_, set)) => set.push(rank),
            None => sets.push((place, vec![rank])),
        }
    }
    let large = sets.iter().filter(|(_, set)| set.len() > 1).count();
    // What crosses to another host costs far more than what does not.
    let worth = if has_hosts { 1 } else { 2 };
    match tiers {
        Tiers::One => vec![(0..seats.len()).collect()],
        Tiers::Auto if large < worth => vec![(0..seats.len()).collect()],
        _ => sets.into_iter().map(|(_, set)| set).collect(),
    }
}

impl Communicator {
    /// Where each member runs now.
    fn exchange_seats(&mut self) -> Result<Vec<Seat>, CollectiveError> {
        let cache = processor::last_level(rustix::thread::sched_getcpu()).unwrap_or_default();
        let own = Seat { cache, cpus: processor::allowed()? };
        let frame = encode(&own);
        let mut all = vec![Seat::default(); self.size()];
        for other in self.others() {
            self.send(other, HELLO, &frame)?;
        }
        for other in self.others() {
            let mut frame = vec![0; HELLO_BYTES];
            let bytes = self.receive_some(other, HELLO, &mut frame)?;
            all[other] = frame.get(..bytes).and_then(decode).unwrap_or_default();
        }
        all[self.rank] = own;
        Ok(all)
    }
}
