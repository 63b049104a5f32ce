//! Declared types, constants and errors.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::names::ident;
use super::{Generator, docs_or, walk};
use crate::form::{
    Builtin, Constant, ConstantValue, Definition, EnumValue, ErrorSet, Field, FormDisagrees,
    Lowering, TypeDecl,
};

impl Generator<'_> {
    pub(super) fn types(&self) -> Result<TokenStream, FormDisagrees> {
        let constants = self.interface.constants.iter().map(|one| self.constant(one));
        let lowering = self.interface.lowering();
        let types = self.interface.types.iter().map(|one| self.declared(&lowering, one));
        let types = types.collect::<Result<Vec<_>, _>>()?;
        let errors = self.interface.errors.iter().map(|one| match one.detailed {
            true => self.detailed_errors(&lowering, one),
            false => Ok(self.error_set(one)),
        });
        let errors = errors.collect::<Result<Vec<_>, _>>()?;
        Ok(quote! {
            use corewire_bind::codec;
            #(#constants)*
            #(#types)*
            #(#errors)*
        })
    }

    fn constant(&self, constant: &Constant) -> TokenStream {
        let name = self.constants.get(constant.name.as_str()).cloned();
        let name = name.unwrap_or_else(|| ident(&constant.name));
        let docs = docs_or(&constant.docs, &format!("`{}`.", constant.name));
        let of = match constant.builtin {
            Builtin::String => quote!(&str),
            other => {
                let of = ident(walk::number(other));
                quote!(#of)
            }
        };
        let value = match &constant.value {
            ConstantValue::Bool(value) => quote!(#value),
            ConstantValue::Unsigned(value) => {
                let value = Literal::u64_unsuffixed(*value);
                quote!(#value)
            }
            ConstantValue::Signed(value) => {
                let value = Literal::i64_unsuffixed(*value);
                quote!(#value)
            }
            ConstantValue::String(value) => quote!(#value),
        };
        quote!(#docs pub const #name: #of = #value;)
    }

    fn declared<'f>(
        &self,
        lowering: &Lowering<'f>,
        decl: &'f TypeDecl,
    ) -> Result<TokenStream, FormDisagrees> {
        let name = self.type_name(&decl.name);
        let docs = docs_or(&decl.docs, &format!("`{}`.", decl.name));
        Ok(match &decl.definition {
            Definition::Alias { target } => {
                let target = self.owned(target);
                quote!(#docs pub type #name = #target;)
            }
            Definition::Array { element, count } => {
                let (element, count) = (self.owned(element), Literal::u32_unsuffixed(*count));
                quote!(#docs pub type #name = [#element; #count];)
            }
            Definition::Struct { fields } => self.structure(decl, &name, &docs, fields),
            Definition::Union { arms, .. } => {
                self.union(lowering, &decl.name, &name, &docs, arms)?
            }
            Definition::Enum { flexible, values } => {
                self.enumeration(&decl.name, &name, &docs, values, *flexible)
            }
        })
    }

    fn structure(
        &self,
        decl: &TypeDecl,
        name: &Ident,
        docs: &TokenStream,
        fields: &[Field],
    ) -> TokenStream {
        let derives = self.derives(fields.iter().map(|field| &field.of));
        let fields = fields.iter().map(|field| {
            let (name, of) = (self.field(&decl.name, &field.name), self.owned(&field.of));
            let docs = docs_or(&field.docs, &format!("`{}`.", field.name));
            quote!(#docs pub #name: #of,)
        });
        quote! {
            #docs
            #derives
            pub struct #name { #(#fields)* }
        }
    }

    /// An enumeration; if it is flexible, with a variant for values that it does not know.
    fn enumeration(
        &self,
        of: &str,
        name: &Ident,
        docs: &TokenStream,
        values: &[EnumValue],
        flexible: bool,
    ) -> TokenStream {
        let (mut variants, mut to, mut from) = (Vec::new(), Vec::new(), Vec::new());
        let mut seen = Vec::new();
        for one in values {
            let variant = self.field(of, &one.name);
            let docs = docs_or(&one.docs, &format!("`{}`.", one.name));
            let value = Literal::i32_unsuffixed(one.value);
            variants.push(quote!(#docs #variant,));
            to.push(quote!(Self::#variant => #value,));
            if !seen.contains(&one.value) {
                seen.push(one.value);
                from.push(quote!(#value => Ok(Self::#variant),));
            }
        }
        let otherwise = if flexible {
            variants.push(quote!(
                #[doc = " A value that this version does not know."]
                Unknown(i32),
            ));
            to.push(quote!(Self::Unknown(value) => value,));
            quote!({
                let _ = place;
                Ok(Self::Unknown(value))
            })
        } else {
            quote!(Err(codec::unknown_value(place, value as i64)))
        };
        quote! {
            #docs
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            pub enum #name { #(#variants)* }

            impl #name {
                #[doc = " The number on the wire."]
                pub const fn value(self) -> i32 {
                    match self { #(#to)* }
                }

                const fn decode(
                    value: i32,
                    place: &'static str,
                ) -> Result<Self, corewire_bind::DecodeError> {
                    match value { #(#from)* _ => #otherwise }
                }
            }
        }
    }

    fn error_set(&self, set: &ErrorSet) -> TokenStream {
        let name = self.error_name(&set.name);
        let docs = docs_or(&set.docs, &format!("The errors `{}`.", set.name));
        let code = self.enumeration(&set.name, &name, &docs, &set.values, true);
        let texts = set.values.iter().map(|one| {
            let (variant, text) = (self.field(&set.name, &one.name), text_of(one));
            quote!(Self::#variant => f.write_str(#text),)
        });
        let unknown = format_ident!("Unknown");
        quote! {
            #code

            impl std::fmt::Display for #name {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    match self {
                        #(#texts)*
                        Self::#unknown(value) => write!(f, "unknown error {value}"),
                    }
                }
            }

            impl std::error::Error for #name {}
        }
    }

    pub(super) fn error_name(&self, name: &str) -> Ident {
        self.errors.get(name).cloned().unwrap_or_else(|| ident(name))
    }
}

/// What an error says: the first line of its documentation, or its name.
pub(super) fn text_of(error: &EnumValue) -> String {
    let text = error.docs.first().map_or(&error.name, |line| line);
    text.trim().trim_end_matches('.').to_owned()
}
