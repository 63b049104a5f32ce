//! `corewire-study`: the papers' experiments on the reader's own machine.
#![allow(dead_code)]

mod results;

fn main() {}
