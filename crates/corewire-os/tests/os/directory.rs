//! What is swept from a runtime directory, and what is not.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use corewire_layout::name::{ChannelName, NameKind, NameRecord, SocketName};
use corewire_os::access::Access;
use corewire_os::directory::{ClaimError, Role, RuntimeDirectory};
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

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

// Keeps P14.
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

// Keeps P14.
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
    let name = ChannelName::new("log").unwrap();
    let (_listener, _) = directory.listen().unwrap();
    let _claim = directory.claim(&name).unwrap();
    let _membership = directory.join_members(&name, true).unwrap().unwrap();
    let before = scratch.files();
    assert_eq!(before.len(), 3);
    directory.clear(&name);
    assert_eq!(scratch.files(), before);
}

/// A listener of another kind than corewire's, which stays open.
fn stream_listener(scratch: &Scratch, file: &str) -> UnixListener {
    UnixListener::bind(scratch.0.join(file)).unwrap()
}

// Keeps P90.
#[test]
fn live_sockets_of_other_programs_are_left_alone() {
    let scratch = Scratch::new("foreign-sockets");
    let directory = RuntimeDirectory::open(&scratch.0, Role::Owner).unwrap();
    let _stream = stream_listener(&scratch, SOCKET);
    let datagrams = "p.ffeeddccbbaa99887766554433221100";
    let _datagrams = std::os::unix::net::UnixDatagram::bind(scratch.0.join(datagrams)).unwrap();
    let _unshown = stream_listener(&scratch, UNSHOWN);
    assert_eq!(directory.sweep(), Ok(0));
    assert_eq!(scratch.files(), [UNSHOWN, SOCKET, datagrams]);
    let socket = SocketName::of_file(SOCKET).unwrap();
    assert_eq!(directory.is_alive(socket), Ok(false));
}

// Keeps P90.
#[test]
fn a_fifo_is_left_alone_and_named() {
    let scratch = Scratch::new("fifo");
    let directory = RuntimeDirectory::open(&scratch.0, Role::Owner).unwrap();
    let names = ["n.log", "m.log", "w.log.00112233445566778899aabbccddeeff", "g.log"];
    for file in names {
        let path = scratch.0.join(file);
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    }
    assert_eq!(directory.sweep(), Ok(0));
    assert_eq!(scratch.files().len(), names.len());
    let name = ChannelName::new("log").unwrap();
    let error = directory.claim(&name).unwrap_err();
    assert!(error.to_string().contains("n.log"), "{error}");
    assert!(matches!(directory.look_up(&name), Err(ClaimError::Foreign(file)) if file == "n.log"));
}

#[test]
fn a_directory_that_was_removed_is_named() {
    let scratch = Scratch::new("removed");
    let directory = RuntimeDirectory::open(&scratch.0, Role::Owner).unwrap();
    fs::remove_dir(&scratch.0).unwrap();
    let name = ChannelName::new("log").unwrap();
    let socket = SocketName::of_file(SOCKET).unwrap();
    let errors = [
        directory.claim(&name).unwrap_err(),
        directory.try_claim(&name).unwrap_err(),
        directory.join_members(&name, true).unwrap_err(),
        directory.leave_waiter(&name, 1, socket).unwrap_err(),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(text.contains(&format!("{} was removed", scratch.0.display())), "{text}");
    }
}

// Keeps P90.
#[test]
fn a_process_with_a_full_queue_keeps_nobody_waiting() {
    let scratch = Scratch::new("full");
    let directory = RuntimeDirectory::open(&scratch.0, Role::Owner).unwrap();
    let path = scratch.0.join(UNSHOWN);
    let socket = |flags| socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let listener = socket(SocketFlags::empty()).unwrap();
    let address = SocketAddrUnix::new(&path).unwrap();
    bind(&listener, &address).unwrap();
    listen(&listener, 0).unwrap();
    let mut waiting = Vec::new();
    loop {
        let caller = socket(SocketFlags::NONBLOCK).unwrap();
        match connect(&caller, &address) {
            Ok(()) => waiting.push(caller),
            Err(errno) => break assert_eq!(errno, Errno::AGAIN),
        }
    }
    let start = std::time::Instant::now();
    assert_eq!(directory.sweep(), Ok(0));
    // A connection that is waited for gives up after five seconds.
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    assert_eq!(scratch.files(), [UNSHOWN]);
}

// Keeps P91.
#[test]
fn a_directory_that_another_user_made_first_is_named_with_what_to_set() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new("squatter");
    fs::create_dir(&scratch.0).unwrap();
    std::os::unix::fs::chown(&scratch.0, Some(12_345), None).unwrap();
    let error = RuntimeDirectory::open(&scratch.0, Role::Owner).unwrap_err().to_string();
    for word in ["squatter", "user 12345", "user 0", "COREWIRE_RUNTIME_DIR"] {
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn foreign_files_are_listed_with_what_they_are() {
    let scratch = Scratch::new("foreign-list");
    let directory = RuntimeDirectory::open(&scratch.0, Role::Owner).unwrap();
    let channel = |name| ChannelName::new(name).unwrap();
    // Everything that corewire makes.
    let (_listener, socket) = directory.listen().unwrap();
    let claim = directory.claim(&channel("log")).unwrap();
    claim.write(NameRecord { kind: NameKind::Channel, socket, incarnation: 1 }).unwrap();
    let _empty = directory.claim(&channel("just.made")).unwrap();
    let _note = directory.leave_waiter(&channel("log"), 7, socket).unwrap();
    let _members = directory.join_members(&channel("shared"), true).unwrap();
    assert_eq!(directory.foreign_files(), Ok(vec![]));

    let path = |file: &str| scratch.0.join(file);
    fs::write(path("notes.txt"), "12345").unwrap();
    fs::write(path("n.prices"), "no record").unwrap();
    fs::write(path("m.orders"), "no lock").unwrap();
    fs::create_dir(path("m.trades")).unwrap();
    fs::write(path("n..bad name"), "").unwrap();
    fs::write(path(&socket.file().replace("p.", ".p.")), "no socket").unwrap();
    fs::create_dir(path("w.log.00000000000000000000000000000009")).unwrap();
    std::os::unix::fs::symlink("/", path("link")).unwrap();
    let odd = OsStr::from_bytes(b"odd\xff");
    fs::write(scratch.0.join(odd), "").unwrap();
    let found = directory.foreign_files().unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|file| (file.name.as_str(), file.kind, file.blocks().map(|name| name.to_string())))
        .collect();
    let hidden = socket.file().replace("p.", ".p.");
    let blocks = |name: &str| Some(name.to_owned());
    assert_eq!(
        found,
        [
            (hidden.as_str(), "regular file", None),
            ("link", "symbolic link", None),
            ("m.orders", "regular file", None),
            ("m.trades", "directory", blocks("trades")),
            ("n..bad name", "regular file", None),
            ("n.prices", "regular file", blocks("prices")),
            ("notes.txt", "regular file", None),
            ("odd\u{fffd}", "regular file", None),
            ("w.log.00000000000000000000000000000009", "directory", None),
        ]
    );
}

/// A directory in a state, and what the error says of it besides its path.
#[test]
fn whatever_is_there_instead_is_named_with_what_to_do() {
    let scratch = Scratch::new("states");
    fs::create_dir(&scratch.0).unwrap();
    let path = |name: &str| scratch.0.join(name);
    fs::write(path("file"), "").unwrap();
    let _socket = UnixListener::bind(path("socket")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    fs::create_dir(path("real")).unwrap();
    std::os::unix::fs::symlink(path("real"), path("link")).unwrap();
    std::os::unix::fs::symlink(path("nowhere"), path("dangling")).unwrap();
    fs::create_dir(path("open")).unwrap();
    fs::set_permissions(path("open"), PermissionsExt::from_mode(0o755)).unwrap();
    fs::create_dir(path("written")).unwrap();
    fs::set_permissions(path("written"), PermissionsExt::from_mode(0o770)).unwrap();
    let user = format!("user {}", rustix::process::geteuid().as_raw());
    let cases: [(&str, &[&str]); 9] = [
        ("file", &["regular file", "mode 0644", "remove it", "COREWIRE_RUNTIME_DIR"]),
        ("socket", &["socket", "remove it"]),
        ("pipe", &["named pipe", "remove it"]),
        ("link", &["symbolic link", "COREWIRE_RUNTIME_DIR"]),
        ("dangling", &["symbolic link", "COREWIRE_RUNTIME_DIR"]),
        ("open", &["mode 0755", "no access rule", "chmod 0700", "--access"]),
        ("written", &["mode 0770", "only its owner may write it", "chmod 0700"]),
        ("none/below", &["No such file", "none\" first", "COREWIRE_RUNTIME_DIR"]),
        ("file/below", &["Not a directory", "regular file", "COREWIRE_RUNTIME_DIR"]),
    ];
    for (name, words) in cases {
        let error = RuntimeDirectory::open(&path(name), Role::Owner).unwrap_err().to_string();
        for word in words.iter().chain([&name, &user.as_str()]) {
            assert!(error.contains(word), "{name}: {word:?} is missing in: {error}");
        }
    }
}

#[test]
fn a_directory_is_made_for_its_user_whatever_the_mask_is() {
    let scratch = Scratch::new("mask");
    // A process of its own: the mask belongs to the whole process.
    if std::env::var_os("COREWIRE_TEST_MASK").is_none() {
        let name = "a_directory_is_made_for_its_user_whatever_the_mask_is";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let command = command.args(["--exact", name]).env("COREWIRE_TEST_MASK", "");
        assert!(command.status().unwrap().success());
        return;
    }
    let before = rustix::process::umask(Mode::from_raw_mode(0o777));
    let directory = RuntimeDirectory::open(&scratch.0, Role::Owner);
    rustix::process::umask(before);
    directory.unwrap();
    assert_eq!(fs::metadata(&scratch.0).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[test]
fn a_rule_that_cannot_be_set_leaves_the_directory_as_it_was() {
    let scratch = Scratch::new("rule-undone");
    let ruler = |rule| RuntimeDirectory::open(&scratch.0, Role::Ruler(rule));
    let mode = || fs::metadata(&scratch.0).unwrap().permissions().mode() & 0o7777;
    ruler(Access::Users(vec![7])).unwrap();
    assert!(ruler(Access::Group(u32::MAX)).is_err());
    let directory = RuntimeDirectory::open(&scratch.0, Role::Owner).unwrap();
    assert_eq!((directory.access(), mode()), (&Access::Users(vec![7]), 0o755));
    assert_eq!(directory.foreign_files(), Ok(vec![]));
    // What somebody else has put there is no rule.
    let file = scratch.0.join("rule");
    let is_refused = || {
        for role in [Role::Owner, Role::Ruler(Access::Users(vec![7])), Role::Ruler(Access::Owner)] {
            let error = RuntimeDirectory::open(&scratch.0, role).unwrap_err().to_string();
            assert!(error.contains("is no access rule of corewire's: remove it"), "{error}");
        }
        fs::symlink_metadata(&file).unwrap();
        fs::remove_file(&file).unwrap();
    };
    fs::write(&file, "everybody").unwrap();
    is_refused();
    rustix::fs::mknodat(rustix::fs::CWD, &file, FileType::Fifo, Mode::RWXU, 0).unwrap();
    is_refused();
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    is_refused();
    let _listener = stream_listener(&scratch, "rule");
    is_refused();
    ruler(Access::Owner).unwrap();
    assert_eq!((mode(), scratch.files()), (0o700, vec![]));
}
