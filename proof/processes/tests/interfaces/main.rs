//! Generated code: codecs, calls, versions, descriptors, torture.

mod calls;
mod codec;
mod corpus;
mod json;
mod names;
mod policy;
mod rights;
mod round_trips;
mod sizes;
mod streams;
mod tasks;
mod torture;
#[path = "../../../../crates/corewire-idl/tests/common/values.rs"]
mod values;
mod versions;
