//! Rust from interfaces: types, a client and a service, on `corewire-bind` alone.
//!
//! | file | makes |
//! |---|---|
//! | `types.rs` | structs, enumerations, arrays, aliases, constants, errors |
//! | `unions.rs` | unions, and what encodes and decodes them |
//! | `details.rs` | errors with details, and what encodes and decodes them |
//! | `messages.rs`, `encoding.rs`, `decoding.rs` | for each message and its earlier versions: encoding and decoding |
//! | `results.rs` | what calls give |
//! | `client.rs`, `calls.rs`, `one_way.rs` | `Client` |
//! | `streams.rs` | calls whose answer is a stream, on both sides |
//! | `asynchronous.rs` | `AsyncClient` for tasks |
//! | `events.rs` | `Event` for what the service sends |
//! | `service.rs`, `server.rs` | the trait `Service`, what calls it, and `Server` |
//! | `replies.rs` | replies, and `Outbox` |
//! | `description.rs` | what both sides compare when they bind, and the JSON form |
//! | `plan.rs` | what all of these know of a message |
//! | `walk/` | the code that runs the operations of one message |
//! | `generator.rs`, `names.rs` | names that Rust accepts |
//! | `values.rs` | types of values |
//! | `round_trip/` | tests of all of this |

mod asynchronous;
mod calls;
mod client;
mod decoding;
mod description;
mod details;
mod encoding;
mod events;
mod generator;
mod messages;
mod names;
mod one_way;
mod plan;
mod replies;
mod results;
#[cfg(feature = "test-hooks")]
mod round_trip;
mod server;
mod service;
mod streams;
mod types;
mod unions;
mod values;
mod walk;

#[cfg(feature = "test-hooks")]
pub use self::round_trip::round_trip;

use proc_macro2::TokenStream;
use quote::quote;

use self::generator::Generator;
use crate::form::Interface;

/// Why there is no Rust for an interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The generated code is not Rust: a mistake in the generator, or a form that was put together by hand and is wrong.
    #[error("the code for interface `{interface}` is wrong: {reason}")]
    Invalid {
        /// The interface.
        interface: String,
        /// What the parser says.
        reason: String,
    },
}

/// The module of an interface in Rust, formatted.
///
/// ```
/// use corewire_idl::{Check, Source, rust};
///
/// let text = "interface calc \"\" { rpc twice(in int32 x, out int32 y); };";
/// let (interface, _) = Check::new(Source::new("calc.if", text)).run().into_result().unwrap();
/// let code = rust::generate(&interface).unwrap();
/// assert!(code.contains("pub fn twice(&mut self, x: i32) -> Result<i32, corewire_bind::CallError>"));
/// ```
///
/// # Errors
/// [`GenerateError::Invalid`]: a mistake in the generator, or in a form that was put together by hand.
pub fn generate(interface: &Interface) -> Result<String, GenerateError> {
    let generator = Generator::new(interface);
    let invalid =
        |reason: String| GenerateError::Invalid { interface: interface.name.clone(), reason };
    let disagrees = |_| invalid("its form does not agree with itself".to_owned());
    let code = [
        generator.types().map_err(disagrees)?,
        generator.messages().map_err(disagrees)?,
        generator.events(),
        generator.client(),
        generator.asynchronous(),
        generator.service(),
        generator.replies(),
        generator.server(),
        generator.dispatch(),
        generator.description(),
    ];
    let file = syn::parse2::<syn::File>(code.into_iter().collect())
        .map_err(|error| invalid(error.to_string()))?;
    let mut text = format!(
        "// Made from interface `{}` by corewire-idl. Changes will be lost.\n\n",
        interface.name
    );
    for item in file.items {
        let one = syn::File { shebang: None, attrs: Vec::new(), items: vec![item] };
        text.push_str(&spaced(&prettyplease::unparse(&one)));
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    Ok(text)
}

/// An empty line between methods.
fn spaced(item: &str) -> String {
    let mut out = String::with_capacity(item.len());
    let mut ended = false;
    for line in item.lines() {
        if ended && line != "}" {
            out.push('\n');
        }
        ended = line == "    }";
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Lines of documentation.
fn docs(lines: &[String]) -> TokenStream {
    lines
        .iter()
        .map(|line| {
            let line = format!(" {line}");
            quote!(#[doc = #line])
        })
        .collect()
}

/// The lines of the file, or this one if there are none.
fn docs_or(lines: &[String], otherwise: &str) -> TokenStream {
    if lines.is_empty() { docs(&[otherwise.to_owned()]) } else { docs(lines) }
}
