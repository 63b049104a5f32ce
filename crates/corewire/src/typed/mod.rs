//! The types that messages can have.
//!
//! A sender and a receiver are generic over what their messages hold (`T`). Bytes are the case `[u8]`, which is the
//! default and the only payload without a fixed size. Calls that do the same for both are written once, for every
//! [`Payload`](payload::Payload). Calls that differ have one name and two forms: `loan(bytes)` for `[u8]`, and `loan()`
//! for a [`MessageType`](schema::MessageType). The compiler keeps the two forms apart because message types are sized.
//!
//! Joining compares a hash of the type's fields, which `corewire-derive` computes; a refusal names both types.
//!
//! What does not depend on `T` is in a private type (`Untyped`), so that it is compiled once.

pub(crate) mod payload;
pub(crate) mod schema;
