//! Code that runs the operations of a message: stores and reads each value, and takes capabilities beside the bytes.

mod get;
mod lend;
mod put;

use proc_macro2::{Ident, Literal, TokenStream, TokenTree};
use quote::{format_ident, quote};

use super::Generator;
use crate::form::{Builtin, Layout, LeafPlace, Operation, Operations};

/// The operations of one message, of an element of a vector, or of an arm of a union.
pub(super) struct Walk<'w, 'a> {
    generator: &'w Generator<'a>,
    /// The message's name, for errors. None in the functions of a union, which get the name of the place.
    message: Option<&'w str>,
    /// The path of the vector whose element it is.
    vector: String,
    layout: &'w Layout,
    /// Where the whole begins, if not at 0.
    base: Option<TokenStream>,
    /// Which element of the arrays around it.
    index: Option<TokenStream>,
    depth: usize,
    /// The bytes, as an argument.
    bytes: TokenStream,
    /// Within an array whose capabilities travel field by field: the part that the next one comes from.
    next_part: Option<usize>,
}

impl<'w, 'a> Walk<'w, 'a> {
    pub(super) fn new(
        generator: &'w Generator<'a>,
        message: &'w str,
        operations: &'w Operations<'_>,
        bytes: TokenStream,
    ) -> Self {
        let (message, layout, vector) = (Some(message), &operations.layout, String::new());
        let (base, index, depth, next_part) = (None, None, 0, None);
        Self { generator, message, vector, layout, base, index, depth, bytes, next_part }
    }

    /// For an arm of a union, which begins at the variable `area`.
    pub(super) fn arm(generator: &'w Generator<'a>, operations: &'w Operations<'_>) -> Self {
        let walk = Self::new(generator, "", operations, quote!(bytes));
        Self { message: None, base: Some(quote!(area)), ..walk }
    }

    /// For values that stand alone and are appended to a message: their fixed part begins at the variable `base`.
    pub(super) fn appended_alone(
        generator: &'w Generator<'a>,
        place: &'w str,
        operations: &'w Operations<'_>,
    ) -> Self {
        let walk = Self::new(generator, place, operations, quote!(out));
        Self { base: Some(quote!(base)), ..walk }
    }

    /// For an element of the vector of this operation: its fixed part is `bytes`.
    fn element(&self, vector: &Operation<'_>, operations: &'w Operations<'_>) -> Self {
        let walk = Self::new(self.generator, "", operations, quote!(bytes));
        Self { message: self.message, vector: self.path(vector), depth: self.depth, ..walk }
    }

    /// The same for an element with strings or vectors of its own, whose fixed part has this name: others may be in it.
    fn element_of_parts(
        &self,
        vector: &Operation<'_>,
        operations: &'w Operations<'_>,
    ) -> (Ident, Self) {
        let (depth, walk) = (self.depth + 1, self.element(vector, operations));
        let name = format_ident!("fixed{depth}");
        (name.clone(), Self { bytes: quote!(#name), depth, ..walk })
    }

    /// The same for one that is appended to the message: its fixed part begins at the variable `base`.
    fn appended(&self, vector: &Operation<'_>, operations: &'w Operations<'_>) -> Self {
        let walk = self.element(vector, operations);
        Self { bytes: quote!(out), base: Some(quote!(base)), ..walk }
    }

    /// The offset of a number, for the element that the walk is in.
    fn at(&self, place: LeafPlace) -> TokenStream {
        let [offset, bytes] = [place.offset, place.bytes].map(Literal::u32_unsuffixed);
        let scaled = self.index.as_ref().map(|index| match place.bytes {
            1 => quote!(+ #index),
            _ => quote!(+ (#index) * #bytes),
        });
        let base = self.base.as_ref().map(|base| quote!(#base +));
        quote!(#base #offset #scaled)
    }

    fn path(&self, operation: &Operation<'_>) -> String {
        self.path_of(&operation.path)
    }

    fn path_of(&self, path: &str) -> String {
        match (self.vector.as_str(), path.chars().next()) {
            ("", _) => path.to_owned(),
            (vector, None | Some('[')) => format!("{vector}{path}"),
            (vector, _) => format!("{vector}.{path}"),
        }
    }

    /// The name of a place, for errors.
    fn place(&self, path: &str) -> TokenStream {
        match self.message {
            Some(message) => {
                let name = format!("{message}: {}", self.path_of(path));
                quote!(#name)
            }
            None => quote!(place),
        }
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
        Builtin::Float32 => "f32",
        Builtin::Float64 => "f64",
        Builtin::Bool => "bool",
        _ => "u64",
    }
}
