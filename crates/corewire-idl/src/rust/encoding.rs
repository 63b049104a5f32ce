//! Functions that encode messages, and errors.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::messages::{of_version, pattern};
use super::plan::{Plan, Version};
use super::walk::Walk;
use super::{Generator, docs};
use crate::form::{Argument, LeafRole, Operations, Resolved, Type};

impl Generator<'_> {
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
    pub(super) fn encode_any(&self, plan: &Plan<'_>) -> TokenStream {
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

    pub(super) fn encode(
        &self,
        plan: &Plan<'_>,
        version: &Version<'_>,
        operations: &Operations<'_>,
    ) -> TokenStream {
        let name = &version.encode;
        let arguments = &plan.arguments[..version.argument_count];
        let (generics, parameters) = self.encoded_parameters(plan, version.argument_count);
        let bytes = Literal::u32_unsuffixed(version.layout.fixed_bytes);
        let out = if plan.is_short() { quote!(&mut out) } else { quote!(out) };
        let title = plan.wire.title();
        let mut walk = Walk::new(self, &title, operations, out);
        let arguments = arguments.iter().zip(&operations.values);
        let stores = arguments.clone().map(|((name, argument), operation)| {
            // An argument that is a reference is a place behind it.
            let place = match self.is_fixed(&argument.of) || self.is_value(argument) {
                true => quote!(#name),
                false => quote!((*#name)),
            };
            walk.put(operation, &place)
        });
        let stores = stores.collect::<TokenStream>();
        let lends = arguments.map(|((name, _), operation)| self.lend(operation, &quote!(#name)));
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

    /// An expression that encodes the error with which an rpc ends that has one version.
    pub(super) fn encode_error(&self, plan: &Plan<'_>, out: &TokenStream) -> TokenStream {
        let _ = self;
        let at = plan.wire.layout.leaf("", LeafRole::Error).map_or(0, |leaf| leaf.offset);
        let (at, bytes) = (Literal::u32_unsuffixed(at), plan.bytes());
        let details = if plan.has_details() { quote!(error.encode(#out)) } else { quote!(Ok(())) };
        quote! {{
            codec::begin(#out, #bytes);
            codec::put_i32(#out, #at, if error.value() == 0 { -1 } else { error.value() });
            #details
        }}
    }

    /// Code that sends the error with which an rpc ends, by a reply of the binding.
    pub(super) fn send_error(&self, plan: &Plan<'_>) -> TokenStream {
        let places = plan.versions.iter().map(|version| {
            let error = version.layout.leaf("", LeafRole::Error);
            let numbers = [error.map_or(0, |leaf| leaf.offset), version.layout.fixed_bytes];
            numbers.map(Literal::u32_unsuffixed)
        });
        let places = places.collect::<Vec<_>>();
        let [at, bytes] = &places[0];
        let value = quote!(if error.value() == 0 { -1 } else { error.value() });
        let details = if plan.has_details() { quote!(error.encode(out)) } else { quote!(Ok(())) };
        if plan.is_versioned() {
            let earlier = plan.versions.iter().zip(&places).skip(1);
            let arms = earlier.map(|(version, [at, bytes])| {
                let pattern = pattern(version);
                quote!(#pattern => (#bytes, #at),)
            });
            return quote! {
                let (bytes, at) = match form { #(#arms)* _ => (#bytes, #at) };
                self.0.failing().send_with(|out, _| {
                    codec::begin(out, bytes);
                    codec::put_i32(out, at, #value);
                    #details
                });
            };
        }
        if plan.is_short() {
            return quote! {
                let mut encoded = [0; #bytes];
                codec::put_i32(&mut encoded, #at, #value);
                self.0.failing().send(&encoded);
            };
        }
        let encode = self.encode_error(plan, &quote!(out));
        quote!(self.0.failing().send_with(|out, _| #encode);)
    }
}
