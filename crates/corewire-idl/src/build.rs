//! For build scripts: Rust from interface files.

use std::path::{Path, PathBuf};

use crate::{Check, rust};

/// Compiles the interface file at `path` to `$OUT_DIR/NAME.rs`, where `NAME` is that of the file. Tells cargo to run the
/// build script again when a file that was read changes. On errors it prints them, and ends the build.
///
/// ```no_run
/// // build.rs
/// corewire_idl::build::compile("calc.if");
/// ```
///
/// The program takes the code with `corewire_bind::interface!(calc);`.
pub fn compile(path: impl AsRef<Path>) {
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from);
    let Some(out) = out else {
        fail("OUT_DIR is not set: `compile` is for build scripts");
    };
    match compile_to(path.as_ref(), &out) {
        Ok(read) => {
            for file in read {
                println!("cargo::rerun-if-changed={}", file.display());
            }
        }
        Err(text) => fail(&text),
    }
}

/// Like [`compile`], to a folder of the caller's choice. Returns the files that were read.
///
/// # Errors
/// All errors of the file, rendered, or why a file cannot be read or written.
pub fn compile_to(path: &Path, out: &Path) -> Result<Vec<PathBuf>, String> {
    let shown = path.display();
    let check = Check::path(path).map_err(|error| format!("{shown}: {error}"))?;
    let checked = check.run();
    let read = checked.diagnostics.sources().iter().map(|one| PathBuf::from(one.name())).collect();
    let (interface, diagnostics) =
        checked.into_result().map_err(|diagnostics| diagnostics.render(false))?;
    for line in diagnostics.render(false).lines() {
        println!("cargo::warning={line}");
    }
    let code = rust::generate(&interface).map_err(|error| format!("{shown}: {error}"))?;
    let stem = path.file_stem().ok_or_else(|| format!("{shown}: no file name"))?;
    let target = out.join(stem).with_extension("rs");
    std::fs::write(&target, code).map_err(|error| format!("{}: {error}", target.display()))?;
    Ok(read)
}

fn fail(text: &str) -> ! {
    eprintln!("{text}");
    std::process::exit(1)
}
