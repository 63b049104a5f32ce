//! Tests of generated code that are generated, too: every message of an interface with random arguments. What they call
//! is `proof/processes/src/interfaces/trip.rs`.
//!
//! | file | makes |
//! |---|---|
//! | `values.rs` | how values of declared types are compared, and random values |
//! | `service.rs` | a service that compares what arrives, and answers |
//! | `run.rs` | the function `run`: a client that sends everything |

mod run;
mod service;
mod values;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::plan::Plan;
use super::{GenerateError, Generator, spaced};
use crate::form::Interface;

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
    let (values, service, run) = (generator.values(), generator.answers(), generator.run());
    let code = quote! {
        use corewire_processes::interfaces::trip;
        use #path::*;
        #values
        #service
        #run
    };
    let file = syn::parse2::<syn::File>(code).map_err(|error| invalid(error.to_string()))?;
    Ok(spaced(&prettyplease::unparse(&file)))
}

impl Generator<'_> {
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
}
