//! Code that reads values.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

use super::lend::part;
use super::{Walk, bytes_of, is_bytes, is_checked, names, number};
use crate::form::{Builtin, CapabilityKind, Definition, Type, TypeDecl};

impl Walk<'_> {
    /// An expression that reads a value. If it `borrows`, strings and bytes stay in the message.
    pub(in crate::rust) fn get(&mut self, of: &Type, path: &str, borrows: bool) -> TokenStream {
        let bytes = self.bytes.clone();
        let name = self.place(path);
        match of {
            Type::Builtin { builtin } => {
                let at = self.at(builtin.bytes());
                match builtin {
                    Builtin::Bool => quote!(codec::get_bool(#bytes, #at, #name)?),
                    _ => {
                        let get = format_ident!("get_{}", number(*builtin));
                        quote!(codec::#get(#bytes, #at))
                    }
                }
            }
            Type::Named { name } => match self.generator.interface.type_named(name) {
                Some(decl) => self.get_declared(decl, path, borrows),
                None => TokenStream::new(),
            },
            Type::String { bytes_max } => {
                let at = self.at(4);
                self.dynamics.push((at.clone(), name.clone()));
                let owned = (!borrows).then(|| quote!(.to_owned()));
                quote!(reader.str(#at, #name, #bytes_max)? #owned)
            }
            Type::Vector { element, count_max } => {
                let at = self.at(4);
                self.dynamics.push((at.clone(), name.clone()));
                if is_bytes(self.generator, element) {
                    let owned = (!borrows).then(|| quote!(.to_vec()));
                    return quote!(reader.bytes(#at, #name, #count_max)? #owned);
                }
                let element_bytes = Literal::u32_unsuffixed(bytes_of(self.generator, element));
                let read = self.element(element).get(element, path, false);
                quote!(reader.elements(#at, #name, #count_max, #element_bytes, |bytes| Ok(#read))?)
            }
            Type::Optional { of } => {
                let at = self.at(1);
                let before = self.dynamics.len();
                let read = self.get(of, path, borrows);
                let absent = self.dynamics[before..]
                    .iter()
                    .map(|(at, name)| quote!(reader.absent(#at, #name)?;))
                    .collect::<TokenStream>();
                quote! {
                    if codec::get_bool(#bytes, #at, #name)? { Some(#read) } else { #absent None }
                }
            }
            Type::Capability { capability: CapabilityKind::Endpoint } => {
                let arrived = self.arrived();
                quote!(#arrived.endpoint()?)
            }
            Type::Capability { capability } => {
                let present = capability.is_nullable().then(|| self.at(1));
                let arrived = self.arrived();
                match present {
                    None => quote!(#arrived.descriptor()?),
                    Some(at) => quote! {
                        if codec::get_bool(#bytes, #at, #name)? { Some(#arrived.descriptor()?) } else { None }
                    },
                }
            }
            Type::Channel { of } => {
                let (arrived, of) = (self.arrived(), self.generator.owned(of));
                quote!(#arrived.channel::<#of>()?)
            }
            Type::Client { .. } => {
                let arrived = self.arrived();
                quote!(#arrived.service()?)
            }
        }
    }

    fn get_declared(&mut self, decl: &TypeDecl, path: &str, borrows: bool) -> TokenStream {
        let (bytes, name) = (self.bytes.clone(), self.generator.type_name(&decl.name));
        let place = self.place(path);
        match &decl.definition {
            Definition::Alias { target } => self.get(target, path, borrows),
            Definition::Struct { fields } => {
                let fields = fields.iter().map(|field| {
                    let name = self.generator.field(&decl.name, &field.name);
                    // A struct owns what it has.
                    let read = self.get(&field.of, &format!("{path}.{}", field.name), false);
                    quote!(#name: #read,)
                });
                let fields = fields.collect::<TokenStream>();
                quote!(#name { #fields })
            }
            Definition::Enum { .. } => {
                let at = self.at(4);
                quote!(#name::decode(codec::get_i32(#bytes, #at), #place)?)
            }
            Definition::Array { element, count } => {
                let index = format_ident!("i{}", self.depth);
                let parts = self.parts(element, *count);
                if !parts.is_empty() {
                    self.next_part = Some(0);
                }
                let read = self.within(*count, &quote!(#index), |walk| {
                    walk.get(element, &format!("{path}[]"), false)
                });
                if !parts.is_empty() {
                    self.next_part = None;
                    let names = (0..parts.len()).map(part).collect::<Vec<_>>();
                    return quote! {{
                        let [#(mut #names),*] = arrived.parts([#(#parts),*]);
                        let all = codec::each(#place, |#index| Ok(#read))?;
                        #(#names.finish()?;)*
                        all
                    }};
                }
                if self.generator.has_capabilities(element) {
                    // The index only finds whether each is there.
                    let index =
                        if names(&read, &index.to_string()) { quote!(#index) } else { quote!(_) };
                    return quote!(codec::each(#place, |#index| Ok(#read))?);
                }
                if is_checked(self.generator, element) {
                    quote!(codec::array(|#index| Ok(#read))?)
                } else {
                    quote!(std::array::from_fn(|#index| #read))
                }
            }
            Definition::Union { area_bytes, .. } => {
                let (tag, area) = (self.at(4), self.at(*area_bytes));
                quote!(#name::decode(#bytes, #tag, #area, #place)?)
            }
        }
    }
}
