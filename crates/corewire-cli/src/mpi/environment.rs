//! The environment in which an MPI uses the provider.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use corewire_os::directory::{Role, RuntimeDirectory, default_path};

use super::find::{Kind, Mpi};
use crate::failure::Failure;
use crate::units;

/// The provider's name.
const PROVIDER: &str = "corewire";

/// Open MPI 4 does one-sided calls by messages then: its component for access to memory fails over any provider. Open MPI 5
/// has only that one, which works, and ends where it is asked for the other.
const OSC: (&str, &str) = ("OMPI_MCA_osc", "pt2pt");

/// Whether each Open MPI is older than 5.
fn open_mpis(mpis: &[Mpi]) -> impl Iterator<Item = bool> {
    mpis.iter().filter(|mpi| mpi.kind == Kind::OpenMpi).map(|mpi| mpi.major() < 5)
}

/// Variables, in the order in which they are printed.
pub(super) struct Environment(Vec<(&'static str, OsString)>);

impl Environment {
    /// The environment for these MPIs with the provider of `folder`. Makes the runtime directory.
    pub(super) fn new(folder: &Path, mpis: &[Mpi]) -> Result<Self, Failure> {
        let place = std::path::absolute(default_path()).map_err(Failure::other)?;
        RuntimeDirectory::open(&place, Role::Owner).map_err(Failure::other)?;
        let mut all = vec![
            ("COREWIRE_RUNTIME_DIR", place.into_os_string()),
            ("FI_PROVIDER_PATH", folder_first(folder, std::env::var_os("FI_PROVIDER_PATH"))?),
            ("FI_PROVIDER", providers(std::env::var_os("FI_PROVIDER"))),
        ];
        let mut add = |name, value: &str| all.push((name, value.into()));
        // With none found, all: one may come into PATH later.
        let has = |kind| mpis.is_empty() || mpis.iter().any(|mpi| mpi.kind == kind);
        if has(Kind::Mpich) {
            add("MPIR_CVAR_CH4_NETMOD", "ofi");
            // MPICH's own shared memory would carry everything inside a machine.
            add("MPIR_CVAR_NOLOCAL", "1");
        }
        if has(Kind::IntelMpi) {
            add("I_MPI_FABRICS", "ofi");
        }
        if has(Kind::OpenMpi) {
            add("OMPI_MCA_pml", "cm");
            add("OMPI_MCA_mtl", "ofi");
            add("OMPI_MCA_mtl_ofi_provider_include", PROVIDER);
            // From 5.0 on this one counts, too; before, it means nothing.
            add("OMPI_MCA_opal_common_ofi_provider_include", PROVIDER);
        }
        if open_mpis(mpis).any(|is_old| is_old) && open_mpis(mpis).all(|is_old| is_old) {
            add(OSC.0, OSC.1);
        }
        Ok(Self(all))
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        self.0.iter().map(|(name, value)| (*name, value.as_os_str()))
    }

    pub(super) fn to_json(&self) -> serde_json::Map<String, serde_json::Value> {
        let text = |value: &OsStr| value.to_string_lossy().into_owned();
        self.variables().map(|(name, value)| (name.to_owned(), text(value).into())).collect()
    }

    /// Lines for a shell: what was found, and what to export.
    pub(super) fn to_shell(&self, mpis: &[Mpi]) -> Result<String, Failure> {
        let mut text = String::new();
        for mpi in mpis {
            let can = match &mpi.obstacle {
                None => "can use corewire".to_owned(),
                Some(why) => format!("cannot use corewire: {why}"),
            };
            text.push_str(&format!("# {} {can}\n", mpi.text()));
        }
        if mpis.is_empty() {
            text.push_str("# no MPI is in PATH\n");
        }
        if open_mpis(mpis).any(|is_old| is_old) && !open_mpis(mpis).all(|is_old| is_old) {
            let (name, value) = OSC;
            text.push_str(&format!(
                "# for one-sided calls Open MPI 4 needs {name}={value}, where Open MPI 5 ends\n"
            ));
        }
        for (name, value) in self.variables() {
            let value = value.to_str().ok_or_else(|| {
                let shown = units::printable(&value.to_string_lossy());
                Failure::other(format!("{name}={shown}: this is not UTF-8, and is not printed"))
            })?;
            text.push_str(&format!("export {name}={}\n", quoted(value)));
        }
        Ok(text)
    }
}

/// `FI_PROVIDER_PATH` with `folder` first, and what it had.
fn folder_first(folder: &Path, had: Option<OsString>) -> Result<OsString, Failure> {
    if folder.as_os_str().as_bytes().contains(&b':') {
        let shown = units::printable(&folder.to_string_lossy());
        return Err(Failure::other(format!(
            "{shown}: FI_PROVIDER_PATH cannot name a folder with a colon in its path"
        )));
    }
    let had = had.unwrap_or_default();
    let others = had.as_bytes().split(|&byte| byte == b':');
    let others =
        others.filter(|&other| !other.is_empty() && other != folder.as_os_str().as_bytes());
    let mut all = folder.as_os_str().to_owned();
    for other in others {
        all.push(":");
        all.push(OsStr::from_bytes(other));
    }
    Ok(all)
}

/// A list with the provider in it is kept: the others are for what is between machines.
fn providers(had: Option<OsString>) -> OsString {
    let names = |list: &OsString| {
        let list = list.to_str().filter(|list| !list.starts_with('^'));
        list.is_some_and(|list| list.split(',').any(|name| name == PROVIDER))
    };
    had.filter(names).unwrap_or_else(|| PROVIDER.into())
}

/// `value` as a word of the shell.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,=+@%".contains(c);
    match !value.is_empty() && value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_the_shell_needs_it() {
        assert_eq!(quoted("/usr/lib/corewire"), "/usr/lib/corewire");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's $HOME"), "'it'\\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn what_was_set_is_kept_beside_the_provider() {
        let first = |had: &str| folder_first(Path::new("/cw"), Some(had.into())).unwrap();
        assert_eq!(first(""), "/cw");
        assert_eq!(first("/other"), "/cw:/other");
        assert_eq!(first("/other:/cw"), "/cw:/other");
        assert!(folder_first(Path::new("/a:b"), None).unwrap_err().message.contains("colon"));
        let list = |had: &str| providers(Some(had.into()));
        assert_eq!(list("corewire,tcp"), "corewire,tcp");
        assert_eq!(list("tcp"), "corewire");
        assert_eq!(list("^corewire"), "corewire");
        assert_eq!(list("mycorewire"), "corewire");
    }
}
