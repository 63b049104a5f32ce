//! Relays of channels with two levels are killed under load. The other receivers of the group must
//! lose nothing.
//!
//! `COREWIRE_RELAY_DEATHS` sets the number of deaths (default: 25).

use crate::roles::{Directory, Random, Role};
use corewire::Domain;

const CHANNEL: &str = "log";
/// The sender's group, and another group.
const HOME: &str = "group=0";
const AFAR: &str = "group=7";
/// Number of receivers in the other group.
const FOLLOWERS: usize = 3;

fn deaths() -> usize {
    let said = std::env::var("COREWIRE_RELAY_DEATHS").ok();
    said.map_or(25, |count| count.parse().expect("COREWIRE_RELAY_DEATHS: a number"))
}

struct Channel {
    directory: Directory,
    domain: Domain,
    sender: Role,
    /// A receiver in the sender's group, which reads the sender's ring directly.
    near: Role,
    followers: Vec<Role>,
}

impl Channel {
    fn start(test: &str) -> Self {
        let directory = Directory::new(test);
        let domain = Domain::open_at(directory.path()).unwrap();
        let mut sender = Role::start("sender", &directory, CHANNEL, &["levels", HOME]);
        sender.until("created");
        let mut near = Role::start("receiver", &directory, CHANNEL, &[HOME]);
        near.until("joined");
        let mut channel = Self { directory, domain, sender, near, followers: Vec::new() };
        (0..FOLLOWERS).for_each(|_| channel.add_follower());
        channel
    }

    fn add_follower(&mut self) {
        let mut follower = Role::start("receiver", &self.directory, CHANNEL, &[AFAR]);
        follower.until("joined");
        self.followers.push(follower);
    }

    /// The follower that runs the relay.
    fn leader(&self) -> usize {
        loop {
            // Between two relays there is none.
            let observed = self.domain.observe(&format!("{CHANNEL}@7"));
            let pid = observed.ok().map(|observer| observer.look().pid);
            let leader = self.followers.iter().position(|role| Some(role.child.id()) == pid);
            if let Some(leader) = leader {
                return leader;
            }
            std::thread::yield_now();
        }
    }

    /// Waits until each receiver has more messages than the sender has sent by now.
    fn all_go_on(&mut self) {
        let sent = self.sender.latest("at ", 0);
        for role in self.followers.iter_mut().chain([&mut self.near]) {
            role.until_past("at", sent);
        }
    }
}

// Keeps P54.
#[test]
fn relays_die_and_the_others_of_their_group_lose_nothing() {
    let mut channel = Channel::start("relays");
    let mut random = Random::new(0x7e1a);
    for death in 0..deaths() {
        let leader = channel.leader();
        channel.followers.swap_remove(leader).kill();
        // Sometimes another follower dies with it, which may be just about to become the next
        // relay.
        if random.below(4) == 0 {
            channel.followers.swap_remove(0).kill();
        }
        while channel.followers.len() < FOLLOWERS {
            channel.add_follower();
        }
        channel.all_go_on();
        assert!(channel.sender.child.try_wait().unwrap().is_none(), "death {death}");
    }
    channel.sender.hang_up();
    let sent = channel.sender.until("closed");
    for role in channel.followers.iter_mut().chain([&mut channel.near]) {
        assert_eq!(role.until("ended"), sent);
        assert!(role.is_success());
    }
}

// Keeps P54.
#[test]
fn a_group_whose_relay_leaves_in_order_loses_nothing() {
    let mut channel = Channel::start("relays-leave");
    for _ in 0..deaths() {
        let leader = channel.leader();
        let mut leaving = channel.followers.swap_remove(leader);
        leaving.hang_up();
        leaving.until("left");
        assert!(leaving.is_success());
        channel.add_follower();
        channel.all_go_on();
    }
    channel.sender.hang_up();
    let sent = channel.sender.until("closed");
    for role in channel.followers.iter_mut().chain([&mut channel.near]) {
        assert_eq!(role.until("ended"), sent);
    }
}

// Keeps P54.
#[test]
fn what_a_dead_sender_has_sent_reaches_those_whose_relay_died_with_it() {
    for round in 0..deaths().div_ceil(2) {
        let mut channel = Channel::start(&format!("relays-both-{round}"));
        channel.all_go_on();
        let leader = channel.leader();
        // The two die in either order.
        let mut leader = channel.followers.swap_remove(leader);
        if round % 2 == 0 {
            leader.kill();
            channel.sender.kill();
        } else {
            channel.sender.kill();
            leader.kill();
        }
        let near = channel.near.until("died");
        for follower in &mut channel.followers {
            assert_eq!(follower.until("died"), near);
        }
    }
}

// Keeps P54.
#[test]
fn a_stopped_relay_is_not_taken_for_dead() {
    let mut channel = Channel::start("relays-stopped");
    channel.all_go_on();
    let leader = channel.leader();
    channel.followers[leader].stop();
    // The ring fills, and the sender waits.
    let sent = channel.sender.latest("at ", 0);
    channel.followers[leader].go_on();
    for role in channel.followers.iter_mut().chain([&mut channel.near]) {
        role.until_past("at", sent + 1000);
    }
    channel.sender.hang_up();
    let sent = channel.sender.until("closed");
    for role in channel.followers.iter_mut().chain([&mut channel.near]) {
        assert_eq!(role.until("ended"), sent);
    }
}
