//! What a type needs on the wire, and which types are possible where. The checker asks before a type enters the form,
//! and [`super::Interface::from_json`] asks again for a form of unknown origin.

use std::collections::HashMap;

use super::layout::{MESSAGE_BYTES_MAX, MESSAGE_CAPABILITIES_MAX, MESSAGE_LEAVES_MAX};
use super::{Builtin, CapabilityKind, DETAILS_BYTES_MAX, Definition, Type};
use crate::diagnostics::Code;

/// The largest type of fixed size.
pub(crate) const TYPE_BYTES_MAX: u64 = 1 << 24;

/// How deep declared types may use each other.
pub(crate) const NESTING_MAX: usize = 64;

/// Why a type is not possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    pub(crate) reason: String,
}

impl Refusal {
    fn impossible<T>(reason: impl Into<String>) -> Result<T, Self> {
        Err(Self { code: Code::TypeNotPossible, reason: reason.into() })
    }

    fn too_large<T>(reason: String) -> Result<T, Self> {
        Err(Self { code: Code::TooLarge, reason })
    }
}

/// Sizes of a type, or of all arguments of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Bytes of the fixed part.
    pub(crate) fixed_bytes: u64,
    /// Bytes with every string and vector at its bound.
    pub(crate) bytes_max: u64,
    /// Entries in the layout; an array is as many as one of its elements.
    pub(crate) leaves: u64,
    pub(crate) capabilities: u64,
    pub(crate) depth: usize,
    /// Whether there are floating-point numbers in it.
    pub(crate) has_floats: bool,
    /// Whether only [`super::FORM`] 2 can say it: floating-point numbers, windows, and elements and arms with strings or
    /// vectors.
    pub(crate) is_newer: bool,
}

impl Facts {
    fn fixed(bytes: u64) -> Self {
        Self { fixed_bytes: bytes, bytes_max: bytes, leaves: 1, depth: 1, ..Self::default() }
    }

    /// Whether values differ in their bytes: there are strings or vectors in them.
    pub(crate) const fn is_dynamic(&self) -> bool {
        self.bytes_max > self.fixed_bytes
    }

    /// Whether every value takes the same bytes, and nothing travels beside them.
    pub(crate) const fn is_plain(&self) -> bool {
        !self.is_dynamic() && self.capabilities == 0
    }

    /// Both, one after the other.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            fixed_bytes: self.fixed_bytes + other.fixed_bytes,
            bytes_max: self.bytes_max + other.bytes_max,
            leaves: self.leaves + other.leaves,
            capabilities: self.capabilities + other.capabilities,
            depth: self.depth.max(other.depth),
            has_floats: self.has_floats || other.has_floats,
            is_newer: self.is_newer || other.is_newer,
        }
    }

    /// Refuses what exceeds a limit. All limits are far below an overflow, so that sums of two are safe.
    pub(crate) fn within_limits(self) -> Result<Self, Refusal> {
        let Self { fixed_bytes, bytes_max, leaves, capabilities, depth, .. } = self;
        if depth > NESTING_MAX {
            let reason = format!("types are nested more than {NESTING_MAX} deep");
            return Err(Refusal { code: Code::NestedTooDeep, reason });
        }
        if fixed_bytes > TYPE_BYTES_MAX {
            let reason =
                format!("{fixed_bytes} bytes of fixed size: at most {TYPE_BYTES_MAX} are possible");
            return Refusal::too_large(reason);
        }
        if bytes_max > MESSAGE_BYTES_MAX {
            let reason =
                format!("up to {bytes_max} bytes: at most {MESSAGE_BYTES_MAX} are possible");
            return Refusal::too_large(reason);
        }
        if leaves > MESSAGE_LEAVES_MAX {
            let reason = format!("{leaves} parts: at most {MESSAGE_LEAVES_MAX} are possible");
            return Refusal::too_large(reason);
        }
        if capabilities > MESSAGE_CAPABILITIES_MAX {
            let reason = format!(
                "{capabilities} capabilities: a message carries at most {MESSAGE_CAPABILITIES_MAX}"
            );
            return Refusal::too_large(reason);
        }
        Ok(self)
    }
}

/// A declared type that has been found possible.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) facts: Facts,
    /// What the type is, for hashes; without its name.
    pub(crate) text: String,
    pub(crate) definition: Definition,
}

/// Declared types by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    entries: HashMap<String, Entry>,
}

impl Known {
    pub(crate) fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    pub(crate) fn definitions(&self) -> impl Iterator<Item = (&str, &Definition)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), &entry.definition))
    }

    pub(crate) fn insert(&mut self, name: String, entry: Entry) {
        self.entries.insert(name, entry);
    }

    pub(crate) fn facts(&self, of: &Type) -> Result<Facts, Refusal> {
        let facts = match of {
            Type::Builtin { builtin: Builtin::String } => {
                return Refusal::impossible("a string without a bound");
            }
            Type::Builtin { builtin } => {
                let has_floats = builtin.is_float();
                let facts = Facts::fixed(builtin.bytes().into());
                Facts { has_floats, is_newer: has_floats, ..facts }
            }
            Type::Named { name } => match self.get(name) {
                Some(entry) => entry.facts,
                None => {
                    return Refusal::impossible(format!("`{name}` is not declared before its use"));
                }
            },
            Type::String { bytes_max } => dynamic(1, *bytes_max)?,
            Type::Vector { element, count_max } => {
                let element = self.facts(element)?;
                if element.capabilities > 0 {
                    return Refusal::impossible(
                        "elements of a vector or dynamic array have no capabilities",
                    );
                }
                let vector = dynamic(element.bytes_max, *count_max)?;
                let is_newer = element.is_newer || element.is_dynamic();
                let (depth, has_floats) = (element.depth, element.has_floats);
                // Code of elements with strings or vectors of their own stands where the vector does.
                let leaves = if element.is_dynamic() { 1 + element.leaves } else { 1 };
                Facts { depth, has_floats, is_newer, leaves, ..vector }
            }
            Type::Optional { of } => {
                if let Some(reason) = self.is_optional(of) {
                    return Refusal::impossible(reason);
                }
                self.facts(of)?.and(Facts::fixed(1))
            }
            Type::Capability { capability } => {
                let present = if capability.is_nullable() { 1 } else { 0 };
                let (facts, is_newer) =
                    (Facts::fixed(present), *capability == CapabilityKind::Window);
                Facts { leaves: present, capabilities: 1, is_newer, ..facts }
            }
            Type::Channel { of } => {
                let value = self.facts(of)?;
                if !value.is_plain() || value.fixed_bytes == 0 {
                    return Refusal::impossible(
                        "values of a channel have a fixed size and no capabilities",
                    );
                }
                let (depth, is_newer) = (value.depth, value.is_newer);
                Facts { capabilities: 1, depth, is_newer, ..Facts::default() }
            }
            Type::Client { .. } => Facts { capabilities: 1, depth: 1, ..Facts::default() },
        };
        Facts { depth: facts.depth + 1, ..facts }.within_limits()
    }

    /// Of the details of an error.
    pub(crate) fn details<'t>(
        &self,
        fields: impl IntoIterator<Item = &'t Type>,
    ) -> Result<Facts, Refusal> {
        let mut all = Facts::default();
        for of in fields {
            all = all.and(self.facts(of)?).within_limits()?;
        }
        if all.capabilities > 0 {
            return Refusal::impossible("details of an error have no capabilities");
        }
        if all.bytes_max > DETAILS_BYTES_MAX {
            let bytes = all.bytes_max;
            return Refusal::too_large(format!(
                "up to {bytes} bytes: details of an error have at most {DETAILS_BYTES_MAX}"
            ));
        }
        Ok(all)
    }

    pub(crate) fn facts_of_definition(&self, definition: &Definition) -> Result<Facts, Refusal> {
        let facts = match definition {
            Definition::Alias { target } => self.facts(target)?,
            Definition::Enum { .. } => Facts::fixed(4),
            // Empty types cost nothing, so that limits would not stop a form in which each has the one before twice.
            Definition::Struct { fields } if fields.is_empty() => {
                return Refusal::impossible("a struct without fields");
            }
            Definition::Union { arms, .. } if arms.is_empty() => {
                return Refusal::impossible("a union without arms");
            }
            Definition::Struct { fields } => {
                let mut all = Facts::default();
                for field in fields {
                    all = all.and(self.facts(&field.of)?).within_limits()?;
                }
                all
            }
            Definition::Union { arms, .. } => {
                let (mut area, mut behind, mut all) = (0, 0, Facts::default());
                for arm in arms {
                    let facts = self.facts(&arm.of)?;
                    if facts.capabilities > 0 {
                        let name = &arm.name;
                        return Refusal::impossible(format!(
                            "`{name}`: arms of a union have no capabilities"
                        ));
                    }
                    area = facts.fixed_bytes.max(area);
                    behind = (facts.bytes_max - facts.fixed_bytes).max(behind);
                    all = Facts { fixed_bytes: 0, bytes_max: 0, leaves: 0, ..all.and(facts) };
                }
                let (fixed_bytes, is_newer) = (area + 4, all.is_newer || behind > 0);
                Facts { fixed_bytes, bytes_max: fixed_bytes + behind, leaves: 2, is_newer, ..all }
            }
            Definition::Array { element, count } => {
                let element = self.facts(element)?;
                let count = u64::from(*count);
                if count == 0 {
                    return Refusal::impossible("an array without elements");
                }
                let fixed_bytes = element.fixed_bytes.saturating_mul(count);
                let bytes_max = element.bytes_max.saturating_mul(count);
                let capabilities = element.capabilities.saturating_mul(count);
                let is_newer = element.is_newer || element.is_dynamic();
                Facts { fixed_bytes, bytes_max, capabilities, is_newer, ..element }
            }
        };
        Facts { depth: facts.depth + 1, ..facts }.within_limits()
    }

    /// Whether a value of this type can already be absent.
    fn is_optional(&self, of: &Type) -> Option<&'static str> {
        let mut of = of;
        for _ in 0..=NESTING_MAX {
            match of {
                Type::Optional { .. } => return Some("the value is optional already"),
                Type::Capability { capability } if capability.is_nullable() => {
                    return Some("this capability can be absent anyway");
                }
                Type::Named { name } => match self.get(name).map(|entry| &entry.definition) {
                    Some(Definition::Alias { target }) => of = target,
                    _ => return None,
                },
                _ => return None,
            }
        }
        None
    }
}

fn dynamic(element_bytes: u64, count_max: u32) -> Result<Facts, Refusal> {
    if count_max == 0 {
        return Refusal::impossible("a bound of 0");
    }
    let bytes_max = element_bytes.saturating_mul(count_max.into()).saturating_add(4);
    Ok(Facts { bytes_max, ..Facts::fixed(4) })
}
