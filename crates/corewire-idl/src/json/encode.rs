//! JSON to bytes.

use serde_json::{Map, Value};

use super::places::{Frame, Path, Shape, Step};
use super::{CapabilityUse, Encoded, Errors, JsonError, JsonProblem, Plan, bytes, values};
use crate::form::{Builtin, EnumValue, Field, Type};

pub(super) fn encode(plan: &Plan<'_>, arguments: &Value) -> Result<Encoded, JsonError> {
    let path = Path::new(&plan.wire.name);
    let mut frame = plan.frame().map_err(|problem| path.error(problem))?;
    let fixed = usize::try_from(plan.wire.layout.fixed_bytes).unwrap_or(0);
    let mut encoder = Encoder { plan, out: vec![0; fixed], path, capabilities: Vec::new() };
    encoder.message(&mut frame, arguments)?;
    // The elements of an array of structs travel together, as their leaves do.
    encoder.capabilities.sort_by_key(|(place, _)| *place);
    let capabilities = encoder.capabilities.into_iter().map(|(_, one)| one).collect();
    Ok(Encoded { bytes: encoder.out, capabilities })
}

struct Encoder<'p, 'a> {
    plan: &'p Plan<'a>,
    out: Vec<u8>,
    path: Path<'a>,
    /// Each with its number in the layout, and its element of an array.
    capabilities: Vec<((usize, usize), CapabilityUse)>,
}

impl<'a> Encoder<'_, 'a> {
    fn fail<T>(&self, problem: JsonProblem) -> Result<T, JsonError> {
        Err(self.path.error(problem))
    }

    fn checked<T>(&self, result: Result<T, JsonProblem>) -> Result<T, JsonError> {
        result.map_err(|problem| self.path.error(problem))
    }

    fn message(&mut self, frame: &mut Frame, arguments: &Value) -> Result<(), JsonError> {
        let plan = self.plan;
        if let Some(errors) = &plan.errors {
            let at = self.checked(frame.at(4))?;
            let given = arguments.as_object().and_then(|all| Some((all, all.get(&errors.key)?)));
            if let Some((all, error)) = given {
                return if all.len() == 1 {
                    self.error(at, errors, error)
                } else {
                    self.fail(JsonProblem::Both)
                };
            }
        }
        match arguments {
            Value::Array(values) => {
                if values.len() > plan.arguments.len() {
                    let due = u32::try_from(plan.arguments.len()).unwrap_or(u32::MAX);
                    let (count, unit) = (values.len(), "arguments");
                    return self.fail(JsonProblem::Count { count, due, unit });
                }
                for (index, (name, of)) in plan.arguments.iter().enumerate() {
                    self.within(Step::Name(name), |this| this.put(frame, of, values.get(index)))?;
                }
                Ok(())
            }
            Value::Object(values) => {
                let names = plan.arguments.iter().map(|(name, _)| *name);
                let names = names.chain(plan.errors.iter().map(|errors| errors.key.as_str()));
                self.known("argument", values, names)?;
                for (name, of) in &plan.arguments {
                    self.within(Step::Name(name), |this| this.put(frame, of, values.get(*name)))?;
                }
                Ok(())
            }
            // As common as `{}` for messages without arguments.
            Value::Null if plan.arguments.is_empty() => Ok(()),
            other => self.fail(JsonProblem::kind(other, "an object or an array of all arguments")),
        }
    }

    fn error(&mut self, at: usize, errors: &Errors<'_>, value: &Value) -> Result<(), JsonError> {
        let values = errors.set.map(|set| set.values.as_slice()).unwrap_or_default();
        let of = errors.set.map(|set| set.name.as_str()).unwrap_or_default();
        let number = self.enumerated("error", of, values, true, value)?;
        if number == 0 {
            // 0 is success.
            return self.fail(JsonProblem::Value { found: 0, of: of.to_owned() });
        }
        self.store(at, &number.to_le_bytes())
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

    fn known<'n>(
        &self,
        what: &'static str,
        values: &Map<String, Value>,
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Result<(), JsonError> {
        match values.keys().find(|key| !names.clone().any(|name| name == *key)) {
            Some(key) => self.fail(JsonProblem::unknown(what, key, names)),
            None => Ok(()),
        }
    }

    fn store(&mut self, at: usize, bytes: &[u8]) -> Result<(), JsonError> {
        match self.out.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Ok(())
            }
            None => self.fail(JsonProblem::Form),
        }
    }

    fn put(
        &mut self,
        frame: &mut Frame,
        of: &'a Type,
        value: Option<&Value>,
    ) -> Result<(), JsonError> {
        let shape = self.checked(self.plan.types.shape(of))?;
        if let Shape::Optional { of: inner } = shape {
            let at = self.checked(frame.at(1))?;
            return match value {
                None | Some(Value::Null) => {
                    let types = &self.plan.types;
                    self.checked(types.skip(frame, inner, &mut |_| Ok(())))
                }
                Some(_) => {
                    self.store(at, &[1])?;
                    self.put(frame, inner, value)
                }
            };
        }
        if let Shape::Capability { of, is_nullable } = shape {
            return self.capability(frame, of, is_nullable, value);
        }
        let Some(value) = value else {
            return self.fail(JsonProblem::Absent { due: of.to_string() });
        };
        match shape {
            Shape::Builtin(builtin) => {
                let number = self.checked(values::number(builtin, value))?;
                let size = usize::try_from(builtin.bytes()).unwrap_or(0);
                let at = self.checked(frame.at(size))?;
                self.store(at, number.to_le_bytes().get(..size).unwrap_or_default())
            }
            Shape::Enum { name, flexible, values } => {
                let at = self.checked(frame.at(4))?;
                let number = self.enumerated("value", name, values, flexible, value)?;
                self.store(at, &number.to_le_bytes())
            }
            Shape::String { bytes_max } => {
                let at = self.checked(frame.at(4))?;
                match value {
                    Value::String(text) => self.dynamic(at, text.as_bytes(), bytes_max),
                    other => self.fail(JsonProblem::kind(other, "a string")),
                }
            }
            Shape::Struct { fields } => {
                let Value::Object(values) = value else {
                    return self.fail(JsonProblem::kind(value, format!("an object ({of})")));
                };
                self.known("field", values, fields.iter().map(|field| field.name.as_str()))?;
                for Field { name, of, .. } in fields {
                    self.within(Step::Name(name), |this| this.put(frame, of, values.get(name)))?;
                }
                Ok(())
            }
            Shape::Union { name, arms, area_bytes } => {
                self.union(frame, (name, arms, area_bytes), value)
            }
            Shape::Vector { element, count_max } => self.vector(frame, element, count_max, value),
            Shape::Array { element, count } => self.array(frame, element, count, value),
            Shape::Optional { .. } | Shape::Capability { .. } => Ok(()),
        }
    }

    fn enumerated(
        &self,
        what: &'static str,
        of: &str,
        values: &[EnumValue],
        flexible: bool,
        value: &Value,
    ) -> Result<i32, JsonError> {
        match value {
            Value::String(text) => match values.iter().find(|one| one.name == *text) {
                Some(one) => Ok(one.value),
                None => {
                    let names = values.iter().map(|one| one.name.as_str());
                    self.fail(JsonProblem::unknown(what, text, names))
                }
            },
            Value::Number(_) => {
                let number = self.checked(values::number(Builtin::Int32, value))?;
                let number = i32::try_from(number).unwrap_or_default();
                if flexible || values.iter().any(|one| one.value == number) {
                    return Ok(number);
                }
                self.fail(JsonProblem::Value { found: number.into(), of: of.to_owned() })
            }
            other => self.fail(JsonProblem::kind(other, format!("a value of {of}"))),
        }
    }

    fn union(
        &mut self,
        frame: &mut Frame,
        (name, arms, area_bytes): (&str, &'a [Field], u32),
        value: &Value,
    ) -> Result<(), JsonError> {
        let tag = self.checked(frame.at(4))?;
        let area = self.checked(frame.at(usize::try_from(area_bytes).unwrap_or(0)))?;
        let chosen = value.as_object().filter(|all| all.len() == 1);
        let Some((key, value)) = chosen.and_then(|all| all.iter().next()) else {
            return self
                .fail(JsonProblem::kind(value, format!("an object with one arm of {name}")));
        };
        let names = arms.iter().map(|arm| arm.name.as_str());
        let Some((arm, index)) = arms.iter().zip(0_u32..).find(|(arm, _)| arm.name == *key) else {
            return self.fail(JsonProblem::unknown("arm", key, names));
        };
        self.store(tag, &index.to_le_bytes())?;
        self.within(Step::Name(&arm.name), |this| {
            let places = this.checked(this.plan.types.alone(&arm.of))?;
            this.put(&mut Frame::new(places, area), &arm.of, Some(value))
        })
    }

    fn vector(
        &mut self,
        frame: &mut Frame,
        element: &'a Type,
        count_max: u32,
        value: &Value,
    ) -> Result<(), JsonError> {
        let at = self.checked(frame.at(4))?;
        if self.checked(self.plan.types.byte(element))?.is_some()
            && let Some(bytes) = self.checked(bytes::read(value))?
        {
            return self.dynamic(at, &bytes, count_max);
        }
        let Value::Array(values) = value else {
            return self.fail(JsonProblem::kind(value, "an array"));
        };
        let count = self.bounded(values.len(), count_max, "elements")?;
        self.store(at, &count.to_le_bytes())?;
        let places = self.checked(self.plan.types.alone(element))?;
        let size = usize::try_from(places.bytes).unwrap_or(0);
        let mut base = self.out.len();
        self.out.resize(base + values.len() * size, 0);
        for (index, value) in values.iter().enumerate() {
            let mut frame = Frame::new(places.clone(), base);
            self.within(Step::Index(index), |this| this.put(&mut frame, element, Some(value)))?;
            base += size;
        }
        Ok(())
    }

    fn array(
        &mut self,
        frame: &mut Frame,
        element: &'a Type,
        count: u32,
        value: &Value,
    ) -> Result<(), JsonError> {
        let due = usize::try_from(count).unwrap_or(usize::MAX);
        if let Some(of) = self.checked(self.plan.types.byte(element))?
            && let Some(mut bytes) = self.checked(bytes::read(value))?
        {
            let at = self.checked(frame.at(due))?;
            if of == Builtin::Char && value.is_string() && bytes.len() < due {
                bytes.resize(due, 0);
            }
            if bytes.len() != due {
                let (count, due) = (bytes.len(), count);
                return self.fail(JsonProblem::Count { count, due, unit: "bytes" });
            }
            return self.store(at, &bytes);
        }
        let Value::Array(values) = value else {
            return self.fail(JsonProblem::kind(value, format!("an array of {count}")));
        };
        if values.len() != due {
            let (count, due) = (values.len(), count);
            return self.fail(JsonProblem::Count { count, due, unit: "elements" });
        }
        frame.each(due, |frame, index| {
            self.within(Step::Index(index), |this| this.put(frame, element, values.get(index)))
        })
    }

    fn bounded(&self, count: usize, count_max: u32, unit: &'static str) -> Result<u32, JsonError> {
        match u32::try_from(count) {
            Ok(small) if small <= count_max => Ok(small),
            _ => self.fail(JsonProblem::Long { count, count_max, unit }),
        }
    }

    fn dynamic(&mut self, at: usize, bytes: &[u8], count_max: u32) -> Result<(), JsonError> {
        let count = self.bounded(bytes.len(), count_max, "bytes")?;
        self.store(at, &count.to_le_bytes())?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn capability(
        &mut self,
        frame: &mut Frame,
        of: &'a Type,
        is_nullable: bool,
        value: Option<&Value>,
    ) -> Result<(), JsonError> {
        let place = (frame.capability, frame.index);
        frame.capability += 1;
        let present = if is_nullable { Some(self.checked(frame.at(1))?) } else { None };
        let value = match (value, present) {
            (None | Some(Value::Null), Some(_)) => return Ok(()),
            (None, None) => return self.fail(JsonProblem::Absent { due: of.to_string() }),
            (Some(value), _) => value,
        };
        if let Some(at) = present {
            self.store(at, &[1])?;
        }
        let source = self.checked(values::source(value))?;
        let (path, of) = (self.path.to_string(), of.clone());
        self.capabilities.push((place, CapabilityUse { path, of, source }));
        Ok(())
    }
}
