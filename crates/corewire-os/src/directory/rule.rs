//! The access rule of a runtime directory, which its owner's processes follow. It is in the file `rule` there, and the
//! directory's mode and group go with it, so that the kernel keeps out whom it does not admit.

use std::path::Path;

use rustix::fs::{FileType, Gid, Mode, OFlags, Stat, fchmod, fchown, fstat, openat, renameat};
use rustix::io::{Errno, retry_on_intr};

use super::{DirectoryError, RuntimeDirectory};
use crate::access::Access;
use crate::fork::Descriptor;
use crate::process::check_file_size;
use crate::{Doing, OsError, random_u128};

/// The file that holds it.
pub(super) const RULE_FILE: &str = "rule";
/// What a new one is called until it is whole, followed by 32 hexadecimal digits.
const NEW_PREFIX: &str = ".rule.";
/// Begins it.
const MAGIC: &str = "corewire1 ";
/// Its length at most.
const RULE_BYTES_MAX: usize = 64 << 10;

impl RuntimeDirectory {
    /// The rule that the directory has and that its mode allows; `None` if it has none.
    pub(super) fn rule(&self) -> Result<Option<Access>, DirectoryError> {
        let Some(rule) = self.written_rule()? else { return Ok(None) };
        let status = fstat(&self.descriptor).doing("look at the runtime directory")?;
        Ok(Some(rule).filter(|rule| is_allowed_by(rule, &status)))
    }

    fn written_rule(&self) -> Result<Option<Access>, DirectoryError> {
        let foreign = || DirectoryError::ForeignRule { path: self.path.clone(), owner: self.owner };
        let what = || format!("read file {RULE_FILE} of runtime directory {}", self.path.display());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let open = || openat(&self.descriptor, RULE_FILE, flags, Mode::empty());
        let file = match Descriptor::make(|| retry_on_intr(open)) {
            Err(Errno::NOENT) => return Ok(None),
            // A link, or a socket.
            Err(Errno::LOOP | Errno::NXIO) => return Err(foreign()),
            other => other.doing(what())?,
        };
        let status = fstat(&file).doing(what())?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(foreign());
        }
        let mut text = vec![0; RULE_BYTES_MAX + 1];
        let mut bytes = 0;
        loop {
            match retry_on_intr(|| rustix::io::read(&file, &mut text[bytes..])).doing(what())? {
                0 => break,
                more => bytes += more,
            }
        }
        let rule = std::str::from_utf8(&text[..bytes]).ok().and_then(parse);
        rule.map(Some).ok_or_else(foreign)
    }

    /// Gives the directory this rule: a group and a mode, and the file. If that is not possible, it stays as it was.
    pub(super) fn set_rule(&self, rule: &Access) -> Result<(), DirectoryError> {
        // Before others may enter there is a rule, and as long as they may.
        let before = self.written_rule()?;
        if rule.is_open_to_others() {
            self.write_rule(rule)?;
        }
        let set = set_mode(&self.descriptor, &self.path, rule);
        match (&set, &before) {
            (Ok(()), _) if rule.is_open_to_others() => {}
            (Err(_), Some(before)) => self.write_rule(before)?,
            _ => _ = self.remove(RULE_FILE),
        }
        set
    }

    fn write_rule(&self, rule: &Access) -> Result<(), OsError> {
        let text = format!("{MAGIC}{rule}\n");
        let what =
            || format!("write file {RULE_FILE} of runtime directory {}", self.path.display());
        if text.len() > RULE_BYTES_MAX {
            return Err(OsError::new(what(), Errno::FBIG));
        }
        check_file_size(text.len() as u64, RULE_FILE)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        loop {
            let new = format!("{NEW_PREFIX}{:032x}", random_u128()?);
            let open = || openat(&self.descriptor, &new, flags, Mode::RUSR | Mode::WUSR);
            let file = Descriptor::make(|| retry_on_intr(open)).doing(what())?;
            let written = retry_on_intr(|| rustix::io::pwrite(&file, text.as_bytes(), 0));
            let renamed = match written {
                Ok(bytes) if bytes == text.len() => {
                    renameat(&self.descriptor, &new, &self.descriptor, RULE_FILE)
                }
                Ok(_) => Err(Errno::NOSPC),
                Err(errno) => Err(errno),
            };
            match renamed {
                // Another process has swept it, as if this one had died.
                Err(Errno::NOENT) => {}
                Err(errno) => {
                    self.remove(&new);
                    return Err(OsError::new(what(), errno));
                }
                Ok(()) => return Ok(()),
            }
        }
    }
}

/// Whether a file is a rule that was never finished.
pub(super) fn is_new_rule(file: &str) -> bool {
    let digits = file.strip_prefix(NEW_PREFIX);
    digits.is_some_and(|it| it.len() == 32 && it.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether the kernel lets in no more users than the rule admits.
fn is_allowed_by(rule: &Access, status: &Stat) -> bool {
    let more = status.st_mode & 0o077 & !rule.directory_mode();
    more == 0 && !matches!(rule, Access::Group(gid) if *gid != status.st_gid)
}

fn parse(text: &str) -> Option<Access> {
    let rule = text.strip_prefix(MAGIC)?.strip_suffix('\n')?;
    match rule.split_once(':')? {
        ("group", gid) => gid.parse().ok().map(Access::Group),
        ("users", "") => Some(Access::Users(Vec::new())),
        ("users", list) => {
            list.split(',').map(|uid| uid.parse().ok()).collect::<Option<_>>().map(Access::Users)
        }
        _ => None,
    }
}

/// Sets the directory's mode to that of `rule`, and its group if `rule` names one.
fn set_mode(directory: &Descriptor, path: &Path, rule: &Access) -> Result<(), DirectoryError> {
    let look = || fstat(directory).doing("look at the runtime directory");
    let mode_asked = rule.directory_mode();
    let before = look()?;
    let owner = before.st_uid;
    let group_asked = if let Access::Group(gid) = *rule { gid } else { before.st_gid };
    let give = |group: u32, mode: u32| {
        let now = look()?;
        if now.st_gid != group {
            let what = format!("give runtime directory {} to group {group}", path.display());
            let group = Some(Gid::from_raw(group));
            retry_on_intr(|| fchown(directory, None, group)).doing(what)?;
        }
        // A change of the group clears bits of the mode.
        if look()?.st_mode & 0o7777 != mode {
            let what = format!("give runtime directory {} mode {mode:04o}", path.display());
            retry_on_intr(|| fchmod(directory, Mode::from_raw_mode(mode))).doing(what)?;
        }
        Ok::<_, OsError>(())
    };
    if group_asked == u32::MAX {
        // To the kernel this value means "no change".
        return Err(OsError::new(format!("use group {group_asked}"), Errno::INVAL).into());
    }
    let given = give(group_asked, mode_asked);
    // The kernel silently clears the set-group-id bit if the caller does not belong to the group.
    let after = look()?;
    let (group, mode) = (after.st_gid, after.st_mode & 0o7777);
    if given.is_ok() && (group, mode) == (group_asked, mode_asked) {
        return Ok(());
    }
    let _ = give(before.st_gid, before.st_mode & 0o7777);
    given?;
    let path = path.to_owned();
    Err(DirectoryError::Rule { path, owner, group, mode, group_asked, mode_asked })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written() {
        let users = |list: &[u32]| Access::Users(list.to_vec());
        for rule in [Access::Group(7), users(&[]), users(&[1]), users(&[1, 1000, 65534])] {
            assert_eq!(parse(&format!("{MAGIC}{rule}\n")), Some(rule));
        }
        for bad in ["", "users:1\n", "corewire1 users:1", "corewire1 users:x\n", "corewire1 all:\n"]
        {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
