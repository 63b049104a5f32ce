//! Arrays of bytes as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::JsonProblem;
use crate::form::Builtin;

const DUE: &str = "a string, an array of numbers, {\"hex\": \"..\"} or {\"base64\": \"..\"}";

/// Bytes in any of the accepted ways. `None` for an array, whose elements have their own places in errors.
pub(super) fn read(value: &Value) -> Result<Option<Vec<u8>>, JsonProblem> {
    match value {
        Value::String(text) => Ok(Some(text.as_bytes().to_vec())),
        Value::Array(_) => Ok(None),
        Value::Object(map) => match (map.len(), map.iter().next()) {
            (1, Some((key, Value::String(text)))) if key == "hex" => from_hex(text).map(Some),
            (1, Some((key, Value::String(text)))) if key == "base64" => {
                let reason = |error: base64::DecodeError| error.to_string();
                let bytes = STANDARD.decode(text).map_err(reason);
                let bytes =
                    bytes.map_err(|reason| JsonProblem::Coding { coding: "base64", reason })?;
                Ok(Some(bytes))
            }
            _ => Err(JsonProblem::kind(value, DUE)),
        },
        _ => Err(JsonProblem::kind(value, DUE)),
    }
}

/// Bytes as they are decoded.
pub(super) fn show(bytes: &[u8], of: Builtin, is_padded: bool) -> Value {
    if of == Builtin::Char {
        let end = match bytes.iter().rposition(|byte| *byte != 0) {
            _ if !is_padded => bytes.len(),
            Some(last) => last + 1,
            None => 0,
        };
        let text = bytes.get(..end).and_then(|bytes| std::str::from_utf8(bytes).ok());
        if let Some(text) = text.filter(|text| text.chars().all(is_shown)) {
            return Value::from(text);
        }
    }
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        hex.extend(
            [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16)).iter().flatten(),
        );
    }
    Value::Object(Map::from_iter([("hex".to_owned(), Value::from(hex))]))
}

/// Whether a character of an array is shown as text.
pub(super) fn is_shown(letter: char) -> bool {
    !letter.is_control() || matches!(letter, '\n' | '\t')
}

fn from_hex(text: &str) -> Result<Vec<u8>, JsonProblem> {
    let problem = |reason: String| JsonProblem::Coding { coding: "hex", reason };
    if let Some(wrong) = text.chars().find(|letter| !letter.is_ascii_hexdigit()) {
        return Err(problem(format!("{wrong:?} is not a digit")));
    }
    if !text.len().is_multiple_of(2) {
        return Err(problem(format!("{} digits: a byte has two", text.len())));
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|one| u8::try_from(one).ok());
    let bytes = text.as_bytes().chunks_exact(2);
    Ok(bytes.filter_map(|pair| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?)).collect())
}
