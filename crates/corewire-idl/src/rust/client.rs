//! The client: a method for each message to the service.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::plan::Plan;
use super::{Generator, docs, docs_or};

impl Generator<'_> {
    pub(super) fn client(&self) -> TokenStream {
        let plans = self.plans();
        let methods = plans.iter().filter(|plan| plan.is_to_service()).map(|plan| {
            match self.reply_to(plan, &plans) {
                Some(reply) => self.rpc(plan, reply),
                None => self.one_way(plan),
            }
        });
        let methods = methods.collect::<TokenStream>();
        let outputs = plans.iter().filter(|plan| plan.is_reply() && plan.arguments.len() > 1);
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

    fn output(&self, plan: &Plan<'_>) -> TokenStream {
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

    fn rpc(&self, plan: &Plan<'_>, reply: &Plan<'_>) -> TokenStream {
        let parameters = self.parameters(plan);
        let (ordinal, place, bytes_max) = (plan.ordinal(), &reply.wire.name, reply.bytes_max());
        let names = self.method_names(plan);
        let MethodNames { name, timed, start, then, .. } = &names;
        let (result, result_of) = (self.result_type(reply), &reply.result);
        let known = self.known(plan);
        // A descriptor is closed once the service has it: a service that answers has taken it.
        let is_answered = match &plan.message.errors {
            None => quote!(result.is_ok()),
            Some(_) => quote!(matches!(result, Ok(_) | Err(corewire_bind::Failed::Service(_)))),
        };
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

    fn one_way(&self, plan: &Plan<'_>) -> TokenStream {
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

    /// Refuses a message that an earlier version of the service does not have.
    pub(super) fn known(&self, plan: &Plan<'_>) -> TokenStream {
        let _ = self;
        let (index, name) = (&plan.index, &plan.message.name);
        quote!(self.0.known(#index, #name)?;)
    }

    /// Code that encodes a message and sends it, behind what makes its version. `work` is a call of the binding's method
    /// that sends.
    fn sent(
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
