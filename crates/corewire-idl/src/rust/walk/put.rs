//! Code that stores values.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

use super::{Walk, bare, names, number, reached};
use crate::form::{Operation, Step};

impl Walk<'_, '_> {
    /// Code that stores the value at `place`, which is an expression that can be borrowed.
    pub(in crate::rust) fn put(
        &mut self,
        operation: &Operation<'_>,
        place: &TokenStream,
    ) -> TokenStream {
        let (bytes, value, behind) = (self.bytes.clone(), bare(place), reached(place));
        let name = self.place(&operation.path);
        match &operation.step {
            Step::Number { builtin, at } => {
                let (at, put) = (self.at(*at), format_ident!("put_{}", number(*builtin)));
                quote!(codec::#put(#bytes, #at, #value);)
            }
            Step::Enum { at, .. } => {
                let at = self.at(*at);
                quote!(codec::put_i32(#bytes, #at, #behind.value());)
            }
            Step::String { bytes_max, length } => {
                let at = self.at(*length);
                quote!(codec::put_str(#bytes, #at, #name, &#value, #bytes_max)?;)
            }
            Step::Vector { elements, count_max, length } => {
                let at = self.at(*length);
                if elements.byte().is_some() {
                    return quote!(codec::put_bytes(#bytes, #at, #name, &#value, #count_max)?;);
                }
                let element_bytes = Literal::u32_unsuffixed(elements.layout.fixed_bytes);
                if elements.is_dynamic() {
                    let mut walk = self.appended(operation, elements);
                    let store = elements.values.iter();
                    let store = store.map(|one| walk.put(one, &quote!((*element))));
                    return quote! {
                        codec::put_each(#bytes, #at, #name, &#value, #count_max, #element_bytes, |out, base, element| {
                            #(#store)*
                            Ok(())
                        })?;
                    };
                }
                let mut walk = self.element(operation, elements);
                let store = elements.values.iter().map(|one| walk.put(one, &quote!((*element))));
                quote! {
                    codec::put_elements(#bytes, #at, #name, &#value, #count_max, #element_bytes, |bytes, element| {
                        #(#store)*
                    })?;
                }
            }
            Step::Optional { value: inner, present } => {
                let (at, some) = (self.at(*present), format_ident!("value{}", self.depth));
                self.depth += 1;
                let store = self.put(inner, &quote!((*#some)));
                self.depth -= 1;
                if !names(&store, &some.to_string()) {
                    return quote!(codec::put_bool(#bytes, #at, #behind.is_some()););
                }
                quote! {
                    if let Some(#some) = &#value {
                        codec::put_bool(#bytes, #at, true);
                        #store
                    }
                }
            }
            Step::Capability { present, .. } => {
                let present = present.map(|present| self.at(present)).into_iter();
                quote!(#(codec::put_bool(#bytes, #present, #behind.is_some());)*)
            }
            Step::Struct { name, fields } => {
                let stores = fields.iter().map(|(field, inner)| {
                    let field = self.generator.field(name, &field.name);
                    self.put(inner, &quote!(#behind.#field))
                });
                stores.collect()
            }
            Step::Array { element, count } => {
                let (index, value) =
                    (format_ident!("i{}", self.depth), format_ident!("element{}", self.depth));
                let store = self
                    .within(*count, &quote!(#index), |walk| walk.put(element, &quote!((*#value))));
                if store.is_empty() {
                    return store;
                }
                quote! {
                    for (#index, #value) in #behind.iter().enumerate() {
                        #store
                    }
                }
            }
            Step::Union { tag, area, .. } => {
                let (tag, area) = (self.at(*tag), self.at(*area));
                match operation.is_dynamic() {
                    false => quote!(#behind.encode(#bytes, #tag, #area);),
                    true => quote!(#behind.encode(#bytes, #tag, #area, #name)?;),
                }
            }
        }
    }
}
