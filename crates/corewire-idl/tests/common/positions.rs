//! Interfaces in which every word is the name of everything that has one.

use crate::words::words;

/// One interface for each position of a name, with all words there.
pub(crate) fn interfaces() -> Vec<(&'static str, String)> {
    let words = words();
    let each = |line: &dyn Fn(usize, &str) -> String| {
        words.iter().enumerate().map(|(at, word)| line(at, word)).collect::<Vec<_>>()
    };
    let lines = |line: &dyn Fn(usize, &str) -> String| each(line).join("\n");
    let list = |line: &dyn Fn(usize, &str) -> String| each(line).join(", ");
    let file = |name: &'static str, text: String| {
        (name, format!("edition 1; interface {name} {{ {text} }};"))
    };
    // Messages of all kinds, each word of two of them.
    let method = |name: &'static str, shift: usize| {
        let methods = lines(&|at, word| {
            let ordinal = at + 1;
            match (at + shift) % 4 {
                0 => format!(
                    "rpc {word} @{ordinal}(in String s[9], out uint8 x, out uint8 y) ! trouble;"
                ),
                1 => format!("rpc {word} @{ordinal}(in uint8 a) stream(out uint8 x) ! trouble;"),
                2 => format!("message {word} @{ordinal}(uint8 a);"),
                _ => format!("event {word} @{ordinal}(String s[9]);"),
            }
        });
        file(name, format!("errors trouble {{ ONE }}; {methods}"))
    };
    let types = words.iter().filter(|word| !BUILT_IN.contains(word)).enumerate();
    let (mut declared, mut uses) = (String::new(), Vec::new());
    for (at, word) in types {
        declared += &match at % 4 {
            0 => format!("typedef struct {{ uint8 a; String s[9]; }} {word};\n"),
            1 => format!("typedef enum {{ ONE, TWO }} {word};\n"),
            2 => format!("typedef union {{ uint8 a; uint64 b; }} {word};\n"),
            _ => format!("typedef uint16 {word};\n"),
        };
        uses.push(format!("{word} a{at}"));
    }
    let uses = uses.join(", ");
    vec![
        file(
            "fields",
            format!(
                "typedef struct {{ {} }} one; typedef struct {{ {} }} two; message m @1(one x, two y);",
                lines(&|_, word| format!("uint8 {word};")),
                lines(&|_, word| format!("String {word}[4];")),
            ),
        ),
        file(
            "arguments",
            format!(
                "rpc a @1({}, {}); rpc b @2({}) stream({}); message c @3({}); event d @4({});",
                list(&|_, word| format!("in uint8 {word}")),
                list(&|_, word| format!("out uint8 {word}")),
                list(&|_, word| format!("in String {word}[4]")),
                list(&|_, word| format!("out String {word}[4]")),
                list(&|_, word| format!("optional<uint8> {word}")),
                list(&|_, word| format!("String {word}[4]")),
            ),
        ),
        method("methods", 0),
        method("methods1", 1),
        file("types", format!("{declared} rpc m @1({}); event e @2({uses});", uses_in(&uses))),
        file(
            "arms",
            format!(
                "typedef union {{ {} }} one; typedef union {{ {} }} two; message m @1(one x, two y);",
                lines(&|_, word| format!("uint8 {word};")),
                lines(&|_, word| format!("String {word}[4];")),
            ),
        ),
        file(
            "values",
            format!(
                "typedef enum {{ {} }} one; typedef flexible enum {{ {} }} two; errors three {{ {} }};
                 errors four detailed {{ {} }}; errors five detailed {{ ONE({}) }};
                 rpc m @1(in one x, in two y) ! three; rpc n @2() ! four; rpc o @3() ! five;",
                list(&|_, word| word.to_owned()),
                list(&|_, word| word.to_owned()),
                list(&|_, word| word.to_owned()),
                list(&|_, word| format!("{word}(uint8 x)")),
                list(&|_, word| format!("uint8 {word}")),
            ),
        ),
        file("constants", format!("{} message m @1();", lines(&|at, word| format!("const uint16 {word} = {at};")))),
    ]
}

fn uses_in(uses: &str) -> String {
    format!("in {}", uses.replace(", ", ", in "))
}

/// Names of types that no file can declare.
const BUILT_IN: &[&str] = &["bool", "char", "int", "size", "fd", "endpoint", "cap", "String"];
