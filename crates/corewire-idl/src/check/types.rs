//! Types where they are used.

use super::declarations::{builtin_of, can_be_hidden, is_builtin};
use super::{Checker, Declared, Place, Resolved, State};
use crate::diagnostics::{Code, Diagnostic, similar};
use crate::form::{self, Builtin, CapabilityKind, NESTING_MAX, Type};
use crate::parser::Reported;
use crate::source::Span;
use crate::syntax::{Argument, Bound, Brackets, Edition, Field, Name, TypeKind, TypeRef};

/// The bound of strings and arrays without one: Flounder's own when it began to demand bounds.
const LEGACY_BOUND: u32 = 2048;

/// The largest bound of a string or vector.
const BOUND_MAX: u64 = 1 << 30;

/// Types of edition 1 that files of edition 0 may have meant.
const NEWER: &[&str] =
    &["float32", "float64", "fd", "endpoint", "window", "optional", "vector", "channel", "client"];

impl<'a> Checker<'a> {
    pub(super) fn type_of(&mut self, place: Place, of: &'a TypeRef) -> Resolved<Type> {
        match &of.kind {
            TypeKind::Wrong => Err(Reported),
            TypeKind::Name(name) => self.named(place, name, of.span),
            TypeKind::String(bound) => Ok(Type::String { bytes_max: self.bound(place, bound)? }),
            TypeKind::Optional(inner) => {
                Ok(Type::Optional { of: Box::new(self.type_of(place, inner)?) })
            }
            TypeKind::Vector(inner, bound) => {
                let (element, count) = (self.type_of(place, inner), self.bound(place, bound));
                Ok(Type::Vector { element: Box::new(element?), count_max: count? })
            }
            TypeKind::Channel(inner) => {
                Ok(Type::Channel { of: Box::new(self.type_of(place, inner)?) })
            }
            TypeKind::Client(name) => self.client(place, name),
        }
    }

    fn named(&mut self, place: Place, name: &str, span: Span) -> Resolved<Type> {
        let capability = match name {
            "cap" => Some(CapabilityKind::Cap),
            "give_away_cap" => Some(CapabilityKind::GiveAwayCap),
            "fd" if place.edition > Edition::Zero => Some(CapabilityKind::Fd),
            "endpoint" if place.edition > Edition::Zero => Some(CapabilityKind::Endpoint),
            "window" if place.edition > Edition::Zero => Some(CapabilityKind::Window),
            _ => None,
        };
        // A file from before there were windows and floating-point numbers may have a type of its own with this name.
        let is_hidden = can_be_hidden(name) && self.names.contains_key(name);
        if let Some(capability) = capability.filter(|_| !is_hidden) {
            return Ok(Type::Capability { capability });
        }
        if let Some(builtin) = builtin_of(name, place.edition).filter(|_| !is_hidden) {
            if builtin.is_machine_word() && place.main && !self.warned_of_machine_words {
                self.warned_of_machine_words = true;
                let message = format!("the size of `{name}` depends on the machine");
                let one = self.error(Code::MachineWord, place, span, message);
                self.report(
                    one.note("it has 64 bits on the wire, on every machine")
                        .help("use `uint64` or `int64` for values that another machine reads"),
                );
            }
            return Ok(Type::Builtin { builtin });
        }
        let Some(&index) = self.names.get(name) else {
            if name == "string" && place.edition == Edition::Zero {
                let message = "`string` is an old form of `String`";
                let one = self.error(Code::LegacyString, place, span, message);
                self.report(one.help("write `String`"));
                return Ok(Type::Builtin { builtin: Builtin::String });
            }
            return Err(self.undeclared(place, name, span));
        };
        self.declared_type(place, index, span)
    }

    fn declared_type(&mut self, place: Place, index: usize, span: Span) -> Resolved<Type> {
        if self.depth > NESTING_MAX {
            let message = format!("types are nested more than {NESTING_MAX} deep");
            let one = self.error(Code::NestedTooDeep, place, span, message);
            return Err(self.report(one));
        }
        self.resolve(index);
        self.declared[index].used = true;
        let Declared { place: declared, ast, state, .. } = self.declared[index];
        self.uses(declared.file);
        let name = &ast.name.text;
        match state {
            State::Done => Ok(Type::Named { name: name.clone() }),
            State::Resolving => {
                let message = format!("`{name}` contains itself");
                let one = self
                    .error(Code::ContainsItself, place, span, message)
                    .label("contained here")
                    .also(declared.file, ast.name.span, "declared here")
                    .note("a value of this type would have no end");
                Err(self.report(one))
            }
            State::Waiting | State::Failed => Err(Reported),
        }
    }

    fn undeclared(&mut self, place: Place, name: &str, span: Span) -> Reported {
        if name.is_empty() {
            return Reported;
        }
        let later = self.later.get(name).copied().filter(|_| place.main);
        if let Some(later) = later {
            let message = format!("type `{name}` is used before its declaration");
            let one = self
                .error(Code::UsedBeforeDeclared, place, span, message)
                .label("used here")
                .also(place.file, later, "declared here")
                .help("move the declaration up, or write `edition 1;` at the top of the file");
            return self.report(one);
        }
        let mut one = self
            .error(Code::UndeclaredType, place, span, format!("type `{name}` is not declared"))
            .label("not declared");
        if place.edition == Edition::Zero && NEWER.contains(&name) {
            one =
                one.help(format!("`{name}` is a type of edition 1: write `edition 1;` at the top"));
        } else if name == "string" {
            one = one.help("did you mean `String`?");
        } else {
            one = self.with_similar(one, place, name);
        }
        self.report(one)
    }

    /// Suggests a type, and shows its declaration if it has one.
    fn with_similar(&self, one: Diagnostic, place: Place, name: &str) -> Diagnostic {
        if self.diagnostics.is_full() {
            return one;
        }
        let builtins = Builtin::ALL.iter().map(|builtin| builtin.as_str());
        let builtins = builtins.chain(["int", "cap", "give_away_cap", "fd", "endpoint", "window"]);
        let builtins = builtins.filter(|one| is_builtin(one, place.edition));
        let mut declared = self.names.keys().copied().collect::<Vec<_>>();
        declared.sort_unstable();
        let Some(meant) = similar(name, declared.into_iter().chain(builtins)) else { return one };
        let one = one.help(format!("did you mean `{meant}`?"));
        match self.names.get(meant).map(|index| &self.declared[*index]) {
            Some(other) => one.also(other.place.file, other.ast.name.span, "a similar type"),
            None => one,
        }
    }

    fn client(&mut self, place: Place, name: &'a Name) -> Resolved<Type> {
        let interface = name.text.clone();
        if let Some(file) = self.interfaces.get(interface.as_str()).copied() {
            self.uses(file);
            return Ok(Type::Client { interface });
        }
        let message = format!("interface `{interface}` is not known here");
        let meant = self.meant(&interface, self.interfaces.keys().copied());
        let import = meant.is_none().then(|| "import the file of that interface".to_owned());
        let one = self.error(Code::UndeclaredInterface, place, name.span, message);
        Err(self.report(one.help_if(meant).help_if(import)))
    }

    pub(super) fn bound(&mut self, place: Place, bound: &'a Bound) -> Resolved<u32> {
        match bound {
            Bound::Number(number) => self.count(place, number.value, number.span),
            Bound::Constant(name) => self.constant_bound(place, name),
        }
    }

    fn constant_bound(&mut self, place: Place, name: &'a Name) -> Resolved<u32> {
        let Some(constant) = self.constants.get(name.text.as_str()) else {
            let message = format!("constant `{}` is not declared", name.text);
            let meant = self.meant(&name.text, self.constants.keys().copied());
            let one = self.error(Code::UndeclaredConstant, place, name.span, message);
            return Err(self.report(one.help_if(meant)));
        };
        let (file, span) = (constant.place.file, constant.ast.name.span);
        match constant.value.as_ref().map(|constant| constant.value.clone()) {
            Some(form::ConstantValue::Unsigned(value)) => {
                self.uses(file);
                self.count(place, value, name.span)
            }
            None => Err(Reported),
            Some(_) => {
                let message = format!("constant `{}` is not a natural number", name.text);
                let one = self.error(Code::BadBound, place, name.span, message);
                Err(self.report(one.also(file, span, "declared here")))
            }
        }
    }

    /// A number of elements or bytes.
    pub(super) fn count(&mut self, place: Place, value: u64, span: Span) -> Resolved<u32> {
        match u32::try_from(value) {
            Ok(small) if (1..=BOUND_MAX).contains(&value) => Ok(small),
            _ => {
                let message = format!("a bound of {value} is not possible");
                let one = self.error(Code::BadBound, place, span, message);
                Err(self.report(one.note(format!("bounds lie between 1 and {BOUND_MAX}"))))
            }
        }
    }

    pub(super) fn field_type(&mut self, place: Place, field: &'a Field) -> Resolved<Type> {
        let of = self.type_of(place, &field.of)?;
        let of = match (&field.bound, self.is_string(&of)) {
            (None, false) => of,
            (Some(bound), true) => Type::String { bytes_max: self.bound(place, bound)? },
            (Some(_), false) => return Err(self.no_bound(place, field.of.span, &field.name)),
            (None, true) => {
                let name = &field.name.text;
                let message = format!("field `{name}` is a string without a bound");
                let one = self.error(Code::BoundMissing, place, field.of.span, message);
                let help = format!("in edition 1, write `String {name}[64]`");
                return Err(self.report(one.help(help)));
            }
        };
        self.possible(place, field.of.span, of)
    }

    /// The type of an argument, together with what stands in brackets.
    pub(super) fn argument_type(&mut self, place: Place, argument: &'a Argument) -> Resolved<Type> {
        let span = argument.of.span;
        let of = self.type_of(place, &argument.of)?;
        let string = self.is_string(&of);
        let of = match &argument.brackets {
            Brackets::None if string => {
                Type::String { bytes_max: self.legacy_bound(place, argument, "string")? }
            }
            Brackets::None => of,
            Brackets::Number(number) if string => {
                Type::String { bytes_max: self.count(place, number.value, number.span)? }
            }
            Brackets::Number(_) => return Err(self.no_bound(place, span, &argument.name)),
            Brackets::Name(name) if string && place.edition > Edition::Zero => {
                Type::String { bytes_max: self.constant_bound(place, name)? }
            }
            Brackets::Name(name) if string => {
                let argument = &argument.name.text;
                let message = format!("string `{argument}` needs a number as its bound");
                let one = self.error(Code::BoundMissing, place, name.span, message);
                let one = one.note("constants as bounds need edition 1");
                return Err(self.report(one.help(format!("write `{argument}[64]`"))));
            }
            Brackets::Name(_) => {
                let count_max = self.legacy_bound(place, argument, "array")?;
                Type::Vector { element: Box::new(of), count_max }
            }
            Brackets::Array(_, bound) => {
                let count_max = self.bound(place, bound)?;
                Type::Vector { element: Box::new(of), count_max }
            }
        };
        self.possible(place, span, of)
    }

    fn is_string(&self, of: &Type) -> bool {
        matches!(of, Type::Builtin { builtin: Builtin::String })
    }

    /// Refuses types that cannot stand in a message.
    fn possible(&mut self, place: Place, span: Span, of: Type) -> Resolved<Type> {
        match self.known.facts(&of) {
            Ok(_) => Ok(of),
            Err(refusal) => {
                let message = format!("this type is not possible: {}", refusal.reason);
                let one = self.error(refusal.code, place, span, message);
                Err(self.report(one))
            }
        }
    }

    fn no_bound(&mut self, place: Place, span: Span, name: &Name) -> Reported {
        let message = "only strings have a bound alone";
        let one = self
            .error(Code::BoundNotPossible, place, name.span.after(), message)
            .label("bound")
            .also(place.file, span, "this is not a `String`");
        let name = &name.text;
        self.report(one.help(format!("for an array write `{name}[{name}_length, 16]`")))
    }

    /// Edition 0 has strings and arrays without a bound in its older files.
    fn legacy_bound(&mut self, place: Place, argument: &Argument, what: &str) -> Resolved<u32> {
        let name = &argument.name.text;
        let message = format!("{what} `{name}` has no bound");
        let bounded = match &argument.brackets {
            Brackets::Name(length) => format!("`{name}[{}, {LEGACY_BOUND}]`", length.text),
            _ => format!("`{name}[{LEGACY_BOUND}]`"),
        };
        if place.edition > Edition::Zero {
            let one = self.error(Code::BoundMissing, place, argument.name.span, message);
            return Err(self.report(one.help(format!("write {bounded}, or another bound"))));
        }
        let one = self.error(Code::LegacyUnbounded, place, argument.name.span, message);
        let note = format!("{LEGACY_BOUND} is assumed, as in Flounder");
        self.report(one.note(note).help(format!("write {bounded}, or another bound")));
        Ok(LEGACY_BOUND)
    }
}
