//! The methods of a client that send a message without a reply: they wait for room, or do not.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::client::{MethodNames, docs_of, errors_docs};
use super::plan::Plan;
use super::{Generator, docs, docs_or};

impl Generator<'_> {
    pub(super) fn one_way(&self, plan: &Plan<'_>) -> TokenStream {
        let (parameters, ordinal) = (self.parameters(plan), plan.ordinal());
        let names = self.method_names(plan);
        let MethodNames { name, timed, then, tried, .. } = &names;
        let known = self.known(plan);
        let with = |method: &str, more: Option<TokenStream>| {
            let method = format_ident!("{method}");
            let (form, sent) = self.sent(plan, &|message, capabilities| {
                let more = more.as_ref().map(|more| quote!(, #more));
                quote!(#method(#ordinal, #message, #capabilities #more))
            });
            let sent = self.giving_away(plan, sent, &quote!(result.is_ok()));
            quote!(#known #form #sent)
        };
        let forever = with("send", Some(quote!(None)));
        let until = with("send", Some(quote!(Some(timeout))));
        let now = with("try_send", None);
        let told = with("send_then", Some(quote!(then)));
        let text = format!("Sends `{}`, waiting for room if necessary.", plan.message.name);
        let errors = errors_docs();
        let sent_docs = self.given_docs(plan, "once it is sent");
        let timed_docs = docs_of(&format!("Like [`{name}`](Self::{name}), for at most `timeout`."));
        let try_docs = docs(&[
            format!(
                "Like [`{name}`](Self::{name}), but never waits. If there is no room, the message is kept and sent"
            ),
            "by a later method; if one is kept already, the error is `Busy`.".to_owned(),
        ]);
        let then_docs = docs(&[
            format!(
                "Like [`{tried}`](Self::{tried}). `then` is called when the next message can be sent: now, or by a"
            ),
            "later method.".to_owned(),
        ]);
        let docs = docs_or(&plan.message.docs, &text);
        let result = quote!(Result<(), corewire_bind::CallError>);
        quote! {
            #docs
            #sent_docs
            #errors
            #[inline]
            pub fn #name(&mut self, #parameters) -> #result { #forever }

            #timed_docs
            #errors
            pub fn #timed(&mut self, #parameters timeout: std::time::Duration) -> #result { #until }

            #try_docs
            #errors
            pub fn #tried(&mut self, #parameters) -> #result { #now }

            #then_docs
            #errors
            pub fn #then(
                &mut self,
                #parameters
                then: impl FnOnce(Result<(), corewire_bind::CallError>) + Send + 'static,
            ) -> #result { #told }
        }
    }
}
