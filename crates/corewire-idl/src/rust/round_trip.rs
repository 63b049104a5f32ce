//! Tests of generated code that are generated, too: every message of an interface with random arguments. What they call
//! is `testing/interfaces/src/trip.rs`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::plan::Plan;
use super::walk::number;
use super::{GenerateError, Generator, spaced};
use crate::form::{
    Builtin, CapabilityKind, Definition, EnumValue, Interface, Resolved, Type, TypeDecl,
};

/// A function `run`, which sends every message of an interface, with random arguments and a number of times, and compares
/// what arrives. `path` is the module of the interface's own code.
///
/// # Errors
/// As for [`generate`](super::generate).
pub fn round_trip(interface: &Interface, path: &str) -> Result<String, GenerateError> {
    let generator = Generator::new(interface);
    let invalid =
        |reason: String| GenerateError::Invalid { interface: interface.name.clone(), reason };
    let path = path.parse::<TokenStream>().map_err(|error| invalid(error.to_string()))?;
    let (shows, service, run) = (generator.shows(), generator.answers(), generator.run());
    let code = quote! {
        use corewire_interfaces::trip;
        use #path::*;
        #shows
        #service
        #run
    };
    let file = syn::parse2::<syn::File>(code).map_err(|error| invalid(error.to_string()))?;
    Ok(spaced(&prettyplease::unparse(&file)))
}

impl Generator<'_> {
    /// How values of declared types are compared.
    fn shows(&self) -> TokenStream {
        let types = self.interface.types.iter().filter_map(|decl| self.show(decl));
        let errors = self.interface.errors.iter().map(|set| {
            let name = self.error_name(&set.name);
            quote! {
                impl trip::Show for #name {
                    fn show(&self, out: &mut String) { trip::Show::show(&self.value(), out); }
                }
            }
        });
        types.chain(errors).collect()
    }

    fn show(&self, decl: &TypeDecl) -> Option<TokenStream> {
        let name = self.type_name(&decl.name);
        let body = match &decl.definition {
            Definition::Struct { fields } => fields
                .iter()
                .map(|field| {
                    let field = self.field(&decl.name, &field.name);
                    quote!(trip::Show::show(&self.#field, out);)
                })
                .collect(),
            Definition::Union { arms, .. } => {
                let arms = arms.iter().zip(0_u32..).map(|(arm, index)| {
                    let arm = self.field(&decl.name, &arm.name);
                    quote!(Self::#arm(value) => trip::Show::show(&(#index, value), out),)
                });
                quote!(match self { #(#arms)* })
            }
            // Values may have several names.
            Definition::Enum { .. } => quote!(trip::Show::show(&self.value(), out)),
            _ => return None,
        };
        Some(quote! {
            impl trip::Show for #name {
                fn show(&self, out: &mut String) { #body }
            }
        })
    }

    /// An expression for a random value. `random` is the source.
    fn random(&self, of: &Type) -> TokenStream {
        match of {
            Type::Builtin { builtin: Builtin::Bool } => quote!(random.flag()),
            Type::Builtin { builtin } => {
                let name = format_ident!("{}", number(*builtin));
                quote!(random.number() as #name)
            }
            Type::String { bytes_max } => quote!(random.text(#bytes_max)),
            Type::Vector { element, count_max } => {
                let element = self.random(element);
                quote!(random.list(#count_max, |random| #element))
            }
            Type::Optional { of } => {
                let of = self.random(of);
                quote!(random.maybe(|random| #of))
            }
            Type::Capability { capability: CapabilityKind::Endpoint } => quote!(random.endpoint()),
            Type::Capability { capability } if capability.is_nullable() => {
                quote!(random.maybe(|random| random.descriptor()))
            }
            Type::Capability { .. } => quote!(random.descriptor()),
            Type::Channel { .. } => quote!(random.channel()),
            Type::Client { .. } => quote!(random.service()),
            Type::Named { name } => match self.interface.type_named(name) {
                Some(decl) => self.random_declared(decl),
                None => TokenStream::new(),
            },
        }
    }

    fn random_declared(&self, decl: &TypeDecl) -> TokenStream {
        let name = self.type_name(&decl.name);
        match &decl.definition {
            Definition::Alias { target } => self.random(target),
            Definition::Struct { fields } => {
                let fields = fields.iter().map(|field| {
                    let (name, value) =
                        (self.field(&decl.name, &field.name), self.random(&field.of));
                    quote!(#name: #value,)
                });
                quote!(#name { #(#fields)* })
            }
            Definition::Array { element, .. } => {
                let element = self.random(element);
                quote!(random.array(|random| #element))
            }
            Definition::Union { arms, .. } => {
                let count = arms.len();
                let arms = arms.iter().enumerate().map(|(index, arm)| {
                    let (variant, value) =
                        (self.field(&decl.name, &arm.name), self.random(&arm.of));
                    let pattern = if index + 1 == count { quote!(_) } else { quote!(#index) };
                    quote!(#pattern => #name::#variant(#value),)
                });
                quote!(match random.below(#count) { #(#arms)* })
            }
            Definition::Enum { flexible, values } => {
                let name = quote!(#name);
                self.random_value(&decl.name, &name, values, *flexible)
            }
        }
    }

    fn random_value(
        &self,
        of: &str,
        name: &TokenStream,
        values: &[EnumValue],
        flexible: bool,
    ) -> TokenStream {
        let known = values.iter().map(|one| {
            let variant = self.field(of, &one.name);
            quote!(#name::#variant)
        });
        // A number that may have a name: it arrives as that.
        let unknown = flexible.then(|| quote!(#name::Unknown(random.below(1000) as i32 + 1)));
        let all = known.chain(unknown).collect::<Vec<_>>();
        let count = all.len();
        quote!([#(#all),*][random.below(#count)])
    }

    /// A random value, `name`, as an argument.
    fn pass(&self, of: &Type, name: &TokenStream) -> TokenStream {
        if self.is_fixed(of) {
            return name.clone();
        }
        let lend = quote!(as_ref().map(std::os::fd::AsFd::as_fd));
        match self.interface.resolve(of) {
            Resolved::Plain(Type::Capability { capability }) => match capability {
                CapabilityKind::GiveAwayCap => quote!(&mut #name),
                CapabilityKind::Cap => quote!(#name.#lend),
                CapabilityKind::Fd => quote!(std::os::fd::AsFd::as_fd(&#name)),
                CapabilityKind::Endpoint => quote!(&#name),
            },
            Resolved::Plain(Type::Optional { of }) => match self.interface.resolve(of) {
                Resolved::Plain(Type::String { .. } | Type::Vector { .. }) => {
                    quote!(#name.as_deref())
                }
                Resolved::Plain(Type::Capability { capability: CapabilityKind::Fd }) => {
                    quote!(#name.#lend)
                }
                _ => quote!(#name.as_ref()),
            },
            _ => quote!(&#name),
        }
    }

    /// Random arguments of a message: code that makes them, that shows them, and that passes them.
    fn arguments(&self, plan: &Plan<'_>) -> (TokenStream, TokenStream, Vec<TokenStream>) {
        let names = (0..plan.arguments.len()).map(|index| format_ident!("a{index}"));
        let all = names.zip(&plan.arguments).map(|(name, (_, argument))| {
            let value = self.random(&argument.of);
            let name = quote!(#name);
            let is_given = self.pass(&argument.of, &name).to_string().starts_with("& mut");
            let mutable = is_given.then(|| quote!(mut));
            (
                quote!(let #mutable #name = #value;),
                quote!(trip::Show::show(&#name, out);),
                self.pass(&argument.of, &name),
            )
        });
        let (mut lets, mut shows, mut passed) = (Vec::new(), Vec::new(), Vec::new());
        for (one, show, pass) in all {
            lets.push(one);
            shows.push(show);
            passed.push(pass);
        }
        (quote!(#(#lets)*), quote!(|out| { let _ = &out; #(#shows)* }), passed)
    }

    /// A service that compares what arrives, and answers with random values.
    fn answers(&self) -> TokenStream {
        let plans = self.plans();
        let methods = plans.iter().filter(|plan| plan.is_to_service()).map(|plan| {
            let (stem, kind) = &self.stems[plan.message.name.as_str()];
            let method = super::names::ident(stem);
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
            let name = self.error_name(set);
            let values = self.interface.error_set(set).map(|set| set.values.as_slice());
            let value = self.random_value(set, &quote!(#name), values.unwrap_or_default(), true);
            quote! {
                if random.below(4) == 0 {
                    let error = #value;
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
            trip::Sent::check(reply.send(#(#passed),*));
        }
    }

    fn run(&self) -> TokenStream {
        let plans = self.plans();
        let requests = plans.iter().filter(|plan| plan.is_to_service());
        let requests = requests.map(|plan| match self.reply_to(plan, &plans) {
            Some(reply) => self.call(plan, reply),
            None => self.send(plan),
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
        let output = match reply.arguments.len() {
            0 => quote!(let () = output;),
            1 => quote!(trip::Show::show(&output, out);),
            _ => {
                let fields = &reply.fields;
                quote!(#(trip::Show::show(&output.#fields, out);)*)
            }
        };
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
        let (method, variant) = (super::names::ident(stem), super::names::ident(kind));
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
