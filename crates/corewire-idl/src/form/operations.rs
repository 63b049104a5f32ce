//! What encoding and decoding consist of: the seam between interfaces and back ends.
//!
//! A [`Lowering`](super::Lowering) takes the types of a message apart once and gives [`Operations`]: one [`Operation`]
//! for each argument, in the order of the file, each with the place of its number in the fixed part. A back end prints
//! the operations as code, or runs them. It never looks into a type, follows an alias or computes an offset itself.
//!
//! | step | to encode | to decode |
//! |---|---|---|
//! | `Number`, `Enum` | store it at its place | load it, and check `bool` and strict enumerations |
//! | `String`, `Vector` | store the length, append the bytes | check the length against the bound, take the bytes |
//! | `Optional` | store 1 and the value, or leave zeros | load the flag; if it is 0, the [lengths](Operation::lengths) must be 0 |
//! | `Capability` | store whether there is one, add it beside the bytes | load the flag, take the next one |
//! | `Struct` | its fields, in order | the same |
//! | `Array` | its element, for each index | the same |
//! | `Union` | store the tag, and an arm in the area | check the tag, load the arm from the area |
//!
//! Strings, vectors and what is in them are appended and taken in the order of the operations.
//!
//! Within arrays a place is scaled: element `i` of a number is at `offset + i * bytes`, where `i` counts through all
//! arrays around it ([`LeafPlace`]). Elements of vectors and arms of unions stand alone: they have operations of their
//! own, whose places count from their first byte ([`Lowering::alone`](super::Lowering::alone)). Those of one type are
//! shared: a union with two arms of another union would double at each level.
//!
//! The consumers are `json` (which runs the operations), `c_header` and `rust` (which print them); the [`Layout`] of
//! the JSON form is a by-product. A new back end needs a name and a type for each declaration, and one match over
//! [`Step`] for each direction.

use std::rc::Rc;

use super::{Builtin, EnumValue, Field, Layout, Type};

/// The operations of a message, or of a value that stands alone.
#[derive(Debug, Default)]
pub(crate) struct Operations<'a> {
    /// The same as a description.
    pub(crate) layout: Layout,
    /// The place of the error, in the reply of an rpc that can fail.
    pub(crate) error: Option<LeafPlace>,
    pub(crate) values: Vec<Operation<'a>>,
}

/// The operation of one value.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    /// The type as the file names it.
    pub(crate) of: &'a Type,
    /// Argument and fields, as in [`Layout`].
    pub(crate) path: String,
    pub(crate) step: Step<'a>,
}

/// A number in the fixed part, or an array of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafPlace {
    /// The first byte.
    pub(crate) offset: u32,
    /// Bytes of one element.
    pub(crate) bytes: u32,
}

/// The length of a string or vector, or those of an array of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length<'s> {
    /// Of the first one.
    pub(crate) at: LeafPlace,
    /// Of the string or vector.
    #[cfg_attr(not(feature = "generate"), expect(dead_code, reason = "only code names it"))]
    pub(crate) path: &'s str,
    /// How many follow each other for each element of the arrays around the value.
    pub(crate) count: u32,
}

/// What an operation does, without aliases.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    Number {
        builtin: Builtin,
        at: LeafPlace,
    },
    Enum {
        name: &'a str,
        flexible: bool,
        values: &'a [EnumValue],
        at: LeafPlace,
    },
    String {
        bytes_max: u32,
        length: LeafPlace,
    },
    Vector {
        elements: Rc<Operations<'a>>,
        count_max: u32,
        length: LeafPlace,
    },
    Optional {
        value: Box<Operation<'a>>,
        present: LeafPlace,
    },
    Capability {
        /// A capability, channel or client.
        of: &'a Type,
        /// Its index in [`Layout::capabilities`].
        number: usize,
        /// The flag of a capability that may be none.
        present: Option<LeafPlace>,
    },
    Struct {
        name: &'a str,
        fields: Vec<(&'a Field, Operation<'a>)>,
    },
    Array {
        element: Box<Operation<'a>>,
        count: u32,
    },
    Union {
        name: &'a str,
        arms: Vec<(&'a Field, Rc<Operations<'a>>)>,
        tag: LeafPlace,
        area: LeafPlace,
    },
}

impl<'a> Operations<'a> {
    /// The only value, of what stands alone.
    pub(crate) fn value(&self) -> Option<&Operation<'a>> {
        self.values.first()
    }

    /// Whether there are strings or vectors in the values.
    pub(crate) const fn is_dynamic(&self) -> bool {
        !self.layout.dynamics.is_empty()
    }

    /// `uint8` or `char`, if the value that stands alone is one of them.
    pub(crate) fn byte(&self) -> Option<Builtin> {
        self.value()?.byte().map(|(builtin, _)| builtin)
    }
}

impl<'a> Operation<'a> {
    /// `uint8` or `char`, and its place, if the value is one of them: arrays and vectors of these are copied as a whole.
    pub(crate) fn byte(&self) -> Option<(Builtin, LeafPlace)> {
        match self.step {
            Step::Number { builtin: builtin @ (Builtin::Uint8 | Builtin::Char), at } => {
                Some((builtin, at))
            }
            _ => None,
        }
    }

    /// All lengths in the value. The arm of a union that is absent is not looked at.
    pub(crate) fn lengths(&self) -> Vec<Length<'_>> {
        let mut all = Vec::new();
        self.add_lengths(1, &mut all);
        all
    }

    fn add_lengths<'s>(&'s self, count: u32, all: &mut Vec<Length<'s>>) {
        match &self.step {
            Step::String { length, .. } | Step::Vector { length, .. } => {
                all.push(Length { at: *length, path: &self.path, count });
            }
            Step::Optional { value, .. } => value.add_lengths(count, all),
            Step::Struct { fields, .. } => {
                fields.iter().for_each(|(_, field)| field.add_lengths(count, all));
            }
            Step::Array { element, count: own } => {
                element.add_lengths(count.saturating_mul(*own), all);
            }
            Step::Number { .. }
            | Step::Enum { .. }
            | Step::Capability { .. }
            | Step::Union { .. } => {}
        }
    }

    /// Whether there are strings or vectors in the value.
    pub(crate) fn is_dynamic(&self) -> bool {
        match &self.step {
            Step::String { .. } | Step::Vector { .. } => true,
            Step::Optional { value, .. } => value.is_dynamic(),
            Step::Struct { fields, .. } => fields.iter().any(|(_, field)| field.is_dynamic()),
            Step::Array { element, .. } => element.is_dynamic(),
            Step::Union { arms, .. } => arms.iter().any(|(_, arm)| arm.is_dynamic()),
            Step::Number { .. } | Step::Enum { .. } | Step::Capability { .. } => false,
        }
    }

    /// Replaces each number of a leaf, in the order of the file, by its offset.
    pub(super) fn settle(&mut self, offsets: &[u32]) {
        let settle = |at: &mut LeafPlace| {
            let leaf = usize::try_from(at.offset).ok();
            at.offset = leaf.and_then(|leaf| offsets.get(leaf)).copied().unwrap_or(0);
        };
        match &mut self.step {
            Step::Number { at, .. } | Step::Enum { at, .. } => settle(at),
            Step::String { length, .. } | Step::Vector { length, .. } => settle(length),
            Step::Optional { value, present } => {
                settle(present);
                value.settle(offsets);
            }
            Step::Capability { present, .. } => present.iter_mut().for_each(settle),
            Step::Struct { fields, .. } => {
                fields.iter_mut().for_each(|(_, field)| field.settle(offsets));
            }
            Step::Array { element, .. } => element.settle(offsets),
            Step::Union { tag, area, .. } => [tag, area].into_iter().for_each(settle),
        }
    }
}
