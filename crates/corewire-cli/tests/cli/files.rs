//! Every configuration file that is read, and every file that is written, where something else is than a file of one's own.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::circuits::Killed;
use crate::scratch::{Finished, Running, Scratch, eventually};

/// A user that is not root, as whom the commands run if root runs the tests.
const USER: u32 = 65534;
const LARGE: u64 = 1 << 30;
/// No file of any kind that is read begins so.
const GARBAGE: &str = "@@@ no such thing\n";
const INTERFACE: &str = "edition 1;\n\ninterface hub {\n    message size @1(uint64 bytes);\n};\n";

/// Someone who runs commands in a directory that everyone may write.
struct Someone {
    scratch: Scratch,
    program: PathBuf,
    user: Option<u32>,
    socket: Option<UnixListener>,
}

impl Someone {
    /// The user that runs the tests; and another one if that is root.
    fn all(test: &str) -> Vec<Self> {
        let is_root = rustix::process::geteuid().is_root();
        let users = [None].into_iter().chain(is_root.then_some(Some(USER)));
        let make = |user: Option<u32>| {
            let scratch = Scratch::new(&format!("{test}-{}", user.unwrap_or_default()));
            let program = scratch.temporary().join("corewire");
            fs::copy(env!("CARGO_BIN_EXE_corewire"), &program).unwrap();
            let root = scratch.temporary().parent().unwrap().to_owned();
            for path in [root, scratch.temporary()] {
                fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
            }
            Self { scratch, program, user, socket: None }
        };
        users.map(make).collect()
    }

    /// Whether permissions bind this user.
    fn is_bound(&self) -> bool {
        self.user.is_some() || !rustix::process::geteuid().is_root()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.temporary().join(name)
    }

    /// What is at a path of this user: `content` where a regular file is at its end.
    fn put(&mut self, kind: &str, content: &str) -> PathBuf {
        let (path, target) = (self.path("it"), self.path("target"));
        for path in [&path, &target] {
            let _ = fs::remove_file(path);
            let _ = fs::remove_dir(path);
        }
        let node = |kind, device| {
            let mode = Mode::from_raw_mode(0o666);
            mknodat(CWD, &path, kind, mode, device).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        };
        let write = |path: &Path| {
            fs::write(path, content).unwrap();
            self.own(path);
        };
        match kind {
            "file" => write(&path),
            "link" => {
                write(&target);
                symlink("target", &path).unwrap();
            }
            "dangling link" => symlink("target", &path).unwrap(),
            "directory" => fs::create_dir(&path).unwrap(),
            "pipe" => node(FileType::Fifo, 0),
            "socket" => {
                self.socket = Some(UnixListener::bind(&path).unwrap());
                fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
            }
            "device" if rustix::process::geteuid().is_root() => {
                node(FileType::CharacterDevice, makedev(1, 3));
            }
            "device" => return "/dev/null".into(),
            "/dev/zero" => return kind.into(),
            "large" => {
                write(&path);
                fs::File::options().write(true).open(&path).unwrap().set_len(LARGE).unwrap();
            }
            "unreadable" => {
                write(&path);
                fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
            }
            "another user's" => fs::write(&path, content).unwrap(),
            "another user's, unreadable" => {
                fs::write(&path, content).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            }
            _ => unreachable!("{kind}"),
        }
        if path.symlink_metadata().is_ok() && !kind.starts_with("another") {
            self.own(&path);
        }
        path
    }

    /// Makes what is at a path, also a link, this user's.
    fn own(&self, path: &Path) {
        if let Some(user) = self.user {
            lchown(path, Some(user), Some(user)).unwrap();
        }
    }

    /// Runs a command, with the path in place of `FILE`.
    fn run(&self, words: &str, path: &Path) -> Finished {
        let mut command = Command::new(&self.program);
        let path = path.to_str().unwrap();
        let mut words = words.split_whitespace().map(|word| word.replace("FILE", path)).peekable();
        while let Some((name, value)) = words.peek().and_then(|word| word.split_once('=')) {
            command.env(name, value);
            words.next();
        }
        command.args(words).current_dir(self.scratch.temporary());
        command.env("COREWIRE_RUNTIME_DIR", self.scratch.runtime());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        Running::start(&mut command).finish()
    }
}

// Keeps P225.
#[test]
fn what_is_read_is_a_regular_file_of_limited_length() {
    // How it is read, and what is said about nonsense.
    let commands = [
        ("monitor --number 209 --policy FILE", "key with no value"),
        ("COREWIRE_TOPOLOGY=FILE send log --receivers 1", "not a topology"),
        ("COREWIRE_TOPOLOGY=FILE doctor", "not a topology"),
        ("idl check FILE", "@"),
        ("idl check good.if --import FILE", "@"),
        ("idl format FILE", "@"),
        ("idl json FILE", "@"),
        ("idl rust FILE", "@"),
        ("idl diff FILE good.if", "@"),
        ("idl diff good.if FILE", "@"),
    ];
    // What is said about what is there; None for what is said about nonsense.
    let kinds = [
        ("link", None),
        ("dangling link", Some("No such file")),
        ("directory", Some("directory")),
        ("pipe", Some("not a regular file")),
        ("socket", Some("not a regular file")),
        ("device", Some("not a regular file")),
        ("/dev/zero", Some("not a regular file")),
        ("large", Some("more than")),
        ("unreadable", Some("Permission denied")),
        ("another user's", None),
        ("another user's, unreadable", Some("Permission denied")),
    ];
    for mut someone in Someone::all("read") {
        fs::write(someone.path("good.if"), INTERFACE).unwrap();
        for (kind, said) in kinds {
            if said == Some("Permission denied") && !someone.is_bound()
                || kind.starts_with("another") && someone.user.is_none()
            {
                continue;
            }
            let path = someone.put(kind, GARBAGE);
            for (words, nonsense) in commands {
                let done = someone.run(words, &path);
                let all = format!("{}{}", done.text(), done.errors);
                let what = format!("{words}, {kind}: {:?}: {all}", done.status.code());
                assert!(matches!(done.status.code(), Some(1 | 2)), "{what}");
                let all = all.replace("larger than", "more than");
                let words: String = all.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(words.contains(said.unwrap_or(nonsense)), "{what}");
                assert!(words.contains(path.to_str().unwrap()), "{what}");
            }
            if kind == "link" {
                assert_eq!(fs::read_to_string(&path).unwrap(), GARBAGE, "nothing was written");
            }
        }
    }
}

// Keeps P252.
#[test]
fn a_tuning_file_that_cannot_be_used_is_said_and_nothing_fails() {
    const GOOD: &str = "format = 1\nprocessor = \"any\"\n";
    // What is said about what is there; None if it is used.
    let guide = include_str!("../../../../docs/guide.md");
    let example = guide.split("## Tuning").nth(1).and_then(|it| it.split("```").nth(1)).unwrap();
    let kinds = [
        ("file", example.strip_prefix("toml").unwrap(), None),
        ("link", GOOD, None),
        ("another user's", GOOD, None),
        ("file", "", Some("missing field `format`")),
        ("file", "format = 9\nspeed = 1", Some("it has format 9; this corewire reads format 1")),
        (
            "file",
            "format = 1\nprocessor = \"Z80\"",
            Some("it is for the processor \"Z80\"; this is"),
        ),
        ("dangling link", GOOD, Some("No such file")),
        ("directory", GOOD, Some("it is a directory")),
        ("pipe", GOOD, Some("not a regular file")),
        ("socket", GOOD, Some("not a regular file")),
        ("device", GOOD, Some("not a regular file")),
        ("/dev/zero", GOOD, Some("not a regular file")),
        ("large", GOOD, Some("more than")),
        ("unreadable", GOOD, Some("Permission denied")),
        ("everybody's", GOOD, Some("it has mode 0666, so that others can write it")),
        ("a third user's", GOOD, Some("it belongs to user 4321, not to")),
    ];
    for mut someone in Someone::all("tuning") {
        let is_root = rustix::process::geteuid().is_root();
        for (kind, content, said) in kinds {
            if said == Some("Permission denied") && !someone.is_bound()
                || kind.starts_with("another") && someone.user.is_none()
                || kind.starts_with("a third") && !is_root
            {
                continue;
            }
            let made =
                if ["everybody's", "a third user's"].contains(&kind) { "file" } else { kind };
            let path = someone.put(made, content);
            match kind {
                "everybody's" => {
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
                }
                "a third user's" => lchown(&path, Some(4321), Some(4321)).unwrap(),
                _ => {}
            }
            let done = someone.run("COREWIRE_TUNING=FILE doctor --json", &path);
            let findings = done.json();
            let mut findings = findings.as_array().unwrap().iter();
            let finding = findings.find(|finding| finding["check"] == "tuning").unwrap();
            let found = finding["found"].as_str().unwrap();
            let place = path.to_str().unwrap();
            let what = format!("{kind}, {content}: {found}: {}", done.errors);
            match said {
                None => {
                    assert_eq!(found, place, "{what}");
                    assert!(!done.errors.contains("tuning"), "{what}");
                }
                Some(said) => {
                    assert!(found.starts_with(&format!("{place} is not used: ")), "{what}");
                    assert!(found.contains(said), "{what}");
                    let line = format!("corewire: tuning file {found}");
                    assert_eq!(done.errors.matches(&line).count(), 1, "{what}");
                }
            }
        }
    }
}

// Keeps P225.
#[test]
fn what_is_written_takes_the_place_of_nothing_but_a_regular_file() {
    let commands = [
        "metrics --file FILE",
        "trace --for 0.01 --out FILE",
        "doctor --measure FILE",
        "idl rust hub.if --output .",
        "idl format FILE",
    ];
    const BADLY_FORMATTED: &str = "edition 1; interface hub{message size @1(uint64 bytes);};";
    // Whether it is written; else what is said.
    let kinds = [
        ("file", None),
        ("link", None),
        ("dangling link", None),
        ("directory", Some("directory")),
        ("pipe", Some("nobody reads")),
        ("socket", Some("nobody reads")),
        ("device", None),
        ("/dev/zero", None),
        ("large", None),
        ("unreadable", Some("Permission denied")),
        ("another user's", Some("Permission denied")),
        ("another user's, unreadable", Some("Permission denied")),
    ];
    for mut someone in Someone::all("written") {
        fs::write(someone.path("hub.if"), INTERFACE).unwrap();
        let mut monitor = Command::new(&someone.program);
        monitor.args(["monitor", "--number", "210"]);
        monitor.env("COREWIRE_RUNTIME_DIR", someone.scratch.runtime());
        if let Some(user) = someone.user {
            monitor.uid(user).gid(user);
        }
        monitor.stdout(Stdio::piped()).stderr(Stdio::piped());
        let _monitor = Killed(Some(Running::start(&mut monitor)));
        eventually(|| someone.run("routes show --json", Path::new("")).status.success());
        for words in commands {
            let reads_too = words.starts_with("idl format");
            for (kind, said) in kinds {
                let what = format!("{words}, {kind}");
                if said == Some("Permission denied") && !someone.is_bound()
                    || kind.starts_with("another") && someone.user.is_none()
                    // That it reads it first is the other test's matter.
                    || reads_too && said.is_none() && !["file", "link"].contains(&kind)
                    || reads_too && ["pipe", "socket"].contains(&kind)
                {
                    continue;
                }
                let it = someone.put(kind, if reads_too { BADLY_FORMATTED } else { GARBAGE });
                // The name of what is made is that of the interface file.
                let path = match words.starts_with("idl rust") {
                    false => it.clone(),
                    true if it.starts_with("/dev") => continue,
                    true => {
                        let made = someone.path("hub.rs");
                        let _ = fs::remove_file(&made);
                        let _ = fs::remove_dir(&made);
                        fs::rename(&it, &made).unwrap();
                        made
                    }
                };
                let before = path.symlink_metadata().unwrap();
                let done = someone.run(words, &path);
                let what = format!("{what}: {:?}: {}", done.status.code(), done.errors);
                let after = path.symlink_metadata().unwrap();
                assert_eq!(after.file_type(), before.file_type(), "{what}");
                assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()), "{what}");
                assert_eq!(after.mode(), before.mode(), "{what}");
                if let Some(said) = said {
                    assert!(matches!(done.status.code(), Some(1 | 2)), "{what}");
                    assert!(done.errors.contains(said), "{what}");
                    let shown = path.file_name().unwrap().to_str().unwrap();
                    assert!(done.errors.contains(shown), "{what}");
                    assert_eq!((after.ino(), after.len()), (before.ino(), before.len()), "{what}");
                } else {
                    assert_eq!(done.status.code(), Some(0), "{what}");
                    let written = fs::metadata(&path).unwrap();
                    if written.file_type().is_char_device() {
                        assert_eq!((after.ino(), after.rdev()), (before.ino(), before.rdev()));
                    } else {
                        assert!(written.is_file() && written.len() < LARGE, "{what}");
                        let text = fs::read(&path).unwrap();
                        assert!(!text.starts_with(GARBAGE.as_bytes()), "{what}");
                        assert_ne!(text, BADLY_FORMATTED.as_bytes(), "{what}");
                    }
                }
                let left = fs::read_dir(someone.scratch.temporary()).unwrap().flatten();
                let names = left.map(|one| one.file_name().to_string_lossy().into_owned());
                let strange: Vec<_> = names.filter(|name| name.starts_with('.')).collect();
                assert!(strange.is_empty(), "{what}: {strange:?}");
            }
        }
    }
}
