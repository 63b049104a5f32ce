//! Reports rare events to a subscriber of the crate `tracing`, if the feature `tracing` is enabled. No report is
//! on the data path, and no lock is held during one.
//!
//! | span or event | level | fields |
//! |---|---|---|
//! | span `join` | info | `channel` |
//! | a receiver joined, left | info | `channel`, `row`, `pid` of a receiver that joined |
//! | a follower joined, left | info | `channel`, `group` of a follower that joined |
//! | a follower died | warn | `channel` |
//! | a receiver died, was evicted, was dropped for an impossible value | warn | `channel`, `row` |
//! | a receiver was refused | info | `channel`, `reason` |
//! | the sender left or died | info | `channel` |
//! | a peer came, left; died, held an impossible value | info; warn | `endpoint`, `row` |
//! | an addressed peer cannot be linked | warn | `endpoint`, `why` |
//! | a relay was created; a relay left or died | info | `channel`, `group` |
//! | a fallback: the kernel refuses membarrier, futex_waitv | warn | |

/// Reports one event.
macro_rules! tell {
    ($level:ident, $message:literal $(, $key:ident = $value:expr)* $(,)?) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "corewire", $($key = %$value,)* $message);
    };
}

/// Opens a span, which contains the events until the end of the scope.
macro_rules! span {
    ($name:literal $(, $key:ident = $value:expr)* $(,)?) => {
        #[cfg(feature = "tracing")]
        let _entered =
            tracing::info_span!(target: "corewire", $name, $($key = %$value),*).entered();
    };
}

pub(crate) use {span, tell};
