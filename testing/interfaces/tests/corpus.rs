//! Rust of Barrelfish's own interfaces, if there are any on this machine: see `crates/corewire-idl/tests/corpus.rs`.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use corewire_idl::corpus;
use corewire_idl::rust::generate;

#[test]
fn rust_of_all_interfaces_of_a_tree_compiles_without_a_warning() {
    let Ok(trees) = std::env::var("COREWIRE_INTERFACES") else {
        println!("skipped: COREWIRE_INTERFACES names no tree of interface files");
        return;
    };
    let root = std::env::temp_dir().join(format!("corewire-corpus-{}", std::process::id()));
    std::fs::create_dir_all(root.join("src")).unwrap();
    let mut modules = "#![forbid(unsafe_code)]\n#![deny(warnings)]\n".to_owned();
    let (mut made, mut files) = (0, 0);
    // Most interfaces are the same for each architecture.
    let mut seen = HashSet::new();
    for tree in trees.split(':') {
        for file in corpus::check_tree(Path::new(tree)).unwrap().files {
            files += usize::from(!file.interfaces.is_empty());
            for (_, interface) in &file.interfaces {
                let code =
                    generate(interface).unwrap_or_else(|error| panic!("{}: {error}", file.path));
                if seen.insert(code.clone()) {
                    std::fs::write(root.join(format!("src/m{made}.rs")), code).unwrap();
                    let lints = "#[allow(missing_docs, dead_code)]";
                    writeln!(modules, "{lints}\npub mod m{made};").unwrap();
                    made += 1;
                }
            }
        }
    }
    println!("{files} files with interfaces, {made} different modules");
    std::fs::write(root.join("src/lib.rs"), modules).unwrap();
    let bind = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../crates/corewire-bind");
    let manifest = format!(
        "[package]\nname = \"corpus\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\ncorewire-bind = {{ path = {bind:?} }}\n"
    );
    std::fs::write(root.join("Cargo.toml"), manifest).unwrap();
    let lock = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    std::fs::copy(lock, root.join("Cargo.lock")).unwrap();
    let check = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet"])
        .current_dir(&root)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&check.stderr);
    assert!(check.status.success() && !said.contains("warning"), "{said}");
    let _ = std::fs::remove_dir_all(&root);
    assert!(made > 0);
}
