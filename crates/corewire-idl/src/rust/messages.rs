//! Encoding and decoding of each message.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::plan::{Plan, Version};
use super::walk::{Walk, names};
use super::{Generator, docs};
use crate::form::{Argument, Resolved, Type};

impl Generator<'_> {
    pub(super) fn messages(&self) -> TokenStream {
        let mut code = TokenStream::new();
        for plan in &self.plans() {
            if plan.is_versioned() {
                code.extend([self.encode_any(plan), self.decode_any(plan)]);
            }
            for version in &plan.versions {
                code.extend([self.encode(plan, version), self.decode(plan, version)]);
            }
            if plan.is_reply() {
                code.extend(self.result(plan));
            }
        }
        code
    }

    /// The arguments of a function that encodes, with the lifetime that it has because of capabilities.
    fn encoded_parameters(&self, plan: &Plan<'_>, count: usize) -> (TokenStream, TokenStream) {
        let arguments = plan.arguments.iter().take(count);
        let lifetime = arguments.clone().any(|(_, one)| self.has_capabilities(&one.of));
        let lifetime = lifetime.then(|| quote!('c));
        let parameters = arguments.map(|(name, argument)| {
            let of = self.lent(&argument.of, lifetime.as_ref());
            quote!(#name: #of,)
        });
        let parameters = parameters.collect::<TokenStream>();
        match lifetime {
            None => (TokenStream::new(), parameters),
            Some(_) => (
                quote!(<'c>),
                quote!(capabilities: &mut corewire_bind::Capabilities<'c>, #parameters),
            ),
        }
    }

    /// Encodes the version that the other side knows.
    fn encode_any(&self, plan: &Plan<'_>) -> TokenStream {
        let name = &plan.encode;
        let (generics, parameters) = self.encoded_parameters(plan, plan.arguments.len());
        let arms = plan.versions.iter().skip(1).chain(&plan.versions[..1]).map(|version| {
            let encode = &version.encode;
            let names = plan.arguments.iter().take(version.argument_count).map(|(name, _)| name);
            let capabilities =
                (!version.layout.capabilities.is_empty()).then(|| quote!(capabilities,));
            let pattern = pattern(version);
            quote!(#pattern => #encode(out, #capabilities #(#names),*),)
        });
        let text =
            format!("The bytes of `{}`, in the version that the other side knows.", plan.wire.name);
        let docs = docs(&[text]);
        quote! {
            #docs
            fn #name #generics(
                form: corewire_bind::Form,
                out: &mut Vec<u8>,
                #parameters
            ) -> Result<(), corewire_bind::EncodeError> {
                match form { #(#arms)* }
            }
        }
    }

    fn encode(&self, plan: &Plan<'_>, version: &Version<'_>) -> TokenStream {
        let name = &version.encode;
        let arguments = &plan.arguments[..version.argument_count];
        let (generics, parameters) = self.encoded_parameters(plan, version.argument_count);
        let bytes = Literal::u32_unsuffixed(version.layout.fixed_bytes);
        let out = if plan.is_short() { quote!(&mut out) } else { quote!(out) };
        let types = arguments.iter().map(|(_, argument)| &argument.of);
        let mut walk = Walk::new(self, &plan.wire.name, plan.first(), types, out);
        if !plan.first().is_empty() {
            walk.at(4);
        }
        let stores = arguments.iter().map(|(name, argument)| {
            // An argument that is a reference is a place behind it.
            let place = match self.is_fixed(&argument.of) || self.is_value(argument) {
                true => quote!(#name),
                false => quote!((*#name)),
            };
            walk.put(&argument.of, &place, &argument.name)
        });
        let stores = stores.collect::<TokenStream>();
        let lends = arguments.iter().map(|(name, one)| self.lend(&one.of, &quote!(#name)));
        let lends = lends.collect::<TokenStream>();
        let docs =
            docs(&[format!("The bytes of `{}`{}.", plan.wire.name, of_version(version, plan))]);
        if plan.is_short() {
            let body = if stores.is_empty() {
                quote!([0; #bytes])
            } else {
                quote!(let mut out = [0; #bytes]; #stores out)
            };
            return quote! {
                #docs
                #[inline(always)]
                fn #name(#parameters) -> [u8; #bytes] { #body }
            };
        }
        quote! {
            #docs
            fn #name #generics(
                out: &mut Vec<u8>,
                #parameters
            ) -> Result<(), corewire_bind::EncodeError> {
                codec::begin(out, #bytes);
                #stores
                #lends
                Ok(())
            }
        }
    }

    /// Whether an argument that has no fixed size is passed by value all the same.
    fn is_value(&self, argument: &Argument) -> bool {
        match self.interface.resolve(&argument.of) {
            Resolved::Plain(Type::Optional { .. }) => true,
            Resolved::Plain(Type::Capability { capability }) => capability.is_nullable(),
            _ => false,
        }
    }

    /// Decodes the version that the other side knows.
    fn decode_any(&self, plan: &Plan<'_>) -> TokenStream {
        let name = &plan.decode;
        let has_capabilities = plan.has_capabilities();
        let arms = plan.versions.iter().skip(1).chain(&plan.versions[..1]).map(|version| {
            let (decode, pattern) = (&version.decode, pattern(version));
            if version.layout.capabilities.is_empty() && has_capabilities {
                return quote!(#pattern => { arrived.finish()?; #decode(bytes) });
            }
            let arrived = has_capabilities.then(|| quote!(, arrived));
            quote!(#pattern => #decode(bytes #arrived),)
        });
        let arms = arms.collect::<TokenStream>();
        let (of, lifetime) = self.decoded(plan);
        let generics = lifetime.as_ref().map(|lifetime| quote!(<#lifetime>));
        let arrived = has_capabilities.then(|| quote!(arrived: corewire_bind::Arrived<'_>,));
        let text = format!(
            "The arguments of `{}`, in the version that the other side knows.",
            plan.wire.name
        );
        let docs = docs(&[text]);
        quote! {
            #docs
            fn #name #generics(
                form: corewire_bind::Form,
                bytes: &#lifetime [u8],
                #arrived
            ) -> Result<#of, corewire_bind::DecodeError> {
                match form { #arms }
            }
        }
    }

    /// What a function that decodes gives, and the lifetime of the bytes in it.
    fn decoded(&self, plan: &Plan<'_>) -> (TokenStream, Option<TokenStream>) {
        let lifetime = quote!('a);
        let of = if plan.is_reply() {
            let of = self.output_type(plan);
            match &plan.message.errors {
                None => of,
                Some(set) => {
                    let set = self.error_name(set);
                    quote!(Result<#of, #set>)
                }
            }
        } else {
            let types = plan.arguments.iter().map(|(_, argument)| {
                if plan.is_to_service() {
                    self.arrived(&argument.of, Some(&lifetime))
                } else {
                    self.owned(&argument.of)
                }
            });
            quote!((#(#types,)*))
        };
        let lifetime = of.to_string().contains("'a").then_some(lifetime);
        (of, lifetime)
    }

    fn decode(&self, plan: &Plan<'_>, version: &Version<'_>) -> TokenStream {
        let (name, place) = (&version.decode, &plan.wire.name);
        let bytes = Literal::u32_unsuffixed(version.layout.fixed_bytes);
        let (arguments, later) = plan.arguments.split_at(version.argument_count);
        // Replies and events outlive their messages.
        let borrows = plan.is_to_service();
        let types = arguments.iter().map(|(_, argument)| &argument.of);
        let mut walk = Walk::new(self, place, plan.first(), types, quote!(fixed));
        let error = (!plan.first().is_empty()).then(|| walk.at(4));
        let lets = arguments.iter().map(|(name, argument)| {
            let read = walk.get(&argument.of, &argument.name, borrows);
            quote!(let #name = #read;)
        });
        let absent = later.iter().map(|(name, _)| quote!(let #name = None;));
        let lets = lets.chain(absent).collect::<TokenStream>();
        let values = if plan.is_reply() {
            self.output_value(plan)
        } else {
            let all = plan.arguments.iter().map(|(name, _)| name);
            quote!((#(#all,)*))
        };
        let (of, lifetime) = self.decoded(plan);
        let generics = lifetime.as_ref().map(|lifetime| quote!(<#lifetime>));
        let docs = docs(&[format!("The arguments of `{place}`{}.", of_version(version, plan))]);
        let fixed = match error.is_some() || names(&lets, "fixed") {
            true => quote!(fixed),
            false => quote!(_),
        };
        let (begin, mut end) = if version.layout.dynamics.is_empty() {
            (quote!(let #fixed = codec::exactly::<#bytes>(#place, bytes)?;), None)
        } else {
            let begin =
                quote!(let (mut reader, #fixed) = codec::Reader::new::<#bytes>(#place, bytes)?;);
            (begin, Some(quote!(reader.finish()?;)))
        };
        let has_capabilities = !version.layout.capabilities.is_empty();
        let arrived = has_capabilities.then(|| quote!(mut arrived: corewire_bind::Arrived<'_>,));
        let finish = has_capabilities.then(|| quote!(arrived.finish()?;));
        if has_capabilities {
            end = Some(quote!(#end #finish));
        }
        let (check, values) = match (error, &plan.message.errors) {
            (Some(at), Some(set)) => {
                let set = self.error_name(set);
                let place = format!("{place}: error");
                let check = quote! {
                    let error = codec::get_i32(fixed, #at);
                    if error != 0 {
                        #finish
                        return Ok(Err(#set::decode(error, #place)?));
                    }
                };
                (Some(check), quote!(Ok(#values)))
            }
            _ => (None, values),
        };
        quote! {
            #docs
            #[inline]
            fn #name #generics(
                bytes: &#lifetime [u8],
                #arrived
            ) -> Result<#of, corewire_bind::DecodeError> {
                #begin
                #check
                #lets
                #end
                Ok(#values)
            }
        }
    }

    /// Code that takes `bytes`, and `arrived` if there are capabilities, from a received message.
    pub(super) fn unpacked(&self, plan: &Plan<'_>, message: &str, take: &str) -> TokenStream {
        let _ = self;
        let (place, message) = (&plan.wire.name, format_ident!("{message}"));
        if plan.has_capabilities() {
            let take = format_ident!("{take}");
            return quote!(let (bytes, arrived) = #message.#take(#place););
        }
        quote!(let bytes = #message.without_capabilities(#place)?;)
    }

    /// A call of the function that decodes what [`unpacked`](Self::unpacked) has given, in version `form`.
    pub(super) fn decoding(&self, plan: &Plan<'_>) -> TokenStream {
        let _ = self;
        let decode = &plan.decode;
        let form = plan.is_versioned().then(|| quote!(form,));
        let arrived = plan.has_capabilities().then(|| quote!(, arrived));
        quote!(#decode(#form bytes #arrived))
    }

    /// The function that makes the result of a call.
    fn result(&self, plan: &Plan<'_>) -> TokenStream {
        let (name, result) = (&plan.result, self.result_type(plan));
        let form = plan.is_versioned().then(|| quote!(, form: corewire_bind::Form));
        let mutable = plan.has_capabilities().then(|| quote!(mut));
        let (unpacked, decoding) = (self.unpacked(plan, "reply", "parts"), self.decoding(plan));
        let end = match &plan.message.errors {
            None => quote!(Ok(#decoding?)),
            Some(_) => quote!(#decoding?.map_err(corewire_bind::Failed::Service)),
        };
        let docs = docs(&[format!("The result of `{}`, from the reply.", plan.message.name)]);
        quote! {
            #docs
            fn #name(
                reply: Result<corewire_bind::Message, corewire_bind::CallError>
                #form
            ) -> #result {
                let #mutable reply = reply?;
                #unpacked
                #end
            }
        }
    }

    /// The result of a call.
    pub(super) fn result_type(&self, plan: &Plan<'_>) -> TokenStream {
        let output = self.output_type(plan);
        match &plan.message.errors {
            None => quote!(Result<#output, corewire_bind::CallError>),
            Some(set) => {
                let set = self.error_name(set);
                quote!(Result<#output, corewire_bind::Failed<#set>>)
            }
        }
    }

    /// The type of a reply: nothing, the only argument, or a struct of all.
    pub(super) fn output_type(&self, plan: &Plan<'_>) -> TokenStream {
        match plan.arguments.as_slice() {
            [] => quote!(()),
            [(_, only)] => self.owned(&only.of),
            _ => {
                let name = self.output_name(plan);
                quote!(#name)
            }
        }
    }

    fn output_value(&self, plan: &Plan<'_>) -> TokenStream {
        match plan.arguments.as_slice() {
            [] => quote!(()),
            [(only, _)] => quote!(#only),
            all => {
                let values =
                    plan.fields.iter().zip(all).map(|(field, (name, _))| assign(field, name));
                let name = self.output_name(plan);
                quote!(#name { #(#values,)* })
            }
        }
    }

    pub(super) fn output_name(&self, plan: &Plan<'_>) -> Ident {
        format_ident!("{}Output", self.stems[plan.message.name.as_str()].1)
    }

    /// Code that encodes the error with which an rpc ends, as `encoded`.
    pub(super) fn encode_error(&self, plan: &Plan<'_>) -> TokenStream {
        let places = plan.versions.iter().map(|version| {
            let arguments = plan.arguments.iter().take(version.argument_count);
            let types = arguments.map(|(_, argument)| &argument.of);
            let mut walk = Walk::new(self, "", plan.first(), types, quote!());
            (walk.at(4), Literal::u32_unsuffixed(version.layout.fixed_bytes))
        });
        let places = places.collect::<Vec<_>>();
        let (at, bytes) = &places[0];
        let value = quote!(if error.value() == 0 { -1 } else { error.value() });
        if plan.is_versioned() {
            let earlier = plan.versions.iter().zip(&places).skip(1);
            let arms = earlier.map(|(version, (at, bytes))| {
                let pattern = pattern(version);
                quote!(#pattern => (#bytes, #at),)
            });
            return quote! {
                let (bytes, at) = match form { #(#arms)* _ => (#bytes, #at) };
                let mut encoded = vec![0; bytes];
                codec::put_i32(&mut encoded, at, #value);
            };
        }
        let zeros = if plan.is_short() { quote!([0; #bytes]) } else { quote!(vec![0; #bytes]) };
        quote! {
            let mut encoded = #zeros;
            codec::put_i32(&mut encoded, #at, #value);
        }
    }
}

/// The pattern of a version. The current one comes last.
fn pattern(version: &Version<'_>) -> TokenStream {
    match version.form.to_string().ends_with("Current") {
        true => quote!(_),
        false => version.form.clone(),
    }
}

fn of_version(version: &Version<'_>, plan: &Plan<'_>) -> String {
    match plan.arguments.len() - version.argument_count {
        0 => String::new(),
        1 => ", as it was without its last argument".to_owned(),
        count => format!(", as it was without its last {count} arguments"),
    }
}

/// `field: name`, or only the name if they are the same.
pub(super) fn assign(field: &Ident, name: &Ident) -> TokenStream {
    if field == name { quote!(#name) } else { quote!(#field: #name) }
}
