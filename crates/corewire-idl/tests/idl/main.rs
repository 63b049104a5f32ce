//! Interface files: what is read, said, and made of them.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/interfaces.rs"]
mod interfaces;
#[path = "../common/positions.rs"]
mod positions;
#[path = "../common/values.rs"]
mod values;
#[path = "../common/words.rs"]
mod words;

mod c_header;
mod corpus;
mod diagnostics;
mod diff;
mod json;
mod names;
mod properties;
mod rust;
