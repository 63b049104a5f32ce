//! Values that stand alone: elements of vectors, and arms of unions. Their types have functions of their own, so that
//! the code of a message does not grow with everything that could be in it.

use super::Header;
use super::code::Code;
use super::types::{address, key, word};
use super::walk::Walk;
use crate::form::{Definition, Resolved, Type};
use crate::json::JsonProblem;

impl<'a> Header<'a> {
    /// The name of the struct for vectors of this element, which is no byte.
    pub(super) fn vector(&mut self, element: &'a Type) -> Result<String, JsonProblem> {
        let key = format!("vector<{}>", key(element));
        if let Some(name) = self.unnamed.get(&key) {
            return Ok(name.clone());
        }
        let reference = self.reference(element)?;
        self.functions_alone(element)?;
        let bytes = self.types.alone(element)?.bytes;
        let name = self.names.give_all(
            &self.prefixed(&format!("{}_vector", word(element))),
            &["_put", "_get", "_take", "_check"],
        );
        self.code.docs(&[
            "To encode, `items` are the elements. Decoding leaves them in the message, at `encoded`, where".to_owned(),
            format!("{name}_get reads one. What was decoded can be encoded again."),
        ]);
        self.code.open(&format!("struct {name} {{"));
        self.code.line(&format!("const {reference} *items;"));
        self.code.line("const uint8_t *encoded;");
        self.code.line("size_t count;");
        self.code.close("};");
        self.code.line("");

        let (mut put, mut get) = (Code::default(), Code::default());
        self.put_alone(element, "at", "vector->items[index]", &mut put)?;
        self.get_alone(element, "at", "(*value)", &mut get)?;
        let mut body = Code::default();
        body.open("if (index >= vector->count) {");
        body.line("return COREWIRE_ERROR_INDEX;");
        body.close("}");
        body.open("if (vector->items != NULL) {");
        body.line("memcpy(value, &vector->items[index], sizeof *value);");
        body.line("return 0;");
        body.close("}");
        body.open("if (vector->encoded == NULL) {");
        body.line("return COREWIRE_ERROR_POINTER;");
        body.close("}");
        body.line("memset(value, 0, sizeof *value);");
        body.line(&format!("const uint8_t *at = vector->encoded + index * {bytes};"));
        get.text.lines().for_each(|line| body.line(line));
        body.line("return 0;");
        self.code.line("/* Reads the element of this index. */");
        let head = format!(
            "static inline int {name}_get(const struct {name} *vector, size_t index, {reference} *value)"
        );
        self.function(&head, &body);

        let mut body = Code::default();
        body.open("for (size_t index = 0; index < vector->count; index++) {");
        body.line(&format!("{reference} value;"));
        body.line(&format!("COREWIRE_TRY({name}_get(vector, index, &value));"));
        body.close("}");
        body.line("return 0;");
        self.function(
            &format!("static inline int {name}_check(const struct {name} *vector)"),
            &body,
        );

        let mut body = Code::default();
        body.open("if (vector->count > count_max) {");
        body.line("return COREWIRE_ERROR_BOUND;");
        body.close("}");
        body.line("corewire_put_u32(length_at, (uint32_t)vector->count);");
        body.open("if (vector->items == NULL) {");
        body.line(&format!("COREWIRE_TRY({name}_check(vector));"));
        body.open("if (vector->count > 0) {");
        body.line(&format!("memcpy(out + *used, vector->encoded, vector->count * {bytes});"));
        body.line(&format!("*used += vector->count * {bytes};"));
        body.close("}");
        body.line("return 0;");
        body.close("}");
        body.open("for (size_t index = 0; index < vector->count; index++) {");
        body.line("uint8_t *at = out + *used;");
        body.line(&format!("memset(at, 0, {bytes});"));
        put.text.lines().for_each(|line| body.line(line));
        body.line(&format!("*used += {bytes};"));
        body.close("}");
        body.line("return 0;");
        let head = format!(
            "static inline int {name}_put(uint8_t *length_at, uint8_t *out, size_t *used,\n    \
             const struct {name} *vector, uint32_t count_max)"
        );
        self.function(&head, &body);

        let mut body = Code::default();
        body.line("vector->items = NULL;");
        body.line(&format!(
            "COREWIRE_TRY(corewire_take(rest, length_at, count_max, {bytes}, &vector->encoded, &vector->count));"
        ));
        body.line(&format!("return {name}_check(vector);"));
        let head = format!(
            "static inline int {name}_take(struct corewire_rest *rest, const uint8_t *length_at,\n    \
             uint32_t count_max, struct {name} *vector)"
        );
        self.function(&head, &body);
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
    pub(super) fn functions_alone(&mut self, of: &'a Type) -> Result<(), JsonProblem> {
        let Some((key, of)) = self.alone_key(of) else { return Ok(()) };
        if !self.alone.insert(key.clone()) {
            return Ok(());
        }
        let reference = self.reference(of)?;
        let name = self.alone_name(&key);
        let (mut put, mut get) = (Code::default(), Code::default());
        let places = self.types.alone(of)?;
        Walk::new(self, places.clone(), "out").put(of, "(*value)", &mut put)?;
        put.line("return 0;");
        Walk::new(self, places, "bytes").get(of, "(*value)", &mut get)?;
        get.line("return 0;");
        let head = format!("static inline int {name}_put(uint8_t *out, const {reference} *value)");
        self.function(&head, &put);
        let head =
            format!("static inline int {name}_get(const uint8_t *bytes, {reference} *value)");
        self.function(&head, &get);
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

    /// Code that stores a value that stands alone. The bytes at `at` are zeros.
    pub(super) fn put_alone(
        &mut self,
        of: &'a Type,
        at: &str,
        place: &str,
        code: &mut Code,
    ) -> Result<(), JsonProblem> {
        if let Some((key, _)) = self.alone_key(of) {
            let name = self.alone_name(&key);
            code.line(&format!("COREWIRE_TRY({name}_put({at}, {}));", address(place)));
            return Ok(());
        }
        let places = self.types.alone(of)?;
        Walk::new(self, places, at).put(of, place, code)
    }

    pub(super) fn get_alone(
        &mut self,
        of: &'a Type,
        at: &str,
        place: &str,
        code: &mut Code,
    ) -> Result<(), JsonProblem> {
        if let Some((key, _)) = self.alone_key(of) {
            let name = self.alone_name(&key);
            code.line(&format!("COREWIRE_TRY({name}_get({at}, {}));", address(place)));
            return Ok(());
        }
        let places = self.types.alone(of)?;
        Walk::new(self, places, at).get(of, place, code)
    }
}
