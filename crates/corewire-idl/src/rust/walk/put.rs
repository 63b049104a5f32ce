//! Code that stores values.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

use super::{Walk, bare, bytes_of, is_bytes, names, number, reached};
use crate::form::{Definition, Type, TypeDecl};

impl Walk<'_> {
    /// Code that stores the value at `place`, which is an expression that can be borrowed.
    pub(in crate::rust) fn put(
        &mut self,
        of: &Type,
        place: &TokenStream,
        path: &str,
    ) -> TokenStream {
        let (bytes, value, behind) = (self.bytes.clone(), bare(place), reached(place));
        let name = self.place(path);
        match of {
            Type::Builtin { builtin } => {
                let at = self.at(builtin.bytes());
                let put = format_ident!("put_{}", number(*builtin));
                quote!(codec::#put(#bytes, #at, #value);)
            }
            Type::Named { name } => match self.generator.interface.type_named(name) {
                Some(decl) => self.put_declared(decl, place, path),
                None => TokenStream::new(),
            },
            Type::String { bytes_max } => {
                let at = self.at(4);
                quote!(codec::put_str(#bytes, #at, #name, &#value, #bytes_max)?;)
            }
            Type::Vector { element, count_max } => {
                let at = self.at(4);
                if is_bytes(self.generator, element) {
                    return quote!(codec::put_bytes(#bytes, #at, #name, &#value, #count_max)?;);
                }
                let element_bytes = bytes_of(self.generator, element);
                let element_bytes = Literal::u32_unsuffixed(element_bytes);
                let store = self.element(element).put(element, &quote!((*element)), path);
                quote! {
                    codec::put_elements(#bytes, #at, #name, &#value, #count_max, #element_bytes, |bytes, element| {
                        #store
                    })?;
                }
            }
            Type::Optional { of } => {
                let at = self.at(1);
                let inner = format_ident!("value{}", self.depth);
                self.depth += 1;
                let store = self.put(of, &quote!((*#inner)), path);
                self.depth -= 1;
                if !names(&store, &inner.to_string()) {
                    return quote!(codec::put_bool(#bytes, #at, #behind.is_some()););
                }
                quote! {
                    if let Some(#inner) = &#value {
                        codec::put_bool(#bytes, #at, true);
                        #store
                    }
                }
            }
            Type::Capability { capability } if capability.is_nullable() => {
                let at = self.at(1);
                quote!(codec::put_bool(#bytes, #at, #behind.is_some());)
            }
            Type::Capability { .. } | Type::Channel { .. } | Type::Client { .. } => {
                TokenStream::new()
            }
        }
    }

    fn put_declared(&mut self, decl: &TypeDecl, place: &TokenStream, path: &str) -> TokenStream {
        let (bytes, behind) = (self.bytes.clone(), reached(place));
        match &decl.definition {
            Definition::Alias { target } => self.put(target, place, path),
            Definition::Struct { fields } => fields
                .iter()
                .map(|field| {
                    let name = self.generator.field(&decl.name, &field.name);
                    self.put(&field.of, &quote!(#behind.#name), &format!("{path}.{}", field.name))
                })
                .collect(),
            Definition::Enum { .. } => {
                let at = self.at(4);
                quote!(codec::put_i32(#bytes, #at, #behind.value());)
            }
            Definition::Array { element, count } => {
                let (index, value) =
                    (format_ident!("i{}", self.depth), format_ident!("element{}", self.depth));
                let store = self.within(*count, &quote!(#index), |walk| {
                    walk.put(element, &quote!((*#value)), &format!("{path}[]"))
                });
                if store.is_empty() {
                    return store;
                }
                quote! {
                    for (#index, #value) in #behind.iter().enumerate() {
                        #store
                    }
                }
            }
            Definition::Union { area_bytes, .. } => {
                let (tag, area) = (self.at(4), self.at(*area_bytes));
                quote!(#behind.encode(#bytes, #tag, #area);)
            }
        }
    }
}
