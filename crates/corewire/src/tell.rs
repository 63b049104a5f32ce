//! What happens rarely, told to a subscriber of the crate `tracing`, if the feature of that name is on. None of
//! it is on the data path, and no lock is held meanwhile.
//!
//! | span or event | level | fields |
//! |---|---|---|
//! | span `join` | info | `channel` |
//! | a receiver joined, left | info | `channel`, `row`, `pid` of the one that joined |
//! | a follower joined, left | info | `channel`, `group` of the one that joined |
//! | a follower died | warn | `channel` |
//! | a receiver died, was evicted, was dropped for an impossible value | warn | `channel`, `row` |
//! | a receiver was refused | info | `channel`, `reason` |
//! | the sender is gone | info | `channel` |
//! | a relay was made; a relay is gone | info | `channel`, `group` |
//! | a fall-back: the kernel refuses membarrier, futex_waitv | warn | |

/// Tells of one thing.
macro_rules! tell {
    ($level:ident, $message:literal $(, $key:ident = $value:expr)* $(,)?) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "corewire", $($key = %$value,)* $message);
    };
}

/// What is told until the end of the scope belongs to this.
macro_rules! span {
    ($name:literal $(, $key:ident = $value:expr)* $(,)?) => {
        #[cfg(feature = "tracing")]
        let _entered =
            tracing::info_span!(target: "corewire", $name, $($key = %$value),*).entered();
    };
}

pub(crate) use {span, tell};
