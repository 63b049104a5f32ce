//! Calls whose answer is a stream: the methods of both clients, and what the service answers with.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::client::{MethodNames, docs_of};
use super::plan::Plan;
use super::replies::asker;
use super::{Generator, docs, docs_or};

impl Generator<'_> {
    /// How parts and the end of a stream are decoded, by a client that is bound.
    fn decode_stream(&self, reply: &Plan<'_>, part: &Plan<'_>) -> TokenStream {
        let _ = self;
        let (of, end, index) = (&part.result, &reply.result, &part.index);
        quote! {
            corewire_bind::DecodeStream { part: #of, end: #end, form: self.0.form(#index) }
        }
    }

    /// The methods of a client.
    pub(super) fn stream(&self, plan: &Plan<'_>, reply: &Plan<'_>, part: &Plan<'_>) -> TokenStream {
        let (parameters, ordinal) = (self.parameters(plan), plan.ordinal());
        let MethodNames { name, start, .. } = &self.method_names(plan);
        let (of, error) = (self.output_type(part), self.failure_type(part));
        let (known, decode) = (self.known(plan), self.decode_stream(reply, part));
        let (form, sent) = self.sent(plan, &|message, capabilities| {
            quote!(start_stream(#ordinal, #message, #capabilities, decode))
        });
        let sent = self.giving_away(plan, sent, &quote!(result.is_ok()));
        let arguments = plan.arguments.iter().map(|(name, _)| name);
        let text = format!("Calls `{}`, whose answer is a stream of parts.", plan.message.name);
        let docs = docs_or(&plan.message.docs, &text);
        let parts_docs = docs_of(
            "The parts come from an iterator, which waits for each; dropping it cancels the stream.",
        );
        let given_docs = self.given_docs(plan, "once it is sent");
        let start_docs = docs_of(&format!(
            "Like [`{name}`](Self::{name}), but gives a handle, so that other calls can be made meanwhile."
        ));
        let errors = super::docs(&[
            String::new(),
            "# Errors".to_owned(),
            "The service has gone, or the message is wrong. `TooManyStreams` if 16 have not ended."
                .to_owned(),
        ]);
        quote! {
            #docs
            #[doc = ""]
            #parts_docs
            #given_docs
            #errors
            pub fn #name(
                &mut self,
                #parameters
            ) -> Result<corewire_bind::Parts<'_, #of, #error>, corewire_bind::CallError> {
                Ok(self.#start(#(#arguments),*)?.on(self))
            }

            #start_docs
            #given_docs
            #errors
            pub fn #start(
                &mut self,
                #parameters
            ) -> Result<corewire_bind::PartStream<#of, #error>, corewire_bind::CallError> {
                #known
                #form
                let decode = #decode;
                #sent
            }
        }
    }

    /// The method of a client for tasks.
    pub(super) fn async_stream(
        &self,
        plan: &Plan<'_>,
        reply: &Plan<'_>,
        part: &Plan<'_>,
    ) -> TokenStream {
        let (of, error) = (self.output_type(part), self.failure_type(part));
        let (known, form) = (self.known(plan), self.form(plan));
        let (name, ordinal) = (self.method_names(plan).name, plan.ordinal());
        let (parameters, decode) = (self.parameters(plan), self.decode_stream(reply, part));
        let [prepared, capabilities] = self.encoded_alone(plan);
        let work = quote!(self.0.start_stream(#ordinal, &message, #capabilities, #decode).await);
        let work = self.giving_away(plan, work, &quote!(result.is_ok()));
        let text = format!("Calls `{}`, whose answer is a stream of parts.", plan.message.name);
        let docs = docs_or(&plan.message.docs, &text);
        let given_docs = self.given_docs(plan, "once it is sent");
        quote! {
            #docs
            #[doc = ""]
            #[doc = " The parts come from a stream for tasks; dropping it cancels the stream."]
            #given_docs
            #[doc = ""]
            #[doc = " # Errors"]
            #[doc = " The service has gone, or the message is wrong. `TooManyStreams` if 16 have not ended."]
            pub async fn #name(
                &self,
                #parameters
            ) -> Result<corewire_bind::AsyncParts<#of, #error>, corewire_bind::CallError> {
                #known
                #form
                #prepared
                #work
            }
        }
    }

    /// What a service answers with.
    pub(super) fn stream_reply(&self, reply: &Plan<'_>, part: &Plan<'_>) -> TokenStream {
        let message = &reply.message.name;
        let kind = &self.stems[message.as_str()].1;
        let (name, later) = (format_ident!("{kind}Reply"), format_ident!("{kind}LaterReply"));
        let (of, index, parameters) = (self.output_type(part), &part.index, self.parameters(part));
        let encoding = self.encoding(part, &quote!(out), &quote!());
        let form = part.is_versioned().then(|| quote!(let form = self.0.form(#index);));
        let later_form = part.is_versioned().then(|| quote!(let form = self.0.form();));
        let pulled = self.encode_output(part, &quote!(part), &quote!(out));
        let bytes = reply.bytes();
        let reply_docs = docs(&[format!(
            "The answer to `{message}`: a stream of parts. Dropping it tells the caller."
        )]);
        let all_docs = docs(&[
            "Sends what the iterator gives, as fast as the client takes it, and ends the stream. The service's thread asks"
                .to_owned(),
            "the iterator, at once and within later calls of `serve_one`: it must not wait, nor lock what the handler has"
                .to_owned(),
            "locked. It is dropped once the client wants no more, or has gone.".to_owned(),
        ]);
        let (results, fail, later_fail) = match reply.errors {
            None => (None, None, None),
            Some(set) => {
                let (set, send) = (self.error_name(&set.name), self.send_error(reply));
                let error = self.encode_error(reply, &quote!(out));
                let results = quote! {
                    #[doc = " Like [`send_all`](Self::send_all), for an iterator that may fail, which ends the stream with the error."]
                    pub fn send_results<I>(self, parts: I)
                    where
                        I: IntoIterator<Item = Result<#of, #set>>,
                        I::IntoIter: Send + 'static,
                    {
                        #form
                        let mut parts = parts.into_iter();
                        self.0.stream(move |out| match parts.next() {
                            Some(Ok(part)) => {
                                #pulled?;
                                Ok(corewire_bind::Pulled::Part)
                            }
                            Some(Err(error)) => {
                                #error?;
                                Ok(corewire_bind::Pulled::Failed)
                            }
                            None => {
                                codec::begin(out, #bytes);
                                Ok(corewire_bind::Pulled::End)
                            }
                        });
                    }
                };
                let fail = quote! {
                    #[doc = " Answers with an error, without a part."]
                    pub fn fail(self, error: #set) { #send }
                };
                let later_fail = quote! {
                    #[doc = " Ends the stream with an error."]
                    pub fn fail(self, error: #set) {
                        let this = (self.0.end(),);
                        this.0.failing().send_with(|out, _| #error);
                    }
                };
                (Some(results), Some(fail), Some(later_fail))
            }
        };
        let asker = asker();
        quote! {
            #reply_docs
            #[derive(Debug)]
            #[must_use = "a reply that is dropped tells its caller"]
            pub struct #name<'a>(corewire_bind::Reply<'a>);

            impl #name<'_> {
                #asker

                #all_docs
                pub fn send_all<I>(self, parts: I)
                where
                    I: IntoIterator<Item = #of>,
                    I::IntoIter: Send + 'static,
                {
                    #form
                    let mut parts = parts.into_iter();
                    self.0.stream(move |out| match parts.next() {
                        Some(part) => {
                            #pulled?;
                            Ok(corewire_bind::Pulled::Part)
                        }
                        None => {
                            codec::begin(out, #bytes);
                            Ok(corewire_bind::Pulled::End)
                        }
                    });
                }

                #results

                #fail

                #[doc = " Keeps the stream for later. It may go to another thread, which sends the parts."]
                pub fn later(self) -> #later {
                    #later(self.0.stream_later(#index))
                }
            }

            #reply_docs
            #[derive(Debug)]
            #[must_use = "a reply that is dropped tells its caller"]
            pub struct #later(corewire_bind::PartSender);

            impl #later {
                #[doc = " The client that asked."]
                pub const fn client(&self) -> corewire_bind::ClientId {
                    self.0.client()
                }

                #[doc = " Its process, as the kernel says."]
                pub const fn identity(&self) -> corewire_bind::Identity {
                    self.0.identity()
                }

                #[doc = " Sends a part. Waits while the client has not taken what was sent before."]
                #[doc = ""]
                #[doc = " # Errors"]
                #[doc = " `Cancelled` if the client wants no more, or has gone; `Busy` within a handler of the service, which must"]
                #[doc = " not wait; an argument is longer than its bound. The part was not sent."]
                pub fn send(&self, #parameters) -> Result<(), corewire_bind::CallError> {
                    #later_form
                    self.0.send_with(None, |out| #encoding)
                }

                #[doc = " Like [`send`](Self::send), but waits for at most `timeout`; for zero, not at all."]
                #[doc = ""]
                #[doc = " # Errors"]
                #[doc = " As for [`send`](Self::send); `Timeout`, or `Busy` if it does not wait."]
                pub fn send_timeout(
                    &self,
                    #parameters
                    timeout: std::time::Duration,
                ) -> Result<(), corewire_bind::CallError> {
                    #later_form
                    self.0.send_with(Some(timeout), |out| #encoding)
                }

                #[doc = " Whether the client wants no more, or has gone."]
                pub fn is_cancelled(&self) -> bool {
                    self.0.is_cancelled()
                }

                #[doc = " Waits until that is so, for at most `timeout`. False if the client still wants more."]
                pub fn is_cancelled_within(&self, timeout: std::time::Duration) -> bool {
                    self.0.is_cancelled_within(timeout)
                }

                #[doc = " Ends the stream."]
                pub fn end(self) {
                    self.0.end().send(&[0; #bytes]);
                }

                #later_fail
            }
        }
    }

    /// Code that encodes a part that a program owns.
    fn encode_output(
        &self,
        part: &Plan<'_>,
        value: &TokenStream,
        out: &TokenStream,
    ) -> TokenStream {
        let encode = &part.encode;
        let form = part.is_versioned().then(|| quote!(form,));
        let passed = part.fields.iter().zip(&part.arguments).map(|(field, (_, argument))| {
            let place = match part.arguments.len() {
                1 => quote!(#value),
                _ => quote!(#value.#field),
            };
            self.pass(&argument.of, &place)
        });
        quote!(#encode(#form #out, #(#passed),*))
    }
}
