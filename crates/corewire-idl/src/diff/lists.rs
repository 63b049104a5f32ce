//! Lists of things with names: arguments, fields, arms, values.

use std::collections::{HashMap, HashSet};

use super::{ChangeKind, Differ, Effect};
use crate::form::{EnumValue, Field, Message, Type};

/// The name and type of an argument, field or arm.
pub(super) type Member<'a> = (&'a str, &'a Type);

/// What a list is a list of.
#[derive(Clone, Copy)]
pub(super) struct Of<'a> {
    /// `argument`, `field` or `arm`.
    pub(super) what: &'a str,
    /// What the list belongs to: ``message `log` ``.
    pub(super) owner: &'a str,
    /// Whether optional members at the end may be added.
    pub(super) grows: bool,
}

impl<'a> Differ<'a> {
    /// Request and reply are messages of their own, so their arguments are compared apart.
    pub(super) fn arguments(&mut self, owner: &str, old: &'a Message, new: &'a Message) {
        let mut turned = HashSet::new();
        for argument in &old.arguments {
            let others = new.arguments.iter().filter(|other| other.name == argument.name);
            let others = others.map(|other| other.direction).collect::<Vec<_>>();
            let alone = old.arguments.iter().filter(|one| one.name == argument.name).count() == 1;
            if alone && others.len() == 1 && others[0] != argument.direction {
                turned.insert(argument.name.as_str());
                let text = format!("argument `{}` of {owner} goes the other way", argument.name);
                self.breaks(ChangeKind::DirectionChanged, owner, text);
            }
        }
        let directions = old.arguments.iter().chain(&new.arguments).map(|one| one.direction);
        let mut done = Vec::new();
        for direction in directions {
            if done.contains(&direction) {
                continue;
            }
            done.push(direction);
            let members = |message: &'a Message| {
                let chosen = message.arguments.iter().filter(|one| one.direction == direction);
                let chosen = chosen.filter(|one| !turned.contains(one.name.as_str()));
                chosen.map(|one| (one.name.as_str(), &one.of)).collect::<Vec<Member<'a>>>()
            };
            let grows = self.new.edition > 0;
            self.members(Of { what: "argument", owner, grows }, &members(old), &members(new));
        }
    }

    pub(super) fn fields(&mut self, what: &str, owner: &str, old: &'a [Field], new: &'a [Field]) {
        let members = |fields: &'a [Field]| {
            fields.iter().map(|field| (field.name.as_str(), &field.of)).collect::<Vec<_>>()
        };
        self.members(Of { what, owner, grows: false }, &members(old), &members(new));
    }

    fn members(&mut self, of: Of<'_>, old: &[Member<'a>], new: &[Member<'a>]) {
        let Of { what, owner, grows } = of;
        let in_old = old.iter().map(|(name, of)| (*name, *of)).collect::<HashMap<_, _>>();
        let in_new = new.iter().map(|(name, of)| (*name, *of)).collect::<HashMap<_, _>>();
        let mut renamed = HashSet::new();
        for (at, (name, of)) in old.iter().enumerate() {
            if let Some(other) = in_new.get(name) {
                self.types(&format!("{what} `{name}` of {owner}"), of, other);
                continue;
            }
            let heir = new.get(at).filter(|(heir, other)| {
                !in_old.contains_key(heir) && self.old_text(of) == self.new_text(other)
            });
            if let Some((heir, _)) = heir {
                renamed.insert(*heir);
                let text = format!("{what} `{name}` of {owner} is now named `{heir}`");
                self.breaks(ChangeKind::MemberRenamed, owner, text).note(
                    "names are part of the hash: otherwise two of one type could change places unseen",
                );
            } else {
                let text = format!("{what} `{name}` of {owner} is gone");
                self.breaks(ChangeKind::MemberRemoved, owner, text);
            }
        }
        let common = |list: &[Member<'a>], other: &HashMap<&str, &Type>| {
            let names = list.iter().map(|(name, _)| *name).filter(|name| other.contains_key(name));
            names.collect::<Vec<_>>()
        };
        if common(old, &in_new) != common(new, &in_old) {
            let text = format!("the {what}s of {owner} have another order");
            self.breaks(ChangeKind::MembersReordered, owner, text);
        }
        let last_old = new.iter().rposition(|(name, _)| in_old.contains_key(name));
        for (at, (name, of)) in new.iter().enumerate() {
            if in_old.contains_key(name) || renamed.contains(name) {
                continue;
            }
            let text = format!("{what} `{name}` of {owner} is new");
            let behind = last_old.is_none_or(|last| at > last);
            if grows && behind && matches!(of, Type::Optional { .. }) {
                self.add(Effect::Compatible, ChangeKind::MemberAdded, owner, text)
                    .note("old processes neither send it nor see it");
            } else {
                let change = self.breaks(ChangeKind::MemberAdded, owner, text);
                if grows {
                    change.note("optional arguments behind all others are compatible");
                }
            }
        }
    }

    /// The values of an enumeration or of a set of errors.
    pub(super) fn values(
        &mut self,
        owner: &str,
        flexible: bool,
        old: &[EnumValue],
        new: &[EnumValue],
    ) {
        let effect = if flexible { Effect::Compatible } else { Effect::Breaks };
        for value in old {
            let same_name = new.iter().find(|other| other.name == value.name);
            let same_number = new.iter().find(|other| other.value == value.value);
            let (name, number) = (&value.name, value.value);
            match (same_name, same_number) {
                (Some(other), _) if other.value == number => {}
                (Some(other), _) => {
                    let text = format!("`{name}` of {owner} is {} and was {number}", other.value);
                    self.breaks(ChangeKind::ValueChanged, owner, text);
                }
                (None, Some(other)) => {
                    let text = format!("{number} of {owner} is `{}` and was `{name}`", other.name);
                    self.breaks(ChangeKind::ValueChanged, owner, text);
                }
                (None, None) => {
                    let text = format!("value `{name}` of {owner} is gone");
                    let change = self.add(effect, ChangeKind::ValueRemoved, owner, text);
                    if flexible {
                        change.note(format!("new processes see {number} as an unknown value"));
                    }
                }
            }
        }
        for value in new {
            let known = |other: &&EnumValue| other.name == value.name || other.value == value.value;
            if old.iter().any(|other| known(&other)) {
                continue;
            }
            let text = format!("value `{}` of {owner} is new", value.name);
            let change = self.add(effect, ChangeKind::ValueAdded, owner, text);
            if flexible {
                change.note(format!("old processes see {} as an unknown value", value.value));
            } else {
                change.note("new values of a flexible enum are compatible");
            }
        }
    }
}
