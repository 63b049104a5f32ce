//! What generated code knows of each message: its names, its versions, and how it is encoded.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::Generator;
use super::names::{Names, snake};
use crate::form::{
    Argument, CapabilityKind, ErrorSet, Layout, Message, Resolved, Role, Route, Type,
    Wire as Travelling,
};

/// Messages of a fixed size up to this are encoded in an array, longer ones in memory that the binding keeps.
const ARRAY_BYTES_MAX: u32 = 4096;

/// A message as it travels, as generated code sees it.
pub(super) struct Plan<'a> {
    pub(super) message: &'a Message,
    pub(super) wire: &'a Travelling,
    /// Its index in the description.
    pub(super) index: Literal,
    /// Its arguments, with their names in Rust.
    pub(super) arguments: Vec<(Ident, &'a Argument)>,
    /// Their names as fields, which hide nothing.
    pub(super) fields: Vec<Ident>,
    pub(super) encode: Ident,
    pub(super) decode: Ident,
    /// Turns what has come, or not, into the result of a call; or a part that has come into what it is.
    pub(super) result: Ident,
    /// The current version and all earlier ones.
    pub(super) versions: Vec<Version<'a>>,
    /// The set of errors with which it can end instead, of a reply.
    pub(super) errors: Option<&'a ErrorSet>,
}

/// A version of a message.
pub(super) struct Version<'a> {
    /// `Form::Current` or `Form::Earlier(..)` in the code.
    pub(super) form: TokenStream,
    pub(super) argument_count: usize,
    pub(super) layout: &'a Layout,
    pub(super) encode: Ident,
    pub(super) decode: Ident,
}

impl Plan<'_> {
    /// Whether it is encoded in an array.
    pub(super) const fn is_short(&self) -> bool {
        let layout = &self.wire.layout;
        layout.dynamics.is_empty()
            && layout.fixed_bytes <= ARRAY_BYTES_MAX
            && !self.has_capabilities()
            && !self.is_versioned()
            && !self.has_details()
            && !self.is_part()
    }

    /// Whether it is a part of a stream.
    pub(super) const fn is_part(&self) -> bool {
        matches!(self.wire.role, Role::Part)
    }

    /// Whether it is what a call gives: it outlives its message.
    pub(super) const fn is_answer(&self) -> bool {
        self.is_reply() || self.is_part()
    }

    /// Whether there are elements of variable size in it, whose memory is counted when they are decoded.
    pub(super) fn is_nested(&self) -> bool {
        let nested =
            |version: &Version<'_>| version.layout.dynamics.iter().any(|one| one.of.is_some());
        self.versions.iter().any(nested)
    }

    /// Whether it is a reply that can be an error with details, which has another length.
    pub(super) const fn has_details(&self) -> bool {
        matches!(self.errors, Some(ErrorSet { detailed: true, .. }))
    }

    /// Whether there are versions that an older program knows.
    pub(super) const fn is_versioned(&self) -> bool {
        self.versions.len() > 1
    }

    pub(super) const fn has_capabilities(&self) -> bool {
        !self.wire.layout.capabilities.is_empty()
    }

    /// Whether it can be sent to the service.
    pub(super) const fn is_to_service(&self) -> bool {
        !matches!(self.wire.direction, Route::ToClient)
    }

    /// Whether it can be sent to a client, other than as a reply.
    pub(super) const fn is_event(&self) -> bool {
        !matches!(self.wire.direction, Route::ToService) && !self.is_answer()
    }

    pub(super) const fn is_reply(&self) -> bool {
        matches!(self.wire.role, Role::Reply)
    }

    /// Whether the service has answered, and so has taken what a call gave it, by the `result` of the call.
    pub(super) fn is_answered(&self) -> TokenStream {
        match &self.message.errors {
            None => quote!(result.is_ok()),
            Some(_) => quote!(matches!(result, Ok(_) | Err(corewire_bind::Failed::Service(_)))),
        }
    }

    pub(super) fn ordinal(&self) -> Literal {
        Literal::u16_unsuffixed(self.message.ordinal)
    }

    pub(super) fn bytes(&self) -> Literal {
        Literal::u32_unsuffixed(self.wire.layout.fixed_bytes)
    }

    /// The longest that it can be, in whatever version.
    pub(super) fn bytes_max(&self) -> Literal {
        let all = self.versions.iter().map(|version| version.layout.bytes_max);
        Literal::u32_unsuffixed(all.max().unwrap_or(0))
    }

    /// Whether it is a reply that can be an error instead.
    pub(super) const fn can_fail(&self) -> bool {
        self.is_reply() && self.message.errors.is_some()
    }
}

impl Generator<'_> {
    pub(super) fn plans(&self) -> Vec<Plan<'_>> {
        let mut functions = Names::default();
        let wires = self.interface.wires().enumerate();
        wires
            .map(|(index, (message, wire))| self.plan(index, message, wire, &mut functions))
            .collect()
    }

    fn plan<'p>(
        &'p self,
        index: usize,
        message: &'p Message,
        wire: &'p Travelling,
        functions: &mut Names,
    ) -> Plan<'p> {
        let mut names = Names::reserved(&[
            "all",
            "arrived",
            "binding",
            "bytes",
            "capabilities",
            "client",
            "codec",
            "decode",
            "element",
            "encoded",
            "error",
            "event",
            "fixed",
            "form",
            "message",
            "out",
            "reader",
            "reply",
            "reply_form",
            "request",
            "result",
            "then",
            "timeout",
            "versions",
        ]);
        let arguments = message.arguments_of(wire);
        let arguments =
            arguments.map(|one| (names.give(&snake(&one.name)), one)).collect::<Vec<_>>();
        let mut own = Names::default();
        let fields = message.arguments_of(wire).map(|one| own.give(&snake(&one.name))).collect();
        // Something follows, and the compiler warns of two underscores in a row.
        let stem = self.stems[message.name.as_str()].0.trim_end_matches('_');
        let role = match wire.role {
            Role::Call => "_call",
            Role::Reply => "_reply",
            Role::Part => "_part",
            Role::OneWay => "",
        };
        let mut both = |suffix: &str| {
            let [encode, decode] = ["encode", "decode"]
                .map(|what| functions.give(&format!("{what}_{stem}{role}{suffix}")));
            (encode, decode)
        };
        let (encode, decode) = both("");
        let (form, argument_count, layout) =
            (quote!(corewire_bind::Form::Current), arguments.len(), &wire.layout);
        let (encode_now, decode_now) =
            if wire.earlier.is_empty() { (encode.clone(), decode.clone()) } else { both("_now") };
        let mut versions =
            vec![Version { form, argument_count, layout, encode: encode_now, decode: decode_now }];
        versions.extend(wire.earlier.iter().zip(0_u8..).map(|(earlier, number)| {
            let (encode, decode) = both(&format!("_{number}"));
            let number = Literal::u8_unsuffixed(number);
            let form = quote!(corewire_bind::Form::Earlier(#number));
            let argument_count = usize::from(earlier.argument_count);
            Version { form, argument_count, layout: &earlier.layout, encode, decode }
        }));
        let result = match wire.role {
            Role::Reply => functions.give(&format!("result_of_{stem}")),
            Role::Part => functions.give(&format!("part_of_{stem}")),
            _ => format_ident!("unused"),
        };
        let index = Literal::usize_unsuffixed(index);
        let errors = message.errors.as_ref().filter(|_| wire.role == Role::Reply);
        let errors = errors.and_then(|set| self.interface.error_set(set));
        Plan { message, wire, index, arguments, fields, encode, decode, result, versions, errors }
    }

    /// `line: &str, p: Pair`.
    pub(super) fn parameters(&self, plan: &Plan<'_>) -> TokenStream {
        let parameters = plan.arguments.iter().map(|(name, argument)| {
            let of = match self.is_given_away(&argument.of) {
                true => quote!(&mut Option<std::os::fd::OwnedFd>),
                false => self.lent(&argument.of, None),
            };
            quote!(#name: #of,)
        });
        parameters.collect()
    }

    /// A call of the function that encodes a message: it gives the bytes of a short one, and otherwise a result, with the
    /// message in `out` and its capabilities in `capabilities`. The version is that in `form`.
    pub(super) fn encoding(
        &self,
        plan: &Plan<'_>,
        out: &TokenStream,
        capabilities: &TokenStream,
    ) -> TokenStream {
        let encode = &plan.encode;
        let arguments = self.passed(plan);
        if plan.is_short() {
            return quote!(#encode(#(#arguments),*));
        }
        let form = plan.is_versioned().then(|| quote!(form,));
        let capabilities = plan.has_capabilities().then(|| quote!(#capabilities,));
        quote!(#encode(#form #out, #capabilities #(#arguments),*))
    }

    /// Code that encodes a message to `out`, a vector of its own, and an expression for its capabilities.
    pub(super) fn encoding_alone(&self, plan: &Plan<'_>, out: &str) -> [TokenStream; 2] {
        let out = format_ident!("{out}");
        let encoding = self.encoding(plan, &quote!(&mut #out), &quote!(&mut capabilities));
        let none = quote!(corewire_bind::Capabilities::new());
        if plan.has_capabilities() {
            let begin = quote!(let mut #out = Vec::new(); let mut capabilities = #none;);
            return [quote!(#begin #encoding?;), quote!(&capabilities)];
        }
        [quote!(let mut #out = Vec::new(); #encoding?;), quote!(&#none)]
    }

    /// The arguments of a method, as functions that encode take them.
    fn passed(&self, plan: &Plan<'_>) -> Vec<TokenStream> {
        let pass = |(name, argument): &(Ident, &Argument)| match self.is_given_away(&argument.of) {
            true => quote!(#name.as_ref().map(std::os::fd::AsFd::as_fd)),
            false => quote!(#name),
        };
        plan.arguments.iter().map(pass).collect()
    }

    /// `result`, after which the descriptors that the message gave away are closed if it `is_sent`.
    pub(super) fn giving_away(
        &self,
        plan: &Plan<'_>,
        result: TokenStream,
        is_sent: &TokenStream,
    ) -> TokenStream {
        let given = self.given_away(plan);
        if given.is_empty() {
            return result;
        }
        quote! {
            let result = #result;
            if #is_sent { #given }
            result
        }
    }

    /// Code that closes the descriptors that a message gave away.
    pub(super) fn given_away(&self, plan: &Plan<'_>) -> TokenStream {
        let given = plan.arguments.iter().filter(|(_, one)| self.is_given_away(&one.of));
        given.map(|(name, _)| quote!(*#name = None;)).collect()
    }

    /// Documentation of the descriptors that a message gives away.
    pub(super) fn given_docs(&self, plan: &Plan<'_>, when: &str) -> TokenStream {
        let given = plan.arguments.iter().filter(|(_, one)| self.is_given_away(&one.of));
        let given = given.map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>();
        if given.is_empty() {
            return TokenStream::new();
        }
        super::docs(&[String::new(), format!("Takes and closes {} {when}.", given.join(", "))])
    }

    /// Whether the sender's own descriptor is closed.
    fn is_given_away(&self, of: &Type) -> bool {
        let kind = CapabilityKind::GiveAwayCap;
        matches!(self.interface.resolve(of), Resolved::Plain(Type::Capability { capability }) if *capability == kind)
    }
}
