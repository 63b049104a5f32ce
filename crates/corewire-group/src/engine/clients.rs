//! Clients of a group, as a member sees them: it relays their commands, tells them what was decided, and sends entries to those
//! that follow the log.
//!
//! A client is linked with several members and speaks to one of them. What it has not heard the end of it says again, to another
//! one if that one has died or is silent: a command that is decided already counts once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use corewire::{Endpoint, MessageError, Peer};

use crate::buffers::Buffers;
use crate::frame::{Command, FRAME_TAG, ForClient, Frame, OfClient, UNANSWERED_MAX, Unsent};
use crate::kept::Entry;
use crate::member::Member;
use crate::replica::Replica;

/// Entries that one turn sends to a client that follows.
const ENTRIES_PER_TURN: usize = 64;
/// Messages that may wait for a client: what it has asked for fits in fewer.
const UNSENT_MAX: usize = UNANSWERED_MAX / 4;
/// How often a leader looks whether a client lives that is linked with no process that would tell.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// The clients that are linked with a member.
#[derive(Default)]
pub(super) struct Clients {
    of: BTreeMap<Peer, Client>,
    peers: BTreeMap<Member, Peer>,
    /// Commands whose clients are to hear of their end from this member.
    awaited: BTreeSet<(Member, u64)>,
    /// Those that follow, and have asked for entries.
    following: BTreeSet<Peer>,
    /// Those for which something waits.
    busy: BTreeSet<Peer>,
    looked_at: Option<Instant>,
    is_looking: bool,
}

struct Client {
    member: Member,
    unsent: Unsent,
    follows: Option<Following>,
}

/// What a client follows.
#[derive(Clone, Copy)]
struct Following {
    number: u32,
    /// The index of the next entry for it.
    next: u64,
    /// How many it has asked for.
    count: u32,
}

impl Clients {
    pub(super) fn add(&mut self, peer: Peer, member: Member, buffers: &Buffers) {
        let unsent = Unsent::new(buffers.clone());
        self.of.insert(peer, Client { member, unsent, follows: None });
        self.peers.insert(member, peer);
    }

    /// Which client it was.
    pub(super) fn remove(&mut self, peer: Peer) -> Option<Member> {
        let Client { member, .. } = self.of.remove(&peer)?;
        self.following.remove(&peer);
        self.busy.remove(&peer);
        if self.peers.get(&member) == Some(&peer) {
            self.peers.remove(&member);
        }
        let of_it = (member, 0)..=(member, u64::MAX);
        let awaited: Vec<_> = self.awaited.range(of_it).copied().collect();
        awaited.iter().for_each(|one| _ = self.awaited.remove(one));
        Some(member)
    }

    fn say(&mut self, peer: Peer, what: ForClient) {
        if let Some(client) = self.of.get_mut(&peer) {
            client.unsent.push(&Frame::ForClient(what));
            self.busy.insert(peer);
        }
    }

    /// Whether a client is to hear of the end of a command.
    pub(super) fn awaits_any(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// A client's command is decided.
    pub(super) fn decided(&mut self, client: Member, number: u64, place: u64) {
        if self.awaited.remove(&(client, number))
            && let Some(peer) = self.peers.get(&client)
        {
            self.say(*peer, ForClient::Decided(number, Some(place)));
        }
    }

    /// Whether more waits for a client than it may have asked for.
    fn is_over(&self, peer: Peer) -> bool {
        self.of.get(&peer).is_some_and(|client| client.unsent.len() > UNSENT_MAX)
    }

    /// Whether something waits for room.
    pub(super) fn has_unsent(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Handles what a client has said to the member of this replica; the command that it wants decided.
    pub(super) fn take(
        &mut self,
        from: Peer,
        said: OfClient,
        replica: &Replica<Command>,
        command_bytes_max: usize,
    ) -> Option<Entry<Command>> {
        let client = self.of.get(&from)?.member;
        if !replica.is_member() {
            self.say(from, ForClient::NoMember);
            return None;
        }
        match said {
            OfClient::Hello => {
                let welcome = ForClient::Welcome {
                    founder: replica.view().founder,
                    command_bytes_max: command_bytes_max as u64,
                    last: replica.last_of_client(client),
                    decided: replica.decided_count(),
                };
                self.say(from, welcome);
            }
            // It takes no answers, and asks for more than it may: what it asks for is passed over.
            OfClient::Ask(..) if self.is_over(from) => {}
            OfClient::Ask(number, command) => {
                if let Some(place) = replica.place_of_client(client, number) {
                    self.say(from, ForClient::Decided(number, place));
                    return None;
                }
                self.awaited.insert((client, number));
                return Some(Entry { from: client, number, command });
            }
            OfClient::Follow { following: number, from: next, count } => {
                let client = self.of.get_mut(&from)?;
                let same = client.follows.filter(|follows| follows.number == number);
                let follows = same.unwrap_or(Following { number, next, count: 0 });
                let count = follows.count.saturating_add(count);
                client.follows = Some(Following { count, ..follows });
                self.following.insert(from);
            }
        }
        None
    }

    /// Sends clients what waits for them and what they have asked for; never waits for one.
    pub(super) fn tend(&mut self, replica: &Replica<Command>, endpoint: &mut Endpoint) {
        for peer in self.following.clone() {
            self.feed(peer, replica);
        }
        for peer in self.busy.clone() {
            let Some(client) = self.of.get_mut(&peer) else { continue };
            while let Some(message) = client.unsent.front() {
                match endpoint.try_send(peer, FRAME_TAG, message) {
                    Ok(()) => client.unsent.pop(),
                    Err(MessageError::Interrupted) => {}
                    // An event reports its end.
                    Err(_) => break,
                }
            }
            if client.unsent.is_empty() {
                self.busy.remove(&peer);
            }
        }
    }

    /// Gives a client that follows the next entries.
    fn feed(&mut self, peer: Peer, replica: &Replica<Command>) {
        let Some(client) = self.of.get(&peer) else { return };
        let Some(Following { number, mut next, mut count }) = client.follows else { return };
        // What it has not taken comes first.
        let room = ENTRIES_PER_TURN.saturating_sub(client.unsent.len());
        let mut frames = Vec::new();
        while frames.len() < room && count > 0 && next < replica.decided_count() {
            if replica.is_void(next) {
                next += 1;
                continue;
            }
            match replica.entry(next) {
                Some(entry) => {
                    frames.push(ForClient::Entry(number, next, entry.clone()));
                    next += 1;
                }
                None => {
                    let snapshot = replica.snapshot().filter(|one| one.next > next);
                    let Some(snapshot) = snapshot else { break };
                    frames.push(ForClient::Snapshot(number, snapshot.next, snapshot.state.clone()));
                    next = snapshot.next;
                }
            }
            count -= 1;
        }
        frames.into_iter().for_each(|frame| self.say(peer, frame));
        if let Some(client) = self.of.get_mut(&peer) {
            client.follows = Some(Following { number, next, count });
        }
        if count == 0 {
            self.following.remove(&peer);
        }
    }

    /// Clients of which a leader must look whether they live: they have sessions and no link here, and the member that they
    /// were linked with may have died with them.
    pub(super) fn unlinked(&mut self, replica: &Replica<Command>) -> Vec<Member> {
        // In every turn: without clients nobody asks for the time.
        if self.is_looking || !replica.leads() || replica.sessions().next().is_none() {
            return Vec::new();
        }
        let now = Instant::now();
        if self.looked_at.is_some_and(|at| now.duration_since(at) < LOOKS_EVERY) {
            return Vec::new();
        }
        self.looked_at = Some(now);
        let unlinked = replica.sessions().filter(|client| !self.peers.contains_key(client));
        let unlinked: Vec<_> = unlinked.collect();
        self.is_looking = !unlinked.is_empty();
        unlinked
    }

    /// They have been looked for.
    pub(super) fn looked(&mut self) {
        self.is_looking = false;
    }
}
