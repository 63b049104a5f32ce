//! Makes Rust of the interfaces of the tests, and of other versions of them.

use std::path::{Path, PathBuf};

use corewire_idl::build::{compile, compile_to};
use corewire_idl::rust::{generate, round_trip};
use corewire_idl::{Check, Source};

#[path = "../../crates/corewire-idl/tests/common/positions.rs"]
mod positions;
#[path = "../../crates/corewire-idl/tests/common/words.rs"]
mod words;

/// A text of a file, and what stands there instead.
type Change = (&'static str, &'static str);

/// A version of a file: its folder in `OUT_DIR`, the file, and what differs.
const VERSIONS: &[(&str, &str, &[Change])] = &[
    (
        "other",
        "if/all.if",
        &[("eight @11(in uint64 value,", "eight @11(in uint64 value, in uint8 more,")],
    ),
    ("old", "if/versions/old.if", &[]),
    ("middle", "if/versions/new.if", &[(" in optional<String[16]> name,", "")]),
    ("new", "if/versions/new.if", &[]),
    ("broken", "if/versions/new.if", &[("note @2(uint32 number", "note @2(uint64 number")]),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    compile("if/all.if");
    compile("if/newer.if");
    compile("if/parts.if");
    compile("if/short.if");
    compile("if/sizes.if");
    compile("if/torture.if");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    for name in ["all", "newer"] {
        let (interface, _) = Check::path(Path::new(&format!("if/{name}.if")))?
            .run()
            .into_result()
            .map_err(|diagnostics| diagnostics.render(false))?;
        let code = round_trip(&interface, &format!("crate::interfaces::{name}"))?;
        std::fs::write(out.join(format!("{name}_round_trip.rs")), code)?;
    }
    words_to(&out)?;
    for (folder, file, changes) in VERSIONS {
        println!("cargo::rerun-if-changed={file}");
        let mut text = std::fs::read_to_string(file)?;
        for (before, after) in *changes {
            assert!(text.contains(before), "{before}");
            text = text.replace(before, after);
        }
        // Files are named as their interface.
        let name = if Path::new(file).ends_with("all.if") { "all.if" } else { "evolving.if" };
        let folder = out.join(folder);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), text)?;
        compile_to(&folder.join(name), &folder)?;
    }
    Ok(())
}

/// Modules in which every word is the name of everything that has one.
fn words_to(out: &Path) -> Result<(), Box<dyn std::error::Error>> {
    for file in ["positions.rs", "words.rs"] {
        println!("cargo::rerun-if-changed=../../crates/corewire-idl/tests/common/{file}");
    }
    let mut modules = String::new();
    for (name, text) in positions::interfaces() {
        let checked = Check::new(Source::new(format!("{name}.if"), text)).run();
        let (interface, _) = checked.into_result().map_err(|all| all.render(false))?;
        modules += &format!("pub mod {name} {{ {} }}\n", generate(&interface)?);
    }
    std::fs::write(out.join("words.rs"), modules)?;
    Ok(())
}
