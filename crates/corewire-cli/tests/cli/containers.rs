//! A channel between two containers that share only the runtime directory.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

use crate::scratch::{Running, Scratch, noise};

/// More than the `/dev/shm` of either container holds.
const BYTES: usize = 100 << 20;

// Keeps P60.
#[test]
fn containers_need_to_share_nothing_but_the_runtime_directory() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can make containers here");
        return;
    }
    let scratch = Scratch::new("containers");
    let content = noise(BYTES);
    let file = scratch.file(&content);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/containers.sh");
    let mut command = Command::new(script);
    command.arg(env!("CARGO_BIN_EXE_corewire")).arg(file).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let done = Running::start(&mut command).finish();
    done.expect_code(0);
    let digest: String =
        Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(done.text().split_whitespace().next(), Some(&digest[..]), "{}", done.errors);
    let told = |of: &str, what: &str| {
        let lines =
            done.errors.lines().filter_map(|line| line.strip_prefix(of)?.strip_prefix(": "));
        lines.filter(|line| line.contains(what)).map(str::to_owned).collect::<Vec<_>>()
    };
    for space in ["pid:", "net:", "mnt:"] {
        let mine = std::fs::read_link(format!("/proc/self/ns/{}", &space[..3])).unwrap();
        let spaces = [told("sender", space), told("receiver", space)].concat();
        let all: BTreeSet<_> = spaces.into_iter().chain([mine.display().to_string()]).collect();
        assert_eq!(all.len(), 3, "each has its own: {all:?}");
    }
    for of in ["sender", "receiver"] {
        assert_eq!(told(of, "/dev/shm"), ["0 files in /dev/shm"], "{}", done.errors);
    }
}
