//! The canonical texts of types, of which hashes are made.

use std::fmt::Write as _;

use super::facts::Known;
use super::{Definition, Field, Hash, Type};

impl Known {
    /// The canonical text of a type. A struct stands in it as its hash, so that the text stays short.
    pub(crate) fn text(&self, of: &Type) -> String {
        match of {
            Type::Builtin { builtin } => builtin.as_str().to_owned(),
            Type::Named { name } => {
                self.get(name).map(|entry| entry.text.clone()).unwrap_or_default()
            }
            Type::String { bytes_max } => format!("String[{bytes_max}]"),
            Type::Vector { element, count_max } => {
                format!("vector<{},{count_max}>", self.text(element))
            }
            Type::Optional { of } => format!("optional<{}>", self.text(of)),
            Type::Capability { capability } => capability.as_str().to_owned(),
            Type::Channel { of } => format!("channel<{}>", self.text(of)),
            Type::Client { interface } => format!("client<{interface}>"),
        }
    }

    pub(crate) fn text_of_definition(&self, definition: &Definition) -> String {
        match definition {
            Definition::Alias { target } => self.text(target),
            Definition::Array { element, count } => {
                format!("array<{},{count}>", self.text(element))
            }
            Definition::Struct { fields } => format!("struct#{}", Hash::of(&self.fields(fields))),
            Definition::Union { arms, .. } => format!("union#{}", Hash::of(&self.fields(arms))),
            Definition::Enum { flexible: true, .. } => "flexible enum".to_owned(),
            Definition::Enum { flexible: false, values } => {
                let mut pairs =
                    values.iter().map(|one| (one.value, one.name.as_str())).collect::<Vec<_>>();
                pairs.sort_unstable();
                let mut text = String::new();
                for (value, name) in pairs {
                    // Writing to a string cannot fail.
                    let _ = write!(text, "{name}={value};");
                }
                format!("enum#{}", Hash::of(&text))
            }
        }
    }

    pub(super) fn fields(&self, fields: &[Field]) -> String {
        let mut text = String::new();
        for field in fields {
            let _ = write!(text, "{}:{};", field.name, self.text(&field.of));
        }
        text
    }
}
