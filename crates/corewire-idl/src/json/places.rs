//! Where the parts of a message lie, in the order in which a walk over its types meets them.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use super::{JsonError, JsonProblem};
use crate::form::{
    Builtin, CapabilityKind, Definition, EnumValue, Field, Interface, MESSAGE_LEAVES_MAX,
    NESTING_MAX, Type, TypeDecl,
};

/// How many levels a walk descends: each of them may be an alias of another.
pub(crate) const DEPTH_MAX: usize = 2 * NESTING_MAX;

/// What a type stands for, without aliases.
#[derive(Clone, Copy)]
pub(crate) enum Shape<'a> {
    Builtin(Builtin),
    String { bytes_max: u32 },
    Vector { element: &'a Type, count_max: u32 },
    Optional { of: &'a Type },
    Capability { of: &'a Type, is_nullable: bool },
    Struct { fields: &'a [Field] },
    Union { name: &'a str, arms: &'a [Field], area_bytes: u32 },
    Enum { name: &'a str, flexible: bool, values: &'a [EnumValue] },
    Array { element: &'a Type, count: u32 },
}

/// The declared types, and the places of those that have been met.
pub(crate) struct Types<'a> {
    by_name: HashMap<&'a str, &'a TypeDecl>,
    /// Elements of vectors and arms of unions, by their address in the form.
    alone: RefCell<HashMap<*const Type, Rc<Places>>>,
}

/// Offsets in the order of the file.
#[derive(Default)]
pub(crate) struct Places {
    offsets: Vec<u32>,
    pub(crate) bytes: u32,
}

impl<'a> Types<'a> {
    pub(crate) fn new(interface: &'a Interface) -> Self {
        let by_name = interface.types.iter().map(|one| (one.name.as_str(), one)).collect();
        Self { by_name, alone: RefCell::default() }
    }

    pub(crate) fn shape(&self, of: &'a Type) -> Result<Shape<'a>, JsonProblem> {
        let mut of = of;
        for _ in 0..DEPTH_MAX {
            let name = match of {
                Type::Builtin { builtin } => return Ok(Shape::Builtin(*builtin)),
                Type::String { bytes_max } => return Ok(Shape::String { bytes_max: *bytes_max }),
                Type::Vector { element, count_max } => {
                    return Ok(Shape::Vector { element, count_max: *count_max });
                }
                Type::Optional { of } => return Ok(Shape::Optional { of }),
                Type::Capability { capability } => {
                    let is_nullable =
                        matches!(capability, CapabilityKind::Cap | CapabilityKind::GiveAwayCap);
                    return Ok(Shape::Capability { of, is_nullable });
                }
                Type::Channel { .. } | Type::Client { .. } => {
                    return Ok(Shape::Capability { of, is_nullable: false });
                }
                Type::Named { name } => name,
            };
            let decl = *self.by_name.get(name.as_str()).ok_or(JsonProblem::Form)?;
            let name = decl.name.as_str();
            return Ok(match &decl.definition {
                Definition::Alias { target } => {
                    of = target;
                    continue;
                }
                Definition::Struct { fields } => Shape::Struct { fields },
                Definition::Union { arms, area_bytes } => {
                    Shape::Union { name, arms, area_bytes: *area_bytes }
                }
                Definition::Enum { flexible, values } => {
                    Shape::Enum { name, flexible: *flexible, values }
                }
                Definition::Array { element, count } => Shape::Array { element, count: *count },
            });
        }
        Err(JsonProblem::Form)
    }

    /// `uint8` or `char`, if the type is one of them.
    pub(crate) fn byte(&self, of: &'a Type) -> Result<Option<Builtin>, JsonProblem> {
        Ok(match self.shape(of)? {
            Shape::Builtin(builtin @ (Builtin::Uint8 | Builtin::Char)) => Some(builtin),
            _ => None,
        })
    }

    /// The places of these values, and of an error before them.
    pub(crate) fn places(
        &self,
        fails: bool,
        types: impl IntoIterator<Item = &'a Type>,
    ) -> Result<Places, JsonProblem> {
        let mut leaves = Vec::new();
        if fails {
            leaves.push((4, 1));
        }
        for of in types {
            self.leaves(of, 1, &mut leaves, 0)?;
        }
        let mut order = (0..leaves.len()).collect::<Vec<_>>();
        order.sort_by_key(|index| Reverse(leaves[*index].0));
        let mut places = Places { offsets: vec![0; leaves.len()], bytes: 0 };
        for index in order {
            let (bytes, count): (u32, u32) = leaves[index];
            places.offsets[index] = places.bytes;
            let end = bytes.checked_mul(count).and_then(|all| places.bytes.checked_add(all));
            places.bytes = end.ok_or(JsonProblem::Form)?;
        }
        Ok(places)
    }

    /// The places of a value that stands alone: an element of a vector, or an arm.
    pub(crate) fn alone(&self, of: &'a Type) -> Result<Rc<Places>, JsonProblem> {
        let key = std::ptr::from_ref(of);
        if let Some(places) = self.alone.borrow().get(&key) {
            return Ok(Rc::clone(places));
        }
        let places = Rc::new(self.places(false, [of])?);
        self.alone.borrow_mut().insert(key, Rc::clone(&places));
        Ok(places)
    }

    /// The bytes and the count of each leaf, as the layout takes a value apart.
    fn leaves(
        &self,
        of: &'a Type,
        count: u32,
        leaves: &mut Vec<(u32, u32)>,
        depth: usize,
    ) -> Result<(), JsonProblem> {
        // A form from outside has been checked before; this is for one that was put together by hand.
        if depth > DEPTH_MAX || leaves.len() as u64 > MESSAGE_LEAVES_MAX {
            return Err(JsonProblem::Form);
        }
        match self.shape(of)? {
            Shape::Builtin(builtin) => leaves.push((builtin.bytes(), count)),
            Shape::String { .. } | Shape::Vector { .. } => leaves.push((4, 1)),
            Shape::Enum { .. } => leaves.push((4, count)),
            Shape::Optional { of } => {
                leaves.push((1, count));
                self.leaves(of, count, leaves, depth + 1)?;
            }
            Shape::Capability { is_nullable, .. } => {
                leaves.extend(is_nullable.then_some((1, count)));
            }
            Shape::Struct { fields } => {
                for field in fields {
                    self.leaves(&field.of, count, leaves, depth + 1)?;
                }
            }
            Shape::Union { area_bytes, .. } => {
                let area = area_bytes.checked_mul(count).ok_or(JsonProblem::Form)?;
                leaves.extend([(4, count), (1, area)]);
            }
            Shape::Array { element, count: own } => {
                let count = count.checked_mul(own).ok_or(JsonProblem::Form)?;
                self.leaves(element, count, leaves, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Moves the walk behind a value that is absent. `length` gets the place of each length in it.
    pub(crate) fn skip(
        &self,
        frame: &mut Frame,
        of: &'a Type,
        length: &mut dyn FnMut(usize) -> Result<(), JsonProblem>,
    ) -> Result<(), JsonProblem> {
        match self.shape(of)? {
            Shape::Builtin(_) | Shape::Enum { .. } => {
                frame.at(1)?;
            }
            Shape::String { .. } | Shape::Vector { .. } => length(frame.at(4)?)?,
            Shape::Optional { of } => {
                frame.at(1)?;
                self.skip(frame, of, length)?;
            }
            Shape::Capability { is_nullable, .. } => {
                if is_nullable {
                    frame.at(1)?;
                }
                frame.capability += 1;
            }
            Shape::Struct { fields } => {
                for field in fields {
                    self.skip(frame, &field.of, length)?;
                }
            }
            Shape::Union { .. } => {
                frame.at(4)?;
                frame.at(1)?;
            }
            // The elements have their places in common.
            Shape::Array { element, .. } => self.skip(frame, element, length)?,
        }
        Ok(())
    }
}

/// How far a walk over a message, an element or an arm has come.
#[derive(Clone)]
pub(crate) struct Frame {
    places: Rc<Places>,
    next: usize,
    /// Where the whole begins.
    base: usize,
    /// Which element of the arrays around.
    pub(crate) index: usize,
    /// The number of capabilities before, without the other elements of arrays.
    pub(crate) capability: usize,
}

impl Frame {
    pub(crate) const fn new(places: Rc<Places>, base: usize) -> Self {
        Self { places, next: 0, base, index: 0, capability: 0 }
    }

    /// The place of the next leaf, whose elements have this size.
    pub(crate) fn at(&mut self, bytes: usize) -> Result<usize, JsonProblem> {
        let offset = self.places.offsets.get(self.next).ok_or(JsonProblem::Form)?;
        self.next += 1;
        let offset = usize::try_from(*offset).map_err(|_| JsonProblem::Form)?;
        Ok(self.base + offset + self.index * bytes)
    }

    /// Walks over each element of an array.
    pub(crate) fn each<E>(
        &mut self,
        count: usize,
        mut work: impl FnMut(&mut Self, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let (next, capability, outer) = (self.next, self.capability, self.index);
        for index in 0..count {
            (self.next, self.capability, self.index) = (next, capability, outer * count + index);
            work(self, index)?;
        }
        self.index = outer;
        Ok(())
    }
}

/// The path to what is being walked over.
pub(crate) struct Path<'a> {
    message: &'a str,
    steps: Vec<Step<'a>>,
}

#[derive(Clone, Copy)]
pub(crate) enum Step<'a> {
    Name(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    pub(crate) const fn new(message: &'a str) -> Self {
        Self { message, steps: Vec::new() }
    }

    pub(crate) fn push(&mut self, step: Step<'a>) -> Result<(), JsonError> {
        if self.steps.len() > DEPTH_MAX {
            return Err(self.error(JsonProblem::Form));
        }
        self.steps.push(step);
        Ok(())
    }

    pub(crate) fn pop(&mut self) {
        self.steps.pop();
    }

    /// An error here.
    pub(crate) fn error(&self, problem: JsonProblem) -> JsonError {
        let place = match self.steps.as_slice() {
            [] => self.message.to_owned(),
            _ => format!("{}: {self}", self.message),
        };
        JsonError { place, problem }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.steps.iter().enumerate() {
            match step {
                Step::Name(name) if at == 0 => f.write_str(name)?,
                Step::Name(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}
