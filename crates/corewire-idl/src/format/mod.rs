//! Canonical text. Only white space changes: tokens and comments stay, in their order, so that the meaning stays.
//!
//! Four spaces for each level, one statement to a line, at most one empty line in a row. A list of arguments or values
//! stands in one line if that has at most 100 columns and no comment ends a line inside it; otherwise each argument has
//! a line of its own. Fields of structs and unions always do.

mod items;
mod printer;

use std::sync::Arc;

use crate::diagnostics::Diagnostics;
use crate::parser;
use crate::source::Source;

/// The canonical text of a file.
///
/// # Errors
///
/// The diagnostics of a file that cannot be read. What names mean does not matter.
///
/// ```
/// use corewire_idl::{Source, format};
///
/// let text = "interface a \"\" {message m( int x,int y ) ; // both\n};";
/// let canonical = "interface a \"\" {\n    message m(int x, int y); // both\n};\n";
/// assert_eq!(format(Source::new("a.if", text)).unwrap(), canonical);
/// ```
pub fn format(source: Source) -> Result<String, Diagnostics> {
    let source = Arc::new(source);
    let mut diagnostics = Diagnostics::default();
    let id = diagnostics.add_source(Arc::clone(&source));
    let (_, tokens) = parser::parse(&source, id, &mut diagnostics);
    if diagnostics.has_errors() {
        diagnostics.sort();
        return Err(diagnostics);
    }
    Ok(printer::print(&items::items(&source, &tokens)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(text: &str) -> String {
        let once = format(Source::new("a.if", text)).expect("the text is right");
        let twice = format(Source::new("a.if", once.clone())).expect("the text stays right");
        assert_eq!(once, twice, "formatting again changes nothing");
        once
    }

    #[test]
    fn lists_that_are_too_long_are_broken() {
        let long = "in uint64 an_argument_with_a_long_name";
        let text =
            format!("interface a \"d\" {{ rpc r({long}1, {long}2, out uint8 b[len,16]); }};");
        let expected = format!(
            "interface a \"d\" {{\n    rpc r(\n        {long}1,\n        {long}2,\n        \
             out uint8 b[len, 16]\n    );\n}};\n"
        );
        assert_eq!(formatted(&text), expected);
    }

    #[test]
    fn comments_stay_where_they_are() {
        let text = "/* head\n * more\n */\ninterface a \"d\" { // open\n\n\n// first\n\
                    typedef enum {A, // one\n B} e ;/* after */\n\
                    message m(/* x */ int x, // the x\n // next\n int y // the y\n);\n\
                    @ata( a = 0x1 , b=x ) message n( ) ; // last\n}; // end\n// tail";
        let expected = "/* head\n * more\n */\ninterface a \"d\" { // open\n    // first\n    \
                        typedef enum {\n        A, // one\n        B\n    } e; /* after */\n    \
                        message m(\n        /* x */ int x, // the x\n        // next\n        \
                        int y // the y\n    );\n    \
                        @ata(a=0x1, b=x)\n    message n(); // last\n}; // end\n// tail\n";
        assert_eq!(formatted(text), expected);
    }

    #[test]
    fn edition_1_has_its_own_marks() {
        let text = "edition 1;\nimport \"t.if\" ;\n\ninterface a \"d\" {\nconst int8 LOW=- 4;\n\
                    typedef struct {/// doc\nString s [ 4 ];optional < uint8 > o;} t;\n\
                    errors e { A=4, B };\nrpc r @ 3(in vector < t , 4 > v)!e;\n}";
        let expected = "edition 1;\nimport \"t.if\";\n\ninterface a \"d\" {\n    \
                        const int8 LOW = -4;\n    typedef struct { /// doc\n        String s[4];\n        \
                        optional<uint8> o;\n    } t;\n    errors e { A = 4, B };\n    \
                        rpc r @3(in vector<t, 4> v) ! e;\n}\n";
        assert_eq!(formatted(text), expected);
    }

    #[test]
    fn odd_places_of_comments_are_possible() {
        formatted(
            "interface // a\n a // b\n \"d\" // c\n { // d\n message // e\n m // f\n ( // g\n ) // h\n ; // i\n } // j\n ; // k",
        );
        formatted(
            "/* a */ interface a \"\" { /* b */ message m(); /* c */ message n(int x /* d */); /* e */ };/* f */",
        );
        formatted("// only a comment");
        let many = "/**/ ".repeat(40_000);
        formatted(&format!("interface a \"\" {{ {many} message m({many}); {many} }};"));
        formatted("");
        formatted("alias a int;\n\n\n\n/* b\nc */ alias b int; /* d\n  * e */\n");
    }
}
