//! Why a runtime directory cannot be used: what is there, whose it is, and what to do.

use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, statat};
use rustix::io::Errno;

use super::word_of;
use crate::OsError;

/// Why a runtime directory cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// It belongs to another user.
    #[error(
        "runtime directory {path:?} belongs to user {owner} and has mode {mode:04o}, {}",
        if expected == user {
            format!(
                "this process runs as user {user}: set COREWIRE_RUNTIME_DIR to a directory of user {user}, or be a \
                 guest of user {owner} (--owner {owner})"
            )
        } else {
            format!("not to user {expected}: set COREWIRE_RUNTIME_DIR to a directory of user {expected}")
        }
    )]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its mode.
        mode: u32,
        /// The expected owner.
        expected: u32,
        /// This process's effective user.
        user: u32,
    },
    /// Its mode is not one that it can be used with.
    #[error("runtime directory {path:?} of user {owner} has mode {mode:04o}: {wrong}")]
    Mode {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its mode.
        mode: u32,
        /// What is wrong with that.
        wrong: WrongMode,
    },
    /// The kernel did not set the group or the mode of an access rule. Both are as they were before.
    #[error(
        "runtime directory {path:?} of user {owner} cannot have group {group_asked} and mode {mode_asked:04o}: the \
         kernel made it group {group} and mode {mode:04o}; name a group to which user {owner} belongs"
    )]
    Rule {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The group that it got.
        group: u32,
        /// The mode that it got.
        mode: u32,
        /// The rule's group.
        group_asked: u32,
        /// The rule's mode.
        mode_asked: u32,
    },
    /// It cannot be made or opened.
    #[error("runtime directory {path:?} cannot be used ({why}): {error}")]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// The call that failed.
        error: OsError,
        /// What is there, and what to do.
        why: String,
    },
    /// Its file `rule` is none of corewire's.
    #[error(
        "file \"rule\" in runtime directory {path:?} of user {owner} is no access rule of corewire's: remove it"
    )]
    ForeignRule {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// `/proc/self/fd`, which corewire needs, does not exist.
    #[error("/proc/self/fd is not there: mount /proc (a chroot needs one of its own)")]
    NoProc,
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// What is wrong with the mode of a runtime directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WrongMode {
    /// Other users may enter or read it, and it has no access rule that says so.
    #[error(
        "other users may read it, and no access rule admits them: chmod 0700 it, or open it with a rule (--access)"
    )]
    OpenWithoutRule,
    /// Other users may write it, so a socket in it may belong to any of them.
    #[error("only its owner may write it: chmod 0700 it")]
    Writable,
    /// Its owner may not read, write or enter it.
    #[error("its owner may not read, write and enter it: chmod 0700 it")]
    Closed,
}

const ELSEWHERE: &str = "set COREWIRE_RUNTIME_DIR to another directory";

impl DirectoryError {
    /// The directory at `path` cannot be made or opened by user `user`, who expects it to be of user `expected`.
    pub(super) fn unusable(path: &Path, error: OsError, user: u32, expected: u32) -> Self {
        let why = why_unusable(path, &error, user, expected);
        Self::Unusable { path: path.to_owned(), error, why }
    }
}

fn why_unusable(path: &Path, error: &OsError, user: u32, expected: u32) -> String {
    let is_guest = user != expected;
    if let Ok(found) = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        let (kind, owner) = (FileType::from_raw_mode(found.st_mode), found.st_uid);
        let mode = found.st_mode & 0o7777;
        return match kind {
            FileType::Directory if is_guest => format!(
                "it belongs to user {owner} and has mode {mode:04o}: user {owner} lets other users in with an access rule \
                 (--access)"
            ),
            FileType::Directory => {
                let is_closed = owner == user && mode & 0o700 != 0o700;
                let open = if is_closed { "chmod 0700 it, or " } else { "" };
                format!("it belongs to user {owner} and has mode {mode:04o}: {open}{ELSEWHERE}")
            }
            FileType::Symlink => format!(
                "it is a symbolic link of user {owner}, and links are not followed: set COREWIRE_RUNTIME_DIR to the \
                 directory itself"
            ),
            kind => {
                let kind = word_of(kind);
                format!(
                    "it is a {kind} of user {owner}, mode {mode:04o}: remove it, or {ELSEWHERE}"
                )
            }
        };
    }
    if is_guest && error.is(Errno::NOENT) {
        return format!(
            "user {expected} has no domain there: name the directory of that user's domain with COREWIRE_RUNTIME_DIR"
        );
    }
    let parents = path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
    let nearest = parents
        .map(|parent| (parent, statat(CWD, parent, AtFlags::empty())))
        .find_map(|(parent, found)| Some((parent, found.ok()?)));
    match nearest {
        Some((parent, found)) => {
            let (owner, mode) = (found.st_uid, found.st_mode & 0o7777);
            let kind = match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => "directory",
                kind => word_of(kind),
            };
            let make = match path.parent() == Some(parent) {
                true => String::new(),
                false => format!("make {:?} first, or ", path.parent().unwrap_or(path)),
            };
            format!(
                "{parent:?} is a {kind} of user {owner} with mode {mode:04o}, and this process runs as user {user}: \
                 {make}{ELSEWHERE}"
            )
        }
        None => ELSEWHERE.to_owned(),
    }
}
