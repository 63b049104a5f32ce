//! What a binding can stand on.

use std::fmt;

/// What a binding stands on. Peers send its number to each other, so a new one stands last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Driver {
    /// A ring, between threads of one process.
    Local,
    /// A ring in shared memory, between threads that run on one core.
    Lmp,
    /// A ring in shared memory, between cores.
    Ump,
    /// A socket: for processes of other users, which may not map each other's memory, and where no ring can be had.
    Sock,
    /// A circuit through monitors: for services in other domains and containers, and for many connections that share
    /// one ring.
    Circuit,
    /// A connection to another host, for services whose names end in `@` and that host's. Needs the feature `net`.
    Net,
}

impl Driver {
    /// All, in the order in which they are tried.
    pub const ALL: [Self; 6] =
        [Self::Local, Self::Lmp, Self::Ump, Self::Sock, Self::Circuit, Self::Net];

    /// The order of [`Bind::multi_hop`].
    pub(crate) const MULTI_HOP: [Self; 6] =
        [Self::Local, Self::Lmp, Self::Circuit, Self::Ump, Self::Sock, Self::Net];
}

/// The name on command lines.
impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Lmp => "lmp",
            Self::Ump => "ump",
            Self::Sock => "sock",
            Self::Circuit => "circuit",
            Self::Net => "net",
        })
    }
}

impl std::str::FromStr for Driver {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|driver| driver.to_string() == name);
        found.ok_or_else(|| {
            format!("{name:?} is no driver: local, lmp, ump, sock, circuit and net are")
        })
    }
}
