//! Describes the machine that a study runs on.

use std::fs;

use corewire_os::{probe, processor};

use crate::study::counters;
use crate::study::failure::{Doing, Failure};
use crate::study::results::{Cache, Machine};

/// The time, in UTC.
pub(crate) fn now() -> Result<String, Failure> {
    let now = jiff::Timestamp::now().round(jiff::Unit::Second).doing("read the clock")?;
    Ok(now.to_string())
}

/// Describes this machine. `queue_limits` says which limits apply to its message queues.
pub(crate) fn describe(queue_limits: String) -> Result<Machine, Failure> {
    let cpus = processor::allowed().doing("ask for processors")?;
    let first = cpus.first().copied().unwrap_or_default();
    Ok(Machine {
        processor: processor::model_name().unwrap_or_else(|| "not named".to_owned()),
        cores: cpus.len(),
        sockets: sockets(&cpus),
        caches: caches(first),
        memory_bytes: memory_bytes().unwrap_or_default(),
        kernel: format!("Linux {}", probe::kernel_release()),
        hypervisor: hypervisor(),
        counters_absent: counters::why_absent(),
        queue_limits,
    })
}

fn sockets(cpus: &[usize]) -> usize {
    let package = |cpu: &usize| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
        fs::read_to_string(path).ok()
    };
    let mut packages: Vec<String> = cpus.iter().filter_map(package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages.len().max(1)
}

fn caches(cpu: usize) -> Vec<Cache> {
    let caches = processor::caches(cpu).into_iter();
    let shared_by = |list: &str| list.split(',').map(count).sum();
    caches
        .map(|cache| Cache {
            level: cache.level,
            kind: cache.kind.to_lowercase(),
            bytes: cache.bytes,
            shared_by: shared_by(&cache.shared_by),
        })
        .collect()
}

/// Number of processors in a range such as `0-3`.
fn count(range: &str) -> usize {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
        (Ok(first), Ok(last)) if first <= last => last - first + 1,
        _ => 0,
    }
}

fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes << 10)
}

fn hypervisor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let flags = text.lines().find(|line| line.starts_with("flags"))?;
    flags.split_whitespace().any(|flag| flag == "hypervisor").then(|| {
        let named = ["/sys/hypervisor/type", "/sys/class/dmi/id/sys_vendor"].into_iter();
        let mut named = named.filter_map(|path| fs::read_to_string(path).ok());
        named.next().map_or_else(|| "a virtual machine".to_owned(), |name| name.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_of_a_list_are_counted() {
        assert_eq!([count("0-3"), count("8"), count(""), count("3-1")], [4, 1, 0, 0]);
    }
}
