//! Which users a runtime directory is open to. Its owner says so; the kernel keeps the rest out of
//! the directory, and each of the owner's processes asks the kernel who connects.

use crate::process::effective_uid;
use crate::socket::{Peer, Socket};

/// Who may join the channels of a domain. Only processes of its owner create channels in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Access {
    /// The owner's processes alone. The directory has mode 0700.
    #[default]
    Owner,
    /// The owner's processes, and those of any user with this group, be it the primary or a
    /// supplementary one. The directory belongs to the group and has mode 2750: nobody else can
    /// enter it.
    Group(u32),
    /// The owner's processes, and those of these users. The directory has mode 0755: everybody can
    /// see the names of channels, and only these get an answer. Users whom the kernel has no number
    /// for here, since they are of another user namespace, all count as 65534.
    Users(Vec<u32>),
}

impl Access {
    /// Does it let other users in?
    #[must_use]
    pub fn is_open_to_others(&self) -> bool {
        *self != Self::Owner
    }

    /// May the peer at the other end of `socket` ask for anything? Root is a user like any other.
    #[must_use]
    pub fn permits(&self, peer: Peer, socket: &Socket) -> bool {
        peer.uid == effective_uid()
            || match self {
                Self::Owner => false,
                // The kernel may not give the supplementary groups; the primary one it does.
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
            // What is made in it gets its group.
            Self::Group(_) => 0o2750,
            Self::Users(_) => 0o755,
        }
    }

    /// Mode of what guests read.
    pub(crate) fn file_mode(&self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Group(_) => 0o640,
            Self::Users(_) => 0o644,
        }
    }

    /// Mode of a socket: connecting takes the right to write.
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

    /// Both ends of a connection of this process with itself.
    fn connection(test: &str) -> (Socket, Socket) {
        let name = format!("corewire-access-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let listener = Listener::bind(path.to_str().unwrap()).unwrap();
        let near = Socket::connect(path.to_str().unwrap()).unwrap();
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
