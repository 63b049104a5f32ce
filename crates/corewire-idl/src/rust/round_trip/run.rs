//! The client, which sends everything, and compares what comes back.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use crate::rust::plan::Plan;
use crate::rust::{Generator, names};

impl Generator<'_> {
    pub(super) fn run(&self) -> TokenStream {
        let plans = self.plans();
        let requests = plans.iter().filter(|plan| plan.is_to_service());
        let requests =
            requests.map(|plan| match (self.reply_to(plan, &plans), self.part_of(plan, &plans)) {
                (Some(reply), Some(part)) => self.stream_trip(plan, reply, part),
                (Some(reply), None) => self.call(plan, reply),
                (None, _) => self.send(plan),
            });
        let events = plans.iter().filter(|plan| plan.is_event()).map(|plan| self.event_trip(plan));
        let has_events = plans.iter().any(Plan::is_event);
        let outbox = has_events.then(|| quote!(let outbox = server.outbox();));
        let all = requests.chain(events).collect::<TokenStream>();
        let count = plans.len();
        quote! {
            /// Sends every message `count` times. Returns how many were compared.
            pub fn run(
                domain: &corewire_bind::Domain,
                driver: corewire_bind::Driver,
                count: u32,
                seed: u64,
            ) -> u64 {
                let trip = std::sync::Arc::new(trip::Trip::default());
                let service = Round_trip {
                    trip: std::sync::Arc::clone(&trip),
                    random: trip::Random::new(seed + 1, domain),
                };
                let mut server = Server::new(domain, "trip", service).unwrap();
                #outbox
                let stop = trip::Stop(server.stopper());
                std::thread::scope(|scope| {
                    scope.spawn(move || server.serve().unwrap());
                    let stop = stop;
                    let bind = corewire_bind::Bind::default().drivers([driver]);
                    let mut client = Client::bind(domain, "trip", &bind).unwrap();
                    let random = &mut trip::Random::new(seed, domain);
                    for _ in 0..count {
                        #all
                    }
                    trip.settle(0);
                    drop(stop);
                });
                u64::from(count) * #count as u64
            }
        }
    }

    fn call(&self, plan: &Plan<'_>, reply: &Plan<'_>) -> TokenStream {
        let method = self.method_names(plan).name;
        let (lets, shows, passed) = self.arguments(plan);
        let place = &reply.wire.name;
        let output = output(reply);
        let error = reply.message.errors.as_ref().map(|_| {
            quote! {
                Err(corewire_bind::Failed::Service(error)) => {
                    trip.answered(#place, |out| trip::Show::show(&error, out));
                }
            }
        });
        quote! {{
            let _ = &random;
            #lets
            trip.sends(#shows);
            match client.#method(#(#passed),*) {
                Ok(output) => trip.answered(#place, |out| { let _ = &out; #output }),
                #error
                Err(other) => panic!("{}: {other:?}", #place),
            }
        }}
    }

    /// A stream: all of it, or it is dropped in the middle.
    fn stream_trip(&self, plan: &Plan<'_>, reply: &Plan<'_>, part: &Plan<'_>) -> TokenStream {
        let method = self.method_names(plan).name;
        let (lets, shows, passed) = self.arguments(plan);
        let (place, end) = (&part.wire.name, &reply.wire.name);
        let output = output(part);
        let error = reply.message.errors.as_ref().map(|_| {
            quote! {
                Err(corewire_bind::Failed::Service(error)) => {
                    trip.answered(#end, |out| trip::Show::show(&error, out));
                }
            }
        });
        quote! {{
            let _ = &random;
            #lets
            trip.sends(#shows);
            for part in client.#method(#(#passed),*).unwrap() {
                match part {
                    Ok(output) => trip.answered(#place, |out| { let _ = &out; #output }),
                    #error
                    Err(other) => panic!("{}: {other:?}", #place),
                }
            }
            trip.finished(#end);
        }}
    }

    fn send(&self, plan: &Plan<'_>) -> TokenStream {
        let method = self.method_names(plan).name;
        let (lets, shows, passed) = self.arguments(plan);
        // Few descriptors may be on their way at one time.
        let left: usize = if plan.has_capabilities() { 0 } else { 32 };
        quote! {{
            let _ = &random;
            #lets
            trip.sends(#shows);
            client.#method(#(#passed),*).unwrap();
            trip.settle(#left);
        }}
    }

    fn event_trip(&self, plan: &Plan<'_>) -> TokenStream {
        let (stem, kind) = &self.stems[plan.message.name.as_str()];
        let (method, variant) = (names::ident(stem), names::ident(kind));
        let (lets, shows, passed) = self.arguments(plan);
        let (place, fields) = (&plan.wire.name, &plan.fields);
        let names = (0..fields.len()).map(|index| format_ident!("a{index}")).collect::<Vec<_>>();
        let pattern = (!fields.is_empty()).then(|| quote!({ #(#fields: #names),* }));
        let one = self.plans().iter().filter(|plan| plan.is_event()).count() == 1;
        let other = (!one).then(|| quote!(other => panic!("{}: {other:?}", #place),));
        quote! {{
            let _ = &random;
            #lets
            trip.answers(#shows);
            outbox.#method(trip.client(), #(#passed),*).unwrap();
            match client.event().unwrap() {
                Event::#variant #pattern => {
                    trip.answered(#place, |out| { let _ = &out; #(trip::Show::show(&#names, out);)* });
                }
                #other
            }
        }}
    }
}

/// Code that shows what a call or a stream gave.
fn output(plan: &Plan<'_>) -> TokenStream {
    match plan.arguments.len() {
        0 => quote!(let () = output;),
        1 => quote!(trip::Show::show(&output, out);),
        _ => {
            let fields = &plan.fields;
            quote!(#(trip::Show::show(&output.#fields, out);)*)
        }
    }
}
