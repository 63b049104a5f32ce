//! How much memory there is to allocate.
//!
//! The kernel gives out more memory than there is, and ends a process when it has no more, also in the middle of an
//! allocation. So what is large is compared before with what is there.

use std::fs;
use std::path::Path;

use rustix::io::Errno;

use crate::OsError;

/// The number behind `key` in a file of lines of a key and a number.
fn number_of(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(key))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// What this machine has: free memory, what the kernel can take back from caches, and free swap.
fn of_machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = number_of(&text, "MemAvailable:")? + number_of(&text, "SwapFree:").unwrap_or(0);
    kibibytes.checked_mul(1024)
}

/// What the limits of this process's cgroup and of those above it leave; `None` where none has a limit.
fn of_group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let folder = root.join(own);
    folder.ancestors().take_while(|folder| folder.starts_with(root)).filter_map(left_in).min()
}

/// What the limit of one group leaves.
fn left_in(folder: &Path) -> Option<u64> {
    let number = |name| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let (limit, used) = (number("memory.max")?, number("memory.current")?);
    let statistics = fs::read_to_string(folder.join("memory.stat")).ok();
    // Pages of files, which the kernel takes back; those of shared memory are counted among them, and stay.
    let of = |key| statistics.as_deref().and_then(|text| number_of(text, key)).unwrap_or(0);
    let caches = of("file").saturating_sub(of("shmem"));
    Some(limit.saturating_sub(used.saturating_sub(caches)))
}

/// Checks that there are `bytes` bytes for `what`, as far as the kernel says.
///
/// # Errors
/// [`OsError`] with both numbers.
pub(crate) fn check_available(bytes: u64, what: &str) -> Result<(), OsError> {
    let available = of_machine().into_iter().chain(of_group()).min();
    match available {
        Some(available) if available < bytes => {
            let what = format!("{what} of {bytes} bytes, where {available} bytes are free");
            Err(OsError::new(what, Errno::NOMEM))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_refused_with_both_numbers() {
        assert!(check_available(4096, "make a window").is_ok());
        let error = check_available(1 << 60, "make a window").unwrap_err();
        assert!(
            error.to_string().starts_with("make a window of 1152921504606846976 bytes, where "),
            "{error}"
        );
    }

    #[test]
    fn numbers_are_found_by_their_keys() {
        let text = "file 12\nfile_mapped 3\nshmem 5\n";
        assert_eq!(
            ["file", "shmem", "swap"].map(|key| number_of(text, key)),
            [Some(12), Some(5), None]
        );
    }
}
