//! What both sides compare when they bind.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::Generator;

impl Generator<'_> {
    /// The description, and behind it the JSON form: a long line that nobody reads.
    pub(super) fn description(&self) -> TokenStream {
        let (name, hash) = (&self.interface.name, number(self.interface.hash.0));
        let wires = self.plans().into_iter().map(|plan| {
            let (name, hash) = (&plan.wire.name, number(plan.wire.hash.0));
            let (ordinal, bytes_max) = (plan.ordinal(), plan.bytes_max());
            let earlier = plan.wire.earlier.iter().map(|one| number(one.hash.0));
            quote! {
                corewire_bind::Wire {
                    name: #name,
                    ordinal: #ordinal,
                    hash: #hash,
                    bytes_max: #bytes_max,
                    earlier: &[#(#earlier),*],
                },
            }
        });
        // What is compared besides: no message has ordinal 0.
        let errors = self.interface.error_hashes().into_iter().map(|(name, hash)| {
            let hash = number(hash.0);
            quote!(corewire_bind::Wire { name: #name, ordinal: 0, hash: #hash, bytes_max: 0, earlier: &[] },)
        });
        let wires = wires.chain(errors);
        let form = raw(&serde_json::to_string(self.interface).unwrap_or_default());
        quote! {
            #[doc = " What both sides compare when they bind."]
            pub const DESCRIPTION: corewire_bind::Description<'static> = corewire_bind::Description {
                name: #name,
                hash: #hash,
                wires: &[#(#wires)*],
                form: FORM,
            };

            #[doc = " The interface in JSON, which the service gives out."]
            const FORM: &str = #form;
        }
    }
}

/// A hash as people compare it.
fn number(value: u64) -> TokenStream {
    format!("{value:#018x}").parse().unwrap_or_else(|_| quote!(#value))
}

/// A string without escapes. JSON has no line feeds outside of its layout.
fn raw(text: &str) -> Literal {
    let mut fence = "#".to_owned();
    while text.contains(&format!("\"{fence}")) {
        fence.push('#');
    }
    format!("r{fence}\"{text}\"{fence}").parse().unwrap_or_else(|_| Literal::string(text))
}
