//! What a file says, as it is written: nothing is resolved. Every part keeps its place.

use crate::source::Span;

/// The edition of a file: which language it is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Edition {
    /// Flounder's language. Files that state no edition are of this one.
    #[default]
    Zero,
    /// `edition 1;`: ordinals, imports, optional values, vectors, unions, errors, events, documentation.
    One,
}

impl Edition {
    /// The edition's number.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Zero => 0,
            Self::One => 1,
        }
    }
}

/// A file. [`crate::parse`] returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// Its edition.
    pub edition: Edition,
    /// Its imports (edition 1).
    pub imports: Vec<Import>,
    /// Declarations outside an interface: a file that others import has only these.
    pub declarations: Vec<Declaration>,
    /// The interface.
    pub interface: Option<Interface>,
}

/// `import "types.if";`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The path, relative to the importing file.
    pub path: String,
    /// The string.
    pub span: Span,
}

/// `interface calc "A calculator" { ... };`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Lines of documentation.
    pub docs: Vec<String>,
    /// Its name.
    pub name: Name,
    /// The string behind the name.
    pub description: Option<String>,
    /// Types and constants.
    pub declarations: Vec<Declaration>,
    /// Messages, in the order of the file.
    pub messages: Vec<Message>,
}

/// A name and its place. A name that was missing is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// A declared type, constant or set of errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Lines of documentation.
    pub docs: Vec<String>,
    /// The name that it declares.
    pub name: Name,
    /// What the name stands for.
    pub body: Body,
    /// The first word of the declaration.
    pub keyword: Span,
    /// Whether a message stands before it, which edition 0 does not allow.
    pub after_message: bool,
}

/// What a declaration declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// `alias name type;`
    Alias(TypeRef),
    /// `typedef type name;`
    Typedef(TypeRef),
    /// `typedef type name[4];`
    Array(TypeRef, Number),
    /// `typedef struct { ... } name;`
    Struct(Vec<Field>),
    /// `typedef union { ... } name;`
    Union(Vec<Field>),
    /// `typedef enum { ... } name;`
    Enum {
        /// Whether unknown values are possible.
        flexible: bool,
        /// The values.
        values: Vec<Value>,
    },
    /// `errors name { ... };`
    Errors {
        /// Whether `detailed` stands behind the name: errors can have details.
        detailed: bool,
        /// The errors.
        values: Vec<Value>,
    },
    /// `const type name = value;`
    Constant(TypeRef, Literal),
}

/// A type where it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeRef {
    /// The type.
    pub kind: TypeKind,
    /// The whole of it.
    pub span: Span,
}

/// The forms of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeKind {
    /// A type that is built in or declared.
    Name(String),
    /// `String[64]` inside another type.
    String(Bound),
    /// `optional<T>`
    Optional(Box<TypeRef>),
    /// `vector<T, 16>`
    Vector(Box<TypeRef>, Bound),
    /// `channel<T>`
    Channel(Box<TypeRef>),
    /// `client<calc>`
    Client(Name),
    /// What could not be read. It has been reported.
    Wrong,
}

/// A number that is written out, or the name of a constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A number.
    Number(Number),
    /// The name of a constant (edition 1).
    Constant(Name),
}

/// A natural number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// Its value.
    pub value: u64,
    /// Its place.
    pub span: Span,
}

/// A field of a struct, or an arm of a union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Lines of documentation.
    pub docs: Vec<String>,
    /// The type.
    pub of: TypeRef,
    /// The name.
    pub name: Name,
    /// The bound of a string.
    pub bound: Option<Bound>,
}

/// A value of an enumeration, or an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Lines of documentation.
    pub docs: Vec<String>,
    /// The name.
    pub name: Name,
    /// The details of an error: `(String[64] path)`.
    pub details: Option<(Vec<Argument>, Span)>,
    /// The value that is written out.
    pub literal: Option<(i128, Span)>,
}

/// The value of a constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    /// The value.
    pub kind: LiteralKind,
    /// Its place.
    pub span: Span,
}

/// The forms of constants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiteralKind {
    /// A number.
    Integer(i128),
    /// `true` or `false`.
    Bool(bool),
    /// A string.
    String(String),
    /// What could not be read. It has been reported.
    Wrong,
}

/// The word with which a message begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyword {
    /// `message`
    Message,
    /// `call`, from the service's clients.
    Call,
    /// `response`, from the service.
    Response,
    /// `rpc`
    Rpc,
    /// `event` (edition 1).
    Event,
}

impl Keyword {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Call => "call",
            Self::Response => "response",
            Self::Rpc => "rpc",
            Self::Event => "event",
        }
    }
}

/// A message or rpc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Lines of documentation.
    pub docs: Vec<String>,
    /// Annotations before it.
    pub metas: Vec<Meta>,
    /// The word that it begins with.
    pub keyword: (Keyword, Span),
    /// The name.
    pub name: Name,
    /// `@4` behind the name (edition 1).
    pub ordinal: Option<Number>,
    /// The arguments, in order.
    pub arguments: Vec<Argument>,
    /// `stream(...)` behind the arguments of an rpc (edition 1): the arguments of each part of the answer.
    pub stream: Option<(Vec<Argument>, Span)>,
    /// `! errors` behind the arguments (edition 1).
    pub errors: Option<Name>,
}

/// `@ata(command = 0xC8, dma_arg = buffer)`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// What the annotation is for.
    pub name: Name,
    /// Its parameters.
    pub parameters: Vec<(Name, MetaValue)>,
}

/// The value of an annotation's parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaValue {
    /// A number.
    Number(Number),
    /// The name of an argument.
    Name(Name),
}

/// The direction of an rpc's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the service.
    In,
    /// Back to the caller.
    Out,
}

/// An argument of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Lines of documentation.
    pub docs: Vec<String>,
    /// `in` or `out`.
    pub direction: Option<(Direction, Span)>,
    /// The type.
    pub of: TypeRef,
    /// The name.
    pub name: Name,
    /// What stands in brackets behind the name.
    pub brackets: Brackets,
}

/// What stands behind an argument's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Brackets {
    /// Nothing.
    None,
    /// `[64]`: the bound of a string.
    Number(Number),
    /// `[x]`: the length of an array without a bound, or a constant that bounds a string.
    Name(Name),
    /// `[length, 64]`: the name of an array's length, and its bound.
    Array(Name, Bound),
}

impl Message {
    /// The whole of the head: from the first word to the name.
    #[must_use]
    pub fn head(&self) -> Span {
        self.keyword.1.to(self.name.span)
    }
}
