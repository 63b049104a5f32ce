//! Where a run over the operations of a message is.

use std::fmt;

use super::{JsonError, JsonProblem};
use crate::form::{DEPTH_MAX, LeafPlace};

/// A value: in the bytes, and in the arguments. Each is made from the one around it.
pub(super) struct Location<'l> {
    around: Option<&'l Self>,
    /// The message, if nothing is around it.
    name: Name<'l>,
    depth: usize,
    /// The first byte of the message, or of what stands alone.
    base: usize,
    /// Which element of the arrays around it.
    pub(super) index: usize,
}

pub(super) enum Name<'l> {
    Named(&'l str),
    Numbered(usize),
}

impl<'l> Location<'l> {
    pub(super) const fn message(name: &'l str) -> Self {
        Self { around: None, name: Name::Named(name), depth: 0, base: 0, index: 0 }
    }

    /// An argument or field.
    pub(super) const fn field(&'l self, name: &'l str) -> Self {
        let name = Name::Named(name);
        Self { around: Some(self), name, depth: self.depth + 1, base: self.base, index: self.index }
    }

    /// One of `count` elements of an array.
    pub(super) const fn element(&'l self, index: usize, count: usize) -> Self {
        let name = Name::Numbered(index);
        let index = self.index * count + index;
        Self { around: Some(self), name, depth: self.depth + 1, base: self.base, index }
    }

    /// What stands alone, and begins at the byte `base`.
    pub(super) fn alone(&'l self, name: Name<'l>, base: usize) -> Result<Self, JsonError> {
        if self.depth > DEPTH_MAX {
            // A form that was put together by hand can have a union in itself.
            return self.fail(JsonProblem::Form);
        }
        Ok(Self { around: Some(self), name, depth: self.depth + 1, base, index: 0 })
    }

    /// The first byte of a number.
    pub(super) fn at(&self, place: LeafPlace) -> usize {
        let wide = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        self.base + wide(place.offset) + self.index * wide(place.bytes)
    }

    pub(super) fn fail<T>(&self, problem: JsonProblem) -> Result<T, JsonError> {
        Err(JsonError { place: format!("{self:#}"), problem })
    }

    pub(super) fn checked<T>(
        &self,
        result: Result<T, impl Into<JsonProblem>>,
    ) -> Result<T, JsonError> {
        result.or_else(|problem| self.fail(problem.into()))
    }
}

/// The path within the message; in the alternate form with the message.
impl fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.around, &self.name) {
            (None, Name::Named(message)) if f.alternate() => return f.write_str(message),
            (None, _) => return Ok(()),
            (Some(around), _) => around.fmt(f)?,
        }
        let separator = match self.depth {
            1 if f.alternate() => ": ",
            1 => "",
            _ => ".",
        };
        match self.name {
            Name::Named(name) => write!(f, "{separator}{name}"),
            Name::Numbered(index) => write!(f, "[{index}]"),
        }
    }
}
