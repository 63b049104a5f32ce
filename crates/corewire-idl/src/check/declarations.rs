//! Declarations: which names there are, and what each stands for.

use std::collections::HashMap;

use super::{Checker, Constant, Declared, Place, Resolved, State};
use crate::diagnostics::Code;
use crate::form::{self, Builtin, ConstantValue, Definition, EnumValue, Hash, TypeDecl};
use crate::parser::Reported;
use crate::source::Span;
use crate::syntax::{
    Body, Declaration, Edition, Field, LiteralKind, Name, TypeKind, TypeRef, Value,
};

/// Names that stand for types in every file of an edition.
pub(super) fn is_builtin(name: &str, edition: Edition) -> bool {
    match name {
        "cap" | "give_away_cap" | "String" => true,
        "fd" | "endpoint" | "window" => edition > Edition::Zero,
        _ => builtin_of(name, edition).is_some(),
    }
}

/// The built-in type of this name in an edition.
pub(super) fn builtin_of(name: &str, edition: Edition) -> Option<Builtin> {
    Builtin::from_name(name).filter(|one| !one.is_float() || edition > Edition::Zero)
}

/// Whether a declaration can have this name although it is that of a built-in type, which it hides: the name of a type
/// that an earlier version of the language did not have.
pub(super) fn can_be_hidden(name: &str) -> bool {
    name == "window" || Builtin::from_name(name).is_some_and(Builtin::is_float)
}

impl<'a> Checker<'a> {
    /// Edition 0 declares one after the other, and a type can use those before it. In edition 1 the order does not
    /// matter.
    pub(super) fn declare(&mut self, place: Place, declarations: &'a [Declaration]) {
        let mut own = HashMap::new();
        let (mut waiting, mut errors) = (Vec::new(), Vec::new());
        for ast in declarations {
            if ast.after_message && place.edition == Edition::Zero {
                let message = "types stand before all messages in edition 0";
                let one = self.error(Code::TypeAfterMessage, place, ast.keyword, message);
                self.report(one.help("move it up, or write `edition 1;` at the top of the file"));
            }
            match &ast.body {
                Body::Constant(of, literal) => {
                    self.twice(place, &mut own, ast);
                    let value = self.constant(place, ast, of, &literal.kind, literal.span);
                    self.constants.insert(&ast.name.text, Constant { place, ast, value });
                }
                Body::Errors { detailed, values } => {
                    self.twice(place, &mut own, ast);
                    let (name, docs) = (ast.name.text.clone(), ast.docs.clone());
                    let resolved = self.values(place, values, 1);
                    let set = form::ErrorSet {
                        name,
                        docs,
                        detailed: *detailed,
                        values: resolved,
                        details: Vec::new(),
                    };
                    self.errors.insert(&ast.name.text, (place, ast.name.span, set, place.main));
                    errors.push((place, &ast.name.text, *detailed, values));
                }
                _ if self.shadowed_by_builtin(place, ast) => {}
                _ => {
                    self.twice(place, &mut own, ast);
                    let index = self.declared.len();
                    self.declared.push(Declared { place, ast, state: State::Waiting, used: false });
                    if place.edition == Edition::Zero {
                        // Its own name is not known inside it.
                        self.resolve(index);
                        self.name(index);
                    } else {
                        self.name(index);
                        waiting.push(index);
                    }
                }
            }
        }
        waiting.into_iter().for_each(|index| self.resolve(index));
        for (place, set, detailed, values) in errors {
            for value in values {
                self.details(place, set, detailed, value);
            }
        }
    }

    /// The details of an error, whose types may be declared anywhere.
    fn details(&mut self, place: Place, set: &str, detailed: bool, value: &'a Value) {
        let Some((arguments, span)) = &value.details else { return };
        if !detailed {
            let message =
                format!("error `{}` has details, and `{set}` is not detailed", value.name.text);
            let one = self.error(Code::BadErrors, place, *span, message);
            self.report(one.help(format!("write `errors {set} detailed {{ ... }}`")));
            return;
        }
        let (mut names, mut fields) = (HashMap::new(), Vec::new());
        for argument in arguments {
            self.member_twice(place, "field", &mut names, &argument.name);
            if let Some((_, span)) = argument.direction {
                let message = "only arguments of an rpc have a direction";
                let one = self.error(Code::DirectionNotPossible, place, span, message);
                self.report(one.help("remove the word"));
            }
            let Ok(of) = self.argument_type(place, argument) else { return };
            let (name, docs) = (argument.name.text.clone(), argument.docs.clone());
            fields.push(form::Field { name, docs, of });
        }
        if let Err(refusal) = self.known.details(fields.iter().map(|field| &field.of)) {
            let message = format!("details of `{}`: {}", value.name.text, refusal.reason);
            let one = self.error(refusal.code, place, *span, message);
            self.report(one);
            return;
        }
        if let Some((_, _, set, _)) = self.errors.get_mut(set)
            && !fields.is_empty()
            // Otherwise it is wrong, which has been reported.
            && set.values.iter().any(|one| one.name == value.name.text)
        {
            let (error, layout) = (value.name.text.clone(), form::Layout::default());
            set.details.push(form::Details { error, fields, layout });
        }
    }

    /// Makes a name mean this declaration from here on.
    fn name(&mut self, index: usize) {
        self.names.insert(&self.declared[index].ast.name.text, index);
    }

    /// A declaration may hide an imported one, as in Flounder. The form has one type of each name, so the hidden one
    /// must not be used by another imported type.
    fn hide(&mut self, index: usize) {
        let Declared { ast, place, .. } = self.declared[index];
        let name = ast.name.text.as_str();
        let Some(&(older, at)) = self.entered.get(name) else { return };
        let other = &self.declared[older];
        let (file, span, used) = (other.place.file, other.ast.name.span, other.used);
        if file == place.file {
            // Reported as declared twice.
            return;
        }
        if used {
            let message = format!("another type `{name}` is used by an imported type");
            let one = self.error(Code::TwoTypesOneName, place, ast.name.span, message);
            self.report(one.also(file, span, "the other one").help("rename this one"));
            return;
        }
        self.types[at] = None;
        let message = format!("`{name}` hides an imported type");
        let one = self.error(Code::HidesImport, place, ast.name.span, message);
        self.report(one.also(file, span, "the imported one"));
    }

    fn twice(&mut self, place: Place, own: &mut HashMap<&'a str, Span>, ast: &'a Declaration) {
        let Name { text, span } = &ast.name;
        if let Some(first) = own.insert(text, *span) {
            let message = format!("`{text}` is declared twice");
            let one = self.error(Code::TypeTwice, place, *span, message);
            self.report(one.label("declared again here").also(
                place.file,
                first,
                "first declared here",
            ));
        }
    }

    /// Flounder looks for a built-in type first, so a declaration of that name has no effect.
    fn shadowed_by_builtin(&mut self, place: Place, ast: &'a Declaration) -> bool {
        let Name { text, span } = &ast.name;
        if !is_builtin(text, place.edition) || can_be_hidden(text) {
            return false;
        }
        let harmless = matches!(ast.body, Body::Alias(_) | Body::Typedef(_));
        if place.edition == Edition::Zero && harmless {
            let message = format!("`{text}` is built in, so this alias has no effect");
            let mut one = self.error(Code::BuiltinWins, place, *span, message);
            if let Some(builtin) = Builtin::from_name(text) {
                let bits = 8 * builtin.bytes();
                one = one.note(format!("`{text}` has {bits} bits on the wire, on every machine"));
            }
            self.report(one.help("remove the alias"));
        } else {
            let message = format!("`{text}` is built in and cannot be declared");
            let one = self.error(Code::TypeTwice, place, *span, message);
            self.report(one.help("use another name"));
        }
        true
    }

    /// Finds out what a declared type is. Types that it uses are resolved first.
    pub(super) fn resolve(&mut self, index: usize) {
        let Declared { place, ast, state, .. } = self.declared[index];
        if state != State::Waiting {
            return;
        }
        self.declared[index].state = State::Resolving;
        self.depth += 1;
        let result =
            self.definition(place, ast).and_then(|definition| self.enter(index, definition));
        self.depth -= 1;
        let done = if result.is_ok() { State::Done } else { State::Failed };
        self.declared[index].state = done;
    }

    fn enter(&mut self, index: usize, mut definition: Definition) -> Resolved<()> {
        let Declared { place, ast, .. } = self.declared[index];
        let entry = form::entry(&self.known, &mut definition).map_err(|refusal| {
            let name = &ast.name.text;
            let message = format!("`{name}` is not possible: {}", refusal.reason);
            let one = self.error(refusal.code, place, ast.name.span, message);
            self.report(one)
        })?;
        self.hide(index);
        self.entered.insert(&ast.name.text, (index, self.types.len()));
        self.known.insert(ast.name.text.clone(), entry);
        self.types.push(Some(TypeDecl {
            name: ast.name.text.clone(),
            docs: ast.docs.clone(),
            imported: !place.main,
            definition,
            hash: Hash::default(),
            layout: None,
        }));
        Ok(())
    }

    fn definition(&mut self, place: Place, ast: &'a Declaration) -> Resolved<Definition> {
        match &ast.body {
            Body::Alias(of) => {
                let simple = matches!(&of.kind, TypeKind::Name(n) if is_builtin(n, place.edition));
                if place.edition == Edition::Zero && !simple {
                    let message = "an alias stands for a built-in type in edition 0";
                    let one = self.error(Code::AliasOfDeclared, place, of.span, message);
                    let name = &ast.name.text;
                    return Err(self.report(one.help(format!("write `typedef ... {name};`"))));
                }
                Ok(Definition::Alias { target: self.type_of(place, of)? })
            }
            Body::Typedef(of) => Ok(Definition::Alias { target: self.type_of(place, of)? }),
            Body::Array(of, count) => {
                let element = self.type_of(place, of)?;
                let count = self.count(place, count.value, count.span)?;
                Ok(Definition::Array { element, count })
            }
            Body::Struct(fields) => Ok(Definition::Struct { fields: self.fields(place, fields)? }),
            Body::Union(fields) => {
                let arms = self.fields(place, fields)?;
                Ok(Definition::Union { arms, area_bytes: 0 })
            }
            Body::Enum { flexible, values } => {
                if let Some((_, span)) = values.iter().find_map(|one| one.details.as_ref()) {
                    let message = "only errors have details";
                    let one = self.error(Code::BadErrors, place, *span, message);
                    self.report(one.help("write a union for values with fields"));
                }
                let values = self.values(place, values, 0);
                Ok(Definition::Enum { flexible: *flexible, values })
            }
            // They are not types and have been handled.
            Body::Errors { .. } | Body::Constant(..) => Err(Reported),
        }
    }

    /// All fields are looked at, so that all errors are reported.
    fn fields(&mut self, place: Place, fields: &'a [Field]) -> Resolved<Vec<form::Field>> {
        let mut names = HashMap::new();
        let mut resolved = Vec::with_capacity(fields.len());
        for field in fields {
            self.member_twice(place, "field", &mut names, &field.name);
            let of = self.field_type(place, field);
            let (name, docs) = (field.name.text.clone(), field.docs.clone());
            resolved.push(of.map(|of| form::Field { name, docs, of }));
        }
        resolved.into_iter().collect()
    }

    fn member_twice(
        &mut self,
        place: Place,
        what: &str,
        names: &mut HashMap<&'a str, Span>,
        name: &'a Name,
    ) {
        if let Some(first) = names.insert(&name.text, name.span) {
            let message = format!("{what} `{}` is declared twice", name.text);
            let one = self.error(Code::MemberTwice, place, name.span, message);
            self.report(one.label("declared again here").also(
                place.file,
                first,
                "first declared here",
            ));
        }
    }

    /// Values without a number are one more than the value before them.
    fn values(&mut self, place: Place, values: &'a [Value], first: i32) -> Vec<EnumValue> {
        let mut names = HashMap::new();
        let mut numbers = HashMap::new();
        let mut next = i128::from(first);
        let mut resolved = Vec::with_capacity(values.len());
        for value in values {
            self.member_twice(place, "value", &mut names, &value.name);
            let (number, span) = value.literal.unwrap_or((next, value.name.span));
            let name = &value.name.text;
            let Ok(small) = i32::try_from(number)
                .map_err(drop)
                .and_then(|small| if small < first && first > 0 { Err(()) } else { Ok(small) })
            else {
                let message = format!("`{name}` has the value {number}, which is not possible");
                let one = self.error(Code::BadValue, place, span, message);
                let least = if first > 0 { i64::from(first) } else { i32::MIN.into() };
                self.report(one.note(format!("values lie between {least} and {}", i32::MAX)));
                continue;
            };
            next = number + 1;
            if let Some(other) = numbers.insert(small, value.name.span) {
                let message = format!("`{name}` has the value {small}, like another one");
                let one = self.error(Code::BadValue, place, span, message);
                self.report(one.also(place.file, other, "the same value here"));
            }
            let (name, docs) = (name.clone(), value.docs.clone());
            resolved.push(EnumValue { name, docs, value: small });
        }
        resolved
    }

    fn constant(
        &mut self,
        place: Place,
        ast: &'a Declaration,
        of: &'a TypeRef,
        literal: &LiteralKind,
        span: Span,
    ) -> Option<form::Constant> {
        let builtin = match &of.kind {
            TypeKind::Name(name) => Builtin::from_name(name),
            _ => None,
        };
        let Some(builtin) = builtin.filter(|one| !one.is_float()) else {
            let message = "a constant is an integer, `bool` or `String`";
            let one = self.error(Code::TypeNotPossible, place, of.span, message);
            self.report(one);
            return None;
        };
        let (least, most) = if builtin.is_integer() { builtin.range() } else { (0, 0) };
        let value = match literal {
            LiteralKind::Bool(value) if builtin == Builtin::Bool => ConstantValue::Bool(*value),
            LiteralKind::String(text) if builtin == Builtin::String => {
                ConstantValue::String(text.clone())
            }
            LiteralKind::Integer(value)
                if builtin.is_integer() && (least..=most).contains(value) =>
            {
                match (u64::try_from(*value), i64::try_from(*value)) {
                    (Ok(value), _) => ConstantValue::Unsigned(value),
                    (_, Ok(value)) => ConstantValue::Signed(value),
                    _ => return None,
                }
            }
            LiteralKind::Wrong => return None,
            _ => {
                let message = format!("the value does not fit `{}`", builtin.as_str());
                let mut one = self.error(Code::BadValue, place, span, message);
                if builtin.is_integer() {
                    one = one.note(format!("values lie between {least} and {most}"));
                }
                self.report(one.also(place.file, of.span, "the type of the constant"));
                return None;
            }
        };
        let (name, docs) = (ast.name.text.clone(), ast.docs.clone());
        Some(form::Constant { name, docs, builtin, value })
    }
}
