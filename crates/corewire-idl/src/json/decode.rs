//! Bytes to JSON. The bytes are hostile until checked.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::location::{Location, Name};
use super::{Errors, JsonError, JsonProblem, Plan, bytes, floats};
use crate::form::{Builtin, DETAILS_BYTES_MAX, EnumValue, LeafPlace, Operation, Operations, Step};

pub(super) fn decode(plan: &Plan<'_>, bytes: &[u8]) -> Result<Value, JsonError> {
    let mut decoder = Decoder::new(plan, bytes);
    let value = decoder.message()?;
    if decoder.capabilities.is_empty() {
        return Ok(value);
    }
    // The elements of an array of structs travel together, so that numbers are known only once all have been found.
    let found = std::mem::take(&mut decoder.capabilities);
    let numbers = found.into_keys().zip(0..).collect();
    Decoder { capabilities: numbers, ..Decoder::new(plan, bytes) }.message()
}

struct Decoder<'p, 'a, 'b> {
    plan: &'p Plan<'a>,
    bytes: &'b [u8],
    /// Strings and vectors that have not been read.
    rest: usize,
    /// The number of each capability, by its number in the layout and its element of an array.
    capabilities: BTreeMap<(usize, usize), u32>,
}

impl<'p, 'a, 'b> Decoder<'p, 'a, 'b> {
    fn new(plan: &'p Plan<'a>, bytes: &'b [u8]) -> Self {
        let rest = usize::try_from(plan.operations.layout.fixed_bytes).unwrap_or(usize::MAX);
        Self { plan, bytes, rest, capabilities: BTreeMap::new() }
    }

    fn message(&mut self) -> Result<Value, JsonError> {
        let plan = self.plan;
        let here = &Location::message(&plan.title);
        let (found, due) = (self.bytes.len(), self.rest);
        let detailed = plan.errors.as_ref().is_some_and(|errors| errors.detailed);
        if plan.operations.layout.dynamics.is_empty() && found != due && !detailed {
            return here.fail(JsonProblem::Length { found, due });
        }
        if found < due {
            return here.fail(JsonProblem::Short { found, due });
        }
        if let (Some(errors), Some(at)) = (&plan.errors, plan.operations.error) {
            let error = i32::from_le_bytes(self.number(at, here)?);
            if error != 0 {
                return Ok(object(&errors.key, self.error(errors, error, here)?));
            }
        }
        let mut all = Map::new();
        for one in &plan.operations.values {
            all.insert(one.path.clone(), self.get(one, &here.field(&one.path))?);
        }
        match self.bytes.len() - self.rest {
            0 => Ok(Value::Object(all)),
            left => here.fail(JsonProblem::Left { left }),
        }
    }

    /// The error with which a reply ends instead, with its details.
    fn error(
        &mut self,
        errors: &Errors<'a>,
        error: i32,
        here: &Location<'_>,
    ) -> Result<Value, JsonError> {
        let name = named(errors.values(), error);
        let shown = name.map_or(Value::from(error), Value::from);
        if !errors.detailed {
            return Ok(shown);
        }
        let rest = self.bytes.get(self.rest..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk() else {
            return here.fail(JsonProblem::Short { found: self.bytes.len(), due: self.rest + 4 });
        };
        let (count, left) = (u32::from_le_bytes(*length), rest.len());
        if u64::from(count) > DETAILS_BYTES_MAX {
            return here.fail(JsonProblem::Bound { count, count_max: 4096 });
        }
        if usize::try_from(count) != Ok(left) {
            return here.fail(JsonProblem::Length { found: left, due: wide(count) });
        }
        self.rest += 4;
        let (Some(name), Some(details)) = (name, errors.details(error)) else {
            return match name.is_some() && left > 0 {
                true => here.fail(JsonProblem::Left { left }),
                // Nothing is known of it but its number.
                false => Ok(shown),
            };
        };
        let (here, fixed) =
            (here.alone(Name::Named(name), self.rest)?, wide(details.layout.fixed_bytes));
        if left < fixed {
            return here.fail(JsonProblem::Short { found: left, due: fixed });
        }
        self.rest += fixed;
        let mut all = Map::new();
        for one in &details.values {
            all.insert(one.path.clone(), self.get(one, &here.field(&one.path))?);
        }
        match self.bytes.len() - self.rest {
            0 => Ok(object(name, Value::Object(all))),
            left => here.fail(JsonProblem::Left { left }),
        }
    }

    fn number<const N: usize>(
        &self,
        at: LeafPlace,
        here: &Location<'_>,
    ) -> Result<[u8; N], JsonError> {
        let bytes = self.bytes.get(here.at(at)..).and_then(<[u8]>::first_chunk);
        here.checked(bytes.copied().ok_or(JsonProblem::Form))
    }

    fn bool(&self, at: LeafPlace, here: &Location<'_>) -> Result<bool, JsonError> {
        match self.number(at, here)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [found] => here.fail(JsonProblem::Bool { found }),
        }
    }

    fn get(&mut self, operation: &Operation<'a>, here: &Location<'_>) -> Result<Value, JsonError> {
        match &operation.step {
            Step::Number { builtin, at } => self.builtin(*builtin, *at, here),
            Step::Enum { name, flexible, values, at } => {
                let found = i32::from_le_bytes(self.number(*at, here)?);
                match named(values, found) {
                    Some(name) => Ok(Value::from(name)),
                    None if *flexible => Ok(Value::from(found)),
                    None => {
                        let (found, of) = (found.into(), (*name).to_owned());
                        here.fail(JsonProblem::Value { found, of })
                    }
                }
            }
            Step::String { bytes_max, length } => {
                match std::str::from_utf8(self.dynamic(*length, *bytes_max, here)?) {
                    Ok(text) => Ok(Value::from(text)),
                    Err(error) => here.fail(JsonProblem::Utf8 { at: error.valid_up_to() }),
                }
            }
            Step::Vector { elements, count_max, length } => {
                self.vector(elements, *count_max, *length, here)
            }
            Step::Optional { value, present } if self.bool(*present, here)? => {
                self.get(value, here)
            }
            Step::Optional { value, .. } => {
                for length in value.lengths() {
                    let count = usize::try_from(length.count).unwrap_or(usize::MAX);
                    for index in 0..count {
                        let one = self.number(length.at, &here.element(index, count))?;
                        let count = u32::from_le_bytes(one);
                        if count > 0 {
                            return here.fail(JsonProblem::Bound { count, count_max: 0 });
                        }
                    }
                }
                Ok(Value::Null)
            }
            Step::Capability { present: Some(at), .. } if !self.bool(*at, here)? => Ok(Value::Null),
            Step::Capability { number, .. } => {
                let number = *self.capabilities.entry((*number, here.index)).or_default();
                Ok(object("capability", number.into()))
            }
            Step::Struct { fields, .. } => {
                let mut all = Map::new();
                for (field, inner) in fields {
                    all.insert(field.name.clone(), self.get(inner, &here.field(&field.name))?);
                }
                Ok(Value::Object(all))
            }
            Step::Array { element, count } => {
                let due = usize::try_from(*count).unwrap_or(usize::MAX);
                if let Some((of, at)) = element.byte() {
                    let at = here.at(LeafPlace { bytes: *count, ..at });
                    let bytes = self.bytes.get(at..).and_then(|rest| rest.get(..due));
                    return Ok(bytes::show(
                        here.checked(bytes.ok_or(JsonProblem::Form))?,
                        of,
                        true,
                    ));
                }
                let all = (0..due).map(|index| self.get(element, &here.element(index, due)));
                all.collect()
            }
            Step::Union { name, arms, tag, area } => {
                let tag = u32::from_le_bytes(self.number(*tag, here)?);
                let arm = usize::try_from(tag).ok().and_then(|index| arms.get(index));
                let Some((arm, alone)) = arm else {
                    let (found, of) = (tag.into(), (*name).to_owned());
                    return here.fail(JsonProblem::Value { found, of });
                };
                let here = here.alone(Name::Named(&arm.name), here.at(*area))?;
                Ok(object(&arm.name, self.get_alone(alone, &here)?))
            }
        }
    }

    fn get_alone(
        &mut self,
        operations: &Operations<'a>,
        here: &Location<'_>,
    ) -> Result<Value, JsonError> {
        match operations.value() {
            Some(only) => self.get(only, here),
            None => here.fail(JsonProblem::Form),
        }
    }

    fn builtin(&self, of: Builtin, at: LeafPlace, here: &Location<'_>) -> Result<Value, JsonError> {
        Ok(match of {
            Builtin::Bool => Value::from(self.bool(at, here)?),
            Builtin::Char => {
                let [byte] = self.number(at, here)?;
                let letter = char::from(byte);
                match letter.is_ascii() && bytes::is_shown(letter) {
                    true => Value::from(letter.to_string()),
                    false => Value::from(byte),
                }
            }
            Builtin::Float32 => floats::show(of, u32::from_le_bytes(self.number(at, here)?).into()),
            Builtin::Float64 => floats::show(of, u64::from_le_bytes(self.number(at, here)?)),
            Builtin::Uint8 => Value::from(u8::from_le_bytes(self.number(at, here)?)),
            Builtin::Uint16 => Value::from(u16::from_le_bytes(self.number(at, here)?)),
            Builtin::Uint32 => Value::from(u32::from_le_bytes(self.number(at, here)?)),
            Builtin::Int8 => Value::from(i8::from_le_bytes(self.number(at, here)?)),
            Builtin::Int16 => Value::from(i16::from_le_bytes(self.number(at, here)?)),
            Builtin::Int32 => Value::from(i32::from_le_bytes(self.number(at, here)?)),
            Builtin::Int64 | Builtin::Intptr => {
                Value::from(i64::from_le_bytes(self.number(at, here)?))
            }
            Builtin::Uint64
            | Builtin::Uintptr
            | Builtin::Size
            | Builtin::Iref
            | Builtin::Errval => Value::from(u64::from_le_bytes(self.number(at, here)?)),
            Builtin::String => return here.fail(JsonProblem::Form),
        })
    }

    fn vector(
        &mut self,
        elements: &Operations<'a>,
        count_max: u32,
        length: LeafPlace,
        here: &Location<'_>,
    ) -> Result<Value, JsonError> {
        if let Some(of) = elements.byte() {
            return Ok(bytes::show(self.dynamic(length, count_max, here)?, of, false));
        }
        let size = usize::try_from(elements.layout.fixed_bytes).unwrap_or(0);
        let count = self.count(length, count_max, size, here)?;
        let all = (0..count).map(|index| {
            let base = self.rest;
            let here = here.alone(Name::Numbered(index), base)?;
            let left = self.bytes.len() - base;
            if left < size {
                // Elements before it have taken too much.
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                return here.fail(JsonProblem::Missing { count, left });
            }
            self.rest += size;
            self.get_alone(elements, &here)
        });
        all.collect()
    }

    /// The next bytes behind the fixed part, whose number is at this place.
    fn dynamic(
        &mut self,
        length: LeafPlace,
        count_max: u32,
        here: &Location<'_>,
    ) -> Result<&'b [u8], JsonError> {
        let count = self.count(length, count_max, 1, here)?;
        let rest = self.bytes.get(self.rest..).and_then(|rest| rest.get(..count));
        let bytes = here.checked(rest.ok_or(JsonProblem::Form))?;
        self.rest += count;
        Ok(bytes)
    }

    /// A number of elements, which is at most its bound, and which fit into what has not been read.
    fn count(
        &self,
        length: LeafPlace,
        count_max: u32,
        size: usize,
        here: &Location<'_>,
    ) -> Result<usize, JsonError> {
        let count = u32::from_le_bytes(self.number(length, here)?);
        if count > count_max {
            return here.fail(JsonProblem::Bound { count, count_max });
        }
        let left = self.bytes.len().saturating_sub(self.rest);
        let wide = usize::try_from(count).unwrap_or(usize::MAX);
        match wide.checked_mul(size).is_some_and(|due| due <= left) {
            true => Ok(wide),
            false => here.fail(JsonProblem::Missing { count, left }),
        }
    }
}

fn wide(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn named(values: &[EnumValue], value: i32) -> Option<&str> {
    values.iter().find(|one| one.value == value).map(|one| one.name.as_str())
}

/// An object with one member.
fn object(key: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(key.to_owned(), value)]))
}
