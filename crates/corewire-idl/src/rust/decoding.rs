//! Functions that decode messages, and calls of them.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

use super::messages::{of_version, pattern};
use super::plan::{Plan, Version};
use super::walk::{Walk, names};
use super::{Generator, docs};
use crate::form::Operations;

impl Generator<'_> {
    /// Decodes the version that the other side knows.
    pub(super) fn decode_any(&self, plan: &Plan<'_>) -> TokenStream {
        let name = &plan.decode;
        let has_capabilities = plan.has_capabilities();
        let arms = plan.versions.iter().skip(1).chain(&plan.versions[..1]).map(|version| {
            let (decode, pattern) = (&version.decode, pattern(version));
            let memory = plan.is_nested().then(|| quote!(, memory_max));
            if version.layout.capabilities.is_empty() && has_capabilities {
                return quote!(#pattern => { arrived.finish()?; #decode(bytes #memory) });
            }
            let arrived = has_capabilities.then(|| quote!(, arrived));
            quote!(#pattern => #decode(bytes #memory #arrived),)
        });
        let arms = arms.collect::<TokenStream>();
        let (of, lifetime) = self.decoded(plan);
        let generics = lifetime.as_ref().map(|lifetime| quote!(<#lifetime>));
        let memory = plan.is_nested().then(|| quote!(memory_max: usize,));
        let arrived = has_capabilities.then(|| quote!(arrived: corewire_bind::Arrived<'_>,));
        let text = format!(
            "The arguments of `{}`, in the version that the other side knows.",
            plan.wire.name
        );
        let docs = docs(&[text]);
        quote! {
            #docs
            fn #name #generics(
                form: corewire_bind::Form,
                bytes: &#lifetime [u8],
                #memory
                #arrived
            ) -> Result<#of, corewire_bind::DecodeError> {
                match form { #arms }
            }
        }
    }

    /// What a function that decodes gives, and the lifetime of the bytes in it.
    fn decoded(&self, plan: &Plan<'_>) -> (TokenStream, Option<TokenStream>) {
        let lifetime = quote!('a);
        let of = if plan.is_answer() {
            let of = self.output_type(plan);
            match plan.errors {
                None => of,
                Some(set) => {
                    let set = self.error_name(&set.name);
                    quote!(Result<#of, #set>)
                }
            }
        } else {
            let types = plan.arguments.iter().map(|(_, argument)| {
                if plan.is_to_service() {
                    self.arrived(&argument.of, Some(&lifetime))
                } else {
                    self.owned(&argument.of)
                }
            });
            quote!((#(#types,)*))
        };
        let lifetime = of.to_string().contains("'a").then_some(lifetime);
        (of, lifetime)
    }

    pub(super) fn decode(
        &self,
        plan: &Plan<'_>,
        version: &Version<'_>,
        operations: &Operations<'_>,
    ) -> TokenStream {
        let (name, place) = (&version.decode, &plan.wire.title());
        let bytes = Literal::u32_unsuffixed(version.layout.fixed_bytes);
        let (arguments, later) = plan.arguments.split_at(version.argument_count);
        // Replies and events outlive their messages.
        let borrows = plan.is_to_service();
        let mut walk = Walk::new(self, place, operations, quote!(fixed));
        let error = operations.error.map(|error| Literal::u32_unsuffixed(error.offset));
        let lets = arguments.iter().zip(&operations.values).map(|((name, _), operation)| {
            let read = walk.get(operation, borrows);
            quote!(let #name = #read;)
        });
        let absent = later.iter().map(|(name, _)| quote!(let #name = None;));
        let lets = lets.chain(absent).collect::<TokenStream>();
        let values = if plan.is_answer() {
            self.output_value(plan)
        } else {
            let all = plan.arguments.iter().map(|(name, _)| name);
            quote!((#(#all,)*))
        };
        let (of, lifetime) = self.decoded(plan);
        let generics = lifetime.as_ref().map(|lifetime| quote!(<#lifetime>));
        let docs =
            docs(&[format!("The arguments of `{}`{}.", plan.wire.name, of_version(version, plan))]);
        let fixed = match error.is_some() || names(&lets, "fixed") {
            true => quote!(fixed),
            false => quote!(_),
        };
        let has_details = plan.has_details();
        let (begin, mut end) = if version.layout.dynamics.is_empty() && !has_details {
            (quote!(let #fixed = codec::exactly::<#bytes>(#place, bytes)?;), None)
        } else {
            let mutable = operations.is_dynamic().then(|| quote!(mut));
            let (new, memory) = match plan.is_nested() {
                true => (quote!(limited), Some(quote!(, memory_max))),
                false => (quote!(new), None),
            };
            let begin = quote! {
                let (#mutable reader, #fixed) = codec::Reader::#new::<#bytes>(#place, bytes #memory)?;
            };
            (begin, Some(quote!(reader.finish()?;)))
        };
        let has_capabilities = !version.layout.capabilities.is_empty();
        let arrived = has_capabilities.then(|| quote!(mut arrived: corewire_bind::Arrived<'_>,));
        let finish = has_capabilities.then(|| quote!(arrived.finish()?;));
        if has_capabilities {
            end = Some(quote!(#end #finish));
        }
        let (check, values) = match (error, plan.errors) {
            (Some(at), Some(set)) => {
                let details = set.detailed.then(|| quote!(, reader.rest()));
                let set = self.error_name(&set.name);
                let place = format!("{place}: error");
                let check = quote! {
                    let error = codec::get_i32(fixed, #at);
                    if error != 0 {
                        #finish
                        return Ok(Err(#set::decode(error, #place #details)?));
                    }
                };
                (Some(check), quote!(Ok(#values)))
            }
            _ => (None, values),
        };
        let memory = plan.is_nested().then(|| quote!(memory_max: usize,));
        let memory_unused =
            (plan.is_nested() && version.layout.dynamics.is_empty() && !has_details)
                .then(|| quote!(let _ = memory_max;));
        let begin = quote!(#memory_unused #begin);
        quote! {
            #docs
            #[inline]
            fn #name #generics(
                bytes: &#lifetime [u8],
                #memory
                #arrived
            ) -> Result<#of, corewire_bind::DecodeError> {
                #begin
                #check
                #lets
                #end
                Ok(#values)
            }
        }
    }

    /// Code that takes `bytes`, and `arrived` if there are capabilities, from a received message.
    pub(super) fn unpacked(&self, plan: &Plan<'_>, message: &str, take: &str) -> TokenStream {
        let _ = self;
        let (place, message) = (plan.wire.title(), format_ident!("{message}"));
        let memory = plan.is_nested().then(|| quote!(let memory_max = #message.memory_max();));
        if plan.has_capabilities() {
            let take = format_ident!("{take}");
            return quote!(#memory let (bytes, arrived) = #message.#take(#place););
        }
        quote!(#memory let bytes = #message.without_capabilities(#place)?;)
    }

    /// A call of the function that decodes what [`unpacked`](Self::unpacked) has given, in version `form`.
    pub(super) fn decoding(&self, plan: &Plan<'_>) -> TokenStream {
        let _ = self;
        let decode = &plan.decode;
        let form = plan.is_versioned().then(|| quote!(form,));
        let memory = plan.is_nested().then(|| quote!(, memory_max));
        let arrived = plan.has_capabilities().then(|| quote!(, arrived));
        quote!(#decode(#form bytes #memory #arrived))
    }
}
