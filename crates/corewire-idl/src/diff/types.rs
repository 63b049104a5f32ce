//! Pairs of types. A declared type that has changed is reported once, with the messages that use it.

use std::collections::HashSet;

use super::{ChangeKind, Differ};
use crate::form::{Definition, Interface, Resolved, Type};

impl<'a> Differ<'a> {
    /// Compares two types; `at` is where they stand: ``argument `x` of message `m` ``.
    pub(super) fn types(&mut self, at: &str, old: &'a Type, new: &'a Type) {
        match (self.old.resolve(old), self.new.resolve(new)) {
            (Resolved::Declared(left), Resolved::Declared(right)) => {
                let pair = (left.name.as_str(), right.name.as_str());
                if !self.seen.contains(&pair) {
                    self.seen.push(pair);
                    self.definitions(pair.0, &left.definition, &right.definition);
                }
            }
            (Resolved::Plain(left), Resolved::Plain(right)) => self.plain(at, left, right),
            _ => self.changed(at, old, new),
        }
    }

    fn plain(&mut self, at: &str, old: &'a Type, new: &'a Type) {
        match (old, new) {
            (Type::String { bytes_max: left }, Type::String { bytes_max: right }) => {
                self.bounds(at, "bound", *left, *right);
            }
            (
                Type::Vector { element: left, count_max: left_max },
                Type::Vector { element: right, count_max: right_max },
            ) => {
                self.bounds(at, "bound", *left_max, *right_max);
                self.types(at, left, right);
            }
            (Type::Optional { of: left }, Type::Optional { of: right })
            | (Type::Channel { of: left }, Type::Channel { of: right }) => {
                self.types(at, left, right);
            }
            _ if self.old_text(old) == self.new_text(new) => {}
            _ => self.changed(at, old, new),
        }
    }

    fn changed(&mut self, at: &str, old: &Type, new: &Type) {
        let text = format!("{at} is {} and was {}", describe(new), describe(old));
        self.breaks(ChangeKind::TypeChanged, at, text);
    }

    fn bounds(&mut self, at: &str, what: &str, old: u32, new: u32) {
        let kind = match new.cmp(&old) {
            std::cmp::Ordering::Less => ChangeKind::BoundShrunk,
            std::cmp::Ordering::Greater => ChangeKind::BoundGrown,
            std::cmp::Ordering::Equal => return,
        };
        let text = format!("{at}: the {what} is {new} and was {old}");
        self.breaks(kind, at, text).note(format!("the {what} is part of the type: binding fails"));
    }

    fn definitions(&mut self, name: &str, old: &'a Definition, new: &'a Definition) {
        let first = self.changes.len();
        let owner = format!("{} `{name}`", kind_of(old));
        match (old, new) {
            (Definition::Struct { fields: left }, Definition::Struct { fields: right }) => {
                self.fields("field", &owner, left, right);
            }
            (Definition::Union { arms: left, .. }, Definition::Union { arms: right, .. }) => {
                self.fields("arm", &owner, left, right);
            }
            (
                Definition::Enum { flexible: was, values: left },
                Definition::Enum { flexible, values: right },
            ) => {
                if was != flexible {
                    let now = if *flexible { "flexible" } else { "strict" };
                    let text = format!("{owner} is now {now}");
                    self.breaks(ChangeKind::FlexibilityChanged, &owner, text);
                }
                self.values(&owner, *was && *flexible, left, right);
            }
            (
                Definition::Array { element: left, count: was },
                Definition::Array { element: right, count },
            ) => {
                self.bounds(&owner, "number of elements", *was, *count);
                self.types(&owner, left, right);
            }
            _ => {
                let text = format!("{owner} is now {} {}", article(new), kind_of(new));
                self.breaks(ChangeKind::TypeChanged, &owner, text);
            }
        }
        let users = users(self.old, name);
        for change in &mut self.changes[first..] {
            let inside = change.subject.ends_with(&format!(" of {owner}"));
            if (change.subject == owner || inside) && !users.is_empty() {
                change.note(format!("used by {}", users.join(", ")));
            }
        }
    }
}

fn kind_of(definition: &Definition) -> &'static str {
    match definition {
        Definition::Alias { .. } => "alias",
        Definition::Struct { .. } => "struct",
        Definition::Union { .. } => "union",
        Definition::Enum { .. } => "enum",
        Definition::Array { .. } => "array",
    }
}

fn article(definition: &Definition) -> &'static str {
    match definition {
        Definition::Struct { .. } | Definition::Union { .. } => "a",
        _ => "an",
    }
}

/// The messages that use a type, itself or in other types. At most five are named.
fn users(interface: &Interface, name: &str) -> Vec<String> {
    let mut containing = HashSet::from([name]);
    // A type stands behind those that it uses.
    for decl in &interface.types {
        let parts = match &decl.definition {
            Definition::Alias { target: of } | Definition::Array { element: of, .. } => vec![of],
            Definition::Struct { fields } | Definition::Union { arms: fields, .. } => {
                fields.iter().map(|field| &field.of).collect()
            }
            Definition::Enum { .. } => Vec::new(),
        };
        if parts.into_iter().any(|of| contains(of, &containing)) {
            containing.insert(&decl.name);
        }
    }
    let using = interface.messages.iter().filter(|message| {
        message.arguments.iter().any(|argument| contains(&argument.of, &containing))
    });
    let mut names = using.map(|message| format!("`{}`", message.name)).collect::<Vec<_>>();
    if names.len() > 5 {
        let more = names.len() - 4;
        names.truncate(4);
        names.push(format!("and {more} more"));
    }
    names
}

fn contains(of: &Type, names: &HashSet<&str>) -> bool {
    match of {
        Type::Named { name } => names.contains(name.as_str()),
        Type::Vector { element: of, .. } | Type::Optional { of } | Type::Channel { of } => {
            contains(of, names)
        }
        _ => false,
    }
}

/// A type as a file would have it.
fn describe(of: &Type) -> String {
    format!("`{of}`")
}
