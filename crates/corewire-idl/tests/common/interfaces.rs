//! The interfaces of the fixtures.

use std::path::Path;

use corewire_idl::{Check, Source, form::Interface};

/// All fixtures without errors, and the interface of the tests of generated Rust.
pub(crate) fn interfaces() -> Vec<Interface> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let fixtures = root.join("crates/corewire-idl/tests/fixtures");
    let read = |path: &Path| Source::read(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut all = Vec::new();
    for path in [
        fixtures.join("edition1/shapes.if"),
        root.join("proof/processes/if/all.if"),
        root.join("proof/processes/if/newer.if"),
        root.join("examples/interfaces/calculator.if"),
    ] {
        let loader = |name: &str| Source::read(Path::new(name));
        all.push(Check::new(read(&path)).loader(loader).run());
    }
    for name in ["storage", "legacy"] {
        let legacy = fixtures.join("legacy/if");
        let imports = ["platform/large.if", "arch/large.if", "types.if"];
        let check = Check::new(read(&legacy.join(format!("{name}.if"))));
        all.push(
            imports.iter().fold(check, |check, one| check.import(read(&legacy.join(one)))).run(),
        );
    }
    let result = |checked: corewire_idl::Checked| {
        checked.into_result().unwrap_or_else(|all| panic!("{}", all.render(false))).0
    };
    all.into_iter().map(result).collect()
}
