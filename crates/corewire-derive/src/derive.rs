//! `#[derive(MessageType)]`: the name of a type, and the constant that hashes its schema.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Attribute, Data, DeriveInput, Error, Fields, Member, Result, Type};

use crate::options::{Options, plain};

/// The implementation, or the error that tells why there is none.
pub(crate) fn expand(item: TokenStream) -> TokenStream {
    syn::parse2(item)
        .and_then(|input| implementation(&input))
        .unwrap_or_else(Error::into_compile_error)
}

fn implementation(input: &DeriveInput) -> Result<TokenStream> {
    let fields = check_kind(input)?;
    if let Repr::Missing = Repr::of(&input.attrs)? {
        return Err(Error::new_spanned(
            &input.ident,
            "a message type needs `#[repr(C)]` or `#[repr(transparent)]`: without it the compiler \
             puts the fields in any order; `#[corewire::message]` adds it",
        ));
    }
    let options = Options::of_attributes(&input.attrs)?;
    let (ident, corewire) = (&input.ident, options.corewire());
    let name = options.name_or(ident)?;
    let fields = fields.members().zip(fields).map(|(member, field)| {
        let name = match &member {
            Member::Named(ident) => plain(ident),
            Member::Unnamed(index) => index.index.to_string(),
        };
        let ty = &field.ty;
        let text: String = ty.to_token_stream().to_string().split_whitespace().collect();
        quote! {
            .field::<#ty>(
                #name,
                ::core::mem::offset_of!(#ident, #member),
                __private::Probe::<#ty>::SCHEMA,
                #text,
            )
        }
    });
    Ok(quote! {
        #[automatically_derived]
        impl #corewire::MessageType for #ident {
            const NAME: &'static str = #name;
            #[doc(hidden)]
            const SCHEMA: #corewire::__private::Schema = {
                use #corewire::__private::{self, Undeclared as _};
                __private::Schema::of::<#ident>(#name)#(#fields)*
            };
        }
        // Evaluated here, so that what is impossible is an error where the type is declared.
        const _: #corewire::__private::Schema = <#ident as #corewire::MessageType>::SCHEMA;
    })
}

/// Checks that this is a struct without parameters, of fields that may be plain data, and returns
/// its fields.
pub(crate) fn check_kind(input: &DeriveInput) -> Result<&Fields> {
    let wrong = |what: &str| {
        let message = format!("a message type is a struct: {what}");
        Err(Error::new_spanned(&input.ident, message))
    };
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(_) => {
            return wrong("not all bytes are a value of an enum; send its number, such as a `u32`");
        }
        Data::Union(_) => return wrong("nobody can tell which field of a union was sent"),
    };
    if input.generics.lifetimes().next().is_some() {
        return Err(Error::new_spanned(
            &input.generics,
            "a message type has no lifetimes: other processes cannot follow a reference",
        ));
    }
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics,
            "a message type has no generic parameters: its name stands for one layout; declare a \
             struct for each type that is sent, with a field of it",
        ));
    }
    fields.iter().try_for_each(|field| check_field(&field.ty))?;
    Ok(fields)
}

/// Refuses the usual types that cannot be in a message. The traits of `zerocopy` refuse the rest,
/// with more words.
fn check_field(ty: &Type) -> Result<()> {
    let problem = match ty {
        Type::Array(array) => return check_field(&array.elem),
        Type::Reference(_) | Type::Ptr(_) | Type::BareFn(_) => {
            "no field of a message type is a reference or a pointer: other processes cannot follow it"
        }
        Type::Tuple(_) => {
            "no field of a message type is a tuple: the compiler puts its parts in any order; \
             declare a struct with `#[corewire::message]`"
        }
        Type::Path(path) if path.path.is_ident("bool") => {
            "no field of a message type is a `bool`: not all bytes are one; send a `u8`"
        }
        Type::Path(path) if path.path.is_ident("char") => {
            "no field of a message type is a `char`: not all bytes are one; send a `u32`"
        }
        _ => return Ok(()),
    };
    Err(Error::new_spanned(ty, problem))
}

/// Whether a struct says how its fields lie.
#[derive(Debug, PartialEq)]
pub(crate) enum Repr {
    /// `C` or `transparent`.
    Declared,
    /// Neither.
    Missing,
}

impl Repr {
    pub(crate) fn of(attributes: &[Attribute]) -> Result<Self> {
        let mut repr = Self::Missing;
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("repr")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("C") || meta.path.is_ident("transparent") {
                    repr = Self::Declared;
                } else if meta.input.peek(syn::token::Paren) {
                    // `align(16)`, `packed(2)`.
                    let inside;
                    syn::parenthesized!(inside in meta.input);
                    inside.parse::<TokenStream>()?;
                }
                Ok(())
            })?;
        }
        Ok(repr)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The message of the first `compile_error!` in `tokens`.
    pub(crate) fn error_in(tokens: &TokenStream) -> String {
        let text = tokens.to_string();
        let rest = text.split("compile_error ! {").nth(1);
        let rest = rest.unwrap_or_else(|| panic!("no error in {text}"));
        rest.split('"').nth(1).unwrap().to_owned()
    }

    #[test]
    fn every_field_counts_with_name_offset_and_type() {
        let expanded = expand(quote! {
            #[repr(C)]
            struct Tick { price: u64, r#type: [ u8 ; 8 ] }
        });
        let text: String = expanded.to_string().split_whitespace().collect();
        assert!(text.contains("constNAME:&'staticstr=\"Tick\""), "{text}");
        assert!(text.contains(".field::<u64>(\"price\",::core::mem::offset_of!(Tick,price)"));
        assert!(text.contains("\"type\",::core::mem::offset_of!(Tick,r#type)"), "{text}");
        assert!(text.contains("__private::Probe::<[u8;8]>::SCHEMA,\"[u8;8]\""), "{text}");
    }

    #[test]
    fn what_is_no_message_type_is_refused_with_its_reason() {
        let long = format!("#[repr(C)] struct {};", "X".repeat(65));
        let field = "no field of a message type is a";
        for (item, error) in [
            ("#[repr(u8)] enum Side { Buy }", "a message type is a struct: not all bytes"),
            ("#[repr(C)] union U { a: u8 }", "a message type is a struct: nobody can tell"),
            ("#[repr(C)] struct S<T>(T);", "a message type has no generic parameters"),
            ("#[repr(C)] struct S<const N: usize>([u8; N]);", "a message type has no generic"),
            ("#[repr(C)] struct S<'a>(&'a u8);", "a message type has no lifetimes"),
            ("#[repr(C)] struct S(&'static u8);", &format!("{field} reference or a pointer")),
            ("#[repr(C)] struct S([*const u8; 2]);", &format!("{field} reference or a pointer")),
            ("#[repr(C)] struct S(fn());", &format!("{field} reference or a pointer")),
            ("#[repr(C)] struct S((u8, u8));", &format!("{field} tuple")),
            ("#[repr(C)] struct S(bool);", &format!("{field} `bool`")),
            ("#[repr(C)] struct S([[char; 2]; 2]);", &format!("{field} `char`")),
            ("struct S(u8);", "a message type needs `#[repr(C)]` or `#[repr(transparent)]`"),
            ("#[repr(align(8))] struct S(u64);", "a message type needs `#[repr(C)]`"),
            (
                "#[repr(C)] #[corewire(name = \"\")] struct S;",
                "the name of a message type is empty",
            ),
            ("#[repr(C)] #[corewire(name = \"é\")] struct S;", "'é' in a message type's name"),
            ("#[repr(C)] #[corewire(version = 1)] struct S;", "unknown option"),
            ("#[repr(C)] struct Größe;", "'ö' in a message type's name"),
            (&long, "a message type's name of 65 bytes: at most 64 are possible"),
        ] {
            let found = error_in(&expand(item.parse().unwrap()));
            assert!(found.starts_with(error), "{found:?} instead of {error:?}");
        }
    }

    #[test]
    fn a_layout_is_found_among_other_words() {
        let is_declared = |attribute: TokenStream| {
            let item: DeriveInput = syn::parse2(quote!(#attribute struct S(u8);)).unwrap();
            Repr::of(&item.attrs).unwrap() == Repr::Declared
        };
        assert!(is_declared(quote!(#[repr(align(16), C)])));
        assert!(is_declared(quote!(#[repr(packed)] #[repr(C)])));
        assert!(is_declared(quote!(#[repr(transparent)])));
        assert!(!is_declared(quote!(#[repr(packed(2))])));
        assert!(!is_declared(quote!(#[derive(Clone)])));
    }
}
