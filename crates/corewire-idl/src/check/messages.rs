//! Messages: names, ordinals, directions, arguments.

use std::collections::HashMap;

use super::{Checker, Place};
use crate::diagnostics::Code;
use crate::form::{self, Argument, Direction, Hash, Kind, Meta, MetaValue, Type};
use crate::parser::Reported;
use crate::source::{Source, Span};
use crate::syntax::{self, Brackets, Edition, Interface, Keyword, Message, Name};

impl<'a> Checker<'a> {
    /// The interface without what [`form::complete`] adds.
    pub(super) fn interface(
        &mut self,
        place: Place,
        source: &Source,
        ast: &'a Interface,
    ) -> form::Interface {
        let name = &ast.name.text;
        if source.stem() != name && !name.is_empty() {
            let message = format!("interface `{name}` is in a file named `{}`", source.stem());
            let one = self.error(Code::NameIsNotFile, place, ast.name.span, message);
            let help = format!("name the file `{name}.if`, or the interface `{}`", source.stem());
            self.report(one.note("Flounder refuses such files").help(help));
        }
        if ast.messages.is_empty() {
            let message = format!("interface `{name}` has no messages");
            let one = self.error(Code::NoMessages, place, ast.name.span, message);
            self.report(one.help("add a message, such as `message hello();`"));
        }
        let ordinals = self.ordinals(place, &ast.messages);
        self.wire_names(place, &ast.messages);
        let messages = ast.messages.iter().zip(ordinals);
        let messages =
            messages.map(|(message, ordinal)| self.message(place, message, ordinal)).collect();
        let mut constants =
            self.constants.values().filter(|one| one.place.main).collect::<Vec<_>>();
        constants.sort_by_key(|one| one.ast.name.span.start);
        let constants = constants.iter().filter_map(|one| one.value.clone()).collect();
        // Imported sets come first, in the order of their files.
        let mut errors = self.errors.values().filter(|(.., used)| *used).collect::<Vec<_>>();
        errors.sort_by_key(|(place, span, ..)| (place.main, place.file, span.start));
        form::Interface {
            form: 0,
            edition: place.edition.number(),
            name: name.clone(),
            description: ast.description.clone(),
            docs: ast.docs.clone(),
            hash: Hash::default(),
            constants,
            errors: errors.into_iter().map(|(_, _, set, _)| set.clone()).collect(),
            types: self.types.drain(..).flatten().collect(),
            messages,
        }
    }

    /// The ordinal of each message: as stated, or its position.
    fn ordinals(&mut self, place: Place, messages: &'a [Message]) -> Vec<u16> {
        let stated = messages.iter().find_map(|message| message.ordinal);
        let used = messages.iter().filter_map(|message| message.ordinal);
        let next = used.map(|ordinal| ordinal.value).max().unwrap_or(0).saturating_add(1);
        let mut seen = HashMap::new();
        let mut ordinals = Vec::with_capacity(messages.len());
        for (position, message) in messages.iter().enumerate() {
            let name = &message.name;
            let (value, span) = match (message.ordinal, stated) {
                (Some(ordinal), _) => (ordinal.value, ordinal.span),
                (None, Some(first)) => {
                    let message = format!("message `{}` has no ordinal", name.text);
                    let one = self.error(Code::BadOrdinal, place, name.span, message);
                    self.report(
                        one.also(place.file, first.span, "another message has one")
                            .note("either all messages of an interface have ordinals, or none")
                            .help(format!("write `{} @{next}`", name.text)),
                    );
                    (1, name.span)
                }
                (None, None) => (position as u64 + 1, name.span),
            };
            let Some(ordinal) = u16::try_from(value).ok().filter(|ordinal| *ordinal > 0) else {
                let message = format!("ordinal {value} is not possible");
                let one = self.error(Code::BadOrdinal, place, span, message);
                self.report(one.note(format!("ordinals lie between 1 and {}", u16::MAX)));
                ordinals.push(1);
                continue;
            };
            ordinals.push(ordinal);
            if let (Some(_), Some(first)) = (message.ordinal, seen.get(&ordinal).copied()) {
                let message = format!("ordinal {ordinal} is used twice");
                let one = self.error(Code::BadOrdinal, place, span, message);
                self.report(one.label("used again here").also(
                    place.file,
                    first,
                    "first used here",
                ));
            } else if message.ordinal.is_some() || stated.is_none() {
                seen.insert(ordinal, span);
            }
        }
        ordinals
    }

    /// An rpc is two messages on the wire, whose names must be free.
    fn wire_names(&mut self, place: Place, messages: &'a [Message]) {
        let mut names = HashMap::<&str, Span>::new();
        for Message { name, .. } in messages {
            let Name { text, span } = name;
            if let Some(first) = names.insert(text, *span) {
                let message = format!("message `{text}` is declared twice");
                let one = self.error(Code::MessageTwice, place, *span, message);
                let one = one.label("declared again here");
                self.report(one.also(place.file, first, "first declared here"));
            }
        }
        // An rpc does not travel under its own name.
        for message in messages.iter().filter(|message| message.keyword.0 == Keyword::Rpc) {
            names.remove(message.name.text.as_str());
        }
        for Message { name, keyword, stream, .. } in messages {
            if keyword.0 != Keyword::Rpc {
                continue;
            }
            let part = stream.is_some().then_some("part");
            for ending in ["call", "reply"].into_iter().chain(part) {
                let wire = format!("{}_{ending}", name.text);
                if let Some(other) = names.get(wire.as_str()).copied() {
                    let message = format!("rpc `{}` is `{wire}` on the wire, too", name.text);
                    let one = self.error(Code::WireNameTwice, place, name.span, message);
                    self.report(one.also(place.file, other, "a message of that name"));
                }
            }
        }
    }

    fn message(&mut self, place: Place, ast: &'a Message, ordinal: u16) -> form::Message {
        let kind = match ast.keyword.0 {
            Keyword::Message => Kind::Message,
            Keyword::Call => Kind::Call,
            Keyword::Response => Kind::Response,
            Keyword::Rpc => Kind::Rpc,
            Keyword::Event => Kind::Event,
        };
        if matches!(kind, Kind::Call | Kind::Response) {
            let word = ast.keyword.0.as_str();
            let message = format!("`{word}` is an old form of `message`");
            let one = self.error(Code::LegacyKeyword, place, ast.keyword.1, message);
            let note = match kind {
                Kind::Call => "only clients send a `call`; either side may send a `message`",
                _ => "only the service sends a `response`; either side may send a `message`",
            };
            self.report(one.note(note).help("write `message`, or one `rpc` for both"));
        }
        let mut names = HashMap::new();
        let mut arguments = Vec::with_capacity(ast.arguments.len());
        let mut failed = false;
        let parts = self.stream(place, kind, ast);
        for (argument, is_part) in
            ast.arguments.iter().map(|one| (one, false)).chain(parts.iter().map(|one| (one, true)))
        {
            let direction = self.direction(place, kind, argument);
            if direction == Some(Direction::Out) && !is_part && ast.stream.is_some() {
                let name = &argument.name.text;
                let message = format!("result `{name}` of a stream stands outside of its parts");
                let one = self.error(Code::DirectionNotPossible, place, argument.of.span, message);
                self.report(one.help("move it behind `stream`"));
            }
            if direction == Some(Direction::In) && is_part {
                let name = &argument.name.text;
                let message = format!("argument `{name}` stands in the parts of a stream");
                let one = self.error(Code::DirectionNotPossible, place, argument.of.span, message);
                self.report(one.help("write `out`, or move it before `stream`"));
            }
            self.argument_names(place, &mut names, argument);
            match self.argument_type(place, argument) {
                Ok(of) => arguments.push(form_argument(argument, direction, of)),
                Err(Reported) => failed = true,
            }
        }
        let metas = self.metas(place, ast);
        let errors = ast.errors.as_ref().and_then(|name| self.error_set(place, kind, name));
        let message = form::Message {
            name: ast.name.text.clone(),
            ordinal,
            explicit_ordinal: ast.ordinal.is_some(),
            kind,
            docs: ast.docs.clone(),
            metas,
            arguments,
            stream: ast.stream.is_some(),
            errors,
            hash: Hash::default(),
            wires: Vec::new(),
        };
        if !failed {
            self.limits(place, ast, &message);
        }
        message
    }

    /// The arguments of the parts of a stream.
    fn stream(&mut self, place: Place, kind: Kind, ast: &'a Message) -> &'a [syntax::Argument] {
        let Some((parts, span)) = &ast.stream else { return &[] };
        if kind != Kind::Rpc {
            let one = self.error(
                Code::DirectionNotPossible,
                place,
                *span,
                "only an rpc can answer with a stream",
            );
            self.report(one.help("make the message an `rpc`"));
            return &[];
        } else if parts.is_empty() {
            let message = "the parts of a stream have no arguments";
            let one = self.error(Code::DirectionMissing, place, *span, message);
            self.report(one.help("write `stream(out ...)`"));
        }
        parts
    }

    /// Each argument alone is possible; all together may be too large.
    fn limits(&mut self, place: Place, ast: &Message, message: &form::Message) {
        for direction in [None, Some(Direction::In), Some(Direction::Out)] {
            let chosen = message.arguments.iter().filter(|one| one.direction == direction);
            let facts = chosen.filter_map(|argument| self.known.facts(&argument.of).ok());
            let mut facts = facts;
            let result =
                facts.try_fold(form::Facts::default(), |all, one| all.and(one).within_limits());
            if message.stream
                && direction == Some(Direction::Out)
                && result.as_ref().is_ok_and(|all| all.capabilities > 0)
            {
                let name = &ast.name;
                let message = format!("parts of stream `{}` have capabilities", name.text);
                let one = self.error(Code::TypeNotPossible, place, name.span, message);
                self.report(one.help("give them in the reply of another rpc"));
            }
            if let Err(refusal) = result {
                let message = format!("message `{}`: {}", ast.name.text, refusal.reason);
                let one = self.error(refusal.code, place, ast.name.span, message);
                self.report(one);
            }
        }
    }

    fn direction(
        &mut self,
        place: Place,
        kind: Kind,
        argument: &'a syntax::Argument,
    ) -> Option<Direction> {
        match (kind, argument.direction) {
            (Kind::Rpc, Some((syntax::Direction::In, _))) => Some(Direction::In),
            (Kind::Rpc, Some((syntax::Direction::Out, _))) => Some(Direction::Out),
            (Kind::Rpc, None) => {
                let name = &argument.name.text;
                let message = format!("argument `{name}` of an rpc has no direction");
                let span = argument.of.span;
                let one = self.error(Code::DirectionMissing, place, span, message);
                self.report(one.help("write `in` or `out` before the type"));
                Some(Direction::In)
            }
            (_, Some((_, span))) => {
                let message = "only arguments of an rpc have a direction";
                let one = self.error(Code::DirectionNotPossible, place, span, message);
                self.report(one.help("remove the word, or make the message an `rpc`"));
                None
            }
            (_, None) => None,
        }
    }

    /// Arguments in different directions may share a name: they are in different messages.
    fn argument_names(
        &mut self,
        place: Place,
        names: &mut HashMap<(bool, &'a str), Span>,
        argument: &'a syntax::Argument,
    ) {
        let out = matches!(argument.direction, Some((syntax::Direction::Out, _)));
        let length = length_name(&argument.brackets, &argument.of, place.edition);
        for name in std::iter::once(&argument.name).chain(length) {
            if let Some(first) = names.insert((out, &name.text), name.span) {
                let message = format!("argument `{}` is declared twice", name.text);
                let one = self.error(Code::ArgumentTwice, place, name.span, message);
                let one = one.label("declared again here");
                self.report(one.also(place.file, first, "first declared here"));
            }
        }
    }

    fn metas(&mut self, place: Place, ast: &'a Message) -> Vec<Meta> {
        let mut metas = Vec::with_capacity(ast.metas.len());
        for meta in &ast.metas {
            let mut parameters = Vec::with_capacity(meta.parameters.len());
            for (name, value) in &meta.parameters {
                let value = match value {
                    syntax::MetaValue::Number(number) => MetaValue::Number(number.value),
                    syntax::MetaValue::Name(argument) => {
                        self.meta_argument(place, ast, argument);
                        MetaValue::Name(argument.text.clone())
                    }
                };
                parameters.push((name.text.clone(), value));
            }
            metas.push(Meta { name: meta.name.text.clone(), parameters });
        }
        metas
    }

    fn meta_argument(&mut self, place: Place, ast: &'a Message, argument: &'a Name) {
        let parts = ast.stream.iter().flat_map(|(parts, _)| parts);
        let names = ast.arguments.iter().chain(parts).map(|one| one.name.text.as_str());
        let names = names.collect::<Vec<_>>();
        if names.contains(&argument.text.as_str()) {
            return;
        }
        let message = format!("`{}` is no argument of `{}`", argument.text, ast.name.text);
        let meant = self.meant(&argument.text, names);
        let one = self.error(Code::MetaNamesNothing, place, argument.span, message);
        self.report(one.help_if(meant));
    }

    fn error_set(&mut self, place: Place, kind: Kind, name: &'a Name) -> Option<String> {
        if kind != Kind::Rpc {
            let message = "only an rpc can answer with an error";
            let one = self.error(Code::BadErrors, place, name.span, message);
            self.report(one.help("make the message an `rpc`"));
            return None;
        }
        if let Some((declared, .., used)) = self.errors.get_mut(name.text.as_str()) {
            *used = true;
            let file = declared.file;
            self.uses(file);
            return Some(name.text.clone());
        }
        let message = format!("errors `{}` are not declared", name.text);
        let meant = self.meant(&name.text, self.errors.keys().copied());
        let declare =
            meant.is_none().then(|| format!("declare them: `errors {} {{ ... }};`", name.text));
        let one = self.error(Code::BadErrors, place, name.span, message);
        self.report(one.help_if(meant).help_if(declare));
        None
    }
}

/// The name of an array's length. In edition 1 a name alone bounds a string.
fn length_name<'a>(
    brackets: &'a Brackets,
    of: &syntax::TypeRef,
    edition: Edition,
) -> Option<&'a Name> {
    let string = matches!(&of.kind, syntax::TypeKind::Name(name) if name == "String");
    match brackets {
        Brackets::Array(name, _) => Some(name),
        Brackets::Name(name) if !(string && edition > Edition::Zero) => Some(name),
        _ => None,
    }
}

fn form_argument(ast: &syntax::Argument, direction: Option<Direction>, of: Type) -> Argument {
    let length_name = match (&of, &ast.brackets) {
        (Type::Vector { .. }, Brackets::Array(name, _) | Brackets::Name(name)) => {
            Some(name.text.clone())
        }
        _ => None,
    };
    Argument { name: ast.name.text.clone(), docs: ast.docs.clone(), direction, of, length_name }
}
