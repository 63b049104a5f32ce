//! Headers of C: what they look like, that compilers accept them, and that they have the bytes of the layout.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::interfaces::interfaces;
use crate::values::Random;
use corewire_idl::form::{Interface, Message, Wire};
use corewire_idl::{Check, Source, c_header, corpus, json};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

const C: &[&str] = &["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"];
const CPP: &[&str] = &["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic"];

fn interface(text: &str) -> Interface {
    let checked = Check::new(Source::new("some.if", text)).run();
    checked.into_result().unwrap_or_else(|all| panic!("{}", all.render(false))).0
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corewire-c-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    /// Runs a compiler on a file here. `None`, and a message, if there is no such compiler.
    fn compile(&self, compiler: &[&str], arguments: &[&str]) -> Option<()> {
        let (program, flags) = compiler.split_first().unwrap();
        let ran = Command::new(program).args(flags).args(arguments).current_dir(&self.0).output();
        match ran {
            Ok(done) => {
                let said = String::from_utf8_lossy(&done.stderr);
                assert!(done.status.success(), "{compiler:?} {arguments:?}: {said}");
                Some(())
            }
            Err(error) => {
                println!("skipped: {program}: {error}");
                None
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Compiles each header alone, and all of them in one file.
fn accepted(folder: &Folder, headers: &[String]) {
    let mut all = String::new();
    for (index, header) in headers.iter().enumerate() {
        folder.write(&format!("h{index}.h"), header);
        writeln!(all, "#include \"h{index}.h\"").unwrap();
    }
    all.push_str("int main(void) { return 0; }\n");
    folder.write("all.c", &all);
    folder.write("all.cc", &all.replace("(void)", "()"));
    folder.compile(C, &["-fsyntax-only", "all.c"]);
    folder.compile(CPP, &["-fsyntax-only", "all.cc"]);
}

#[test]
fn a_calculator() {
    let text = r#"edition 1;
/// Numbers of 64 bits.
interface calc "A calculator" {
    /// Of a line that is logged.
    const uint32 LINE = 256;
    typedef struct {
        int64 left;
        /// Not zero if they are divided.
        int64 right;
    } pair;
    typedef enum { ADD, DIVIDE = 5 } operation;
    errors failure {
        /// The result does not fit.
        OVERFLOW
    };
    /// Computes.
    ///
    /// Rounds towards zero.
    rpc compute @1(in operation int, in pair p, out int64 result) ! failure;
    message log @2(String line[LINE], optional<uint8> level, vector<pair, 4> pairs, cap file);
}
"#;
    let code = c_header::generate(&interface(text)).unwrap();
    let (begin, rest) = code.split_once("#ifndef COREWIRE_SUPPORT_1").unwrap();
    let (_, end) = rest.split_once("\n#endif\n").unwrap();
    insta::assert_snapshot!(format!("{begin}[the same in all headers]\n{end}"));
}

#[test]
fn headers_say_which_capabilities_travel() {
    let text = "edition 1; interface rights {
        message all @1(cap a, give_away_cap b, fd c, endpoint d, channel<uint8> e, client<rights> f,
            optional<window> g, window h);
    }";
    let code = c_header::generate(&interface(text)).unwrap();
    let (_, kinds) = code.split_once("RIGHTS_ALL_CAPABILITY_KINDS").unwrap();
    let (kinds, _) = kinds.split_once('}').unwrap();
    let kinds = kinds.split("COREWIRE_CAPABILITY_").skip(1);
    let kinds = kinds.map(|one| one.split(',').next().unwrap()).collect::<Vec<_>>();
    let due = ["CAP", "GIVE_AWAY_CAP", "FD", "ENDPOINT", "CHANNEL", "CLIENT", "WINDOW", "WINDOW"];
    assert_eq!(kinds, due, "{code}");
    for kind in due {
        assert!(code.contains(&format!("#define COREWIRE_CAPABILITY_{kind} ")), "{kind}");
    }
    assert!(code.contains("#define RIGHTS_ALL_CAPABILITIES_MAX 8\n"), "{code}");
    accepted(&Folder::new("rights"), &[code]);
}

// Keeps P162.
#[test]
fn compilers_accept_all_headers() {
    let headers =
        interfaces().iter().map(|one| c_header::generate(one).unwrap()).collect::<Vec<_>>();
    accepted(&Folder::new("fixtures"), &headers);
}

// Keeps P162.
#[test]
fn names_that_mean_something_get_an_underscore() {
    let int = interface(
        r#"edition 1;
        /// Ends /* here */ or here: ??/
        interface int "a \"description\" */" {
            const int8 MAX = -128;
            const int64 LEAST = -9223372036854775808;
            const String TEXT = "?? \" \\ é */";
            typedef int32 t;
            typedef enum { ONE, TWO = -2147483648, one = 7 } log;
            typedef struct { t class; log int_log; bool int_log_ORDINAL; uint8 NULL; uint8 true; } struct;
            typedef union { struct template; uint8 as; } pair_vector;
            alias fds fd;
            typedef struct { fds only; } box;
            typedef box boxes[3];
            typedef flexible enum { A } open;
            typedef uint64 grid[3];
            typedef grid grids[2];
            errors log_errors { int, INT = 2 };
            message log @1(struct int, optional<pair_vector> new, vector<struct, 3> size, vector<uint16, 2> error,
                optional<vector<struct, 3>> delete);
            message LOG @2();
            message log_size @3(boxes b, optional<box> o, fds f);
            rpc open @4(in grids g, in vector<grids, 2> many, in optional<grids> perhaps, out t error) ! log_errors;
            message optional_pair @5(vector<optional<t>, 2> a, vector<pair_vector, 2> b, optional<bool> c);
        }"#,
    );
    let code = c_header::generate(&int).unwrap();
    assert!(code.contains("int_t class_;") && code.contains("#define INT_MAX_ "), "{code}");
    let other = interface(
        "edition 1; interface uint8 { typedef uint8 t; const uint8 MAX = 1; message put_u8 @1(t a); }",
    );
    let corewire = interface(
        "edition 1; interface corewire { message put_u8 @1(uint8 a); message take @2(); }",
    );
    let headers = [int, other, corewire].map(|one| c_header::generate(&one).unwrap());
    assert!(headers[1].contains("typedef uint8_t uint8_t_;"), "{}", headers[1]);
    accepted(&Folder::new("names"), &headers);
}

/// A program that decodes what it reads, encodes it again, and writes that or an error.
fn program(all: &[Interface]) -> String {
    let mut text = String::new();
    for index in 0..all.len() {
        writeln!(text, "#include \"h{index}.h\"").unwrap();
    }
    text.push_str(
        "#include <stdio.h>
#include <stdlib.h>
#define CASE(number, name) case number: { \\
        struct name args; \\
        code = name##_decode(&args, in, length); \\
        if (code == 0) { capacity = name##_size(&args); code = name##_encode(&args, out, capacity, &written); } \\
        if (code == 0 && written != capacity) { return 1; } \\
        if (code == 0 && written > 0 && name##_encode(&args, out, written - 1, &capacity) == 0) { return 1; } \\
        break; }
int main(void)
{
    static uint8_t out[1 << 20];
    uint8_t head[8];
    while (fread(head, 1, 8, stdin) == 8) {
        size_t length = corewire_get_u32(head + 4);
        size_t written = 0;
        size_t capacity = 0;
        int code = 0;
        /* Exactly as long as the message, so that a sanitizer sees any byte that is read behind it. */
        uint8_t *in = (uint8_t *)malloc(length + (length == 0));
        if (in == NULL || fread(in, 1, length, stdin) != length) { return 1; }
        switch (corewire_get_u32(head)) {\n",
    );
    let wires = all.iter().flat_map(|one| one.wires().map(move |(_, wire)| (one, wire)));
    for (number, (one, wire)) in wires.enumerate() {
        writeln!(text, "        CASE({number}, {}_{})", one.name, wire.name).unwrap();
    }
    text.push_str(
        "        default: return 1;
        }
        if (code != 0) { written = 0; }
        corewire_put_u32(head, (uint32_t)code);
        corewire_put_u32(head + 4, (uint32_t)written);
        fwrite(head, 1, 8, stdout);
        fwrite(out, 1, written, stdout);
        free(in);
    }
    return 0;
}\n",
    );
    text
}

/// Runs the program with these messages, and returns what it says of each.
fn run(folder: &Folder, messages: &[(u32, Vec<u8>)]) -> Vec<Result<Vec<u8>, u32>> {
    let mut input = Vec::new();
    for (number, bytes) in messages {
        input.extend(number.to_le_bytes());
        input.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
        input.extend(bytes);
    }
    let mut command = Command::new(folder.0.join("program"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let done = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(done.status.success(), "{}", done.status);
    let mut rest = done.stdout.as_slice();
    let mut all = Vec::new();
    while let Some((head, after)) = rest.split_first_chunk::<8>() {
        let word = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().unwrap());
        let (bytes, after) = after.split_at(usize::try_from(word(4)).unwrap());
        all.push(if word(0) == 0 { Ok(bytes.to_vec()) } else { Err(word(0)) });
        rest = after;
    }
    all
}

/// The program, with sanitizers if the compiler has them. `None` without a compiler.
fn built(folder: &Folder, all: &[Interface]) -> Option<()> {
    for (index, one) in all.iter().enumerate() {
        folder.write(&format!("h{index}.h"), &c_header::generate(one).unwrap());
    }
    folder.write("program.c", &program(all));
    let sanitizers = "-fsanitize=address,undefined";
    folder.write("probe.c", "int main(void) { return 0; }\n");
    let probe = Command::new("cc")
        .args([sanitizers, "probe.c", "-o", "probe"])
        .current_dir(&folder.0)
        .output();
    let has_sanitizers = probe.is_ok_and(|done| done.status.success())
        && Command::new(folder.0.join("probe")).status().is_ok_and(|status| status.success());
    let flags: &[&str] =
        if has_sanitizers { &[sanitizers, "-fno-sanitize-recover=all"] } else { &[] };
    folder.compile(C, &[flags, &["program.c", "-o", "program"]].concat())
}

// Keeps P162.
#[test]
fn c_accepts_the_messages_that_json_accepts_and_has_their_bytes() {
    let folder = Folder::new("round-trip");
    // Interfaces whose names have no underscores behind them.
    let all = interfaces();
    if built(&folder, &all).is_none() {
        return;
    }
    let wires =
        all.iter().flat_map(|one| one.wires().map(move |(message, wire)| (one, message, wire)));
    let wires = wires.collect::<Vec<(&Interface, &Message, &Wire)>>();
    let byte = prop_oneof![4 => Just(0_u8), 2 => 0..8_u8, 1 => any::<u8>()];
    let hostile = prop::collection::vec(byte, 0..400);
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 4);
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, cases: 64, ..Config::default() });
    let ran = runner.run(&(any::<u64>(), hostile, changes), |(seed, bytes, changes)| {
        let mut random = Random::new(seed);
        let (mut messages, mut right) = (Vec::new(), Vec::new());
        for (number, (one, message, wire)) in (0..).zip(&wires) {
            let given = random.arguments(one, message, wire);
            let encoded = json::encode(one, message, wire, &given).unwrap().bytes;
            let fixed = usize::try_from(wire.layout.fixed_bytes).unwrap().min(bytes.len());
            for hostile in [&bytes[..], &bytes[..fixed]] {
                messages.push((number, hostile.to_vec()));
            }
            for (at, byte) in &changes {
                let mut changed = encoded.clone();
                if !changed.is_empty() {
                    changed[at.index(encoded.len())] = *byte;
                    messages.push((number, changed.clone()));
                    changed.truncate(at.index(encoded.len()));
                    messages.push((number, changed));
                }
            }
            right.push(messages.len());
            messages.push((number, encoded));
        }
        let results = run(&folder, &messages);
        prop_assert_eq!(results.len(), messages.len());
        for ((number, bytes), result) in messages.iter().zip(&results) {
            let (one, message, wire) = wires[usize::try_from(*number).unwrap()];
            let by_json = json::decode(one, message, wire, bytes);
            let again = result.as_ref().map(|bytes| json::decode(one, message, wire, bytes));
            match (&by_json, again) {
                (Ok(value), Ok(Ok(same))) => prop_assert_eq!(value, &same),
                (Err(_), Err(_)) => {}
                other => panic!("{}.{}: {bytes:?}: {other:?}", one.name, wire.name),
            }
        }
        for index in right {
            prop_assert_eq!(results[index].as_ref(), Ok(&messages[index].1));
        }
        Ok(())
    });
    ran.unwrap();
}

// Keeps P162.
#[test]
fn arguments_that_a_program_fills_in_have_the_bytes_of_json() {
    let folder = Folder::new("filled");
    let all = interfaces().into_iter().find(|one| one.name == "all").unwrap();
    folder.write("all.h", &c_header::generate(&all).unwrap());
    folder.write("filled.c", include_str!("../c/filled.c"));
    if folder.compile(C, &["filled.c", "-o", "filled"]).is_none() {
        return;
    }
    let done = Command::new(folder.0.join("filled")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let found = String::from_utf8(done.stdout).unwrap();
    let one = json!({ "left": -5, "small": 6, "right": u64::MAX, "flag": true });
    let two = json!({ "left": 7, "small": 0, "right": 8, "flag": false });
    let messages: [(&str, usize, Value); 4] = [
        ("line", 0, json!({ "number": 7, "text": "a line" })),
        (
            "dynamic",
            0,
            json!({
                "text": "é", "bytes": [1, 2, 3], "list": [one, two], "any": [{ "yes": true }, { "both": one }],
                "e": { "name": "n", "words": [1, 65535], "which": { "three": [one, two, one] } },
            }),
        ),
        ("fails", 1, json!({ "error": "DENIED" })),
        ("perhaps", 0, json!({ "a": 5, "c": "xy" })),
    ];
    let mut due = String::new();
    for (name, wire, arguments) in messages {
        let message = all.message(name).unwrap();
        let encoded = json::encode(&all, message, &message.wires[wire], &arguments).unwrap();
        let hex = encoded.bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        writeln!(due, "{name} {hex}").unwrap();
    }
    assert_eq!(found, due);
}

#[test]
fn the_example_of_the_reference_runs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/interfaces.md");
    let text = std::fs::read_to_string(path).unwrap();
    let block = |begin: &str| {
        let (_, rest) = text.split_once(begin).unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    };
    let folder = Folder::new("example");
    let rust = format!("edition 1;\n{}", block("beside `Cargo.toml`:\n\n```\nedition 1;\n"));
    folder.write("calc.h", &c_header::generate(&interface(&rust)).unwrap());
    folder.write("calc.c", &block("```c\n"));
    if folder.compile(C, &["calc.c", "-o", "calc"]).is_some() {
        let done = Command::new(folder.0.join("calc")).output().unwrap();
        assert_eq!(done.stdout, b"7\n");
    }
}

#[test]
fn every_word_can_be_a_name_in_every_position() {
    let headers = crate::positions::interfaces().into_iter().map(|(name, text)| {
        let checked = Check::new(Source::new(format!("{name}.if"), text)).run();
        c_header::generate(&checked.into_result().unwrap().0).unwrap()
    });
    let headers = headers.collect::<Vec<_>>();
    let folder = Folder::new("words");
    accepted(&folder, &headers);
}

#[test]
fn compilers_accept_the_headers_of_a_tree() {
    let Ok(trees) = std::env::var("COREWIRE_INTERFACES") else {
        println!("skipped: COREWIRE_INTERFACES names no tree of interface files");
        return;
    };
    let folder = Folder::new("tree");
    // Most interfaces are the same for each architecture.
    let mut headers = Vec::new();
    for tree in trees.split(':') {
        for file in corpus::check_tree(Path::new(tree)).unwrap().files {
            for (_, one) in &file.interfaces {
                let header = c_header::generate(one).unwrap_or_else(|error| panic!("{error}"));
                if !headers.contains(&header) {
                    headers.push(header);
                }
            }
        }
    }
    for (index, header) in headers.iter().enumerate() {
        folder.write("one.h", header);
        folder.write("one.c", "#include \"one.h\"\nint main(void) { return 0; }\n");
        folder.write("one.cc", "#include \"one.h\"\nint main() { return 0; }\n");
        let compiled = folder.compile(C, &["-fsyntax-only", "one.c"]);
        // C++ is slower, and is tested with the fixtures.
        if index % 8 == 0 {
            folder.compile(CPP, &["-fsyntax-only", "one.cc"]);
        }
        if compiled.is_none() {
            return;
        }
    }
    println!("{} headers", headers.len());
    assert!(!headers.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_interface_has_a_header(text in crate::common::text(1)) {
        let header = c_header::generate(&interface(&text)).unwrap();
        prop_assert!(header.ends_with("#endif\n"));
    }
}
