//! What travels on a connection between two endpoints of different hosts, byte by byte.
//!
//! The side that dials begins with a [`Preface`], in the clear: the process that takes connections for a host reads from it
//! which endpoint is wanted, and hands the connection over. It is answered by an [`Answer`], in the clear, too. If the preface
//! asks for TLS, the handshake of TLS follows, and the rest travels within it. The side that dials sends its [`Hello`]; the
//! other side answers it, and sends its own. After that both send frames. Each frame begins with a [`Header`].
//!
//! | file | contents |
//! |---|---|
//! | this one | why bytes are refused |
//! | `answer` | the answers of the side that is dialled |
//! | `opening` | preface and hello |
//! | `frame` | the header of a frame |
//!
//! Everything is hostile until it is parsed. A parser is given all that has arrived, and says how many bytes it has used;
//! `None` if more must arrive first. How many that is at most does not depend on what has arrived.

mod answer;
mod frame;
mod opening;

pub use answer::{ANSWER_BYTES, Answer, Refusal};
pub use frame::{
    FRAME_BYTES_MAX, FrameKind, FrameWants, HEADER_BYTES_MAX, HEADER_BYTES_MIN, Header,
};
pub use opening::{CREDIT_BYTES_MIN, HELLO_BYTES_MAX, Hello, PREFACE_BYTES_MAX, Preface};

/// The version of what travels between hosts. Another one is refused.
pub const NET_VERSION: u16 = 1;

/// Why bytes that have arrived are refused. The connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// It is no connection of corewire.
    #[error("what has arrived is not corewire's: it begins with {found:#018x}")]
    Foreign {
        /// The first eight bytes.
        found: u64,
    },
    /// The other side has another version.
    #[error("the other side has version {found}, this one {NET_VERSION}")]
    Version {
        /// Its version.
        found: u16,
    },
    /// A name has characters that names do not have.
    #[error("what the other side gives as a name is none")]
    Name,
    /// A field has an impossible value.
    #[error("{found:#x} is impossible as {field}")]
    Field {
        /// Which one.
        field: &'static str,
        /// What it holds.
        found: u64,
    },
}
