//! Errors with details: an enumeration whose variants have fields, and what encodes and decodes these.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::names::{Names, snake};
use super::types::text_of;
use super::walk::{Walk, names};
use super::{Generator, docs_or};
use crate::form::{Details, ErrorSet, Field, FormDisagrees, Lowering};

impl Generator<'_> {
    pub(super) fn detailed_errors<'f>(
        &self,
        lowering: &Lowering<'f>,
        set: &'f ErrorSet,
    ) -> Result<TokenStream, FormDisagrees> {
        let name = self.error_name(&set.name);
        let docs = docs_or(&set.docs, &format!("The errors `{}`.", set.name));
        let all = set.details.iter().flat_map(|details| &details.fields);
        let derives = self.derives(all.map(|field| &field.of));
        let [mut variants, mut numbers, mut stores, mut reads, mut texts] =
            [const { Vec::new() }; 5];
        for error in &set.values {
            let (variant, number) = (self.field(&set.name, &error.name), error.value);
            let (number, text) = (Literal::i32_unsuffixed(number), text_of(error));
            let docs = docs_or(&error.docs, &format!("`{}`.", error.name));
            let place = format!("{}.{}", set.name, error.name);
            let Some(Details { fields, .. }) = set.details_of(error) else {
                variants.push(quote!(#docs #variant,));
                numbers.push(quote!(Self::#variant => #number,));
                reads.push(quote!(#number => { codec::exactly::<0>(#place, details)?; Ok(Self::#variant) }));
                texts.push(quote!(Self::#variant => f.write_str(#text),));
                continue;
            };
            let operations = lowering
                .operations(false, fields.iter().map(|one| (one.name.as_str(), &one.of)))?;
            let names = self.field_names(fields);
            let values = (0..fields.len()).map(|index| format_ident!("v{index}"));
            let values = values.collect::<Vec<_>>();
            let typed = fields.iter().zip(&names).map(|(field, name)| {
                let (of, docs) =
                    (self.owned(&field.of), docs_or(&field.docs, &format!("`{}`.", field.name)));
                quote!(#docs #name: #of,)
            });
            variants.push(quote!(#docs #variant { #(#typed)* },));
            numbers.push(quote!(Self::#variant { .. } => #number,));
            let pattern = quote!(Self::#variant { #(#names: #values),* });
            let bytes = Literal::u32_unsuffixed(operations.layout.fixed_bytes);
            let mut walk = Walk::appended_alone(self, &place, &operations);
            let puts = operations.values.iter().zip(&values);
            let puts = puts.map(|(operation, value)| walk.put(operation, &quote!((*#value))));
            let puts = puts.collect::<TokenStream>();
            stores.push(quote! {
                #pattern => {
                    let base = out.len();
                    out.resize(base + #bytes, 0);
                    #puts
                }
            });
            let mut walk = Walk::new(self, &place, &operations, quote!(fixed));
            let gets = operations.values.iter().map(|operation| walk.get(operation, false));
            let gets = quote!(#(let #values = #gets;)*);
            let fixed = if self::names(&gets, "fixed") { quote!(fixed) } else { quote!(_) };
            let (begin, end) = match operations.is_dynamic() {
                false => (quote!(let #fixed = codec::exactly::<#bytes>(#place, details)?;), None),
                true => (
                    quote!(let (mut reader, #fixed) = codec::Reader::new::<#bytes>(#place, details)?;),
                    Some(quote!(reader.finish()?;)),
                ),
            };
            reads.push(quote!(#number => { #begin #gets #end Ok(#pattern) }));
            let shown = fields.iter().map(|field| format!("{}: {{:?}}", field.name));
            let text = format!("{} ({})", escaped(&text), shown.collect::<Vec<_>>().join(", "));
            texts.push(quote!(#pattern => write!(f, #text, #(#values),*),));
        }
        let (is_any, none) = (!stores.is_empty(), quote!(let _ = &out;));
        let store = if is_any { quote!(match self { #(#stores)* _ => {} }) } else { none };
        Ok(quote! {
            #docs
            #derives
            pub enum #name {
                #(#variants)*
                #[doc = " An error that this version does not know. What it had besides is not kept."]
                Unknown(i32),
            }

            impl #name {
                #[doc = " The number on the wire."]
                pub const fn value(&self) -> i32 {
                    match self { #(#numbers)* Self::Unknown(value) => *value }
                }

                #[doc = " Appends the details, behind their length."]
                fn encode(&self, out: &mut Vec<u8>) -> Result<(), corewire_bind::EncodeError> {
                    let details = codec::begin_details(out);
                    #store
                    codec::end_details(out, details);
                    Ok(())
                }

                fn decode(
                    error: i32,
                    place: &'static str,
                    bytes: &[u8],
                ) -> Result<Self, corewire_bind::DecodeError> {
                    let details = codec::details(place, bytes)?;
                    match error { #(#reads)* value => Ok(Self::Unknown(value)) }
                }
            }

            impl std::fmt::Display for #name {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    match self {
                        #(#texts)*
                        Self::Unknown(value) => write!(f, "unknown error {value}"),
                    }
                }
            }

            impl std::error::Error for #name {}
        })
    }

    /// The names of the fields of an error.
    pub(super) fn field_names(&self, fields: &[Field]) -> Vec<Ident> {
        let _ = self;
        let mut own = Names::default();
        fields.iter().map(|field| own.give(&snake(&field.name))).collect()
    }
}

/// A text as a part of a format.
fn escaped(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}
