//! The checks themselves.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corewire::{Domain, Topology, TopologyError, TuningInUse, Wait};
use corewire_os::directory::{ForeignFile, Role, RuntimeDirectory, default_path, default_path_of};
use corewire_os::probe;
use corewire_os::process::effective_uid;
use corewire_os::processor::{self, Cache};
use corewire_os::sleep::Linux;

use super::{Finding, hosts, mpi};
use crate::failure::Failure;
use crate::seen;
use crate::{access, units};

/// Foreign files that are named one by one.
const FILES_SHOWN_MAX: usize = 5;
/// Upper bound for the descriptors that a channel needs in the sender's process for each receiver.
const DESCRIPTORS_PER_RECEIVER: u64 = 8;
/// Enough lockable memory for a program with several channels.
const LOCK_BYTES: u64 = 64 << 20;
/// Fewest directories that a user should be able to watch: one for each process that waits for a name.
const WATCHES_MIN: u64 = 64;
/// The first kernel with process descriptors and with seals that make memory read-only for others.
const KERNEL_MIN: (u32, u32) = (5, 3);

/// All checks, in order.
pub(super) fn all() -> Vec<Finding> {
    let linux = Linux::get();
    let place = Place::in_use();
    // Before the kernel's calls are reported: a call that is refused only in use is known after it.
    let channel = channel(&place);
    let mut findings = vec![
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
        tuning(corewire::tuning()),
        runtime_directory(&place),
    ];
    findings.extend(foreign_files(&place));
    findings.extend(refusals(&place));
    findings.push(channel);
    findings.extend(hosts::checks());
    findings.extend(mpi::checks());
    findings
}

fn cores() -> Finding {
    let check = "cores";
    let model = processor::model_name().unwrap_or_else(|| "model unknown".into());
    match processor::allowed() {
        Err(error) => Finding::improvable(
            check,
            error.to_string(),
            "check /proc/self/status: Cpus_allowed_list",
        ),
        Ok(allowed) => {
            let count = units::counted(allowed.len(), "core", "cores");
            let found = format!("{count} for this process ({}), {model}", ranges(&allowed));
            if allowed.len() > 1 {
                return Finding::good(check, found);
            }
            let advice = "sender and receivers take turns on one core: allow more cores (taskset -c 0-3 \
                 PROGRAM, or the container's cpuset)";
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
        let advice = "the default window is 1 MiB; set window_bytes to half of the level 2 cache";
        return Finding::improvable(check, "the kernel does not describe them", advice);
    }
    Finding::good(check, format!("processor 0: {}", list.join("; ")))
}

fn cache(cache: &Cache) -> String {
    let Cache { level, bytes, shared_by, .. } = cache;
    let whose = match shared_by.contains(['-', ',']) {
        true => format!("shared by {shared_by}"),
        false => "not shared".to_owned(),
    };
    format!("level {level} {}, {whose}", units::size(*bytes))
}

/// The last-level caches of the processors of this process. Each is the kernel's list of the
/// processors that share it.
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
            let advice = "write it again: corewire doctor --measure \"$COREWIRE_TOPOLOGY\"";
            Finding::bad(check, format!("COREWIRE_TOPOLOGY: {error}"), advice)
        }
        ([], _) => {
            let advice = "for channels on two levels, name the cache with cache_domain";
            Finding::improvable(check, "the kernel does not describe them", advice)
        }
        ([_], _) => Finding::good(check, "all processors share one"),
        (_, Ok(Some(_))) => Finding::good(check, format!("{count}, measured")),
        (_, Ok(None)) => {
            let advice = "for channels with many receivers: corewire doctor --measure \
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
            let advice = "an idle core reacts late: as root, cpupower frequency-set -g performance";
            Finding::improvable(check, format!("governor {governor}"), advice)
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
            format!("check that it is Linux {major}.{minor} or later"),
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
        return Finding::good(
            check,
            "works: a message costs no extra for receivers that may sleep",
        );
    }
    let advice = "each message costs a locked instruction (a stream is about 10 times slower): \
                  allow membarrier in the seccomp filter of this container (docker run \
                  --security-opt seccomp=FILE)";
    Finding::improvable(check, "refused by the kernel or a seccomp filter", advice)
}

fn waitv(is_there: bool) -> Finding {
    let check = "FUTEX_WAITV";
    if is_there {
        return Finding::good(check, "works: a sleeping receiver learns of a death at once");
    }
    let advice = "a sleeping receiver looks up every 4 ms instead: use Linux 5.16 or later, or \
                  allow futex_waitv in the seccomp filter of this container (docker run \
                  --security-opt seccomp=FILE)";
    Finding::improvable(check, "refused by the kernel or a seccomp filter", advice)
}

fn locked_memory(limit: Option<u64>) -> Finding {
    let check = "lockable memory";
    match limit {
        None => Finding::good(check, "no limit"),
        Some(bytes) if bytes >= LOCK_BYTES => Finding::good(check, units::size(bytes)),
        Some(bytes) => {
            let advice = format!(
                "only for channels that are created with lock_memory: raise it to {} or more \
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
        "corewire raises the soft limit itself; the hard limit is enough for about {} receivers: \
         raise it (ulimit -Hn, LimitNOFILE)",
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
            let advice = "each process that waits for a channel needs one: as root, sysctl \
                          fs.inotify.max_user_instances=1024";
            Finding::improvable(check, format!("{limit} processes of this user at a time"), advice)
        }
        Some(limit) => {
            let limit = units::grouped(limit);
            Finding::good(check, format!("{limit} processes of this user at a time"))
        }
        None => Finding::good(check, "the kernel does not state a limit"),
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
            let advice = "ordinary pages are used; a kernel with CONFIG_TRANSPARENT_HUGEPAGE has \
                          huge pages";
            Finding::improvable(check, "not in this kernel", advice)
        }
    }
}

fn tuning(in_use: &TuningInUse) -> Finding {
    let check = "tuning";
    match (&in_use.path, &in_use.problem) {
        (None, _) => Finding::good(check, "no file: the defaults"),
        (Some(path), None) => Finding::good(check, path.display().to_string()),
        (Some(path), Some(problem)) => {
            let found = format!("{} is not used: {problem}", path.display());
            let advice = "change or remove the file, or set COREWIRE_TUNING to another one, or to none; \
                          until then corewire uses its defaults";
            Finding::improvable(check, found, advice)
        }
    }
}

fn cross_process_copy(tried: &Result<(), String>, ptrace_scope: Option<u32>) -> Finding {
    let check = "cross-process copy";
    let unused = "without it endpoints copy messages of more than 128 KiB twice;";
    match (tried, ptrace_scope) {
        (Err(error), _) => {
            let advice =
                format!("{unused} to have it, allow process_vm_readv in the seccomp filter");
            Finding::improvable(check, format!("process_vm_readv: {error}"), advice)
        }
        (Ok(()), None | Some(0)) => {
            Finding::good(check, "process_vm_readv works between processes of one user")
        }
        (Ok(()), Some(scope)) => {
            let found = format!("process_vm_readv works, but kernel.yama.ptrace_scope is {scope}");
            let advice =
                format!("{unused} to allow it, as root: sysctl kernel.yama.ptrace_scope=0");
            Finding::improvable(check, found, advice)
        }
    }
}

/// The runtime directory in use, and whether it can be used.
struct Place {
    path: PathBuf,
    role: Role,
    /// The domain there, and how many channels it has.
    opened: Result<(Domain, usize), Failure>,
}

impl Place {
    /// The directory that the other commands use, with the same `--owner`.
    fn in_use() -> Self {
        let (path, role) = match access::chosen_owner() {
            None => (default_path(), Role::Owner),
            Some(uid) if uid == effective_uid() => (default_path_of(uid), Role::Owner),
            Some(uid) => (default_path_of(uid), Role::Guest(uid)),
        };
        let opened = access::open_domain().and_then(|domain| {
            let count = domain.channels()?.len();
            Ok((domain, count))
        });
        Self { path, role, opened }
    }

    fn shown(&self) -> String {
        units::printable(&self.path.to_string_lossy())
    }

    /// Is it where anybody could have made it first?
    fn is_default_in_tmp(&self) -> bool {
        let uid = access::chosen_owner().unwrap_or_else(effective_uid);
        self.path == Path::new(&format!("/tmp/corewire-{uid}"))
    }
}

fn runtime_directory(place: &Place) -> Finding {
    let check = "runtime directory";
    let shown = place.shown();
    match &place.opened {
        Ok((domain, count)) => {
            let count = units::counted(*count, "channel", "channels");
            let role = if domain.is_guest() { ", as a guest" } else { "" };
            let found = format!("{shown}, {count}{role}");
            usable(check, found, place.is_default_in_tmp())
        }
        Err(failure) => {
            let advice = match access::chosen_owner() {
                None => {
                    "set COREWIRE_RUNTIME_DIR to a directory of this user with mode 0700, the same \
                     one for all processes that are to find each other"
                }
                Some(_) => {
                    "set COREWIRE_RUNTIME_DIR to the owner's directory; the owner lets others in \
                     with an access rule (corewire send --access)"
                }
            };
            Finding::bad(check, format!("{shown}: {}", failure.message), advice)
        }
    }
}

fn usable(check: &'static str, found: String, is_default_in_tmp: bool) -> Finding {
    if !is_default_in_tmp {
        return Finding::good(check, found);
    }
    let advice = "any user can create this directory first, and then channels do not work here: set \
                  XDG_RUNTIME_DIR, or set COREWIRE_RUNTIME_DIR to a directory of this user with \
                  mode 0700";
    Finding::improvable(check, found, advice)
}

/// Files in the runtime directory that corewire did not make; nothing if it cannot be opened.
fn foreign_files(place: &Place) -> Option<Finding> {
    let check = "foreign files";
    place.opened.as_ref().ok()?;
    let directory = RuntimeDirectory::open(&place.path, place.role.clone()).ok()?;
    let files = match directory.foreign_files() {
        Ok(files) => files,
        Err(error) => {
            let advice = "make the runtime directory readable for this user";
            return Some(Finding::improvable(check, error.to_string(), advice));
        }
    };
    if files.is_empty() {
        return Some(Finding::good(check, "none in the runtime directory"));
    }
    let describe = |file: &ForeignFile| {
        let name = units::printable(&file.name);
        match file.kind {
            "regular file" => format!("{name} (a regular file of {})", units::size(file.bytes)),
            kind => format!("{name} (a {kind})"),
        }
    };
    let mut found: Vec<_> = files.iter().take(FILES_SHOWN_MAX).map(describe).collect();
    if let more @ 1.. = files.len() - found.len() {
        found.push(format!("and {} more", units::grouped(more as u64)));
    }
    let found = format!("{} in the runtime directory: {}", files.len(), found.join(", "));
    let blocked =
        files.iter().find_map(|file| Some((units::printable(&file.name), file.blocks()?)));
    let advice = match blocked {
        Some((file, name)) => {
            format!("remove {file}: while it is there, nothing can be named {name}")
        }
        None => "corewire did not make them and does not use them: keep them elsewhere".to_owned(),
    };
    Some(Finding::improvable(check, found, advice))
}

/// Endpoints that could not copy large messages from their peers' memory.
fn refusals(place: &Place) -> Option<Finding> {
    let (domain, _) = place.opened.as_ref().ok()?;
    let endpoints = seen::look(domain).ok()?.endpoints;
    let refused: Vec<String> = endpoints
        .into_iter()
        .filter_map(|view| Some(format!("{}: {}", view.name, view.copy_refusal?)))
        .collect();
    if refused.is_empty() {
        return None;
    }
    let advice = "their messages of more than 128 KiB are copied twice: let the processes share a user \
                  namespace and a PID namespace, and allow process_vm_readv and process_vm_writev";
    Some(Finding::improvable("large messages", refused.join("; "), advice))
}

/// Whether everything works together: a channel within this process.
fn channel(place: &Place) -> Finding {
    let check = "a channel";
    let works = "created, joined, a message sent and received";
    let advice = "channels do not work here until this does";
    match &place.opened {
        Ok((domain, _)) if !domain.is_guest() => match try_channel(domain) {
            Ok(()) => Finding::good(check, works),
            Err(error) => Finding::bad(check, error.to_string(), advice),
        },
        // A guest creates no channels in the owner's directory.
        Ok(_) => match try_channel_elsewhere() {
            Ok(()) => Finding::good(check, format!("{works}, in a separate directory")),
            Err(error) => Finding::bad(check, error.to_string(), advice),
        },
        Err(_) => match try_channel_elsewhere() {
            Ok(()) => Finding::bad(
                check,
                "works in a separate directory, but not in the runtime directory",
                "see the runtime directory above",
            ),
            Err(error) => Finding::bad(
                check,
                format!("does not work in a separate directory, either: {error}"),
                "see the runtime directory above first",
            ),
        },
    }
}

type Tried = Result<(), Box<dyn std::error::Error>>;

fn try_channel_elsewhere() -> Tried {
    let number = corewire_os::random_u128()?;
    let path = std::env::temp_dir().join(format!("corewire-doctor-{number:032x}"));
    let made = DirBuilder::new().mode(0o700).create(&path);
    made.map_err(|error| format!("make {}: {error}", path.display()))?;
    let outcome =
        Domain::open_at(&path).map_err(Into::into).and_then(|domain| try_channel(&domain));
    let _ = std::fs::remove_dir_all(&path);
    outcome
}

fn try_channel(domain: &Domain) -> Tried {
    let name = format!("doctor-{:032x}", corewire_os::random_u128()?);
    let mut sender = domain.sender(&name).create()?;
    let mut receiver = domain.receiver(&name).wait(Wait::Park).join()?;
    // It sleeps, and so learns how it can.
    if receiver.receive_timeout(Duration::from_millis(1))?.is_some() {
        return Err("a message arrived that nobody sent".into());
    }
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
    fn the_default_directory_in_tmp_is_told_from_others() {
        let place = |path: String| Place {
            path: path.into(),
            role: Role::Owner,
            opened: Err(Failure::quiet(1)),
        };
        let uid = effective_uid();
        assert!(place(format!("/tmp/corewire-{uid}")).is_default_in_tmp());
        for other in [format!("/run/user/{uid}/corewire"), "/tmp/corewire".into()] {
            assert!(!place(other).is_default_in_tmp());
        }
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
            usable("runtime directory", "/tmp/corewire-1000".into(), true),
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
