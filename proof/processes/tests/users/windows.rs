//! What users other than the owner of a window can do with it, and the owner's own user with less than all rights.

use std::os::unix::process::ExitStatusExt;

use super::roles::users::{GUEST, OWNER, STRANGER, is_root};
use super::roles::{Directory, Role};
use super::{CHANNEL, start};

// Keeps P247.
#[test]
fn a_window_that_may_only_be_read_is_not_opened_again_to_write() {
    if !is_root() {
        return;
    }
    let same = vec![format!("uid={OWNER}")];
    let guest = vec![format!("uid={GUEST}"), format!("owner={OWNER}")];
    let read_by_others = ["shared"].as_slice();
    // One of the owner's own user can change the mode of memory that others may write.
    for (user, others, is_closed) in
        [(&same, read_by_others, true), (&same, &[], false), (&guest, &[], true)]
    {
        let directory = Directory::new("users-window");
        let rule = format!("access=users:{GUEST}");
        let mut owner =
            start("own-window", &directory, OWNER, &[&[rule.as_str()], others].concat());
        owner.until("created");
        let options: Vec<&str> = user.iter().map(String::as_str).collect();
        let mut intruder = Role::start("intrude-window", &directory, CHANNEL, &options);
        for way in [
            "by the library",
            "by its descriptor",
            "by a map of its descriptor",
            "to its map",
            "to open it again",
        ] {
            assert_eq!(intruder.until("refused"), way);
        }
        if is_closed {
            assert_eq!(intruder.until("refused"), "to open it in another mode and map it");
        }
        intruder.until("stores");
        let status = intruder.child.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
        owner.hang_up();
        assert!(owner.is_success());
    }
}

// Keeps P248, P249.
#[test]
fn a_guest_of_a_window_reads_its_data_and_has_no_part_in_it() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-window-guest");
    let mut owner = start("own-window", &directory, OWNER, &[&format!("access=users:{GUEST}")]);
    owner.until("created");
    let of_owner = format!("owner={OWNER}");
    let mut guest = start("visit-window", &directory, GUEST, &[&of_owner]);
    let rights = format!("window {CHANNEL} gives this process the rights read, not atomic");
    assert_eq!(guest.until("attached"), rights);
    assert_eq!(guest.until("read"), "[0, 0, 0, 0]");
    let guests =
        format!("window {CHANNEL} belongs to another user: a guest can only read its data");
    for _ in 0..5 {
        assert_eq!(guest.until("refused"), guests);
    }
    let mut stranger = start("visit-window", &directory, STRANGER, &[&of_owner]);
    let not_permitted =
        format!("window {CHANNEL} belongs to user {OWNER}, this process runs as user {STRANGER}");
    assert_eq!(stranger.until("attached"), not_permitted);
    // It is told when the owner closes the window.
    owner.hang_up();
    assert_eq!(guest.until("then"), format!("window {CHANNEL} was closed by its owner"));
    assert!(guest.is_success());
}
