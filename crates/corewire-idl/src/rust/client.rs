//! The client: a method for each message to the service.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::plan::Plan;
use super::{Generator, docs};

impl Generator<'_> {
    pub(super) fn client(&self) -> TokenStream {
        let plans = self.plans();
        let methods = plans.iter().filter(|plan| plan.is_to_service()).map(|plan| {
            match (self.reply_to(plan, &plans), self.part_of(plan, &plans)) {
                (Some(reply), Some(part)) => self.stream(plan, reply, part),
                (Some(reply), None) => self.rpc(plan, reply),
                (None, _) => self.one_way(plan),
            }
        });
        let methods = methods.collect::<TokenStream>();
        let outputs = plans.iter().filter(|plan| plan.is_answer() && plan.arguments.len() > 1);
        let outputs = outputs.map(|plan| self.output(plan));
        let events = self.event_methods();
        let of = self.interface.description.clone().unwrap_or_else(|| self.interface.name.clone());
        let docs = docs(&[format!("A client of `{}`: {of}.", self.interface.name)]);
        quote! {
            #(#outputs)*

            #docs
            #[derive(Debug)]
            pub struct Client(corewire_bind::Binding);

            impl Client {
                #[doc = " Binds to the service of this name."]
                #[doc = ""]
                #[doc = " # Errors"]
                #[doc = " The reason of each driver that was tried."]
                pub fn bind(
                    domain: &corewire_bind::Domain,
                    service: &str,
                    bind: &corewire_bind::Bind,
                ) -> Result<Self, corewire_bind::BindError> {
                    bind.connect(domain, service, &DESCRIPTION).map(Self)
                }

                #[doc = " What it is bound by."]
                pub const fn binding(&self) -> &corewire_bind::Binding {
                    &self.0
                }

                #methods
                #events

                #[doc = " Handles what has come, and sends a message that waits for room: calls what `_then` was given, and"]
                #[doc = " keeps events. Never waits. True if anything was done."]
                #[doc = ""]
                #[doc = " # Errors"]
                #[doc = " The service has gone."]
                pub fn progress(&mut self) -> Result<bool, corewire_bind::CallError> {
                    self.0.progress()
                }

                #[doc = " Like [`progress`](Self::progress), but waits until something has come, for at most `timeout`. False"]
                #[doc = " if nothing came."]
                #[doc = ""]
                #[doc = " # Errors"]
                #[doc = " The service has gone."]
                pub fn wait(
                    &mut self,
                    timeout: Option<std::time::Duration>,
                ) -> Result<bool, corewire_bind::CallError> {
                    self.0.wait(timeout)
                }

                #[doc = " Sends a message that waits for room, for at most `timeout`. False if there was none."]
                #[doc = ""]
                #[doc = " # Errors"]
                #[doc = " The service has gone."]
                pub fn flush(
                    &mut self,
                    timeout: Option<std::time::Duration>,
                ) -> Result<bool, corewire_bind::CallError> {
                    self.0.flush(timeout)
                }
            }

            impl AsMut<corewire_bind::Binding> for Client {
                fn as_mut(&mut self) -> &mut corewire_bind::Binding {
                    &mut self.0
                }
            }
        }
    }

    /// The reply to a request.
    pub(super) fn reply_to<'p, 'a>(
        &self,
        plan: &Plan<'_>,
        plans: &'p [Plan<'a>],
    ) -> Option<&'p Plan<'a>> {
        let _ = self;
        plans.iter().find(|one| one.is_reply() && one.message.name == plan.message.name)
    }

    /// The parts of the stream with which a request is answered.
    pub(super) fn part_of<'p, 'a>(
        &self,
        plan: &Plan<'_>,
        plans: &'p [Plan<'a>],
    ) -> Option<&'p Plan<'a>> {
        let _ = self;
        plans.iter().find(|one| one.is_part() && one.message.name == plan.message.name)
    }

    /// Refuses a message that an earlier version of the service does not have.
    pub(super) fn known(&self, plan: &Plan<'_>) -> TokenStream {
        let _ = self;
        let (index, name) = (&plan.index, &plan.message.name);
        quote!(self.0.known(#index, #name)?;)
    }

    /// Code that encodes a message and sends it, behind what makes its version. `work` is a call of the binding's method
    /// that sends.
    pub(super) fn sent(
        &self,
        plan: &Plan<'_>,
        work: &dyn Fn(&TokenStream, &TokenStream) -> TokenStream,
    ) -> (Option<TokenStream>, TokenStream) {
        let encoding = self.encoding(plan, &quote!(out), &quote!(capabilities));
        if plan.is_short() {
            let work = work(&quote!(&#encoding), &quote!(&corewire_bind::Capabilities::new()));
            return (None, quote!(self.0.#work));
        }
        let beside = if plan.has_capabilities() { quote!(capabilities) } else { quote!(_) };
        let work = work(&quote!(message), &quote!(capabilities));
        let sent = quote! {
            self.0.encoded(
                |out, #beside| #encoding,
                |binding, message, capabilities| binding.#work,
            )
        };
        (self.form(plan), sent)
    }

    /// Code that finds out which version of a message the service knows.
    pub(super) fn form(&self, plan: &Plan<'_>) -> Option<TokenStream> {
        let _ = self;
        let index = &plan.index;
        plan.is_versioned().then(|| quote!(let form = self.0.form(#index);))
    }

    pub(super) fn method_names(&self, plan: &Plan<'_>) -> MethodNames {
        let stem = &self.stems[plan.message.name.as_str()].0;
        MethodNames {
            name: super::names::ident(stem),
            timed: format_ident!("{stem}_timeout"),
            start: format_ident!("start_{stem}"),
            then: format_ident!("{stem}_then"),
            tried: format_ident!("try_{stem}"),
        }
    }
}

pub(super) struct MethodNames {
    pub(super) name: Ident,
    pub(super) timed: Ident,
    pub(super) start: Ident,
    pub(super) then: Ident,
    pub(super) tried: Ident,
}

pub(super) fn errors_docs() -> TokenStream {
    docs(&[
        String::new(),
        "# Errors".to_owned(),
        "The service has gone, or the message is wrong.".to_owned(),
    ])
}

pub(super) fn docs_of(line: &str) -> TokenStream {
    docs(&[line.to_owned()])
}
