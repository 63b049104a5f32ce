//! Rust from interfaces: types, a client and a service, on `corewire-bind` alone.
//!
//! | file | makes |
//! |---|---|
//! | `types.rs` | structs, unions, enumerations, arrays, aliases, constants, errors |
//! | `messages.rs` | for each message and its earlier versions: encoding and decoding |
//! | `client.rs`, `asynchronous.rs` | `Client`, and `AsyncClient` for tasks |
//! | `events.rs` | `Event` for what the service sends |
//! | `service.rs`, `server.rs` | the trait `Service`, what calls it, and `Server` |
//! | `replies.rs` | replies, and `Outbox` |
//! | `description.rs` | what both sides compare when they bind, and the JSON form |
//! | `plan.rs` | what all of these know of a message |
//! | `walk/` | the code that stores and reads one message |
//! | `names.rs` | names that Rust accepts |
//! | `round_trip.rs` | tests of all of this |

mod asynchronous;
mod client;
mod description;
mod events;
mod messages;
mod names;
mod plan;
mod replies;
#[cfg(feature = "test-hooks")]
mod round_trip;
mod server;
mod service;
mod types;
mod walk;

#[cfg(feature = "test-hooks")]
pub use self::round_trip::round_trip;

use std::collections::HashMap;

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use self::names::{Names, camel, ident, screaming, snake};
use crate::form::{CapabilityKind, Definition, Interface, Resolved, Type};

/// Why there is no Rust for an interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The generated code is not Rust. Always a mistake in the generator.
    #[error("the code for interface `{interface}` is wrong: {reason}")]
    Invalid {
        /// The interface.
        interface: String,
        /// What the parser says.
        reason: String,
    },
}

/// The module of an interface in Rust, formatted.
///
/// ```
/// use corewire_idl::{Check, Source, rust};
///
/// let text = "interface calc \"\" { rpc twice(in int32 x, out int32 y); };";
/// let (interface, _) = Check::new(Source::new("calc.if", text)).run().into_result().unwrap();
/// let code = rust::generate(&interface).unwrap();
/// assert!(code.contains("pub fn twice(&mut self, x: i32) -> Result<i32, corewire_bind::CallError>"));
/// ```
///
/// # Errors
/// [`GenerateError::Invalid`]: a mistake in the generator.
pub fn generate(interface: &Interface) -> Result<String, GenerateError> {
    let generator = Generator::new(interface);
    let code = [
        generator.types(),
        generator.messages(),
        generator.events(),
        generator.client(),
        generator.asynchronous(),
        generator.service(),
        generator.replies(),
        generator.server(),
        generator.dispatch(),
        generator.description(),
    ];
    let file = syn::parse2::<syn::File>(code.into_iter().collect()).map_err(|error| {
        GenerateError::Invalid { interface: interface.name.clone(), reason: error.to_string() }
    })?;
    let mut text = format!(
        "// Made from interface `{}` by corewire-idl. Changes will be lost.\n\n",
        interface.name
    );
    for item in file.items {
        let one = syn::File { shebang: None, attrs: Vec::new(), items: vec![item] };
        text.push_str(&spaced(&prettyplease::unparse(&one)));
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    Ok(text)
}

/// An empty line between methods.
fn spaced(item: &str) -> String {
    let mut out = String::with_capacity(item.len());
    let mut ended = false;
    for line in item.lines() {
        if ended && line != "}" {
            out.push('\n');
        }
        ended = line == "    }";
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Everything that several items of one interface share: above all the names.
pub(crate) struct Generator<'a> {
    interface: &'a Interface,
    types: HashMap<&'a str, Ident>,
    /// Fields of structs, and variants of unions and enumerations, by both names.
    fields: HashMap<(&'a str, &'a str), Ident>,
    errors: HashMap<&'a str, Ident>,
    constants: HashMap<&'a str, Ident>,
    /// The parts of names of messages: `multiply` and `Multiply`.
    stems: HashMap<&'a str, (String, String)>,
}

/// Names that generated code uses itself, or that would hide what it uses.
const TYPES: &[&str] = &[
    "AsyncClient",
    "Box",
    "Client",
    "Clone",
    "Copy",
    "Debug",
    "Dispatcher",
    "Eq",
    "Err",
    "Event",
    "Hash",
    "None",
    "Ok",
    "Option",
    "Outbox",
    "PartialEq",
    "Result",
    "Self",
    "Server",
    "Service",
    "Some",
    "String",
    "Vec",
    "AsMut",
    "Into",
    "From",
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
    fn new(interface: &'a Interface) -> Self {
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
        Self { interface, types, fields, errors, constants, stems }
    }

    fn type_name(&self, name: &str) -> Ident {
        self.types.get(name).cloned().unwrap_or_else(|| ident(name))
    }

    /// A field or variant of a type.
    fn field(&self, of: &str, name: &str) -> Ident {
        self.fields.get(&(of, name)).cloned().unwrap_or_else(|| ident(name))
    }

    /// The type in Rust, which owns what it has.
    fn owned(&self, of: &Type) -> TokenStream {
        match of {
            Type::Builtin { builtin } => {
                let name = ident(walk::number(*builtin));
                quote!(#name)
            }
            Type::Named { name } => {
                let name = self.type_name(name);
                quote!(#name)
            }
            Type::String { .. } => quote!(String),
            Type::Vector { element, .. } => {
                let element = self.owned(element);
                quote!(Vec<#element>)
            }
            Type::Optional { of } => {
                let of = self.owned(of);
                quote!(Option<#of>)
            }
            Type::Capability { capability: CapabilityKind::Endpoint } => {
                quote!(corewire_bind::EndpointRef)
            }
            Type::Capability { capability } if capability.is_nullable() => {
                quote!(Option<std::os::fd::OwnedFd>)
            }
            Type::Capability { .. } => quote!(std::os::fd::OwnedFd),
            Type::Channel { of } => {
                let of = self.owned(of);
                quote!(corewire_bind::ChannelRef<#of>)
            }
            Type::Client { .. } => quote!(corewire_bind::ServiceRef),
        }
    }

    /// The type of an argument to send: what has a fixed size by value, the rest by reference. What has capabilities
    /// is borrowed for this lifetime.
    fn lent(&self, of: &Type, lifetime: Option<&TokenStream>) -> TokenStream {
        if self.is_fixed(of) {
            return self.owned(of);
        }
        let lent_fd = || match lifetime {
            Some(lifetime) => quote!(std::os::fd::BorrowedFd<#lifetime>),
            None => quote!(std::os::fd::BorrowedFd<'_>),
        };
        match self.interface.resolve(of) {
            Resolved::Plain(Type::String { .. }) => quote!(&str),
            Resolved::Plain(Type::Vector { element, .. }) => {
                let element = self.owned(element);
                quote!(&[#element])
            }
            Resolved::Plain(Type::Optional { of }) => {
                let of = self.lent(of, lifetime);
                quote!(Option<#of>)
            }
            Resolved::Plain(Type::Capability { capability }) if capability.is_nullable() => {
                let of = lent_fd();
                quote!(Option<#of>)
            }
            Resolved::Plain(Type::Capability { capability: CapabilityKind::Fd }) => lent_fd(),
            _ => {
                let lifetime = lifetime.filter(|_| self.has_capabilities(of));
                let of = self.owned(of);
                quote!(&#lifetime #of)
            }
        }
    }

    /// The type of an argument that arrived: strings and bytes stay in the message.
    fn arrived(&self, of: &Type, lifetime: Option<&TokenStream>) -> TokenStream {
        match self.interface.resolve(of) {
            Resolved::Plain(Type::String { .. }) => quote!(&#lifetime str),
            Resolved::Plain(Type::Vector { element, .. }) if walk::is_bytes(self, element) => {
                quote!(&#lifetime [u8])
            }
            Resolved::Plain(Type::Optional { of }) => {
                let of = self.arrived(of, lifetime);
                quote!(Option<#of>)
            }
            _ => self.owned(of),
        }
    }

    /// Whether values have a fixed size, and are `Copy` in Rust.
    fn is_fixed(&self, of: &Type) -> bool {
        match of {
            Type::String { .. }
            | Type::Vector { .. }
            | Type::Capability { .. }
            | Type::Channel { .. }
            | Type::Client { .. } => false,
            Type::Optional { of } => self.is_fixed(of),
            Type::Named { name } => {
                match self.interface.type_named(name).map(|decl| &decl.definition) {
                    Some(
                        Definition::Alias { target } | Definition::Array { element: target, .. },
                    ) => self.is_fixed(target),
                    Some(Definition::Struct { fields }) => {
                        fields.iter().all(|one| self.is_fixed(&one.of))
                    }
                    _ => true,
                }
            }
            Type::Builtin { .. } => true,
        }
    }

    /// What a type with values of these types derives. Rights cannot be copied or compared.
    fn derives<'t>(&self, of: impl Iterator<Item = &'t Type> + Clone) -> TokenStream {
        if of.clone().any(|one| self.has_capabilities(one)) {
            return quote!(#[derive(Debug)]);
        }
        let copy = of.clone().all(|one| self.is_fixed(one)).then(|| quote!(Copy,));
        quote!(#[derive(Debug, Clone, #copy PartialEq, Eq, Hash)])
    }
}

/// Lines of documentation.
fn docs(lines: &[String]) -> TokenStream {
    lines
        .iter()
        .map(|line| {
            let line = format!(" {line}");
            quote!(#[doc = #line])
        })
        .collect()
}

/// The lines of the file, or this one if there are none.
fn docs_or(lines: &[String], otherwise: &str) -> TokenStream {
    if lines.is_empty() { docs(&[otherwise.to_owned()]) } else { docs(lines) }
}
