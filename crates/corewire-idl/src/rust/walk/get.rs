//! Code that reads values.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

use super::{Walk, names, number};
use crate::form::{Builtin, CapabilityKind, Operation, Step, Type};

impl Walk<'_, '_> {
    /// An expression that reads a value. If it `borrows`, strings and bytes stay in the message.
    pub(in crate::rust) fn get(&mut self, operation: &Operation<'_>, borrows: bool) -> TokenStream {
        let bytes = self.bytes.clone();
        let place = self.place(&operation.path);
        match &operation.step {
            Step::Number { builtin: Builtin::Bool, at } => {
                let at = self.at(*at);
                quote!(codec::get_bool(#bytes, #at, #place)?)
            }
            Step::Number { builtin, at } => {
                let (at, get) = (self.at(*at), format_ident!("get_{}", number(*builtin)));
                quote!(codec::#get(#bytes, #at))
            }
            Step::Enum { name, at, .. } => {
                let (name, at) = (self.generator.type_name(name), self.at(*at));
                quote!(#name::decode(codec::get_i32(#bytes, #at), #place)?)
            }
            Step::String { bytes_max, length } => {
                let (at, take) = (self.at(*length), if borrows { "str" } else { "owned_str" });
                let take = format_ident!("{take}");
                quote!(reader.#take(#at, #place, #bytes_max)?)
            }
            Step::Vector { elements, count_max, length } => {
                let at = self.at(*length);
                if elements.byte().is_some() {
                    let take = format_ident!("{}", if borrows { "bytes" } else { "owned_bytes" });
                    return quote!(reader.#take(#at, #place, #count_max)?);
                }
                let element_bytes = Literal::u32_unsuffixed(elements.layout.fixed_bytes);
                let limits = quote!(#at, #place, #count_max, #element_bytes);
                if elements.is_dynamic() {
                    let (fixed, mut walk) = self.element_of_parts(operation, elements);
                    let read = elements.values.iter().map(|one| walk.get(one, false));
                    let read = read.collect::<TokenStream>();
                    let fixed =
                        if names(&read, &fixed.to_string()) { quote!(#fixed) } else { quote!(_) };
                    return quote!(reader.each(#limits, |reader, #fixed| Ok(#read))?);
                }
                let mut walk = self.element(operation, elements);
                let read = elements.values.iter().map(|one| walk.get(one, false));
                quote!(reader.elements(#limits, |bytes| Ok(#(#read)*))?)
            }
            Step::Optional { value, present } => {
                let at = self.at(*present);
                let read = self.get(value, borrows);
                let absent = value.lengths().into_iter().map(|length| {
                    let place = self.place(length.path);
                    let count = Literal::u32_unsuffixed(length.count);
                    match length.count {
                        1 => {
                            let at = self.at(length.at);
                            quote!(reader.absent(#at, #place)?;)
                        }
                        _ => {
                            let at =
                                self.within(length.count, &quote!(0), |walk| walk.at(length.at));
                            quote!(reader.all_absent(#at, #count, #place)?;)
                        }
                    }
                });
                let absent = absent.collect::<TokenStream>();
                quote! {
                    if codec::get_bool(#bytes, #at, #place)? { Some(#read) } else { #absent None }
                }
            }
            Step::Capability { of, present, .. } => {
                let (arrived, take) = (self.arrived(), self.taken(of));
                match present.map(|present| self.at(present)) {
                    None => quote!(#arrived.#take?),
                    Some(at) => quote! {
                        if codec::get_bool(#bytes, #at, #place)? { Some(#arrived.#take?) } else { None }
                    },
                }
            }
            Step::Struct { name, fields } => {
                let fields = fields.iter().map(|(field, inner)| {
                    let field = self.generator.field(name, &field.name);
                    // A struct owns what it has.
                    let read = self.get(inner, false);
                    quote!(#field: #read,)
                });
                let fields = fields.collect::<TokenStream>();
                let name = self.generator.type_name(name);
                quote!(#name { #fields })
            }
            Step::Array { element, count } => self.array(operation, element, *count),
            Step::Union { name, tag, area, .. } => {
                let name = self.generator.type_name(name);
                let (tag, area) = (self.at(*tag), self.at(*area));
                let reader = operation.is_dynamic().then(|| quote!(reader.by_ref(),));
                quote!(#name::decode(#reader #bytes, #tag, #area, #place)?)
            }
        }
    }

    /// What takes a capability from those that arrived.
    fn taken(&self, of: &Type) -> TokenStream {
        match of {
            Type::Capability { capability: CapabilityKind::Endpoint } => quote!(endpoint()),
            Type::Capability { capability: CapabilityKind::Window } => quote!(window()),
            Type::Channel { of } => {
                let of = self.generator.owned(of);
                quote!(channel::<#of>())
            }
            Type::Client { .. } => quote!(service()),
            _ => quote!(descriptor()),
        }
    }

    fn array(
        &mut self,
        operation: &Operation<'_>,
        element: &Operation<'_>,
        count: u32,
    ) -> TokenStream {
        let (index, place) = (format_ident!("i{}", self.depth), self.place(&operation.path));
        let all = self.parts(operation);
        let has_parts = all.len() > 1 && self.next_part.is_none();
        if has_parts {
            self.next_part = Some(0);
        }
        let read = self.within(count, &quote!(#index), |walk| walk.get(element, false));
        if has_parts {
            self.next_part = None;
            let names = (0..all.len()).map(super::lend::part).collect::<Vec<_>>();
            return quote! {{
                let [#(mut #names),*] = arrived.parts([#(#all),*]);
                let all = codec::each(#place, |#index| Ok(#read))?;
                #(#names.finish()?;)*
                all
            }};
        }
        if !all.is_empty() || element.is_dynamic() {
            // The index only finds whether each is there.
            let index = if names(&read, &index.to_string()) { quote!(#index) } else { quote!(_) };
            return quote!(codec::each(#place, |#index| Ok(#read))?);
        }
        if is_checked(element) {
            quote!(codec::array(|#index| Ok(#read))?)
        } else {
            quote!(std::array::from_fn(|#index| #read))
        }
    }
}

/// Whether reading a value can fail although all its bytes are there.
fn is_checked(operation: &Operation<'_>) -> bool {
    match &operation.step {
        Step::Number { builtin, .. } => *builtin == Builtin::Bool,
        Step::Struct { fields, .. } => fields.iter().any(|(_, inner)| is_checked(inner)),
        Step::Array { element, .. } => is_checked(element),
        _ => true,
    }
}
