//! The client for tasks of any executor.

use proc_macro2::TokenStream;
use quote::quote;

use super::client::errors_docs;
use super::plan::Plan;
use super::{Generator, docs, docs_or};

impl Generator<'_> {
    pub(super) fn asynchronous(&self) -> TokenStream {
        let plans = self.plans();
        let methods = plans.iter().filter(|plan| plan.is_to_service());
        let methods =
            methods.map(|plan| match (self.reply_to(plan, &plans), self.part_of(plan, &plans)) {
                (Some(reply), Some(part)) => self.async_stream(plan, reply, part),
                (reply, _) => self.method(plan, reply),
            });
        let methods = methods.collect::<TokenStream>();
        let event = plans.iter().any(Plan::is_event).then(|| {
            let decode = self.decode_event();
            quote! {
                #[doc = " Waits for what the service sends next without being asked. One task should do so."]
                #[doc = ""]
                #[doc = " # Errors"]
                #[doc = " The service has gone, or the message is wrong. `EventsLost` where events are missing: this client"]
                #[doc = " took them too slowly."]
                pub async fn event(&self) -> Result<Event, corewire_bind::CallError> {
                    let (ordinal, message) = self.0.event().await?;
                    #decode
                }
            }
        });
        let docs = docs(&[
            format!(
                "A client of `{}` for tasks of any executor. A clone is the same client.",
                self.interface.name
            ),
            "Any number of calls may be under way; dropping the future of a call abandons it."
                .to_owned(),
        ]);
        quote! {
            #docs
            #[derive(Debug, Clone)]
            pub struct AsyncClient(corewire_bind::AsyncBinding);

            impl AsyncClient {
                #[doc = " Binds to the service of this name."]
                #[doc = ""]
                #[doc = " # Errors"]
                #[doc = " The reason of each driver that was tried."]
                pub async fn bind(
                    domain: &corewire_bind::Domain,
                    service: &str,
                    bind: &corewire_bind::Bind,
                ) -> Result<Self, corewire_bind::BindError> {
                    let bound = corewire_bind::AsyncBinding::connect(domain, service, bind, &DESCRIPTION);
                    bound.await.map(Self)
                }

                #[doc = " What it is bound by."]
                pub const fn binding(&self) -> &corewire_bind::AsyncBinding {
                    &self.0
                }

                #methods
                #event
            }
        }
    }

    /// Code that encodes a message to `message`, and an expression for its capabilities.
    pub(super) fn encoded_alone(&self, plan: &Plan<'_>) -> [TokenStream; 2] {
        if plan.is_short() {
            let encoding = self.encoding(plan, &quote!(), &quote!());
            return [quote!(let message = #encoding;), quote!(&corewire_bind::Capabilities::new())];
        }
        self.encoding_alone(plan, "message")
    }

    fn method(&self, plan: &Plan<'_>, reply: Option<&Plan<'_>>) -> TokenStream {
        let (parameters, ordinal) = (self.parameters(plan), plan.ordinal());
        let name = self.method_names(plan).name;
        let known = self.known(plan);
        let form = self.form(plan);
        let [prepared, capabilities] = self.encoded_alone(plan);
        let (result, received, work, is_sent, text) = match reply {
            Some(answer) => {
                let (bytes_max, result_of, index) =
                    (answer.bytes_max(), &answer.result, &answer.index);
                let form = answer.is_versioned().then(|| quote!(, self.0.form(#index)));
                let work = quote!(#result_of(reply #form));
                let received = quote! {
                    let reply = self.0.call(#ordinal, #bytes_max, &message, #capabilities).await;
                };
                let text = format!("Calls `{}`, and waits for the reply.", plan.message.name);
                (self.result_type(answer), Some(received), work, plan.is_answered(), text)
            }
            None => (
                quote!(Result<(), corewire_bind::CallError>),
                None,
                quote!(self.0.send(#ordinal, &message, #capabilities).await),
                quote!(result.is_ok()),
                format!("Sends `{}`, waiting for room if necessary.", plan.message.name),
            ),
        };
        let work = self.giving_away(plan, work, &is_sent);
        let docs = docs_or(&plan.message.docs, &text);
        let when =
            if reply.is_some() { "once the service has answered" } else { "once it is sent" };
        let (given_docs, errors) = (self.given_docs(plan, when), errors_docs());
        quote! {
            #docs
            #given_docs
            #errors
            pub async fn #name(&self, #parameters) -> #result {
                #known
                #form
                #prepared
                #received
                #work
            }
        }
    }
}
