//! Interface files: what is read, said, and made of them.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/interfaces.rs"]
mod interfaces;
#[path = "../common/values.rs"]
mod values;

mod c_header;
mod corpus;
mod diagnostics;
mod diff;
mod json;
mod properties;
mod rust;
