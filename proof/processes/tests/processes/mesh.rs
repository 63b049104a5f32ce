//! Many processes that all link with each other.
//!
//! `COREWIRE_MESH` sets their number (default: 20).

use crate::roles::{Directory, Role};

/// What an endpoint has open besides its links.
const OWN_DESCRIPTORS: u64 = 30;

// Keeps P233.
#[test]
fn a_link_costs_three_descriptors_also_if_both_ends_ask_at_once() {
    let given = std::env::var("COREWIRE_MESH").ok().and_then(|text| text.parse().ok());
    let count: u64 = given.unwrap_or(20);
    let directory = Directory::new("mesh");
    let option = format!("count={count}");
    let start = |number| Role::start("mesh", &directory, &format!("mesh-{number}"), &[&option]);
    let mut roles: Vec<Role> = (0..count).map(start).collect();
    for role in &mut roles {
        role.until("ready");
    }
    roles.iter_mut().for_each(|role| role.say("go"));
    for role in &mut roles {
        role.until("linked");
    }
    let most = 3 * (count - 1) + OWN_DESCRIPTORS;
    // What is not needed is closed by threads of their own.
    for role in &mut roles {
        let mut counts = (0..10_000).map(|_| {
            role.say("count");
            role.until("descriptors").parse::<u64>().unwrap()
        });
        let last = counts.find(|open| *open <= most);
        assert!(last.is_some(), "more than {most} descriptors");
    }
}
