//! The methods of a client that call: they wait for the reply, or give a handle, or go on with it later.

use proc_macro2::TokenStream;
use quote::quote;

use super::client::{MethodNames, docs_of, errors_docs};
use super::plan::Plan;
use super::{Generator, docs_or};

impl Generator<'_> {
    pub(super) fn rpc(&self, plan: &Plan<'_>, reply: &Plan<'_>) -> TokenStream {
        let parameters = self.parameters(plan);
        let (ordinal, place, bytes_max) = (plan.ordinal(), reply.wire.title(), reply.bytes_max());
        let names = self.method_names(plan);
        let MethodNames { name, timed, start, then, .. } = &names;
        let (result, result_of) = (self.result_type(reply), &reply.result);
        let known = self.known(plan);
        // A descriptor is closed once the service has it: a service that answers has taken it.
        let is_answered = plan.is_answered();
        let call = |timeout: &TokenStream| {
            if plan.is_short() && reply.is_short() {
                let (bytes, decode) = (reply.bytes(), &reply.decode);
                let encoding = self.encoding(plan, &quote!(), &quote!());
                let end = match &plan.message.errors {
                    None => quote!(Ok(#decode(&reply)?)),
                    Some(_) => quote!(#decode(&reply)?.map_err(corewire_bind::Failed::Service)),
                };
                return quote! {
                    #known
                    let message = #encoding;
                    let reply = self.0.call_fixed::<#bytes>(#place, #ordinal, &message, #timeout)?;
                    #end
                };
            }
            let (form, sent) = self.sent(plan, &|message, capabilities| {
                quote!(call(#ordinal, #message, #capabilities, #bytes_max, #timeout))
            });
            let index = &reply.index;
            let reply_form = reply.is_versioned().then(|| quote!(, self.0.form(#index)));
            let result = quote!(#result_of(reply #reply_form));
            let result = self.giving_away(plan, result, &is_answered);
            quote!(#known #form let reply = #sent; #result)
        };
        let (forever, until) = (call(&quote!(None)), call(&quote!(Some(timeout))));
        let (decode, decode_name) = match reply.is_versioned() {
            true => (Some(decode_pointer(reply, &result)), quote!(decode)),
            false => (None, quote!(#result_of)),
        };
        let (begun_form, begun) = self.sent(plan, &|message, capabilities| {
            quote!(start(#ordinal, #message, #capabilities, #bytes_max, #decode_name))
        });
        let begun = self.giving_away(plan, begun, &quote!(result.is_ok()));
        let index = &reply.index;
        let reply_form =
            reply.is_versioned().then(|| quote!(let reply_form = self.0.form(#index);));
        let (_, told) = self.sent(plan, &|message, capabilities| {
            let form = reply.is_versioned().then(|| quote!(, reply_form));
            let then = quote!(move |reply| then(#result_of(reply #form)));
            quote!(call_then(#ordinal, #message, #capabilities, #bytes_max, #then))
        });
        let told = self.giving_away(plan, told, &quote!(result.is_ok()));
        let text = format!("Calls `{}`, and waits for the reply.", plan.message.name);
        let docs = docs_or(&plan.message.docs, &text);
        let errors = errors_docs();
        let answered_docs = self.given_docs(plan, "once the service has answered");
        let sent_docs = self.given_docs(plan, "once it is sent");
        let timed_docs = docs_of(&format!("Like [`{name}`](Self::{name}), for at most `timeout`."));
        let start_docs = docs_of(&format!(
            "Like [`{name}`](Self::{name}), but does not wait for the reply: the handle does."
        ));
        let then_docs = docs_of(&format!(
            "Like [`{name}`](Self::{name}), but does not wait for the reply. `then` is called with the result by a later \
             method that reads what has come, such as [`progress`](Self::progress)."
        ));
        quote! {
            #docs
            #answered_docs
            #errors
            #[inline]
            pub fn #name(&mut self, #parameters) -> #result { #forever }

            #timed_docs
            #errors
            pub fn #timed(&mut self, #parameters timeout: std::time::Duration) -> #result { #until }

            #start_docs
            #sent_docs
            #errors
            pub fn #start(
                &mut self,
                #parameters
            ) -> Result<corewire_bind::Pending<#result>, corewire_bind::CallError> {
                #known
                #begun_form
                #decode
                #begun
            }

            #then_docs
            #sent_docs
            #errors
            pub fn #then(
                &mut self,
                #parameters
                then: impl FnOnce(#result) + Send + 'static,
            ) -> Result<(), corewire_bind::CallError> {
                #known
                #begun_form
                #reply_form
                #told
            }
        }
    }
}

/// The function that makes the result of the version of a reply that the service sends.
fn decode_pointer(reply: &Plan<'_>, result: &TokenStream) -> TokenStream {
    let (index, result_of) = (&reply.index, &reply.result);
    let arms = reply.versions.iter().skip(1).map(|version| {
        let form = &version.form;
        quote!(#form => |reply| #result_of(reply, #form),)
    });
    let now = &reply.versions[0].form;
    quote! {
        let decode: fn(Result<corewire_bind::Message, corewire_bind::CallError>) -> #result =
            match self.0.form(#index) {
                #(#arms)*
                _ => |reply| #result_of(reply, #now),
            };
    }
}
