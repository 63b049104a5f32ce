//! A service that compares what arrives, and answers with random values.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::values::any;
use crate::rust::plan::Plan;
use crate::rust::{Generator, names};

impl Generator<'_> {
    /// A service that compares what arrives, and answers with random values.
    pub(super) fn answers(&self) -> TokenStream {
        let plans = self.plans();
        let methods = plans.iter().filter(|plan| plan.is_to_service()).map(|plan| {
            let (stem, kind) = &self.stems[plan.message.name.as_str()];
            let method = names::ident(stem);
            let names = (0..plan.arguments.len()).map(|index| format_ident!("a{index}"));
            let names = names.collect::<Vec<_>>();
            let types = plan.arguments.iter().map(|(_, one)| self.arrived(&one.of, None));
            let place = &plan.wire.name;
            let arrived = quote! {
                self.trip.arrived(#place, |out| { let _ = &out; #(trip::Show::show(&#names, out);)* });
            };
            match self.reply_to(plan, &plans) {
                None => quote! {
                    fn #method(&mut self, #(#names: #types,)* _client: corewire_bind::ClientId) {
                        #arrived
                    }
                },
                Some(reply) => {
                    let of = format_ident!("{kind}Reply");
                    let answer = match self.part_of(plan, &plans) {
                        Some(part) => self.answer_in_parts(reply, part),
                        None => self.answer(reply),
                    };
                    quote! {
                        fn #method(&mut self, #(#names: #types,)* reply: #of<'_>) {
                            #arrived
                            let random = &mut self.random;
                            #answer
                        }
                    }
                }
            }
        });
        let methods = methods.collect::<TokenStream>();
        quote! {
            struct Round_trip {
                trip: std::sync::Arc<trip::Trip>,
                random: trip::Random,
            }

            impl Service for Round_trip {
                fn bound(&mut self, client: corewire_bind::ClientId, _: corewire_bind::Identity) {
                    self.trip.bound(client);
                }

                #methods
            }
        }
    }

    /// Up to 99 parts, from an iterator or from another thread, and perhaps an error.
    fn answer_in_parts(&self, reply: &Plan<'_>, part: &Plan<'_>) -> TokenStream {
        let value = match part.arguments.as_slice() {
            [(_, only)] => self.random(&only.of),
            all => {
                let (name, fields) = (self.output_name(part), &part.fields);
                let values = all.iter().map(|(_, one)| self.random(&one.of));
                quote!(#name { #(#fields: #values),* })
            }
        };
        let show = match part.arguments.len() {
            1 => quote!(trip::Show::show(part, out);),
            _ => {
                let fields = &part.fields;
                quote!(#(trip::Show::show(&part.#fields, out);)*)
            }
        };
        let passed = part.fields.iter().zip(&part.arguments).map(|(field, (_, argument))| {
            let place = match part.arguments.len() {
                1 => quote!(part),
                _ => quote!(part.#field),
            };
            self.pass(&argument.of, &place)
        });
        let send = quote! {
            let later = reply.later();
            std::thread::spawn(move || {
                for part in parts {
                    later.send(#(#passed),*).unwrap();
                }
                later.end();
            });
        };
        let fails = reply.message.errors.as_ref().map(|set| {
            let error = any(&self.error_name(set));
            quote! {
                if random.below(4) == 0 {
                    let error = #error;
                    self.trip.answers(|out| trip::Show::show(&error, out));
                    return reply.send_results(parts.into_iter().map(Ok).chain([Err(error)]));
                }
            }
        });
        quote! {
            let _ = &random;
            let parts: Vec<_> = (0..random.below(100)).map(|_| #value).collect();
            for part in &parts {
                self.trip.answers(|out| { #show });
            }
            #fails
            match random.below(2) {
                0 => reply.send_all(parts),
                _ => { #send }
            }
        }
    }

    fn answer(&self, reply: &Plan<'_>) -> TokenStream {
        let (lets, shows, passed) = self.arguments(reply);
        let fail = reply.message.errors.as_ref().map(|set| {
            let error = any(&self.error_name(set));
            quote! {
                if random.below(4) == 0 {
                    let error = #error;
                    self.trip.answers(|out| trip::Show::show(&error, out));
                    return reply.fail(error);
                }
            }
        });
        quote! {
            let _ = &random;
            #fail
            #lets
            self.trip.answers(#shows);
            reply.send(#(#passed),*);
        }
    }
}
