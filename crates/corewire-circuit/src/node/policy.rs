//! Who may serve and who may reach which names.

use crate::wire::packet::Origin;

/// What a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// To serve a name.
    Export,
    /// To set up a circuit to it.
    Bind,
}

/// One rule: these users and groups may do this with these names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What they may do.
    pub act: Act,
    /// The names: one, or the beginning of some, with `*` behind it.
    pub names: String,
    /// Users; all if neither users nor groups are named.
    pub users: Vec<u32>,
    /// Groups.
    pub groups: Vec<u32>,
}

impl Rule {
    fn covers(&self, act: Act, name: &str) -> bool {
        let matches = match self.names.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == self.names,
        };
        self.act == act && matches
    }

    fn admits(&self, who: Origin) -> bool {
        self.users.is_empty() && self.groups.is_empty()
            || self.users.contains(&who.uid)
            || self.groups.contains(&who.gid)
    }
}

/// All rules. Without a rule for a name, the monitor's own user may do everything with it, and others nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// The monitor's user.
    pub owner: u32,
    /// The rules.
    pub rules: Vec<Rule>,
}

impl Policy {
    /// Whether somebody may do something with a name.
    ///
    /// # Errors
    /// The reason, for them.
    pub fn check(&self, act: Act, name: &str, who: Origin) -> Result<(), String> {
        let mut rules = self.rules.iter().filter(|rule| rule.covers(act, name)).peekable();
        let doing = match act {
            Act::Export => "serve",
            Act::Bind => "reach",
        };
        let Origin { uid, gid, .. } = who;
        if rules.peek().is_none() {
            return match uid == self.owner {
                true => Ok(()),
                false => Err(format!("no rule of the monitor lets user {uid} {doing} {name}")),
            };
        }
        match rules.any(|rule| rule.admits(who)) {
            true => Ok(()),
            false => Err(format!(
                "the monitor's rules do not let user {uid}, group {gid}, {doing} {name}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(uid: u32, gid: u32) -> Origin {
        Origin { uid, gid, pid: 1 }
    }

    #[test]
    fn rules_name_who_may() {
        let rule = |act, names: &str, users: &[u32], groups: &[u32]| Rule {
            act,
            names: names.to_owned(),
            users: users.to_vec(),
            groups: groups.to_vec(),
        };
        let policy = Policy {
            owner: 1000,
            rules: vec![
                rule(Act::Bind, "calc*", &[7], &[50]),
                rule(Act::Bind, "public", &[], &[]),
                rule(Act::Export, "calc", &[8], &[]),
            ],
        };
        let bind = |name, who| policy.check(Act::Bind, name, who);
        assert_eq!(bind("calc.2", who(7, 1)), Ok(()));
        assert_eq!(bind("calc.2", who(9, 50)), Ok(()));
        assert_eq!(bind("public", who(9, 9)), Ok(()));
        assert_eq!(bind("other", who(1000, 1)), Ok(()));
        let reason = "the monitor's rules do not let user 1000, group 1, reach calc";
        assert_eq!(bind("calc", who(1000, 1)).unwrap_err(), reason);
        let reason = "no rule of the monitor lets user 7 reach other";
        assert_eq!(bind("other", who(7, 7)).unwrap_err(), reason);
        assert_eq!(policy.check(Act::Export, "calc", who(8, 8)), Ok(()));
        let reason = "no rule of the monitor lets user 8 serve calc.2";
        assert_eq!(policy.check(Act::Export, "calc.2", who(8, 8)).unwrap_err(), reason);
    }
}
