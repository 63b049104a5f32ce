//! The options of both macros: `name = "..."` and `crate = "..."`.

use proc_macro2::Span;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Error, Ident, LitStr, Path, Result};

/// Maximum length of a name in bytes. `corewire` checks that it is the layout's.
pub(crate) const NAME_BYTES_MAX: usize = 64;

/// The options that were given.
#[derive(Default)]
pub(crate) struct Options {
    name: Option<LitStr>,
    corewire: Option<(LitStr, Path)>,
}

impl Options {
    /// Takes one option.
    pub(crate) fn take(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if meta.path.is_ident("name") {
            let name: LitStr = meta.value()?.parse()?;
            check_name(&name.value(), name.span())?;
            self.name = Some(name);
            return Ok(());
        }
        if meta.path.is_ident("crate") {
            let text: LitStr = meta.value()?.parse()?;
            let path = text.parse_with(Path::parse_mod_style)?;
            self.corewire = Some((text, path));
            return Ok(());
        }
        Err(meta.error("unknown option: `name = \"...\"` and `crate = \"...\"` are possible"))
    }

    /// The options in the attributes `#[corewire(...)]` of a struct.
    pub(crate) fn of_attributes(attributes: &[Attribute]) -> Result<Self> {
        let mut options = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("corewire"))
        {
            attribute.parse_nested_meta(|meta| options.take(&meta))?;
        }
        Ok(options)
    }

    /// The name of the type: the one that was given, or that of the struct.
    pub(crate) fn name_or(&self, ident: &Ident) -> Result<String> {
        if let Some(name) = &self.name {
            return Ok(name.value());
        }
        let name = plain(ident);
        let problem = name_problem(&name);
        problem.map_or(Ok(name), |problem| {
            let message =
                format!("{problem}; give one with `#[corewire::message(name = \"...\")]`");
            Err(Error::new(ident.span(), message))
        })
    }

    /// The path of the crate `corewire`.
    pub(crate) fn corewire(&self) -> Path {
        match &self.corewire {
            Some((_, path)) => path.clone(),
            None => syn::parse_quote!(::corewire),
        }
    }

    /// The path of the crate `zerocopy`, as its derives want it.
    pub(crate) fn zerocopy(&self) -> LitStr {
        match &self.corewire {
            Some((text, _)) => LitStr::new(&format!("{}::zerocopy", text.value()), text.span()),
            None => LitStr::new("::corewire::zerocopy", Span::call_site()),
        }
    }
}

/// An identifier without the `r#` of a raw one.
pub(crate) fn plain(ident: &Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map_or(text.clone(), str::to_owned)
}

fn check_name(name: &str, span: Span) -> Result<()> {
    name_problem(name).map_or(Ok(()), |problem| Err(Error::new(span, problem)))
}

fn name_problem(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("the name of a message type is empty".into());
    }
    if name.len() > NAME_BYTES_MAX {
        let bytes = name.len();
        return Some(format!(
            "a message type's name of {bytes} bytes: at most {NAME_BYTES_MAX} are possible"
        ));
    }
    let is_printable = |c: &char| (' '..='~').contains(c);
    let odd = name.chars().find(|c| !is_printable(c))?;
    Some(format!("{odd:?} in a message type's name: only printable ASCII is possible"))
}
