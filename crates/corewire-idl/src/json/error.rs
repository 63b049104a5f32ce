//! What can be wrong with arguments and with messages.

use serde_json::Value;

use crate::diagnostics::similar;
use crate::form::Builtin;

/// Names that are listed if none is similar to the one that was given.
const LISTED_MAX: usize = 8;

/// Characters that are shown of a string.
const SHOWN_MAX: usize = 40;

/// Why arguments cannot be encoded, or a message cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
#[non_exhaustive]
pub struct JsonError {
    /// The message, and the part of it that is wrong: `draw: points[3].x`.
    pub place: String,
    /// What is wrong.
    pub problem: JsonProblem,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonProblem {
    /// An argument or field is not given.
    #[error("missing: the type is {due}")]
    Absent {
        /// Its type.
        due: String,
    },
    /// Nothing has this name.
    #[error("no {what} is called `{name}`{hint}")]
    Unknown {
        /// What was looked for: an argument, a field, an arm, a value, an error.
        what: &'static str,
        /// The name that was given.
        name: String,
        /// The name that was probably meant, or the possible names if there are few.
        hint: String,
    },
    /// JSON of another kind.
    #[error("{found} where {due} is due")]
    Kind {
        /// What was given.
        found: String,
        /// What is possible.
        due: String,
    },
    /// A number that its type does not have.
    #[error("{found} is out of range: {} is from {} to {}", .of.as_str(), range(*.of).0, range(*.of).1)]
    Range {
        /// The number.
        found: String,
        /// The type.
        of: Builtin,
    },
    /// A number that is no `float32`.
    #[error("{found} is out of range: float32 is from {:e} to {:e}", f32::MIN, f32::MAX)]
    FloatRange {
        /// The number.
        found: String,
    },
    /// Too long.
    #[error("{count} {unit}: at most {count_max} are possible")]
    Long {
        /// What was given.
        count: usize,
        /// The bound.
        count_max: u32,
        /// Bytes or elements.
        unit: &'static str,
    },
    /// Another number than an array has.
    #[error("{count} {unit}: exactly {due} are necessary")]
    Count {
        /// What was given.
        count: usize,
        /// What the array has.
        due: u32,
        /// Bytes, elements, fields or arguments.
        unit: &'static str,
    },
    /// Hex or base64 that cannot be read.
    #[error("not {coding}: {reason}")]
    Coding {
        /// hex or base64.
        coding: &'static str,
        /// Why.
        reason: String,
    },
    /// Details of an error that has none.
    #[error("this error has no details")]
    NoDetails,
    /// An error stands beside results.
    #[error("a reply has an error or results, not both")]
    Both,
    /// The message has a fixed size, and another number of bytes arrived.
    #[error("{found} bytes arrived where {due} were due")]
    Length {
        /// Bytes that arrived.
        found: usize,
        /// Bytes of the message.
        due: usize,
    },
    /// The fixed part is incomplete.
    #[error("{found} bytes arrived where at least {due} are necessary")]
    Short {
        /// Bytes that arrived.
        found: usize,
        /// Bytes of the fixed part.
        due: usize,
    },
    /// A length is greater than the bound.
    #[error("length {count}, but its bound is {count_max}")]
    Bound {
        /// The length that arrived.
        count: u32,
        /// The bound; 0 for what is absent.
        count_max: u32,
    },
    /// Fewer bytes arrived than a length says.
    #[error("length {count}, but only {left} bytes are left")]
    Missing {
        /// The length that arrived.
        count: u32,
        /// Bytes that are left.
        left: usize,
    },
    /// More bytes arrived than the message has.
    #[error("{left} bytes behind its end")]
    Left {
        /// How many.
        left: usize,
    },
    /// A string is not UTF-8.
    #[error("not UTF-8 from byte {at} on")]
    Utf8 {
        /// The first wrong byte.
        at: usize,
    },
    /// Neither 0 nor 1.
    #[error("{found} is no bool")]
    Bool {
        /// The byte.
        found: u8,
    },
    /// Not a value of the enumeration, or not an arm of the union.
    #[error("{found} is none of the values of {of}")]
    Value {
        /// The number.
        found: i64,
        /// The enumeration, union or set of errors.
        of: String,
    },
    /// Types and layout of the form do not agree: it was not made by the checker, and not checked.
    #[error("the form of the interface does not agree with itself")]
    Form,
}

impl JsonProblem {
    pub(super) fn unknown<'a>(
        what: &'static str,
        name: &str,
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> Self {
        let hint = match similar(name, names.clone()) {
            Some(similar) => format!(": did you mean `{similar}`?"),
            None if names.clone().count() > LISTED_MAX => String::new(),
            None => match names.collect::<Vec<_>>().as_slice() {
                [] => String::new(),
                names => format!(": possible are `{}`", names.join("`, `")),
            },
        };
        Self::Unknown { what, name: shortened(name), hint }
    }

    pub(super) fn kind(found: &Value, due: impl Into<String>) -> Self {
        Self::Kind { found: shown(found), due: due.into() }
    }
}

/// The smallest and the largest value. A `char` is a byte of no particular encoding.
pub(super) const fn range(of: Builtin) -> (i128, i128) {
    if matches!(of, Builtin::Char) { (0, 255) } else { of.range() }
}

/// What was given, short enough for a line.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(text) => format!("the string {:?}", shortened(text)),
        Value::Array(all) => format!("an array of {}", all.len()),
        Value::Object(all) => format!("an object of {}", all.len()),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
