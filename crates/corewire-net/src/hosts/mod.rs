//! The file that names hosts: where they are, how each proves who it is, and which of them may reach which endpoints.
//!
//! ```toml
//! own = "a"                              # this host's name; else the kernel's host name
//! silence_ms = 10000                     # a host that acknowledges nothing for so long is lost
//!
//! [tls]
//! certificate = "a.pem"                  # this host's, and what lies between it and an authority
//! key = "a.key"                          # only its owner may read it
//! authorities = "authorities.pem"        # who signs the certificates of hosts
//!
//! [hosts.b]
//! addresses = ["10.0.0.2:7421", "b.example.org:7421"]
//! certificate_name = "b.example.org"     # else the host's name
//!
//! [hosts.c]
//! addresses = ["192.168.7.3:7421"]
//! insecure = true                        # without TLS: everybody in between can read and change everything
//!
//! [[allow]]
//! hosts = ["b"]                          # "*": all that the file names
//! endpoints = ["calc", "bank-*"]
//! ```
//!
//! Paths are relative to the directory of the file. Without a rule no host reaches any endpoint.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corewire_layout::name::{ChannelName, NameError};
use corewire_os::file;
use serde::Deserialize;

/// Bytes of a file at most.
const HOSTS_BYTES_MAX: u64 = 1 << 20;
/// The variable that says where the file is.
pub const VARIABLE: &str = "COREWIRE_HOSTS";
/// In a directory of settings.
const FILE: &str = "corewire/hosts.toml";
const SILENCE_MS: u32 = 10_000;
/// The kernel counts in seconds, and a probe must have time to be answered.
const SILENCE_MS_POSSIBLE: std::ops::RangeInclusive<u64> = 2_000..=3_600_000;
const ALL: &str = "*";
/// What the endpoint of a service has behind the service's name.
const OF_SERVICE: &str = ".rings";

/// Why a file of hosts cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostsError {
    /// There is none.
    #[error(
        "no file names other hosts: {VARIABLE} is not set, and no directory of settings has {FILE}"
    )]
    Missing,
    /// It cannot be read, is no regular file, is too long, or others may change it.
    #[error("{}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It is no TOML, has an unknown key, or a value of another type.
    #[error("{}: {what}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// What is wrong, and in which line.
        what: String,
    },
    /// A value is not possible.
    #[error("{}: {key} = {found:?}: {possible}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What is possible.
        possible: String,
    },
}

/// The hosts that this one knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    path: PathBuf,
    own: ChannelName,
    silence_ms: u32,
    tls: Option<TlsFiles>,
    hosts: BTreeMap<ChannelName, Host>,
    rules: Vec<Rule>,
}

/// Where this host's certificate is, and those of the authorities that sign others'.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// This host's certificate, and those between it and an authority, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
    /// The certificates of the authorities, in PEM.
    pub authorities: PathBuf,
}

/// Another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Where it takes connections: `address:port` or `name:port`.
    pub addresses: Vec<String>,
    /// The name in its certificate.
    pub certificate_name: String,
    /// Connections with it have no TLS.
    pub is_insecure: bool,
}

/// Which hosts reach which endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    hosts: Vec<String>,
    endpoints: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHosts {
    own: Option<String>,
    silence_ms: Option<u64>,
    tls: Option<RawTls>,
    #[serde(default)]
    hosts: BTreeMap<String, RawHost>,
    #[serde(default)]
    allow: Vec<RawRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTls {
    certificate: PathBuf,
    key: PathBuf,
    authorities: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHost {
    addresses: Vec<String>,
    certificate_name: Option<String>,
    #[serde(default)]
    insecure: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    hosts: Vec<String>,
    endpoints: Vec<String>,
}

impl Hosts {
    /// The hosts in the file that `COREWIRE_HOSTS` names, else in `corewire/hosts.toml` in `$XDG_CONFIG_HOME` or `~/.config`, else in
    /// `/etc/xdg`. A process that runs with rights that its caller lacks takes no word of the environment for it.
    ///
    /// # Errors
    /// [`HostsError`].
    pub fn find() -> Result<Self, HostsError> {
        Self::read(&Self::found().ok_or(HostsError::Missing)?)
    }

    /// The file that [`find`](Self::find) reads, if there is one.
    #[must_use]
    pub fn found() -> Option<PathBuf> {
        file::find_settings(VARIABLE, FILE)
    }

    /// The hosts in the file at `path`. Links are followed; only its owner, who is this user or root, may be able to write it.
    ///
    /// # Errors
    /// [`HostsError`].
    pub fn read(path: &Path) -> Result<Self, HostsError> {
        let text = file::read_settings(path, HOSTS_BYTES_MAX);
        let text = text.map_err(|error| {
            let why = error.to_string();
            HostsError::Unreadable { path: path.into(), why }
        })?;
        Self::parse(path, &text)
    }

    /// The hosts in the text of the file at `path`.
    ///
    /// # Errors
    /// [`HostsError`], but for `Missing` and `Unreadable`.
    pub fn parse(path: &Path, text: &str) -> Result<Self, HostsError> {
        let raw: RawHosts = toml::from_str(text).map_err(|error| {
            let message = error.message().trim().replace('\n', ", ");
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map(|before| format!("line {}: ", before.split('\n').count()));
            HostsError::Text { path: path.into(), what: line.unwrap_or_default() + &message }
        })?;
        let bad = |key: &str, found: &str, possible: String| HostsError::Value {
            path: path.into(),
            key: key.into(),
            found: found.into(),
            possible,
        };
        let name_of = |key: &str, text: &str| {
            ChannelName::new(text).map_err(|error: NameError| bad(key, text, error.to_string()))
        };
        let own = match &raw.own {
            Some(own) => name_of("own", own)?,
            None => {
                let of_kernel = rustix::system::uname().nodename().to_string_lossy().into_owned();
                let possible = |error: NameError| {
                    format!("the kernel's host name is no name ({error}): set it here")
                };
                ChannelName::new(&of_kernel)
                    .map_err(|error| bad("own", &of_kernel, possible(error)))?
            }
        };
        let silence_ms = match raw.silence_ms {
            None => SILENCE_MS,
            Some(ms) if SILENCE_MS_POSSIBLE.contains(&ms) => {
                u32::try_from(ms).unwrap_or(SILENCE_MS)
            }
            Some(ms) => {
                let (least, most) = (SILENCE_MS_POSSIBLE.start(), SILENCE_MS_POSSIBLE.end());
                let possible = format!("at least {least}, at most {most}");
                return Err(bad("silence_ms", &ms.to_string(), possible));
            }
        };
        let at =
            |file: PathBuf| path.parent().map_or(file.clone(), |directory| directory.join(&file));
        let tls = raw.tls.map(|RawTls { certificate, key, authorities }| TlsFiles {
            certificate: at(certificate),
            key: at(key),
            authorities: at(authorities),
        });
        let mut hosts = BTreeMap::new();
        for (name, RawHost { addresses, certificate_name, insecure }) in raw.hosts {
            let key = format!("hosts.{name}");
            let host = name_of(&key, &name)?;
            if addresses.is_empty() {
                let possible = "at least one address is needed".into();
                return Err(bad(&format!("{key}.addresses"), "[]", possible));
            }
            for address in &addresses {
                let is_possible = address.rsplit_once(':').is_some_and(|(host, port)| {
                    !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
                });
                if !is_possible {
                    let possible = "address:port or name:port".into();
                    return Err(bad(&format!("{key}.addresses"), address, possible));
                }
            }
            let certificate_name = certificate_name.unwrap_or(name);
            hosts.insert(host, Host { addresses, certificate_name, is_insecure: insecure });
        }
        let mut rules = Vec::new();
        for RawRule { hosts: of, endpoints } in raw.allow {
            for name in of.iter().filter(|name| *name != ALL) {
                if !hosts.contains_key(&name_of("allow.hosts", name)?) {
                    let possible = "a host that this file names, or \"*\"".into();
                    return Err(bad("allow.hosts", name, possible));
                }
            }
            for pattern in &endpoints {
                let name = pattern.strip_suffix('*').unwrap_or(pattern);
                if !name.is_empty() || pattern.is_empty() {
                    name_of("allow.endpoints", name)?;
                }
            }
            rules.push(Rule { hosts: of, endpoints });
        }
        Ok(Self { path: path.into(), own, silence_ms, tls, hosts, rules })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// This host's name.
    #[must_use]
    pub fn own(&self) -> &ChannelName {
        &self.own
    }

    /// A host that acknowledges nothing for so many milliseconds is lost.
    #[must_use]
    pub fn silence_ms(&self) -> u32 {
        self.silence_ms
    }

    /// Where this host's certificate is, if connections have TLS.
    #[must_use]
    pub fn tls(&self) -> Option<&TlsFiles> {
        self.tls.as_ref()
    }

    /// The host of this name.
    #[must_use]
    pub fn get(&self, name: &ChannelName) -> Option<&Host> {
        self.hosts.get(name)
    }

    /// All hosts, by name.
    pub fn all(&self) -> impl Iterator<Item = (&ChannelName, &Host)> {
        self.hosts.iter()
    }

    /// Whether a rule lets this host reach the endpoint of this name. That of a service, `calc.rings`, is let in by a rule for
    /// `calc`, too.
    #[must_use]
    pub fn is_allowed(&self, host: &ChannelName, endpoint: &ChannelName) -> bool {
        let is_host = |rule: &Rule| rule.hosts.iter().any(|it| it == ALL || it == host.as_str());
        let names = [Some(endpoint.as_str()), endpoint.as_str().strip_suffix(OF_SERVICE)];
        let fits = |pattern: &String| {
            let mut names = names.into_iter().flatten();
            match pattern.strip_suffix('*') {
                Some(beginning) => names.any(|name| name.starts_with(beginning)),
                None => names.any(|name| pattern == name),
            }
        };
        self.hosts.contains_key(host)
            && self.rules.iter().any(|rule| is_host(rule) && rule.endpoints.iter().any(fits))
    }

    /// Whether a rule lets any host reach the endpoint of this name.
    #[must_use]
    pub fn lets_any_reach(&self, endpoint: &ChannelName) -> bool {
        self.hosts.keys().any(|host| self.is_allowed(host, endpoint))
    }
}

#[cfg(test)]
mod tests;
