//! Cores, caches, pinning, clocks, the cost of a pause.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use corewire_ring::sync::{AtomicU64, Ordering::Relaxed, pause};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::fork::PerProcess;
use crate::{Doing, OsError};

/// The processors that this thread may run on, in order.
///
/// # Errors
/// [`OsError`] if the kernel refuses.
pub fn allowed() -> Result<Vec<usize>, OsError> {
    let set = sched_getaffinity(None).doing("ask for the allowed processors")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Pins this thread to processor `cpu`.
///
/// # Errors
/// [`OsError`] if there is no such processor, or this process may not use it.
pub fn pin_to(cpu: usize) -> Result<(), OsError> {
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(OsError::new(format!("pin to processor {cpu}"), rustix::io::Errno::INVAL));
    }
    set.set(cpu);
    sched_setaffinity(None, &set).doing(format!("pin to processor {cpu}"))
}

/// Restricts this thread to these processors.
///
/// # Errors
/// [`OsError`] if this process may use none of them.
pub fn keep_to(cpus: &[usize]) -> Result<(), OsError> {
    let mut set = CpuSet::new();
    cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU).for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set).doing("choose processors")
}

/// Restricts this thread to the processors that share the last-level cache of `cpu`, as far as this process
/// may use them. A restriction that this thread inherited is replaced.
///
/// # Errors
/// [`OsError`] if this process may use none of them, or the kernel does not report them.
pub fn keep_at_cache_of(cpu: usize) -> Result<(), OsError> {
    let what = format!("keep to the processors at the cache of processor {cpu}");
    let of = last_level(cpu).ok_or(OsError::new(what.clone(), rustix::io::Errno::NOENT))?;
    let mut set = CpuSet::new();
    numbers_of(&of).filter(|&other| other < CpuSet::MAX_CPU).for_each(|other| set.set(other));
    sched_setaffinity(None, &set).doing(what)
}

/// The numbers of a list in the kernel's notation: `0-3,8`.
fn numbers_of(list: &str) -> impl Iterator<Item = usize> {
    list.split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.parse().ok().zip(last.parse().ok());
        range.into_iter().flat_map(|(first, last): (usize, usize)| first..=last)
    })
}

/// Cost of one spin-loop hint on this machine, in nanoseconds. Measured once for each process, in about
/// 20 us.
#[must_use]
pub fn pause_ns() -> f64 {
    static COST: PerProcess<OnceLock<f64>> = PerProcess::new();
    *COST.get().get_or_init(|| {
        let round = || {
            let start = Instant::now();
            for _ in 0..200 {
                pause();
            }
            start.elapsed().as_secs_f64() * 1e9 / 200.0
        };
        // The minimum of several rounds, because an interruption only adds time.
        (0..5).map(|_| round()).fold(f64::MAX, f64::min).max(0.3)
    })
}

/// Makes as many spin-loop hints as take about `time_ns` nanoseconds.
pub fn pause_for(time_ns: u64) {
    #[expect(clippy::cast_precision_loss, reason = "a short time")]
    let time_ns = time_ns as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a short time")]
    let pauses = (time_ns / pause_ns()) as u32;
    (0..pauses).for_each(|_| pause());
}

/// A counter that runs at a constant rate on all cores and is cheap to read (x86: the time-stamp counter).
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has this instruction.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let count: u64;
        // SAFETY: every program can read the virtual counter.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack)) };
        count
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        static START: PerProcess<OnceLock<Instant>> = PerProcess::new();
        u64::try_from(START.get().get_or_init(Instant::now).elapsed().as_nanos())
            .unwrap_or(u64::MAX)
    }
}

/// Length of one of the [`ticks`], in nanoseconds. The first call of a process measures it, in 20 ms. Later calls cost
/// one load, so they may stand between two readings of the clock.
#[inline]
#[must_use]
pub fn tick_ns() -> f64 {
    /// The bits of the length; 0 before it has been measured. Processes have the same clock, so that a forked child
    /// may keep it, and threads that measure it at the same time find the same.
    static TICK: AtomicU64 = AtomicU64::new(0);
    match TICK.load(Relaxed) {
        0 => {
            let length_ns = measure_tick_ns();
            TICK.store(length_ns.to_bits(), Relaxed);
            length_ns
        }
        bits => f64::from_bits(bits),
    }
}

#[cold]
fn measure_tick_ns() -> f64 {
    // Each end is the closest of many pairs, because a thread may lose its core between the two reads.
    let pair = || {
        let pairs = (0..50).map(|_| {
            let before = ticks();
            let now = Instant::now();
            (ticks() - before, before, now)
        });
        pairs.min_by_key(|&(apart, ..)| apart).unwrap_or((0, ticks(), Instant::now()))
    };
    let (_, first, start) = pair();
    while start.elapsed().as_millis() < 20 {
        pause();
    }
    let (_, last, end) = pair();
    #[expect(clippy::cast_precision_loss, reason = "20 ms of ticks")]
    let ticks = (last - first).max(1) as f64;
    (end - start).as_secs_f64() * 1e9 / ticks
}

/// One cache of one processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// 1, 2 or 3.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Length of a line in bytes.
    pub line_bytes: u64,
    /// The processors that share it, in the kernel's notation (`0-3,8`).
    pub shared_by: String,
}

/// The caches of `cpu`, as the kernel describes them; empty where it describes none.
#[must_use]
pub fn caches(cpu: usize) -> Vec<Cache> {
    let base = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
    let read = |index: usize, file: &str| {
        let path = Path::new(&base).join(format!("index{index}")).join(file);
        crate::read_text(path).ok().map(|text| text.trim().to_owned())
    };
    (0..8)
        .map_while(|index| {
            Some(Cache {
                level: read(index, "level")?.parse().ok()?,
                kind: read(index, "type")?,
                bytes: parse_size(&read(index, "size")?)?,
                line_bytes: read(index, "coherency_line_size")?.parse().ok()?,
                shared_by: read(index, "shared_cpu_list")?,
            })
        })
        .collect()
}

/// The processors that share the last-level cache of `cpu`, in the kernel's notation; `None` where the kernel
/// does not describe caches.
#[must_use]
pub fn last_level(cpu: usize) -> Option<String> {
    let last = caches(cpu).into_iter().max_by_key(|cache| cache.level);
    last.map(|cache| cache.shared_by)
}

/// Parses a size such as `48K` into bytes.
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// The name of the processor model; `None` where the kernel does not report it.
#[must_use]
pub fn model_name() -> Option<String> {
    let text = crate::read_text("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(numbers_of("0-3,8").collect::<Vec<_>>(), [0, 1, 2, 3, 8]);
        assert_eq!(numbers_of("5").collect::<Vec<_>>(), [5]);
        assert_eq!(numbers_of("").count() + numbers_of("odd").count(), 0);
    }
}
