//! Text to tokens. Comments are kept apart, each with the token before which it stands: the formatter prints them,
//! and those with three slashes are documentation.

use crate::diagnostics::{Code, Diagnostic, Diagnostics, FileId};
use crate::source::{SOURCE_BYTES_MAX, Source, Span};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Name,
    /// A decimal, hexadecimal or octal number. [`natural`] reads its value.
    Number,
    String,
    /// One of `{ } ( ) [ ] < > ; , @ = ! -`.
    Mark(u8),
    End,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommentKind {
    Line,
    /// `///`, but not `////`, as in Rust.
    Documentation,
    Block,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Comment {
    pub(crate) kind: CommentKind,
    pub(crate) span: Span,
    /// The index of the token that follows.
    pub(crate) before: usize,
}

#[derive(Debug)]
pub(crate) struct Tokens {
    /// Ends with [`Kind::End`].
    pub(crate) tokens: Vec<Token>,
    pub(crate) comments: Vec<Comment>,
}

/// The longest name. Paths in layouts repeat names, so that their length multiplies.
pub(crate) const NAME_BYTES_MAX: usize = 128;

const MARKS: &[u8] = b"{}()[]<>;,@=!-";

/// Splits the whole file. What is no token is reported and passed over.
pub(crate) fn lex(source: &Source, file: FileId, diagnostics: &mut Diagnostics) -> Tokens {
    let text = source.text();
    if let Some(at) = source.invalid_at() {
        let line = source.position(at).line;
        let message = format!("the file is not UTF-8 from byte {at} (line {line}) on");
        let end = text[at..].chars().next().map_or(at, |c| at + c.len_utf8());
        diagnostics.push(Diagnostic::new(Code::NotUtf8, file, Span::new(at, end), message));
    }
    if source.is_cut() {
        let end = Span::new(text.len(), text.len());
        let message = format!("the file is larger than {SOURCE_BYTES_MAX} bytes");
        diagnostics.push(Diagnostic::new(Code::FileTooLarge, file, end, message));
    }
    let invalid = source.invalid_at().is_some();
    let (tokens, comments) = (Vec::new(), Vec::new());
    let mut lexer = Lexer { text, at: 0, file, diagnostics, invalid, tokens, comments };
    while lexer.step() {}
    let end = Span::new(text.len(), text.len());
    lexer.tokens.push(Token { kind: Kind::End, span: end });
    Tokens { tokens: lexer.tokens, comments: lexer.comments }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    file: FileId,
    diagnostics: &'a mut Diagnostics,
    invalid: bool,
    tokens: Vec<Token>,
    comments: Vec<Comment>,
}

impl Lexer<'_> {
    /// Reads one token or comment. `false` at the end of the text.
    fn step(&mut self) -> bool {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(|byte| b" \t\r\n\x0b\x0c".contains(byte)) {
            self.at += 1;
        }
        let Some(&first) = bytes.get(self.at) else { return false };
        let start = self.at;
        match first {
            b'/' if bytes.get(start + 1) == Some(&b'/') => self.line_comment(),
            b'/' if bytes.get(start + 1) == Some(&b'*') => self.block_comment(),
            b'"' => self.string(),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                self.token_while(Kind::Name, name);
            }
            b'0'..=b'9' => {
                // Letters are part of the number, so that `12ab` is one wrong number and not two right tokens.
                self.token_while(Kind::Number, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
            }
            _ if MARKS.contains(&first) => {
                self.at += 1;
                self.token(Kind::Mark(first), start);
            }
            _ => self.unexpected(),
        }
        true
    }

    fn token(&mut self, kind: Kind, start: usize) {
        self.tokens.push(Token { kind, span: Span::new(start, self.at) });
    }

    fn token_while(&mut self, kind: Kind, belongs: impl Fn(u8) -> bool) {
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        self.at += rest.iter().position(|byte| !belongs(*byte)).unwrap_or(rest.len());
        self.token(kind, start);
        if kind == Kind::Name && self.at - start > NAME_BYTES_MAX {
            let span = Span::new(start, self.at);
            let message = format!(
                "a name of {} bytes: at most {NAME_BYTES_MAX} are possible",
                span.end - span.start
            );
            let one = Diagnostic::new(Code::NameTooLong, self.file, span, message);
            self.diagnostics.push(one);
        }
    }

    fn comment(&mut self, kind: CommentKind, start: usize) {
        let before = self.tokens.len();
        self.comments.push(Comment { kind, span: Span::new(start, self.at), before });
    }

    fn line_comment(&mut self) {
        let start = self.at;
        let rest = &self.text[start..];
        self.at += rest.find('\n').unwrap_or(rest.len());
        let documents = rest.starts_with("///") && !rest.starts_with("////");
        let kind = if documents { CommentKind::Documentation } else { CommentKind::Line };
        self.comment(kind, start);
    }

    /// Comments may contain comments, as in Flounder.
    fn block_comment(&mut self) {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut depth = 0_usize;
        while let Some(pair) = bytes.get(self.at..self.at + 2) {
            match pair {
                b"/*" => (depth, self.at) = (depth + 1, self.at + 2),
                b"*/" => (depth, self.at) = (depth - 1, self.at + 2),
                _ => self.at += 1,
            }
            if depth == 0 {
                return self.comment(CommentKind::Block, start);
            }
        }
        self.at = bytes.len();
        let opening = Span::new(start, start + 2);
        let mut diagnostic =
            Diagnostic::new(Code::Unterminated, self.file, opening, "this comment does not end")
                .label("opened here");
        if depth > 1 {
            diagnostic =
                diagnostic.note("comments may contain comments: each `/*` needs its own `*/`");
        }
        self.diagnostics.push(diagnostic.help("write `*/` behind the comment"));
        self.comment(CommentKind::Block, start);
    }

    fn string(&mut self) {
        let start = self.at;
        let bytes = self.text.as_bytes();
        self.at += 1;
        loop {
            match bytes.get(self.at) {
                Some(b'"') => break self.at += 1,
                Some(b'\\') if bytes.get(self.at + 1).is_some_and(|b| *b != b'\n') => self.at += 2,
                None | Some(b'\n') => {
                    let span = Span::new(start, self.at);
                    let message = "this string does not end in its line";
                    self.diagnostics.push(
                        Diagnostic::new(Code::Unterminated, self.file, span, message)
                            .help("write `\"` behind the string"),
                    );
                    break;
                }
                Some(_) => self.at += 1,
            }
        }
        // An escape may have skipped the first byte of a longer character.
        while !self.text.is_char_boundary(self.at) {
            self.at += 1;
        }
        self.token(Kind::String, start);
    }

    /// A run of such characters is one error.
    fn unexpected(&mut self) {
        let start = self.at;
        let mut shown = String::new();
        let mut is_hidden = false;
        for c in self.text[start..].chars() {
            if c.is_ascii_alphanumeric() || c.is_ascii_whitespace() || c == '"' || c == '/' {
                break;
            }
            if u8::try_from(c).is_ok_and(|byte| MARKS.contains(&byte)) {
                break;
            }
            self.at += c.len_utf8();
            if shown.len() < 16 {
                // No reader sees what has no shape.
                if c.is_whitespace() || c.escape_debug().len() > 2 {
                    is_hidden = true;
                    shown.push_str(&format!("U+{:04X}", u32::from(c)));
                } else {
                    shown.push(c);
                }
            }
        }
        if self.at == start {
            // A single slash.
            self.at += 1;
            shown.push('/');
        }
        let span = Span::new(start, self.at);
        // Characters that stand for bytes that are not UTF-8 have been reported.
        if self.invalid && self.text[span.range()].contains('\u{fffd}') {
            return;
        }
        let message = format!("`{shown}` is not part of the language");
        let mut diagnostic = Diagnostic::new(Code::UnexpectedCharacter, self.file, span, message);
        if is_hidden {
            diagnostic =
                diagnostic.help("such a character cannot be seen: write a plain space, or nothing");
        } else if shown == "/" {
            diagnostic = diagnostic.help("comments begin with `//` or `/*`");
        } else if shown.starts_with('\'') {
            diagnostic = diagnostic.note("names consist of letters, digits and `_`");
        } else if shown.starts_with('.') || shown.starts_with(':') {
            diagnostic = diagnostic.note("types have plain names, without `.` or `::`");
        }
        self.diagnostics.push(diagnostic);
    }
}

/// The value of a number: decimal, or with `0x` or `0o`. `None` if it is none or does not fit 64 bits.
pub(crate) fn natural(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (digits, radix) = match lower.as_bytes() {
        [b'0', b'x', ..] => (&lower[2..], 16),
        [b'0', b'o', ..] => (&lower[2..], 8),
        _ => (lower.as_str(), 10),
    };
    u64::from_str_radix(digits, radix).ok()
}

/// The text of a string without its quotes and escapes, or the first escape that does not exist.
pub(crate) fn unescape(quoted: &str) -> Result<String, char> {
    let inner = quoted.strip_prefix('"').unwrap_or(quoted);
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    let mut text = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        text.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some(same @ ('"' | '\\')) => same,
                Some(unknown) => return Err(unknown),
                None => break,
            },
            _ => c,
        });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn kinds(text: &str) -> (Vec<Kind>, usize, Diagnostics) {
        let source = Arc::new(Source::new("x.if", text));
        let mut diagnostics = Diagnostics::default();
        let file = diagnostics.add_source(Arc::clone(&source));
        let tokens = lex(&source, file, &mut diagnostics);
        let kinds = tokens.tokens.iter().map(|token| token.kind).collect();
        (kinds, tokens.comments.len(), diagnostics)
    }

    #[test]
    fn comments_may_contain_comments() {
        let (tokens, comments, diagnostics) = kinds("/* a /* b */ c */ x // y");
        assert_eq!((tokens.as_slice(), comments), (&[Kind::Name, Kind::End][..], 2));
        assert!(diagnostics.is_empty());
        let (tokens, _, diagnostics) = kinds("/* a /* b */ x");
        assert_eq!((tokens.len(), diagnostics.error_count()), (1, 1));
    }

    #[test]
    fn numbers_have_three_forms() {
        assert_eq!(
            ["0x1F", "0o17", "010", "12"].map(natural),
            [Some(31), Some(15), Some(10), Some(12)]
        );
        assert_eq!(["12ab", "0x", "18446744073709551616", "1_0"].map(natural), [None; 4]);
    }

    #[test]
    fn strings_end_in_their_line() {
        assert_eq!(kinds("\"a\\\"b\" c").0, [Kind::String, Kind::Name, Kind::End]);
        assert_eq!(kinds("\"a\nb").2.error_count(), 1);
        assert_eq!(kinds("\"\\é").2.error_count(), 1);
        assert_eq!(unescape(r#""a\"\\\n""#).as_deref(), Ok("a\"\\\n"));
        assert_eq!(unescape(r#""\q""#), Err('q'));
    }

    #[test]
    fn unknown_characters_are_one_error_a_run() {
        assert_eq!(kinds("a ### $$ b").2.error_count(), 2);
        assert_eq!(kinds("a / b").2.error_count(), 1);
    }

    #[test]
    fn what_cannot_be_seen_is_named_by_its_number() {
        assert!(kinds("\u{feff}a b").2.is_empty(), "a byte order mark at the beginning is skipped");
        let cases = [("\u{a0}", "U+00A0"), ("\u{feff}", "U+FEFF"), ("\u{200b}", "U+200B")];
        for (hidden, number) in cases.into_iter().chain([("\u{1}", "U+0001")]) {
            let said = kinds(&format!("a{hidden}b")).2.render(false);
            assert!(said.contains(&format!("`{number}` is not part of the language")), "{said}");
            assert!(said.contains("cannot be seen"), "{said}");
        }
    }
}
