//! Code that stores and reads one message: a walk over its types in the order of the file, in which each number gets
//! the offset that the layout has for it.

use std::rc::Rc;

use super::Header;
use super::code::Code;
use super::types::address;
use crate::form::{Builtin, Type};
use crate::json::JsonProblem;
use crate::json::places::{Frame, Places, Shape};

/// The walk over the arguments of one message, or over a value that stands alone.
pub(super) struct Walk<'h, 'a> {
    header: &'h mut Header<'a>,
    frame: Frame,
    /// The bytes.
    base: &'h str,
    /// Which element of the arrays around it.
    index: Option<String>,
    /// The number of loops around it.
    depth: usize,
}

impl<'h, 'a> Walk<'h, 'a> {
    pub(super) fn new(header: &'h mut Header<'a>, places: Rc<Places>, base: &'h str) -> Self {
        Self { header, frame: Frame::new(places, 0), base, index: None, depth: 0 }
    }

    /// The address of the next leaf, whose elements have this size.
    pub(super) fn at(&mut self, bytes: u32) -> Result<String, JsonProblem> {
        let offset = self.frame.at(0)?;
        let mut at = self.base.to_owned();
        if offset > 0 {
            at.push_str(&format!(" + {offset}"));
        }
        match (&self.index, bytes) {
            (None, _) => {}
            (Some(index), 1) => at.push_str(&format!(" + {index}")),
            (Some(index), bytes) => at.push_str(&format!(" + ({index}) * {bytes}")),
        }
        Ok(at)
    }

    /// A loop over the elements of an array.
    fn each(
        &mut self,
        count: u32,
        code: &mut Code,
        work: impl FnOnce(&mut Self, &str, &mut Code) -> Result<(), JsonProblem>,
    ) -> Result<(), JsonProblem> {
        let index = format!("i{}", self.depth);
        let inner = match &self.index {
            None => index.clone(),
            Some(outer) => format!("({outer}) * {count} + {index}"),
        };
        let outer = self.index.replace(inner);
        self.depth += 1;
        let mut body = Code::default();
        work(self, &index, &mut body)?;
        // Arrays of capabilities that are always there have no bytes.
        if !body.text.is_empty() {
            code.open(&format!("for (size_t {index} = 0; {index} < {count}; {index}++) {{"));
            body.text.lines().for_each(|line| code.line(line));
            code.close("}");
        }
        self.depth -= 1;
        self.index = outer;
        Ok(())
    }

    /// Code that stores the value at `place`.
    pub(super) fn put(
        &mut self,
        of: &'a Type,
        place: &str,
        code: &mut Code,
    ) -> Result<(), JsonProblem> {
        match self.header.shape(of)? {
            Shape::Builtin(builtin) => {
                let at = self.at(builtin.bytes())?;
                let bits = 8 * builtin.bytes();
                let value = match builtin {
                    Builtin::Bool => format!("{place} ? 1 : 0"),
                    Builtin::Char => format!("(uint8_t){place}"),
                    _ if builtin.is_signed() => format!("(uint{bits}_t){place}"),
                    _ => place.to_owned(),
                };
                code.line(&format!("corewire_put_u{bits}({at}, {value});"));
            }
            Shape::Enum { name, flexible, .. } => {
                let at = self.at(4)?;
                self.known(name, flexible, place, code)?;
                code.line(&format!("corewire_put_u32({at}, (uint32_t){place});"));
            }
            Shape::String { bytes_max } => {
                let at = self.at(4)?;
                code.line(&format!(
                    "COREWIRE_TRY(corewire_put_string({at}, out, &used, {place}, {bytes_max}));"
                ));
            }
            Shape::Vector { element, count_max } => {
                let at = self.at(4)?;
                let call = match self.header.types.byte(element)? {
                    Some(_) => {
                        format!(
                            "corewire_put_bytes({at}, out, &used, {place}.data, {place}.count, {count_max})"
                        )
                    }
                    None => {
                        let name = self.header.vector(element)?;
                        format!("{name}_put({at}, out, &used, {}, {count_max})", address(place))
                    }
                };
                code.line(&format!("COREWIRE_TRY({call});"));
            }
            Shape::Optional { of } => {
                let at = self.at(1)?;
                code.open(&format!("if ({}) {{", member(place, "is_present")));
                code.line(&format!("corewire_put_u8({at}, 1);"));
                self.put(of, &member(place, "value"), code)?;
                code.close("}");
            }
            Shape::Capability { is_nullable: true, .. } => {
                let at = self.at(1)?;
                code.line(&format!("corewire_put_u8({at}, {place} ? 1 : 0);"));
            }
            Shape::Capability { .. } => {}
            Shape::Struct { fields } => {
                let of = self.declared(of)?;
                for field in fields {
                    let name = self.header.member(of, &field.name);
                    self.put(&field.of, &member(place, &name), code)?;
                }
            }
            Shape::Union { name, area_bytes, .. } => {
                let (tag, area) = (self.at(4)?, self.at(area_bytes)?);
                let name = self.header.type_name(name)?;
                code.line(&format!("COREWIRE_TRY({name}_put({tag}, {area}, {}));", address(place)));
            }
            Shape::Array { element, count } => {
                if self.header.types.byte(element)?.is_some() {
                    let at = self.at(count)?;
                    code.line(&format!("memcpy({at}, {place}, {count});"));
                    return Ok(());
                }
                self.each(count, code, |walk, index, code| {
                    walk.put(element, &format!("{place}[{index}]"), code)
                })?;
            }
        }
        Ok(())
    }

    /// Code that reads a value to `place`, which holds zeros.
    pub(super) fn get(
        &mut self,
        of: &'a Type,
        place: &str,
        code: &mut Code,
    ) -> Result<(), JsonProblem> {
        match self.header.shape(of)? {
            Shape::Builtin(builtin) => {
                let at = self.at(builtin.bytes())?;
                let bits = 8 * builtin.bytes();
                match builtin {
                    Builtin::Bool => {
                        code.line(&format!(
                            "COREWIRE_TRY(corewire_get_bool({at}, {}));",
                            address(place)
                        ));
                    }
                    Builtin::Char => code.line(&format!("{place} = corewire_get_char({at});")),
                    _ => {
                        let sign = if builtin.is_signed() { 'i' } else { 'u' };
                        code.line(&format!("{place} = corewire_get_{sign}{bits}({at});"));
                    }
                }
            }
            Shape::Enum { name, flexible, .. } => {
                let at = self.at(4)?;
                code.line(&format!("{place} = corewire_get_i32({at});"));
                self.known(name, flexible, place, code)?;
            }
            Shape::String { bytes_max } => {
                let at = self.at(4)?;
                let place = address(place);
                code.line(&format!(
                    "COREWIRE_TRY(corewire_take_string(&rest, {at}, {bytes_max}, {place}));"
                ));
            }
            Shape::Vector { element, count_max } => {
                let at = self.at(4)?;
                let name = match self.header.types.byte(element)? {
                    Some(Builtin::Char) => "corewire_take_chars".to_owned(),
                    Some(_) => "corewire_take_bytes".to_owned(),
                    None => format!("{}_take", self.header.vector(element)?),
                };
                code.line(&format!(
                    "COREWIRE_TRY({name}(&rest, {at}, {count_max}, {}));",
                    address(place)
                ));
            }
            Shape::Optional { of } => {
                let at = self.at(1)?;
                let present = member(place, "is_present");
                code.line(&format!("COREWIRE_TRY(corewire_get_bool({at}, &{present}));"));
                code.open(&format!("if ({present}) {{"));
                let mut absent = Code::default();
                self.get_present(of, &member(place, "value"), code, &mut absent)?;
                if !absent.text.is_empty() {
                    code.close("} else {");
                    code.open_again();
                    absent.text.lines().for_each(|line| code.line(line));
                }
                code.close("}");
            }
            Shape::Capability { is_nullable: true, .. } => {
                let at = self.at(1)?;
                code.line(&format!("COREWIRE_TRY(corewire_get_bool({at}, {}));", address(place)));
            }
            Shape::Capability { .. } => code.line(&format!("{place} = true;")),
            Shape::Struct { fields } => {
                let of = self.declared(of)?;
                for field in fields {
                    let name = self.header.member(of, &field.name);
                    self.get(&field.of, &member(place, &name), code)?;
                }
            }
            Shape::Union { name, area_bytes, .. } => {
                let (tag, area) = (self.at(4)?, self.at(area_bytes)?);
                let name = self.header.type_name(name)?;
                code.line(&format!("COREWIRE_TRY({name}_get({tag}, {area}, {}));", address(place)));
            }
            Shape::Array { element, count } => {
                if self.header.types.byte(element)?.is_some() {
                    let at = self.at(count)?;
                    code.line(&format!("memcpy({place}, {at}, {count});"));
                    return Ok(());
                }
                self.each(count, code, |walk, index, code| {
                    walk.get(element, &format!("{place}[{index}]"), code)
                })?;
            }
        }
        Ok(())
    }

    /// Reads the value of an optional one, and collects the checks for one that is absent.
    fn get_present(
        &mut self,
        of: &'a Type,
        place: &str,
        code: &mut Code,
        absent: &mut Code,
    ) -> Result<(), JsonProblem> {
        let mut ahead = self.frame.clone();
        let base = self.base;
        self.header.types.skip(&mut ahead, of, &mut |at| {
            absent.line(&format!("COREWIRE_TRY(corewire_absent({base} + {at}));"));
            Ok(())
        })?;
        self.get(of, place, code)
    }

    /// Code that adds up the bytes of strings and vectors, each as if it were within its bound.
    pub(super) fn size(
        &mut self,
        of: &'a Type,
        place: &str,
        code: &mut Code,
    ) -> Result<(), JsonProblem> {
        match self.header.shape(of)? {
            Shape::String { bytes_max } => {
                code.line(&format!(
                    "size += corewire_least({}, {bytes_max});",
                    member(place, "length")
                ));
            }
            Shape::Vector { element, count_max } => {
                let bytes = self.header.types.alone(element)?.bytes;
                let scaled = if bytes == 1 { String::new() } else { format!(" * {bytes}") };
                let count = member(place, "count");
                code.line(&format!("size += corewire_least({count}, {count_max}){scaled};"));
            }
            Shape::Optional { of } => {
                let mut inner = Code::default();
                self.size(of, &member(place, "value"), &mut inner)?;
                if !inner.text.is_empty() {
                    code.open(&format!("if ({}) {{", member(place, "is_present")));
                    inner.text.lines().for_each(|line| code.line(line));
                    code.close("}");
                }
            }
            Shape::Struct { fields } => {
                let of = self.declared(of)?;
                for field in fields {
                    let name = self.header.member(of, &field.name);
                    self.size(&field.of, &member(place, &name), code)?;
                }
            }
            // Their elements have a fixed size.
            Shape::Array { .. }
            | Shape::Builtin(_)
            | Shape::Enum { .. }
            | Shape::Capability { .. }
            | Shape::Union { .. } => {}
        }
        Ok(())
    }

    fn known(
        &self,
        name: &str,
        flexible: bool,
        place: &str,
        code: &mut Code,
    ) -> Result<(), JsonProblem> {
        if !flexible {
            let name = self.header.type_name(name)?;
            code.open(&format!("if (!{name}_is_known({place})) {{"));
            code.line("return COREWIRE_ERROR_VALUE;");
            code.close("}");
        }
        Ok(())
    }

    /// The name of the struct for which a type stands.
    fn declared(&self, of: &'a Type) -> Result<&'a str, JsonProblem> {
        match self.header.interface.resolve(of) {
            crate::form::Resolved::Declared(decl) => Ok(&decl.name),
            crate::form::Resolved::Plain(_) => Err(JsonProblem::Form),
        }
    }
}

/// A member of the struct at `place`.
pub(super) fn member(place: &str, name: &str) -> String {
    match address(place) {
        pointer if !pointer.starts_with('&') => format!("{pointer}->{name}"),
        _ => format!("{place}.{name}"),
    }
}
