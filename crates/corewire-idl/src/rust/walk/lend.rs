//! Capabilities, which travel beside the bytes: for each place of the layout all of its elements, one place after the
//! other. In an array of structs the capabilities of one field stay together.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::{Walk, bare, reached};
use crate::form::{CapabilityKind, Leaf, Operation, Step, Type};
use crate::rust::Generator;

/// Where a value is that has capabilities.
enum Place {
    /// A variable with what was lent: a borrowed descriptor, a reference.
    Lent(TokenStream),
    /// An expression that can be borrowed.
    Owned(TokenStream),
}

impl Place {
    /// What was lent, or a reference to the value.
    fn whole(&self) -> TokenStream {
        match self {
            Self::Lent(lent) => lent.clone(),
            Self::Owned(place) => {
                let (place, behind) = (bare(place), reached(place));
                let is_reference = behind.to_string().len() < place.to_string().len();
                if is_reference { behind } else { quote!(&#place) }
            }
        }
    }

    /// The descriptor that `code`, which is such a reference, stands for.
    fn descriptor(&self, code: &TokenStream) -> TokenStream {
        match self {
            Self::Lent(_) => code.clone(),
            Self::Owned(_) => quote!(std::os::fd::AsFd::as_fd(#code)),
        }
    }

    /// The value within an optional one, as a pattern names it.
    fn inner(&self, name: &Ident) -> Self {
        match self {
            Self::Lent(_) => Self::Lent(quote!(#name)),
            Self::Owned(_) => Self::Owned(quote!((*#name))),
        }
    }

    /// What a field or a method is called on.
    fn reached(&self) -> TokenStream {
        match self {
            Self::Lent(lent) => lent.clone(),
            Self::Owned(place) => reached(place),
        }
    }
}

impl Generator<'_> {
    /// Code that adds the capabilities of a value to `capabilities`.
    pub(in crate::rust) fn lend(
        &self,
        operation: &Operation<'_>,
        place: &TokenStream,
    ) -> TokenStream {
        self.lends(operation, &Place::Lent(place.clone()), 0).into_iter().collect()
    }

    /// The same for each place of the layout.
    fn lends(&self, operation: &Operation<'_>, place: &Place, depth: usize) -> Vec<TokenStream> {
        let (whole, inner) = (place.whole(), format_ident!("value{depth}"));
        match &operation.step {
            Step::Capability { present: Some(_), .. } => {
                let value = place.descriptor(&quote!(#inner));
                vec![quote!(if let Some(#inner) = #whole { capabilities.descriptor(#value); })]
            }
            Step::Capability { of, .. } => vec![match of {
                Type::Capability { capability: CapabilityKind::Endpoint } => {
                    quote!(capabilities.endpoint(#whole);)
                }
                Type::Capability { capability: CapabilityKind::Window } => {
                    quote!(capabilities.window(#whole);)
                }
                Type::Channel { .. } => quote!(capabilities.channel(#whole);),
                Type::Client { .. } => quote!(capabilities.service(#whole);),
                _ => {
                    let value = place.descriptor(&whole);
                    quote!(capabilities.descriptor(#value);)
                }
            }],
            Step::Optional { value, .. } => {
                let inside = self.lends(value, &place.inner(&inner), depth + 1).into_iter();
                inside.map(|one| quote!(if let Some(#inner) = #whole { #one })).collect()
            }
            Step::Struct { name, fields } => {
                let owned = place.reached();
                let fields = fields.iter().flat_map(|(field, inner)| {
                    let field = self.field(name, &field.name);
                    self.lends(inner, &Place::Owned(quote!(#owned.#field)), depth)
                });
                fields.collect()
            }
            Step::Array { element, .. } => {
                let (owned, inner) = (place.reached(), format_ident!("element{depth}"));
                let inside = self.lends(element, &Place::Owned(quote!((*#inner))), depth + 1);
                let inside = inside.into_iter();
                inside.map(|one| quote!(for #inner in #owned.iter() { #one })).collect()
            }
            Step::Number { .. }
            | Step::Enum { .. }
            | Step::String { .. }
            | Step::Vector { .. }
            | Step::Union { .. } => Vec::new(),
        }
    }
}

pub(super) fn part(index: usize) -> Ident {
    format_ident!("part{index}")
}

impl Walk<'_, '_> {
    /// What the next capability is taken from.
    pub(super) fn arrived(&mut self) -> TokenStream {
        match &mut self.next_part {
            None => quote!(arrived),
            Some(next) => {
                let name = part(*next);
                *next += 1;
                quote!(#name)
            }
        }
    }

    /// How many capabilities arrive for each place of an array. Those of several places arrive one place after the other.
    pub(super) fn parts(&self, array: &Operation<'_>) -> Vec<TokenStream> {
        let within = format!("{}[]", array.path);
        let all = self.layout.capabilities.iter().filter(|one| one.path.starts_with(&within));
        let parts = all.map(|one| {
            let flag = one.present_leaf.and_then(|leaf| usize::try_from(leaf).ok());
            let flag = flag.and_then(|leaf| self.layout.leaves.get(leaf));
            // A flag before the array has been checked.
            match flag.filter(|flag| flag.path.starts_with(&within)) {
                Some(flag) => self.present(flag, one.count),
                None => {
                    let count = Literal::u32_unsuffixed(one.count);
                    quote!(#count)
                }
            }
        });
        parts.collect()
    }

    /// The number of capabilities, of `count`, for which these flags are set.
    fn present(&self, flags: &Leaf, count: u32) -> TokenStream {
        let bytes = &self.bytes;
        let each = (count != flags.count).then(|| {
            let each = Literal::u32_unsuffixed(count / flags.count);
            quote!(* #each)
        });
        let [offset, flags] = [flags.offset, flags.count].map(Literal::u32_unsuffixed);
        quote!((0..#flags).filter(|i: &usize| codec::get_u8(#bytes, #offset + i) != 0).count() #each)
    }
}
