//! What carries the messages of an MPI, and how it is told to use it.

use std::path::Path;
use std::process::Command;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::mpis::{Id, Installed, allow_root};
use super::shapes::Experiment;

/// What carries messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Way {
    /// corewire's provider for libfabric
    Corewire,
    /// The thinnest provider that carries MPI's messages, which is part of the study
    Floor,
    /// The MPI's own shared memory
    Own,
    /// The same, where an allreduce goes through messages and not through memory that all ranks share
    OwnMessages,
    /// UCX
    Ucx,
    /// libfabric's shm provider
    Shm,
}

/// The variables by which a user may have chosen a transport, which are not for what is measured here.
const CHOICES: [&str; 15] = [
    BY_MESSAGES,
    "FI_PROVIDER",
    "FI_PROVIDER_PATH",
    "FLOOR_AGAIN",
    "FLOOR_YIELD",
    "MPIR_CVAR_CH4_NETMOD",
    "MPIR_CVAR_NOLOCAL",
    "OMPI_MCA_pml",
    "OMPI_MCA_mtl",
    "OMPI_MCA_btl",
    "OMPI_MCA_osc",
    "OMPI_MCA_mtl_ofi_provider_include",
    "I_MPI_FABRICS",
    "UCX_TLS",
    "LD_PRELOAD",
];

/// How MPICH is told not to reduce in memory that all ranks share.
const BY_MESSAGES: &str = "MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM";

impl Way {
    /// In display order.
    pub(super) const ALL: [Self; 5] =
        [Self::Corewire, Self::Floor, Self::Own, Self::Ucx, Self::Shm];

    /// Its name in results and on the command line.
    pub(crate) fn text(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Its name to display.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Corewire => "corewire",
            Self::Floor => "floor",
            Self::Own => "own shared memory",
            Self::OwnMessages => "own, allreduce by messages",
            Self::Ucx => "UCX",
            Self::Shm => "libfabric shm",
        }
    }

    /// Whether it is a library in use that corewire is to beat.
    pub(super) const fn is_rival(self) -> bool {
        matches!(self, Self::Own | Self::OwnMessages | Self::Ucx | Self::Shm)
    }

    /// The ways that `id` has, wherever it is installed.
    pub(super) const fn of(id: Id) -> &'static [Self] {
        match id {
            Id::Direct => &[Self::Corewire, Self::Floor, Self::Shm],
            Id::Mpich4 | Id::Mpich5 => &Self::ALL,
            // Neither takes the shm provider: it does not offer what they ask for.
            Id::OpenMpi4 | Id::OpenMpi5 => &[Self::Corewire, Self::Floor, Self::Own, Self::Ucx],
            Id::IntelMpi => &[Self::Corewire, Self::Floor, Self::Own],
        }
    }

    /// Whether its messages go through libfabric.
    pub(super) const fn is_fabric(self) -> bool {
        matches!(self, Self::Corewire | Self::Floor | Self::Shm)
    }

    /// Why this MPI was built without it; `None` if it was not.
    pub(super) fn lack(self, mpi: &Installed) -> Option<String> {
        let module = match self {
            Self::Own | Self::OwnMessages => return None,
            Self::Ucx => "ucx",
            _ => "ofi",
        };
        let lacks = mpi.id.is_mpich() && !mpi.modules.iter().any(|it| it == module);
        lacks.then(|| format!("{} was built without {module}", mpi.name()))
    }

    /// Whether it is of interest here.
    pub(super) fn takes_part(self, experiment: Experiment) -> bool {
        let has_allreduce = matches!(experiment, Experiment::Collective | Experiment::Crowded);
        self != Self::OwnMessages || has_allreduce
    }

    /// Why this MPI cannot do these over it; `None` if it can.
    pub(super) fn gap(self, id: Id, experiment: Experiment) -> Option<&'static str> {
        let has_none = matches!(self, Self::Floor | Self::Shm);
        let is_gap = has_none && id == Id::OpenMpi5 && experiment == Experiment::OneSided;
        is_gap.then_some(
            "one-sided: Open MPI 5 has none over a provider without remote memory access",
        )
    }

    /// The name of its provider.
    const fn provider(self) -> &'static str {
        match self {
            Self::Corewire => "corewire",
            Self::Floor => "floor",
            _ => "shm",
        }
    }

    /// How it is chosen, and what else is set, in one sentence.
    pub(super) fn settings(self, id: Id) -> String {
        let provider = self.provider();
        let mut settings = match (self, id) {
            (_, Id::Direct) => format!("the provider {provider}, endpoints of one thread"),
            (Self::Own, _) if id.is_open_mpi() => {
                let name = if id == Id::OpenMpi4 { "vader" } else { "sm" };
                format!("pml ob1, btl {name}, osc sm")
            }
            (Self::Own, Id::IntelMpi) => "I_MPI_FABRICS=shm".to_owned(),
            (Self::Own, _) => "as it is by default".to_owned(),
            (Self::OwnMessages, _) => format!("{BY_MESSAGES}=mpir"),
            (Self::Ucx, _) if id.is_open_mpi() => "pml ucx, osc ucx".to_owned(),
            (Self::Ucx, _) => "MPIR_CVAR_CH4_NETMOD=ucx, MPIR_CVAR_NOLOCAL=1".to_owned(),
            (_, Id::OpenMpi4 | Id::OpenMpi5) => {
                format!(
                    "pml cm, mtl ofi with the provider {provider}; osc pt2pt, or rdma over btl ofi"
                )
            }
            (_, Id::IntelMpi) => format!("I_MPI_FABRICS=ofi with the provider {provider}"),
            _ => format!(
                "MPIR_CVAR_CH4_NETMOD=ofi with the provider {provider}, MPIR_CVAR_NOLOCAL=1"
            ),
        };
        if self == Self::Floor {
            settings += match id {
                Id::Mpich5 => "; a read of its queue looks again up to 300 times (FLOOR_AGAIN)",
                Id::Mpich4 | Id::IntelMpi => {
                    "; with more ranks than processors it yields when its queue is empty"
                }
                _ => "",
            };
        }
        settings
    }

    /// Sets all that an MPI, or the program without one, needs to use this. `providers` is the directory of the providers
    /// that libfabric does not have itself.
    pub(super) fn choose(self, command: &mut Command, id: Id, providers: &Path, is_crowded: bool) {
        for variable in CHOICES {
            command.env_remove(variable);
        }
        let provider = self.provider();
        if matches!(self, Self::Corewire | Self::Floor) {
            command.env("FI_PROVIDER_PATH", providers);
        }
        if self.is_fabric() {
            command.env("FI_PROVIDER", provider);
        }
        if self == Self::Floor && id == Id::Mpich5 && !is_crowded {
            command.env("FLOOR_AGAIN", "300");
        }
        if self == Self::Floor && matches!(id, Id::Mpich4 | Id::IntelMpi) && is_crowded {
            command.env("FLOOR_YIELD", "1");
        }
        match (self, id) {
            (_, Id::Direct) => {}
            (Self::Own, Id::IntelMpi) => drop(command.env("I_MPI_FABRICS", "shm")),
            (_, Id::IntelMpi) => drop(command.env("I_MPI_FABRICS", "ofi")),
            (Self::Own, Id::Mpich4 | Id::Mpich5) => {}
            (Self::OwnMessages, Id::Mpich4 | Id::Mpich5) => drop(command.env(BY_MESSAGES, "mpir")),
            (_, Id::Mpich4 | Id::Mpich5) => {
                let module = if self == Self::Ucx { "ucx" } else { "ofi" };
                command.env("MPIR_CVAR_CH4_NETMOD", module).env("MPIR_CVAR_NOLOCAL", "1");
            }
            (_, Id::OpenMpi4 | Id::OpenMpi5) => {
                for (name, value) in self.parts_of_open_mpi(id) {
                    command.args(["--mca", name, value]);
                }
            }
        }
    }

    fn parts_of_open_mpi(self, id: Id) -> Vec<(&'static str, &'static str)> {
        let is_old = id == Id::OpenMpi4;
        match self {
            Self::Own if is_old => vec![("pml", "ob1"), ("btl", "self,vader"), ("osc", "sm,pt2pt")],
            Self::Own => vec![("pml", "ob1"), ("btl", "self,sm"), ("osc", "sm")],
            Self::Ucx => {
                // It would leave a machine without a network to others.
                let [tls, devices] = match is_old {
                    true => ["pml_ucx_tls", "pml_ucx_devices"],
                    false => ["opal_common_ucx_tls", "opal_common_ucx_devices"],
                };
                vec![
                    ("pml", "ucx"),
                    ("osc", "ucx"),
                    ("btl", "self"),
                    (tls, "any"),
                    (devices, "any"),
                ]
            }
            _ => {
                // Open MPI 5 accesses memory by the other component.
                let has_access = self == Self::Corewire && !is_old;
                let btl = if has_access { "self,ofi" } else { "self" };
                let mut parts = vec![("pml", "cm"), ("mtl", "ofi"), ("btl", btl)];
                parts.push(("mtl_ofi_provider_include", self.provider()));
                if is_old {
                    parts.push(("osc", "pt2pt"));
                } else {
                    parts.push(("opal_common_ofi_provider_include", self.provider()));
                }
                parts
            }
        }
    }
}

/// A command that starts so many ranks over this way; the program and its arguments are to follow.
pub(super) fn launch(
    mpi: &Installed,
    way: Way,
    ranks: usize,
    providers: &Path,
    is_crowded: bool,
) -> Command {
    let mut command = Command::new(&mpi.launcher);
    allow_root(&mut command);
    if mpi.id.is_open_mpi() {
        // Ranks keep to processors by themselves, and are counted by them: it would count cores.
        command.args(["--oversubscribe", "--bind-to", "none"]);
        let must_yield = if is_crowded { "1" } else { "0" };
        command.args(["--mca", "mpi_yield_when_idle", must_yield]);
    }
    if mpi.id == Id::IntelMpi {
        command.env("I_MPI_PIN", "0");
    }
    if let (Some(libraries), Some(home)) =
        (&mpi.libraries, mpi.launcher.parent().and_then(Path::parent))
    {
        command.env("LD_LIBRARY_PATH", libraries).env("I_MPI_ROOT", home);
    }
    way.choose(&mut command, mpi.id, providers, is_crowded);
    command.args(["-n", &ranks.to_string()]);
    command
}
