//! Messages from JSON, and JSON from messages, by an interface that is known only at run time.
//!
//! The bytes are those of generated code: [`form::Layout`](crate::form::Layout) says where everything lies. Nothing is
//! opened, sent or received here.
//!
//! ```
//! use corewire_idl::{Check, Source, json};
//! use serde_json::json;
//!
//! let text = "interface log \"\" { message write(uint8 level, String line[256]); };";
//! let (interface, _) = Check::new(Source::new("log.if", text)).run().into_result().unwrap();
//! let write = interface.message("write").unwrap();
//!
//! let arguments = json!({ "level": 2, "line": "hello" });
//! let encoded = json::encode(&interface, write, &write.wires[0], &arguments).unwrap();
//! assert_eq!(encoded.bytes, b"\x05\0\0\0\x02hello");
//! assert_eq!(json::decode(&interface, write, &write.wires[0], &encoded.bytes).unwrap(), arguments);
//!
//! let wrong = json::encode(&interface, write, &write.wires[0], &json!({ "level": 256, "line": "" }));
//! assert_eq!(wrong.unwrap_err().to_string(), "write: level: 256 is out of range: uint8 is from 0 to 255");
//! ```
//!
//! | type | accepted | decoded |
//! |---|---|---|
//! | integers | a number, or a string: `"123"`, `"-5"`, `"0x7b"` | a number |
//! | `float32`, `float64` | a number, `"NaN"`, `"Infinity"`, `"-Infinity"`, `{"bits": "0x7fa00001"}` | the same; bits for a NaN of other bits than Rust's |
//! | `bool` | `true`, `false` | the same |
//! | `char` | a number, or a string of one ASCII character | a string if it can be shown |
//! | `String` | a string | the same |
//! | arrays of `uint8` | `{"hex": "00ff"}`, `{"base64": "AP8="}`, a string (its UTF-8), numbers | hex |
//! | arrays of `char` | the same | a string if it is text, otherwise hex |
//! | other arrays | an array | the same |
//! | `struct` | an object, or an array of all fields in the order of the file | an object |
//! | `union` | an object with one arm: `{"circle": 5}` | the same |
//! | `enum` | the name of a value, or its number | the name; the number if a flexible enum has none |
//! | `optional<T>` | `T`, or `null`, or nothing | `T` or `null` |
//! | capabilities | a path or a name, `{"fd": 0}`, `{"path": "/file"}`, `{"capability": 0}` | `{"capability": 0}` |
//!
//! Vectors are as arrays. A string for a fixed array of `char` may be shorter: zeros follow, which are not decoded.
//!
//! Arguments are an object, or an array in the order of the file. Optional arguments may be missing. The reply of an rpc
//! that failed is `{"error": "NOT_FOUND"}`, with the number instead of the name if the error is unknown, and
//! `{"error": {"NOT_FOUND": {"name": "x"}}}` if it has details. If an argument is called `error`, the error is called
//! `error_`.

mod bytes;
mod decode;
mod encode;
mod error;
mod floats;
mod location;
mod values;

pub use error::{JsonError, JsonProblem};

use serde_json::Value;

use crate::form::{
    EnumValue, ErrorSet, FormDisagrees, Interface, Message, Operations, Role, Type, Wire,
};

/// A message that can be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Encoded {
    /// The message.
    pub bytes: Vec<u8>,
    /// What travels beside it, in this order.
    pub capabilities: Vec<CapabilityUse>,
}

/// A capability that the caller has to send beside the bytes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CapabilityUse {
    /// The argument, such as `files[1].log`.
    pub path: String,
    /// What it is: a capability, channel or client.
    pub of: Type,
    /// Where it comes from.
    pub source: CapabilitySource,
}

impl Eq for CapabilityUse {}

/// Where a capability comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CapabilitySource {
    /// A descriptor that is open.
    Descriptor(i32),
    /// A file to open.
    Path(String),
    /// One of those that came with a message: see [`decode`].
    Received(u32),
}

/// The bytes of a message with these arguments.
///
/// # Errors
/// [`JsonError`]: arguments that are missing, unknown, of another type or out of range.
pub fn encode(
    interface: &Interface,
    message: &Message,
    wire: &Wire,
    arguments: &Value,
) -> Result<Encoded, JsonError> {
    encode::encode(&Plan::new(interface, message, wire)?, arguments)
}

/// The arguments of a message that arrived. A capability is its index among those that came beside the bytes.
///
/// The bytes may be hostile. They are accepted if generated code accepts them. Memory is in proportion to their number.
///
/// # Errors
/// [`JsonError`]: a wrong length, or a value that its type does not have.
pub fn decode(
    interface: &Interface,
    message: &Message,
    wire: &Wire,
    bytes: &[u8],
) -> Result<Value, JsonError> {
    decode::decode(&Plan::new(interface, message, wire)?, bytes)
}

/// The error in a reply that was decoded, if it has one instead of results.
#[must_use]
pub fn error<'v>(message: &Message, wire: &Wire, reply: &'v Value) -> Option<&'v Value> {
    if message.errors.is_none() || wire.role != Role::Reply {
        return None;
    }
    let names = message.arguments_of(wire).map(|one| one.name.as_str());
    reply.get(error_key(&names.collect::<Vec<_>>()))
}

/// The name that the error has among these arguments.
fn error_key(arguments: &[&str]) -> String {
    let mut key = "error".to_owned();
    while arguments.contains(&key.as_str()) {
        key.push('_');
    }
    key
}

/// What both directions need to know of a message.
struct Plan<'a> {
    /// What errors call the message.
    title: String,
    /// Of all arguments.
    operations: Operations<'a>,
    /// The errors with which a reply can end instead.
    errors: Option<Errors<'a>>,
}

struct Errors<'a> {
    /// `None` for a form that was put together by hand.
    set: Option<&'a ErrorSet>,
    /// The name that the error has among the arguments.
    key: String,
    /// Whether details follow.
    detailed: bool,
    /// Those of the errors that have some, by their values.
    details: Vec<(i32, Operations<'a>)>,
}

impl<'a> Errors<'a> {
    fn values(&self) -> &'a [EnumValue] {
        self.set.map(|set| set.values.as_slice()).unwrap_or_default()
    }

    fn details(&self, error: i32) -> Option<&Operations<'a>> {
        self.details.iter().find(|(value, _)| *value == error).map(|(_, details)| details)
    }
}

impl<'a> Plan<'a> {
    fn new(
        interface: &'a Interface,
        message: &'a Message,
        wire: &'a Wire,
    ) -> Result<Self, JsonError> {
        let arguments = message.arguments_of(wire).map(|one| (one.name.as_str(), &one.of));
        let arguments = arguments.collect::<Vec<_>>();
        let set = message.errors.as_ref().filter(|_| wire.role == Role::Reply);
        let (lowering, title) = (interface.lowering(), wire.title());
        let errors = set.map(|set| {
            let names = arguments.iter().map(|(name, _)| *name).collect::<Vec<_>>();
            let set = interface.error_set(set);
            let detailed = set.is_some_and(|set| set.detailed);
            let values = set.map(|set| set.values.as_slice()).unwrap_or_default();
            let details = values.iter().filter_map(|one| Some((one.value, set?.details_of(one)?)));
            let details = details.map(|(value, details)| {
                let fields = details.fields.iter().map(|field| (field.name.as_str(), &field.of));
                Ok((value, lowering.operations(false, fields)?))
            });
            let details = details.collect::<Result<_, FormDisagrees>>()?;
            Ok::<_, FormDisagrees>(Errors { set, key: error_key(&names), detailed, details })
        });
        let errors = location::Location::message(&title).checked(errors.transpose())?;
        let operations = lowering.operations(errors.is_some(), arguments);
        // A form that was put together by hand may not agree with itself.
        let agrees = |one: &Operations<'_>| one.layout.fixed_bytes == wire.layout.fixed_bytes;
        match operations.ok().filter(agrees) {
            Some(operations) => Ok(Self { title, operations, errors }),
            None => location::Location::message(&title).fail(JsonProblem::Form),
        }
    }
}

impl From<FormDisagrees> for JsonProblem {
    fn from(_: FormDisagrees) -> Self {
        Self::Form
    }
}
