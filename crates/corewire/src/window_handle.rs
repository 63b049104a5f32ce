//! How a message names a window.

use corewire_layout::name::ChannelName;

use crate::error::AttachError;

/// What others need to attach to a window: to be sent in a message. It stays valid for as long as the window exists; a
/// later window of the same name is another one.
///
/// It is no secret and gives no right: every process that may enter the domain may attach, with the rights that the window
/// gives.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WindowHandle {
    pub(crate) socket: u128,
    pub(crate) incarnation: u128,
    pub(crate) name: ChannelName,
}

impl WindowHandle {
    /// As bytes: 32 bytes and the name.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32 + self.name.as_str().len());
        bytes.extend(self.socket.to_le_bytes());
        bytes.extend(self.incarnation.to_le_bytes());
        bytes.extend(self.name.as_str().bytes());
        bytes
    }

    /// Of bytes that [`to_bytes`](Self::to_bytes) has made.
    ///
    /// # Errors
    /// [`AttachError::NotAHandle`].
    pub fn of_bytes(bytes: &[u8]) -> Result<Self, AttachError> {
        let parse = || {
            let (socket, rest) = bytes.split_first_chunk::<16>()?;
            let (incarnation, name) = rest.split_first_chunk::<16>()?;
            let [socket, incarnation] = [socket, incarnation].map(|it| u128::from_le_bytes(*it));
            let name = ChannelName::new(std::str::from_utf8(name).ok()?).ok()?;
            (socket != 0 && incarnation != 0).then_some(Self { socket, incarnation, name })
        };
        parse().ok_or(AttachError::NotAHandle { found: bytes.len() })
    }

    /// The window's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }
}
