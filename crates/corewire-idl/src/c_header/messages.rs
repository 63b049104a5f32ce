//! Structs and functions of each message.

use super::Header;
use super::code::{Code, line};
use super::support::MESSAGE;
use super::walk::{Walk, Way};
use crate::form::{
    CapabilityKind, FormDisagrees, LeafPlace, Message, Operation, Operations, Role, Type, Wire,
};

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
    ) -> Result<(), FormDisagrees> {
        let name = self.wires.get(wire.name.as_str()).cloned().ok_or(FormDisagrees)?;
        let fails = wire.role == Role::Reply && message.errors.is_some();
        let arguments = message.arguments_of(wire).collect::<Vec<_>>();
        let set = message.errors.as_deref().filter(|_| fails);
        let union = set.and_then(|set| self.details_name(set));
        let first = fails.then_some("error").into_iter();
        let first = first.chain(union.is_some().then_some("details"));
        let mut members =
            self.members_of(first.chain(arguments.iter().map(|argument| argument.name.as_str())));
        let error = if fails { Some(members.remove(0)) } else { None };
        let details = union.map(|union| (union, members.remove(0)));
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
            line!(self.code, "int32_t {error};");
            if let Some((union, name)) = &details {
                self.code.line("/** Those of the error, if it has some. */");
                line!(self.code, "union {union} {name};");
            }
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

        let types = arguments.iter().map(|argument| (argument.name.as_str(), &argument.of));
        let operations = self.lowering.operations(fails, types)?;
        if operations.layout.fixed_bytes != wire.layout.fixed_bytes {
            return Err(FormDisagrees);
        }
        let places = members.iter().map(|name| format!("args->{name}")).collect::<Vec<_>>();
        let fixed = format!("{}_FIXED_BYTES", name.to_ascii_uppercase());
        let error = error.as_deref().zip(operations.error);
        let details = details.as_ref();
        let plan = Plan { fixed: &fixed, error, details, operations: &operations, places: &places };
        let (size, put, get) = (self.sum(&plan)?, self.put(&plan)?, self.get(&plan)?);
        let words =
            [("$NAME", &name), ("$SIZE", &size.text), ("$PUT", &put.text), ("$GET", &get.text)];
        self.code.template(MESSAGE, &words.map(|(word, text)| (word, text.as_str())));
        Ok(())
    }

    fn defines(&mut self, message: &Message, wire: &Wire, name: &str) {
        let (upper, layout) = (name.to_ascii_uppercase(), &wire.layout);
        line!(self.code, "#define {upper}_ORDINAL {}", message.ordinal);
        line!(self.code, "#define {upper}_HASH UINT64_C(0x{})", wire.hash);
        line!(self.code, "#define {upper}_FIXED_BYTES {}", layout.fixed_bytes);
        line!(self.code, "#define {upper}_BYTES_MAX {}", layout.bytes_max);
        let kinds = layout.capabilities.iter().flat_map(|one| {
            let count = usize::try_from(one.count).unwrap_or(0);
            std::iter::repeat_n(capability(&one.of), count)
        });
        let kinds = kinds.collect::<Vec<_>>();
        if !kinds.is_empty() {
            self.code
                .line("/* In the order in which they travel; those that are absent do not. */");
            line!(self.code, "#define {upper}_CAPABILITIES_MAX {}", kinds.len());
            line!(self.code, "#define {upper}_CAPABILITY_KINDS \\");
            self.code.line("    { \\");
            for kind in kinds {
                line!(self.code, "        COREWIRE_CAPABILITY_{kind}, \\");
            }
            self.code.line("    }");
        }
        self.code.line("");
    }

    /// Code that computes the size.
    fn sum(&mut self, plan: &Plan<'_, 'a>) -> Result<Code, FormDisagrees> {
        let Plan { fixed, error, details, .. } = plan;
        let mut sum = Code::default();
        for (operation, place) in plan.values() {
            self.size(operation, place, &mut sum)?;
        }
        let mut code = Code::default();
        if sum.text.is_empty() && details.is_none() {
            code.line("(void)args;");
            line!(code, "return {fixed};");
            return Ok(code);
        }
        line!(code, "size_t size = {fixed};");
        if let Some((error, _)) = error {
            code.open(&format!("if (args->{error} != 0) {{"));
            match details {
                Some((union, name)) => {
                    line!(code, "return size + {union}_size(args->{error}, &args->{name});");
                }
                None => code.line("return size;"),
            }
            code.close("}");
        }
        code.text.push_str(&sum.text);
        code.line("return size;");
        Ok(code)
    }

    /// Code that writes the message, and the number of its bytes.
    fn put(&mut self, plan: &Plan<'_, 'a>) -> Result<Code, FormDisagrees> {
        let Plan { fixed, error, details, operations, .. } = plan;
        let mut code = Code::default();
        let is_dynamic = operations.is_dynamic();
        if is_dynamic || details.is_some() {
            line!(code, "size_t used = {fixed};");
        }
        match operations.layout.fixed_bytes {
            0 => code.line("(void)out;"),
            _ => line!(code, "memset(out, 0, {fixed});"),
        }
        let mut walk = Walk::new(self, "out");
        if let Some((error, at)) = error {
            line!(code, "corewire_put_u32({}, (uint32_t)args->{error});", walk.at(*at));
            code.open(&format!("if (args->{error} != 0) {{"));
            match details {
                Some((union, name)) => {
                    let arguments = format!("args->{error}, out, &used, &args->{name}");
                    line!(code, "COREWIRE_TRY({union}_put({arguments}));");
                    code.line("*written = used;");
                }
                None => line!(code, "*written = {fixed};"),
            }
            code.line("return 0;");
            code.close("}");
        }
        for (operation, place) in plan.values() {
            walk.run(Way::Put, operation, place, &mut code)?;
        }
        let has_used = is_dynamic || details.is_some();
        line!(code, "*written = {};", if has_used { "used" } else { fixed });
        Ok(code)
    }

    /// Code that reads the message.
    fn get(&mut self, plan: &Plan<'_, 'a>) -> Result<Code, FormDisagrees> {
        let Plan { fixed, error, details, operations, .. } = plan;
        let mut code = Code::default();
        let is_dynamic = operations.is_dynamic();
        let is_open = is_dynamic || details.is_some();
        if operations.layout.fixed_bytes == 0 {
            code.line("(void)bytes;");
        }
        code.open(&format!("if (length {} {fixed}) {{", if is_open { "<" } else { "!=" }));
        code.line("return COREWIRE_ERROR_LENGTH;");
        code.close("}");
        let mut walk = Walk::new(self, "bytes");
        if let Some((error, at)) = error {
            line!(code, "args->{error} = corewire_get_i32({});", walk.at(*at));
            if is_open {
                line!(code, "struct corewire_rest rest = {{bytes + {fixed}, length - {fixed}}};");
            }
            code.open(&format!("if (args->{error} != 0) {{"));
            match details {
                Some((union, name)) => {
                    line!(code, "return {union}_get(args->{error}, &rest, &args->{name});");
                }
                None => code.line("return 0;"),
            }
            code.close("}");
        } else if is_open {
            line!(code, "struct corewire_rest rest = {{bytes + {fixed}, length - {fixed}}};");
        }
        for (operation, place) in plan.values() {
            walk.run(Way::Get, operation, place, &mut code)?;
        }
        code.line(match is_open {
            true => "return rest.left == 0 ? 0 : COREWIRE_ERROR_LENGTH;",
            false => "return 0;",
        });
        Ok(code)
    }
}

/// What the functions of a message need to know.
struct Plan<'p, 'a> {
    /// The macro that is the bytes of the fixed part.
    fixed: &'p str,
    /// The name and the place of the error in a reply.
    error: Option<(&'p str, LeafPlace)>,
    /// The union of the details of errors, and its name in the reply.
    details: Option<&'p (String, String)>,
    operations: &'p Operations<'a>,
    /// Where the arguments are in C.
    places: &'p [String],
}

impl<'p, 'a> Plan<'p, 'a> {
    fn values(&self) -> impl Iterator<Item = (&'p Operation<'a>, &'p String)> {
        self.operations.values.iter().zip(self.places)
    }
}

fn about(message: &Message, wire: &Wire) -> String {
    let name = &message.name;
    match wire.role {
        Role::Call => format!("Calls `{name}`."),
        Role::Reply if message.stream => format!("The end of the stream `{name}`."),
        Role::Reply => format!("The reply to `{name}`."),
        Role::Part => format!("A part of the stream `{name}`."),
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
        Type::Capability { capability: CapabilityKind::Window } => "WINDOW",
        Type::Channel { .. } => "CHANNEL",
        Type::Client { .. } => "CLIENT",
        _ => "FD",
    }
}
