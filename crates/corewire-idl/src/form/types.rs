//! Types in the JSON form.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Builtin;

/// A type where it is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Type {
    /// A built-in type of fixed size.
    Builtin {
        /// Which.
        builtin: Builtin,
    },
    /// A declared type: see [`super::Interface::type_named`].
    Named {
        /// Its name.
        name: String,
    },
    /// UTF-8.
    String {
        /// The largest number of bytes.
        bytes_max: u32,
    },
    /// A number of elements that each message states.
    Vector {
        /// The type of an element. It has a fixed size and no capabilities.
        element: Box<Self>,
        /// The largest number of elements.
        count_max: u32,
    },
    /// A value or nothing.
    Optional {
        /// The type of the value.
        of: Box<Self>,
    },
    /// A right that travels beside the bytes.
    Capability {
        /// Which.
        capability: CapabilityKind,
    },
    /// A channel that delivers values of a type.
    Channel {
        /// The type.
        of: Box<Self>,
    },
    /// A binding to a service of an interface.
    Client {
        /// The interface's name.
        interface: String,
    },
}

/// Rights without a type of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CapabilityKind {
    /// Any descriptor, or none: the sender keeps its own.
    Cap,
    /// Any descriptor, or none: the sender's own is closed once it is sent.
    GiveAwayCap,
    /// A file descriptor (edition 1). Always one: `optional<fd>` allows none.
    Fd,
    /// The address of an endpoint (edition 1).
    Endpoint,
    /// A window, to attach to (edition 1).
    Window,
}

impl CapabilityKind {
    /// The name in interface files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cap => "cap",
            Self::GiveAwayCap => "give_away_cap",
            Self::Fd => "fd",
            Self::Endpoint => "endpoint",
            Self::Window => "window",
        }
    }

    /// Whether there may be none: Barrelfish sends a null capability beside an error.
    #[must_use]
    pub const fn is_nullable(self) -> bool {
        matches!(self, Self::Cap | Self::GiveAwayCap)
    }
}

/// What a declared name stands for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Definition {
    /// Another name for a type.
    Alias {
        /// The type.
        target: Type,
    },
    /// All fields together.
    Struct {
        /// In the order of the file.
        fields: Vec<Field>,
    },
    /// One of its fields. On the wire a tag, the field's index from 0, and room for the largest field.
    Union {
        /// In the order of the file.
        arms: Vec<Field>,
        /// Bytes of the largest arm.
        area_bytes: u32,
    },
    /// One of several values, an `int32` on the wire.
    Enum {
        /// Whether a receiver accepts values that it does not know.
        flexible: bool,
        /// In the order of the file.
        values: Vec<EnumValue>,
    },
    /// A fixed number of elements.
    Array {
        /// The type of an element. It has a fixed size.
        element: Type,
        /// The number of elements.
        count: u32,
    },
}

/// A field of a struct, or an arm of a union.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// The name.
    pub name: String,
    /// Lines of documentation.
    pub docs: Vec<String>,
    /// The type.
    #[serde(rename = "type")]
    pub of: Type,
}

/// A value of an enumeration, or an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnumValue {
    /// The name.
    pub name: String,
    /// Lines of documentation.
    pub docs: Vec<String>,
    /// The value.
    pub value: i32,
}

/// As a file of edition 1 has it: `vector<pair, 4>`.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin { builtin } => f.write_str(builtin.as_str()),
            Self::Named { name } => f.write_str(name),
            Self::String { bytes_max } => write!(f, "String[{bytes_max}]"),
            Self::Vector { element, count_max } => write!(f, "vector<{element}, {count_max}>"),
            Self::Optional { of } => write!(f, "optional<{of}>"),
            Self::Capability { capability } => f.write_str(capability.as_str()),
            Self::Channel { of } => write!(f, "channel<{of}>"),
            Self::Client { interface } => write!(f, "client<{interface}>"),
        }
    }
}
