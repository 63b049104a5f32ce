//! Properties of all files: the right ones, and bytes of any kind.

use corewire_idl::form::{
    Definition, Field, INLINE_BYTES, Interface, Layout, LeafRole, Type, TypeDecl,
};
use corewire_idl::{Check, Code, Source, format, parse};
use proptest::prelude::*;

fn check(text: &str) -> Interface {
    let checked = Check::new(Source::new("some.if", text)).run();
    match checked.into_result() {
        Ok((interface, _)) => interface,
        Err(diagnostics) => panic!("{}\n{text}", diagnostics.render(false)),
    }
}

fn format_keeps(text: &str) {
    let interface = check(text);
    let once = format(Source::new("some.if", text)).expect("the file is right");
    let twice = format(Source::new("some.if", once.clone())).expect("the text is right");
    assert_eq!(once, twice, "formatting twice\n{text}");
    assert_eq!(interface, check(&once), "the meaning\n{text}");
    let characters = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(characters(text), characters(&once), "only white space changes");
    let json = interface.to_json();
    assert_eq!(Interface::from_json(&json).expect("the form is right"), interface);
    for (message, wire) in interface.wires() {
        let layouts = wire.earlier.iter().map(|earlier| &earlier.layout);
        layouts.chain([&wire.layout]).for_each(layout_is_right);
        assert!(wire.earlier.iter().all(|earlier| earlier.hash != wire.hash));
        for argument in message.arguments_of(wire) {
            let alone = interface.layout_of(&argument.of).expect("the type is possible");
            assert!(alone.fixed_bytes <= wire.layout.fixed_bytes);
        }
    }
}

/// Leaves lie one behind the other, the largest first, and everything that points to a leaf finds the right one.
fn layout_is_right(layout: &Layout) {
    let mut end = 0;
    for leaf in &layout.leaves {
        assert_eq!(leaf.offset, end);
        assert_eq!(leaf.offset % leaf.builtin.bytes(), 0);
        end += leaf.bytes();
    }
    assert_eq!(layout.fixed_bytes, end);
    assert!(layout.leaves.is_sorted_by_key(|leaf| std::cmp::Reverse(leaf.builtin.bytes())));
    let leaf = |index: u32| &layout.leaves[usize::try_from(index).expect("indices are small")];
    let mut most = end;
    for dynamic in &layout.dynamics {
        let length = leaf(dynamic.length_leaf);
        assert_eq!((&length.path, length.role), (&dynamic.path, LeafRole::Length));
        most += dynamic.element_bytes * dynamic.count_max;
    }
    for capability in &layout.capabilities {
        if let Some(present) = capability.present_leaf {
            assert_eq!(leaf(present).role, LeafRole::Present);
        }
    }
    assert_eq!((layout.bytes_max, layout.inline), (most, most <= INLINE_BYTES));
}

proptest! {
    // Failing inputs are printed; as tests they belong beside the code that was wrong.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // Keeps P147.
    #[test]
    fn formatting_keeps_the_meaning_in_edition_0(text in crate::common::text(0)) {
        format_keeps(&text);
    }

    // Keeps P147.
    #[test]
    fn formatting_keeps_the_meaning_in_edition_1(text in crate::common::text(1)) {
        format_keeps(&text);
    }

    #[test]
    fn any_form_is_read(
        tokens in crate::common::tokens(1),
        at in any::<prop::sample::Index>(),
        change in prop::sample::select(vec!["0", "4294967295", "-1", "null", "[]", "{}", "\"\"", "9", "x"]),
    ) {
        // One word or number of a right form is replaced by something else.
        let json = check(&tokens.join(" ")).to_json();
        let words = json.split(' ').collect::<Vec<_>>();
        let at = at.index(words.len());
        let ending = if words[at].contains(',') { ",\n" } else { "\n" };
        let changed = format!("{change}{ending}");
        let words = words.iter().enumerate().map(|(i, word)| if i == at { changed.as_str() } else { word });
        let changed = words.collect::<Vec<_>>().join(" ");
        if let Ok(interface) = Interface::from_json(&changed) {
            prop_assert_eq!(Interface::from_json(&interface.to_json()).expect("it is right"), interface);
        }
    }

    // Keeps P146.
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        accept(&bytes);
    }

    // Keeps P146.
    #[test]
    fn any_tokens_are_read(tokens in prop::collection::vec(prop::sample::select(TOKENS), 0..120)) {
        accept(tokens.join(" ").as_bytes());
    }

    // Keeps P146.
    #[test]
    fn files_with_a_few_mistakes_are_read(
        mut tokens in crate::common::tokens(1),
        mistakes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(TOKENS)), 1..4),
        remove in any::<bool>(),
    ) {
        for (at, token) in mistakes {
            let at = at.index(tokens.len());
            if remove && tokens.len() > 1 {
                tokens.remove(at);
            } else {
                tokens.insert(at, token.to_owned());
            }
        }
        accept(tokens.join("\n").as_bytes());
    }
}

const TOKENS: &[&str] = &[
    "edition 1;",
    "import",
    "interface",
    "x",
    "\"s\"",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ";",
    ",",
    "@",
    "=",
    "!",
    "-",
    "1",
    "0xffffffffffffffffff",
    "typedef",
    "struct",
    "union",
    "enum",
    "flexible",
    "alias",
    "const",
    "errors",
    "message",
    "rpc",
    "call",
    "response",
    "event",
    "in",
    "out",
    "uint8",
    "String",
    "string",
    "optional",
    "vector",
    "channel",
    "client",
    "cap",
    "fd",
    "window",
    "// c\n",
    "/*",
    "*/",
    "/// d\n",
    "\"",
    "\\",
    "é",
    "t",
    "y",
];

/// Everything that can be done with a file, whatever it contains.
fn accept(bytes: &[u8]) {
    let (_, parsed) = parse(Source::from_bytes("some.if", bytes));
    let checked = Check::new(Source::from_bytes("some.if", bytes)).run();
    assert!(checked.diagnostics.error_count() >= parsed.error_count());
    assert_eq!(
        checked.interface.is_none(),
        checked.diagnostics.has_errors() || {
            // A file without an interface is for imports.
            checked
                .clone()
                .into_result()
                .is_err_and(|all| all.iter().any(|one| one.code == Code::NoInterface))
        }
    );
    let text = checked.diagnostics.render(false);
    let lines = checked.diagnostics.json_lines();
    assert_eq!(lines.lines().count(), checked.diagnostics.iter().count());
    assert_eq!(text.is_empty(), lines.is_empty());
    assert_eq!(format(Source::from_bytes("some.if", bytes)).is_err(), parsed.has_errors());
}

// Keeps P146.
#[test]
fn sizes_and_depths_have_limits() {
    let deep = format!(
        "edition 1; interface some \"\" {{ message m({} int x); }};",
        "optional<".repeat(200_000)
    );
    let nested = "/*".repeat(500_000);
    let many = format!("interface some \"\" {{ {} }};", "message m(foo x);\n".repeat(50_000));
    let chain =
        (1..20_000).rev().map(|at| format!("typedef t{} t{at};\n", at - 1)).collect::<String>();
    let chain =
        format!("edition 1; interface some \"\" {{ alias t0 int; {chain} message m(t19999 x); }};");
    let doubled = (1..40)
        .map(|at| format!("typedef struct {{ t{0} a; t{0} b; }} t{at};\n", at - 1))
        .collect::<String>();
    let doubled = format!("interface some \"\" {{ alias t0 int; {doubled} message m(t39 x); }};");
    let line = format!("interface some \"\" {{ message m({}", "foo x, ".repeat(100_000));
    let wide = (0..4000).map(|at| format!("int f{at}; ")).collect::<String>();
    let wide = format!(
        "interface some \"\" {{ typedef struct {{ {wide} }} t; {} }};",
        (0..10_000).map(|at| format!("message m{at}(t x); ")).collect::<String>()
    );
    let name = format!("interface some \"\" {{ message {}(); }};", "m".repeat(200));
    let words = format!("interface some \"\" {{ {}", "message ".repeat(120_000));
    let comments = format!("interface some \"\" {{ {} ", "/**/".repeat(200_000));
    let types = (0..3000).map(|at| format!("alias abcdefghijkl{at} int; ")).collect::<String>();
    let types = format!(
        "interface some \"\" {{ {types} {} }};",
        "message m(abcdefghijkl x); ".repeat(30_000)
    );
    let ordinals = (0..30_000).map(|at| format!("message m{at}(); ")).collect::<String>();
    let ordinals = format!("edition 1; interface some {{ message m @1 (); {ordinals} }};");
    let large = " ".repeat(3 << 20);
    for text in [
        &deep, &nested, &many, &chain, &doubled, &line, &wide, &name, &words, &comments, &types,
        &ordinals, &large,
    ] {
        let checked = Check::new(Source::new("some.if", text.as_str())).run();
        assert!(checked.diagnostics.has_errors(), "{}", &text[..80]);
        assert!(checked.diagnostics.render(false).len() < 1 << 20);
        assert!(checked.diagnostics.iter().count() <= 1200);
        accept(text.as_bytes());
    }
}

#[test]
fn forms_that_were_changed_are_refused() {
    let text = "edition 1; interface some \"\" { typedef struct { int x; } t; typedef t u[2];
        rpc m(in t a, in optional<fd> b, out u c); };";
    let json = check(text).to_json();
    assert!(Interface::from_json(&json).is_ok());
    let changes = [
        ("\"form\": 1", "\"form\": 2"),
        ("\"int32\"", "\"int64\""),
        ("\"offset\": 0", "\"offset\": 1"),
        ("\"count\": 2", "\"count\": 0"),
        ("\"bytes_max\": 4", "\"bytes_max\": 3"),
        ("\"direction\": \"in\"", "\"direction\": null"),
        ("\"ordinal\": 1", "\"ordinal\": 0"),
        ("\"inline\": true", "\"inline\": false"),
    ];
    for (old, new) in changes {
        assert!(json.contains(old), "{old}\n{json}");
        let error = Interface::from_json(&json.replace(old, new)).expect_err(new).to_string();
        assert!(!error.is_empty());
    }
}

#[test]
fn a_form_with_empty_types_is_refused_at_once() {
    let text = "interface some { typedef struct { int x; } t0; message m(t0 x); };";
    let mut interface = check(&format!("edition 1; {}", text.replace("m(", "m @1(")));
    let empty = interface.types[0].clone();
    for at in 0..30 {
        let name = format!("t{at}");
        let field = |field: &str| Field {
            name: field.to_owned(),
            docs: Vec::new(),
            of: Type::Named { name: format!("t{}", at - 1) },
        };
        let fields = if at == 0 { Vec::new() } else { vec![field("a"), field("b")] };
        let decl = TypeDecl { name, definition: Definition::Struct { fields }, ..empty.clone() };
        if at == 0 {
            interface.types.clear();
        }
        interface.types.push(decl);
    }
    let error = Interface::from_json(&interface.to_json()).unwrap_err();
    assert_eq!(error.to_string(), "`t0`: a struct without fields");
}
