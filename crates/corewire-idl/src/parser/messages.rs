//! Messages, rpcs, events, and their arguments.

use crate::diagnostics::Code;
use crate::lexer::Kind;
use crate::parser::{Cursor, MEMBERS, Parsed, Reported};
use crate::syntax::{Argument, Brackets, Direction, Keyword, Message, Meta, MetaValue};

impl Cursor<'_> {
    pub(crate) fn message(&mut self, docs: Vec<String>) -> Parsed<Message> {
        let mut metas = Vec::new();
        while self.kind() == Kind::Mark(b'@') {
            metas.push(self.meta()?);
        }
        // Documentation may also stand between annotations and message.
        let mut docs = docs;
        docs.extend(self.docs());
        let keyword = (self.keyword()?, self.previous());
        if keyword.0 == Keyword::Event {
            self.needs_edition("`event`", keyword.1);
        }
        let name = self.name("the name of the message")?;
        let mut ordinal = None;
        if self.kind() == Kind::Mark(b'@') {
            self.needs_edition("an ordinal", self.span());
            self.advance();
            ordinal = Some(self.number("an ordinal")?);
        }
        let arguments = self.arguments()?;
        // A word of the language only here.
        let mut stream = None;
        if self.word() == "stream" && self.peek(1).kind == Kind::Mark(b'(') {
            let begin = self.span();
            self.needs_edition("`stream`", begin);
            self.advance();
            let parts = self.arguments()?;
            stream = Some((parts, begin.to(self.previous())));
        }
        let mut errors = None;
        if self.kind() == Kind::Mark(b'!') {
            self.needs_edition("`!` with errors", self.span());
            self.advance();
            errors = Some(self.name("the name of errors")?);
        }
        self.semicolon("the message");
        Ok(Message { docs, metas, keyword, name, ordinal, arguments, stream, errors })
    }

    fn keyword(&mut self) -> Parsed<Keyword> {
        let keyword = match self.word() {
            "call" => Keyword::Call,
            "response" => Keyword::Response,
            "event" => Keyword::Event,
            _ if self.is_keyword("message") => Keyword::Message,
            _ if self.is_keyword("rpc") => Keyword::Rpc,
            _ => {
                self.expected("`message`, `rpc` or `typedef`", MEMBERS);
                return Err(Reported);
            }
        };
        self.advance();
        Ok(keyword)
    }

    fn meta(&mut self) -> Parsed<Meta> {
        self.advance();
        if self.kind() == Kind::Number {
            let span = self.span();
            let message = "an ordinal stands behind the name of the message";
            let one = self.error(Code::BadOrdinal, span, message);
            self.push(one.help("write `message name @1(...)`"));
            return Err(Reported);
        }
        let name = self.name("the name of an annotation")?;
        if !self.eat(b'(') {
            self.expected("`(`", &[]);
            return Err(Reported);
        }
        let mut parameters = Vec::new();
        if self.eat(b')') {
            return Ok(Meta { name, parameters });
        }
        loop {
            let parameter = self.name("the name of a parameter")?;
            if !self.eat(b'=') {
                self.expected("`=`", &[]);
                return Err(Reported);
            }
            let value = match self.kind() {
                Kind::Name => MetaValue::Name(self.name("a value")?),
                _ => MetaValue::Number(self.number("a number or the name of an argument")?),
            };
            parameters.push((parameter, value));
            if self.eat(b')') {
                return Ok(Meta { name, parameters });
            }
            if !self.eat(b',') {
                self.expected("`,` or `)`", &[]);
                return Err(Reported);
            }
        }
    }

    pub(super) fn arguments(&mut self) -> Parsed<Vec<Argument>> {
        if !self.eat(b'(') {
            self.expected("`(`", &[]);
            return Err(Reported);
        }
        let mut arguments = Vec::new();
        if self.kind() == Kind::Mark(b')') {
            self.advance();
            return Ok(arguments);
        }
        loop {
            match self.argument() {
                Ok(argument) => arguments.push(argument),
                Err(Reported) if self.recover_in_list(b",)") => {}
                Err(Reported) => return Err(Reported),
            }
            if self.eat(b')') {
                return Ok(arguments);
            }
            if self.eat(b',') {
                if self.kind() == Kind::Mark(b')') {
                    self.needs_edition("a comma at the end of a list", self.previous());
                    self.advance();
                    return Ok(arguments);
                }
                continue;
            }
            self.expected("`,` or `)`", &[]);
            if !self.recover_in_list(b",)") {
                return Err(Reported);
            }
            if self.eat(b')') {
                return Ok(arguments);
            }
            self.advance();
        }
    }

    fn argument(&mut self) -> Parsed<Argument> {
        let docs = self.docs();
        let mut direction = None;
        for (word, meaning) in [("in", Direction::In), ("out", Direction::Out)] {
            if direction.is_none() && self.is_keyword(word) {
                direction = Some((meaning, self.span()));
                self.advance();
            }
        }
        let of = self.type_ref()?;
        let name = self.name("the name of an argument")?;
        let mut brackets = Brackets::None;
        if self.eat(b'[') {
            brackets = self.brackets()?;
            if !self.eat(b']') {
                self.expected("`]`", &[]);
                return Err(Reported);
            }
        }
        Ok(Argument { docs, direction, of, name, brackets })
    }

    fn brackets(&mut self) -> Parsed<Brackets> {
        if self.kind() == Kind::Number {
            return self.number("a bound").map(Brackets::Number);
        }
        let name = self.name("a bound, or the name of the array's length")?;
        if self.eat(b',') {
            return Ok(Brackets::Array(name, self.bound("the largest number of elements")?));
        }
        Ok(Brackets::Name(name))
    }
}
