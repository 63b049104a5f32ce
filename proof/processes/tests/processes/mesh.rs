//! Many processes that all link with each other.
//!
//! `COREWIRE_MESH` sets their number (default: 20).

use crate::roles::{Directory, Role};

// Keeps P233.
#[test]
fn a_link_costs_three_descriptors_also_if_both_ends_ask_at_once() {
    let given = std::env::var("COREWIRE_MESH").ok().and_then(|text| text.parse().ok());
    let count: u64 = given.unwrap_or(20);
    let directory = Directory::new("mesh");
    let option = format!("count={count}");
    let start = |number| Role::start("mesh", &directory, &format!("mesh-{number}"), &[&option]);
    let mut roles: Vec<Role> = (0..count).map(start).collect();
    let number = |said: String| said.parse::<u64>().unwrap();
    let own: Vec<u64> = roles.iter_mut().map(|role| number(role.until("ready"))).collect();
    roles.iter_mut().for_each(|role| role.say("go"));
    for role in &mut roles {
        role.until("linked");
    }
    // What is not needed is closed by threads of their own.
    for (role, own) in roles.iter_mut().zip(own) {
        let most = own + 3 * (count - 1);
        let mut counts = (0..10_000).map(|_| {
            role.say("count");
            number(role.until("descriptors"))
        });
        let last = counts.find(|open| *open <= most);
        assert!(last.is_some(), "more than {most} descriptors");
    }
}
