//! The checks themselves.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use corewire::{Domain, Topology, TopologyError};
use corewire_os::directory::{default_path, default_path_of};
use corewire_os::probe;
use corewire_os::process::effective_uid;
use corewire_os::processor::{self, Cache};
use corewire_os::sleep::Linux;

use super::Finding;
use crate::{access, units};

/// Descriptors that a channel takes in the sender's process for each receiver, generously.
const DESCRIPTORS_PER_RECEIVER: u64 = 8;
/// Memory that programs with several channels may want to lock.
const LOCK_BYTES: u64 = 64 << 20;
/// Directories that a user may watch: one for each process that waits for a name.
const WATCHES_MIN: u64 = 64;
/// The first kernel with memory that others can be kept from writing, and process descriptors.
const KERNEL_MIN: (u32, u32) = (5, 3);

/// Everything that is looked at, in order.
pub(super) fn all() -> Vec<Finding> {
    let linux = Linux::get();
    vec![
        cores(),
        caches(),
        last_levels(&last_level_caches(), &Topology::of_this_machine()),
        clock(probe::governor(0).as_deref()),
        kernel(),
        membarrier(linux.has_membarrier()),
        waitv(linux.has_waitv()),
        locked_memory(probe::lockable_bytes()),
        descriptors(probe::descriptor_limits()),
        watches(probe::watches_max()),
        huge_pages(probe::shared_huge_pages().as_deref()),
        cross_process_copy(&probe::cross_process_copy(), probe::ptrace_scope()),
        runtime_directory(),
        channel(),
    ]
}

fn cores() -> Finding {
    let check = "cores";
    let model = processor::model_name().unwrap_or_else(|| "model unknown".into());
    match processor::allowed() {
        Err(error) => Finding::improvable(check, error.to_string(), "nothing is known to help"),
        Ok(allowed) => {
            let count = units::counted(allowed.len(), "core", "cores");
            let found = format!("{count} for this process ({}), {model}", ranges(&allowed));
            if allowed.len() > 1 {
                return Finding::good(check, found);
            }
            let advice = "sender and receivers take turns on one core: allow more (taskset -c 0-3 PROGRAM, \
                 or the container's cpuset)";
            Finding::improvable(check, found, advice)
        }
    }
}

fn caches() -> Finding {
    let check = "caches";
    let found = processor::caches(0);
    let list: Vec<_> =
        found.iter().filter(|cache| cache.kind != "Instruction").map(cache).collect();
    if list.is_empty() {
        let advice = "the default window is 1 MiB; set window_bytes to half of level 2";
        return Finding::improvable(check, "the kernel does not describe them", advice);
    }
    Finding::good(check, format!("processor 0: {}", list.join("; ")))
}

fn cache(cache: &Cache) -> String {
    let Cache { level, bytes, shared_by, .. } = cache;
    let whose = match shared_by.contains(['-', ',']) {
        true => format!("shared by {shared_by}"),
        false => "its own".to_owned(),
    };
    format!("level {level} {}, {whose}", units::size(*bytes))
}

/// The last-level caches of the processors of this process, each as the kernel lists who shares it.
fn last_level_caches() -> Vec<String> {
    let processors = processor::allowed().unwrap_or_default();
    let mut caches: Vec<_> = processors.into_iter().filter_map(processor::last_level).collect();
    caches.sort();
    caches.dedup();
    caches
}

fn last_levels(caches: &[String], measured: &Result<Option<Topology>, TopologyError>) -> Finding {
    let check = "last-level caches";
    let count = units::counted(caches.len(), "cache", "caches");
    match (caches, measured) {
        (_, Err(error)) => {
            let advice = "write it anew: corewire doctor --measure \"$COREWIRE_TOPOLOGY\"";
            Finding::bad(check, format!("COREWIRE_TOPOLOGY: {error}"), advice)
        }
        ([], _) => {
            let advice = "channels on two levels: say which cache with cache_domain";
            Finding::improvable(check, "the kernel does not describe them", advice)
        }
        ([_], _) => Finding::good(check, "all processors share one"),
        (_, Ok(Some(_))) => Finding::good(check, format!("{count}, measured")),
        (_, Ok(None)) => {
            let advice = "for channels of many receivers: corewire doctor --measure \
                          /etc/corewire.json, and then export COREWIRE_TOPOLOGY=/etc/corewire.json";
            Finding::improvable(check, format!("{count}, not measured"), advice)
        }
    }
}

fn clock(governor: Option<&str>) -> Finding {
    let check = "processor clock";
    match governor {
        None => Finding::good(check, "not controlled from here"),
        Some(governor @ ("performance" | "schedutil")) => Finding::good(check, governor),
        Some(governor) => {
            let advice =
                "an idle core answers late: as root, cpupower frequency-set -g performance";
            Finding::improvable(check, format!("governed by {governor}"), advice)
        }
    }
}

fn kernel() -> Finding {
    let check = "kernel";
    let release = probe::kernel_release();
    let (major, minor) = KERNEL_MIN;
    match version(&release) {
        Some(found) if found < KERNEL_MIN => {
            Finding::bad(check, release, format!("Linux {major}.{minor} or later is needed"))
        }
        Some(_) => Finding::good(check, format!("Linux {release}")),
        None => Finding::improvable(
            check,
            release,
            format!("make sure that it is Linux {major}.{minor} or later"),
        ),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn membarrier(is_there: bool) -> Finding {
    let check = "membarrier";
    if is_there {
        return Finding::good(check, "allowed: no message pays for a receiver that may sleep");
    }
    let advice = "each message costs a locked instruction (about 10 times slower in a stream): \
                  allow membarrier in the seccomp filter of this container (docker run \
                  --security-opt seccomp=FILE)";
    Finding::improvable(check, "refused by the kernel", advice)
}

fn waitv(is_there: bool) -> Finding {
    let check = "FUTEX_WAITV";
    if is_there {
        return Finding::good(check, "allowed: sleepers learn of a death at once");
    }
    let advice = "sleepers wake every millisecond instead: use Linux 5.16 or later, or allow \
                  futex_waitv in the seccomp filter of this container (docker run --security-opt \
                  seccomp=FILE)";
    Finding::improvable(check, "refused by the kernel", advice)
}

fn locked_memory(limit: Option<u64>) -> Finding {
    let check = "lockable memory";
    match limit {
        None => Finding::good(check, "no limit"),
        Some(bytes) if bytes >= LOCK_BYTES => Finding::good(check, units::size(bytes)),
        Some(bytes) => {
            let advice = format!(
                "only for channels made with lock_memory: raise it to {} or more \
                 (ulimit -l, LimitMEMLOCK)",
                units::size(LOCK_BYTES)
            );
            Finding::improvable(check, units::size(bytes), advice)
        }
    }
}

fn descriptors((soft, hard): (u64, u64)) -> Finding {
    let check = "descriptors";
    let shown = |limit: u64| match limit {
        u64::MAX => "no limit".to_owned(),
        limit => units::grouped(limit),
    };
    let found = format!("soft limit {}, hard limit {}", shown(soft), shown(hard));
    let receivers = hard / DESCRIPTORS_PER_RECEIVER;
    let advice = format!(
        "the soft limit is raised by itself; the hard one is enough for about {} receivers: raise \
         it (ulimit -Hn, LimitNOFILE)",
        units::grouped(receivers)
    );
    match receivers {
        0..8 => Finding::bad(check, found, advice),
        8..1024 => Finding::improvable(check, found, advice),
        _ => Finding::good(check, found),
    }
}

fn watches(limit: Option<u64>) -> Finding {
    let check = "waiting for names";
    match limit {
        Some(limit) if limit < WATCHES_MIN => {
            let advice = "processes that wait for a channel need one each: as root, sysctl \
                          fs.inotify.max_user_instances=1024";
            Finding::improvable(check, format!("{limit} at a time for this user"), advice)
        }
        Some(limit) => {
            Finding::good(check, format!("{} at a time for this user", units::grouped(limit)))
        }
        None => Finding::good(check, "the kernel does not say how many at a time"),
    }
}

fn huge_pages(setting: Option<&str>) -> Finding {
    let check = "shared huge pages";
    let path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    match setting {
        Some(word @ ("advise" | "always" | "within_size" | "force")) => Finding::good(check, word),
        Some(word) => {
            let advice = format!("for windows of many MiB, as root: echo advise > {path}");
            Finding::improvable(check, word, advice)
        }
        None => {
            let advice = "ordinary pages are used: a kernel with CONFIG_TRANSPARENT_HUGEPAGE has \
                          huge ones";
            Finding::improvable(check, "not in this kernel", advice)
        }
    }
}

fn cross_process_copy(tried: &Result<(), String>, ptrace_scope: Option<u32>) -> Finding {
    let check = "cross-process copy";
    let unused = "channels do not need it;";
    match (tried, ptrace_scope) {
        (Err(error), _) => {
            let advice = format!("{unused} allow process_vm_readv in the seccomp filter");
            Finding::improvable(check, format!("process_vm_readv: {error}"), advice)
        }
        (Ok(()), None | Some(0)) => {
            Finding::good(check, "process_vm_readv works between processes of one user")
        }
        (Ok(()), Some(scope)) => {
            let found = format!("process_vm_readv works, but kernel.yama.ptrace_scope is {scope}");
            let advice = format!("{unused} sysctl kernel.yama.ptrace_scope=0 (as root) opens it");
            Finding::improvable(check, found, advice)
        }
    }
}

fn runtime_directory() -> Finding {
    let check = "runtime directory";
    let owner = access::chosen_owner();
    let path =
        owner.filter(|&uid| uid != effective_uid()).map_or_else(default_path, default_path_of);
    let shown = units::printable(&path.to_string_lossy());
    let tried =
        access::open_domain().and_then(|domain| Ok((domain.is_guest(), domain.channels()?)));
    match tried {
        Ok((is_guest, channels)) => {
            let count = units::counted(channels.len(), "channel", "channels");
            let role = if is_guest { ", as a guest" } else { "" };
            Finding::good(check, format!("{shown}, {count}{role}"))
        }
        Err(failure) => {
            let advice = match owner {
                None => {
                    "give COREWIRE_RUNTIME_DIR a directory of this user's with mode 0700, the \
                     same for all who are to find each other"
                }
                Some(_) => {
                    "give COREWIRE_RUNTIME_DIR the owner's directory; the owner lets others in \
                     by an access rule (corewire send --access)"
                }
            };
            Finding::bad(check, format!("{shown}: {}", failure.message), advice)
        }
    }
}

/// Whether all of it works together: a channel within this process, in a directory of its own.
fn channel() -> Finding {
    let check = "a channel";
    let tried = corewire_os::random_u128().map_err(|error| error.to_string()).and_then(|number| {
        let path = std::env::temp_dir().join(format!("corewire-doctor-{number:032x}"));
        DirBuilder::new().mode(0o700).create(&path).map_err(|error| error.to_string())?;
        let outcome = try_channel(&path).map_err(|error| error.to_string());
        let _ = std::fs::remove_dir_all(&path);
        outcome
    });
    match tried {
        Ok(()) => Finding::good(check, "made, joined, a message sent and received"),
        Err(error) => Finding::bad(check, error, "channels do not work here until this does"),
    }
}

fn try_channel(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let domain = Domain::open_at(path)?;
    let mut sender = domain.sender("doctor").create()?;
    let mut receiver = domain.receiver("doctor").join()?;
    sender.send(b"are you there?")?;
    match receiver.try_receive()? {
        Some(message) if message[..] == *b"are you there?" => Ok(()),
        _ => Err("the message did not arrive".into()),
    }
}

/// `[0, 1, 2, 5]` as `0-2,5`.
fn ranges(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let text = |(first, last): (usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn ranges_are_short() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version("6.18.44-fc"), Some((6, 18)));
        assert_eq!(version("5.10"), Some((5, 10)));
        assert_eq!(version("odd"), None);
    }

    #[test]
    fn what_is_missing_gets_advice() {
        let findings = [
            membarrier(false),
            waitv(false),
            locked_memory(Some(65536)),
            descriptors((64, 256)),
            huge_pages(Some("never")),
            huge_pages(None),
            cross_process_copy(&Err("refused".into()), None),
            cross_process_copy(&Ok(()), Some(1)),
            watches(Some(8)),
            clock(Some("powersave")),
            last_levels(&["0-3".into(), "4-7".into()], &Ok(None)),
            last_levels(&[], &Ok(None)),
        ];
        for finding in findings {
            assert_eq!(finding.level, Level::Improvable, "{finding:?}");
            assert!(finding.advice.is_some(), "{finding:?}");
        }
        assert_eq!(descriptors((16, 16)).level, Level::Bad);
        let error = TopologyError { path: "/no/file".into(), why: "no".into() };
        assert_eq!(last_levels(&["0-3".into()], &Err(error)).level, Level::Bad);
        assert_eq!(last_levels(&["0-3".into()], &Ok(None)).level, Level::Good);
    }
}
