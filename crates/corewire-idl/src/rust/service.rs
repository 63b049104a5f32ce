//! The service: what a program implements, and what calls it.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::plan::Plan;
use super::{Generator, docs, docs_or};

impl Generator<'_> {
    pub(super) fn service(&self) -> TokenStream {
        let plans = self.plans();
        let methods = plans.iter().filter(|plan| plan.is_to_service()).map(|plan| {
            let (stem, kind) = &self.stems[plan.message.name.as_str()];
            let method = super::names::ident(stem);
            let parameters = plan.arguments.iter().map(|(name, argument)| {
                let of = self.arrived(&argument.of, None);
                quote!(#name: #of,)
            });
            let docs =
                docs_or(&plan.message.docs, &format!("A client sent `{}`.", plan.message.name));
            match self.reply_to(plan, &plans) {
                Some(_) => {
                    let of = format_ident!("{kind}Reply");
                    quote!(#docs fn #method(&mut self, #(#parameters)* reply: #of<'_>);)
                }
                None => quote! {
                    #docs fn #method(&mut self, #(#parameters)* client: corewire_bind::ClientId);
                },
            }
        });
        let methods = methods.collect::<TokenStream>();
        let docs = docs(&[format!("What a service of `{}` does.", self.interface.name)]);
        quote! {
            #docs
            pub trait Service {
                #[doc = " A client has bound. The kernel says which process it is."]
                fn bound(&mut self, client: corewire_bind::ClientId, identity: corewire_bind::Identity) {
                    let _ = (client, identity);
                }

                #[doc = " A client has gone. Everything that it had sent was handled before."]
                fn gone(&mut self, client: corewire_bind::ClientId) {
                    let _ = client;
                }

                #[doc = " A client could not take the descriptors of a message of this ordinal: it has too many open."]
                fn not_taken(&mut self, client: corewire_bind::ClientId, ordinal: u16) {
                    let _ = (client, ordinal);
                }

                #methods
            }
        }
    }

    /// What calls the program.
    pub(super) fn dispatch(&self) -> TokenStream {
        let plans = self.plans();
        let (mut requests, mut messages) = (Vec::new(), Vec::new());
        for plan in plans.iter().filter(|plan| plan.is_to_service()) {
            match self.reply_to(plan, &plans) {
                Some(_) => requests.push(self.request(plan)),
                None => messages.push(self.message(plan)),
            }
        }
        let unknown = quote!(Err(corewire_bind::Refusal::Unknown { ordinal }));
        let (message_unused, message) = match messages.is_empty() {
            true => (Some(quote!(let _ = (message, client);)), unknown.clone()),
            false => (None, quote!(match ordinal { #(#messages)* _ => #unknown, })),
        };
        let unknown = quote! {
            reply.unknown();
            #unknown
        };
        let (request_unused, request) = match requests.is_empty() {
            true => (Some(quote!(let _ = request;)), unknown),
            false => (None, quote!(match ordinal { #(#requests)* _ => { #unknown } })),
        };
        quote! {
            #[doc = " Decodes what arrives, and calls the service."]
            struct Dispatcher<'a, S>(&'a mut S);

            impl<S: Service> corewire_bind::Dispatch for Dispatcher<'_, S> {
                fn bound(&mut self, client: corewire_bind::ClientId, identity: corewire_bind::Identity) {
                    self.0.bound(client, identity);
                }

                fn gone(&mut self, client: corewire_bind::ClientId) {
                    self.0.gone(client);
                }

                fn not_taken(&mut self, client: corewire_bind::ClientId, ordinal: u16) {
                    self.0.not_taken(client, ordinal);
                }

                #[inline]
                fn request(
                    &mut self,
                    ordinal: u16,
                    request: corewire_bind::Incoming<'_>,
                    reply: corewire_bind::Reply<'_>,
                ) -> Result<(), corewire_bind::Refusal> {
                    #request_unused
                    #request
                }

                #[inline]
                fn message(
                    &mut self,
                    ordinal: u16,
                    message: corewire_bind::Incoming<'_>,
                    client: corewire_bind::ClientId,
                ) -> Result<(), corewire_bind::Refusal> {
                    #message_unused
                    #message
                }
            }
        }
    }

    fn request(&self, plan: &Plan<'_>) -> TokenStream {
        let (stem, kind) = &self.stems[plan.message.name.as_str()];
        let (method, of) = (super::names::ident(stem), format_ident!("{kind}Reply"));
        let (ordinal, place, index) = (plan.ordinal(), plan.wire.title(), &plan.index);
        let names = plan.arguments.iter().map(|(name, _)| name).collect::<Vec<_>>();
        let form = plan.is_versioned().then(|| quote!(let form = request.form(#index);));
        let decoding = self.decoding(plan);
        let (unpacked, decoded) = match plan.has_capabilities() {
            true => (Some(self.unpacked(plan, "request", "capabilities")), decoding),
            false => {
                let memory = plan.is_nested();
                let memory = memory.then(|| quote!(let memory_max = request.memory_max();));
                (memory, quote!(request.without_capabilities(#place).and_then(|bytes| #decoding)))
            }
        };
        quote! {
            #ordinal => {
                #form
                #unpacked
                match #decoded {
                    Ok((#(#names,)*)) => {
                        self.0.#method(#(#names,)* #of(reply));
                        Ok(())
                    }
                    Err(error) => {
                        reply.malformed();
                        Err(error.into())
                    }
                }
            }
        }
    }

    fn message(&self, plan: &Plan<'_>) -> TokenStream {
        let method = super::names::ident(&self.stems[plan.message.name.as_str()].0);
        let (ordinal, index) = (plan.ordinal(), &plan.index);
        let names = plan.arguments.iter().map(|(name, _)| name).collect::<Vec<_>>();
        let form = plan.is_versioned().then(|| quote!(let form = message.form(#index);));
        let unpacked = self.unpacked(plan, "message", "capabilities");
        let decoding = self.decoding(plan);
        quote! {
            #ordinal => {
                #form
                #unpacked
                let (#(#names,)*) = #decoding?;
                self.0.#method(#(#names,)* client);
                Ok(())
            }
        }
    }
}
