//! Which names are parts of something that a user has named: `orders.member.0` of the group `orders`, `shop.rings` of the
//! service `shop`. Lists for people leave them out unless all are asked for.

use std::collections::BTreeSet;

use corewire_circuit::wire::monitor_of_name;

use crate::seen::Seen;

/// What has parts.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    services: BTreeSet<String>,
    groups: BTreeSet<String>,
}

impl Owners {
    pub(crate) fn of(seen: &Seen) -> Self {
        let silent = seen.silent.iter().filter(|silent| silent.kind.is_service);
        let silent = silent.map(|silent| silent.name.clone());
        let services = seen.services.iter().map(|service| service.view.name.clone());
        let groups = seen.groups.iter().map(|group| group.name.clone());
        Self { services: services.chain(silent).collect(), groups: groups.collect() }
    }

    /// The service, channel, group or monitor that `name` is a part of; `None` for a name of its own.
    pub(crate) fn of_part(&self, name: &str) -> Option<String> {
        if let Some((channel, _relay)) = name.split_once('@') {
            return Some(channel.to_owned());
        }
        let (owner, last) = name.rsplit_once('.')?;
        // Names of clients end with a random number.
        let is_drawn = last.len() == 16 && last.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_of_service = last == "rings" && self.services.contains(owner);
        let is_of_monitor = matches!(last, "rings" | "trunk") && monitor_of_name(owner).is_some();
        if is_drawn || is_of_service || is_of_monitor {
            return Some(owner.to_owned());
        }
        self.groups.iter().find(|group| is_of_group(name, group)).cloned()
    }
}

/// Whether `name` is the channel of a group, its door, or an endpoint of a member or client.
fn is_of_group(name: &str, group: &str) -> bool {
    let rest = name.strip_prefix(group).and_then(|rest| rest.strip_prefix('.'));
    let is_part = |rest: &str| {
        matches!(rest, "log" | "door")
            || ["member.", "client."].iter().any(|kind| rest.starts_with(kind))
    };
    rest.is_some_and(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_from_names_that_users_gave() {
        let one = |name: &str| BTreeSet::from([name.to_owned()]);
        let owners = Owners { services: one("shop"), groups: one("orders") };
        for (name, owner) in [
            ("shop.rings", "shop"),
            ("shop.0123456789abcdef", "shop"),
            ("orders.log", "orders"),
            ("orders.door", "orders"),
            ("orders.member.12", "orders"),
            ("orders.member.1.with.77", "orders"),
            ("monitor.0.trunk", "monitor.0"),
            ("circuits.00112233445566aa", "circuits"),
            ("prices@3", "prices"),
        ] {
            assert_eq!(owners.of_part(name).as_deref(), Some(owner), "{name}");
        }
        for name in
            ["shop", "other.rings", "other.log", "monitor.0", "orders", "a.0123", "orders.x"]
        {
            assert_eq!(owners.of_part(name), None, "{name}");
        }
    }
}
