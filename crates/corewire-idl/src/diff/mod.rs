//! What a change of an interface breaks.
//!
//! Two processes with different versions bind if every message that both have is compatible: same ordinal, name, kind,
//! and arguments of equal structure. A change is compatible if old and new processes still understand each other: new
//! messages with ordinals, optional arguments at the end, new values of flexible enums and of errors. Everything else
//! breaks, and binding would fail at run time with the name of the message; this comparison says so before.

mod lists;
mod types;

use serde::Serialize;

use crate::form::{ErrorSet, Interface, Known, Message, Type};

/// Whether old and new processes still understand each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Binding fails, or values are misunderstood.
    Breaks,
    /// Old and new processes work together.
    Compatible,
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChangeKind {
    /// The interface has another name.
    InterfaceRenamed,
    /// A message is new.
    MessageAdded,
    /// A message is gone.
    MessageRemoved,
    /// A message has another name, under the same ordinal.
    MessageRenamed,
    /// A message has another ordinal.
    OrdinalChanged,
    /// A message is of another kind, such as an rpc that was a message.
    KindChanged,
    /// An rpc has errors that had none, or the other way round.
    ErrorsChanged,
    /// An argument, field or arm is new.
    MemberAdded,
    /// An argument, field or arm is gone.
    MemberRemoved,
    /// An argument, field or arm has another name.
    MemberRenamed,
    /// Arguments, fields or arms have another order.
    MembersReordered,
    /// An argument goes the other way.
    DirectionChanged,
    /// A type is another one.
    TypeChanged,
    /// A bound or a number of elements is smaller.
    BoundShrunk,
    /// A bound or a number of elements is larger.
    BoundGrown,
    /// An enum or a set of errors has a new value.
    ValueAdded,
    /// An enum or a set of errors lacks a value.
    ValueRemoved,
    /// A value has another number or another name.
    ValueChanged,
    /// An enum has become flexible, or strict.
    FlexibilityChanged,
    /// A constant has another value or is gone.
    ConstantChanged,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Whether it breaks.
    pub effect: Effect,
    /// What has changed.
    pub kind: ChangeKind,
    /// The thing that has changed: ``message `log` ``.
    pub subject: String,
    /// The change, in one sentence that names the thing.
    pub message: String,
    /// Why it breaks, what it affects, what would be compatible.
    pub notes: Vec<String>,
}

/// All changes between two versions of an interface.
///
/// ```
/// use corewire_idl::{Check, Source, diff};
///
/// let form = |text: &str| Check::new(Source::new("a.if", text)).run().interface.unwrap();
/// let old = form("edition 1; interface a { message m @1 (String s[64]); };");
/// let new = form("edition 1; interface a { message m @1 (String s[32]); event e @2 (); };");
/// let found = diff(&old, &new);
/// assert!(found.breaks());
/// assert_eq!(found.render(),
///     "breaks: argument `s` of message `m`: the bound is 32 and was 64\n  \
///        note: the bound is part of the type: binding fails\n\
///      compatible: message `e` is new\n");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// The changes: of messages in the order of the old version, then what is new, then what lies outside messages.
    pub changes: Vec<Change>,
}

impl Diff {
    /// Whether a change breaks.
    #[must_use]
    pub fn breaks(&self) -> bool {
        self.changes.iter().any(|change| change.effect == Effect::Breaks)
    }

    /// Whether both versions mean the same to every process. Documentation and names of types do not count.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// One line to a change, beginning with `breaks:` or `compatible:`, with its notes below it.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        for change in &self.changes {
            let effect = match change.effect {
                Effect::Breaks => "breaks",
                Effect::Compatible => "compatible",
            };
            text += &format!("{effect}: {}\n", change.message);
            for note in &change.notes {
                text += &format!("  note: {note}\n");
            }
        }
        text
    }
}

/// Compares two versions of an interface.
#[must_use]
pub fn diff(old: &Interface, new: &Interface) -> Diff {
    let known = |form: &Interface| form.known().unwrap_or_default();
    let (old_known, new_known) = (known(old), known(new));
    let changes = Vec::new();
    let mut differ = Differ { old, new, old_known, new_known, seen: Vec::new(), changes };
    differ.interface();
    Diff { changes: differ.changes }
}

struct Differ<'a> {
    old: &'a Interface,
    new: &'a Interface,
    old_known: Known,
    new_known: Known,
    /// Pairs of declared types that have been compared.
    seen: Vec<(&'a str, &'a str)>,
    changes: Vec<Change>,
}

impl<'a> Differ<'a> {
    fn add(
        &mut self,
        effect: Effect,
        kind: ChangeKind,
        subject: &str,
        message: String,
    ) -> &mut Change {
        let (subject, notes) = (subject.to_owned(), Vec::new());
        self.changes.push(Change { effect, kind, subject, message, notes });
        let last = self.changes.len() - 1;
        &mut self.changes[last]
    }

    fn breaks(&mut self, kind: ChangeKind, subject: &str, message: String) -> &mut Change {
        self.add(Effect::Breaks, kind, subject, message)
    }

    fn interface(&mut self) {
        let (old, new) = (self.old, self.new);
        if old.name != new.name {
            let message = format!("interface `{}` is now named `{}`", old.name, new.name);
            let subject = format!("interface `{}`", old.name);
            self.breaks(ChangeKind::InterfaceRenamed, &subject, message)
                .note("processes bind by the name of the interface");
        }
        let mut moved = Vec::new();
        for message in &old.messages {
            match new.message(&message.name) {
                Some(other) => {
                    if message.ordinal != other.ordinal {
                        moved.push((message, other));
                    }
                    self.message(message, other);
                }
                None => self.gone(message),
            }
        }
        self.moved(&moved);
        for message in &new.messages {
            if old.message(&message.name).is_none() {
                self.added(message);
            }
        }
        for set in &old.errors {
            if let Some(other) = new.error_set(&set.name) {
                let subject = format!("errors `{}`", set.name);
                if set.detailed != other.detailed {
                    let now = if other.detailed { "now" } else { "no longer" };
                    let text = format!("{subject} are {now} detailed");
                    self.breaks(ChangeKind::ErrorsChanged, &subject, text)
                        .note("details lie behind the number of an error");
                } else {
                    self.details(set, other);
                }
                self.values(&subject, true, &set.values, &other.values);
            }
        }
        for constant in &old.constants {
            let other = new.constants.iter().find(|other| other.name == constant.name);
            if other.is_none_or(|other| other.value != constant.value) {
                let subject = format!("constant `{}`", constant.name);
                let what = if other.is_some() { "has another value" } else { "is gone" };
                let message = format!("{subject} {what}");
                self.add(Effect::Compatible, ChangeKind::ConstantChanged, &subject, message)
                    .note("constants do not travel; both sides may use different values");
            }
        }
    }

    /// The details of errors that both versions have.
    fn details(&mut self, old: &'a ErrorSet, new: &'a ErrorSet) {
        for error in &old.values {
            if let Some(other) = new.values.iter().find(|other| other.name == error.name) {
                let owner = format!("error `{}.{}`", old.name, error.name);
                self.fields("field", &owner, old.fields_of(error), new.fields_of(other));
            }
        }
    }

    fn gone(&mut self, message: &Message) {
        let subject = format!("message `{}`", message.name);
        let heir = self.new.messages.iter().find(|other| other.ordinal == message.ordinal);
        let heir =
            heir.filter(|heir| heir.explicit_ordinal && self.old.message(&heir.name).is_none());
        if let Some(heir) = heir {
            let text = format!(
                "{subject} is gone, and its ordinal {} is now that of `{}`",
                message.ordinal, heir.name
            );
            self.breaks(ChangeKind::MessageRenamed, &subject, text)
                .note("names are part of the contract, and ordinals are not used again");
            return;
        }
        let text = format!("{subject} is gone");
        self.breaks(ChangeKind::MessageRemoved, &subject, text)
            .note("processes with the old interface still send it");
    }

    /// Without ordinals one insertion moves everything behind it: that is one change.
    fn moved(&mut self, moved: &[(&Message, &Message)]) {
        let Some((first, rest)) = moved.split_first() else { return };
        let (old, new) = first;
        let subject = format!("message `{}`", old.name);
        let others = match rest.len() {
            0 => String::new(),
            1 => format!(", and that of `{}`", rest[0].0.name),
            more => format!(", and those of {more} other messages"),
        };
        let text =
            format!("the ordinal of {subject} is {} and was {}{others}", new.ordinal, old.ordinal);
        let explicit = new.explicit_ordinal;
        let change = self.breaks(ChangeKind::OrdinalChanged, &subject, text);
        if !explicit {
            change.note("without ordinals in the file, the order of messages gives them");
        }
    }

    fn added(&mut self, message: &Message) {
        let subject = format!("message `{}`", message.name);
        let text = format!("{subject} is new");
        if message.explicit_ordinal {
            self.add(Effect::Compatible, ChangeKind::MessageAdded, &subject, text);
        } else {
            self.breaks(ChangeKind::MessageAdded, &subject, text)
                .note("in edition 1, with ordinals, new messages are compatible");
        }
    }

    fn message(&mut self, old: &'a Message, new: &'a Message) {
        let subject = format!("message `{}`", old.name);
        if old.kind != new.kind {
            let text = format!("{subject} is of another kind");
            self.breaks(ChangeKind::KindChanged, &subject, text)
                .note("who may send it, and whether it has a reply, is different");
            return;
        }
        if old.errors.is_some() != new.errors.is_some() {
            let text = match new.errors {
                Some(_) => format!("{subject} can now answer with an error"),
                None => format!("{subject} can no longer answer with an error"),
            };
            self.breaks(ChangeKind::ErrorsChanged, &subject, text)
                .note("the reply has a place for the error only if there can be one");
        }
        if old.stream != new.stream {
            let now = if new.stream { "now" } else { "no longer" };
            let text = format!("{subject} {now} answers with a stream");
            self.breaks(ChangeKind::KindChanged, &subject, text);
            return;
        }
        let is_detailed =
            |form: &Interface, name: &str| form.error_set(name).is_some_and(|set| set.detailed);
        if let (Some(was), Some(is)) = (&old.errors, &new.errors)
            && was != is
            && (is_detailed(self.old, was) || is_detailed(self.new, is))
        {
            let text = format!("{subject} answers with errors `{is}` and did with `{was}`");
            self.breaks(ChangeKind::ErrorsChanged, &subject, text)
                .note("errors with details are compared by the name of their set");
        }
        self.arguments(&subject, old, new);
    }

    fn old_text(&self, of: &Type) -> String {
        self.old_known.text(of)
    }

    fn new_text(&self, of: &Type) -> String {
        self.new_known.text(of)
    }
}

impl Change {
    fn note(&mut self, text: impl Into<String>) -> &mut Self {
        self.notes.push(text.into());
        self
    }
}
