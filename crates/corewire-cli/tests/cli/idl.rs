//! `corewire idl`.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::scratch::{Finished, Running, Scratch, files_in};

const POINT: &str = "edition 1;\n\ntypedef struct {\n    int32 x;\n    int32 y;\n} point;\n";
const CANVAS: &str = "edition 1;\nimport \"point.if\";\n\ninterface canvas {\n    \
                      rpc draw @1(in point where) ! failure;\n    \
                      errors failure { OUTSIDE };\n}\n";

/// A folder with files, in which commands run.
struct Files(Scratch);

impl Files {
    fn new(test: &str, files: &[(&str, &str)]) -> Self {
        let this = Self(Scratch::new(test));
        for (name, text) in files {
            this.write(name, text);
        }
        this
    }

    fn folder(&self) -> PathBuf {
        self.0.temporary()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder().join(name)).unwrap()
    }

    fn run(&self, args: &str) -> Finished {
        let mut command = self.0.command(&format!("idl {args}"));
        Running::start(command.current_dir(self.folder())).finish()
    }

    fn run_with_input(&self, args: &str, input: &str) -> Finished {
        let mut command = self.0.command(&format!("idl {args}"));
        command.stdin(Stdio::piped()).current_dir(self.folder());
        let mut running = Running::start(&mut command);
        running.input().write_all(input.as_bytes()).unwrap();
        running.finish()
    }
}

// Keeps P148.
#[test]
fn all_errors_of_all_files_come_in_one_run() {
    let one = "interface one \"\" { message m(foo x); message m(uint31 y); };";
    let two = "interface two \"\" { message m(int x) };";
    let files = Files::new("idl-errors", &[("one.if", one), ("two.if", two), ("point.if", POINT)]);
    let done = files.run("check one.if two.if point.if");
    done.expect_code(1);
    assert!(done.output.is_empty());
    for word in ["error[E0020]", "error[E0022]", "one.if:1:", "two.if:1:", "did you mean"] {
        assert!(done.errors.contains(word), "{word}: {}", done.errors);
    }
    assert!(done.errors.ends_with("4 errors\n"), "{}", done.errors);
    assert!(!done.errors.contains('\u{1b}'), "colours are for terminals");

    let done = files.run("check one.if two.if --message-format json");
    done.expect_code(1);
    assert_eq!(done.errors, "");
    let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let found: Vec<_> = done.text().lines().map(line).collect();
    assert_eq!(found.len(), 4);
    assert!(
        found.iter().all(|one| one["severity"] == "error" && one["spans"][0]["line_start"] == 1)
    );
    let help = files.run("check --help");
    for object in [&found[0], &found[0]["spans"][0]] {
        for key in object.as_object().unwrap().keys() {
            assert!(help.text().contains(key.as_str()), "{key} is not in the help");
        }
    }
}

#[test]
fn imports_are_found_beside_their_file_or_given() {
    let plain = "interface plain \"\" { message m(point p); };";
    let given = [("in/point.if", POINT), ("in/canvas.if", CANVAS), ("plain.if", plain)];
    let files = Files::new("idl-imports", &given);
    let done = files.run("check in/canvas.if");
    done.expect_code(0);
    assert_eq!((done.text(), done.errors.as_str()), ("", ""));
    files.run("check plain.if --import in/point.if").expect_code(0);
    files.run("check -i in/point.if plain.if --deny-warnings").expect_code(0);
    let done = files.run("check plain.if");
    done.expect_code(1);
    assert!(done.errors.contains("error[E0020]"), "{}", done.errors);
    fs::remove_file(files.folder().join("in/point.if")).unwrap();
    let done = files.run("check in/canvas.if");
    done.expect_code(1);
    assert!(done.errors.contains("`in/point.if` cannot be read"), "{}", done.errors);
}

#[test]
fn warnings_are_accepted_unless_they_are_denied() {
    let files = Files::new("idl-warnings", &[("a.if", "interface b \"\" { message m(); };")]);
    let done = files.run("check a.if");
    done.expect_code(0);
    assert!(done.errors.contains("warning[W0001]"), "{}", done.errors);
    let done = files.run("check a.if --deny-warnings");
    done.expect_code(1);
    assert!(done.errors.ends_with("which --deny-warnings refuses\n"), "{}", done.errors);
}

// Keeps P37.
#[test]
fn wrong_usage_and_unreadable_files_are_one_line_and_code_2() {
    let calm = "interface a \"\" {message m();};";
    let files = Files::new("idl-usage", &[("a.if", calm), ("a.json", "{}"), ("no/b.if", calm)]);
    let cases = [
        ("frob", "frob"),
        ("check", "FILE"),
        ("check missing.if", "cannot read missing.if: No such file"),
        ("check a.if missing.if", "missing.if"),
        ("check a.if --import missing.if", "missing.if"),
        ("check no", "cannot read no: Is a directory"),
        ("check a.if --message-format xml", "xml"),
        ("check a.if --corpus no", "--corpus"),
        ("check --corpus missing", "`missing` cannot be read"),
        ("check --corpus no", "has no architecture"),
        ("format", "FILE"),
        ("format a.if missing.if", "missing.if"),
        ("format /dev/null", "not a regular file"),
        ("format - -", "once"),
        ("json", "FILE"),
        ("json missing.if", "missing.if"),
        ("rust", "FILE"),
        ("rust missing.if", "missing.if"),
        ("rust a.if no/b.if", "code of several files needs --output"),
        ("rust a.if --message-format json", "needs --output"),
        ("rust a.if --output missing", "missing is not a directory"),
        ("rust a.if ./a.if --output no", "./a.if: another FILE is written to no/a.rs, too"),
        ("c-header", "FILE"),
        ("c-header a.if no/b.if", "code of several files needs --output"),
        ("diff a.if", "NEW"),
        ("diff a.if missing.if", "missing.if"),
        ("diff missing.json a.if", "missing.json"),
        ("diff a.json a.if", "a.json: not the JSON form of an interface"),
    ];
    for (args, word) in cases {
        let done = files.run(args);
        done.expect_line(2, word);
        assert!(done.output.is_empty(), "{args}: {}", done.text());
    }
    assert_eq!(files.read("a.if"), calm, "no file is changed if one cannot be read");
    assert_eq!(files.run("").status.code(), Some(2));
}

// Keeps P147.
#[test]
fn format_replaces_files_as_a_whole_and_once_is_enough() {
    let (loose, broken) = ("interface a \"\" {message m( int x );}; // end\n", "interface b {");
    let tight = "interface a \"\" {\n    message m(int x);\n}; // end\n";
    let files = Files::new("idl-format", &[("a.if", loose), ("b.if", broken), ("c.if", tight)]);
    let path = files.folder().join("a.if");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();

    let done = files.run("format --check a.if c.if");
    done.expect_code(1);
    assert_eq!((done.text(), done.errors.as_str()), ("a.if\n", ""));
    assert_eq!(files.read("a.if"), loose);

    let done = files.run("format b.if a.if c.if");
    done.expect_code(1);
    assert!(done.errors.contains("b.if:1:"), "{}", done.errors);
    assert_eq!((files.read("a.if").as_str(), files.read("b.if").as_str()), (tight, broken));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
    let mut names = files_in(&files.folder());
    names.sort();
    assert_eq!(names, ["a.if", "b.if", "c.if"], "nothing else stays");

    let done = files.run("format --check a.if c.if");
    done.expect_code(0);
    assert_eq!(done.text(), "");
}

#[test]
fn format_reads_standard_input() {
    let files = Files::new("idl-input", &[]);
    let done = files.run_with_input("format -", "interface a \"\" {message m();};");
    done.expect_code(0);
    assert_eq!(done.text(), "interface a \"\" {\n    message m();\n};\n");
    let done = files.run_with_input("format - --check", "interface a \"\" {message m();};");
    done.expect_code(1);
    assert_eq!(done.text(), "standard input\n");
    let done = files.run_with_input("format -", "interface a {");
    done.expect_code(1);
    assert!(done.output.is_empty() && done.errors.contains("standard input:1:"), "{}", done.errors);
}

// Keeps P149.
#[test]
fn a_json_form_is_a_version_that_files_are_compared_with() {
    let files = Files::new("idl-diff", &[("point.if", POINT), ("canvas.if", CANVAS)]);
    let form = files.run("json canvas.if");
    form.expect_code(0);
    assert_eq!(form.json()["messages"][0]["name"], "draw");
    files.write("old.json", form.text());
    for (old, new) in [("old.json", "canvas.if"), ("canvas.if", "old.json")] {
        let done = files.run(&format!("diff {old} {new}"));
        done.expect_code(0);
        assert_eq!(done.text(), "no changes\n");
    }
    let grown = CANVAS.replace("OUTSIDE }", "OUTSIDE, FULL }");
    files.write("grown/canvas.if", &grown.replace("point.if", "../point.if"));
    let done = files.run("diff old.json grown/canvas.if");
    done.expect_code(0);
    assert!(done.text().starts_with("compatible: "), "{}", done.text());

    files.write("point.if", &POINT.replace("int32 y", "int64 y"));
    let done = files.run("diff old.json canvas.if");
    done.expect_code(1);
    assert!(done.text().starts_with("breaks: "), "{}", done.text());
    let done = files.run("diff old.json canvas.if --json");
    done.expect_code(1);
    let report = done.json();
    assert_eq!(
        (&report["breaks"], &report["changes"][0]["effect"]),
        (&true.into(), &"breaks".into())
    );
    let help = files.run("diff --help");
    let keys = report.as_object().unwrap().keys();
    for key in keys.chain(report["changes"][0].as_object().unwrap().keys()) {
        assert!(help.text().contains(key.as_str()), "{key} is not in the help");
    }

    files.write("point.if", "");
    let done = files.run("diff old.json canvas.if");
    done.expect_code(2);
    assert!(done.errors.contains("error[E0020]"), "{}", done.errors);
    files.run("json point.if").expect_code(1);
    files.write("old.json", &form.text().replace("int32", "int16"));
    files.run("diff old.json canvas.if").expect_line(2, "old.json: `");
}

/// What holds for each command that makes code.
fn makes_code(test: &str, command: &str, ending: &str, word: &str) {
    let files = Files::new(test, &[("in/point.if", POINT), ("in/canvas.if", CANVAS)]);
    let code = files.run(&format!("{command} in/canvas.if"));
    code.expect_code(0);
    assert!(code.text().contains(word) && code.errors.is_empty(), "{}", code.errors);

    fs::create_dir(files.folder().join("out")).unwrap();
    let plain = "interface other \"\" { message m(point p); };";
    files.write("plain.if", plain);
    let both = format!("{command} --output out in/canvas.if plain.if");
    let done = files.run(&both);
    done.expect_code(1);
    assert!(done.errors.contains("error[E0020]"), "{}", done.errors);
    assert!(files_in(&files.folder().join("out")).is_empty(), "nothing is written after an error");
    let done = files.run(&format!("{both} --message-format json"));
    done.expect_code(1);
    assert!(done.errors.is_empty() && done.text().contains("\"E0020\""), "{}", done.errors);

    let both = format!("{both} -i in/point.if");
    let done = files.run(&both);
    done.expect_code(0);
    assert!(done.output.is_empty() && done.errors.contains("warning[W0001]"), "{}", done.errors);
    let mut names = files_in(&files.folder().join("out"));
    names.sort();
    assert_eq!(names, [format!("canvas.{ending}"), format!("plain.{ending}")]);
    assert_eq!(files.read(&format!("out/canvas.{ending}")), code.text());

    // A file that has this text already is not written, and another text is replaced.
    let (kept, old) = (format!("out/canvas.{ending}"), format!("out/plain.{ending}"));
    let modified = || fs::metadata(files.folder().join(&kept)).unwrap().modified().unwrap();
    let before = modified();
    files.write(&old, "old");
    files.run(&both).expect_code(0);
    assert_eq!(modified(), before);
    assert!(files.read(&old).contains("other"));
    files.run(&format!("{command} in/point.if")).expect_code(1);
    let help = files.run(&format!("{command} --help"));
    assert!(help.text().contains(&format!("NAME.{ending}")), "{}", help.text());
}

// Keeps P161.
#[test]
fn rust_is_printed_or_written_if_no_file_has_errors() {
    makes_code("idl-rust", "rust", "rs", "pub struct Client");
    let fd = "edition 1; interface a { message m @1(fd file); message n @2(cap other); }";
    let files = Files::new("idl-rust-fd", &[("a.if", fd)]);
    let done = files.run("rust a.if");
    done.expect_code(0);
    assert!(done.text().contains("file: std::os::fd::BorrowedFd<'_>"), "{}", done.text());
}

// Keeps P161.
#[test]
fn headers_are_printed_or_written_if_no_file_has_errors() {
    makes_code("idl-c-header", "c-header", "h", "struct canvas_draw_call {");
}

#[test]
fn a_corpus_is_counted() {
    let service = "interface service \"\" { call ask(word w); rpc stop(out errval err); };";
    let files = Files::new(
        "idl-corpus",
        &[
            ("if/platform/big.if", ""),
            ("if/platform/small.if", ""),
            ("if/arch/big.if", "alias word uint64;"),
            ("if/arch/small.if", "alias word uint32;"),
            ("if/types.if", "alias coreid uint8;"),
            ("usr/if/service.if", service),
        ],
    );
    let done = files.run("check --corpus .");
    done.expect_code(0);
    let expected = "6 of 6 files\ninterfaces     1\nwire messages  3\narchitectures  big, small\n\
                    \nwarnings:\nW0002 1  `call` or `response`, which Flounder no longer has\n";
    assert_eq!((done.text(), done.errors.as_str()), (expected, ""));
    files.run("check --corpus . --deny-warnings").expect_line(1, "--deny-warnings");
    let report = files.run("check --corpus . --message-format json").json();
    assert_eq!((&report["wire_messages"], &report["passed"]), (&3.into(), &6.into()));
    let help = files.run("check --help");
    let keys = report.as_object().unwrap().keys();
    for key in keys.chain(report["warnings"][0].as_object().unwrap().keys()) {
        assert!(help.text().contains(key.as_str()), "{key} is not in the help");
    }

    files.write("usr/if/broken.if", "interface broken \"\" { message m(words w); };");
    let done = files.run("check --corpus .");
    done.expect_code(1);
    assert!(done.text().starts_with("6 of 7 files\n"), "{}", done.text());
    assert!(done.errors.contains("usr/if/broken.if:1:"), "{}", done.errors);
}

#[test]
fn the_examples_are_right_and_formatted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/interfaces");
    let scratch = Scratch::new("idl-examples");
    let names = files_in(&folder);
    assert!(names.contains(&"calculator.if".to_owned()), "{names:?}");
    for args in ["idl check --deny-warnings", "idl format --check"] {
        let mut command = scratch.command(args);
        let done = Running::start(command.args(&names).current_dir(&folder)).finish();
        done.expect_code(0);
        assert_eq!((done.text(), done.errors.as_str()), ("", ""));
    }
}
