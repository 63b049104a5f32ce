//! Values that stand alone: elements of vectors, and arms of unions. Their types have functions of their own, so that
//! the code of a message does not grow with everything that could be in it.

use super::Header;
use super::code::{Code, line};
use super::support::VECTOR;
use super::types::{address, key, word};
use super::walk::{Walk, Way};
use crate::form::{Definition, FormDisagrees, Operations, Resolved, Type};

impl<'a> Header<'a> {
    /// The name of the struct for vectors of these elements, which are no bytes.
    pub(super) fn vector(&mut self, elements: &Operations<'a>) -> Result<String, FormDisagrees> {
        let element = elements.value().ok_or(FormDisagrees)?.of;
        let key = format!("vector<{}>", key(element));
        if let Some(name) = self.unnamed.get(&key) {
            return Ok(name.clone());
        }
        let reference = self.reference(element)?;
        self.functions_alone(element)?;
        let name = self.names.give_all(
            &self.prefixed(&format!("{}_vector", word(element))),
            &["_put", "_get", "_take", "_check"],
        );
        let (mut put, mut get) = (Code::default(), Code::default());
        self.alone(Way::Put, element, "at", "vector->items[index]", &mut put)?;
        self.alone(Way::Get, element, "at", "(*value)", &mut get)?;
        let bytes = elements.layout.fixed_bytes.to_string();
        let words =
            [("$NAME", &name), ("$ELEMENT", &reference), ("$BYTES", &bytes), ("$PUT", &put.text)];
        let words = words.map(|(word, text)| (word, text.as_str()));
        self.code.template(VECTOR, &[&words[..], &[("$GET", &get.text)]].concat());
        self.unnamed.insert(key, name.clone());
        Ok(name)
    }

    /// The type whose functions a value that stands alone has: aliases have none of their own.
    fn alone_key(&self, of: &'a Type) -> Option<(String, &'a Type)> {
        match self.interface.resolve(of) {
            Resolved::Declared(decl) => match decl.definition {
                Definition::Struct { .. } | Definition::Array { .. } => {
                    Some((format!("alone {}", decl.name), of))
                }
                _ => None,
            },
            Resolved::Plain(plain @ Type::Optional { .. }) => Some((key(plain), plain)),
            Resolved::Plain(_) => None,
        }
    }

    /// Writes the functions for a struct, array or optional value that stands alone.
    pub(super) fn functions_alone(&mut self, of: &'a Type) -> Result<(), FormDisagrees> {
        let Some((key, of)) = self.alone_key(of) else { return Ok(()) };
        if !self.alone.insert(key.clone()) {
            return Ok(());
        }
        let reference = self.reference(of)?;
        let name = self.alone_name(&key);
        let (mut put, mut get) = (Code::default(), Code::default());
        self.inline(Way::Put, of, "out", "(*value)", &mut put)?;
        self.inline(Way::Get, of, "bytes", "(*value)", &mut get)?;
        for (code, head) in [
            (put, format!("_put(uint8_t *out, const {reference} *value)")),
            (get, format!("_get(const uint8_t *bytes, {reference} *value)")),
        ] {
            let mut body = code;
            body.line("return 0;");
            self.code.function(&format!("static inline int {name}{head}"), &body);
        }
        Ok(())
    }

    /// The name to which `_put` and `_get` are added.
    fn alone_name(&mut self, key: &str) -> String {
        if let Some(name) = self.unnamed.get(key) {
            return name.clone();
        }
        let name = key.trim_start_matches("alone ");
        let name = self.names.give_all(&self.prefixed(&format!("{name}_alone")), &["_put", "_get"]);
        self.unnamed.insert(key.to_owned(), name.clone());
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
        let Some((key, _)) = self.alone_key(of) else {
            return self.inline(way, of, at, place, code);
        };
        let (name, way) = (self.alone_name(&key), way.as_str());
        line!(code, "COREWIRE_TRY({name}_{way}({at}, {}));", address(place));
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
        let mut walk = Walk::new(self, at);
        operations.values.iter().try_for_each(|one| walk.run(way, one, place, code))
    }
}
