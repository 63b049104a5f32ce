//! Declarations of types, constants and errors.

use crate::lexer::Kind;
use crate::parser::{Cursor, Parsed, Reported};
use crate::source::Span;
use crate::syntax::{Body, Declaration, Field, Literal, LiteralKind, Name, TypeRef, Value};

impl Cursor<'_> {
    pub(crate) fn starts_declaration(&self) -> bool {
        matches!(self.word(), "alias" | "typedef" | "const" | "errors")
            && self.peek(1).kind == Kind::Name
    }

    /// The caller has seen that one starts here. After an error the next one is where parsing continues.
    pub(crate) fn declaration(
        &mut self,
        docs: Vec<String>,
        after_message: bool,
    ) -> Parsed<Declaration> {
        let keyword = self.span();
        let parsed = match self.word() {
            "alias" => self.alias(),
            "typedef" => self.typedef(),
            "const" => self.constant(keyword),
            _ => self.errors(keyword),
        };
        match parsed {
            Ok((name, body)) => {
                self.semicolon("the declaration");
                Ok(Declaration { docs, name, body, keyword, after_message })
            }
            Err(Reported) => {
                self.recover_to_member();
                Err(Reported)
            }
        }
    }

    fn alias(&mut self) -> Parsed<(Name, Body)> {
        self.advance();
        let name = self.name("the name of the alias")?;
        let of = self.type_ref()?;
        Ok((name, Body::Alias(of)))
    }

    /// `struct`, `union`, `enum` and `flexible` are words of the language only here, and only before their brace.
    fn typedef(&mut self) -> Parsed<(Name, Body)> {
        self.advance();
        let word = self.word();
        let brace = |token: crate::lexer::Token| token.kind == Kind::Mark(b'{');
        if word == "flexible" && self.word_at(1) == "enum" && brace(self.peek(2)) {
            self.needs_edition("`flexible`", self.span());
            self.advance();
            return self.enumeration(true);
        }
        if brace(self.peek(1)) {
            match word {
                "enum" => return self.enumeration(false),
                "struct" => return self.fields(Body::Struct),
                "union" => {
                    self.needs_edition("`union`", self.span());
                    return self.fields(Body::Union);
                }
                _ => {
                    self.expected("`struct`, `enum` or a type", &["struct", "enum", "union"]);
                    return Err(Reported);
                }
            }
        }
        let of = self.type_ref()?;
        let name = self.name("the name of the type")?;
        if !self.eat(b'[') {
            return Ok((name, Body::Typedef(of)));
        }
        let count = self.number("the number of elements")?;
        if !self.eat(b']') {
            self.expected("`]`", &[]);
            return Err(Reported);
        }
        Ok((name, Body::Array(of, count)))
    }

    fn enumeration(&mut self, flexible: bool) -> Parsed<(Name, Body)> {
        self.advance();
        let values = self.values()?;
        let name = self.name("the name of the enum")?;
        Ok((name, Body::Enum { flexible, values }))
    }

    fn errors(&mut self, keyword: Span) -> Parsed<(Name, Body)> {
        self.needs_edition("`errors`", keyword);
        self.advance();
        let name = self.name("the name of the errors")?;
        // A word of the language only here.
        let detailed = self.word() == "detailed" && self.peek(1).kind == Kind::Mark(b'{');
        if detailed {
            self.advance();
        }
        let values = self.values()?;
        Ok((name, Body::Errors { detailed, values }))
    }

    /// `{ A, B = 4 }`. Edition 1 allows a comma at the end.
    fn values(&mut self) -> Parsed<Vec<Value>> {
        if !self.eat(b'{') {
            self.expected("`{`", &[]);
            return Err(Reported);
        }
        let mut values = Vec::new();
        loop {
            let docs = self.docs();
            if self.kind() == Kind::Mark(b'}') && !values.is_empty() {
                self.needs_edition("a comma at the end of a list", self.previous());
                self.advance();
                return Ok(values);
            }
            match self.value(docs) {
                Ok(value) => values.push(value),
                Err(Reported) if self.recover_in_list(b",}") => {}
                Err(Reported) if self.kind() == Kind::Mark(b'}') => {}
                Err(Reported) => return Err(Reported),
            }
            if self.eat(b'}') {
                return Ok(values);
            }
            if !self.eat(b',') {
                self.expected("`,` or `}`", &[]);
                if !self.recover_in_list(b",}") && self.kind() != Kind::Mark(b'}') {
                    return Err(Reported);
                }
                if self.eat(b'}') {
                    return Ok(values);
                }
                self.eat(b',');
            }
        }
    }

    fn value(&mut self, docs: Vec<String>) -> Parsed<Value> {
        let name = self.name("the name of a value")?;
        let mut details = None;
        if self.kind() == Kind::Mark(b'(') {
            let begin = self.span();
            self.needs_edition("an error with details", begin);
            let fields = self.arguments()?;
            details = Some((fields, begin.to(self.previous())));
        }
        let mut literal = None;
        if self.kind() == Kind::Mark(b'=') {
            self.needs_edition("a number for a value", self.span());
            self.advance();
            literal = Some(self.integer()?);
        }
        Ok(Value { docs, name, details, literal })
    }

    fn fields(&mut self, body: fn(Vec<Field>) -> Body) -> Parsed<(Name, Body)> {
        self.advance();
        self.advance();
        let mut fields = Vec::new();
        loop {
            let docs = self.docs();
            if self.kind() == Kind::Mark(b'}') && !fields.is_empty() {
                self.advance();
                break;
            }
            match self.field(docs) {
                Ok(field) => fields.push(field),
                Err(Reported) => {
                    if self.recover_in_list(b";") {
                        self.advance();
                    } else if self.kind() != Kind::Mark(b'}') {
                        return Err(Reported);
                    } else {
                        self.advance();
                        break;
                    }
                }
            }
        }
        let name = self.name("the name of the type")?;
        Ok((name, body(fields)))
    }

    fn field(&mut self, docs: Vec<String>) -> Parsed<Field> {
        let of = self.type_ref()?;
        let name = self.name("the name of a field")?;
        let mut bound = None;
        if self.kind() == Kind::Mark(b'[') {
            self.needs_edition("a field with a bound", self.span());
            self.advance();
            bound = Some(self.bound("the largest number of bytes")?);
            if !self.eat(b']') {
                self.expected("`]`", &[]);
                return Err(Reported);
            }
        }
        if !self.eat(b';') {
            self.missing(b';', "the field");
        }
        Ok(Field { docs, of, name, bound })
    }

    fn constant(&mut self, keyword: Span) -> Parsed<(Name, Body)> {
        self.needs_edition("`const`", keyword);
        self.advance();
        let of: TypeRef = self.type_ref()?;
        let name = self.name("the name of the constant")?;
        if !self.eat(b'=') {
            self.expected("`=`", &[]);
            return Err(Reported);
        }
        let literal = match (self.kind(), self.word()) {
            (Kind::String, _) => {
                let (text, span) = self.string()?;
                Literal { kind: LiteralKind::String(text), span }
            }
            (_, word @ ("true" | "false")) => {
                let span = self.span();
                self.advance();
                Literal { kind: LiteralKind::Bool(word == "true"), span }
            }
            _ => {
                let (value, span) = self.integer()?;
                Literal { kind: LiteralKind::Integer(value), span }
            }
        };
        Ok((name, Body::Constant(of, literal)))
    }
}
