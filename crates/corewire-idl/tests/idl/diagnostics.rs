//! What people see: the diagnostics of files with every mistake, and the forms of right files.

use std::fs;
use std::path::{Path, PathBuf};

use corewire_idl::{Check, Code, Diagnostics, Source, corpus, form::Interface};

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

fn check(path: &str) -> Check {
    let text = fs::read_to_string(fixture(path)).expect("the fixture is there");
    let name = path.rsplit('/').next().unwrap_or(path);
    Check::new(Source::new(name, text)).loader(|name| {
        Source::read(&fixture("edition1").join(name)).map(|source| source.named(name))
    })
}

fn found(path: &str) -> Diagnostics {
    let checked = check(path).run();
    assert!(checked.interface.is_none());
    checked.into_result().expect_err("the fixture has errors")
}

macro_rules! errors {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let diagnostics = found(concat!("errors/", stringify!($name), ".if"));
            insta::assert_snapshot!(stringify!($name), diagnostics.render(false));
        })*
    };
}

errors! { characters commas unended names bounds newer first_edition future parts }

#[test]
fn diagnostics_as_json_are_one_line_each() {
    let lines = found("errors/unended.if").json_lines();
    insta::assert_snapshot!("json", lines);
}

#[test]
fn legacy_files_are_accepted() {
    let tree = corpus::check_tree(&fixture("legacy")).expect("the tree can be read");
    insta::assert_snapshot!("legacy", tree.summary());
    let named = |name: &str| {
        let mut files = tree.files.iter();
        files.find(|file| file.path.ends_with(name)).expect("it is there")
    };
    insta::assert_snapshot!("legacy_warnings", named("legacy.if").diagnostics.render(false));
    let [large, small] = named("storage.if").interfaces.as_slice() else {
        panic!("there are two architectures");
    };
    assert_eq!((small.0.as_str(), large.0.as_str()), ("small", "large"));
    assert_ne!(small.1.hash, large.1.hash, "architectures differ in a type of `moved`");
    let same = small.1.messages.iter().zip(&large.1.messages).filter(|(a, b)| a.hash == b.hash);
    assert_eq!(same.count(), large.1.messages.len() - 1);
    insta::assert_snapshot!("storage_layouts", layouts(&large.1));
}

#[test]
fn the_form_of_edition_1() {
    let checked = check("edition1/shapes.if").run();
    let result = checked.into_result().map_err(|all| all.render(false));
    let (interface, warnings) = result.expect("it is right");
    assert!(warnings.is_empty(), "{}", warnings.render(false));
    insta::assert_snapshot!("shapes_layouts", layouts(&interface));
    insta::assert_snapshot!("shapes_json", interface.to_json());
    assert_eq!(Interface::from_json(&interface.to_json()).expect("the form is right"), interface);
}

#[test]
fn a_window_is_a_type_of_edition_1_that_files_can_declare() {
    let interface = |text: &str| {
        let result = Check::new(Source::new("m.if", text)).run().into_result();
        result.map_err(|all| all.render(false)).expect("it is right").0
    };
    let hash = |text: &str| interface(text).messages[0].hash;
    let built_in = interface("edition 1; interface m { message a @1(window w); }");
    assert_eq!(built_in.messages[0].arguments[0].of.to_string(), "window");
    assert_eq!((built_in.form, built_in.types.len()), (2, 0));
    assert_eq!(Interface::from_json(&built_in.to_json()).expect("the form is right"), built_in);
    let endpoint = hash("edition 1; interface m { message a @1(endpoint w); }");
    assert_ne!(built_in.messages[0].hash, endpoint);
    let alias = "edition 1; interface m { alias memory window; message a @1(memory w); }";
    assert_eq!(built_in.messages[0].hash, hash(alias));

    // A type of this name, from before, stays what it was.
    let fields = "typedef struct { uint32 left; uint32 top; }";
    for edition in ["", "edition 1; "] {
        let own = format!("{edition}interface m \"\" {{ {fields} window; message a(window w); }};");
        let other = own.replace("window", "frame");
        assert_eq!((interface(&own).form, hash(&own)), (1, hash(&other)), "{own}");
    }
}

/// Layouts as people read them.
fn layouts(interface: &Interface) -> String {
    let mut text = String::new();
    for (message, wire) in interface.wires() {
        let layout = &wire.layout;
        let inline = if layout.inline { ", inline" } else { "" };
        text += &format!(
            "{} {} {:?} {:?}: {} bytes, at most {}{inline}\n",
            message.ordinal,
            wire.name,
            wire.role,
            wire.direction,
            layout.fixed_bytes,
            layout.bytes_max
        );
        for leaf in &layout.leaves {
            let (path, role, of) = (&leaf.path, leaf.role, leaf.builtin.as_str());
            text += &format!("  {:3} {of} x {} {role:?} {path}\n", leaf.offset, leaf.count);
        }
        for dynamic in &layout.dynamics {
            text += &format!("  ... {dynamic:?}\n");
        }
        for capability in &layout.capabilities {
            let (path, of, count) = (&capability.path, &capability.of, capability.count);
            let present = capability.present_leaf;
            text += &format!("  cap {path}: {of} x {count}, present at {present:?}\n");
        }
        for earlier in &wire.earlier {
            let (count, hash) = (earlier.argument_count, earlier.hash);
            text += &format!("  earlier: {count} arguments, {hash:?}\n");
        }
    }
    text
}

#[test]
fn every_code_of_the_checker_has_a_fixture() {
    let mut seen = std::collections::BTreeSet::new();
    for entry in fixture("errors").read_dir().expect("the folder is there") {
        let name = entry.expect("it can be read").file_name().into_string().expect("a plain name");
        seen.extend(found(&format!("errors/{name}")).count_by_code().into_keys());
    }
    // These need bytes that are no text, sizes, or several files, or are no errors: other tests have them.
    let elsewhere = [
        Code::NotUtf8,
        Code::NestedTooDeep,
        Code::FileTooLarge,
        Code::NameTooLong,
        Code::TwoTypesOneName,
        Code::ImportNotPossible,
        Code::NoInterface,
        Code::TooManyErrors,
        Code::HidesImport,
        Code::MachineWord,
        Code::UnusedImport,
        Code::LegacyKeyword,
    ];
    let missing = Code::ALL.iter().filter(|code| !seen.contains(code) && !elsewhere.contains(code));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&Code>::new());
}

#[test]
fn errors_of_several_files_are_told() {
    let codes = |check: Check| {
        let all = check.run().into_result().map_or_else(|all| all, |(_, warnings)| warnings);
        all.count_by_code().into_keys().collect::<Vec<_>>()
    };
    let main = |text: &str| Check::new(Source::new("m.if", text));
    let types = |text: &str| Source::new("types.if", text);
    let user = "interface m \"\" { alias id uint64; message a(id x); };";
    assert_eq!(codes(main(user).import(types("alias id uint8;"))), [Code::HidesImport]);
    let both = types("alias id uint8; typedef struct { id id; } held;");
    assert_eq!(codes(main(user).import(both)), [Code::TwoTypesOneName]);
    assert_eq!(codes(main("alias id uint8;")), [Code::NoInterface]);
    assert_eq!(codes(Check::new(Source::from_bytes("m.if", b"\xff\xfe"))), [Code::NotUtf8]);

    let imports = "edition 1; import \"types.if\"; import \"m.if\"; interface m { message a(); };";
    assert_eq!(codes(main(imports)), [Code::ImportNotPossible]);
    let loader = |text: &'static str| move |name: &str| Ok(Source::new(name, text));
    let once = "edition 1; import \"types.if\"; interface m { message a(id x); };";
    assert_eq!(codes(main(once).loader(loader("alias id uint8;"))), []);
    let unused = "edition 1; import \"types.if\"; interface m { message a(); };";
    assert_eq!(codes(main(unused).loader(loader("alias id uint8;"))), [Code::UnusedImport]);
    let circle = "edition 1; import \"types.if\"; import \"m.if\"; alias id uint8;";
    assert_eq!(codes(main(once).loader(loader(circle))), []);
    let client = "edition 1; import \"other.if\"; interface m { message a(client<other> x); };";
    let other = "edition 1; interface other { alias id uint8; message b(id x); }";
    assert_eq!(codes(main(client).loader(loader(other))), []);
}

// Keeps P148.
#[test]
fn what_two_runs_find_in_one_file_is_kept_once() {
    let import = Source::new("types.if", "alias a foo; alias b bar;");
    let user = |name: &str| {
        let text = format!("interface {name} \"\" {{ message m(missing x); }};");
        Check::new(Source::new(format!("{name}.if"), text)).import(import.clone()).run().diagnostics
    };
    let mut both = user("m");
    assert_eq!(both.error_count(), 3);
    both.append(user("n"));
    let names = both.iter().map(|one| both.source(one.primary.file).name()).collect::<Vec<_>>();
    assert_eq!(names, ["m.if", "types.if", "types.if", "n.if"]);
    assert_eq!(both.error_count(), 4);
}

#[test]
fn the_reference_lists_all_codes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/interfaces.md");
    let reference = fs::read_to_string(path).expect("the reference is there");
    for code in Code::ALL {
        let row = format!("| {code} | {} |\n", code.title());
        assert!(reference.contains(&row), "docs/interfaces.md lacks {row}");
    }
}

#[test]
fn the_reference_shows_the_form_as_it_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/interfaces.md");
    let reference = fs::read_to_string(path).expect("the reference is there");
    let (before, after) = reference.split_once("```json\n").expect("there is a block of JSON");
    let (json, _) = after.split_once("```").expect("the block ends");
    let (_, file) = before.rsplit_once("```\nedition 1;").expect("the file stands before it");
    let (file, _) = file.split_once("```").expect("the block ends");
    let checked = Check::new(Source::new("calc.if", format!("edition 1;{file}"))).run();
    let interface = checked.interface.expect("the file is right");
    assert_eq!(Interface::from_json(json).expect("the form is right"), interface);
    assert_eq!(
        corewire_idl::format(Source::new("calc.if", format!("edition 1;{file}"))).ok(),
        Some(format!("edition 1;{file}")),
        "and in canonical form"
    );
}

#[test]
fn only_names_that_travel_can_clash() {
    let codes = |text: &str| {
        let found = Check::new(Source::new("m.if", text)).run().diagnostics;
        found.count_by_code().into_keys().collect::<Vec<_>>()
    };
    assert_eq!(codes("interface m \"\" { rpc a(); rpc a_call(); };"), []);
    let clash = "interface m \"\" { rpc a(); message a_reply(); };";
    assert_eq!(codes(clash), [Code::WireNameTwice]);
}
