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
                    let answer = self.answer(reply);
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
