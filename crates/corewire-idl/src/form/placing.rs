//! Finds where the parts of a message lie.

use super::facts::Known;
use super::layout::{Capability, Dynamic, INLINE_BYTES, Layout, Leaf, LeafRole};
use super::{Builtin, CapabilityKind, Definition, Interface, Type};

impl Interface {
    /// Where the parts of a value lie. `None` for types that are not possible.
    #[must_use]
    pub fn layout_of(&self, of: &Type) -> Option<Layout> {
        let known = self.known().ok()?;
        known.facts(of).ok()?;
        let mut builder = Builder::new(&known);
        builder.add("", of);
        Some(builder.finish())
    }
}

/// Collects leaves in the order of the file, then sorts them.
pub(crate) struct Builder<'a> {
    known: &'a Known,
    leaves: Vec<Leaf>,
    dynamics: Vec<Dynamic>,
    capabilities: Vec<Capability>,
}

impl<'a> Builder<'a> {
    pub(crate) const fn new(known: &'a Known) -> Self {
        Self { known, leaves: Vec::new(), dynamics: Vec::new(), capabilities: Vec::new() }
    }

    pub(crate) fn error(&mut self) {
        self.leaf("", LeafRole::Error, Builtin::Int32, 1);
    }

    /// Adds a value. Its type has been found possible, which bounds depth and number of leaves.
    pub(crate) fn add(&mut self, path: &str, of: &Type) {
        self.add_type(path, of, 1, None);
    }

    fn leaf(&mut self, path: &str, role: LeafRole, builtin: Builtin, count: u32) -> u32 {
        self.leaves.push(Leaf { path: path.to_owned(), role, builtin, count, offset: 0 });
        small(self.leaves.len() - 1)
    }

    fn add_type(&mut self, path: &str, of: &Type, count: u32, present: Option<u32>) {
        match of {
            Type::Builtin { builtin } => {
                self.leaf(path, LeafRole::Value, *builtin, count);
            }
            Type::Named { name } => {
                if let Some(entry) = self.known.get(name) {
                    self.add_definition(path, &entry.definition, count, present);
                }
            }
            Type::String { bytes_max } => self.dynamic(path, 1, *bytes_max, true),
            Type::Vector { element, count_max } => {
                let facts = self.known.facts(element).unwrap_or_default();
                let bytes = u32::try_from(facts.fixed_bytes).unwrap_or(u32::MAX);
                self.dynamic(path, bytes, *count_max, false);
            }
            Type::Optional { of } => {
                let present = self.leaf(path, LeafRole::Present, Builtin::Bool, count);
                self.add_type(path, of, count, Some(present));
            }
            Type::Capability { capability } => {
                let present = match capability {
                    CapabilityKind::Cap | CapabilityKind::GiveAwayCap => {
                        Some(self.leaf(path, LeafRole::Present, Builtin::Bool, count))
                    }
                    _ => present,
                };
                self.capability(path, of, count, present);
            }
            Type::Channel { .. } | Type::Client { .. } => self.capability(path, of, count, present),
        }
    }

    fn add_definition(&mut self, path: &str, of: &Definition, count: u32, present: Option<u32>) {
        match of {
            Definition::Alias { target } => self.add_type(path, target, count, present),
            Definition::Struct { fields } => {
                for field in fields {
                    let path = match path {
                        "" => field.name.clone(),
                        _ => format!("{path}.{}", field.name),
                    };
                    self.add_type(&path, &field.of, count, present);
                }
            }
            Definition::Union { area_bytes, .. } => {
                self.leaf(path, LeafRole::Tag, Builtin::Uint32, count);
                let bytes = area_bytes.saturating_mul(count);
                self.leaf(path, LeafRole::Area, Builtin::Uint8, bytes);
            }
            Definition::Enum { .. } => {
                self.leaf(path, LeafRole::Enum, Builtin::Int32, count);
            }
            Definition::Array { element, count: own } => {
                let path = format!("{path}[]");
                self.add_type(&path, element, count.saturating_mul(*own), present);
            }
        }
    }

    fn dynamic(&mut self, path: &str, element_bytes: u32, count_max: u32, utf8: bool) {
        let length_leaf = self.leaf(path, LeafRole::Length, Builtin::Uint32, 1);
        let path = path.to_owned();
        self.dynamics.push(Dynamic { path, length_leaf, element_bytes, count_max, utf8 });
    }

    fn capability(&mut self, path: &str, of: &Type, count: u32, present_leaf: Option<u32>) {
        let (path, of) = (path.to_owned(), of.clone());
        self.capabilities.push(Capability { path, of, count, present_leaf });
    }

    pub(crate) fn finish(mut self) -> Layout {
        let mut order = (0..self.leaves.len()).collect::<Vec<_>>();
        order.sort_by_key(|index| std::cmp::Reverse(self.leaves[*index].builtin.bytes()));
        let mut places = vec![0; order.len()];
        let mut leaves = Vec::with_capacity(order.len());
        let mut offset = 0_u32;
        for (place, index) in order.into_iter().enumerate() {
            places[index] = small(place);
            let leaf = Leaf { offset, ..self.leaves[index].clone() };
            offset = offset.saturating_add(leaf.builtin.bytes().saturating_mul(leaf.count));
            leaves.push(leaf);
        }
        let place = |index: &mut u32| {
            *index = usize::try_from(*index).ok().and_then(|i| places.get(i).copied()).unwrap_or(0);
        };
        let mut bytes_max = offset;
        for dynamic in &mut self.dynamics {
            place(&mut dynamic.length_leaf);
            let bytes = dynamic.element_bytes.saturating_mul(dynamic.count_max);
            bytes_max = bytes_max.saturating_add(bytes);
        }
        self.capabilities.iter_mut().filter_map(|one| one.present_leaf.as_mut()).for_each(place);
        let inline = bytes_max <= INLINE_BYTES;
        let Self { dynamics, capabilities, .. } = self;
        Layout { fixed_bytes: offset, bytes_max, inline, leaves, dynamics, capabilities }
    }
}

fn small(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
