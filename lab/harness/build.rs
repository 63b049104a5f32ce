//! Makes Rust of the interface whose calls are measured.

fn main() {
    corewire_idl::build::compile("measured.if");
}
