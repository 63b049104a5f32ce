//! What all files that make Rust share: above all the names.

use std::collections::HashMap;

use proc_macro2::Ident;

use super::names::{Names, camel, ident, screaming, snake};
use crate::form::{Builtin, Definition, Facts, Interface, Known, Resolved, Type};

/// Everything that several items of one interface share: above all the names.
pub(crate) struct Generator<'a> {
    pub(super) interface: &'a Interface,
    /// Sizes of types.
    known: Known,
    pub(super) types: HashMap<&'a str, Ident>,
    /// Fields of structs, and variants of unions and enumerations, by both names.
    pub(super) fields: HashMap<(&'a str, &'a str), Ident>,
    pub(super) errors: HashMap<&'a str, Ident>,
    pub(super) constants: HashMap<&'a str, Ident>,
    /// The parts of names of messages: `multiply` and `Multiply`.
    pub(super) stems: HashMap<&'a str, (String, String)>,
}

/// Names that generated code uses itself, or that would hide what it uses: the prelude is hidden by a type of the module,
/// and with a trait the methods that it gives.
#[rustfmt::skip]
const TYPES: &[&str] = &[
    "AsyncClient", "Client", "Dispatcher", "Event", "Outbox", "Server", "Service",
    "AsMut", "AsRef", "Box", "Clone", "Copy", "Debug", "Default", "DoubleEndedIterator", "Drop", "Eq", "Err",
    "ExactSizeIterator", "Extend", "Fn", "FnMut", "FnOnce", "From", "FromIterator", "Future", "Hash", "Into", "IntoFuture",
    "IntoIterator", "Iterator", "None", "Ok", "Option", "Ord", "PartialEq", "PartialOrd", "Result", "Self", "Send",
    "Sized", "Some", "String", "Sync", "ToOwned", "ToString", "TryFrom", "TryInto", "Unpin", "Vec",
];
const METHODS: &[&str] = &[
    "as_mut",
    "bind",
    "binding",
    "bound",
    "event",
    "event_timeout",
    "flush",
    "gone",
    "not_taken",
    "progress",
    "try_event",
    "wait",
];

impl<'a> Generator<'a> {
    pub(super) fn new(interface: &'a Interface) -> Self {
        let mut names = Names::reserved(TYPES);
        let mut types = HashMap::new();
        let mut fields = HashMap::new();
        for decl in &interface.types {
            let name = decl.name.as_str();
            types.insert(name, names.give(&camel(name)));
            let mut own = Names::default();
            match &decl.definition {
                Definition::Struct { fields: all } => fields.extend(
                    all.iter().map(|one| ((name, one.name.as_str()), own.give(&snake(&one.name)))),
                ),
                Definition::Union { arms, .. } => fields.extend(
                    arms.iter().map(|one| ((name, one.name.as_str()), own.give(&camel(&one.name)))),
                ),
                Definition::Enum { values, .. } => {
                    let mut own = Names::reserved(&["Unknown", "Self"]);
                    fields.extend(
                        values
                            .iter()
                            .map(|one| ((name, one.name.as_str()), own.give(&camel(&one.name)))),
                    );
                }
                _ => {}
            }
        }
        let mut errors = HashMap::new();
        for set in &interface.errors {
            let mut own = Names::reserved(&["Unknown", "Self"]);
            errors.insert(set.name.as_str(), names.give(&camel(&set.name)));
            fields.extend(
                set.values.iter().map(|one| {
                    ((set.name.as_str(), one.name.as_str()), own.give(&camel(&one.name)))
                }),
            );
        }
        let mut stems = HashMap::new();
        let mut methods = Names::reserved(METHODS);
        let forms: &[fn(&str) -> String] = &[
            str::to_owned,
            |stem| format!("{stem}_timeout"),
            |stem| format!("{stem}_to_all"),
            |stem| format!("try_{stem}"),
            |stem| format!("start_{stem}"),
            |stem| format!("{stem}_then"),
        ];
        let kinds: &[fn(&str) -> String] = &[
            |stem| format!("{stem}Output"),
            |stem| format!("{stem}Reply"),
            |stem| format!("{stem}LaterReply"),
            str::to_owned,
        ];
        for message in &interface.messages {
            let method = methods.give_all(&snake(&message.name), forms);
            let kind = names.give_all(&camel(&message.name), kinds);
            stems.insert(message.name.as_str(), (method, kind));
        }
        let mut names = Names::reserved(&["DESCRIPTION", "FORM"]);
        let constants = interface.constants.iter();
        let constants =
            constants.map(|one| (one.name.as_str(), names.give(&screaming(&one.name)))).collect();
        // Only a form that was put together by hand can be wrong.
        let known = interface.known().unwrap_or_default();
        Self { interface, known, types, fields, errors, constants, stems }
    }

    pub(super) fn type_name(&self, name: &str) -> Ident {
        self.types.get(name).cloned().unwrap_or_else(|| ident(name))
    }

    /// A field or variant of a type.
    pub(super) fn field(&self, of: &str, name: &str) -> Ident {
        self.fields.get(&(of, name)).cloned().unwrap_or_else(|| ident(name))
    }

    fn facts(&self, of: &Type) -> Facts {
        self.known.facts(of).unwrap_or_default()
    }

    /// Whether values have a fixed size, and are `Copy` in Rust.
    pub(super) fn is_fixed(&self, of: &Type) -> bool {
        self.facts(of).is_plain()
    }

    /// Whether there are floating-point numbers in the values, which have no `Eq` and no `Hash`.
    pub(super) fn has_floats(&self, of: &Type) -> bool {
        self.facts(of).has_floats
    }

    pub(super) fn has_capabilities(&self, of: &Type) -> bool {
        self.facts(of).capabilities > 0
    }

    /// Whether elements of this type are plain bytes, which stay in the message.
    pub(super) fn is_byte(&self, of: &Type) -> bool {
        let is_byte = |builtin: &Builtin| matches!(builtin, Builtin::Uint8 | Builtin::Char);
        matches!(self.interface.resolve(of), Resolved::Plain(Type::Builtin { builtin }) if is_byte(builtin))
    }
}
