//! Unions. Each has functions of its own that encode and decode it: if their code were part of the code of messages, as
//! that of structs is, it would double with each union that has two arms of another one.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::walk::Walk;
use super::{Generator, docs_or};
use crate::form::{Field, FormDisagrees, Lowering};

impl Generator<'_> {
    pub(super) fn union<'f>(
        &self,
        lowering: &Lowering<'f>,
        of: &str,
        name: &Ident,
        docs: &TokenStream,
        arms: &'f [Field],
    ) -> Result<TokenStream, FormDisagrees> {
        let (mut variants, mut stores, mut reads) = (Vec::new(), Vec::new(), Vec::new());
        let is_dynamic = arms.iter().any(|arm| !self.is_fixed(&arm.of));
        for (arm, index) in arms.iter().zip(0_u32..) {
            let (variant, inner) = (self.field(of, &arm.name), self.owned(&arm.of));
            let docs = docs_or(&arm.docs, &format!("`{}`.", arm.name));
            variants.push(quote!(#docs #variant(#inner),));
            let operations = lowering.alone(&arm.of)?;
            let mut walk = Walk::arm(self, &operations);
            let store = operations.value().map(|one| walk.put(one, &quote!((*value))));
            stores.push(quote! {
                Self::#variant(value) => {
                    codec::put_u32(bytes, tag, #index);
                    #store
                }
            });
            let read = operations.value().map(|one| walk.get(one, false));
            reads.push(quote!(#index => Self::#variant(#read),));
        }
        let derives = self.derives(arms.iter().map(|arm| &arm.of));
        let (encode, reader) = match is_dynamic {
            false => (
                quote! {
                    #[doc = " Stores the tag, and the arm at the beginning of the area."]
                    #[inline]
                    fn encode(&self, bytes: &mut [u8], tag: usize, area: usize) {
                        match self { #(#stores)* }
                    }
                },
                None,
            ),
            true => (
                quote! {
                    #[doc = " Stores the tag, and the arm at the beginning of the area. Appends its strings and vectors."]
                    #[inline]
                    fn encode(
                        &self,
                        bytes: &mut Vec<u8>,
                        tag: usize,
                        area: usize,
                        place: &'static str,
                    ) -> Result<(), corewire_bind::EncodeError> {
                        match self { #(#stores)* }
                        Ok(())
                    }
                },
                Some(quote!(reader: &mut codec::Reader<'_>,)),
            ),
        };
        Ok(quote! {
            #docs
            #derives
            pub enum #name { #(#variants)* }

            impl #name {
                #encode

                #[inline]
                fn decode(
                    #reader
                    bytes: &[u8],
                    tag: usize,
                    area: usize,
                    place: &'static str,
                ) -> Result<Self, corewire_bind::DecodeError> {
                    Ok(match codec::get_u32(bytes, tag) {
                        #(#reads)*
                        found => return Err(codec::unknown_value(place, found.into())),
                    })
                }
            }
        })
    }
}
