//! Services and clients that are killed, stopped, of another user, or hostile.

use crate::roles::users::{GUEST, OWNER, STRANGER, is_root};
use crate::roles::{Directory, Role};

const NAME: &str = "typed";

/// How often each side is killed.
fn kills() -> usize {
    let given = std::env::var("COREWIRE_CALL_KILLS").ok();
    given.map_or(10, |count| count.parse().unwrap())
}

fn serving(directory: &Directory, options: &[&str]) -> Role {
    let mut service = Role::start("serve-calls", directory, NAME, options);
    service.until("serving");
    service
}

fn client(directory: &Directory, driver: &str) -> Role {
    let mut client = Role::start("make-calls", directory, NAME, &[driver, "count=10"]);
    client.until("called");
    client
}

// Keeps P184.
#[test]
fn a_killed_service_ends_the_calls_of_its_clients() {
    let directory = Directory::new("killed-service");
    for driver in ["driver=ump", "driver=sock"] {
        for _ in 0..kills() {
            let mut service = serving(&directory, &[]);
            let mut client = client(&directory, driver);
            service.kill();
            assert_eq!(client.until("ended"), "service typed died", "{driver}");
            assert!(client.is_success());
        }
    }
}

// Keeps P184.
#[test]
fn a_killed_client_leaves_nothing_in_the_service() {
    let directory = Directory::new("killed-client");
    let mut service = serving(&directory, &[]);
    // The first ones open what stays open.
    let mut first = None;
    for _ in 0..kills() {
        for driver in ["driver=ump", "driver=sock"] {
            let mut client = client(&directory, driver);
            let pid = client.id();
            assert!(service.until("bound").ends_with(&format!("pid={pid}")));
            client.kill();
            service.until("gone");
        }
        // A call that is served shows that everything before it has been handled.
        let mut last = client(&directory, "driver=ump");
        service.until("bound");
        let count = service.descriptors().len();
        last.kill();
        service.until("gone");
        let first = first.get_or_insert(count);
        assert!(count <= *first + 2, "{count} descriptors are open, {first} at first");
    }
    service.hang_up();
    assert!(service.is_success());
}

// Keeps P182.
#[test]
fn a_stopped_client_holds_up_nobody() {
    let directory = Directory::new("stopped-client");
    let _service = serving(&directory, &[]);
    for driver in ["driver=ump", "driver=sock"] {
        let stopped = client(&directory, driver);
        stopped.stop();
        for driver in ["driver=ump", "driver=sock"] {
            let mut other = Role::start("make-calls", &directory, NAME, &[driver, "count=500"]);
            other.until("called");
        }
        stopped.go_on();
    }
}

// Keeps P183.
#[test]
fn a_client_of_another_user_binds_by_the_socket() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("guest-calls");
    let (owner, guest) = (format!("uid={OWNER}"), format!("uid={GUEST}"));
    let access = format!("access=users:{GUEST}");
    let mut service = serving(&directory, &[&owner, &access]);
    let its = format!("owner={OWNER}");
    let mut client = Role::start("make-calls", &directory, NAME, &[&guest, &its, "count=10"]);
    assert_eq!(client.until("bound"), format!("sock uid={OWNER}"));
    client.until("called");
    assert!(service.until("bound").starts_with(&format!("uid={GUEST} ")));

    let mut ring = Role::start("make-calls", &directory, NAME, &[&guest, &its, "driver=ump"]);
    let reason = ring.until("refused");
    assert_eq!(
        reason,
        "no binding to typed: ump: the service belongs to user 23456, which does not share its memory"
    );
    let stranger = format!("uid={STRANGER}");
    let mut stranger = Role::start("make-calls", &directory, NAME, &[&stranger, &its]);
    assert!(stranger.line().is_none_or(|line| line.starts_with("refused")));

    client.kill();
    service.until("gone");
}

#[test]
fn a_hostile_guest_is_cut_off_with_the_reason_and_others_are_served() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("hostile-guest");
    let (owner, guest) = (format!("uid={OWNER}"), format!("uid={GUEST}"));
    let access = format!("access=users:{GUEST}");
    let _service = serving(&directory, &[&owner, &access]);
    let its = format!("owner={OWNER}");
    let mut hostile = Role::start("misbehave", &directory, NAME, &[&guest, &its, "count=100"]);
    let reason = hostile.until("cut off:");
    assert_eq!(reason, "it sent too much that is no message of the interface");
    for user in [&owner, &guest] {
        let mut other = Role::start("make-calls", &directory, NAME, &[user, &its, "count=100"]);
        other.until("called");
    }
}
