//! Which changes break, and how they are told.

use corewire_idl::{ChangeKind, Check, Source, diff, form::Interface};

fn form(text: &str) -> Interface {
    let checked = Check::new(Source::new("x.if", text)).run();
    checked.into_result().map_err(|all| all.render(false)).expect("the text is right").0
}

/// The interfaces are given by what stands in their braces.
fn changes(edition: &str, old: &str, new: &str) -> String {
    let whole = |inside: &str| form(&format!("{edition} interface x \"\" {{ {inside} }};"));
    let (old, new) = (whole(old), whole(new));
    let found = diff(&old, &new);
    // Bind finds out the same: what is compatible is known by its hash, what breaks is not.
    let mut binds = old.name == new.name;
    for (message, wire) in old.wires() {
        let other = new.wires().find(|(_, other)| other.name == wire.name);
        binds &= other.is_some_and(|(other, found)| {
            let earlier = found.earlier.iter().map(|one| one.hash);
            let mut hashes = std::iter::once(found.hash).chain(earlier);
            other.ordinal == message.ordinal && hashes.any(|hash| hash == wire.hash)
        });
    }
    let errors = new.error_hashes();
    for (name, hash) in old.error_hashes() {
        binds &= errors.iter().all(|(other, found)| *other != name || *found == hash);
    }
    assert!(binds || found.breaks(), "{}", found.render());
    assert!(!binds || !found.breaks(), "{}", found.render());
    found.render()
}

fn zero(old: &str, new: &str) -> String {
    changes("", old, new)
}

fn one(old: &str, new: &str) -> String {
    changes("edition 1;", old, new)
}

#[test]
fn names_of_types_and_documentation_change_nothing() {
    let old = "typedef struct { int a; } t; alias id uint64; message m @1 (t t, id i);";
    let new = "typedef struct { int32 a; } u; /// More\nmessage m @1 (u t, uint64 i);";
    assert_eq!(one(old, new), "");
    let whole = |inside: &str| form(&format!("edition 1; interface x {{ {inside} }}"));
    assert_eq!(whole(old).hash, whole(new).hash);
    let swapped = "typedef struct { int a; } t; message m @1 (uint64 i, t t);";
    assert_ne!(whole(old).hash, whole(swapped).hash);
}

/// Hashes are compared between processes of different builds, so they must never change by accident.
#[test]
fn hashes_stay() {
    let text = "interface calc \"\" { rpc add(in int a, in int b, out int64 sum); message log(String s[9]); };";
    let interface = form(&text.replace("calc", "x"));
    let hashes = interface.wires().map(|(_, wire)| format!("{} {}", wire.name, wire.hash));
    let all = hashes.chain([format!("x {}", interface.hash)]).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!("hashes", all);
}

// Keeps P149.
#[test]
fn messages() {
    let old = "message a(); message b(); rpc c(); message d();";
    let new = "message a(); message x(); message b(); message c(); ";
    insta::assert_snapshot!("messages_without_ordinals", zero(old, new));
    let old = "message a @1 (); message b @2 ();";
    let new = "message b @2 (); message c @1 (); event d @9 ();";
    insta::assert_snapshot!("messages_with_ordinals", one(old, new));
    let new = "message b @2 (); message a @1 (); event d @9 ();";
    insta::assert_snapshot!("messages_compatible", one(old, new));
}

// Keeps P149.
#[test]
fn arguments() {
    let old = "message a(int x, int y, int z); rpc b(in int p, out int q); message c(int v);";
    let new =
        "message a(int y, int x, int z, int w); rpc b(in int p, in int q); message c(int value);";
    insta::assert_snapshot!("arguments", zero(old, new));
    let old = "rpc a @1 (in int x, out int y);";
    let new = "rpc a @1 (in int x, in optional<String[4]> n, out int y, out optional<fd> f);";
    insta::assert_snapshot!("arguments_compatible", one(old, new));
    let new = "rpc a @1 (in optional<int> n, in int x, out int y, out int z);";
    insta::assert_snapshot!("arguments_not_at_the_end", one(old, new));
}

// Keeps P149.
#[test]
fn types() {
    let old = "typedef struct { int a; int b; String s[8]; } t; typedef enum { A, B } e;
        typedef flexible enum { F = 1, G } f; typedef struct { t t; } outer; typedef int four[4];
        errors oops { X, Y }; typedef union { int a; bool b; } u; message m @1 (outer o, e e,
        vector<f, 4> f, four n); rpc r @2 (in u u) ! oops; message s @3 (u v);";
    let new = "typedef struct { int b; uint8 a; String s[9]; } t; typedef enum { A, C } e;
        typedef flexible enum { F = 1, H = 7 } f; typedef struct { t t; } outer;
        typedef int four[3]; errors oops { X, Z = 5 }; typedef union { int a; } u;
        message m @1 (outer o, e e, vector<f, 4> f, four n); rpc r @2 (in u u) ! oops;
        message s @3 (e v);";
    insta::assert_snapshot!("types", one(old, new));
    let new = old.replace("! oops", "").replace("flexible", "");
    insta::assert_snapshot!("types_strict", one(old, &new));
    let new = old.replace("F = 1, G", "F = 1, G, H").replace("X, Y", "X, Y, Z");
    insta::assert_snapshot!("types_compatible", one(old, &new));
}

// Keeps P149.
#[test]
fn details_and_streams() {
    let old = "errors e detailed { A(uint8 x, String s[9]), B = 5, C(uint8 x) };
        rpc a @1(in uint8 x) stream(out uint8 y) ! e; rpc b @2() ! e;
        rpc c @3(out vector<String[4], 9> v);";
    assert_eq!(one(old, old), "");
    let new = "errors e detailed { A(uint8 x, String s[10]), B(uint8 z) = 5, C(uint8 w), D };
        rpc a @1(in uint8 x) stream(out uint16 y) ! e; rpc b @2() stream(out uint8 z) ! e;
        rpc c @3(out vector<String[5], 9> v);";
    insta::assert_snapshot!("details_and_streams", one(old, new));
    let new = old.replace("C(uint8 x)", "C(uint8 x), D(String t[9])");
    insta::assert_snapshot!("details_compatible", one(old, &new));
    insta::assert_snapshot!("details_of_another_set", one(old, &old.replace(" e", " f")));
    let plain =
        "errors e { A, B = 5, C }; rpc a @1(in uint8 x) stream(out uint8 y) ! e; rpc b @2() ! e;
        rpc c @3(out vector<String[4], 9> v);";
    insta::assert_snapshot!("details_are_new", one(plain, old));
}

#[test]
fn changes_have_kinds() {
    let found = diff(
        &form("interface x \"\" { message m(String s[4]); };"),
        &form("interface y \"\" { message m(String s[5]); };"),
    );
    let kinds = found.changes.iter().map(|change| change.kind).collect::<Vec<_>>();
    assert_eq!(kinds, [ChangeKind::InterfaceRenamed, ChangeKind::BoundGrown]);
    assert!(found.breaks());
}
