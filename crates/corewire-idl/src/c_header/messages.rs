//! Structs and functions of each message.

use std::rc::Rc;

use super::Header;
use super::code::Code;
use super::walk::Walk;
use crate::form::{CapabilityKind, Message, Role, Type, Wire};
use crate::json::JsonProblem;
use crate::json::places::Places;

/// What is added to the name of a message. Macros are in capitals.
pub(super) const ENDINGS: &[&str] = &[
    "_size",
    "_encode",
    "_decode",
    "_ordinal",
    "_hash",
    "_fixed_bytes",
    "_bytes_max",
    "_capabilities_max",
    "_capability_kinds",
];

impl<'a> Header<'a> {
    pub(super) fn message(
        &mut self,
        message: &'a Message,
        wire: &'a Wire,
    ) -> Result<(), JsonProblem> {
        let name = self.wires.get(wire.name.as_str()).cloned().ok_or(JsonProblem::Form)?;
        let fails = wire.role == Role::Reply && message.errors.is_some();
        let arguments = message.arguments_of(wire).collect::<Vec<_>>();
        let first = fails.then_some("error").into_iter();
        let mut members =
            self.members_of(first.chain(arguments.iter().map(|argument| argument.name.as_str())));
        let error = if fails { Some(members.remove(0)) } else { None };
        let mut lines = Vec::new();
        for (argument, name) in arguments.iter().zip(&members) {
            lines.push((format!("{} {name};", self.reference(&argument.of)?), &argument.docs));
        }
        self.defines(message, wire, &name);

        let mut docs = vec![about(message, wire)];
        docs.extend_from_slice(if wire.role == Role::Reply { &[] } else { &message.docs });
        self.code.docs(&docs);
        self.code.open(&format!("struct {name} {{"));
        if let (Some(error), Some(set)) = (&error, &message.errors) {
            self.code.line(&format!(
                "/** 0, or one of the errors `{set}`: then nothing else counts. */"
            ));
            self.code.line(&format!("int32_t {error};"));
        } else if lines.is_empty() {
            self.code.line("/** There are no arguments, and C has no empty structs. */");
            self.code.line("char unused;");
        }
        for (line, docs) in lines {
            self.code.docs(docs);
            self.code.line(&line);
        }
        self.code.close("};");
        self.code.line("");

        let types = arguments.iter().map(|argument| &argument.of).collect::<Vec<_>>();
        let places = Rc::new(self.types.places(fails, types.iter().copied())?);
        if places.bytes != wire.layout.fixed_bytes {
            return Err(JsonProblem::Form);
        }
        let places_of = |members: &[String]| {
            members.iter().map(|name| format!("args->{name}")).collect::<Vec<_>>()
        };
        let all = types.into_iter().zip(places_of(&members)).collect::<Vec<_>>();
        let upper = name.to_ascii_uppercase();
        let plan = Plan { name: &name, upper: &upper, wire, error: error.as_deref(), all: &all };
        self.size(&plan, &places)?;
        self.encode(&plan, &places)?;
        self.decode(&plan, &places)
    }

    fn defines(&mut self, message: &Message, wire: &Wire, name: &str) {
        let (upper, layout) = (name.to_ascii_uppercase(), &wire.layout);
        self.code.line(&format!("#define {upper}_ORDINAL {}", message.ordinal));
        self.code.line(&format!("#define {upper}_HASH UINT64_C(0x{})", wire.hash));
        self.code.line(&format!("#define {upper}_FIXED_BYTES {}", layout.fixed_bytes));
        self.code.line(&format!("#define {upper}_BYTES_MAX {}", layout.bytes_max));
        let kinds = layout.capabilities.iter().flat_map(|one| {
            let count = usize::try_from(one.count).unwrap_or(0);
            std::iter::repeat_n(capability(&one.of), count)
        });
        let kinds = kinds.collect::<Vec<_>>();
        if !kinds.is_empty() {
            self.code
                .line("/* In the order in which they travel; those that are absent do not. */");
            self.code.line(&format!("#define {upper}_CAPABILITIES_MAX {}", kinds.len()));
            self.code.line(&format!("#define {upper}_CAPABILITY_KINDS \\"));
            self.code.line("    { \\");
            for kind in kinds {
                self.code.line(&format!("        COREWIRE_CAPABILITY_{kind}, \\"));
            }
            self.code.line("    }");
        }
        self.code.line("");
    }

    fn size(&mut self, plan: &Plan<'_, 'a>, places: &Rc<Places>) -> Result<(), JsonProblem> {
        let Plan { name, upper, error, all, .. } = plan;
        let mut sum = Code::default();
        for (of, place) in *all {
            Walk::new(self, places.clone(), "").size(of, place, &mut sum)?;
        }
        let mut body = Code::default();
        if sum.text.is_empty() {
            body.line("(void)args;");
            body.line(&format!("return {upper}_FIXED_BYTES;"));
        } else {
            body.line(&format!("size_t size = {upper}_FIXED_BYTES;"));
            if let Some(error) = error {
                body.open(&format!("if (args->{error} != 0) {{"));
                body.line("return size;");
                body.close("}");
            }
            sum.text.lines().for_each(|line| body.line(line));
            body.line("return size;");
        }
        self.code.line(
            "/* The bytes of the message. What is longer than its bound counts as long as that. */",
        );
        self.function(
            &format!("static inline size_t {name}_size(const struct {name} *args)"),
            &body,
        );
        Ok(())
    }

    fn encode(&mut self, plan: &Plan<'_, 'a>, places: &Rc<Places>) -> Result<(), JsonProblem> {
        let Plan { name, upper, wire, error, all } = plan;
        let mut body = Code::default();
        body.line("*written = 0;");
        body.open(&format!("if (capacity < {name}_size(args)) {{"));
        body.line("return COREWIRE_ERROR_CAPACITY;");
        body.close("}");
        let is_dynamic = !wire.layout.dynamics.is_empty();
        let has_fixed = wire.layout.fixed_bytes > 0;
        if is_dynamic {
            body.line(&format!("size_t used = {upper}_FIXED_BYTES;"));
        }
        body.line(&if has_fixed {
            format!("memset(out, 0, {upper}_FIXED_BYTES);")
        } else {
            "(void)out;".to_owned()
        });
        let mut walk = Walk::new(self, places.clone(), "out");
        if let Some(error) = error {
            let at = walk.at(4)?;
            body.line(&format!("corewire_put_u32({at}, (uint32_t)args->{error});"));
            body.open(&format!("if (args->{error} != 0) {{"));
            body.line(&format!("*written = {upper}_FIXED_BYTES;"));
            body.line("return 0;");
            body.close("}");
        }
        for (of, place) in *all {
            walk.put(of, place, &mut body)?;
        }
        body.line(&if is_dynamic {
            "*written = used;".to_owned()
        } else {
            format!("*written = {upper}_FIXED_BYTES;")
        });
        body.line("return 0;");
        let head = format!(
            "static inline int {name}_encode(const struct {name} *args, uint8_t *out, size_t capacity,\n    \
             size_t *written)"
        );
        self.code
            .line("/* Writes the message to `out`, and the number of its bytes to `written`. */");
        self.function(&head, &body);
        Ok(())
    }

    fn decode(&mut self, plan: &Plan<'_, 'a>, places: &Rc<Places>) -> Result<(), JsonProblem> {
        let Plan { name, upper, wire, error, all } = plan;
        let mut body = Code::default();
        let is_dynamic = !wire.layout.dynamics.is_empty();
        body.line("memset(args, 0, sizeof *args);");
        if wire.layout.fixed_bytes == 0 {
            body.line("(void)bytes;");
        }
        let wrong = if is_dynamic { "<" } else { "!=" };
        body.open(&format!("if (length {wrong} {upper}_FIXED_BYTES) {{"));
        body.line("return COREWIRE_ERROR_LENGTH;");
        body.close("}");
        let mut walk = Walk::new(self, places.clone(), "bytes");
        if let Some(error) = error {
            let at = walk.at(4)?;
            body.line(&format!("args->{error} = corewire_get_i32({at});"));
            body.open(&format!("if (args->{error} != 0) {{"));
            body.line("return 0;");
            body.close("}");
        }
        if is_dynamic {
            let fixed = format!("{upper}_FIXED_BYTES");
            body.line(&format!(
                "struct corewire_rest rest = {{bytes + {fixed}, length - {fixed}}};"
            ));
        }
        for (of, place) in *all {
            walk.get(of, place, &mut body)?;
        }
        body.line(if is_dynamic {
            "return rest.left == 0 ? 0 : COREWIRE_ERROR_LENGTH;"
        } else {
            "return 0;"
        });
        let head = format!(
            "static inline int {name}_decode(struct {name} *args, const uint8_t *bytes, size_t length)"
        );
        self.code.line("/* Reads the message. Strings and vectors stay where they are. */");
        self.function(&head, &body);
        Ok(())
    }
}

/// A message, and what it is called in C.
struct Plan<'p, 'a> {
    name: &'p str,
    upper: &'p str,
    wire: &'p Wire,
    error: Option<&'p str>,
    /// Types and places of all arguments.
    all: &'p [(&'a Type, String)],
}

fn about(message: &Message, wire: &Wire) -> String {
    let name = &message.name;
    match wire.role {
        Role::Call => format!("Calls `{name}`."),
        Role::Reply => format!("The reply to `{name}`."),
        Role::OneWay => format!("{} `{name}`.", capital(message.kind.as_str())),
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

fn capability(of: &Type) -> &'static str {
    match of {
        Type::Capability { capability: CapabilityKind::Cap } => "CAP",
        Type::Capability { capability: CapabilityKind::GiveAwayCap } => "GIVE_AWAY_CAP",
        Type::Capability { capability: CapabilityKind::Endpoint } => "ENDPOINT",
        Type::Channel { .. } => "CHANNEL",
        Type::Client { .. } => "CLIENT",
        _ => "FD",
    }
}
