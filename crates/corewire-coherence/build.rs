//! This crate compiles the rings' own source with the counting face of their `sync` module.

fn main() {
    println!("cargo:rustc-cfg=corewire_coherence");
    println!("cargo:rerun-if-changed=build.rs");
}
