//! Code that stores and reads one message: a walk over its types in the order of the file, in which each number gets
//! the offset that the layout has for it.

mod get;
mod lend;
mod put;

use proc_macro2::{Literal, TokenStream, TokenTree};
use quote::quote;

use super::Generator;
use crate::form::{Builtin, Definition, Type};

/// The walk over the arguments of one message, or over one element of a vector, or over one arm of a union.
pub(super) struct Walk<'a> {
    generator: &'a Generator<'a>,
    /// The message's name, for errors. None in the functions of a union, which get the name of the place.
    message: Option<&'a str>,
    offsets: Vec<u32>,
    next: usize,
    /// Where the whole begins, if not at 0.
    base: Option<TokenStream>,
    /// Which element of the arrays around it.
    index: Option<TokenStream>,
    depth: usize,
    /// The bytes, as an argument.
    bytes: TokenStream,
    /// Strings and vectors so far: the offsets of their lengths, and their names.
    dynamics: Vec<(TokenStream, TokenStream)>,
    /// Within an array whose capabilities travel field by field: the part that the next one comes from.
    next_part: Option<usize>,
}

impl<'a> Walk<'a> {
    /// A walk over these types, one after the other, and `first`, the bytes of numbers before them.
    pub(super) fn new<'t>(
        generator: &'a Generator<'a>,
        message: &'a str,
        first: &[u32],
        types: impl IntoIterator<Item = &'t Type>,
        bytes: TokenStream,
    ) -> Self {
        Self::over(generator, Some(message), first, types, bytes)
    }

    /// A walk over an arm of a union, which begins at the variable `area`.
    pub(super) fn arm(generator: &'a Generator<'a>, of: &Type) -> Self {
        Self { base: Some(quote!(area)), ..Self::over(generator, None, &[], [of], quote!(bytes)) }
    }

    fn over<'t>(
        generator: &'a Generator<'a>,
        message: Option<&'a str>,
        first: &[u32],
        types: impl IntoIterator<Item = &'t Type>,
        bytes: TokenStream,
    ) -> Self {
        let mut leaves = first.iter().map(|bytes| (*bytes, 1)).collect::<Vec<_>>();
        for of in types {
            leaves_of(generator, of, 1, &mut leaves);
        }
        let mut order = (0..leaves.len()).collect::<Vec<_>>();
        order.sort_by_key(|index| std::cmp::Reverse(leaves[*index].0));
        let (mut offsets, mut offset) = (vec![0; leaves.len()], 0);
        for index in order {
            offsets[index] = offset;
            offset += leaves[index].0 * leaves[index].1;
        }
        let (next, depth) = (0, 0);
        let (base, index, dynamics) = (None, None, Vec::new());
        let next_part = None;
        Self { generator, message, offsets, next, base, index, depth, bytes, dynamics, next_part }
    }

    /// The offset of the next number, for the element that the walk is in.
    pub(super) fn at(&mut self, bytes: u32) -> TokenStream {
        let offset = Literal::u32_unsuffixed(self.offsets[self.next]);
        self.next += 1;
        let scaled = self.index.as_ref().map(|index| {
            if bytes == 1 {
                return quote!(+ #index);
            }
            let bytes = Literal::u32_unsuffixed(bytes);
            quote!(+ (#index) * #bytes)
        });
        let base = self.base.as_ref().map(|base| quote!(#base +));
        quote!(#base #offset #scaled)
    }

    /// The name of a place, for errors.
    fn place(&self, path: &str) -> TokenStream {
        match self.message {
            Some(message) => {
                let name = format!("{message}: {path}");
                quote!(#name)
            }
            None => quote!(place),
        }
    }

    /// A walk over an element of a vector.
    fn element(&self, of: &Type) -> Self {
        let walk = Self::over(self.generator, self.message, &[], [of], quote!(bytes));
        Self { depth: self.depth, ..walk }
    }

    /// Within an array: the index is this one of `count` in each element around it.
    fn within<R>(
        &mut self,
        count: u32,
        index: &TokenStream,
        work: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let count = Literal::u32_unsuffixed(count);
        let inner = match &self.index {
            None => quote!(#index),
            Some(outer) => quote!((#outer) * #count + #index),
        };
        let outer = self.index.replace(inner);
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        self.index = outer;
        result
    }
}

/// A place without the parentheses around it, which it needs only before a field or a method.
fn bare(place: &TokenStream) -> TokenStream {
    let mut tokens = place.clone().into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Group(group)), None) => group.stream(),
        _ => place.clone(),
    }
}

/// A place before a field or a method, which look behind a reference themselves.
fn reached(place: &TokenStream) -> TokenStream {
    let mut tokens = bare(place).into_iter();
    match tokens.next() {
        Some(TokenTree::Punct(star)) if star.as_char() == '*' => tokens.collect(),
        _ => place.clone(),
    }
}

/// Whether code names this.
pub(super) fn names(code: &TokenStream, name: &str) -> bool {
    code.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => names(&group.stream(), name),
        TokenTree::Ident(ident) => ident == name,
        _ => false,
    })
}

/// The bytes and the number of each number of a value, as the layout takes it apart.
fn leaves_of(generator: &Generator<'_>, of: &Type, count: u32, leaves: &mut Vec<(u32, u32)>) {
    match of {
        Type::Builtin { builtin } => leaves.push((builtin.bytes(), count)),
        Type::String { .. } | Type::Vector { .. } => leaves.push((4, 1)),
        Type::Optional { of } => {
            leaves.push((1, count));
            leaves_of(generator, of, count, leaves);
        }
        Type::Named { name } => {
            let definition = generator.interface.type_named(name).map(|decl| &decl.definition);
            match definition {
                Some(Definition::Alias { target }) => leaves_of(generator, target, count, leaves),
                Some(Definition::Struct { fields }) => {
                    fields.iter().for_each(|field| leaves_of(generator, &field.of, count, leaves));
                }
                Some(Definition::Union { area_bytes, .. }) => {
                    leaves.extend([(4, count), (1, area_bytes * count)]);
                }
                Some(Definition::Enum { .. }) => leaves.push((4, count)),
                Some(Definition::Array { element, count: own }) => {
                    leaves_of(generator, element, count * own, leaves);
                }
                None => {}
            }
        }
        Type::Capability { capability } if capability.is_nullable() => leaves.push((1, count)),
        Type::Capability { .. } | Type::Channel { .. } | Type::Client { .. } => {}
    }
}

/// Bytes of a type of fixed size.
fn bytes_of(generator: &Generator<'_>, of: &Type) -> u32 {
    let mut leaves = Vec::new();
    leaves_of(generator, of, 1, &mut leaves);
    leaves.iter().map(|(bytes, count)| bytes * count).sum()
}

/// Whether elements of this type are plain bytes, which stay in the message.
pub(super) fn is_bytes(generator: &Generator<'_>, of: &Type) -> bool {
    use crate::form::Resolved::Plain;
    let is_byte = |builtin: &Builtin| matches!(builtin, Builtin::Uint8 | Builtin::Char);
    matches!(generator.interface.resolve(of), Plain(Type::Builtin { builtin }) if is_byte(builtin))
}

/// Whether reading a value can fail although all its bytes are there.
fn is_checked(generator: &Generator<'_>, of: &Type) -> bool {
    match of {
        Type::Builtin { builtin } => *builtin == Builtin::Bool,
        Type::Named { name } => {
            match generator.interface.type_named(name).map(|decl| &decl.definition) {
                Some(Definition::Alias { target }) => is_checked(generator, target),
                Some(Definition::Struct { fields }) => {
                    fields.iter().any(|field| is_checked(generator, &field.of))
                }
                Some(Definition::Array { element, .. }) => is_checked(generator, element),
                _ => true,
            }
        }
        _ => true,
    }
}

/// The type in Rust of a built-in type.
pub(super) const fn number(builtin: Builtin) -> &'static str {
    match builtin {
        Builtin::Uint8 | Builtin::Char => "u8",
        Builtin::Uint16 => "u16",
        Builtin::Uint32 => "u32",
        Builtin::Int8 => "i8",
        Builtin::Int16 => "i16",
        Builtin::Int32 => "i32",
        Builtin::Int64 | Builtin::Intptr => "i64",
        Builtin::Bool => "bool",
        _ => "u64",
    }
}
