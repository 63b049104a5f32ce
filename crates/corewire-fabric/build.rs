//! Links the library so that it stays loaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // libfabric closes the libraries of its providers when it ends. This one has threads and fork handlers.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
