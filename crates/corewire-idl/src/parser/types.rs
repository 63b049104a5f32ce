//! Types and bounds.

use crate::diagnostics::Code;
use crate::lexer::Kind;
use crate::parser::{Cursor, Parsed};
use crate::source::Span;
use crate::syntax::{Bound, TypeKind, TypeRef};

/// How deep types may stand inside types: `optional<vector<T, 4>>` has a depth of 2.
pub(crate) const NESTING_MAX: usize = 32;

impl Cursor<'_> {
    pub(crate) fn type_ref(&mut self) -> Parsed<TypeRef> {
        self.type_within(0)
    }

    fn type_within(&mut self, depth: usize) -> Parsed<TypeRef> {
        let name = self.name("a type")?;
        if depth > NESTING_MAX {
            let message = format!("types are nested more than {NESTING_MAX} deep");
            let one = self.error(Code::NestedTooDeep, name.span, message);
            self.push(one);
            self.pass_brackets();
            return Ok(TypeRef { kind: TypeKind::Wrong, span: name.span });
        }
        let opened = self.kind();
        let kind = match (name.text.as_str(), opened) {
            ("optional", Kind::Mark(b'<')) => {
                self.advance();
                let of = self.type_within(depth + 1)?;
                self.close(TypeKind::Optional(Box::new(of)))?
            }
            ("vector", Kind::Mark(b'<')) => {
                self.advance();
                let of = self.type_within(depth + 1)?;
                if !self.eat(b',') {
                    self.expected("`,` and the largest number of elements", &[]);
                    return Err(crate::parser::Reported);
                }
                let bound = self.bound("the largest number of elements")?;
                self.close(TypeKind::Vector(Box::new(of), bound))?
            }
            ("channel", Kind::Mark(b'<')) => {
                self.advance();
                let of = self.type_within(depth + 1)?;
                self.close(TypeKind::Channel(Box::new(of)))?
            }
            ("client", Kind::Mark(b'<')) => {
                self.advance();
                let of = self.name("the name of an interface")?;
                self.close(TypeKind::Client(of))?
            }
            ("String", Kind::Mark(b'[')) => {
                self.advance();
                let bound = self.bound("the largest number of bytes")?;
                if !self.eat(b']') {
                    self.expected("`]`", &[]);
                    return Err(crate::parser::Reported);
                }
                TypeKind::String(bound)
            }
            (_, Kind::Mark(b'<')) => {
                let words = ["optional", "vector", "channel", "client"];
                let message = format!("`{}` takes no type in `<>`", name.text);
                let meant = crate::diagnostics::similar(&name.text, words);
                let one = self
                    .error(Code::UndeclaredType, name.span, message)
                    .note("`optional<T>`, `vector<T, N>`, `channel<T>` and `client<I>` do")
                    .help_if(meant.map(|word| format!("did you mean `{word}`?")));
                self.push(one);
                self.pass_brackets();
                TypeKind::Wrong
            }
            _ => TypeKind::Name(name.text.clone()),
        };
        let span = name.span.to(self.previous());
        if matches!(opened, Kind::Mark(b'<' | b'['))
            && !matches!(kind, TypeKind::Wrong)
            && depth == 0
        {
            self.needs_edition("a type like this", span);
        }
        Ok(TypeRef { kind, span })
    }

    fn close(&mut self, kind: TypeKind) -> Parsed<TypeKind> {
        if !self.eat(b'>') {
            self.expected("`>`", &[]);
            return Err(crate::parser::Reported);
        }
        Ok(kind)
    }

    /// Passes `<...>` with everything inside.
    fn pass_brackets(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.kind() {
                Kind::Mark(b'<') => depth += 1,
                Kind::Mark(b'>') => depth = depth.saturating_sub(1),
                Kind::Mark(b';' | b'{' | b'}' | b')') | Kind::End => return,
                _ => {}
            }
            if depth == 0 && self.kind() != Kind::Mark(b'>') {
                return;
            }
            self.advance();
            if depth == 0 {
                return;
            }
        }
    }

    /// A number, or in edition 1 the name of a constant.
    pub(crate) fn bound(&mut self, what: &str) -> Parsed<Bound> {
        if self.kind() == Kind::Name {
            let name = self.name(what)?;
            self.needs_edition("a constant as a bound", name.span);
            return Ok(Bound::Constant(name));
        }
        self.number(what).map(Bound::Number)
    }

    /// A number with an optional minus.
    pub(crate) fn integer(&mut self) -> Parsed<(i128, Span)> {
        let start = self.span();
        let negative = self.eat(b'-');
        let number = self.number("a number")?;
        let value = i128::from(number.value);
        Ok((if negative { -value } else { value }, start.to(number.span)))
    }
}
