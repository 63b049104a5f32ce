//! JSON to bytes.

use serde_json::{Map, Value};

use super::location::{Location, Name};
use super::{CapabilityUse, Encoded, Errors, JsonError, JsonProblem, Plan, bytes, floats, values};
use crate::form::{Builtin, EnumValue, Field, LeafPlace, Operation, Operations, Step};

pub(super) fn encode(plan: &Plan<'_>, arguments: &Value) -> Result<Encoded, JsonError> {
    let fixed = usize::try_from(plan.operations.layout.fixed_bytes).unwrap_or(0);
    let mut encoder = Encoder { plan, out: vec![0; fixed], capabilities: Vec::new() };
    encoder.message(arguments, &Location::message(&plan.title))?;
    // The elements of an array of structs travel together, as their leaves do.
    encoder.capabilities.sort_by_key(|(place, _)| *place);
    let capabilities = encoder.capabilities.into_iter().map(|(_, one)| one).collect();
    Ok(Encoded { bytes: encoder.out, capabilities })
}

struct Encoder<'p, 'a> {
    plan: &'p Plan<'a>,
    out: Vec<u8>,
    /// Each with its number in the layout, and its element of an array.
    capabilities: Vec<((usize, usize), CapabilityUse)>,
}

impl<'a> Encoder<'_, 'a> {
    fn message(&mut self, arguments: &Value, here: &Location<'_>) -> Result<(), JsonError> {
        let plan = self.plan;
        let operations = &plan.operations.values;
        if let (Some(errors), Some(at)) = (&plan.errors, plan.operations.error) {
            let given = arguments.as_object().and_then(|all| Some((all, all.get(&errors.key)?)));
            if let Some((all, error)) = given {
                return if all.len() == 1 {
                    self.error(at, errors, error, here)
                } else {
                    here.fail(JsonProblem::Both)
                };
            }
        }
        match arguments {
            Value::Array(values) => {
                if values.len() > operations.len() {
                    let due = u32::try_from(operations.len()).unwrap_or(u32::MAX);
                    let (count, unit) = (values.len(), "arguments");
                    return here.fail(JsonProblem::Count { count, due, unit });
                }
                for (index, one) in operations.iter().enumerate() {
                    self.put(one, values.get(index), &here.field(&one.path))?;
                }
                Ok(())
            }
            Value::Object(values) => {
                let names = operations.iter().map(|one| one.path.as_str());
                let names = names.chain(plan.errors.iter().map(|errors| errors.key.as_str()));
                known("argument", values, names, here)?;
                for one in operations {
                    self.put(one, values.get(&one.path), &here.field(&one.path))?;
                }
                Ok(())
            }
            // As common as `{}` for messages without arguments.
            Value::Null if operations.is_empty() => Ok(()),
            other => here.fail(JsonProblem::kind(other, "an object or an array of all arguments")),
        }
    }

    fn error(
        &mut self,
        at: LeafPlace,
        errors: &Errors<'a>,
        value: &Value,
        here: &Location<'_>,
    ) -> Result<(), JsonError> {
        let values = errors.values();
        let of = errors.set.map(|set| set.name.as_str()).unwrap_or_default();
        let only = value.as_object().filter(|all| errors.detailed && all.len() == 1);
        let (value, details) = match only.and_then(|all| all.iter().next()) {
            Some((name, details)) => (&Value::from(name.as_str()), Some(details)),
            None => (value, None),
        };
        let number = enumerated("error", of, values, true, value, here)?;
        if number == 0 {
            // 0 is success.
            return here.fail(JsonProblem::Value { found: 0, of: of.to_owned() });
        }
        self.store(at, &number.to_le_bytes(), here)?;
        match errors.detailed {
            true => self.details(errors, number, details, here),
            false => Ok(()),
        }
    }

    /// The length of the details of an error, and the details.
    fn details(
        &mut self,
        errors: &Errors<'a>,
        number: i32,
        details: Option<&Value>,
        here: &Location<'_>,
    ) -> Result<(), JsonError> {
        let length_at = self.out.len();
        self.out.extend([0; 4]);
        let name = errors.values().iter().find(|one| one.value == number);
        let name = name.map(|one| one.name.as_str()).unwrap_or_default();
        let here = here.alone(Name::Named(name), self.out.len())?;
        let (operations, given) = match (errors.details(number), details) {
            (None, None) => return Ok(()),
            (None, Some(Value::Object(given))) if given.is_empty() => return Ok(()),
            (None, Some(_)) => return here.fail(JsonProblem::NoDetails),
            (Some(operations), Some(Value::Object(given))) => (operations, given),
            (Some(_), other) => {
                let due = format!("{{\"{name}\": an object of its details}}");
                return here.fail(JsonProblem::kind(other.unwrap_or(&Value::from(name)), due));
            }
        };
        let fixed = usize::try_from(operations.layout.fixed_bytes).unwrap_or(0);
        self.out.resize(self.out.len() + fixed, 0);
        known("field", given, operations.values.iter().map(|one| one.path.as_str()), &here)?;
        for one in &operations.values {
            self.put(one, given.get(&one.path), &here.field(&one.path))?;
        }
        let length = u32::try_from(self.out.len() - length_at - 4).unwrap_or(u32::MAX);
        match self.out.get_mut(length_at..).and_then(<[u8]>::first_chunk_mut) {
            Some(place) => *place = length.to_le_bytes(),
            None => return here.fail(JsonProblem::Form),
        }
        Ok(())
    }

    /// Stores a number, or the bytes of an array.
    fn store(&mut self, at: LeafPlace, bytes: &[u8], here: &Location<'_>) -> Result<(), JsonError> {
        match self.out.get_mut(here.at(at)..).and_then(|rest| rest.get_mut(..bytes.len())) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Ok(())
            }
            None => here.fail(JsonProblem::Form),
        }
    }

    fn put(
        &mut self,
        operation: &Operation<'a>,
        value: Option<&Value>,
        here: &Location<'_>,
    ) -> Result<(), JsonError> {
        let is_absent = matches!(value, None | Some(Value::Null));
        let value = match (&operation.step, value) {
            (Step::Optional { .. } | Step::Capability { present: Some(_), .. }, _) if is_absent => {
                return Ok(());
            }
            (_, Some(value)) => value,
            (Step::Capability { of, .. }, None) => {
                return here.fail(JsonProblem::Absent { due: of.to_string() });
            }
            (_, None) => return here.fail(JsonProblem::Absent { due: operation.of.to_string() }),
        };
        match &operation.step {
            Step::Number { builtin, at } if builtin.is_float() => {
                let bits = here.checked(floats::read(*builtin, value))?;
                let size = usize::try_from(builtin.bytes()).unwrap_or(0);
                self.store(*at, bits.to_le_bytes().get(..size).unwrap_or_default(), here)
            }
            Step::Number { builtin, at } => {
                let number = here.checked(values::number(*builtin, value))?;
                let size = usize::try_from(builtin.bytes()).unwrap_or(0);
                self.store(*at, number.to_le_bytes().get(..size).unwrap_or_default(), here)
            }
            Step::Enum { name, flexible, values, at } => {
                let number = enumerated("value", name, values, *flexible, value, here)?;
                self.store(*at, &number.to_le_bytes(), here)
            }
            Step::String { bytes_max, length } => match value {
                Value::String(text) => self.dynamic(*length, text.as_bytes(), *bytes_max, here),
                other => here.fail(JsonProblem::kind(other, "a string")),
            },
            Step::Vector { elements, count_max, length } => {
                self.vector(elements, *count_max, *length, value, here)
            }
            Step::Optional { value: inner, present } => {
                self.store(*present, &[1], here)?;
                self.put(inner, Some(value), here)
            }
            Step::Capability { of, number, present } => {
                if let Some(present) = present {
                    self.store(*present, &[1], here)?;
                }
                let source = here.checked(values::source(value))?;
                let one = CapabilityUse { path: here.to_string(), of: (*of).clone(), source };
                self.capabilities.push(((*number, here.index), one));
                Ok(())
            }
            Step::Struct { fields, .. } => {
                let values = match value {
                    Value::Object(values) => values,
                    Value::Array(values) => return self.fields(fields, values, here),
                    other => {
                        let due = format!("an object or an array of all fields ({})", operation.of);
                        return here.fail(JsonProblem::kind(other, due));
                    }
                };
                known("field", values, fields.iter().map(|(field, _)| field.name.as_str()), here)?;
                for (field, inner) in fields {
                    self.put(inner, values.get(&field.name), &here.field(&field.name))?;
                }
                Ok(())
            }
            Step::Array { element, count } => self.array(element, *count, value, here),
            Step::Union { name, arms, tag, area } => {
                let chosen = value.as_object().filter(|all| all.len() == 1);
                let Some((key, value)) = chosen.and_then(|all| all.iter().next()) else {
                    let due = format!("an object with one arm of {name}");
                    return here.fail(JsonProblem::kind(value, due));
                };
                let chosen = arms.iter().zip(0_u32..).find(|((arm, _), _)| arm.name == *key);
                let Some(((arm, alone), index)) = chosen else {
                    let names = arms.iter().map(|(arm, _)| arm.name.as_str());
                    return here.fail(JsonProblem::unknown("arm", key, names));
                };
                self.store(*tag, &index.to_le_bytes(), here)?;
                let here = here.alone(Name::Named(&arm.name), here.at(*area))?;
                self.put_alone(alone, value, &here)
            }
        }
    }

    /// The fields of a struct in the order of the file.
    fn fields(
        &mut self,
        fields: &[(&Field, Operation<'a>)],
        values: &[Value],
        here: &Location<'_>,
    ) -> Result<(), JsonError> {
        if values.len() != fields.len() {
            let due = u32::try_from(fields.len()).unwrap_or(u32::MAX);
            let (count, unit) = (values.len(), "fields");
            return here.fail(JsonProblem::Count { count, due, unit });
        }
        let mut all = fields.iter().zip(values);
        all.try_for_each(|((field, inner), value)| {
            self.put(inner, Some(value), &here.field(&field.name))
        })
    }

    fn put_alone(
        &mut self,
        operations: &Operations<'a>,
        value: &Value,
        here: &Location<'_>,
    ) -> Result<(), JsonError> {
        operations.values.iter().try_for_each(|one| self.put(one, Some(value), here))
    }

    fn vector(
        &mut self,
        elements: &Operations<'a>,
        count_max: u32,
        length: LeafPlace,
        value: &Value,
        here: &Location<'_>,
    ) -> Result<(), JsonError> {
        if elements.byte().is_some()
            && let Some(bytes) = here.checked(bytes::read(value))?
        {
            return self.dynamic(length, &bytes, count_max, here);
        }
        let Value::Array(values) = value else {
            return here.fail(JsonProblem::kind(value, "an array"));
        };
        let count = bounded(values.len(), count_max, "elements", here)?;
        self.store(length, &count.to_le_bytes(), here)?;
        let size = usize::try_from(elements.layout.fixed_bytes).unwrap_or(0);
        for (index, value) in values.iter().enumerate() {
            let base = self.out.len();
            self.out.resize(base + size, 0);
            self.put_alone(elements, value, &here.alone(Name::Numbered(index), base)?)?;
        }
        Ok(())
    }

    fn array(
        &mut self,
        element: &Operation<'a>,
        count: u32,
        value: &Value,
        here: &Location<'_>,
    ) -> Result<(), JsonError> {
        let due = usize::try_from(count).unwrap_or(usize::MAX);
        if let Some((of, at)) = element.byte()
            && let Some(mut bytes) = here.checked(bytes::read(value))?
        {
            if of == Builtin::Char && value.is_string() && bytes.len() < due {
                bytes.resize(due, 0);
            }
            if bytes.len() != due {
                let (count, due) = (bytes.len(), count);
                return here.fail(JsonProblem::Count { count, due, unit: "bytes" });
            }
            return self.store(LeafPlace { bytes: count, ..at }, &bytes, here);
        }
        let Value::Array(values) = value else {
            return here.fail(JsonProblem::kind(value, format!("an array of {count}")));
        };
        if values.len() != due {
            let (count, due) = (values.len(), count);
            return here.fail(JsonProblem::Count { count, due, unit: "elements" });
        }
        let mut all = values.iter().enumerate();
        all.try_for_each(|(index, value)| self.put(element, Some(value), &here.element(index, due)))
    }

    fn dynamic(
        &mut self,
        length: LeafPlace,
        bytes: &[u8],
        count_max: u32,
        here: &Location<'_>,
    ) -> Result<(), JsonError> {
        let count = bounded(bytes.len(), count_max, "bytes", here)?;
        self.store(length, &count.to_le_bytes(), here)?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }
}

fn known<'n>(
    what: &'static str,
    values: &Map<String, Value>,
    names: impl Iterator<Item = &'n str> + Clone,
    here: &Location<'_>,
) -> Result<(), JsonError> {
    match values.keys().find(|key| !names.clone().any(|name| name == *key)) {
        Some(key) => here.fail(JsonProblem::unknown(what, key, names)),
        None => Ok(()),
    }
}

fn enumerated(
    what: &'static str,
    of: &str,
    values: &[EnumValue],
    flexible: bool,
    value: &Value,
    here: &Location<'_>,
) -> Result<i32, JsonError> {
    match value {
        Value::String(text) => match values.iter().find(|one| one.name == *text) {
            Some(one) => Ok(one.value),
            None => {
                let names = values.iter().map(|one| one.name.as_str());
                here.fail(JsonProblem::unknown(what, text, names))
            }
        },
        Value::Number(_) => {
            let number = here.checked(values::number(Builtin::Int32, value))?;
            let number = i32::try_from(number).unwrap_or_default();
            if flexible || values.iter().any(|one| one.value == number) {
                return Ok(number);
            }
            here.fail(JsonProblem::Value { found: number.into(), of: of.to_owned() })
        }
        other => here.fail(JsonProblem::kind(other, format!("a value of {of}"))),
    }
}

fn bounded(
    count: usize,
    count_max: u32,
    unit: &'static str,
    here: &Location<'_>,
) -> Result<u32, JsonError> {
    match u32::try_from(count) {
        Ok(small) if small <= count_max => Ok(small),
        _ => here.fail(JsonProblem::Long { count, count_max, unit }),
    }
}
