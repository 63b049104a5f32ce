//! The place in the tokens, what all rules need, and how parsing continues after an error.

use crate::diagnostics::{Code, Diagnostic, Diagnostics, FileId, similar};
use crate::lexer::{self, CommentKind, Kind, Token, Tokens};
use crate::parser::{MEMBERS, Parsed, Reported};
use crate::source::{Source, Span};
use crate::syntax::{Edition, Name, Number};

/// Flounder's reserved words. All other words, `type` and `struct` among them, may be used as names.
const RESERVED: &[&str] = &["interface", "message", "rpc", "in", "out"];

pub(crate) struct Cursor<'a> {
    source: &'a Source,
    pub(crate) file: FileId,
    tokens: &'a Tokens,
    diagnostics: &'a mut Diagnostics,
    pub(crate) edition: Edition,
    at: usize,
    /// The first comment that has not been passed; those before it were documentation or plain.
    comment: usize,
    unused_docs: Vec<Span>,
    /// The place of the last error. A second one at the same token adds nothing.
    last_error: Option<usize>,
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(
        source: &'a Source,
        file: FileId,
        tokens: &'a Tokens,
        diagnostics: &'a mut Diagnostics,
    ) -> Self {
        let edition = Edition::Zero;
        let unused_docs = Vec::new();
        let (at, comment, last_error) = (0, 0, None);
        Self { source, file, tokens, diagnostics, edition, at, comment, unused_docs, last_error }
    }

    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn peek(&self, ahead: usize) -> Token {
        let last = self.tokens.tokens.len() - 1;
        self.tokens.tokens[(self.at + ahead).min(last)]
    }

    pub(crate) fn kind(&self) -> Kind {
        self.peek(0).kind
    }

    pub(crate) fn span(&self) -> Span {
        self.peek(0).span
    }

    /// The place of the token before this one.
    pub(crate) fn previous(&self) -> Span {
        match self.at {
            0 => Span::default(),
            at => self.tokens.tokens[at - 1].span,
        }
    }

    pub(crate) fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.tokens.len() - 1);
    }

    pub(crate) fn eat(&mut self, mark: u8) -> bool {
        let found = self.kind() == Kind::Mark(mark);
        if found {
            self.advance();
        }
        found
    }

    /// The text of the token here if it is a word, otherwise nothing.
    pub(crate) fn word(&self) -> &'a str {
        self.word_at(0)
    }

    pub(crate) fn word_at(&self, ahead: usize) -> &'a str {
        let token = self.peek(ahead);
        if token.kind == Kind::Name { self.source.slice(token.span) } else { "" }
    }

    /// Whether the word here is this reserved one. In edition 0 its case does not matter, as in Flounder.
    pub(crate) fn is_keyword(&self, keyword: &str) -> bool {
        let word = self.word();
        word == keyword || self.edition == Edition::Zero && word.eq_ignore_ascii_case(keyword)
    }

    pub(crate) fn error(&self, code: Code, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(code, self.file, span, message)
    }

    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// Reports that something else should stand here, and which of `words` was meant.
    pub(crate) fn expected(&mut self, what: &str, words: &[&str]) {
        if self.last_error.replace(self.at) == Some(self.at) {
            return;
        }
        let token = self.peek(0);
        let found = match token.kind {
            Kind::End => "the end of the file".to_owned(),
            Kind::String => "a string".to_owned(),
            _ => format!("`{}`", shortened(self.source.slice(token.span))),
        };
        let message = format!("expected {what}, found {found}");
        let meant = similar(self.word(), words.iter().copied());
        let one = self
            .error(Code::Expected, token.span, message)
            .label(format!("expected {what}"))
            .help_if(meant.map(|word| format!("did you mean `{word}`?")));
        self.push(one);
    }

    /// Reports that `mark` is missing behind the token before this one.
    pub(crate) fn missing(&mut self, mark: u8, behind: &str) {
        if self.last_error.replace(self.at) == Some(self.at) {
            return;
        }
        let mark = char::from(mark);
        let end = self.previous().after();
        let message = format!("`{mark}` is missing behind {behind}");
        let one = self.error(Code::Expected, end, message).label(format!("expected `{mark}`"));
        self.push(one);
    }

    /// A semicolon behind something that is complete. Parsing continues if it is missing.
    pub(crate) fn semicolon(&mut self, behind: &str) {
        if self.eat(b';') {
            return;
        }
        if self.starts_line() || matches!(self.kind(), Kind::Mark(b'}') | Kind::End) {
            self.missing(b';', behind);
        } else {
            self.expected("`;`", &[]);
            self.recover_to_member();
        }
    }

    pub(crate) fn name(&mut self, what: &str) -> Parsed<Name> {
        if self.kind() != Kind::Name {
            self.expected(what, &[]);
            return Err(Reported);
        }
        let (text, span) = (self.word(), self.span());
        if let Some(word) = RESERVED.iter().find(|word| self.is_keyword(word)) {
            let message = format!("`{text}` is a reserved word and cannot be {what}");
            let mut one = self.error(Code::ReservedName, span, message);
            if *word != text {
                one = one.note("in edition 0 the case of reserved words does not matter");
            }
            self.push(one.help(format!("use another name, such as `{text}_`")));
        }
        self.advance();
        Ok(Name { text: text.to_owned(), span })
    }

    /// In place of a name that has been reported as missing.
    pub(crate) fn missing_name(&self) -> Name {
        Name { text: String::new(), span: self.previous().after() }
    }

    pub(crate) fn number(&mut self, what: &str) -> Parsed<Number> {
        if self.kind() != Kind::Number {
            self.expected(what, &[]);
            return Err(Reported);
        }
        let span = self.span();
        let text = self.source.slice(span);
        let value = lexer::natural(text).unwrap_or_else(|| {
            let message = format!("`{}` is not a number of 64 bits", shortened(text));
            let one = self.error(Code::BadNumber, span, message);
            let forms = "numbers are decimal, hexadecimal (`0x1F`) or octal (`0o17`)";
            self.push(one.note(forms));
            1
        });
        self.advance();
        Ok(Number { value, span })
    }

    pub(crate) fn string(&mut self) -> Parsed<(String, Span)> {
        if self.kind() != Kind::String {
            self.expected("a string", &[]);
            return Err(Reported);
        }
        let span = self.span();
        let text = lexer::unescape(self.source.slice(span)).unwrap_or_else(|unknown| {
            let message = format!("`\\{}` is not an escape", unknown.escape_debug());
            let one = self.error(Code::BadString, span, message);
            self.push(one.note(r#"the escapes are `\"`, `\\`, `\n` and `\t`"#));
            String::new()
        });
        self.advance();
        Ok((text, span))
    }

    /// Reports that something needs edition 1, if the file is not of it.
    pub(crate) fn needs_edition(&mut self, what: &str, span: Span) {
        if self.edition == Edition::Zero {
            let message = format!("{what} needs edition 1, and this file is of edition 0");
            let one = self.error(Code::NeedsEdition, span, message);
            self.push(one.help("write `edition 1;` at the top of the file"));
        }
    }

    /// The documentation directly before this token.
    pub(crate) fn docs(&mut self) -> Vec<String> {
        let mut docs = Vec::new();
        while let Some(comment) = self.tokens.comments.get(self.comment) {
            if comment.before > self.at {
                break;
            }
            self.comment += 1;
            if comment.kind != CommentKind::Documentation || self.edition == Edition::Zero {
                continue;
            }
            if comment.before == self.at {
                let line = self.source.slice(comment.span).trim_end();
                let line = line.strip_prefix("///").unwrap_or(line);
                docs.push(line.strip_prefix(' ').unwrap_or(line).to_owned());
            } else {
                self.unused_docs.push(comment.span);
            }
        }
        docs
    }

    pub(crate) fn report_unused_docs(&mut self) {
        let rest = self.tokens.comments.iter().skip(self.comment);
        let rest = rest.filter(|comment| {
            comment.kind == CommentKind::Documentation && self.edition != Edition::Zero
        });
        let spans = self.unused_docs.drain(..).chain(rest.map(|comment| comment.span));
        for span in spans.collect::<Vec<_>>() {
            let message = "this documentation belongs to nothing";
            let one = self.error(Code::UnusedDocumentation, span, message);
            self.push(one.help("use `//` for a comment, or move it before a declaration"));
        }
    }

    /// Whether this token is the first of its line.
    fn starts_line(&self) -> bool {
        self.source.line(self.span().start) > self.source.line(self.previous().end)
    }

    /// Continues behind the next semicolon, before the brace that ends the interface, or before a member.
    pub(crate) fn recover_to_member(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.kind() {
                Kind::End => return,
                Kind::Mark(b'{') => depth += 1,
                Kind::Mark(b'}') if depth == 0 => return,
                Kind::Mark(b'}') => depth -= 1,
                Kind::Mark(b';') if depth == 0 => return self.advance(),
                Kind::Mark(b'@') if depth == 0 && self.starts_line() => return,
                Kind::Name if MEMBERS.contains(&self.word()) && self.starts_line() => return,
                _ => {}
            }
            self.advance();
        }
    }

    /// Continues before the next thing that can stand outside an interface.
    pub(crate) fn recover_at_top(&mut self) {
        while self.kind() != Kind::End {
            self.advance();
            let starts = self.is_keyword("interface") || MEMBERS.contains(&self.word());
            if starts && self.starts_line() {
                return;
            }
        }
    }

    pub(crate) fn recover_to_brace(&mut self) {
        while !matches!(self.kind(), Kind::Mark(b'{') | Kind::String | Kind::End) {
            self.advance();
        }
    }

    /// Continues before the next of these marks, or before what cannot belong to the list. Whether one was found.
    pub(crate) fn recover_in_list(&mut self, marks: &[u8]) -> bool {
        let mut depth = 0_usize;
        loop {
            match self.kind() {
                Kind::Mark(mark) if depth == 0 && marks.contains(&mark) => return true,
                Kind::Mark(b'(' | b'[' | b'<') => depth += 1,
                Kind::Mark(b')' | b']' | b'>') => depth = depth.saturating_sub(1),
                Kind::Mark(b';' | b'{' | b'}') | Kind::End => return false,
                Kind::Name if MEMBERS.contains(&self.word()) && self.starts_line() => return false,
                _ => {}
            }
            self.advance();
        }
    }
}

/// The beginning of what may be long.
fn shortened(text: &str) -> String {
    let mut short = text.chars().take(40).collect::<String>();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}
