//! C from interfaces: one header, which needs nothing but the C library, in C11 that is C++17, too.
//!
//! It has constants, types and errors, and for each message a struct of its arguments with functions that encode and
//! decode it. It sends nothing. The bytes are those of generated Rust.
//!
//! | file | makes |
//! |---|---|
//! | `support.h` | what all headers have in common |
//! | `message.h` | the functions of one message |
//! | `vector.h`, `vector_of_parts.h` | a struct for vectors of one type, and its functions: elements of a fixed size, others |
//! | `types.rs` | constants, errors, and types |
//! | `alone.rs` | functions for elements of vectors and arms of unions |
//! | `details.rs` | the details of errors |
//! | `messages.rs` | for each message: a struct, its size, encoding and decoding |
//! | `walk.rs` | the code that runs the operations of one message |
//! | `names.rs` | names that C and C++ accept |

mod alone;
mod code;
mod details;
mod messages;
mod names;
mod support;
mod types;
mod walk;

use std::collections::{HashMap, HashSet};

use self::code::{Code, harmless, line, string};
use self::names::Names;
use crate::form::{Definition, FormDisagrees, Interface, Lowering};

/// Why there is no header for an interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Types and layouts do not agree: the form was not made by the checker, and not checked.
    #[error("the form of interface `{interface}` does not agree with itself")]
    Form {
        /// The interface.
        interface: String,
    },
}

/// The header of an interface.
///
/// ```
/// use corewire_idl::{Check, Source, c_header};
///
/// let text = "interface calc \"\" { rpc twice(in int32 x, out int32 y); };";
/// let (interface, _) = Check::new(Source::new("calc.if", text)).run().into_result().unwrap();
/// let code = c_header::generate(&interface).unwrap();
/// assert!(code.contains("int calc_twice_call_encode(const struct calc_twice_call *args,"));
/// ```
///
/// # Errors
/// [`HeaderError::Form`] for a form that was put together by hand and is wrong.
pub fn generate(interface: &Interface) -> Result<String, HeaderError> {
    let mut header = Header::new(interface);
    header.write().map_err(|_| HeaderError::Form { interface: interface.name.clone() })?;
    Ok(header.code.text)
}

/// Everything that is written to one header.
struct Header<'a> {
    interface: &'a Interface,
    lowering: Lowering<'a>,
    names: Names,
    /// Names of declared types, without `struct`.
    type_names: HashMap<&'a str, String>,
    /// Fields, arms and values, by the type and their own name.
    members: HashMap<(&'a str, &'a str), String>,
    /// Structs for types without a name, by what they are made of.
    unnamed: HashMap<String, String>,
    /// Types that have functions for values that stand alone.
    alone: HashSet<String>,
    /// Unions of the details of errors, by the set.
    details: HashMap<&'a str, String>,
    /// Names of messages, as they travel.
    wires: HashMap<&'a str, String>,
    code: Code,
}

impl<'a> Header<'a> {
    fn new(interface: &'a Interface) -> Self {
        Self {
            interface,
            lowering: interface.lowering(),
            names: Names::default(),
            type_names: HashMap::new(),
            members: HashMap::new(),
            unnamed: HashMap::new(),
            alone: HashSet::new(),
            details: HashMap::new(),
            wires: HashMap::new(),
            code: Code::default(),
        }
    }

    /// `calc_pair`.
    fn prefixed(&self, name: &str) -> String {
        format!("{}_{name}", self.interface.name)
    }

    fn write(&mut self) -> Result<(), FormDisagrees> {
        self.name_all();
        let interface = self.interface;
        let guard = self.guard();
        let made = format!(
            "Made from interface `{}` by corewire-idl. Changes will be lost.",
            interface.name
        );
        line!(self.code, "/* {made} */");
        self.code.line("");
        let about = interface.description.iter().filter(|text| !text.is_empty());
        let about = about.chain(&interface.docs).map(|line| harmless(line)).collect::<Vec<_>>();
        self.code.docs(&about);
        for line in [format!("#ifndef {guard}"), format!("#define {guard}"), String::new()] {
            self.code.line(&line);
        }
        self.code.text.push_str(support::TEXT);
        self.code.line("");
        let (name, hash) = (self.upper("INTERFACE_NAME"), self.upper("INTERFACE_HASH"));
        line!(self.code, "#define {name} {}", string(&interface.name));
        line!(self.code, "#define {hash} UINT64_C(0x{})", interface.hash);
        self.code.line("");
        self.constants();
        for decl in &interface.types {
            self.declared(decl)?;
        }
        for set in &interface.errors {
            let docs = if set.docs.is_empty() {
                vec![format!("Errors `{}`.", set.name)]
            } else {
                set.docs.clone()
            };
            self.code.docs(&docs);
            self.enumerators(&set.name, &set.values);
            self.error_details(set)?;
        }
        for (message, wire) in interface.wires() {
            self.message(message, wire)?;
        }
        self.code.line("#endif");
        Ok(())
    }

    fn guard(&self) -> String {
        format!("COREWIRE_INTERFACE_{}_H", self.interface.name.to_ascii_uppercase())
    }

    /// `CALC_LIMIT`, for names that have been given.
    fn upper(&self, name: &str) -> String {
        self.prefixed(name).to_ascii_uppercase()
    }

    /// Types and messages keep their names if possible, so they get theirs first.
    fn name_all(&mut self) {
        let interface = self.interface;
        let guard = self.guard();
        self.names.give(&guard);
        for name in ["INTERFACE_NAME", "INTERFACE_HASH"] {
            let name = self.upper(name);
            self.names.give(&name);
        }
        for decl in &interface.types {
            let endings: &[&str] = match &decl.definition {
                Definition::Enum { .. } => &["_is_known"],
                Definition::Union { arms, .. } if self.are_dynamic(arms) => {
                    &["_put", "_get", "_size"]
                }
                Definition::Union { .. } => &["_put", "_get"],
                _ => &[],
            };
            let name = self.names.give_all(&self.prefixed(&decl.name), endings);
            self.type_names.insert(&decl.name, name);
        }
        for (_, wire) in interface.wires() {
            let endings = messages::ENDINGS;
            let name = self.names.give_all(&self.prefixed(&wire.name), endings);
            self.wires.insert(&wire.name, name);
        }
        for set in interface.errors.iter().filter(|set| set.detailed) {
            let name = self.prefixed(&format!("{}_details", set.name));
            let name = self.names.give_all(&name, details::ENDINGS);
            self.details.insert(&set.name, name);
        }
        let decls = interface.types.iter().filter_map(|decl| match &decl.definition {
            Definition::Enum { values, .. } => Some((decl.name.as_str(), values)),
            _ => None,
        });
        let sets = interface.errors.iter().map(|set| (set.name.as_str(), &set.values));
        for (of, values) in decls.chain(sets) {
            for value in values {
                let name = self.upper(&format!("{of}_{}", value.name));
                let name = self.names.give(&name);
                self.members.insert((of, &value.name), name);
            }
        }
    }

    /// Names of members, which a macro or a type of the header must not hide.
    fn members_of<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<String> {
        let mut own = Names::default();
        names.map(|name| own.give_member(name, &self.names)).collect()
    }
}
