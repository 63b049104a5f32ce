//! Errors with details: a union of them, and functions that size, store and read the one that belongs to an error.

use super::Header;
use super::code::{Code, line};
use super::walk::{Walk, Way};
use crate::form::{ErrorSet, FormDisagrees};

/// What is added to the name of a union of details.
pub(super) const ENDINGS: &[&str] = &["_size", "_put", "_get"];

impl<'a> Header<'a> {
    /// The name of the union of details, if the set is detailed.
    pub(super) fn details_name(&self, set: &str) -> Option<String> {
        self.details.get(set).cloned()
    }

    pub(super) fn error_details(&mut self, set: &'a ErrorSet) -> Result<(), FormDisagrees> {
        let Some(name) = self.details_name(&set.name) else { return Ok(()) };
        let errors =
            set.values.iter().filter(|error| set.details_of(error).is_some()).collect::<Vec<_>>();
        let names = errors.iter().map(|error| error.name.as_str());
        let mut members = self.members_of(names.chain(["unused"]));
        let unused = members.pop().unwrap_or_default();
        let mut lines = Vec::new();
        let mut places = Vec::new();
        for (error, member) in errors.iter().zip(&members) {
            let Some(details) = set.details_of(error) else { continue };
            let fields = self.members_of(details.fields.iter().map(|one| one.name.as_str()));
            let mut body = Vec::new();
            for (field, name) in details.fields.iter().zip(&fields) {
                body.push((format!("{} {name};", self.reference(&field.of)?), &field.docs));
            }
            places.push(
                fields.iter().map(|one| format!("value->{member}.{one}")).collect::<Vec<_>>(),
            );
            lines.push((body, &error.docs, member));
        }
        self.code.docs(&[format!(
            "The details of errors `{}`: those of the error that came.",
            set.name
        )]);
        self.code.open(&format!("union {name} {{"));
        for (body, docs, member) in &lines {
            self.code.docs(docs);
            self.code.open("struct {");
            for (line, docs) in body {
                self.code.docs(docs);
                self.code.line(line);
            }
            self.code.close(&format!("}} {member};"));
        }
        line!(self.code, "char {unused};");
        self.code.close("};");
        self.code.line("");

        let [mut size, mut put, mut get] = [const { Code::new() }; 3];
        size.line("size_t size = 4;");
        put.line("uint8_t *length_at = out + *used;");
        put.line("*used += 4;");
        put.line("const size_t start = *used;");
        for line in [
            "if (rest->left < 4) {",
            "    return COREWIRE_ERROR_LENGTH;",
            "}",
            "const uint32_t length = corewire_get_u32(rest->next);",
            "rest->next += 4;",
            "rest->left -= 4;",
            "if (length > 4096 || length != rest->left) {",
            "    return COREWIRE_ERROR_LENGTH;",
            "}",
        ] {
            get.line(line);
        }
        for code in [&mut size, &mut put, &mut get] {
            code.line("(void)value;");
            code.open("switch (error) {");
        }
        for (error, places) in errors.iter().zip(&places) {
            let Some(details) = set.details_of(error) else { continue };
            let number = self.member(&set.name, &error.name);
            let fields = details.fields.iter().map(|field| (field.name.as_str(), &field.of));
            let operations = self.lowering.operations(false, fields)?;
            let fixed = operations.layout.fixed_bytes;
            for code in [&mut size, &mut put, &mut get] {
                code.open(&format!("case {number}: {{"));
            }
            line!(size, "size += {fixed};");
            put.line("uint8_t *at = out + *used;");
            line!(put, "memset(at, 0, {fixed});");
            line!(put, "*used += {fixed};");
            line!(get, "if (rest->left < {fixed}) {{");
            get.line("    return COREWIRE_ERROR_LENGTH;");
            get.line("}");
            get.line("const uint8_t *at = rest->next;");
            line!(get, "rest->next += {fixed};");
            line!(get, "rest->left -= {fixed};");
            for (operation, place) in operations.values.iter().zip(places) {
                self.size(operation, place, &mut size)?;
                Walk::alone(self, "at").run(Way::Put, operation, place, &mut put)?;
                Walk::alone(self, "at").run(Way::Get, operation, place, &mut get)?;
            }
            for code in [&mut size, &mut put, &mut get] {
                code.line("break;");
                code.close("}");
            }
        }
        for error in set.values.iter().filter(|error| set.details_of(error).is_none()) {
            line!(get, "case {}:", self.member(&set.name, &error.name));
            get.line("    break;");
        }
        size.line("default:");
        size.line("    break;");
        size.close("}");
        size.line("return size;");
        put.line("default:");
        put.line("    break;");
        put.close("}");
        put.line("corewire_put_u32(length_at, (uint32_t)(*used - start));");
        put.line("return 0;");
        get.line("default:");
        get.line("    /* An error that this version does not know. */");
        get.line("    return 0;");
        get.close("}");
        get.line("return rest->left == 0 ? 0 : COREWIRE_ERROR_LENGTH;");
        let of = format!("union {name} *value");
        for (code, head) in [
            (size, format!("size_t {name}_size(int32_t error, const {of})")),
            (put, format!("int {name}_put(int32_t error, uint8_t *out, size_t *used, const {of})")),
            (get, format!("int {name}_get(int32_t error, struct corewire_rest *rest, {of})")),
        ] {
            self.code.function(&format!("static inline {head}"), &code);
        }
        Ok(())
    }
}
