//! Code that runs the operations of a message: stores and reads each value, and adds up the bytes of strings and vectors.

use super::Header;
use super::code::{Code, line};
use super::types::address;
use crate::form::{Builtin, FormDisagrees, LeafPlace, Operation, Step};

/// What code does with a value.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// Stores it in the message.
    Put,
    /// Reads it to memory that holds zeros.
    Get,
}

impl Way {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
        }
    }

    /// The parameters of a function for a value whose numbers are at `fixed`, and whose strings and vectors follow.
    pub(super) fn parameters(self, fixed: &str, is_dynamic: bool, value: &str) -> String {
        match (self, is_dynamic) {
            (Self::Put, false) => format!("{fixed}, const {value}"),
            (Self::Put, true) => format!("{fixed}, uint8_t *out, size_t *used, const {value}"),
            (Self::Get, false) => format!("{fixed}, {value}"),
            (Self::Get, true) => format!("{fixed}, struct corewire_rest *rest, {value}"),
        }
    }

    /// Code of such a function that has no strings and vectors in one case.
    pub(super) const fn unused(self) -> &'static str {
        match self {
            Self::Put => "(void)out, (void)used;",
            Self::Get => "(void)rest;",
        }
    }
}

/// The operations of one message, or of a value that stands alone.
pub(super) struct Walk<'h, 'a> {
    header: &'h mut Header<'a>,
    /// The bytes.
    base: &'h str,
    /// What `out` has already, and what has not been read of a message: pointers.
    used: &'static str,
    rest: &'static str,
    /// Which element of the arrays around it.
    index: Option<String>,
    /// The number of loops around it.
    depth: usize,
}

impl<'h, 'a> Walk<'h, 'a> {
    /// For a message, whose functions have these themselves.
    pub(super) fn new(header: &'h mut Header<'a>, base: &'h str) -> Self {
        Self { header, base, used: "&used", rest: "&rest", index: None, depth: 0 }
    }

    /// For a value that stands alone: its functions are given pointers.
    pub(super) fn alone(header: &'h mut Header<'a>, base: &'h str) -> Self {
        Self { used: "used", rest: "rest", ..Self::new(header, base) }
    }

    /// The arguments of a function for a value with strings or vectors of its own, behind its numbers.
    pub(super) fn passed(&self, way: Way, is_dynamic: bool) -> String {
        match (way, is_dynamic) {
            (_, false) => String::new(),
            (Way::Put, true) => format!(" out, {},", self.used),
            (Way::Get, true) => format!(" {},", self.rest),
        }
    }

    /// The address of a number.
    pub(super) fn at(&self, place: LeafPlace) -> String {
        let mut at = self.base.to_owned();
        if place.offset > 0 {
            at.push_str(&format!(" + {}", place.offset));
        }
        match (&self.index, place.bytes) {
            (None, _) => {}
            (Some(index), 1) => at.push_str(&format!(" + {index}")),
            (Some(index), bytes) => at.push_str(&format!(" + ({index}) * {bytes}")),
        }
        at
    }

    /// A loop over the elements of an array.
    fn each(
        &mut self,
        count: u32,
        code: &mut Code,
        work: impl FnOnce(&mut Self, &str, &mut Code) -> Result<(), FormDisagrees>,
    ) -> Result<(), FormDisagrees> {
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
        code.block(&format!("for (size_t {index} = 0; {index} < {count}; {index}++) {{"), &body);
        self.depth -= 1;
        self.index = outer;
        Ok(())
    }

    /// Code for the value at `place`.
    pub(super) fn run(
        &mut self,
        way: Way,
        operation: &Operation<'a>,
        place: &str,
        code: &mut Code,
    ) -> Result<(), FormDisagrees> {
        match (&operation.step, way) {
            (Step::Struct { name, fields }, _) => {
                for (field, inner) in fields {
                    let name = self.header.member(name, &field.name);
                    self.run(way, inner, &member(place, &name), code)?;
                }
                Ok(())
            }
            (Step::Array { element, count }, _) if element.byte().is_none() => {
                self.each(*count, code, |walk, index, code| {
                    walk.run(way, element, &format!("{place}[{index}]"), code)
                })
            }
            (Step::Union { name, tag, area, .. }, _) => {
                let name = self.header.type_name(name)?;
                let passed = self.passed(way, operation.is_dynamic());
                let (way, tag, area) = (way.as_str(), self.at(*tag), self.at(*area));
                let place = address(place);
                line!(code, "COREWIRE_TRY({name}_{way}({tag}, {area},{passed} {place}));");
                Ok(())
            }
            (_, Way::Put) => self.put(operation, place, code),
            (_, Way::Get) => self.get(operation, place, code),
        }
    }

    /// Code that stores the value at `place`.
    fn put(
        &mut self,
        operation: &Operation<'a>,
        place: &str,
        code: &mut Code,
    ) -> Result<(), FormDisagrees> {
        match &operation.step {
            Step::Number { builtin, at } => {
                let (at, bits) = (self.at(*at), 8 * builtin.bytes());
                let (bits, kind) = (bits, if builtin.is_float() { 'f' } else { 'u' });
                let value = match builtin {
                    Builtin::Bool => format!("{place} ? 1 : 0"),
                    Builtin::Char => format!("(uint8_t){place}"),
                    _ if builtin.is_signed() => format!("(uint{bits}_t){place}"),
                    _ => place.to_owned(),
                };
                line!(code, "corewire_put_{kind}{bits}({at}, {value});");
            }
            Step::Enum { name, flexible, at, .. } => {
                self.known(name, *flexible, place, code)?;
                line!(code, "corewire_put_u32({}, (uint32_t){place});", self.at(*at));
            }
            Step::String { bytes_max, length } => {
                let (at, used) = (self.at(*length), self.used);
                let arguments = format!("{at}, out, {used}, {place}, {bytes_max}");
                line!(code, "COREWIRE_TRY(corewire_put_string({arguments}));");
            }
            Step::Vector { elements, count_max, length } => {
                let (at, used) = (self.at(*length), self.used);
                if elements.byte().is_some() {
                    let [data, count] = ["data", "count"].map(|name| member(place, name));
                    let arguments = format!("{at}, out, {used}, {data}, {count}, {count_max}");
                    line!(code, "COREWIRE_TRY(corewire_put_bytes({arguments}));");
                } else {
                    let name = self.header.vector(elements)?;
                    let arguments = format!("{at}, out, {used}, {}, {count_max}", address(place));
                    line!(code, "COREWIRE_TRY({name}_put({arguments}));");
                }
            }
            Step::Optional { value, present } => {
                code.open(&format!("if ({}) {{", member(place, "is_present")));
                line!(code, "corewire_put_u8({}, 1);", self.at(*present));
                self.run(Way::Put, value, &member(place, "value"), code)?;
                code.close("}");
            }
            Step::Capability { present: Some(present), .. } => {
                line!(code, "corewire_put_u8({}, {place} ? 1 : 0);", self.at(*present));
            }
            Step::Capability { .. } => {}
            Step::Array { element, count } => {
                if let Some((_, at)) = element.byte() {
                    let at = self.at(LeafPlace { bytes: *count, ..at });
                    line!(code, "memcpy({at}, {place}, {count});");
                }
            }
            // In `run`.
            Step::Struct { .. } | Step::Union { .. } => {}
        }
        Ok(())
    }

    /// Code that reads a value to `place`, which holds zeros.
    fn get(
        &mut self,
        operation: &Operation<'a>,
        place: &str,
        code: &mut Code,
    ) -> Result<(), FormDisagrees> {
        match &operation.step {
            Step::Number { builtin: Builtin::Bool, at }
            | Step::Capability { present: Some(at), .. } => {
                let at = self.at(*at);
                line!(code, "COREWIRE_TRY(corewire_get_bool({at}, {}));", address(place));
            }
            Step::Number { builtin: Builtin::Char, at } => {
                line!(code, "{place} = corewire_get_char({});", self.at(*at));
            }
            Step::Number { builtin, at } => {
                let sign = match builtin.is_float() {
                    true => 'f',
                    false if builtin.is_signed() => 'i',
                    false => 'u',
                };
                let bits = 8 * builtin.bytes();
                line!(code, "{place} = corewire_get_{sign}{bits}({});", self.at(*at));
            }
            Step::Enum { name, flexible, at, .. } => {
                line!(code, "{place} = corewire_get_i32({});", self.at(*at));
                self.known(name, *flexible, place, code)?;
            }
            Step::String { bytes_max, length } => {
                let arguments = format!("{}, {bytes_max}, {}", self.at(*length), address(place));
                line!(code, "COREWIRE_TRY(corewire_take_string({}, {arguments}));", self.rest);
            }
            Step::Vector { elements, count_max, length } => {
                let name = match elements.byte() {
                    Some(Builtin::Char) => "corewire_take_chars".to_owned(),
                    Some(_) => "corewire_take_bytes".to_owned(),
                    None => format!("{}_take", self.header.vector(elements)?),
                };
                let arguments = format!("{}, {count_max}, {}", self.at(*length), address(place));
                line!(code, "COREWIRE_TRY({name}({}, {arguments}));", self.rest);
            }
            Step::Optional { value, present } => {
                let (at, flag) = (self.at(*present), member(place, "is_present"));
                line!(code, "COREWIRE_TRY(corewire_get_bool({at}, &{flag}));");
                code.open(&format!("if ({flag}) {{"));
                self.run(Way::Get, value, &member(place, "value"), code)?;
                let lengths = value.lengths();
                if !lengths.is_empty() {
                    code.end();
                    code.open("} else {");
                    for length in lengths {
                        let absent = |walk: &Self, code: &mut Code| {
                            line!(code, "COREWIRE_TRY(corewire_absent({}));", walk.at(length.at));
                        };
                        match length.count {
                            1 => absent(self, code),
                            count => self.each(count, code, |walk, _, code| {
                                absent(walk, code);
                                Ok(())
                            })?,
                        }
                    }
                }
                code.close("}");
            }
            Step::Capability { .. } => line!(code, "{place} = true;"),
            Step::Array { element, count } => {
                if let Some((_, at)) = element.byte() {
                    let at = self.at(LeafPlace { bytes: *count, ..at });
                    line!(code, "memcpy({place}, {at}, {count});");
                }
            }
            // In `run`.
            Step::Struct { .. } | Step::Union { .. } => {}
        }
        Ok(())
    }

    fn known(
        &self,
        name: &str,
        flexible: bool,
        place: &str,
        code: &mut Code,
    ) -> Result<(), FormDisagrees> {
        if !flexible {
            let name = self.header.type_name(name)?;
            code.open(&format!("if (!{name}_is_known({place})) {{"));
            code.line("return COREWIRE_ERROR_VALUE;");
            code.close("}");
        }
        Ok(())
    }
}

impl<'a> Header<'a> {
    /// Code that adds up the bytes of strings and vectors, each as if it were within its bound.
    pub(super) fn size(
        &mut self,
        operation: &Operation<'a>,
        place: &str,
        code: &mut Code,
    ) -> Result<(), FormDisagrees> {
        match &operation.step {
            Step::String { bytes_max, .. } => {
                let length = member(place, "length");
                line!(code, "size += corewire_least({length}, {bytes_max});");
            }
            Step::Vector { elements, count_max, .. } if elements.is_dynamic() => {
                let name = self.vector(elements)?;
                line!(code, "size += {name}_size({}, {count_max});", address(place));
            }
            Step::Vector { elements, count_max, .. } => {
                let scaled = match elements.layout.fixed_bytes {
                    1 => String::new(),
                    bytes => format!(" * {bytes}"),
                };
                let count = member(place, "count");
                line!(code, "size += corewire_least({count}, {count_max}){scaled};");
            }
            Step::Optional { value, .. } => {
                let mut inner = Code::default();
                self.size(value, &member(place, "value"), &mut inner)?;
                code.block(&format!("if ({}) {{", member(place, "is_present")), &inner);
            }
            Step::Struct { name, fields } => {
                for (field, inner) in fields {
                    let name = self.member(name, &field.name);
                    self.size(inner, &member(place, &name), code)?;
                }
            }
            Step::Array { element, count } => {
                // Each loop around it is an index in the place.
                let index = format!("i{}", place.matches('[').count());
                let mut inner = Code::default();
                self.size(element, &format!("{place}[{index}]"), &mut inner)?;
                let head = format!("for (size_t {index} = 0; {index} < {count}; {index}++) {{");
                code.block(&head, &inner);
            }
            Step::Union { name, .. } if operation.is_dynamic() => {
                let name = self.type_name(name)?;
                line!(code, "size += {name}_size({});", address(place));
            }
            Step::Number { .. }
            | Step::Enum { .. }
            | Step::Capability { .. }
            | Step::Union { .. } => {}
        }
        Ok(())
    }
}

/// A member of the struct at `place`.
fn member(place: &str, name: &str) -> String {
    match address(place) {
        pointer if !pointer.starts_with('&') => format!("{pointer}->{name}"),
        _ => format!("{place}.{name}"),
    }
}
