//! Single values that JSON has in several forms.

use serde_json::Value;

use super::error::range;
use super::{CapabilitySource, JsonProblem};
use crate::form::Builtin;

const CAPABILITY: &str = "a path, {\"fd\": number}, {\"path\": \"..\"} or {\"capability\": number}";

/// Where a capability comes from.
pub(super) fn source(value: &Value) -> Result<CapabilitySource, JsonProblem> {
    let due = || JsonProblem::kind(value, CAPABILITY);
    if let Value::String(path) = value {
        return Ok(CapabilitySource::Path(path.clone()));
    }
    let only = value.as_object().filter(|all| all.len() == 1);
    let (key, inner) = only.and_then(|all| all.iter().next()).ok_or_else(due)?;
    match (key.as_str(), inner) {
        ("path", Value::String(path)) => Ok(CapabilitySource::Path(path.clone())),
        ("fd", Value::Number(_)) => {
            let fd = i32::try_from(number(Builtin::Int32, inner)?).ok().filter(|fd| *fd >= 0);
            fd.map(CapabilitySource::Descriptor).ok_or_else(due)
        }
        ("capability", Value::Number(_)) => {
            let index = u32::try_from(number(Builtin::Uint32, inner)?).map_err(|_| due())?;
            Ok(CapabilitySource::Received(index))
        }
        _ => Err(due()),
    }
}

/// The number of a built-in type, whose low bytes travel.
pub(super) fn number(of: Builtin, value: &Value) -> Result<i128, JsonProblem> {
    match (of, value) {
        (Builtin::Bool, Value::Bool(value)) => return Ok((*value).into()),
        (Builtin::Bool, other) => return Err(JsonProblem::kind(other, "true or false")),
        (Builtin::Char, Value::String(text)) => {
            let mut letters = text.chars();
            return match (letters.next(), letters.next()) {
                (Some(letter), None) if letter.is_ascii() => Ok(u32::from(letter).into()),
                _ => Err(JsonProblem::kind(value, "a number or one ASCII character")),
            };
        }
        _ => {}
    }
    let due = || {
        let due = if of == Builtin::Char { "a number or one ASCII character" } else { of.as_str() };
        JsonProblem::kind(value, due)
    };
    let number = match value {
        Value::Number(number) => {
            let whole = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
            whole.ok_or_else(due)?
        }
        Value::String(text) => parsed(text).ok_or_else(due)?,
        _ => return Err(due()),
    };
    let (min, max) = range(of);
    if number < min || number > max {
        let found = number.to_string();
        return Err(JsonProblem::Range { found, of });
    }
    Ok(number)
}

/// `123`, `-5`, `0x7b`. Other forms that Rust accepts, such as `+5`, are none here.
fn parsed(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (radix, digits) = match digits.strip_prefix("0x") {
        Some(digits) => (16, digits),
        None => (10, digits),
    };
    if !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let number = i128::from_str_radix(digits, radix).ok()?;
    Some(if negative { -number } else { number })
}
