//! The Rust of interfaces, as it is.

use corewire_idl::rust::generate;
use corewire_idl::{Check, Source, form::Interface};

fn interface(text: &str) -> Interface {
    Check::new(Source::new("a.if", text)).run().into_result().unwrap().0
}

#[test]
fn a_calculator() {
    let text = r#"edition 1;
/// A calculator.
interface calc "A calculator" {
    const uint32 LINE = 256;
    typedef struct { int32 left; int32 right; } pair;
    errors failure { /// The result does not fit.
        OVERFLOW };
    /// Multiplies two numbers.
    rpc multiply @1(in pair p, out int64 product) ! failure;
    /// Remembers a line.
    call log @2(String line[LINE]);
    /// Time has passed.
    event tick @3(uint64 now);
}
"#
    .replace("call log", "message log");
    insta::assert_snapshot!(generate(&interface(&text)).unwrap());
}

#[test]
fn types_of_every_kind() {
    let text = r#"edition 1;
interface kinds {
    alias number uint32;
    typedef enum { RED, GREEN = 5 } color;
    typedef flexible enum { CIRCLE } shape;
    typedef struct { number type; color paint; optional<uint16> self; } thing;
    typedef thing things[2];
    typedef union { thing one; uint64 other; } choice;
    rpc ask @1(in things t, in choice c, in optional<String[8]> fn, in vector<thing, 4> list, out shape s);
}
"#;
    insta::assert_snapshot!(generate(&interface(text)).unwrap());
}

#[test]
fn capabilities_and_earlier_versions() {
    let text = r#"edition 1;
interface rights {
    typedef struct { fd file; optional<fd> log; } both;
    typedef both boths[2];
    rpc open @1(in String path[64], out fd file, out cap more);
    rpc give @2(in give_away_cap right, in boths all, in optional<fd> last);
    event changed @3(endpoint from, optional<uint32> count);
    message connect @4(channel<uint64> numbers, client<rights> others);
    rpc share @5(in window grid, in optional<window> more, out window back);
}
"#;
    insta::assert_snapshot!(generate(&interface(text)).unwrap());
}

/// The code of a union must not contain that of all its arms.
#[test]
fn unions_within_unions() {
    const DEPTH: usize = 30;
    let unions = (1..DEPTH).fold(String::new(), |text, depth| {
        let inner = depth - 1;
        text + &format!("typedef union {{ u{inner} left; u{inner} right; }} u{depth};\n")
    });
    let text = format!(
        "edition 1;\ninterface deep {{\ntypedef union {{ bool yes; uint64 count; }} u0;\n{unions}\
         rpc ask @1(in u{last} question, out u{last} answer);\n}}\n",
        last = DEPTH - 1
    );
    let lines = generate(&interface(&text)).unwrap().lines().count();
    assert!(lines < DEPTH * 100, "{lines} lines for {DEPTH} unions");
}
