//! Random interface files that are right.

use proptest::prelude::*;

/// The tokens of a file. Names are unique by construction.
pub(crate) fn tokens(edition: u32) -> impl Strategy<Value = Vec<String>> {
    let declarations = prop::collection::vec(declaration(edition), 0..6);
    let messages = prop::collection::vec(message(edition), 1..6);
    (declarations, messages).prop_map(move |(declarations, messages)| {
        let mut tokens = Vec::new();
        if edition > 0 {
            push(&mut tokens, "edition 1 ;");
        }
        push(&mut tokens, "interface some \"d\\\"escription\" {");
        for (index, declaration) in declarations.iter().enumerate() {
            push(&mut tokens, &declaration.replace('#', &index.to_string()));
        }
        for (index, message) in messages.iter().enumerate() {
            push(&mut tokens, &message.replace('#', &index.to_string()));
        }
        push(&mut tokens, "} ;");
        tokens
    })
}

fn push(tokens: &mut Vec<String>, text: &str) {
    tokens.extend(text.split(' ').filter(|token| !token.is_empty()).map(str::to_owned));
}

fn scalar(edition: u32) -> BoxedStrategy<String> {
    let mut names = vec!["uint8", "uint16", "int", "int64", "bool", "char", "errval", "iref"];
    if edition > 0 {
        names.push("optional < uint32 >");
    }
    prop::sample::select(names).prop_map(str::to_owned).boxed()
}

fn declaration(edition: u32) -> BoxedStrategy<String> {
    let fields = prop::collection::vec(scalar(edition), 1..5).prop_map(|fields| {
        let fields = fields.iter().enumerate().map(|(at, of)| format!("{of} f{at} ;"));
        fields.collect::<Vec<_>>().join(" ")
    });
    let structs = fields.clone().prop_map(|fields| format!("typedef struct {{ {fields} }} t# ;"));
    let enums = (1..20).prop_map(|count| {
        let values = (0..count).map(|at| format!("VALUE_{at}")).collect::<Vec<_>>().join(" , ");
        format!("typedef enum {{ {values} }} t# ;")
    });
    let arrays = (scalar(edition), 1..9).prop_map(|(of, n)| format!("typedef {of} t# [ {n} ] ;"));
    let aliases = Just("alias t# uint64 ;".to_owned());
    if edition == 0 {
        return prop_oneof![structs, enums, arrays, aliases].boxed();
    }
    let newer = prop::sample::select(vec![
        "const int16 c# = - 0x10 ;",
        "const String c# = \"a;{//\" ;",
        "errors t# { NONE = 4 , SOME , } ;",
        "errors t# detailed { NONE ( String s [ 4 ] , vector < String [ 3 ] , 2 > v ) = 4 , SOME , } ;",
        "typedef struct { float64 f ; vector < vector < String [ 9 ] , 3 > , 2 > v ; } t# ;",
        "typedef union { float32 f ; String s [ 7 ] ; } t# ;",
        "typedef flexible enum { A = 3 , B } t# ;",
        "typedef struct { String s [ 0o17 ] ; vector < uint16 , 3 > v ; } t# ;",
    ]);
    let unions = prop::sample::select(vec!["uint8", "int64", "bool"])
        .prop_map(|of| format!("typedef union {{ {of} left ; uint16 right ; }} t# ;"));
    let newer = newer.prop_map(str::to_owned);
    prop_oneof![structs, enums, arrays, aliases, newer, unions].boxed()
}

fn message(edition: u32) -> BoxedStrategy<String> {
    let mut others = vec!["uint8 * [ l* , 16 ]", "String * [ 64 ]", "cap"];
    if edition > 0 {
        others.extend(["vector < int , 4 >", "fd", "window"]);
    }
    let others = prop::sample::select(others).prop_map(str::to_owned);
    let argument = prop_oneof![scalar(edition), others];
    (prop::collection::vec((argument, any::<bool>()), 0..9), 0..4usize)
        .prop_map(move |(arguments, kind)| {
            let keyword = ["message", "rpc", "call", "event"][kind];
            let keyword = if edition == 0 && keyword == "event" { "response" } else { keyword };
            let arguments = arguments.iter().enumerate().map(|(at, (of, out))| {
                let direction = match (keyword, out) {
                    ("rpc", true) => "out ",
                    ("rpc", false) => "in ",
                    _ => "",
                };
                match of.contains('*') {
                    true => format!("{direction}{}", of.replace('*', &format!("a{at}"))),
                    false => format!("{direction}{of} a{at}"),
                }
            });
            let arguments = arguments.collect::<Vec<_>>();
            let meta = if kind == 0 { "@ some ( x = 1 , y = 0xff ) " } else { "" };
            // A stream of what an rpc gives, if it gives something, and if that can be parts.
            let (parts, given) =
                arguments.iter().partition::<Vec<_>, _>(|one| one.starts_with("out "));
            let rights = ["out cap ", "out fd ", "out window "];
            let is_part = |one: &&String| !rights.iter().any(|right| one.starts_with(right));
            let (parts, given, all) =
                (join(&parts), join(&given), join(&arguments.iter().collect::<Vec<_>>()));
            let can_stream =
                arguments.iter().filter(|one| one.starts_with("out ")).all(|one| is_part(&one));
            match edition > 0 && !parts.is_empty() && can_stream && arguments.len() % 2 == 0 {
                true => format!("{keyword} m# ( {given} ) stream ( {parts} ) ;"),
                false => format!("{meta}{keyword} m# ( {all} ) ;"),
            }
        })
        .boxed()
}

fn join(arguments: &[&String]) -> String {
    arguments.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(" , ")
}

/// Tokens with random white space and comments between them.
pub(crate) fn text(edition: u32) -> impl Strategy<Value = String> {
    tokens(edition).prop_flat_map(|tokens| {
        let gaps = prop::collection::vec(gap(), tokens.len() + 1);
        gaps.prop_map(move |gaps| {
            let mut text = gaps[0].clone();
            for (token, gap) in tokens.iter().zip(&gaps[1..]) {
                text += token;
                text += gap;
            }
            text
        })
    })
}

fn gap() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        20 => Just(" "),
        3 => Just("\n"),
        1 => Just("\t\n\n\n "),
        1 => Just(" // a\n"),
        1 => Just("\n// own \n"),
        1 => Just(" /* b */ "),
        1 => Just("\n/* c */\n"),
        1 => Just("/* d\n  * e\n  f /* g */\n*/"),
        1 => Just("\n/// documentation  \n"),
        1 => Just("//// none\r\n"),
    ];
    prop::collection::vec(part, 1..3).prop_map(|parts| format!(" {}", parts.concat()))
}
