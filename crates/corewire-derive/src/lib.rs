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

/// Declares a struct as a type of messages.
///
/// It needs nothing else, and no other crate: the struct gets `#[repr(C)]` unless it says
/// `#[repr(C)]` or `#[repr(transparent)]` itself, the traits of `zerocopy` that make its bytes a
/// message (`FromBytes`, `IntoBytes`, `KnownLayout`, `Immutable`), and `MessageType`.
///
/// ```
/// #[corewire::message]
/// #[derive(Debug, Clone, Copy, PartialEq)]
/// struct Tick {
///     price: u64,
///     volume: u64,
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("corewire-doc-message-{}", std::process::id()));
/// # let domain = corewire::Domain::open_at(&dir)?;
/// let mut sender = domain.sender("ticks").create_typed::<Tick>()?;
/// let mut receiver = domain.receiver("ticks").join_typed::<Tick>()?;
/// sender.send(&Tick { price: 101, volume: 7 })?;
/// assert_eq!(*receiver.receive()?, Tick { price: 101, volume: 7 });
/// # drop((receiver, sender, domain)); std::fs::remove_dir_all(&dir)?;
/// # Ok(())
/// # }
/// ```
///
/// # What both sides must agree on
///
/// The name of the struct; its size and alignment; the name, the type and the offset of each field.
/// A program that swaps two fields, renames one, or makes a `u32` an `f32` is refused when it joins,
/// with an error that names both types. The type of a field is compared by its own schema if it is a
/// message type (numbers, arrays of message types, and structs declared like this one are), else by
/// its size, its alignment and the text with which it is written.
///
/// The module does not count. A name of 1 to 64 printable ASCII characters can be given. Change it
/// when the meaning of a field changes and its name does not:
///
/// ```
/// #[corewire::message(name = "example.Tick.2")]
/// struct Tick {
///     /// In cents. Version 1 had euros.
///     price: u64,
///     volume: u64,
/// }
/// # use corewire::MessageType;
/// # assert_eq!(Tick::NAME, "example.Tick.2");
/// ```
///
/// # What is refused by the compiler
///
/// Padding, since its bytes would carry whatever was in memory. Name the gap as a field:
///
/// ```compile_fail
/// #[corewire::message]
/// struct Sample {
///     kelvin: f32, // 4 bytes of padding follow
///     time_ns: u64,
/// }
/// ```
///
/// ```
/// #[corewire::message]
/// struct Sample {
///     kelvin: f32,
///     unused: [u8; 4],
///     time_ns: u64,
/// }
/// ```
///
/// Types for which not all bytes are valid (`bool`, `char`, enums: send a number), references,
/// pointers, generic structs, enums and unions; an alignment of more than 64 bytes, or of more than
/// 16 for up to 48 bytes.
///
/// # Options
///
/// - `name = "..."`: the name, if not the struct's.
/// - `crate = "..."`: the path of the crate `corewire`, if it is not `::corewire`.
#[proc_macro_attribute]
pub fn message(options: TokenStream, item: TokenStream) -> TokenStream {
    message::expand(options.into(), item.into()).into()
}

/// Implements `MessageType` for a struct that has `#[repr(C)]` or `#[repr(transparent)]` and the
/// traits of `zerocopy` already.
///
/// [`#[corewire::message]`](macro@message) adds all of these, and is the usual way. This derive is
/// for a struct that is declared with `zerocopy` for other reasons, too.
///
/// ```
/// use corewire::MessageType;
/// use corewire::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
///
/// #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, MessageType)]
/// #[zerocopy(crate = "corewire::zerocopy")] // not needed if the program depends on zerocopy
/// #[corewire(name = "example.Tick.1")] // the options of #[corewire::message]
/// #[repr(C)]
/// struct Tick {
///     price: u64,
///     volume: u64,
/// }
/// # assert_eq!(Tick::NAME, "example.Tick.1");
/// ```
#[proc_macro_derive(MessageType, attributes(corewire))]
pub fn derive_message_type(item: TokenStream) -> TokenStream {
    derive::expand(item.into()).into()
}
