//! The domain that a command works in, and the users that it lets in.

use std::path::Path;
use std::sync::OnceLock;

use corewire::{Access, Domain};
use corewire_os::directory::default_path_of;
use corewire_os::file::read_regular;
use corewire_os::process::effective_uid;

use crate::failure::Failure;

/// The longest file of names of users or groups.
pub(crate) const NAMES_BYTES_MAX: u64 = 64 << 20;

/// The user of `--owner` or `COREWIRE_OWNER`; set once, before the command runs.
static OWNER: OnceLock<u32> = OnceLock::new();

/// What a command does in a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// It joins channels, calls services or looks, which guests may do, too.
    Joins,
    /// It creates what this says, which only processes of the domain's owner may do.
    Creates(&'static str),
    /// It works in no domain, or makes one of its own.
    Nothing,
}

/// Chooses the domain of the user that `--owner` names, or else `COREWIRE_OWNER`, for the command of this name.
pub(crate) fn choose_owner(asked: Option<u32>, name: &str, does: Use) -> Result<(), Failure> {
    let owner = match (asked, does) {
        (Some(_), Use::Nothing) => {
            let why = "works in no domain of processes that run already, so it has no owner";
            return Err(Failure::usage(format!("--owner: corewire {name} {why}")));
        }
        (Some(owner), Use::Creates(what)) if owner != effective_uid() => {
            return Err(Failure::usage(format!(
                "--owner {owner}: corewire {name} creates {what}, which only processes of user {owner} do in that user's \
                 domain; this one runs as user {}. A guest can receive, look and call services",
                effective_uid()
            )));
        }
        (Some(owner), _) => Some(owner),
        (None, Use::Nothing) => None,
        (None, does) => {
            from_environment()?.filter(|owner| does == Use::Joins || *owner == effective_uid())
        }
    };
    if let Some(owner) = owner {
        OWNER.get_or_init(|| owner);
    }
    Ok(())
}

fn from_environment() -> Result<Option<u32>, Failure> {
    let Some(text) = std::env::var_os("COREWIRE_OWNER").filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    let owner = uid(&text);
    let owner = owner.map_err(|error| format!("COREWIRE_OWNER={}: {error}", text.escape_debug()));
    owner.map(Some).map_err(Failure::usage)
}

/// The user whose domain was chosen; `None` if none was.
pub(crate) fn chosen_owner() -> Option<u32> {
    OWNER.get().copied()
}

/// Opens the domain that was chosen.
pub(crate) fn open_domain() -> Result<Domain, Failure> {
    open_domain_with(None)
}

/// Opens the domain that was chosen, and gives it this rule if there is one.
pub(crate) fn open_domain_with(rule: Option<Access>) -> Result<Domain, Failure> {
    let mut builder = Domain::builder();
    builder = match chosen_owner() {
        // The same directory as other users find, with its rule.
        Some(owner) if owner == effective_uid() => builder.path(&default_path_of(owner)),
        Some(owner) => builder.owner(owner),
        None => builder,
    };
    if let Some(rule) = rule {
        builder = builder.access(rule);
    }
    Ok(builder.open()?)
}

/// Parses the number of a user.
pub(crate) fn uid(text: &str) -> Result<u32, String> {
    // The last one means "none" to the kernel.
    let number = text.parse().ok().filter(|&uid| uid != u32::MAX);
    number.ok_or_else(|| format!("{text:?} is not the number of a user (`id -u` prints it)"))
}

/// Parses an access rule: `owner`, `group:NAME` or `users:UID,UID`.
pub(crate) fn rule(text: &str) -> Result<Access, String> {
    match text.split_once(':') {
        None if text == "owner" => Ok(Access::Owner),
        Some(("group", name)) => group(name).map(Access::Group),
        Some(("users", list)) => {
            list.split(',').map(uid).collect::<Result<_, _>>().map(Access::Users)
        }
        _ => Err("an access rule is owner, group:NAME or users:UID,UID".to_owned()),
    }
}

/// Parses a group: its number, or its name in `/etc/group`.
fn group(name: &str) -> Result<u32, String> {
    if let Ok(gid) = name.parse() {
        return Ok(gid);
    }
    let file = "/etc/group";
    let text = read_regular(Path::new(file), NAMES_BYTES_MAX)
        .map_err(|error| format!("{file}: {error}"))?;
    gid_in(&String::from_utf8_lossy(&text), name)
        .ok_or_else(|| format!("there is no group {name:?} in {file}"))
}

/// The number of group `name` in the text of `/etc/group`.
fn gid_in(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name);
        fields.nth(1).filter(|_| is_it && !name.is_empty())?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        assert_eq!(rule("users:5"), Ok(Access::Users(vec![5])));
        assert_eq!(rule("users:1000,1001"), Ok(Access::Users(vec![1000, 1001])));
        assert_eq!(rule("group:77"), Ok(Access::Group(77)));
        assert_eq!(rule("group:root"), Ok(Access::Group(0)));
        for text in ["owner", "users:1000,1001", "group:77"] {
            assert_eq!(rule(text).unwrap().to_string(), text);
        }
        for bad in ["", "all", "users:", "users:1,", "users:-1", "users:me", "users:4294967295"] {
            assert!(rule(bad).is_err(), "{bad:?}");
        }
        assert!(rule("group:no such group").unwrap_err().contains("no such group"));
        assert!(rule("group:").is_err());
    }

    #[test]
    fn groups_are_found_by_name() {
        let text = "root:x:0:\nstaff:x:50:anna,ben\nbad\n:x:9:\nstaffing:x:51:\n";
        assert_eq!(gid_in(text, "staff"), Some(50));
        assert_eq!(gid_in(text, "staffing"), Some(51));
        assert_eq!(gid_in(text, "bad"), None);
        assert_eq!(gid_in(text, ""), None);
    }
}
