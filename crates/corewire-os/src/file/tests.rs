//! Everything that a name may lead to.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;

use super::*;

/// A directory that goes with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = env::temp_dir().join(format!("corewire-file-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn pipe(&self) -> PathBuf {
        let path = self.at("pipe");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        path
    }

    /// Nothing else is left in it.
    fn expect_names(&self, expected: &[&str]) {
        let mut names: Vec<_> = fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, expected);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn only_regular_files_of_limited_length_are_read() {
    let scratch = Scratch::new("read");
    let file = scratch.at("file");
    fs::write(&file, "text").unwrap();
    let link = scratch.at("link");
    symlink("file", &link).unwrap();
    for path in [&file, &link] {
        assert_eq!(read_regular(path, 4).unwrap(), b"text");
        let error = read_regular(path, 3).unwrap_err().to_string();
        assert_eq!(error, "more than 3 bytes are not possible");
    }
    let dangling = scratch.at("dangling");
    symlink("nowhere", &dangling).unwrap();
    assert_eq!(read_regular(&dangling, 9).unwrap_err().kind(), ErrorKind::NotFound);
    let socket = scratch.at("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let large = scratch.at("large");
    File::create(&large).unwrap().set_len(1 << 40).unwrap();
    for (path, expected) in [
        (&scratch.0, "it is a directory"),
        (&scratch.pipe(), "it is a pipe, not a regular file"),
        (&socket, "it is a socket, not a regular file"),
        (&PathBuf::from("/dev/zero"), "it is a device, not a regular file"),
        (&large, "more than 1 MiB are not possible"),
    ] {
        assert_eq!(read_regular(path, 1 << 20).unwrap_err().to_string(), expected);
    }
    fs::write(&file, b"ab\xff").unwrap();
    assert_eq!(read_regular_text(&file, 9).unwrap_err().to_string(), "byte 2 is not UTF-8");
}

#[test]
fn a_file_is_replaced_whole_with_its_mode_and_links_stay() {
    let scratch = Scratch::new("replace");
    let (file, link) = (scratch.at("file"), scratch.at("link"));
    symlink("file", &link).unwrap();
    write(&link, b"new").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"new", "a link to nothing leads to a new file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let before = file.metadata().unwrap().ino();
    let failed = write_with(&link, |file| {
        file.write_all(b"half")?;
        Err(ErrorKind::Other.into())
    });
    failed.unwrap_err();
    assert_eq!(fs::read(&file).unwrap(), b"new");
    write(&link, b"newer").unwrap();
    let is = file.metadata().unwrap();
    assert_eq!((fs::read(&file).unwrap(), is.mode() & 0o777), (b"newer".to_vec(), 0o640));
    assert_ne!(is.ino(), before);
    // What is there twice stays there twice.
    let twice = scratch.at("twice");
    fs::hard_link(&file, &twice).unwrap();
    write(&file, b"both").unwrap();
    assert_eq!(fs::read(&twice).unwrap(), b"both");
    scratch.expect_names(&["file", "link", "twice"]);
}

#[test]
fn what_is_no_regular_file_is_written_into_and_stays() {
    let scratch = Scratch::new("into");
    let pipe = scratch.pipe();
    let error = write(&pipe, b"text").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
    let reader = open(&pipe, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
    write(&pipe, b"text").unwrap();
    let mut read = String::new();
    File::from(reader).read_to_string(&mut read).unwrap();
    assert_eq!(read, "text");
    assert!(pipe.metadata().unwrap().file_type().is_fifo());
    let to_device = scratch.at("to-device");
    symlink("/dev/null", &to_device).unwrap();
    write(&to_device, b"text").unwrap();
    assert!(Path::new("/dev/null").metadata().unwrap().file_type().is_char_device());
    let socket = scratch.at("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    assert_eq!(write(&socket, b"text").unwrap_err().kind(), ErrorKind::NotConnected);
    assert_eq!(write(&scratch.0, b"text").unwrap_err().kind(), ErrorKind::IsADirectory);
    assert_eq!(write(&scratch.at("no/file"), b"").unwrap_err().kind(), ErrorKind::NotFound);
    let around = scratch.at("around");
    symlink("around", &around).unwrap();
    assert_eq!(write(&around, b"").unwrap_err().raw_os_error(), Some(libc::ELOOP));
    scratch.expect_names(&["around", "pipe", "socket", "to-device"]);
}

#[test]
fn links_of_others_are_not_followed_and_files_of_others_stay_theirs() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new("others");
    let (file, link) = (scratch.at("file"), scratch.at("link"));
    fs::write(&file, "old").unwrap();
    symlink("file", &link).unwrap();
    rustix::fs::chownat(CWD, &link, Some(Uid::from_raw(4242)), None, AtFlags::SYMLINK_NOFOLLOW)
        .unwrap();
    assert_eq!(write(&link, b"new").unwrap_err().to_string(), "it is a link of user 4242");
    assert_eq!(fs::read(&file).unwrap(), b"old");
    chown(&file, Some(4242), Some(4243)).unwrap();
    write(&file, b"new").unwrap();
    let is = file.metadata().unwrap();
    assert_eq!((is.uid(), is.gid()), (4242, 4243));
    scratch.expect_names(&["file", "link"]);
}

#[test]
fn the_first_file_of_the_standard_places_counts() {
    let find = |variables: &[(&str, &str)], files: &[&str]| {
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        find_settings_with(
            variable,
            |path| files.iter().any(|file| path == Path::new(file)),
            "COREWIRE_TUNING",
            "corewire/tuning.toml",
        )
    };
    let home = [("HOME", "/home/a")];
    assert_eq!(find(&home, &[]), None);
    let (own, shared) = ("/home/a/.config/corewire/tuning.toml", "/etc/xdg/corewire/tuning.toml");
    assert_eq!(find(&home, &[own, shared]), Some(own.into()));
    assert_eq!(find(&home, &[shared]), Some(shared.into()));
    let config = [("HOME", "/home/a"), ("XDG_CONFIG_HOME", "/c"), ("XDG_CONFIG_DIRS", "x:/d")];
    assert_eq!(find(&config, &[own, shared]), None);
    let other = "/d/corewire/tuning.toml";
    assert_eq!(find(&config, &[other, "x/corewire/tuning.toml"]), Some(other.into()));
    // What is named is used whether it exists or not: then it is missed.
    let named = [("COREWIRE_TUNING", "/t"), ("HOME", "/home/a")];
    assert_eq!(find(&named, &[own]), Some("/t".into()));
}
