//! Constants and types.

use super::Header;
use super::code::{Code, line, string};
use super::walk::Way;
use crate::form::{
    Builtin, Constant, ConstantValue, Definition, EnumValue, Field, FormDisagrees, Type, TypeDecl,
};

impl<'a> Header<'a> {
    pub(super) fn constants(&mut self) {
        for constant in &self.interface.constants {
            let name = self.upper(&constant.name);
            let name = self.names.give(&name);
            self.code.docs(&constant.docs);
            line!(self.code, "#define {name} {}", literal(constant));
        }
        if !self.interface.constants.is_empty() {
            self.code.line("");
        }
    }

    /// The values of an enumeration, or errors.
    pub(super) fn enumerators(&mut self, of: &str, values: &[EnumValue]) {
        if values.is_empty() {
            return;
        }
        self.code.open("enum {");
        for value in values {
            self.code.docs(&value.docs);
            let name = self.members.get(&(of, value.name.as_str())).cloned().unwrap_or_default();
            line!(self.code, "{name} = {},", number(value.value));
        }
        self.code.close("};");
        self.code.line("");
    }

    pub(super) fn declared(&mut self, decl: &'a TypeDecl) -> Result<(), FormDisagrees> {
        let name = self.type_name(&decl.name)?;
        match &decl.definition {
            Definition::Alias { target } => {
                let target = self.reference(target)?;
                self.code.docs(&decl.docs);
                line!(self.code, "typedef {target} {name};");
                self.code.line("");
            }
            Definition::Array { element, count } => {
                let element = self.reference(element)?;
                self.code.docs(&decl.docs);
                line!(self.code, "typedef {element} {name}[{count}];");
                self.code.line("");
            }
            Definition::Struct { fields } => {
                let fields = self.fields(&decl.name, fields)?;
                self.code.docs(&decl.docs);
                self.code.open(&format!("struct {name} {{"));
                self.lines(&fields);
                self.code.close("};");
                self.code.line("");
            }
            Definition::Union { arms, area_bytes } => self.union(decl, &name, arms, *area_bytes)?,
            Definition::Enum { values, .. } => {
                self.code.docs(&decl.docs);
                line!(self.code, "typedef int32_t {name};");
                self.code.line("");
                self.enumerators(&decl.name, values);
                self.is_known(&name, values);
            }
        }
        Ok(())
    }

    /// Members of a struct, each with its documentation.
    fn fields(
        &mut self,
        of: &'a str,
        fields: &'a [Field],
    ) -> Result<Vec<(String, &'a [String])>, FormDisagrees> {
        let names = self.members_of(fields.iter().map(|field| field.name.as_str()));
        let mut lines = Vec::new();
        for (field, name) in fields.iter().zip(names) {
            let reference = self.reference(&field.of)?;
            lines.push((format!("{reference} {name};"), field.docs.as_slice()));
            self.members.insert((of, &field.name), name);
        }
        Ok(lines)
    }

    fn lines(&mut self, lines: &[(String, &[String])]) {
        for (line, docs) in lines {
            self.code.docs(docs);
            self.code.line(line);
        }
    }

    fn is_known(&mut self, name: &str, values: &[EnumValue]) {
        self.code.line("/* Whether this version of the interface has the value. */");
        let mut numbers = values.iter().map(|value| value.value).collect::<Vec<_>>();
        numbers.sort_unstable();
        numbers.dedup();
        let mut body = Code::default();
        if numbers.is_empty() {
            body.line("(void)value;");
            body.line("return false;");
        } else {
            body.open("switch (value) {");
            for one in numbers {
                line!(body, "case {}:", number(one));
            }
            body.line("    return true;");
            body.line("default:");
            body.line("    return false;");
            body.close("}");
        }
        self.code.function(&format!("static inline bool {name}_is_known({name} value)"), &body);
    }

    fn union(
        &mut self,
        decl: &'a TypeDecl,
        name: &str,
        arms: &'a [Field],
        area_bytes: u32,
    ) -> Result<(), FormDisagrees> {
        let mut tags = Vec::new();
        for arm in arms {
            let tag = self.upper(&format!("{}_{}", decl.name, arm.name));
            tags.push(self.names.give(&tag));
            self.functions_alone(&arm.of)?;
        }
        let fields = self.fields(&decl.name, arms)?;
        self.code.docs(&decl.docs);
        self.code.open(&format!("struct {name} {{"));
        self.code.line("/** Which of them it is. */");
        self.code.line("uint32_t arm;");
        self.code.open("union {");
        self.lines(&fields);
        self.code.close("} as;");
        self.code.close("};");
        self.code.line("");
        self.code.open("enum {");
        for (index, tag) in tags.iter().enumerate() {
            line!(self.code, "{tag} = {index},");
        }
        self.code.close("};");
        self.code.line("");

        let (mut put, mut get) = (Code::default(), Code::default());
        line!(put, "memset(area, 0, {area_bytes});");
        put.line("corewire_put_u32(tag, value->arm);");
        get.line("value->arm = corewire_get_u32(tag);");
        let is_dynamic = self.are_dynamic(arms);
        let of = format!("struct {name} *value");
        for (mut code, way, fixed) in [
            (put, Way::Put, "uint8_t *tag, uint8_t *area"),
            (get, Way::Get, "const uint8_t *tag, const uint8_t *area"),
        ] {
            code.open("switch (value->arm) {");
            for (arm, tag) in arms.iter().zip(&tags) {
                code.open(&format!("case {tag}:"));
                let place = format!("value->as.{}", self.member(&decl.name, &arm.name));
                self.alone(way, &arm.of, "area", &place, &mut code)?;
                if is_dynamic && self.lowering.alone(&arm.of)?.layout.dynamics.is_empty() {
                    line!(code, "{}", way.unused());
                }
                code.line("return 0;");
                code.end();
            }
            code.line("default:");
            code.line("    return COREWIRE_ERROR_VALUE;");
            code.close("}");
            let parameters = way.parameters(fixed, is_dynamic, &of);
            let way = way.as_str();
            self.code.function(&format!("static inline int {name}_{way}({parameters})"), &code);
        }
        if is_dynamic {
            let mut code = Code::default();
            code.line("size_t size = 0;");
            code.open("switch (value->arm) {");
            for (arm, tag) in arms.iter().zip(&tags) {
                code.open(&format!("case {tag}:"));
                let place = format!("value->as.{}", self.member(&decl.name, &arm.name));
                self.size_alone(&arm.of, &place, &mut code)?;
                code.line("break;");
                code.end();
            }
            code.line("default:");
            code.line("    break;");
            code.close("}");
            code.line("return size;");
            self.code.function(&format!("static inline size_t {name}_size(const {of})"), &code);
        }
        Ok(())
    }

    /// Whether there are strings or vectors in one of the arms of a union.
    pub(super) fn are_dynamic(&self, arms: &'a [Field]) -> bool {
        let alone = |arm: &'a Field| self.lowering.alone(&arm.of);
        arms.iter().any(|arm| alone(arm).is_ok_and(|arm| arm.is_dynamic()))
    }

    pub(super) fn member(&self, of: &str, name: &str) -> String {
        self.members.get(&(of, name)).cloned().unwrap_or_default()
    }

    pub(super) fn type_name(&self, name: &str) -> Result<String, FormDisagrees> {
        self.type_names.get(name).cloned().ok_or(FormDisagrees)
    }

    /// A type as C names it. Structs for optional values and vectors are written before their first use.
    pub(super) fn reference(&mut self, of: &'a Type) -> Result<String, FormDisagrees> {
        Ok(match of {
            Type::Builtin { builtin } => c_type(*builtin).to_owned(),
            Type::Named { name } => {
                let decl = self.interface.type_named(name).ok_or(FormDisagrees)?;
                let name = self.type_name(name)?;
                match decl.definition {
                    Definition::Struct { .. } | Definition::Union { .. } => {
                        format!("struct {name}")
                    }
                    _ => name,
                }
            }
            Type::String { .. } => "struct corewire_string".to_owned(),
            Type::Vector { element, .. } => {
                let elements = self.lowering.alone(element)?;
                match elements.byte() {
                    Some(Builtin::Char) => "struct corewire_chars".to_owned(),
                    Some(_) => "struct corewire_bytes".to_owned(),
                    None => format!("struct {}", self.vector(&elements)?),
                }
            }
            Type::Optional { of: inner } => format!("struct {}", self.optional(of, inner)?),
            Type::Capability { .. } | Type::Channel { .. } | Type::Client { .. } => {
                "corewire_capability".to_owned()
            }
        })
    }

    fn optional(&mut self, of: &'a Type, inner: &'a Type) -> Result<String, FormDisagrees> {
        let key = key(of);
        if let Some(name) = self.unnamed.get(&key) {
            return Ok(name.clone());
        }
        let reference = self.reference(inner)?;
        let name = self.names.give_all(&self.prefixed(&word(of)), &["_put", "_get"]);
        self.code.open(&format!("struct {name} {{"));
        self.code.line("bool is_present;");
        line!(self.code, "{reference} value;");
        self.code.close("};");
        self.code.line("");
        self.unnamed.insert(key, name.clone());
        Ok(name)
    }
}

/// `&value->x`, or `value` for what it points to.
pub(super) fn address(place: &str) -> String {
    match place.strip_prefix("(*").and_then(|rest| rest.strip_suffix(')')) {
        Some(pointer) if !pointer.contains(['(', ')']) => pointer.to_owned(),
        _ => format!("&{place}"),
    }
}

/// A type as a part of a name. Different types may have the same one.
pub(super) fn word(of: &Type) -> String {
    match of {
        Type::Builtin { builtin } => builtin.as_str().to_ascii_lowercase(),
        Type::Named { name } => name.clone(),
        Type::String { .. } => "string".to_owned(),
        Type::Vector { element, .. } => format!("{}_vector", word(element)),
        Type::Optional { of } => format!("optional_{}", word(of)),
        Type::Capability { .. } | Type::Channel { .. } | Type::Client { .. } => {
            "capability".to_owned()
        }
    }
}

/// What is the same for types that are the same in C, whatever their bounds.
pub(super) fn key(of: &Type) -> String {
    key_with(of, false)
}

/// The same for types that have functions, in which the bounds are.
pub(super) fn key_with_bounds(of: &Type) -> String {
    key_with(of, true)
}

fn key_with(of: &Type, bounds: bool) -> String {
    match of {
        Type::Builtin { builtin } => format!("builtin {}", builtin.as_str()),
        Type::Named { name } => format!("named {name}"),
        Type::String { bytes_max } if bounds => format!("string {bytes_max}"),
        Type::String { .. } => "string".to_owned(),
        Type::Vector { element, count_max } if bounds => {
            format!("vector<{}, {count_max}>", key_with_bounds(element))
        }
        // The functions of a vector have the bounds of its elements.
        Type::Vector { element, .. } => format!("vector<{}>", key_with_bounds(element)),
        Type::Optional { of } => format!("optional<{}>", key_with(of, bounds)),
        Type::Capability { .. } | Type::Channel { .. } | Type::Client { .. } => {
            "capability".to_owned()
        }
    }
}

fn c_type(of: Builtin) -> &'static str {
    match of {
        Builtin::Uint8 => "uint8_t",
        Builtin::Uint16 => "uint16_t",
        Builtin::Uint32 => "uint32_t",
        Builtin::Int8 => "int8_t",
        Builtin::Int16 => "int16_t",
        Builtin::Int32 => "int32_t",
        Builtin::Int64 | Builtin::Intptr => "int64_t",
        Builtin::Float32 => "float",
        Builtin::Float64 => "double",
        Builtin::Bool => "bool",
        Builtin::Char => "char",
        _ => "uint64_t",
    }
}

/// The smallest number is no literal in C.
fn number(value: i32) -> String {
    if value == i32::MIN { format!("{} - 1", value + 1) } else { value.to_string() }
}

fn literal(constant: &Constant) -> String {
    let of = c_type(constant.builtin).to_ascii_uppercase();
    let of = of.trim_end_matches("_T");
    match &constant.value {
        ConstantValue::Bool(value) => value.to_string(),
        ConstantValue::Unsigned(value) => format!("{of}_C({value})"),
        ConstantValue::Signed(i64::MIN) => format!("(-INT64_C({}) - 1)", i64::MAX),
        ConstantValue::Signed(value) => format!("(-{of}_C({}))", value.unsigned_abs()),
        ConstantValue::String(value) => string(value),
    }
}
