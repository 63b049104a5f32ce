//! This crate compiles the rings' own source with the variant of their `sync` module that counts
//! accesses.

fn main() {
    println!("cargo:rustc-cfg=corewire_coherence");
    println!("cargo:rerun-if-changed=build.rs");
}
