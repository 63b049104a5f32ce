//! The access rule of a runtime directory: which users it is open to. The directory's owner sets the
//! rule, and all of the owner's processes that open the directory from then on follow it. The kernel keeps other users out of the directory, and each of the owner's processes asks
//! the kernel which user connects.

use std::fmt;

use crate::process::effective_uid;
use crate::socket::{Peer, Socket};

/// Which users may join the channels of a domain. Only processes of its owner create channels in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Access {
    /// Only the owner's processes. The directory has mode 0700.
    #[default]
    Owner,
    /// The owner's processes, and those of any user with this group as its primary or a
    /// supplementary group. The directory belongs to the group and has mode 2750: no other user can
    /// enter it.
    Group(u32),
    /// The owner's processes, and those of these users. The directory has mode 0755: every user can
    /// see the names of channels, but only these users get an answer. Users of another user
    /// namespace have no number here; the kernel shows all of them as 65534.
    Users(Vec<u32>),
}

/// As the commands take it: `owner`, `group:NUMBER` or `users:UID,UID`.
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner => f.write_str("owner"),
            Self::Group(gid) => write!(f, "group:{gid}"),
            Self::Users(users) => {
                let users: Vec<String> = users.iter().map(u32::to_string).collect();
                write!(f, "users:{}", users.join(","))
            }
        }
    }
}

impl Access {
    /// Whether the rule admits other users.
    #[must_use]
    pub fn is_open_to_others(&self) -> bool {
        *self != Self::Owner
    }

    /// Whether the rule admits the peer at the other end of `socket`. Root is a user like any other.
    #[must_use]
    pub fn permits(&self, peer: Peer, socket: &Socket) -> bool {
        peer.uid == effective_uid()
            || match self {
                Self::Owner => false,
                // The kernel may refuse the supplementary groups. It always reports the primary one.
                Self::Group(gid) => {
                    peer.gid == *gid || socket.peer_groups().is_ok_and(|all| all.contains(gid))
                }
                Self::Users(users) => users.contains(&peer.uid),
            }
    }

    /// Mode of the runtime directory.
    pub(crate) fn directory_mode(&self) -> u32 {
        match self {
            Self::Owner => 0o700,
            // New files in the directory get its group.
            Self::Group(_) => 0o2750,
            Self::Users(_) => 0o755,
        }
    }

    /// Mode of files that guests read.
    pub(crate) fn file_mode(&self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Group(_) => 0o640,
            Self::Users(_) => 0o644,
        }
    }

    /// Mode of a socket. To connect, a process needs the right to write.
    pub(crate) fn socket_mode(&self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Group(_) => 0o660,
            Self::Users(_) => 0o666,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Listener;

    /// Both ends of a connection within this process.
    fn connection(test: &str) -> (Socket, Socket) {
        let name = format!("corewire-access-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let listener = Listener::bind(path.to_str().unwrap()).unwrap();
        let near =
            Socket::connect(path.to_str().unwrap(), std::time::Duration::from_secs(5)).unwrap();
        let far = listener.accept().unwrap();
        std::fs::remove_file(&path).unwrap();
        (near, far)
    }

    #[test]
    fn a_rule_names_who_is_let_in() {
        let (_near, far) = connection("rule");
        let own = far.peer().unwrap();
        assert_eq!(own.uid, effective_uid());
        let other = Peer { uid: own.uid + 1, gid: u32::MAX - 1, ..own };
        let list = |uid| Access::Users(vec![7, uid]);
        for rule in [Access::Owner, Access::Group(u32::MAX - 2), list(own.uid + 2)] {
            assert!(rule.permits(own, &far), "{rule:?}");
            assert!(!rule.permits(other, &far), "{rule:?}");
        }
        for rule in [Access::Group(other.gid), list(other.uid)] {
            assert!(rule.permits(other, &far) && rule.is_open_to_others(), "{rule:?}");
        }
    }

    #[test]
    fn the_kernel_names_the_peers_groups() {
        let (_near, far) = connection("groups");
        let own = rustix::process::getgroups().unwrap();
        let own: Vec<u32> = own.into_iter().map(rustix::fs::Gid::as_raw).collect();
        assert_eq!(far.peer_groups().unwrap(), own);
        let other = Peer { uid: effective_uid() + 1, gid: u32::MAX - 1, pid: 0 };
        for gid in own {
            assert!(Access::Group(gid).permits(other, &far), "{gid}");
        }
    }
}
