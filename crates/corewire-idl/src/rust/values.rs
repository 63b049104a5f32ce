//! Types of values in Rust: as a program owns them, as they are lent to a call, and as they arrive in a service.

use proc_macro2::TokenStream;
use quote::quote;

use super::names::ident;
use super::{Generator, walk};
use crate::form::{CapabilityKind, Resolved, Type};

impl Generator<'_> {
    /// The type in Rust, which owns what it has.
    pub(super) fn owned(&self, of: &Type) -> TokenStream {
        match of {
            Type::Builtin { builtin } => {
                let name = ident(walk::number(*builtin));
                quote!(#name)
            }
            Type::Named { name } => {
                let name = self.type_name(name);
                quote!(#name)
            }
            Type::String { .. } => quote!(String),
            Type::Vector { element, .. } => {
                let element = self.owned(element);
                quote!(Vec<#element>)
            }
            Type::Optional { of } => {
                let of = self.owned(of);
                quote!(Option<#of>)
            }
            Type::Capability { capability: CapabilityKind::Endpoint } => {
                quote!(corewire_bind::EndpointRef)
            }
            Type::Capability { capability: CapabilityKind::Window } => {
                quote!(corewire_bind::WindowRef)
            }
            Type::Capability { capability } if capability.is_nullable() => {
                quote!(Option<std::os::fd::OwnedFd>)
            }
            Type::Capability { .. } => quote!(std::os::fd::OwnedFd),
            Type::Channel { of } => {
                let of = self.owned(of);
                quote!(corewire_bind::ChannelRef<#of>)
            }
            Type::Client { .. } => quote!(corewire_bind::ServiceRef),
        }
    }

    /// The type of an argument to send: what has a fixed size by value, the rest by reference. What has capabilities
    /// is borrowed for this lifetime.
    pub(super) fn lent(&self, of: &Type, lifetime: Option<&TokenStream>) -> TokenStream {
        if self.is_fixed(of) {
            return self.owned(of);
        }
        let lent_fd = || match lifetime {
            Some(lifetime) => quote!(std::os::fd::BorrowedFd<#lifetime>),
            None => quote!(std::os::fd::BorrowedFd<'_>),
        };
        match self.interface.resolve(of) {
            Resolved::Plain(Type::String { .. }) => quote!(&str),
            Resolved::Plain(Type::Vector { element, .. }) => {
                let element = self.owned(element);
                quote!(&[#element])
            }
            Resolved::Plain(Type::Optional { of }) => {
                let of = self.lent(of, lifetime);
                quote!(Option<#of>)
            }
            Resolved::Plain(Type::Capability { capability }) if capability.is_nullable() => {
                let of = lent_fd();
                quote!(Option<#of>)
            }
            Resolved::Plain(Type::Capability { capability: CapabilityKind::Fd }) => lent_fd(),
            _ => {
                let lifetime = lifetime.filter(|_| self.has_capabilities(of));
                let of = self.owned(of);
                quote!(&#lifetime #of)
            }
        }
    }

    /// The type of an argument that arrived: strings and bytes stay in the message.
    pub(super) fn arrived(&self, of: &Type, lifetime: Option<&TokenStream>) -> TokenStream {
        match self.interface.resolve(of) {
            Resolved::Plain(Type::String { .. }) => quote!(&#lifetime str),
            Resolved::Plain(Type::Vector { element, .. }) if self.is_byte(element) => {
                quote!(&#lifetime [u8])
            }
            Resolved::Plain(Type::Optional { of }) => {
                let of = self.arrived(of, lifetime);
                quote!(Option<#of>)
            }
            _ => self.owned(of),
        }
    }

    /// A value that a program owns, at the place `name`, as an argument.
    pub(super) fn pass(&self, of: &Type, name: &TokenStream) -> TokenStream {
        if self.is_fixed(of) {
            return name.clone();
        }
        let lend = quote!(as_ref().map(std::os::fd::AsFd::as_fd));
        match self.interface.resolve(of) {
            Resolved::Plain(Type::Capability { capability }) => match capability {
                CapabilityKind::GiveAwayCap => quote!(&mut #name),
                CapabilityKind::Cap => quote!(#name.#lend),
                CapabilityKind::Fd => quote!(std::os::fd::AsFd::as_fd(&#name)),
                CapabilityKind::Endpoint | CapabilityKind::Window => quote!(&#name),
            },
            Resolved::Plain(Type::Optional { of }) => match self.interface.resolve(of) {
                Resolved::Plain(Type::String { .. } | Type::Vector { .. }) => {
                    quote!(#name.as_deref())
                }
                Resolved::Plain(Type::Capability { capability: CapabilityKind::Fd }) => {
                    quote!(#name.#lend)
                }
                _ => quote!(#name.as_ref()),
            },
            _ => quote!(&#name),
        }
    }

    /// What a type with values of these types derives. Rights cannot be copied or compared, and floating-point numbers
    /// have no `Eq` and no `Hash`.
    pub(super) fn derives<'t>(&self, of: impl Iterator<Item = &'t Type> + Clone) -> TokenStream {
        let can_copy = of.clone().all(|one| self.is_fixed(one));
        self.derives_with(can_copy, of)
    }

    /// The same for a type that is never `Copy`.
    pub(super) fn derives_without_copy<'t>(
        &self,
        of: impl Iterator<Item = &'t Type> + Clone,
    ) -> TokenStream {
        self.derives_with(false, of)
    }

    fn derives_with<'t>(
        &self,
        can_copy: bool,
        of: impl Iterator<Item = &'t Type> + Clone,
    ) -> TokenStream {
        if of.clone().any(|one| self.has_capabilities(one)) {
            return quote!(#[derive(Debug)]);
        }
        let copy = can_copy.then(|| quote!(Copy,));
        let mut of = of;
        let eq = (!of.any(|one| self.has_floats(one))).then(|| quote!(, Eq, Hash));
        quote!(#[derive(Debug, Clone, #copy PartialEq #eq)])
    }
}
