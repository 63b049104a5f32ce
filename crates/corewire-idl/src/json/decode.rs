//! Bytes to JSON. The bytes are hostile until checked.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::places::{Frame, Path, Shape, Step};
use super::{JsonError, JsonProblem, Plan, bytes};
use crate::form::{Builtin, EnumValue, Field, Type};

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
    path: Path<'a>,
    /// The number of each capability, by its number in the layout and its element of an array.
    capabilities: BTreeMap<(usize, usize), u32>,
}

impl<'p, 'a, 'b> Decoder<'p, 'a, 'b> {
    fn new(plan: &'p Plan<'a>, bytes: &'b [u8]) -> Self {
        let path = Path::new(&plan.wire.name);
        let rest = usize::try_from(plan.wire.layout.fixed_bytes).unwrap_or(usize::MAX);
        Self { plan, bytes, rest, path, capabilities: BTreeMap::new() }
    }

    fn fail<T>(&self, problem: JsonProblem) -> Result<T, JsonError> {
        Err(self.path.error(problem))
    }

    fn checked<T>(&self, result: Result<T, JsonProblem>) -> Result<T, JsonError> {
        result.map_err(|problem| self.path.error(problem))
    }

    fn message(&mut self) -> Result<Value, JsonError> {
        let plan = self.plan;
        let (found, due) = (self.bytes.len(), self.rest);
        if plan.wire.layout.dynamics.is_empty() && found != due {
            return self.fail(JsonProblem::Length { found, due });
        }
        if found < due {
            return self.fail(JsonProblem::Short { found, due });
        }
        let mut frame = self.checked(plan.frame())?;
        if let Some(errors) = &plan.errors {
            let at = self.checked(frame.at(4))?;
            let error = self.i32(at)?;
            if error != 0 {
                let values = errors.set.map(|set| set.values.as_slice()).unwrap_or_default();
                let error = named(values, error).map_or(Value::from(error), Value::from);
                return Ok(Value::Object(Map::from_iter([(errors.key.clone(), error)])));
            }
        }
        let mut all = Map::new();
        for (name, of) in &plan.arguments {
            let value = self.within(Step::Name(name), |this| this.get(&mut frame, of))?;
            all.insert((*name).to_owned(), value);
        }
        match self.bytes.len() - self.rest {
            0 => Ok(Value::Object(all)),
            left => self.fail(JsonProblem::Left { left }),
        }
    }

    fn within<T>(
        &mut self,
        step: Step<'a>,
        work: impl FnOnce(&mut Self) -> Result<T, JsonError>,
    ) -> Result<T, JsonError> {
        self.path.push(step)?;
        let result = work(self)?;
        self.path.pop();
        Ok(result)
    }

    fn bytes(&self, at: usize, count: usize) -> Result<&'b [u8], JsonError> {
        let bytes = self.bytes.get(at..).and_then(|rest| rest.get(..count));
        self.checked(bytes.ok_or(JsonProblem::Form))
    }

    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], JsonError> {
        let bytes = self.bytes.get(at..).and_then(<[u8]>::first_chunk);
        self.checked(bytes.copied().ok_or(JsonProblem::Form))
    }

    fn i32(&self, at: usize) -> Result<i32, JsonError> {
        Ok(i32::from_le_bytes(self.array(at)?))
    }

    fn bool(&self, at: usize) -> Result<bool, JsonError> {
        match self.array(at)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [found] => self.fail(JsonProblem::Bool { found }),
        }
    }

    fn get(&mut self, frame: &mut Frame, of: &'a Type) -> Result<Value, JsonError> {
        match self.checked(self.plan.types.shape(of))? {
            Shape::Builtin(builtin) => {
                let size = usize::try_from(builtin.bytes()).unwrap_or(0);
                let at = self.checked(frame.at(size))?;
                self.number(builtin, at)
            }
            Shape::Enum { name, flexible, values } => {
                let at = self.checked(frame.at(4))?;
                let found = self.i32(at)?;
                match named(values, found) {
                    Some(name) => Ok(Value::from(name)),
                    None if flexible => Ok(Value::from(found)),
                    None => {
                        self.fail(JsonProblem::Value { found: found.into(), of: name.to_owned() })
                    }
                }
            }
            Shape::String { bytes_max } => {
                let at = self.checked(frame.at(4))?;
                let bytes = self.dynamic(at, bytes_max, 1)?;
                match std::str::from_utf8(bytes) {
                    Ok(text) => Ok(Value::from(text)),
                    Err(error) => self.fail(JsonProblem::Utf8 { at: error.valid_up_to() }),
                }
            }
            Shape::Optional { of } => self.optional(frame, of),
            Shape::Capability { is_nullable, .. } => {
                let place = (frame.capability, frame.index);
                frame.capability += 1;
                if is_nullable {
                    let at = self.checked(frame.at(1))?;
                    if !self.bool(at)? {
                        return Ok(Value::Null);
                    }
                }
                let number = *self.capabilities.entry(place).or_default();
                Ok(Value::Object(Map::from_iter([("capability".to_owned(), number.into())])))
            }
            Shape::Struct { fields } => {
                let mut all = Map::new();
                for Field { name, of, .. } in fields {
                    let value = self.within(Step::Name(name), |this| this.get(frame, of))?;
                    all.insert(name.clone(), value);
                }
                Ok(Value::Object(all))
            }
            Shape::Union { name, arms, area_bytes } => self.union(frame, (name, arms, area_bytes)),
            Shape::Vector { element, count_max } => self.vector(frame, element, count_max),
            Shape::Array { element, count } => {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                if let Some(of) = self.checked(self.plan.types.byte(element))? {
                    let at = self.checked(frame.at(count))?;
                    return Ok(bytes::show(self.bytes(at, count)?, of, true));
                }
                let mut all = Vec::new();
                frame.each(count, |frame, index| {
                    all.push(self.within(Step::Index(index), |this| this.get(frame, element))?);
                    Ok(())
                })?;
                Ok(Value::Array(all))
            }
        }
    }

    fn number(&self, of: Builtin, at: usize) -> Result<Value, JsonError> {
        Ok(match of {
            Builtin::Bool => Value::from(self.bool(at)?),
            Builtin::Char => {
                let [byte] = self.array(at)?;
                let letter = char::from(byte);
                match letter.is_ascii() && bytes::is_shown(letter) {
                    true => Value::from(letter.to_string()),
                    false => Value::from(byte),
                }
            }
            Builtin::Uint8 => Value::from(u8::from_le_bytes(self.array(at)?)),
            Builtin::Uint16 => Value::from(u16::from_le_bytes(self.array(at)?)),
            Builtin::Uint32 => Value::from(u32::from_le_bytes(self.array(at)?)),
            Builtin::Int8 => Value::from(i8::from_le_bytes(self.array(at)?)),
            Builtin::Int16 => Value::from(i16::from_le_bytes(self.array(at)?)),
            Builtin::Int32 => Value::from(self.i32(at)?),
            Builtin::Int64 | Builtin::Intptr => Value::from(i64::from_le_bytes(self.array(at)?)),
            Builtin::Uint64
            | Builtin::Uintptr
            | Builtin::Size
            | Builtin::Iref
            | Builtin::Errval => Value::from(u64::from_le_bytes(self.array(at)?)),
            Builtin::String => return self.fail(JsonProblem::Form),
        })
    }

    fn optional(&mut self, frame: &mut Frame, of: &'a Type) -> Result<Value, JsonError> {
        let at = self.checked(frame.at(1))?;
        if self.bool(at)? {
            return self.get(frame, of);
        }
        let mut nonzero = None;
        let skipped = self.plan.types.skip(frame, of, &mut |at| {
            let length = self.bytes.get(at..).and_then(<[u8]>::first_chunk);
            let count = u32::from_le_bytes(*length.ok_or(JsonProblem::Form)?);
            nonzero = nonzero.or((count != 0).then_some(count));
            Ok(())
        });
        self.checked(skipped)?;
        match nonzero {
            Some(count) => self.fail(JsonProblem::Bound { count, count_max: 0 }),
            None => Ok(Value::Null),
        }
    }

    fn union(
        &mut self,
        frame: &mut Frame,
        (name, arms, area_bytes): (&str, &'a [Field], u32),
    ) -> Result<Value, JsonError> {
        let tag = self.checked(frame.at(4))?;
        let area = self.checked(frame.at(usize::try_from(area_bytes).unwrap_or(0)))?;
        let tag = u32::from_le_bytes(self.array(tag)?);
        let Some(arm) = usize::try_from(tag).ok().and_then(|index| arms.get(index)) else {
            return self.fail(JsonProblem::Value { found: tag.into(), of: name.to_owned() });
        };
        let value = self.within(Step::Name(&arm.name), |this| {
            let places = this.checked(this.plan.types.alone(&arm.of))?;
            this.get(&mut Frame::new(places, area), &arm.of)
        })?;
        Ok(Value::Object(Map::from_iter([(arm.name.clone(), value)])))
    }

    fn vector(
        &mut self,
        frame: &mut Frame,
        element: &'a Type,
        count_max: u32,
    ) -> Result<Value, JsonError> {
        let at = self.checked(frame.at(4))?;
        if let Some(of) = self.checked(self.plan.types.byte(element))? {
            return Ok(bytes::show(self.dynamic(at, count_max, 1)?, of, false));
        }
        let places = self.checked(self.plan.types.alone(element))?;
        let size = usize::try_from(places.bytes).unwrap_or(0);
        let mut base = self.rest;
        self.dynamic(at, count_max, size)?;
        let mut all = Vec::new();
        while base < self.rest {
            let mut frame = Frame::new(places.clone(), base);
            let step = Step::Index(all.len());
            all.push(self.within(step, |this| this.get(&mut frame, element))?);
            base += size;
        }
        Ok(Value::Array(all))
    }

    /// The next bytes behind the fixed part, whose number of elements is at this place.
    fn dynamic(&mut self, at: usize, count_max: u32, size: usize) -> Result<&'b [u8], JsonError> {
        let count = u32::from_le_bytes(self.array(at)?);
        if count > count_max {
            return self.fail(JsonProblem::Bound { count, count_max });
        }
        let rest = self.bytes.get(self.rest..).unwrap_or_default();
        let due = usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
        match due.and_then(|due| rest.get(..due)) {
            Some(bytes) => {
                self.rest += bytes.len();
                Ok(bytes)
            }
            None => self.fail(JsonProblem::Missing { count, left: rest.len() }),
        }
    }
}

fn named(values: &[EnumValue], value: i32) -> Option<&str> {
    values.iter().find(|one| one.value == value).map(|one| one.name.as_str())
}
