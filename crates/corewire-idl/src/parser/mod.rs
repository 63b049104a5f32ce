//! Recursive descent, one function to a rule of the grammar in `docs/interfaces.md`.
//!
//! A rule that fails has reported why; its caller continues at the next comma, semicolon or declaration, so that one
//! run reports all errors of a file. Only types inside types make it recurse, and their depth is limited.

mod cursor;
mod declarations;
mod messages;
mod types;

use crate::diagnostics::{Code, Diagnostics, FileId};
use crate::lexer::{self, Kind, Tokens};
use crate::source::{Source, Span};
use crate::syntax::{Edition, File, Import, Interface};

pub(crate) use cursor::Cursor;

/// A rule failed and has reported why.
#[derive(Debug)]
pub(crate) struct Reported;

type Parsed<T> = Result<T, Reported>;

/// Reads a file whose text is `source`, which the diagnostics know as `file`.
pub(crate) fn parse(
    source: &Source,
    file: FileId,
    diagnostics: &mut Diagnostics,
) -> (File, Tokens) {
    let tokens = lexer::lex(source, file, diagnostics);
    let mut cursor = Cursor::new(source, file, &tokens, diagnostics);
    let parsed = cursor.file();
    cursor.report_unused_docs();
    (parsed, tokens)
}

/// The words that begin something inside an interface.
pub(crate) const MEMBERS: &[&str] =
    &["message", "rpc", "alias", "typedef", "call", "response", "event", "const", "errors"];

impl Cursor<'_> {
    fn file(&mut self) -> File {
        let mut file = File::default();
        if let Some(edition) = self.edition() {
            file.edition = edition;
            self.edition = edition;
        }
        while self.word() == "import" && self.peek(1).kind == Kind::String {
            self.needs_edition("`import`", self.span());
            if let Ok(import) = self.import() {
                file.imports.push(import);
            }
        }
        while self.kind() != Kind::End {
            let before = self.at();
            let docs = self.docs();
            if self.is_keyword("interface") {
                let keyword = self.span();
                let interface = self.interface(docs);
                if file.interface.is_some() {
                    let message = "a second interface in one file";
                    let one = self.error(Code::InterfaceTwice, keyword, message);
                    self.push(one.help("move it to a file of its own"));
                } else {
                    file.interface = interface.ok();
                }
            } else if self.starts_declaration() {
                if let Ok(declaration) = self.declaration(docs, false) {
                    file.declarations.push(declaration);
                }
            } else {
                let expected = match file.interface {
                    Some(_) => "the end of the file",
                    None => "`interface`, `alias` or `typedef`",
                };
                let words = ["interface", "alias", "typedef", "import", "const", "errors"];
                self.expected(expected, &words);
                self.recover_at_top();
            }
            if self.at() == before {
                self.advance();
            }
        }
        file
    }

    /// `edition 1;`
    fn edition(&mut self) -> Option<Edition> {
        if self.word() != "edition" || self.peek(1).kind != Kind::Number {
            return None;
        }
        self.advance();
        let number = self.number("a number").ok()?;
        self.semicolon("`edition`");
        match number.value {
            0 => Some(Edition::Zero),
            1 => Some(Edition::One),
            other => {
                let message = format!("edition {other} does not exist");
                let one = self.error(Code::UnknownEdition, number.span, message);
                self.push(one.note("this version knows the editions 0 and 1"));
                // The newest one gives the fewest errors that follow from this one.
                Some(Edition::One)
            }
        }
    }

    fn import(&mut self) -> Parsed<Import> {
        self.advance();
        let (path, span) = self.string()?;
        self.semicolon("the import");
        Ok(Import { path, span })
    }

    fn interface(&mut self, docs: Vec<String>) -> Parsed<Interface> {
        self.advance();
        let name = match self.name("the name of the interface") {
            Ok(name) => name,
            Err(Reported) => {
                self.recover_to_brace();
                self.missing_name()
            }
        };
        let description = match self.kind() {
            Kind::String => Some(self.string()?.0),
            _ => None,
        };
        let opened = self.span();
        if !self.eat(b'{') {
            self.expected("`{`", &[]);
            return Err(Reported);
        }
        let (declarations, messages) = (Vec::new(), Vec::new());
        let mut interface = Interface { docs, name, description, declarations, messages };
        if !self.members(&mut interface, opened) {
            return Ok(interface);
        }
        // Edition 0 demands this semicolon, edition 1 does not.
        if !self.eat(b';') && self.edition == Edition::Zero && self.kind() != Kind::Mark(b'}') {
            self.missing(b';', "the interface");
        }
        Ok(interface)
    }

    /// Whether the closing brace was there.
    fn members(&mut self, interface: &mut Interface, opened: Span) -> bool {
        loop {
            match self.kind() {
                Kind::Mark(b'}') => {
                    self.advance();
                    return true;
                }
                Kind::End => {
                    let end = self.previous().after();
                    let one = self.error(Code::Expected, end, "the interface does not end");
                    let file = self.file;
                    let one = one.label("expected `}`").also(file, opened, "opened here");
                    self.push(one);
                    return false;
                }
                _ => {}
            }
            let before = self.at();
            let docs = self.docs();
            let after = !interface.messages.is_empty();
            if self.starts_declaration() {
                if let Ok(declaration) = self.declaration(docs, after) {
                    interface.declarations.push(declaration);
                }
            } else if let Ok(message) = self.message(docs) {
                interface.messages.push(message);
            } else {
                self.recover_to_member();
            }
            if self.at() == before {
                self.advance();
            }
        }
    }
}
