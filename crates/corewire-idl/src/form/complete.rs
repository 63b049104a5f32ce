//! Fills in what follows from the rest: sizes, layouts, hashes and what travels.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::facts::{Entry, Facts, Known, Refusal};
use super::lowering::Lowering;
use super::{
    Argument, Definition, Details, Direction, Earlier, ErrorSet, Field, FormError, Hash,
    INLINE_BYTES, Interface, Kind, Layout, Message, Role, Route, STREAM_CREDIT, Type, Wire,
};
use crate::diagnostics::Code;
use crate::lexer::NAME_BYTES_MAX;

/// The largest number of leaves in all layouts of an interface. A file of a megabyte could ask for 100 million.
pub(crate) const LEAVES_MAX: u64 = 1 << 16;

/// How many earlier versions of a message stay readable. Each has a layout.
const EARLIER_MAX: usize = 8;

/// Computes all members that follow from others. Fails only for forms that the checker has not made.
pub(crate) fn complete(interface: &mut Interface) -> Result<(), FormError> {
    names(interface)?;
    let mut known = Known::default();
    let mut budget = Budget(LEAVES_MAX);
    let (mut plain, mut is_newer) = (Vec::new(), false);
    for decl in &mut interface.types {
        let entry =
            entry(&known, &mut decl.definition).map_err(|one| impossible(&decl.name, one))?;
        decl.hash = Hash::of(&entry.text);
        if known.get(&decl.name).is_some() {
            return Err(other(&decl.name, "two types have this name"));
        }
        budget.spend(&decl.name, entry.facts.leaves)?;
        is_newer |= entry.facts.is_newer;
        let of = Type::Named { name: decl.name.clone() };
        plain.push(entry.facts.is_plain().then_some(of));
        known.insert(decl.name.clone(), entry);
    }
    for set in &interface.errors {
        is_newer |= set.detailed;
        check_details(&known, &mut budget, set)?;
    }
    let detailed = details_of(interface).map(|details| details.fields.clone()).collect::<Vec<_>>();
    let lowering = Lowering::new(known.definitions());
    for (details, fields) in details_of(interface).zip(&detailed) {
        details.layout = layout_of(&lowering, false, &typed(fields));
    }
    for (decl, of) in interface.types.iter_mut().zip(&plain) {
        decl.layout = of.as_ref().map(|of| layout_of(&lowering, false, &[("", of)]));
    }
    let (mut ordinals, mut names) = (HashSet::new(), HashSet::new());
    let mut travelling = Vec::new();
    for message in &interface.messages {
        let name = &message.name;
        if !ordinals.insert(message.ordinal) || message.ordinal == 0 || !names.insert(name.clone())
        {
            return Err(other(name, "its name or ordinal is not unique, or the ordinal is 0"));
        }
        if message.arguments.len() > usize::from(u16::MAX) {
            return Err(other(name, "it has more than 65535 arguments"));
        }
        let rpc = message.kind == Kind::Rpc;
        is_newer |= message.stream;
        let parts = message.arguments.iter().filter(|one| one.direction == Some(Direction::Out));
        if message.stream && (!rpc || parts.count() == 0) {
            return Err(other(
                name,
                "a stream is the answer of an rpc, and its parts have arguments",
            ));
        }
        if message.arguments.iter().any(|argument| argument.direction.is_some() != rpc) {
            return Err(other(name, "arguments of an rpc have a direction, others have none"));
        }
        // Checked before the layouts are made.
        let facts = message.arguments.iter().map(|argument| known.facts(&argument.of));
        let mut leaves = 0;
        for facts in facts.flatten() {
            leaves += facts.leaves;
            is_newer |= facts.is_newer;
        }
        budget.spend(name, leaves * (1 + optional_at_end(message) as u64))?;
        let set = message.errors.as_ref().and_then(|set| interface.error_set(set));
        let wires = wires(&known, &lowering, message, set);
        travelling.push(wires.map_err(|one| impossible(&message.name, one))?);
    }
    for (message, wires) in interface.messages.iter_mut().zip(travelling) {
        let mut text = message.kind.as_str().to_owned();
        for wire in &wires {
            // Writing to a string cannot fail.
            let _ = write!(text, " {}", wire.hash);
        }
        (message.hash, message.wires) = (Hash::of(&text), wires);
    }
    interface.form = if is_newer { 2 } else { 1 };
    interface.hash = hash_of_interface(&known, interface);
    Ok(())
}

/// Layouts repeat names, so their length is limited as in files.
fn names(interface: &Interface) -> Result<(), FormError> {
    let fields = interface.types.iter().flat_map(|decl| match &decl.definition {
        Definition::Struct { fields } | Definition::Union { arms: fields, .. } => fields.as_slice(),
        _ => &[],
    });
    let arguments = interface.messages.iter().flat_map(|message| &message.arguments);
    let messages = interface.messages.iter().map(|message| &message.name);
    let details = interface.errors.iter().flat_map(|set| &set.details);
    let details = details.flat_map(|one| &one.fields);
    let fields = fields.chain(details);
    let names = fields.map(|field| &field.name).chain(arguments.map(|one| &one.name));
    match names.chain(messages).find(|name| name.len() > NAME_BYTES_MAX) {
        Some(name) => Err(other(name, &format!("longer than {NAME_BYTES_MAX} bytes"))),
        None => Ok(()),
    }
}

/// The details of all errors.
fn details_of(interface: &mut Interface) -> impl Iterator<Item = &mut Details> {
    interface.errors.iter_mut().flat_map(|set| &mut set.details)
}

fn typed(fields: &[Field]) -> Vec<(&str, &Type)> {
    fields.iter().map(|field| (field.name.as_str(), &field.of)).collect()
}

/// Checks the details of a set of errors.
fn check_details(known: &Known, budget: &mut Budget, set: &ErrorSet) -> Result<(), FormError> {
    let mut seen = HashSet::new();
    for details in &set.details {
        let name = format!("{}.{}", set.name, details.error);
        let is_error = set.values.iter().any(|error| error.name == details.error);
        if !set.detailed || details.fields.is_empty() || !is_error || !seen.insert(&details.error) {
            let reason = "details need fields, and an error of a set that is detailed";
            return Err(other(&name, reason));
        }
        if name.len() > usize::from(u8::MAX) {
            return Err(other(
                &name,
                "the names of the set and of the error have more than 254 bytes",
            ));
        }
        let facts = known.details(details.fields.iter().map(|field| &field.of));
        budget.spend(&name, facts.map_err(|one| impossible(&name, one))?.leaves)?;
    }
    Ok(())
}

impl Interface {
    /// What is compared besides the messages when two processes bind: each error of the detailed sets, as `SET.ERROR`,
    /// with the hash of its value and its details. An error that only one side knows is compatible.
    #[must_use]
    pub fn error_hashes(&self) -> Vec<(String, Hash)> {
        let known = self.known().unwrap_or_default();
        self.errors.iter().flat_map(|set| set.structures(&known).collect::<Vec<_>>()).collect()
    }
}

struct Budget(u64);

impl Budget {
    fn spend(&mut self, name: &str, leaves: u64) -> Result<(), FormError> {
        let exceeded = || other(name, &format!("the interface has more than {LEAVES_MAX} parts"));
        self.0 = self.0.checked_sub(leaves).ok_or_else(exceeded)?;
        Ok(())
    }
}

fn optional_at_end(message: &Message) -> usize {
    let optional = |one: &&Argument| matches!(one.of, Type::Optional { .. });
    message.arguments.iter().rev().take_while(optional).count().min(EARLIER_MAX)
}

impl Interface {
    /// Where the parts of a value lie. `None` for types that are not possible.
    #[must_use]
    pub fn layout_of(&self, of: &Type) -> Option<Layout> {
        let known = self.known().ok()?;
        known.facts(of).ok()?;
        Some(layout_of(&Lowering::new(known.definitions()), false, &[("", of)]))
    }

    /// What takes the types of messages apart.
    pub(crate) fn lowering(&self) -> Lowering<'_> {
        Lowering::new(self.types.iter().map(|decl| (decl.name.as_str(), &decl.definition)))
    }

    /// The declared types, for questions about types that are not in the form itself.
    pub(crate) fn known(&self) -> Result<Known, FormError> {
        let mut known = Known::default();
        for decl in &self.types {
            let mut definition = decl.definition.clone();
            let entry =
                entry(&known, &mut definition).map_err(|one| impossible(&decl.name, one))?;
            known.insert(decl.name.clone(), entry);
        }
        Ok(known)
    }
}

fn impossible(name: &str, refusal: Refusal) -> FormError {
    FormError::Impossible { name: name.to_owned(), reason: refusal.reason }
}

fn other(name: &str, reason: &str) -> FormError {
    FormError::Impossible { name: name.to_owned(), reason: reason.to_owned() }
}

pub(crate) fn entry(known: &Known, definition: &mut Definition) -> Result<Entry, Refusal> {
    let facts = known.facts_of_definition(definition)?;
    if let Definition::Union { area_bytes, .. } = definition {
        *area_bytes = u32::try_from(facts.fixed_bytes - 4).unwrap_or(u32::MAX);
    }
    let text = known.text_of_definition(definition);
    Ok(Entry { facts, text, definition: definition.clone() })
}

fn hash_of_interface(known: &Known, interface: &Interface) -> Hash {
    let mut messages =
        interface.messages.iter().map(|one| (one.ordinal, one.hash)).collect::<Vec<_>>();
    messages.sort_unstable();
    let mut text = interface.name.clone();
    for (ordinal, hash) in messages {
        let _ = write!(text, " {ordinal}:{hash}");
    }
    for (error, hash) in interface.errors.iter().flat_map(|set| set.structures(known)) {
        let _ = write!(text, " {error}:{hash}");
    }
    Hash::of(&text)
}

fn wires<'a>(
    known: &Known,
    lowering: &Lowering<'a>,
    message: &'a Message,
    errors: Option<&ErrorSet>,
) -> Result<Vec<Wire>, Refusal> {
    let (name, kind) = (&message.name, message.kind);
    let wire = |name: String, role, direction, chosen: Option<Direction>| {
        wire(known, lowering, message, Plan { name, role, direction, chosen, errors })
    };
    match kind {
        Kind::Rpc => {
            let out = Some(Direction::Out);
            let mut wires = vec![
                wire(format!("{name}_call"), Role::Call, Route::ToService, Some(Direction::In))?,
                wire(format!("{name}_reply"), Role::Reply, Route::ToClient, out)?,
            ];
            if message.stream {
                wires.push(wire(format!("{name}_part"), Role::Part, Route::ToClient, out)?);
            }
            Ok(wires)
        }
        Kind::Message => Ok(vec![wire(name.clone(), Role::OneWay, Route::Both, None)?]),
        Kind::Call => Ok(vec![wire(name.clone(), Role::OneWay, Route::ToService, None)?]),
        Kind::Response | Kind::Event => {
            Ok(vec![wire(name.clone(), Role::OneWay, Route::ToClient, None)?])
        }
    }
}

struct Plan<'e> {
    name: String,
    role: Role,
    direction: Route,
    chosen: Option<Direction>,
    errors: Option<&'e ErrorSet>,
}

fn wire<'a>(
    known: &Known,
    lowering: &Lowering<'a>,
    message: &'a Message,
    plan: Plan<'_>,
) -> Result<Wire, Refusal> {
    let Plan { name, role, direction, chosen, errors } = plan;
    let ends_stream = message.stream && role == Role::Reply;
    let travels = message.arguments.iter().enumerate();
    let travels = travels.filter(|(_, one)| one.direction == chosen && !ends_stream);
    let (indices, arguments) = travels.unzip::<_, _, Vec<_>, Vec<_>>();
    let fails = role == Role::Reply && message.errors.is_some();
    let detailed = errors.filter(|set| fails && set.detailed);
    let mut head = format!("{name}{}", if fails { "!" } else { "" });
    if let Some(set) = detailed {
        let _ = write!(head, "detailed {}", set.name);
    }
    if ends_stream {
        // What both sides take for granted of streams: the credit with which each begins.
        let _ = write!(head, "stream {STREAM_CREDIT}");
    }
    let hash = hash_of_wire(known, &head, &arguments);
    let mut facts = Facts::default();
    for argument in &arguments {
        facts = facts.and(known.facts(&argument.of)?).within_limits()?;
    }
    if role == Role::Part && facts.capabilities > 0 {
        return Err(Refusal {
            code: Code::TypeNotPossible,
            reason: "parts of a stream have no capabilities".to_owned(),
        });
    }
    let typed =
        arguments.iter().map(|one| (one.name.as_str(), &one.of)).collect::<Vec<(&str, &'a Type)>>();
    let layout_of = |values: &[(&str, &'a Type)]| {
        let mut layout = layout_of(lowering, fails, values);
        if let Some(set) = detailed {
            let details =
                set.details.iter().map(|details| details.layout.bytes_max).max().unwrap_or(0);
            layout.bytes_max = layout.bytes_max.max(layout.fixed_bytes + 4 + details);
            layout.inline = layout.bytes_max <= INLINE_BYTES;
        }
        layout
    };
    let layout = layout_of(&typed);
    let mut earlier = Vec::new();
    let required = arguments
        .iter()
        .rposition(|argument| !matches!(argument.of, Type::Optional { .. }))
        .map_or(0, |last| last + 1);
    for count in (required..arguments.len()).rev().take(EARLIER_MAX) {
        let hash = hash_of_wire(known, &head, &arguments[..count]);
        let layout = layout_of(&typed[..count]);
        earlier.push(Earlier { argument_count: small(count), hash, layout });
    }
    let arguments = indices.into_iter().map(small).collect();
    Ok(Wire { name, role, direction, arguments, hash, layout, earlier })
}

fn hash_of_wire(known: &Known, head: &str, arguments: &[&Argument]) -> Hash {
    let mut text = format!("{head}(");
    for argument in arguments {
        let _ = write!(text, "{}:{};", argument.name, known.text(&argument.of));
    }
    Hash::of(&text)
}

/// The layout of these values, whose types have been found possible.
fn layout_of<'a>(lowering: &Lowering<'a>, fails: bool, values: &[(&str, &'a Type)]) -> Layout {
    lowering.operations(fails, values.iter().copied()).unwrap_or_default().layout
}

fn small(index: usize) -> u16 {
    u16::try_from(index).unwrap_or(u16::MAX)
}
