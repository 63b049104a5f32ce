//! Values that stand alone: elements of vectors, and arms of unions. Their types have functions of their own, so that
//! the code of a message does not grow with everything that could be in it.

use super::Header;
use super::code::{Code, line};
use super::support::{VECTOR, VECTOR_OF_PARTS};
use super::types::{address, key_with_bounds, word};
use super::walk::{Walk, Way};
use crate::form::{Definition, FormDisagrees, Operations, Resolved, Type};

/// A type that has functions for values that stand alone.
struct Alone<'a> {
    /// The same for types with the same functions.
    key: String,
    /// What their names begin with.
    word: String,
    of: &'a Type,
}

impl<'a> Header<'a> {
    /// The name of the struct for vectors of these elements, which are no bytes.
    pub(super) fn vector(&mut self, elements: &Operations<'a>) -> Result<String, FormDisagrees> {
        let element = elements.value().ok_or(FormDisagrees)?.of;
        let key = format!("vector<{}>", key_with_bounds(element));
        if let Some(name) = self.unnamed.get(&key) {
            return Ok(name.clone());
        }
        let reference = self.reference(element)?;
        self.functions_alone(element)?;
        let endings: &[&str] = match elements.is_dynamic() {
            false => &["_put", "_get", "_take", "_check"],
            true => &["_put", "_next", "_take", "_take_one", "_check", "_size"],
        };
        let name = self.prefixed(&format!("{}_vector", word(element)));
        let name = self.names.give_all(&name, endings);
        let (mut put, mut get) = (Code::default(), Code::default());
        self.alone(Way::Put, element, "at", "vector->items[index]", &mut put)?;
        self.alone(Way::Get, element, "at", "(*value)", &mut get)?;
        let bytes = elements.layout.fixed_bytes.to_string();
        let mut size = Code::default();
        self.size_alone(element, "vector->items[index]", &mut size)?;
        let words = [
            ("$NAME", &name),
            ("$ELEMENT", &reference),
            ("$BYTES", &bytes),
            ("$PUT", &put.text),
            ("$GET", &get.text),
            ("$SIZE", &size.text),
        ];
        let words = words.map(|(word, text)| (word, text.as_str()));
        let template = if elements.is_dynamic() { VECTOR_OF_PARTS } else { VECTOR };
        self.code.template(template, &words);
        self.unnamed.insert(key, name.clone());
        Ok(name)
    }

    /// The type whose functions a value that stands alone has: aliases have none of their own.
    fn alone_type(&self, of: &'a Type) -> Option<Alone<'a>> {
        let (key, word, of) = match self.interface.resolve(of) {
            Resolved::Declared(decl) => match decl.definition {
                Definition::Struct { .. } | Definition::Array { .. } => {
                    (decl.name.clone(), decl.name.clone(), of)
                }
                _ => return None,
            },
            Resolved::Plain(plain @ Type::Optional { .. }) => {
                (key_with_bounds(plain), word(plain), plain)
            }
            Resolved::Plain(_) => return None,
        };
        Some(Alone { key: format!("alone {key}"), word: format!("{word}_alone"), of })
    }

    /// Writes the functions for a struct, array or optional value that stands alone.
    pub(super) fn functions_alone(&mut self, of: &'a Type) -> Result<(), FormDisagrees> {
        let Some(alone) = self.alone_type(of) else { return Ok(()) };
        if !self.alone.insert(alone.key.clone()) {
            return Ok(());
        }
        let of = alone.of;
        let reference = self.reference(of)?;
        let operations = self.lowering.alone(of)?;
        let is_dynamic = operations.is_dynamic();
        // Vectors in it have functions of their own, which come first.
        let (mut put, mut get, mut size) = (Code::default(), Code::default(), Code::default());
        self.inline(Way::Put, of, "at", "(*value)", &mut put)?;
        self.inline(Way::Get, of, "at", "(*value)", &mut get)?;
        let name = self.alone_name(alone, is_dynamic);
        for (code, way, at) in
            [(put, Way::Put, "uint8_t *at"), (get, Way::Get, "const uint8_t *at")]
        {
            let mut body = code;
            body.line("return 0;");
            let parameters = way.parameters(at, is_dynamic, &format!("{reference} *value"));
            let way = way.as_str();
            self.code.function(&format!("static inline int {name}_{way}({parameters})"), &body);
        }
        if is_dynamic {
            size.line("size_t size = 0;");
            for value in &operations.values {
                self.size(value, "(*value)", &mut size)?;
            }
            size.line("return size;");
            let head = format!("static inline size_t {name}_size(const {reference} *value)");
            self.code.function(&head, &size);
        }
        Ok(())
    }

    /// Code that adds the strings and vectors of a value that stands alone to `size`.
    pub(super) fn size_alone(
        &mut self,
        of: &'a Type,
        place: &str,
        code: &mut Code,
    ) -> Result<(), FormDisagrees> {
        let operations = self.lowering.alone(of)?;
        match self.alone_type(of) {
            _ if !operations.is_dynamic() => {}
            Some(alone) => {
                let name = self.alone_name(alone, true);
                line!(code, "size += {name}_size({});", address(place));
            }
            None => {
                for value in &operations.values {
                    self.size(value, place, code)?;
                }
            }
        }
        Ok(())
    }

    /// The name to which `_put` and `_get` are added.
    fn alone_name(&mut self, alone: Alone<'_>, is_dynamic: bool) -> String {
        if let Some(name) = self.unnamed.get(&alone.key) {
            return name.clone();
        }
        let endings: &[&str] = match is_dynamic {
            false => &["_put", "_get"],
            true => &["_put", "_get", "_size"],
        };
        let name = self.names.give_all(&self.prefixed(&alone.word), endings);
        self.unnamed.insert(alone.key, name.clone());
        name
    }

    /// Code for a value that stands alone. To store it, the bytes at `at` are zeros.
    pub(super) fn alone(
        &mut self,
        way: Way,
        of: &'a Type,
        at: &str,
        place: &str,
        code: &mut Code,
    ) -> Result<(), FormDisagrees> {
        let Some(alone) = self.alone_type(of) else {
            return self.inline(way, of, at, place, code);
        };
        let is_dynamic = self.lowering.alone(of)?.is_dynamic();
        let name = self.alone_name(alone, is_dynamic);
        let walk = Walk::alone(self, at);
        let passed = walk.passed(way, is_dynamic);
        let (way, place) = (way.as_str(), address(place));
        line!(code, "COREWIRE_TRY({name}_{way}({at},{passed} {place}));");
        Ok(())
    }

    fn inline(
        &mut self,
        way: Way,
        of: &'a Type,
        at: &str,
        place: &str,
        code: &mut Code,
    ) -> Result<(), FormDisagrees> {
        let operations = self.lowering.alone(of)?;
        let mut walk = Walk::alone(self, at);
        operations.values.iter().try_for_each(|one| walk.run(way, one, place, code))
    }
}
