//! Values: how they are compared, how random ones are made, and how they are passed.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use crate::form::{Builtin, CapabilityKind, Definition, EnumValue, ErrorSet, Type, TypeDecl};
use crate::rust::Generator;
use crate::rust::walk::number;

impl Generator<'_> {
    /// How values of declared types are compared, and how random ones are made.
    pub(super) fn values(&self) -> TokenStream {
        let types = self.interface.types.iter().filter_map(|decl| self.declared_values(decl));
        let errors = self.interface.errors.iter().map(|set| {
            let name = self.error_name(&set.name);
            if set.detailed {
                return self.detailed_values(set, &name);
            }
            let value = self.random_value(&set.name, &quote!(Self), &set.values, true);
            values(&name, &quote!(trip::Show::show(&self.value(), out);), &value)
        });
        types.chain(errors).collect()
    }

    fn detailed_values(&self, set: &ErrorSet, name: &Ident) -> TokenStream {
        let (mut shows, mut randoms) = (Vec::new(), Vec::new());
        for error in &set.values {
            let variant = self.field(&set.name, &error.name);
            let fields = set.fields_of(error);
            let names = self.field_names(fields);
            let values = fields.iter().map(|field| self.random(&field.of));
            let index = randoms.len();
            randoms.push(quote!(#index => Self::#variant { #(#names: #values),* },));
            let shown = (0..fields.len()).map(|index| format_ident!("v{index}"));
            let shown = shown.collect::<Vec<_>>();
            shows.push(quote! {
                Self::#variant { #(#names: #shown),* } => { #(trip::Show::show(#shown, out);)* }
            });
        }
        let count = randoms.len() + 1;
        let show = quote! {
            trip::Show::show(&self.value(), out);
            match self { #(#shows)* Self::Unknown(_) => {} }
        };
        // A number that may have a name would arrive as that, without its details.
        let random = quote! {
            match random.below(#count) { #(#randoms)* _ => Self::Unknown(random.below(1000) as i32 + 1_000_000) }
        };
        values(name, &show, &random)
    }

    fn declared_values(&self, decl: &TypeDecl) -> Option<TokenStream> {
        let of = decl.name.as_str();
        let (show, random) = match &decl.definition {
            Definition::Struct { fields } => {
                let names = fields.iter().map(|field| self.field(of, &field.name));
                let names = names.collect::<Vec<_>>();
                let random = fields.iter().map(|field| self.random(&field.of));
                (
                    quote!(#(trip::Show::show(&self.#names, out);)*),
                    quote!(Self { #(#names: #random,)* }),
                )
            }
            Definition::Union { arms, .. } => {
                let (count, last) = (arms.len(), arms.len().saturating_sub(1));
                let (mut shows, mut randoms) = (Vec::new(), Vec::new());
                for (index, arm) in arms.iter().enumerate() {
                    let (variant, value) = (self.field(of, &arm.name), self.random(&arm.of));
                    let pattern = if index == last { quote!(_) } else { quote!(#index) };
                    shows.push(quote! {
                        Self::#variant(value) => {
                            out.push_str(stringify!(#variant));
                            trip::Show::show(value, out);
                        }
                    });
                    randoms.push(quote!(#pattern => Self::#variant(#value),));
                }
                (
                    quote!(match self { #(#shows)* }),
                    quote!(match random.below(#count) { #(#randoms)* }),
                )
            }
            // Values may have several names.
            Definition::Enum { flexible, values } => (
                quote!(trip::Show::show(&self.value(), out);),
                self.random_value(of, &quote!(Self), values, *flexible),
            ),
            _ => return None,
        };
        Some(values(&self.type_name(of), &show, &random))
    }

    /// An expression for a random value. `random` is the source.
    pub(super) fn random(&self, of: &Type) -> TokenStream {
        match of {
            Type::Builtin { builtin: Builtin::Bool } => quote!(random.flag()),
            Type::Builtin { builtin: Builtin::Float32 } => {
                quote!(f32::from_bits(random.number() as u32))
            }
            Type::Builtin { builtin: Builtin::Float64 } => quote!(f64::from_bits(random.number())),
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
            Type::Capability { capability: CapabilityKind::Window } => quote!(random.window()),
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
        match &decl.definition {
            Definition::Alias { target } => self.random(target),
            Definition::Array { element, .. } => {
                let element = self.random(element);
                quote!(random.array(|random| #element))
            }
            _ => any(&self.type_name(&decl.name)),
        }
    }

    fn random_value(
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
}

/// How values of one type are compared and made.
fn values(name: &Ident, show: &TokenStream, random: &TokenStream) -> TokenStream {
    quote! {
        impl trip::Show for #name {
            fn show(&self, out: &mut String) { #show }
        }

        impl trip::Any for #name {
            fn any(random: &mut trip::Random) -> Self { #random }
        }
    }
}

/// An expression for a random value of a type with this name.
pub(super) fn any(name: &Ident) -> TokenStream {
    quote!(<#name as trip::Any>::any(random))
}
