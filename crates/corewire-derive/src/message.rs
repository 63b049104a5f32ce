//! `#[corewire::message]`: the attributes that make a struct a type of messages.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::Parser;
use syn::{DeriveInput, Result, meta};

use crate::derive::{self, Repr};
use crate::options::Options;

/// The struct with its attributes. An error leaves the struct as it is, so that it is the only one.
pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    attributes(options, &item).map_or_else(
        |error| {
            let error = error.into_compile_error();
            quote! { #error #item }
        },
        |attributes| quote! { #attributes #item },
    )
}

fn attributes(given: TokenStream, item: &TokenStream) -> Result<TokenStream> {
    let mut options = Options::default();
    meta::parser(|meta| options.take(&meta)).parse2(given.clone())?;
    let input: DeriveInput = syn::parse2(item.clone())?;
    derive::check_kind(&input)?;
    options.name_or(&input.ident)?;
    let (corewire, zerocopy) = (options.corewire(), options.zerocopy());
    let repr = match Repr::of(&input.attrs)? {
        Repr::Declared => None,
        Repr::Missing => Some(quote! { #[repr(C)] }),
    };
    Ok(quote! {
        #[derive(
            #corewire::zerocopy::FromBytes,
            #corewire::zerocopy::IntoBytes,
            #corewire::zerocopy::KnownLayout,
            #corewire::zerocopy::Immutable,
            #corewire::MessageType,
        )]
        #[zerocopy(crate = #zerocopy)]
        #[corewire(#given)]
        #repr
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::tests::error_in;

    fn expanded(options: &str, item: &str) -> TokenStream {
        expand(options.parse().unwrap(), item.parse().unwrap())
    }

    /// The attributes that a struct gets, without spaces.
    fn attributes_of(options: &str, item: &str) -> String {
        let text = expanded(options, item).to_string();
        text.split("struct").next().unwrap().split_whitespace().collect()
    }

    #[test]
    fn a_struct_gets_a_layout_and_all_traits() {
        let found = attributes_of("name = \"t\"", "struct Tick { price: u64 }");
        let expected = "#[derive(::corewire::zerocopy::FromBytes,::corewire::zerocopy::IntoBytes,\
            ::corewire::zerocopy::KnownLayout,::corewire::zerocopy::Immutable,\
            ::corewire::MessageType,)]#[zerocopy(crate=\"::corewire::zerocopy\")]\
            #[corewire(name=\"t\")]#[repr(C)]";
        assert_eq!(found, expected);
    }

    #[test]
    fn a_layout_that_is_declared_stays() {
        for repr in ["#[repr(transparent)]", "#[repr(C, align(16))]"] {
            let found = attributes_of("", &format!("{repr} struct Tick(u128);"));
            assert_eq!(found.matches("repr").count(), 1, "{found}");
        }
        let found = attributes_of("", "#[repr(align(16))] struct Tick(u128);");
        assert!(found.ends_with("#[repr(C)]#[repr(align(16))]"), "{found}");
    }

    #[test]
    fn another_path_of_the_crate_is_used() {
        let found = attributes_of("crate = \"all::corewire\"", "struct Tick(u8);");
        assert!(found.starts_with("#[derive(all::corewire::zerocopy::FromBytes,"), "{found}");
        assert!(found.contains("all::corewire::MessageType,"), "{found}");
        assert!(found.contains("#[zerocopy(crate=\"all::corewire::zerocopy\")]"), "{found}");
    }

    #[test]
    fn an_error_leaves_the_item() {
        for (options, item, error) in [
            ("nam = \"t\"", "struct Tick (u8) ;", "unknown option: `name"),
            ("", "enum Side { Buy , Sell }", "a message type is a struct: not all bytes"),
            ("", "fn tick () { }", "expected one of: `struct`, `enum`, `union`"),
        ] {
            let found = expanded(options, item);
            assert!(found.to_string().ends_with(item), "{found}");
            assert!(error_in(&found).starts_with(error), "{found}");
        }
    }
}
