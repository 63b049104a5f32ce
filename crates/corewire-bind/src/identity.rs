//! Who is at the other side.

/// A process, by the kernel's word when the connection was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// Its number, for display: 0 if it runs in another container, or on another host.
    pub pid: u32,
}

impl Identity {
    /// Of a process on another host, of which this kernel knows nothing: its user and group are none of this one. Which host it
    /// is, a certificate says, and the rules of the file of hosts let it in.
    pub const FAR: Self = Self { uid: u32::MAX, gid: u32::MAX, pid: 0 };
}
