//! The form as an interface file.

use std::fmt::Write as _;

use super::{
    Argument, ConstantValue, Definition, Direction, EnumValue, ErrorSet, Field, Interface, Message,
    MetaValue, Type, TypeDecl,
};
use crate::source::Source;

impl Interface {
    /// The interface as a file of its edition, in canonical form. What it imports stands in the file, and numbers stand
    /// for constants, as in the form. A file of edition 0 has no documentation.
    ///
    /// ```
    /// use corewire_idl::{Check, Source};
    ///
    /// let text = "edition 1;\n\ninterface log {\n    /// Adds a line.\n    message add @1(String line[64]);\n}\n";
    /// let checked = Check::new(Source::new("log.if", text)).run();
    /// let (interface, _warnings) = checked.into_result().unwrap();
    /// assert_eq!(interface.to_text(), text);
    /// ```
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = Text(String::new());
        text.interface(self);
        // A form with names that no file can have, which another process gave out, stays as it is.
        crate::format(Source::new(format!("{}.if", self.name), text.0.as_str())).unwrap_or(text.0)
    }
}

struct Text(String);

impl Text {
    fn add(&mut self, text: impl std::fmt::Display) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "{text}");
    }

    fn docs(&mut self, docs: &[String]) {
        for line in docs {
            self.add(format_args!("\n///{}{line}", if line.is_empty() { "" } else { " " }));
        }
        self.add("\n");
    }

    /// A member of the interface begins, after an empty line.
    fn member(&mut self, docs: &[String]) {
        self.add("\n");
        self.docs(docs);
    }

    fn interface(&mut self, interface: &Interface) {
        if interface.edition > 0 {
            self.add(format_args!("edition {};\n", interface.edition));
        }
        self.docs(&interface.docs);
        self.add(format_args!("interface {} ", interface.name));
        if let Some(description) = &interface.description {
            self.add(quoted(description));
        }
        self.add(" {");
        for constant in &interface.constants {
            self.member(&constant.docs);
            let (of, name) = (constant.builtin.as_str(), &constant.name);
            self.add(format_args!("const {of} {name} = {};", value(&constant.value)));
        }
        for set in &interface.errors {
            self.member(&set.docs);
            self.add(format_args!("errors {} ", set.name));
            self.add(if set.detailed { "detailed " } else { "" });
            self.values(&set.values, 1, Some(set));
            self.add(";");
        }
        for decl in &interface.types {
            self.member(&decl.docs);
            self.declaration(decl);
        }
        for message in &interface.messages {
            self.member(&message.docs);
            self.message(message);
        }
        self.add(if interface.edition > 0 { "\n}\n" } else { "\n};\n" });
    }

    fn declaration(&mut self, decl: &TypeDecl) {
        self.add("typedef ");
        match &decl.definition {
            Definition::Alias { target } => self.add(target),
            Definition::Struct { fields } => self.fields("struct", fields),
            Definition::Union { arms, .. } => self.fields("union", arms),
            Definition::Enum { flexible, values } => {
                self.add(if *flexible { "flexible enum " } else { "enum " });
                self.values(values, 0, None);
            }
            Definition::Array { element, count } => {
                return self.add(format_args!("{element} {}[{count}];", decl.name));
            }
        }
        self.add(format_args!(" {};", decl.name));
    }

    fn fields(&mut self, word: &str, fields: &[Field]) {
        self.add(format_args!("{word} {{"));
        for field in fields {
            self.docs(&field.docs);
            self.add(format_args!("{};", variable(&field.of, &field.name, None)));
        }
        self.add("\n}");
    }

    fn values(&mut self, values: &[EnumValue], first: i32, set: Option<&ErrorSet>) {
        self.add("{ ");
        let mut due = Some(first);
        for (index, one) in values.iter().enumerate() {
            if index > 0 {
                self.add(", ");
            }
            if !one.docs.is_empty() {
                self.docs(&one.docs);
            }
            self.add(&one.name);
            if let Some(details) = set.and_then(|set| set.details_of(one)) {
                self.add("(");
                for (index, field) in details.fields.iter().enumerate() {
                    self.add(if index > 0 { ", " } else { "" });
                    if !field.docs.is_empty() {
                        self.docs(&field.docs);
                    }
                    self.add(variable(&field.of, &field.name, None));
                }
                self.add(")");
            }
            if due != Some(one.value) {
                self.add(format_args!(" = {}", one.value));
            }
            due = one.value.checked_add(1);
        }
        self.add(" }");
    }

    fn message(&mut self, message: &Message) {
        for meta in &message.metas {
            let parameters = meta.parameters.iter().map(|(name, value)| match value {
                MetaValue::Number(number) => format!("{name}={number}"),
                MetaValue::Name(of) => format!("{name}={of}"),
            });
            let parameters = parameters.collect::<Vec<_>>().join(", ");
            self.add(format_args!("@{}({parameters})\n", meta.name));
        }
        self.add(format_args!("{} {}", message.kind.as_str(), message.name));
        if message.explicit_ordinal {
            self.add(format_args!(" @{}", message.ordinal));
        }
        let is_part = |one: &&Argument| message.stream && one.direction == Some(Direction::Out);
        self.arguments(message.arguments.iter().filter(|one| !is_part(one)));
        if message.stream {
            self.add(" stream");
            self.arguments(message.arguments.iter().filter(is_part));
        }
        if let Some(errors) = &message.errors {
            self.add(format_args!(" ! {errors}"));
        }
        self.add(";");
    }

    fn arguments<'a>(&mut self, arguments: impl Iterator<Item = &'a Argument>) {
        self.add("(");
        for (index, argument) in arguments.enumerate() {
            if index > 0 {
                self.add(", ");
            }
            self.argument(argument);
        }
        self.add(")");
    }

    fn argument(&mut self, argument: &Argument) {
        if !argument.docs.is_empty() {
            self.docs(&argument.docs);
        }
        match argument.direction {
            Some(Direction::In) => self.add("in "),
            Some(Direction::Out) => self.add("out "),
            None => {}
        }
        self.add(variable(&argument.of, &argument.name, argument.length_name.as_deref()));
    }
}

/// A field or an argument. The bounds of strings and arrays stand behind its name.
fn variable(of: &Type, name: &str, length_name: Option<&str>) -> String {
    match (of, length_name) {
        (Type::String { bytes_max }, _) => format!("String {name}[{bytes_max}]"),
        (Type::Vector { element, count_max }, Some(length)) => {
            format!("{element} {name}[{length}, {count_max}]")
        }
        _ => format!("{of} {name}"),
    }
}

fn value(value: &ConstantValue) -> String {
    match value {
        ConstantValue::Bool(value) => value.to_string(),
        ConstantValue::Unsigned(value) => value.to_string(),
        ConstantValue::Signed(value) => value.to_string(),
        ConstantValue::String(text) => quoted(text),
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
