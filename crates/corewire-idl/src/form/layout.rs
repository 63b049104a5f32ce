//! Where the parts of a message lie.
//!
//! Arguments are taken apart into leaves: integers and the like. Leaves lie one behind the other, those of eight bytes
//! first, then those of four, two and one, otherwise in the order of the file: without padding, and each aligned to
//! its size if the message is. (A union's bytes are one leaf of bytes: its arms are not aligned.) All are
//! little-endian. The length of a string or vector is a leaf of 32 bits; its bytes lie behind the fixed part, in the
//! order of the file. Capabilities travel beside the bytes, in the order of [`Layout::capabilities`].
//!
//! An element of a vector is laid out as a message is. Elements without strings and vectors have a fixed size and lie
//! one behind the other. Of others, each is its fixed part, and behind that its own strings and vectors, recursively.
//! So is the arm of a union: its fixed part is in the area, and its strings and vectors stand where the union does.
//!
//! Papers/003 (section 5.2) measured what other layouts cost: Flounder's grow by fragments and by 64-bit lengths.

use serde::{Deserialize, Serialize};

use super::{Builtin, Type};

/// Arguments that fit into one line of shared memory: the payload of a slot.
pub const INLINE_BYTES: u32 = 48;

/// The largest message, with every string and vector at its bound.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 30;

/// The largest number of leaves in a message.
pub const MESSAGE_LEAVES_MAX: u64 = 4096;

/// The largest number of capabilities in a message: what Linux passes in one call.
pub const MESSAGE_CAPABILITIES_MAX: u64 = 253;

/// Where everything in a message, or in a value of a declared type, lies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// Bytes of all leaves.
    pub fixed_bytes: u32,
    /// Bytes with every string and vector at its bound. In a reply also those of an error with its details.
    pub bytes_max: u32,
    /// Whether the whole message always fits into [`INLINE_BYTES`].
    pub inline: bool,
    /// The fixed part, in the order of offsets.
    pub leaves: Vec<Leaf>,
    /// What lies behind the fixed part, in this order. Within an array of structs the order is that of the elements.
    pub dynamics: Vec<Dynamic>,
    /// What travels beside the bytes.
    pub capabilities: Vec<Capability>,
}

impl Layout {
    /// The leaf of an argument or field that holds its value, its length, and so on.
    #[must_use]
    pub fn leaf(&self, path: &str, role: LeafRole) -> Option<&Leaf> {
        self.leaves.iter().find(|leaf| leaf.role == role && leaf.path == path)
    }

    /// Bytes of strings and vectors at their bounds.
    pub(crate) const fn bytes_behind(&self) -> u32 {
        self.bytes_max.saturating_sub(self.fixed_bytes)
    }
}

/// A number, or an array of numbers, at a fixed place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leaf {
    /// Argument and fields: `p.left`; `points[].x` for the array of all `x` of an array of structs.
    pub path: String,
    /// What the number is.
    pub role: LeafRole,
    /// Its type.
    pub builtin: Builtin,
    /// 1, or the number of elements of an array; of nested arrays the product, the outermost index varying slowest.
    pub count: u32,
    /// The first byte.
    pub offset: u32,
}

impl Leaf {
    /// Bytes of all elements.
    #[must_use]
    pub const fn bytes(&self) -> u32 {
        self.builtin.bytes().saturating_mul(self.count)
    }
}

/// What a leaf holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LeafRole {
    /// A value of the built-in type.
    Value,
    /// A value of an enumeration.
    Enum,
    /// The number of elements of a vector, or of bytes of a string.
    Length,
    /// 1 if the optional value, or the capability that may be none, is there. The leaves of an absent value are 0.
    Present,
    /// The index of a union's arm.
    Tag,
    /// A union's bytes: one arm in its own layout, then zeros.
    Area,
    /// 0, or the error with which an rpc ended. The other leaves are 0 then.
    Error,
}

/// A string or vector, or a union with strings or vectors in its arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dynamic {
    /// Argument and fields.
    pub path: String,
    /// Which of [`Layout::leaves`] is its length. If that is an array, so is this. Of a union, its tag.
    pub length_leaf: u32,
    /// Bytes of one element, or of its fixed part; 1 for strings, 0 for unions.
    pub element_bytes: u32,
    /// The bound; 1 for unions.
    pub count_max: u32,
    /// Whether the bytes must be UTF-8.
    pub utf8: bool,
    /// The type of an element, if elements have strings or vectors of their own; or that of the union.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub of: Option<Type>,
}

impl Dynamic {
    pub(crate) fn new(path: &str, element_bytes: u32, count_max: u32) -> Self {
        let path = path.to_owned();
        Self { path, length_leaf: 0, element_bytes, count_max, utf8: false, of: None }
    }
}

/// A capability, or an array of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capability {
    /// Argument and fields.
    pub path: String,
    /// What it is: a capability, channel or client.
    #[serde(rename = "type")]
    pub of: Type,
    /// 1, or the number of elements of an array.
    pub count: u32,
    /// Which of [`Layout::leaves`] tells whether it is there, if it can be absent.
    pub present_leaf: Option<u32>,
}
