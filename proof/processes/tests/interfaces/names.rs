//! Every name that a file can have is a name in Rust, in each edition: these modules are compiled.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Of this crate's edition, 2024.
#[allow(
    missing_docs,
    missing_debug_implementations,
    dead_code,
    unreachable_pub,
    non_camel_case_types,
    non_snake_case,
    clippy::all,
    clippy::pedantic
)]
mod words {
    include!(concat!(env!("OUT_DIR"), "/words.rs"));
}

/// Libraries of the run time that cargo has built, the newest first.
fn libraries(deps: &Path) -> Vec<PathBuf> {
    let built = std::fs::read_dir(deps).unwrap().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_it = name.starts_with("libcorewire_bind-") && name.ends_with(".rlib");
        is_it.then_some((entry.metadata().ok()?.modified().ok()?, entry.path()))
    });
    let mut built = built.collect::<Vec<_>>();
    built.sort_by(|left, right| right.cmp(left));
    built.into_iter().map(|(_, path)| path).collect()
}

// Keeps P237.
#[test]
fn every_word_can_be_a_name_in_every_position_in_edition_2021() {
    // That it compiled is the test of edition 2024.
    assert_eq!(words::constants::DESCRIPTION.name, "constants");
    let this = std::env::current_exe().unwrap();
    let deps = this.parent().unwrap();
    let out = std::env::temp_dir().join(format!("corewire-words-{}", std::process::id()));
    std::fs::create_dir_all(&out).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut said = Vec::new();
    for library in libraries(deps) {
        let mut rustc = Command::new(&rustc);
        rustc.args([
            "--edition",
            "2021",
            "--crate-type",
            "lib",
            "--emit",
            "metadata",
            "-A",
            "warnings",
        ]);
        rustc.arg("--extern").arg(format!("corewire_bind={}", library.display()));
        rustc.arg("-L").arg(format!("dependency={}", deps.display())).arg("--out-dir").arg(&out);
        let ran = rustc.arg(concat!(env!("OUT_DIR"), "/words.rs")).output().unwrap();
        said.push(String::from_utf8_lossy(&ran.stderr).into_owned());
        // One that was built before something changed does not go with the others.
        if ran.status.success() {
            said.clear();
            break;
        }
    }
    std::fs::remove_dir_all(&out).unwrap();
    assert!(
        said.is_empty(),
        "{}",
        said.iter().map(|one| &one[..one.len().min(4000)]).collect::<String>()
    );
}
