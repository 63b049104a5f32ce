//! Values: how they are compared, how random ones are made, and how they are passed.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use crate::form::{Builtin, CapabilityKind, Definition, EnumValue, Resolved, Type, TypeDecl};
use crate::rust::Generator;
use crate::rust::walk::number;

impl Generator<'_> {
    /// How values of declared types are compared.
    pub(super) fn shows(&self) -> TokenStream {
        let types = self.interface.types.iter().filter_map(|decl| self.show(decl));
        let errors = self.interface.errors.iter().map(|set| {
            let name = self.error_name(&set.name);
            quote! {
                impl trip::Show for #name {
                    fn show(&self, out: &mut String) { trip::Show::show(&self.value(), out); }
                }
            }
        });
        types.chain(errors).collect()
    }

    fn show(&self, decl: &TypeDecl) -> Option<TokenStream> {
        let name = self.type_name(&decl.name);
        let body = match &decl.definition {
            Definition::Struct { fields } => fields
                .iter()
                .map(|field| {
                    let field = self.field(&decl.name, &field.name);
                    quote!(trip::Show::show(&self.#field, out);)
                })
                .collect(),
            Definition::Union { arms, .. } => {
                let arms = arms.iter().zip(0_u32..).map(|(arm, index)| {
                    let arm = self.field(&decl.name, &arm.name);
                    quote!(Self::#arm(value) => trip::Show::show(&(#index, value), out),)
                });
                quote!(match self { #(#arms)* })
            }
            // Values may have several names.
            Definition::Enum { .. } => quote!(trip::Show::show(&self.value(), out)),
            _ => return None,
        };
        Some(quote! {
            impl trip::Show for #name {
                fn show(&self, out: &mut String) { #body }
            }
        })
    }

    /// An expression for a random value. `random` is the source.
    pub(super) fn random(&self, of: &Type) -> TokenStream {
        match of {
            Type::Builtin { builtin: Builtin::Bool } => quote!(random.flag()),
            Type::Builtin { builtin } => {
                let name = format_ident!("{}", number(*builtin));
                quote!(random.number() as #name)
            }
            Type::String { bytes_max } => quote!(random.text(#bytes_max)),
            Type::Vector { element, count_max } => {
                let element = self.random(element);
                quote!(random.list(#count_max, |random| #element))
            }
            Type::Optional { of } => {
                let of = self.random(of);
                quote!(random.maybe(|random| #of))
            }
            Type::Capability { capability: CapabilityKind::Endpoint } => quote!(random.endpoint()),
            Type::Capability { capability } if capability.is_nullable() => {
                quote!(random.maybe(|random| random.descriptor()))
            }
            Type::Capability { .. } => quote!(random.descriptor()),
            Type::Channel { .. } => quote!(random.channel()),
            Type::Client { .. } => quote!(random.service()),
            Type::Named { name } => match self.interface.type_named(name) {
                Some(decl) => self.random_declared(decl),
                None => TokenStream::new(),
            },
        }
    }

    fn random_declared(&self, decl: &TypeDecl) -> TokenStream {
        let name = self.type_name(&decl.name);
        match &decl.definition {
            Definition::Alias { target } => self.random(target),
            Definition::Struct { fields } => {
                let fields = fields.iter().map(|field| {
                    let (name, value) =
                        (self.field(&decl.name, &field.name), self.random(&field.of));
                    quote!(#name: #value,)
                });
                quote!(#name { #(#fields)* })
            }
            Definition::Array { element, .. } => {
                let element = self.random(element);
                quote!(random.array(|random| #element))
            }
            Definition::Union { arms, .. } => {
                let count = arms.len();
                let arms = arms.iter().enumerate().map(|(index, arm)| {
                    let (variant, value) =
                        (self.field(&decl.name, &arm.name), self.random(&arm.of));
                    let pattern = if index + 1 == count { quote!(_) } else { quote!(#index) };
                    quote!(#pattern => #name::#variant(#value),)
                });
                quote!(match random.below(#count) { #(#arms)* })
            }
            Definition::Enum { flexible, values } => {
                let name = quote!(#name);
                self.random_value(&decl.name, &name, values, *flexible)
            }
        }
    }

    pub(super) fn random_value(
        &self,
        of: &str,
        name: &TokenStream,
        values: &[EnumValue],
        flexible: bool,
    ) -> TokenStream {
        let known = values.iter().map(|one| {
            let variant = self.field(of, &one.name);
            quote!(#name::#variant)
        });
        // A number that may have a name: it arrives as that.
        let unknown = flexible.then(|| quote!(#name::Unknown(random.below(1000) as i32 + 1)));
        let all = known.chain(unknown).collect::<Vec<_>>();
        let count = all.len();
        quote!([#(#all),*][random.below(#count)])
    }

    /// A random value, `name`, as an argument.
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
                CapabilityKind::Endpoint => quote!(&#name),
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
}
