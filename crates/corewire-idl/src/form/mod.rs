//! The JSON form: the checked interface with everything resolved. Generators, introspection and the comparison of two
//! versions read it. How the arguments of a message lie in its bytes is lowered from it once: see `operations.rs`.
//!
//! ```json
//! { "form": 1, "edition": 0, "name": "calc", "description": "A calculator", "docs": [],
//!   "hash": "16 hexadecimal digits",
//!   "constants": [], "errors": [],
//!   "types": [ { "name": "pair", "kind": "struct", "fields": [ ... ], "layout": { ... }, "hash": "..." } ],
//!   "messages": [ { "name": "multiply", "ordinal": 1, "kind": "rpc", "arguments": [ ... ], "wires": [
//!       { "name": "multiply_call", "role": "call", "direction": "to_service", "layout": { ... } },
//!       { "name": "multiply_reply", "role": "reply", "direction": "to_client", "layout": { ... } } ] } ] }
//! ```
//!
//! What a reader may rely on:
//!
//! - `form` is 1, or 2 if the interface has something that a reader of form 1 would misunderstand: floating-point
//!   numbers; windows; elements of vectors and arrays, or arms of unions, with strings or vectors of their own; errors
//!   with details; streams. New members may appear without a new form: readers ignore members that they do not know.
//! - Order is stable: constants, errors and messages stand in the order of the file; types in the order in which one
//!   can be defined after the other, first those of imports. Equal files give equal bytes.
//! - Types are named where they are used ([`Type::Named`]); `types` contains every name that is used, so an alias
//!   keeps its name in generated code. [`Interface::resolve`] follows names to what they stand for.
//! - `layout`, `hash` and the sizes follow from the rest. [`Interface::from_json`] computes them again and refuses a
//!   form in which they differ: a form that another process gives out can be used after that.
//! - Bounds are numbers: constants have been replaced.

mod builtin;
mod canonical;
mod complete;
mod errors;
mod facts;
mod hash;
mod layout;
mod lowering;
mod operations;
mod text;
mod types;

pub use builtin::Builtin;
pub use errors::{Details, ErrorSet};
pub use hash::Hash;
pub use layout::{
    Capability, Dynamic, INLINE_BYTES, Layout, Leaf, LeafRole, MESSAGE_BYTES_MAX,
    MESSAGE_CAPABILITIES_MAX, MESSAGE_LEAVES_MAX,
};
pub use types::{CapabilityKind, Definition, EnumValue, Field, Type};

pub(crate) use complete::{complete, entry};
pub(crate) use facts::{Facts, Known, NESTING_MAX};
pub(crate) use lowering::{DEPTH_MAX, FormDisagrees, Lowering};
pub(crate) use operations::{LeafPlace, Operation, Operations, Step};

use serde::{Deserialize, Serialize};

/// The newest version of the form. Each interface has the oldest that can say it.
pub const FORM: u32 = 2;

/// A checked interface.
///
/// ```
/// use corewire_idl::{Check, Source, form::Interface};
///
/// let text = "interface calc \"A calculator\" { rpc twice(in int32 x, out int32 y); };";
/// let checked = Check::new(Source::new("calc.if", text)).run();
/// let (interface, _warnings) = checked.into_result().unwrap();
/// let json = interface.to_json();
/// assert_eq!(Interface::from_json(&json).unwrap(), interface);
/// assert_eq!(interface.wires().map(|(_, wire)| wire.name.as_str()).collect::<Vec<_>>(),
///     ["twice_call", "twice_reply"]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// The version of the form: 1, or 2 if it is necessary.
    pub form: u32,
    /// The edition of the interface file.
    pub edition: u32,
    /// The name of the interface.
    pub name: String,
    /// The string behind the name.
    pub description: Option<String>,
    /// Lines of documentation.
    pub docs: Vec<String>,
    /// Structural hash of all messages; see [`Hash`](struct@Hash).
    pub hash: Hash,
    /// Constants.
    pub constants: Vec<Constant>,
    /// Sets of errors.
    pub errors: Vec<ErrorSet>,
    /// Every declared type, and the imported ones that are used.
    pub types: Vec<TypeDecl>,
    /// The messages.
    pub messages: Vec<Message>,
}

/// A declared type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypeDecl {
    /// The name.
    pub name: String,
    /// Lines of documentation.
    pub docs: Vec<String>,
    /// Whether the declaration is in another file.
    pub imported: bool,
    /// What the name stands for.
    #[serde(flatten)]
    pub definition: Definition,
    /// Structural hash; see [`Hash`](struct@Hash).
    pub hash: Hash,
    /// Where a value's parts lie when it stands alone: as an element of a vector, or as the value of a channel. `None`
    /// if it has no fixed size or contains capabilities.
    pub layout: Option<Layout>,
}

/// A named value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constant {
    /// The name.
    pub name: String,
    /// Lines of documentation.
    pub docs: Vec<String>,
    /// An integer type, `bool` or `String`.
    pub builtin: Builtin,
    /// The value.
    pub value: ConstantValue,
}

/// The value of a constant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "neither true or false nor an integer of 64 bits nor a text")]
pub enum ConstantValue {
    /// `true` or `false`.
    Bool(bool),
    /// A number that is not negative.
    Unsigned(u64),
    /// A negative number.
    Signed(i64),
    /// A text.
    String(String),
}

/// What a message is, as its file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// From either side, without an answer.
    Message,
    /// From a client to the service, without an answer.
    Call,
    /// From the service to a client.
    Response,
    /// A request and its reply.
    Rpc,
    /// From the service to a client, at any time.
    Event,
}

impl Kind {
    /// The word in interface files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Call => "call",
            Self::Response => "response",
            Self::Rpc => "rpc",
            Self::Event => "event",
        }
    }
}

/// A message, or an rpc, which is two messages on the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The name.
    pub name: String,
    /// Identifies the message on the wire, from 1. An rpc's request and reply share one; they travel in different
    /// directions.
    pub ordinal: u16,
    /// Whether the file states the ordinal. Otherwise it is the position, and inserting a message changes it.
    pub explicit_ordinal: bool,
    /// What it is.
    pub kind: Kind,
    /// Lines of documentation.
    pub docs: Vec<String>,
    /// Annotations, for generators that know them.
    pub metas: Vec<Meta>,
    /// All arguments, in the order of the file.
    pub arguments: Vec<Argument>,
    /// Whether the answer of the rpc is a stream (form 2): its `out` arguments are those of each part, of which there
    /// is any number, and the reply, without arguments, ends it.
    #[serde(default, skip_serializing_if = "errors::is_false")]
    pub stream: bool,
    /// The name of the errors that the rpc can answer with.
    pub errors: Option<String>,
    /// Structural hash of the whole; see [`Hash`](struct@Hash).
    pub hash: Hash,
    /// What travels: one message; or request, reply, and the parts of a stream.
    pub wires: Vec<Wire>,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Argument {
    /// The name.
    pub name: String,
    /// Lines of documentation.
    pub docs: Vec<String>,
    /// `in` or `out` for arguments of an rpc.
    pub direction: Option<Direction>,
    /// The type.
    #[serde(rename = "type")]
    pub of: Type,
    /// The name that the file gives to the array's length. Generators for C need it.
    pub length_name: Option<String>,
}

/// The direction of an rpc's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the service.
    In,
    /// Back to the caller.
    Out,
}

/// Bytes of parts that a service may send of a stream before the client asks for more. Both sides take it for granted.
pub const STREAM_CREDIT: u64 = 1 << 16;

/// The largest details of an error.
pub const DETAILS_BYTES_MAX: u64 = 4096;

/// An annotation, such as `@ata(command=0xC8)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// What the annotation is for.
    pub name: String,
    /// Its parameters, in order.
    pub parameters: Vec<(String, MetaValue)>,
}

/// The value of an annotation's parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "neither a number from 0 to 2^64 - 1 nor a name")]
pub enum MetaValue {
    /// A number.
    Number(u64),
    /// The name of an argument.
    Name(String),
}

/// What one message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// One way.
    OneWay,
    /// The request of an rpc.
    Call,
    /// The reply of an rpc.
    Reply,
    /// A part of the answer of an rpc whose answer is a stream.
    Part,
}

/// Which way a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// Either way.
    Both,
    /// From a client to the service.
    ToService,
    /// From the service to a client.
    ToClient,
}

/// One message as it travels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wire {
    /// The message's name; an rpc's request and reply are `NAME_call` and `NAME_reply`, the parts of a stream `NAME_part`.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Which way it travels.
    pub direction: Route,
    /// The arguments that travel, as indices into [`Message::arguments`].
    pub arguments: Vec<u16>,
    /// Structural hash of this message alone.
    pub hash: Hash,
    /// Where everything lies.
    pub layout: Layout,
    /// Earlier versions that this one understands, without the optional arguments that have been added at its end;
    /// the longest first.
    pub earlier: Vec<Earlier>,
}

/// A version of a message from before optional arguments were added at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Earlier {
    /// How many of [`Wire::arguments`] it has.
    pub argument_count: u16,
    /// Its hash.
    pub hash: Hash,
    /// Its layout.
    pub layout: Layout,
}

/// Why a text is not the form of an interface.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormError {
    /// Not JSON, or other members than expected.
    #[error("not the JSON form of an interface: {0}")]
    Json(#[from] serde_json::Error),
    /// Another version of the form.
    #[error("the form has version {found}; this version of corewire reads 1 to {FORM}")]
    Version {
        /// The version that it states.
        found: u32,
    },
    /// A type or message that is not possible.
    #[error("`{name}`: {reason}")]
    Impossible {
        /// The type or message.
        name: String,
        /// Why.
        reason: String,
    },
    /// A computed member is not what the rest of the form gives.
    #[error("`{name}`: layout, size or hash is not what its types give")]
    Differs {
        /// The type, message or interface.
        name: String,
    },
}

impl Interface {
    /// The form as JSON, indented, with a line feed at its end.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Only maps with keys that are no strings, and writers, can fail.
        let mut json = serde_json::to_string_pretty(self).unwrap_or_default();
        json.push('\n');
        json
    }

    /// Reads the form, computes layouts and hashes again, and compares them with what it states.
    ///
    /// # Errors
    ///
    /// [`FormError`]: not JSON, another version, impossible types, or computed members that differ.
    pub fn from_json(json: &str) -> Result<Self, FormError> {
        #[derive(Deserialize)]
        struct Version {
            form: u32,
        }
        let Version { form } = serde_json::from_str(json)?;
        if !(1..=FORM).contains(&form) {
            return Err(FormError::Version { found: form });
        }
        let stated: Self = serde_json::from_str(json)?;
        let mut computed = stated.clone();
        complete(&mut computed)?;
        let differs = |name: &str| FormError::Differs { name: name.to_owned() };
        for (left, right) in stated.types.iter().zip(&computed.types) {
            if left != right {
                return Err(differs(&left.name));
            }
        }
        for (left, right) in stated.messages.iter().zip(&computed.messages) {
            if left != right {
                return Err(differs(&left.name));
            }
        }
        if stated != computed {
            return Err(differs(&stated.name));
        }
        Ok(stated)
    }

    /// The declared type of this name.
    #[must_use]
    pub fn type_named(&self, name: &str) -> Option<&TypeDecl> {
        self.types.iter().find(|one| one.name == name)
    }

    /// The message of this name.
    #[must_use]
    pub fn message(&self, name: &str) -> Option<&Message> {
        self.messages.iter().find(|one| one.name == name)
    }

    /// The name of a message that was probably meant by `name`, which no message has.
    #[must_use]
    pub fn message_like(&self, name: &str) -> Option<&str> {
        crate::diagnostics::similar(name, self.messages.iter().map(|one| one.name.as_str()))
    }

    /// The set of errors of this name.
    #[must_use]
    pub fn error_set(&self, name: &str) -> Option<&ErrorSet> {
        self.errors.iter().find(|one| one.name == name)
    }

    /// Every message as it travels, with the message that it belongs to.
    pub fn wires(&self) -> impl Iterator<Item = (&Message, &Wire)> {
        self.messages
            .iter()
            .flat_map(|message| message.wires.iter().map(move |wire| (message, wire)))
    }

    /// What a type stands for: names of aliases are followed until a built-in type, a struct, union, enum, array, or
    /// an unnamed type is reached.
    #[must_use]
    pub fn resolve<'a>(&'a self, of: &'a Type) -> Resolved<'a> {
        let mut of = of;
        // Types are in the order of their use, so that names cannot form a circle; the bound is for forms that were
        // put together by hand.
        for _ in 0..=self.types.len() {
            let Type::Named { name } = of else { break };
            let Some(decl) = self.type_named(name) else { break };
            match &decl.definition {
                Definition::Alias { target } => of = target,
                _ => return Resolved::Declared(decl),
            }
        }
        Resolved::Plain(of)
    }
}

/// What [`Interface::resolve`] found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resolved<'a> {
    /// A struct, union, enum or array.
    Declared(&'a TypeDecl),
    /// A type without a name of its own.
    Plain(&'a Type),
}

impl Wire {
    /// What errors call it, by the name that its author gave it: `add`, `reply to add`, `part of list`.
    #[must_use]
    pub fn title(&self) -> String {
        let named = |ending: &str| self.name.strip_suffix(ending).unwrap_or(&self.name);
        match self.role {
            Role::OneWay => self.name.clone(),
            Role::Call => named("_call").to_owned(),
            Role::Reply => format!("reply to {}", named("_reply")),
            Role::Part => format!("part of {}", named("_part")),
        }
    }
}

impl Message {
    /// The arguments of one of its wires.
    pub fn arguments_of<'a>(&'a self, wire: &'a Wire) -> impl Iterator<Item = &'a Argument> {
        wire.arguments.iter().filter_map(|index| self.arguments.get(usize::from(*index)))
    }
}
