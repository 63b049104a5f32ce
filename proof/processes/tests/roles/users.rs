//! Processes of other users, which only root can start.

use std::io::Write as _;

/// User ids of the tests; they need no accounts.
pub(crate) const OWNER: u32 = 23_456;
pub(crate) const GUEST: u32 = 65_534;
pub(crate) const STRANGER: u32 = 12_345;

/// Whether processes of other users can be started; otherwise says that the test is skipped.
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        // Bypasses the test harness, which captures the output of tests that pass.
        let said = b"SKIPPED: only root can start processes of other users\n";
        std::io::stdout().write_all(said).unwrap();
    }
    is_root
}
