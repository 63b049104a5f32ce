//! Capabilities, which travel beside the bytes: for each place of the layout all of its elements, one place after the
//! other. In an array of structs the capabilities of one field stay together.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::{Walk, bare, reached};
use crate::form::{CapabilityKind, Definition, Type};
use crate::rust::Generator;

/// Where a value is that has capabilities.
#[derive(Clone)]
pub(in crate::rust) enum Place {
    /// A variable with what was lent: a borrowed descriptor, a reference.
    Lent(TokenStream),
    /// An expression that can be borrowed.
    Owned(TokenStream),
}

impl Generator<'_> {
    /// Code that adds the capabilities of a value to `capabilities`.
    pub(in crate::rust) fn lend(&self, of: &Type, place: &TokenStream) -> TokenStream {
        self.lends(of, &Place::Lent(place.clone()), 0).into_iter().collect()
    }

    /// The same for each place of the layout.
    fn lends(&self, of: &Type, place: &Place, depth: usize) -> Vec<TokenStream> {
        match of {
            Type::Builtin { .. } | Type::String { .. } | Type::Vector { .. } => Vec::new(),
            Type::Capability { capability } if capability.is_nullable() => {
                let inner = format_ident!("value{depth}");
                let (whole, value) = match place {
                    Place::Lent(lent) => (quote!(#lent), quote!(#inner)),
                    Place::Owned(place) => {
                        let place = borrowed(place);
                        (quote!(#place), quote!(std::os::fd::AsFd::as_fd(#inner)))
                    }
                };
                vec![quote!(if let Some(#inner) = #whole { capabilities.descriptor(#value); })]
            }
            Type::Capability { capability: CapabilityKind::Endpoint } => named("endpoint", place),
            Type::Capability { .. } => match place {
                Place::Lent(lent) => vec![quote!(capabilities.descriptor(#lent);)],
                Place::Owned(place) => {
                    let place = borrowed(place);
                    vec![quote!(capabilities.descriptor(std::os::fd::AsFd::as_fd(#place));)]
                }
            },
            Type::Channel { .. } => named("channel", place),
            Type::Client { .. } => named("service", place),
            Type::Optional { of } => {
                let inner = format_ident!("value{depth}");
                let (whole, value) = match place {
                    Place::Lent(lent) => (quote!(#lent), Place::Lent(quote!(#inner))),
                    Place::Owned(place) => {
                        let place = borrowed(place);
                        (quote!(#place), Place::Owned(quote!((*#inner))))
                    }
                };
                let inside = self.lends(of, &value, depth + 1).into_iter();
                inside.map(|one| quote!(if let Some(#inner) = #whole { #one })).collect()
            }
            Type::Named { name } => {
                let definition = self.interface.type_named(name).map(|decl| &decl.definition);
                let owned = match place {
                    Place::Lent(lent) => quote!(#lent),
                    Place::Owned(place) => reached(place),
                };
                match definition {
                    Some(Definition::Alias { target }) => self.lends(target, place, depth),
                    Some(Definition::Struct { fields }) => {
                        let fields = fields.iter().map(|field| {
                            let name_in_rust = self.field(name, &field.name);
                            let place = Place::Owned(quote!(#owned.#name_in_rust));
                            self.lends(&field.of, &place, depth)
                        });
                        fields.flatten().collect()
                    }
                    Some(Definition::Array { element, .. }) => {
                        let inner = format_ident!("element{depth}");
                        let place = Place::Owned(quote!((*#inner)));
                        let inside = self.lends(element, &place, depth + 1).into_iter();
                        inside.map(|one| quote!(for #inner in #owned.iter() { #one })).collect()
                    }
                    _ => Vec::new(),
                }
            }
        }
    }

    /// Whether a value has capabilities.
    pub(in crate::rust) fn has_capabilities(&self, of: &Type) -> bool {
        !self.lends(of, &Place::Owned(TokenStream::new()), 0).is_empty()
    }
}

/// A reference to what is at a place.
fn borrowed(place: &TokenStream) -> TokenStream {
    let (place, behind) = (bare(place), reached(place));
    if behind.to_string().len() < place.to_string().len() { behind } else { quote!(&#place) }
}

fn named(kind: &str, place: &Place) -> Vec<TokenStream> {
    let add = format_ident!("{kind}");
    match place {
        Place::Lent(lent) => vec![quote!(capabilities.#add(#lent);)],
        Place::Owned(place) => {
            let place = borrowed(place);
            vec![quote!(capabilities.#add(#place);)]
        }
    }
}

pub(super) fn part(index: usize) -> Ident {
    format_ident!("part{index}")
}

impl Walk<'_> {
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

    /// If capabilities of several fields of the next value, an array, arrive one field after the other: how many there
    /// are of each.
    pub(super) fn parts(&self, element: &Type, count: u32) -> Vec<TokenStream> {
        if self.next_part.is_some() || !self.generator.has_capabilities(element) {
            return Vec::new();
        }
        let (mut next, mut parts) = (self.next, Vec::new());
        self.add_parts(element, count, None, &mut next, &mut parts);
        if parts.len() < 2 { Vec::new() } else { parts }
    }

    /// `guard` is the offset and the number of the bytes that tell whether each is there.
    fn add_parts(
        &self,
        of: &Type,
        count: u32,
        guard: Option<(u32, u32)>,
        next: &mut usize,
        parts: &mut Vec<TokenStream>,
    ) {
        let mut leaf = || {
            let offset = self.offsets[*next];
            *next += 1;
            offset
        };
        let bytes = &self.bytes;
        let part = |guard: Option<(u32, u32)>| match guard {
            None => {
                let count = Literal::u32_unsuffixed(count);
                quote!(#count)
            }
            Some((offset, guards)) => {
                let each = (count != guards).then(|| {
                    let each = Literal::u32_unsuffixed(count / guards);
                    quote!(* #each)
                });
                let offset = Literal::u32_unsuffixed(offset);
                let guards = Literal::u32_unsuffixed(guards);
                quote!((0..#guards).filter(|i: &usize| codec::get_u8(#bytes, #offset + i) != 0).count() #each)
            }
        };
        match of {
            Type::Builtin { .. } | Type::String { .. } | Type::Vector { .. } => {
                leaf();
            }
            Type::Capability { capability } if capability.is_nullable() => {
                parts.push(part(Some((leaf(), count))));
            }
            Type::Capability { .. } | Type::Channel { .. } | Type::Client { .. } => {
                parts.push(part(guard));
            }
            Type::Optional { of } => {
                let guard = Some((leaf(), count));
                self.add_parts(of, count, guard, next, parts);
            }
            Type::Named { name } => {
                match self.generator.interface.type_named(name).map(|decl| &decl.definition) {
                    Some(Definition::Alias { target }) => {
                        self.add_parts(target, count, guard, next, parts);
                    }
                    Some(Definition::Struct { fields }) => fields
                        .iter()
                        .for_each(|field| self.add_parts(&field.of, count, guard, next, parts)),
                    Some(Definition::Union { .. }) => {
                        leaf();
                        leaf();
                    }
                    Some(Definition::Enum { .. }) => {
                        leaf();
                    }
                    Some(Definition::Array { element, count: own }) => {
                        self.add_parts(element, count * own, guard, next, parts);
                    }
                    None => {}
                }
            }
        }
    }
}
