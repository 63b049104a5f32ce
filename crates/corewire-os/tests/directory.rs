//! What is swept from a runtime directory, and what is not.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use corewire_os::directory::{Role, RuntimeDirectory};

/// A directory of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corewire-os-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const SOCKET: &str = "p.00112233445566778899aabbccddeeff";
const UNSHOWN: &str = ".p.00112233445566778899aabbccddeeff";

#[test]
fn what_the_dead_have_left_is_swept() {
    let scratch = Scratch::new("swept");
    let directory = RuntimeDirectory::open(&scratch.0, Role::Owner).unwrap();
    for socket in [SOCKET, UNSHOWN] {
        // The socket outlives its listener.
        drop(UnixListener::bind(scratch.0.join(socket)).unwrap());
    }
    for empty in ["m.log", "n.log"] {
        fs::write(scratch.0.join(empty), "").unwrap();
    }
    assert_eq!(directory.sweep(), Ok(4));
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn what_corewire_did_not_make_is_not_swept() {
    let scratch = Scratch::new("foreign");
    let directory = RuntimeDirectory::open(&scratch.0, Role::Owner).unwrap();
    let foreign = [UNSHOWN, "m.log", "m.no name", "n.log", "notes.txt", SOCKET];
    for file in foreign {
        fs::write(scratch.0.join(file), "somebody's").unwrap();
    }
    assert_eq!(directory.sweep(), Ok(0));
    assert_eq!(scratch.files(), foreign);
}

#[test]
fn what_the_living_have_is_not_swept() {
    let scratch = Scratch::new("living");
    let directory = RuntimeDirectory::open(&scratch.0, Role::Owner).unwrap();
    let name = corewire_layout::name::ChannelName::new("log").unwrap();
    let (_listener, _) = directory.listen().unwrap();
    let _claim = directory.claim(&name).unwrap();
    let _membership = directory.join_members(&name, true).unwrap().unwrap();
    let before = scratch.files();
    assert_eq!(before.len(), 3);
    directory.clear(&name);
    assert_eq!(scratch.files(), before);
}
