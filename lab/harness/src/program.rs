//! What a program tells the harness about itself.

use crate::failure::Failure;

/// How the processes of a program are started.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// The arguments before the one that is for [`serve`](super::role::serve).
    pub arguments: &'static [&'static str],
    /// Fails if the user wants an end.
    pub check: fn() -> Result<(), Failure>,
}

/// From now on a thread that panics ends the program. Without that, others may wait for ever for what it would have done.
pub fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}
