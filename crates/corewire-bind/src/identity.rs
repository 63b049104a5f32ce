//! Who is at the other side.

/// A process, by the kernel's word when the connection was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// Its number, for display: 0 if it runs in another container.
    pub pid: u32,
}
