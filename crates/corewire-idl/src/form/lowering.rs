//! Takes the types of a message apart: into operations, and into the layout that describes them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::facts::NESTING_MAX;
use super::layout::{
    Capability, Dynamic, INLINE_BYTES, Layout, Leaf, LeafRole, MESSAGE_LEAVES_MAX,
};
use super::operations::{LeafPlace, Operation, Operations, Step};
use super::{Builtin, Definition, Type};

/// How deep types may use each other: each of them may be an alias of another.
pub(crate) const DEPTH_MAX: usize = 2 * NESTING_MAX;

/// The types of a form do not agree with each other. Only possible in a form that was put together by hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FormDisagrees;

/// The declared types, and the operations of those that stand alone.
#[derive(Debug)]
pub(crate) struct Lowering<'a> {
    definitions: HashMap<&'a str, &'a Definition>,
    /// By what the type is. Its text would not do: in a form that another process gave out, a type can be named `uint8`.
    alone: RefCell<HashMap<String, Rc<Operations<'a>>>>,
}

impl<'a> Lowering<'a> {
    pub(crate) fn new(definitions: impl Iterator<Item = (&'a str, &'a Definition)>) -> Self {
        Self { definitions: definitions.collect(), alone: RefCell::default() }
    }

    /// The operations of these values, each with its path, and of an error before them.
    pub(crate) fn operations<'p>(
        &self,
        fails: bool,
        values: impl IntoIterator<Item = (&'p str, &'a Type)>,
    ) -> Result<Operations<'a>, FormDisagrees> {
        self.operations_in(0, fails, values)
    }

    /// The operations of a value that stands alone: an element of a vector, or an arm of a union.
    pub(crate) fn alone(&self, of: &'a Type) -> Result<Rc<Operations<'a>>, FormDisagrees> {
        self.alone_in(0, of)
    }

    fn operations_in<'p>(
        &self,
        depth: usize,
        fails: bool,
        values: impl IntoIterator<Item = (&'p str, &'a Type)>,
    ) -> Result<Operations<'a>, FormDisagrees> {
        let mut pass =
            Pass { lowering: self, depth, leaves: Vec::new(), layout: Layout::default() };
        let error = fails.then(|| pass.leaf("", LeafRole::Error, Builtin::Int32, 1));
        let values = values.into_iter().map(|(path, of)| pass.value(path, of, 1, None));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        pass.finish(error, values)
    }

    fn alone_in(&self, depth: usize, of: &'a Type) -> Result<Rc<Operations<'a>>, FormDisagrees> {
        let key = format!("{of:?}");
        if let Some(operations) = self.alone.borrow().get(&key) {
            return Ok(Rc::clone(operations));
        }
        let operations = Rc::new(self.operations_in(depth, false, [("", of)])?);
        self.alone.borrow_mut().insert(key, Rc::clone(&operations));
        Ok(operations)
    }
}

/// One pass over some values. Until it ends, each place has the number of its leaf instead of an offset.
struct Pass<'l, 'a> {
    lowering: &'l Lowering<'a>,
    depth: usize,
    /// In the order of the file.
    leaves: Vec<Leaf>,
    /// Until the pass ends, `bytes_max` is without the leaves.
    layout: Layout,
}

impl<'a> Pass<'_, 'a> {
    fn leaf(&mut self, path: &str, role: LeafRole, builtin: Builtin, count: u32) -> LeafPlace {
        let offset = small(self.leaves.len());
        self.leaves.push(Leaf { path: path.to_owned(), role, builtin, count, offset: 0 });
        LeafPlace { offset, bytes: builtin.bytes() }
    }

    /// A value that is there `count` times, because of the arrays around it. `present` is the flag that tells whether
    /// it is there at all.
    fn value(
        &mut self,
        path: &str,
        of: &'a Type,
        count: u32,
        present: Option<LeafPlace>,
    ) -> Result<Operation<'a>, FormDisagrees> {
        if self.depth > DEPTH_MAX || self.leaves.len() as u64 > 2 * MESSAGE_LEAVES_MAX {
            return Err(FormDisagrees);
        }
        self.depth += 1;
        let step = match of {
            Type::Builtin { builtin } => {
                let at = self.leaf(path, LeafRole::Value, *builtin, count);
                Step::Number { builtin: *builtin, at }
            }
            Type::Named { name } => self.declared(path, name, count, present)?,
            Type::String { bytes_max } => {
                let dynamic = Dynamic { utf8: true, ..Dynamic::new(path, 1, *bytes_max) };
                let length = self.dynamic(dynamic, *bytes_max, count);
                Step::String { bytes_max: *bytes_max, length }
            }
            Type::Vector { element, count_max } => {
                let elements = self.lowering.alone_in(self.depth, element)?;
                let Layout { fixed_bytes, bytes_max, .. } = elements.layout;
                let of = elements.is_dynamic().then(|| (**element).clone());
                let dynamic = Dynamic::new(path, fixed_bytes, *count_max);
                let bytes_max = bytes_max.saturating_mul(*count_max);
                let length = self.dynamic(Dynamic { of, ..dynamic }, bytes_max, count);
                Step::Vector { elements, count_max: *count_max, length }
            }
            Type::Optional { of } => {
                let present = self.leaf(path, LeafRole::Present, Builtin::Bool, count);
                let value = Box::new(self.value(path, of, count, Some(present))?);
                Step::Optional { value, present }
            }
            Type::Capability { capability } if capability.is_nullable() => {
                let present = self.leaf(path, LeafRole::Present, Builtin::Bool, count);
                let number = self.capability(path, of, count, Some(present));
                Step::Capability { of, number, present: Some(present) }
            }
            Type::Capability { .. } | Type::Channel { .. } | Type::Client { .. } => {
                let number = self.capability(path, of, count, present);
                Step::Capability { of, number, present: None }
            }
        };
        self.depth -= 1;
        Ok(Operation { of, path: path.to_owned(), step })
    }

    fn declared(
        &mut self,
        path: &str,
        name: &str,
        count: u32,
        present: Option<LeafPlace>,
    ) -> Result<Step<'a>, FormDisagrees> {
        let (name, definition) =
            self.lowering.definitions.get_key_value(name).ok_or(FormDisagrees)?;
        Ok(match definition {
            Definition::Alias { target } => self.value(path, target, count, present)?.step,
            Definition::Struct { fields } => {
                let fields = fields.iter().map(|field| {
                    let path = match path {
                        "" => field.name.clone(),
                        _ => format!("{path}.{}", field.name),
                    };
                    Ok((field, self.value(&path, &field.of, count, present)?))
                });
                Step::Struct { name, fields: fields.collect::<Result<_, _>>()? }
            }
            Definition::Union { arms, area_bytes } => {
                let tag = self.leaf(path, LeafRole::Tag, Builtin::Uint32, count);
                let bytes = area_bytes.checked_mul(count).ok_or(FormDisagrees)?;
                let area = self.leaf(path, LeafRole::Area, Builtin::Uint8, bytes);
                let arms =
                    arms.iter().map(|arm| Ok((arm, self.lowering.alone_in(self.depth, &arm.of)?)));
                let arms = arms.collect::<Result<Vec<_>, _>>()?;
                let behind = arms.iter().map(|(_, arm)| arm.layout.bytes_behind());
                let behind = behind.max().unwrap_or(0);
                if behind > 0 {
                    let of = Some(Type::Named { name: (*name).to_owned() });
                    let dynamic = Dynamic { of, ..Dynamic::new(path, 0, 1) };
                    self.behind(Dynamic { length_leaf: tag.offset, ..dynamic }, behind, count);
                }
                Step::Union { name, arms, tag, area: LeafPlace { bytes: *area_bytes, ..area } }
            }
            Definition::Enum { flexible, values } => {
                let at = self.leaf(path, LeafRole::Enum, Builtin::Int32, count);
                Step::Enum { name, flexible: *flexible, values, at }
            }
            Definition::Array { element, count: own } => {
                let all = count.checked_mul(*own).ok_or(FormDisagrees)?;
                let element = self.value(&format!("{path}[]"), element, all, present)?;
                Step::Array { element: Box::new(element), count: *own }
            }
        })
    }

    /// A string or vector with its length, `count` times.
    fn dynamic(&mut self, dynamic: Dynamic, bytes_max: u32, count: u32) -> LeafPlace {
        let length = self.leaf(&dynamic.path, LeafRole::Length, Builtin::Uint32, count);
        self.behind(Dynamic { length_leaf: length.offset, ..dynamic }, bytes_max, count);
        length
    }

    /// What stands behind the fixed part, `count` times.
    fn behind(&mut self, dynamic: Dynamic, bytes_max: u32, count: u32) {
        self.layout.dynamics.push(dynamic);
        let bytes = bytes_max.saturating_mul(count);
        self.layout.bytes_max = self.layout.bytes_max.saturating_add(bytes);
    }

    fn capability(
        &mut self,
        path: &str,
        of: &Type,
        count: u32,
        present: Option<LeafPlace>,
    ) -> usize {
        let (path, of) = (path.to_owned(), of.clone());
        let present_leaf = present.map(|present| present.offset);
        self.layout.capabilities.push(Capability { path, of, count, present_leaf });
        self.layout.capabilities.len() - 1
    }

    /// Gives each leaf its offset.
    fn finish(
        self,
        mut error: Option<LeafPlace>,
        mut values: Vec<Operation<'a>>,
    ) -> Result<Operations<'a>, FormDisagrees> {
        let Self { leaves, mut layout, .. } = self;
        // The numbers in the order of the file, then the numbers in the order of offsets, by the former.
        let mut order = (0..leaves.len()).zip(leaves).collect::<Vec<_>>();
        order.sort_by_key(|(_, leaf)| std::cmp::Reverse(leaf.builtin.bytes()));
        let (mut offsets, mut places) = (vec![0; order.len()], vec![0; order.len()]);
        let mut end = 0_u32;
        for (place, (number, leaf)) in order.into_iter().enumerate() {
            (offsets[number], places[number]) = (end, small(place));
            let bytes = leaf.builtin.bytes().checked_mul(leaf.count).ok_or(FormDisagrees)?;
            layout.leaves.push(Leaf { offset: end, ..leaf });
            end = end.checked_add(bytes).ok_or(FormDisagrees)?;
        }
        values.iter_mut().for_each(|value| value.settle(&offsets));
        if let (Some(error), Some(offset)) = (&mut error, offsets.first()) {
            error.offset = *offset;
        }
        let place = |number: &mut u32| {
            let found = usize::try_from(*number).ok().and_then(|number| places.get(number));
            *number = found.copied().unwrap_or(0);
        };
        (layout.fixed_bytes, layout.bytes_max) = (end, layout.bytes_max.saturating_add(end));
        layout.dynamics.iter_mut().for_each(|dynamic| place(&mut dynamic.length_leaf));
        layout.capabilities.iter_mut().filter_map(|one| one.present_leaf.as_mut()).for_each(place);
        layout.inline = layout.bytes_max <= INLINE_BYTES;
        Ok(Operations { layout, error, values })
    }
}

fn small(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
