//! What a call gives: nothing, the only `out` argument, or a struct of all of them; or an error.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::plan::Plan;
use super::{Generator, docs, docs_or};

impl Generator<'_> {
    /// The function that makes the result of a call, or of a part of a stream.
    pub(super) fn result(&self, plan: &Plan<'_>) -> TokenStream {
        if plan.is_part() {
            return self.part(plan);
        }
        let (name, result) = (&plan.result, self.result_type(plan));
        let form = plan.is_versioned().then(|| quote!(, form: corewire_bind::Form));
        let mutable = plan.has_capabilities().then(|| quote!(mut));
        let (unpacked, decoding) = (self.unpacked(plan, "reply", "parts"), self.decoding(plan));
        let end = match &plan.message.errors {
            None => quote!(Ok(#decoding?)),
            Some(_) => quote!(#decoding?.map_err(corewire_bind::Failed::Service)),
        };
        let docs = docs(&[format!("The result of `{}`, from the reply.", plan.message.name)]);
        quote! {
            #docs
            fn #name(
                reply: Result<corewire_bind::Message, corewire_bind::CallError>
                #form
            ) -> #result {
                let #mutable reply = reply?;
                #unpacked
                #end
            }
        }
    }

    /// The function that makes what a stream gives of a part.
    fn part(&self, plan: &Plan<'_>) -> TokenStream {
        let (name, result) = (&plan.result, self.result_type(plan));
        let form = if plan.is_versioned() { quote!(form) } else { quote!(_) };
        let (unpacked, decoding) = (self.unpacked(plan, "part", "parts"), self.decoding(plan));
        let docs = docs(&[format!("A part of the stream `{}`.", plan.message.name)]);
        quote! {
            #docs
            fn #name(part: corewire_bind::Message, #form: corewire_bind::Form) -> #result {
                #unpacked
                Ok(#decoding?)
            }
        }
    }

    /// The result of a call.
    pub(super) fn result_type(&self, plan: &Plan<'_>) -> TokenStream {
        let (output, error) = (self.output_type(plan), self.failure_type(plan));
        quote!(Result<#output, #error>)
    }

    /// Why a call fails.
    pub(super) fn failure_type(&self, plan: &Plan<'_>) -> TokenStream {
        match &plan.message.errors {
            None => quote!(corewire_bind::CallError),
            Some(set) => {
                let set = self.error_name(set);
                quote!(corewire_bind::Failed<#set>)
            }
        }
    }

    /// The type of a reply: nothing, the only argument, or a struct of all.
    pub(super) fn output_type(&self, plan: &Plan<'_>) -> TokenStream {
        match plan.arguments.as_slice() {
            [] => quote!(()),
            [(_, only)] => self.owned(&only.of),
            _ => {
                let name = self.output_name(plan);
                quote!(#name)
            }
        }
    }

    pub(super) fn output_value(&self, plan: &Plan<'_>) -> TokenStream {
        match plan.arguments.as_slice() {
            [] => quote!(()),
            [(only, _)] => quote!(#only),
            all => {
                let values =
                    plan.fields.iter().zip(all).map(|(field, (name, _))| assign(field, name));
                let name = self.output_name(plan);
                quote!(#name { #(#values,)* })
            }
        }
    }

    pub(super) fn output_name(&self, plan: &Plan<'_>) -> Ident {
        format_ident!("{}Output", self.stems[plan.message.name.as_str()].1)
    }

    pub(super) fn output(&self, plan: &Plan<'_>) -> TokenStream {
        let name = self.output_name(plan);
        let arguments = plan.arguments.iter();
        let derives = self.derives(arguments.clone().map(|(_, one)| &one.of));
        let fields = plan.fields.iter().zip(arguments).map(|(name, (_, argument))| {
            let (of, docs) = (
                self.owned(&argument.of),
                docs_or(&argument.docs, &format!("`{}`.", argument.name)),
            );
            quote!(#docs pub #name: #of,)
        });
        let docs = docs(&[format!("The result of `{}`.", plan.message.name)]);
        quote! {
            #docs
            #derives
            pub struct #name { #(#fields)* }
        }
    }
}

/// `field: name`, or only the name if they are the same.
pub(super) fn assign(field: &Ident, name: &Ident) -> TokenStream {
    if field == name { quote!(#name) } else { quote!(#field: #name) }
}
