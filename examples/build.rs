//! Makes Rust of the interfaces of the examples.

use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    corewire_idl::build::compile("calculator/calculator.if");
    corewire_idl::build::compile("events/weather.if");
    corewire_idl::build::compile("file_server/files.if");
    corewire_idl::build::compile("shop/shop.if");
    corewire_idl::build::compile("tutorial/calc.if");
    // Three files of one name.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("no OUT_DIR")?);
    for version in ["1", "2", "3"] {
        let file = Path::new("versions").join(version).join("greeter.if");
        std::fs::create_dir_all(out.join(version))?;
        for read in corewire_idl::build::compile_to(&file, &out.join(version))? {
            println!("cargo::rerun-if-changed={}", read.display());
        }
    }
    Ok(())
}
