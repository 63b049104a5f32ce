//! What a service answers with, now or later, and the events that it sends.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::client::docs_of;
use super::plan::Plan;
use super::{Generator, docs, docs_or};

impl Generator<'_> {
    pub(super) fn replies(&self) -> TokenStream {
        let plans = self.plans();
        let replies = plans.iter().filter(|plan| plan.is_reply()).map(|plan| {
            match self.part_of(plan, &plans) {
                Some(part) => self.stream_reply(plan, part),
                None => self.reply(plan),
            }
        });
        replies.chain(self.outbox(&plans)).collect()
    }

    fn reply(&self, plan: &Plan<'_>) -> TokenStream {
        let kind = &self.stems[plan.message.name.as_str()].1;
        let (name, later) = (format_ident!("{kind}Reply"), format_ident!("{kind}LaterReply"));
        let (parameters, index) = (self.parameters(plan), &plan.index);
        let text = format!("The reply to `{}`. Dropping it tells the caller.", plan.message.name);
        let docs = docs(&[text]);
        let given_docs = self.given_docs(plan, "once it is sent");
        let (now, then) = match plan.is_short() {
            true => {
                let encoding = self.encoding(plan, &quote!(), &quote!());
                let send = quote!(self.0.send(&#encoding););
                (send.clone(), send)
            }
            false => (
                self.long_reply(plan, quote!(self.0.form(#index))),
                self.long_reply(plan, quote!(self.0.form())),
            ),
        };
        let fail = |form: TokenStream| {
            plan.errors.map(|set| {
                let (set, send) = (self.error_name(&set.name), self.send_error(plan));
                let form = plan.is_versioned().then(|| quote!(let form = #form;));
                quote! {
                    #[doc = " Replies with an error."]
                    pub fn fail(self, error: #set) {
                        #form
                        #send
                    }
                }
            })
        };
        let (fail_now, fail_later) =
            (fail(quote!(self.0.form(#index))), fail(quote!(self.0.form())));
        let wrong = (!plan.is_short()).then(|| {
            quote! {
                #[doc = " If an argument is longer than its bound, or a descriptor cannot be sent, the caller is told that there is no"]
                #[doc = " reply, and the service's report says why."]
            }
        });
        let asker = asker();
        quote! {
            #docs
            #[derive(Debug)]
            #[must_use = "a reply that is dropped tells its caller"]
            pub struct #name<'a>(corewire_bind::Reply<'a>);

            impl #name<'_> {
                #asker

                #[doc = " Replies. Never waits: a reply that does not fit is sent when there is room."]
                #wrong
                #given_docs
                #[inline]
                pub fn send(self, #parameters) { #now }

                #fail_now

                #[doc = " Keeps the reply for later. It may go to another thread."]
                pub fn later(self) -> #later {
                    #later(self.0.later(#index))
                }
            }

            #docs
            #[derive(Debug)]
            #[must_use = "a reply that is dropped tells its caller"]
            pub struct #later(corewire_bind::LaterReply);

            impl #later {
                #[doc = " The client that asked."]
                pub const fn client(&self) -> corewire_bind::ClientId {
                    self.0.client()
                }

                #[doc = " Gives the reply to the service's thread, which sends it."]
                #wrong
                #given_docs
                pub fn send(self, #parameters) { #then }

                #fail_later
            }
        }
    }

    /// Code that sends a reply that is not short.
    fn long_reply(&self, plan: &Plan<'_>, form: TokenStream) -> TokenStream {
        let beside = if plan.has_capabilities() { quote!(capabilities) } else { quote!(_) };
        let encoding = self.encoding(plan, &quote!(out), &quote!(capabilities));
        let form = plan.is_versioned().then(|| quote!(let form = #form;));
        let sent = self.given_away(plan);
        match sent.is_empty() {
            true => quote!(#form self.0.send_with(|out, #beside| #encoding);),
            false => quote!(#form if self.0.send_with(|out, #beside| #encoding) { #sent }),
        }
    }

    fn outbox(&self, plans: &[Plan<'_>]) -> Option<TokenStream> {
        let methods = plans.iter().filter(|plan| plan.is_event()).map(|plan| self.event(plan));
        let methods = methods.collect::<Vec<_>>();
        (!methods.is_empty()).then(|| {
            quote! {
                #[doc = " Sends events to clients, from any thread."]
                #[derive(Debug, Clone)]
                pub struct Outbox(corewire_bind::Outbox);

                impl Outbox { #(#methods)* }
            }
        })
    }

    fn event(&self, plan: &Plan<'_>) -> TokenStream {
        let stem = &self.stems[plan.message.name.as_str()].0;
        let (one, all) = (super::names::ident(stem), format_ident!("{stem}_to_all"));
        let (parameters, ordinal, index) = (self.parameters(plan), plan.ordinal(), &plan.index);
        let [encoding, capabilities] = self.encoding_alone(plan, "message");
        let (prepared, versions, capabilities) = if plan.is_short() {
            let encoding = self.encoding(plan, &quote!(), &quote!());
            (quote!(), quote!(vec![#encoding.to_vec()]), capabilities)
        } else if plan.is_versioned() {
            let forms = plan.versions.iter().map(|version| &version.form);
            let (mut before, mut keep, mut version) = (None, None, quote!(message));
            let mut beside = capabilities;
            if plan.has_capabilities() {
                // Those of the current version are all.
                before = Some(quote!(let mut all = corewire_bind::Capabilities::new();));
                keep = Some(quote! {
                    if form == corewire_bind::Form::Current { all = capabilities; }
                });
                version = quote! {
                    corewire_bind::Version {
                        bytes: message,
                        capability_count: capabilities.count(),
                    }
                };
                beside = quote!(&all);
            }
            let prepared = quote! {
                let mut versions = Vec::new();
                #before
                for form in [#(#forms),*] {
                    #encoding
                    versions.push(#version);
                    #keep
                }
            };
            (prepared, quote!(versions), beside)
        } else {
            (encoding, quote!(vec![message]), capabilities)
        };
        let send = |client: TokenStream| {
            let sent = quote!(self.0.send(#client, #ordinal, #index, #versions, #capabilities));
            let sent = self.giving_away(plan, sent, &quote!(result.is_ok()));
            quote!(#prepared #sent)
        };
        let (send_one, send_all) = (send(quote!(Some(client))), send(quote!(None)));
        let docs =
            docs_or(&plan.message.docs, &format!("Sends `{}` to a client.", plan.message.name));
        let given_docs = self.given_docs(plan, "once it is sent");
        let all_docs =
            docs_of(&format!("Like [`{one}`](Self::{one}), to all clients that are bound."));
        let errors = quote! {
            #[doc = ""]
            #[doc = " # Errors"]
            #[doc = " The service has ended, or the message is wrong. `Busy` if too much waits for the service's thread."]
        };
        quote! {
            #docs
            #given_docs
            #errors
            pub fn #one(
                &self,
                client: corewire_bind::ClientId,
                #parameters
            ) -> Result<(), corewire_bind::CallError> {
                #send_one
            }

            #all_docs
            #given_docs
            #errors
            pub fn #all(&self, #parameters) -> Result<(), corewire_bind::CallError> { #send_all }
        }
    }
}

/// The methods of a reply that say who asked.
pub(super) fn asker() -> TokenStream {
    quote! {
        #[doc = " The client that asked."]
        pub const fn client(&self) -> corewire_bind::ClientId {
            self.0.client()
        }

        #[doc = " Its process, as the kernel says."]
        pub fn identity(&self) -> corewire_bind::Identity {
            self.0.identity()
        }
    }
}
