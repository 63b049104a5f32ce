//! One error type for each stage: opening a domain, creating a channel or an endpoint, joining,
//! connecting, listening, sending, receiving, using a window, observing, waiting.

mod create;
mod join;
mod listen;
mod transfer;
mod window;

use corewire_os::OsError;
use corewire_os::directory::DirectoryError;

pub use self::create::{CreateError, EndpointError, NameInUse, NameUse};
pub use self::join::{ConnectError, JoinError};
pub use self::listen::{AcceptError, ConnectServiceError, ListenError};
pub use self::transfer::{Overwritten, ReceiveError, SendError, ValueError};
pub use self::window::{AttachError, WindowCreateError, WindowError};

/// Why a domain cannot be opened.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// This process is a forked child: it must open the domain again.
    #[error("this process was forked from the one that opened the domain: open it again")]
    Forked,
    /// The runtime directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// An access rule was given for another user's domain. Only the owner can set one.
    #[error(
        "only user {owner} can set an access rule for its domain; this process runs as user {user}"
    )]
    Guest {
        /// The domain's owner.
        owner: u32,
        /// This process's effective user.
        user: u32,
    },
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// There is no counter of this name. The message lists the names that exist.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("no counter {asked:?}: {of} has {}", known.join(", "))]
#[non_exhaustive]
pub struct CounterError {
    /// The name that was asked for.
    pub asked: String,
    /// What was asked: a sender, a receiver or an endpoint.
    pub of: &'static str,
    /// The names of its counters.
    pub known: Vec<&'static str>,
}

impl CounterError {
    /// Finds the counter `asked` among `all` counters of a handle, which `of` names.
    pub(crate) fn find<C: Copy>(
        asked: &str,
        of: &'static str,
        all: &[(C, &'static str)],
    ) -> Result<C, Self> {
        let found = all.iter().find(|(_, name)| *name == asked);
        found.map(|&(counter, _)| counter).ok_or_else(|| {
            let known = all.iter().map(|&(_, name)| name).collect();
            Self { asked: asked.to_owned(), of, known }
        })
    }
}

/// Why a [`WaitSet`](crate::WaitSet) stopped waiting.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// A call of an endpoint failed.
    #[error(transparent)]
    Endpoint(#[from] corewire_endpoint::MessageError),
    /// A receiver got no descriptor to wait for.
    #[error(transparent)]
    Receiver(#[from] JoinError),
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

corewire_layout::debug_is_text!(OpenError, CounterError, WaitError);

#[cfg(test)]
mod tests {
    use corewire_layout::counters::{EndpointCounter, ReceiverCounter, SenderCounter};

    use super::*;

    #[test]
    fn an_unknown_counter_is_answered_with_the_names_that_exist() {
        let error = CounterError::find("lost", "a sender", &SenderCounter::ALL).unwrap_err();
        let known = "messages, bytes, waits, sleeps, cap_finds, wakes, empty_scans";
        assert_eq!(error.to_string(), format!("no counter \"lost\": a sender has {known}"));
        let found = CounterError::find("waits", "a sender", &SenderCounter::ALL);
        assert_eq!(found, Ok(SenderCounter::Waits));
    }

    #[test]
    fn the_documentation_of_each_handle_lists_its_counters() {
        fn check<C>(source: &str, all: &[(C, &str)]) {
            for (_, name) in all {
                assert!(source.contains(&format!("/// | `{name}` | ")), "{name} is not listed");
            }
        }
        check(include_str!("../path/common.rs"), &SenderCounter::ALL);
        check(include_str!("../path/receive.rs"), &ReceiverCounter::ALL);
        check(include_str!("../path/endpoint/mod.rs"), &EndpointCounter::ALL);
    }
}
