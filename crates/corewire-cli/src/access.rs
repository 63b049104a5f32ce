//! The domain that a command works in, and the users that it lets in.

use std::path::Path;
use std::sync::OnceLock;

use corewire::{Access, Domain};
use corewire_os::file::read_regular;

use crate::failure::Failure;

/// The longest file of names of users or groups.
pub(crate) const NAMES_BYTES_MAX: u64 = 64 << 20;

/// The user of `--owner` or `COREWIRE_OWNER`; set once, before the command runs.
static OWNER: OnceLock<u32> = OnceLock::new();

/// Chooses the domain of the user that `--owner` names, or else `COREWIRE_OWNER`. `is_for_guests` is
/// false for a command that creates channels, which a guest cannot do.
pub(crate) fn choose_owner(asked: Option<u32>, is_for_guests: bool) -> Result<(), Failure> {
    let owner = match (asked, is_for_guests) {
        (Some(_), false) => {
            let message = "--owner works with receive, ls, top, metrics, doctor, circuits, routes, trace and the call \
                           of a service: only the owner of a domain creates channels and endpoints in it";
            return Err(Failure::usage(message));
        }
        (None, false) => None,
        (Some(owner), true) => Some(owner),
        (None, true) => match std::env::var_os("COREWIRE_OWNER").filter(|text| !text.is_empty()) {
            None => None,
            Some(text) => {
                let text = text.to_string_lossy();
                let owner = uid(&text);
                Some(owner.map_err(|error| {
                    Failure::usage(format!("COREWIRE_OWNER={}: {error}", text.escape_debug()))
                })?)
            }
        },
    };
    if let Some(owner) = owner {
        OWNER.get_or_init(|| owner);
    }
    Ok(())
}

/// The user whose domain was chosen; `None` if none was.
pub(crate) fn chosen_owner() -> Option<u32> {
    OWNER.get().copied()
}

/// Opens the domain that was chosen.
pub(crate) fn open_domain() -> Result<Domain, Failure> {
    let builder = Domain::builder();
    let builder = match chosen_owner() {
        Some(owner) => builder.owner(owner),
        None => builder,
    };
    Ok(builder.open()?)
}

/// Opens this user's domain, for other users too if there is a rule.
pub(crate) fn open_domain_with(rule: Option<Access>) -> Result<Domain, Failure> {
    let builder = Domain::builder();
    let builder = match rule {
        Some(rule) => builder.access(rule),
        None => builder,
    };
    Ok(builder.open()?)
}

/// Parses the number of a user.
pub(crate) fn uid(text: &str) -> Result<u32, String> {
    // The last one means "none" to the kernel.
    let number = text.parse().ok().filter(|&uid| uid != u32::MAX);
    number.ok_or_else(|| format!("{text:?} is not the number of a user (`id -u` prints it)"))
}

/// Parses an access rule: `group:NAME` or `users:UID,UID`.
pub(crate) fn rule(text: &str) -> Result<Access, String> {
    match text.split_once(':') {
        Some(("group", name)) => group(name).map(Access::Group),
        Some(("users", list)) => {
            list.split(',').map(uid).collect::<Result<_, _>>().map(Access::Users)
        }
        _ => Err("an access rule is group:NAME or users:UID,UID".to_owned()),
    }
}

/// The text of a rule that [`rule`] has parsed.
pub(crate) fn text_of(rule: &Access) -> String {
    match rule {
        Access::Group(gid) => format!("group:{gid}"),
        Access::Users(users) => {
            let users = users.iter().map(ToString::to_string).collect::<Vec<_>>();
            format!("users:{}", users.join(","))
        }
        _ => String::new(),
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
        for text in ["users:1000,1001", "group:77"] {
            assert_eq!(text_of(&rule(text).unwrap()), text);
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
