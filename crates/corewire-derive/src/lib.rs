//! The macros behind typed channels. Use them through the crate `corewire`, which exports both.
//!
//! | macro | adds |
//! |---|---|
//! | [`message`](macro@message) | a fixed layout, the traits of `zerocopy`, and `MessageType` |
//! | [`MessageType`](derive@MessageType) | `MessageType` alone: the type's name and the hash of its schema |

#![forbid(unsafe_code)]

mod derive;
mod message;
mod options;

use proc_macro::TokenStream;

/// Documented where users find it: as `corewire::message`.
#[proc_macro_attribute]
pub fn message(options: TokenStream, item: TokenStream) -> TokenStream {
    message::expand(options.into(), item.into()).into()
}

/// Documented where users find it: as `corewire::MessageType`.
#[proc_macro_derive(MessageType, attributes(corewire))]
pub fn derive_message_type(item: TokenStream) -> TokenStream {
    derive::expand(item.into()).into()
}
