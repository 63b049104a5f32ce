//! What users of generated code rely on, over every driver.

#[path = "../common/mod.rs"]
mod common;

mod awkward;
mod drivers;
mod hostile;
mod tasks;
