//! Plausible results of a study, to test the page with.

use crate::study::results::{
    Cache, Count, FORMAT, Kind, Latency, Machine, Mechanism, Model, Point, Results, Run, SystemCall,
};

/// For each mechanism: id, name, kind, and the costs of a message and of a byte in nanoseconds.
const MECHANISMS: [(&str, &str, Kind, f64, f64); 14] = [
    ("unix_datagram", "Unix datagram sockets", Kind::Kernel, 900.0, 0.25),
    ("tcp", "TCP sockets", Kind::Kernel, 1500.0, 0.3),
    ("udp", "UDP sockets", Kind::Kernel, 1400.0, 0.35),
    ("pipe", "Pipes", Kind::Kernel, 600.0, 0.28),
    ("named_pipe", "Named pipes", Kind::Kernel, 610.0, 0.28),
    ("shared_memory_semaphores", "Shared memory with semaphores", Kind::Kernel, 450.0, 0.12),
    ("system_v_queue", "System V message queues", Kind::Kernel, 520.0, 0.3),
    ("posix_queue", "POSIX message queues", Kind::Kernel, 560.0, 0.3),
    ("barrelfish_mp", "Barrelfish MP", Kind::Copying, 24.0, 0.14),
    ("barrelfish_ump", "Barrelfish UMP", Kind::Copying, 30.0, 0.6),
    ("zimp", "ZIMP", Kind::Copying, 38.0, 0.1),
    ("corewire_copy", "corewire, copying out", Kind::Copying, 9.0, 0.08),
    ("corewire_in_place", "corewire, in place", Kind::InPlace, 6.0, 0.04),
    ("iceoryx2", "iceoryx2", Kind::InPlace, 160.0, 0.04),
];

/// The sizes of a default study.
pub(crate) const SIZES: [u64; 10] = [1, 48, 64, 128, 512, 1024, 4096, 10_240, 102_400, 1_048_576];

/// Results of a machine with 4 cores.
pub(crate) fn results() -> Results {
    let mut results = Results { points: points(), ..empty() };
    results.mechanisms = mechanisms();
    results.latencies = latencies();
    results.counts = [1, 3].into_iter().flat_map(counts).collect();
    results.system_call = Some(SystemCall { function_ns: 1.3, system_call_ns: 92.4 });
    results.model = model();
    results
}

/// Results of a machine with 32 cores: all sizes, and all numbers of receivers of the paper.
pub(crate) fn full() -> Results {
    let cases = SIZES.into_iter().flat_map(|size| (1..=23).map(move |count| (size, count, 1)));
    let cases: Vec<(u64, u32, u32)> = cases.collect();
    let points = MECHANISMS.iter().flat_map(|m| cases.iter().map(|case| point(m, *case)));
    Results { points: points.collect(), ..results() }
}

/// Results of a study without measurements.
pub(crate) fn empty() -> Results {
    Results {
        format: FORMAT,
        study: "zimp".to_owned(),
        version: "0.1.0".to_owned(),
        began: "2026-11-22T01:02:03Z".to_owned(),
        effort: "default".to_owned(),
        run_s: 1.0,
        runs: 3,
        machine: machine(),
        mechanisms: Vec::new(),
        points: Vec::new(),
        latencies: Vec::new(),
        counts: Vec::new(),
        system_call: None,
        model: Vec::new(),
    }
}

pub(crate) fn machine() -> Machine {
    let cache = |level, kind: &str, bytes, shared_by| Cache {
        level,
        kind: kind.to_owned(),
        bytes,
        shared_by,
    };
    Machine {
        processor: "Intel(R) Xeon(R) Processor @ 2.90GHz <test>".to_owned(),
        cores: 4,
        sockets: 1,
        caches: vec![
            cache(1, "data", 32 << 10, 2),
            cache(1, "instruction", 32 << 10, 2),
            cache(2, "unified", 1 << 20, 2),
            cache(3, "unified", 33 << 20, 4),
        ],
        memory_bytes: 16 << 30,
        kernel: "Linux 6.1.0-42-cloud-amd64".to_owned(),
        hypervisor: Some("KVM".to_owned()),
        counters_absent: Some("the kernel has no hardware counters here (ENOENT)".to_owned()),
        queue_limits: "a namespace of its own, raised to 16 MiB".to_owned(),
    }
}

fn mechanisms() -> Vec<Mechanism> {
    let mechanism = |(id, name, kind, ..): &(&str, &str, Kind, f64, f64)| Mechanism {
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        kind: *kind,
        has_many_senders: !matches!(*id, "barrelfish_mp" | "barrelfish_ump" | "pipe"),
        settings: "One descriptor for each receiver, buffers as large as the system lets them be."
            .to_owned(),
    };
    MECHANISMS.iter().map(mechanism).collect()
}

fn points() -> Vec<Point> {
    let alone = SIZES.into_iter().map(|size| (size, 1, 1));
    let crowd = [64, 4096].into_iter().flat_map(|size| [2, 3, 8].map(|count| (size, count, 1)));
    let senders = [2, 4].map(|senders| (64, 1, senders));
    let cases: Vec<(u64, u32, u32)> = alone.chain(crowd).chain(senders).collect();
    MECHANISMS.iter().flat_map(|m| cases.iter().map(|case| point(m, *case))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "small figures")]
fn point(
    (id, _, _, base, byte): &(&str, &str, Kind, f64, f64),
    (bytes, receivers, senders): (u64, u32, u32),
) -> Point {
    let lonely = matches!(*id, "barrelfish_mp" | "barrelfish_ump" | "pipe") && senders > 1;
    let impossible = match *id {
        _ if lonely => Some("it has one sender".to_owned()),
        "system_v_queue" if bytes > 8192 => Some("a message is at most 8192 bytes".to_owned()),
        "posix_queue" if bytes > 65_536 => Some("mq_open: EMFILE".to_owned()),
        _ => None,
    };
    let share = if matches!(*id, "zimp" | "corewire_copy" | "corewire_in_place" | "iceoryx2") {
        1.0 + 0.1 * f64::from(receivers - 1)
    } else {
        f64::from(receivers)
    };
    let crowd = if receivers + senders > 4 { 3.0 } else { 1.0 };
    let rate =
        1e9 / ((base + byte * bytes as f64) * share * crowd * (1.0 + 0.2 * f64::from(senders - 1)));
    let run = |wobble: f64| Run {
        messages_per_s: rate * wobble,
        sent: 1_000_000,
        lost: if *id == "udp" && bytes >= 4096 { bytes * u64::from(receivers) / 20 } else { 0 },
        sender_cpu_ns: 1.1e9 / rate * wobble,
        receiver_cpu_ns: 0.8e9 / rate / wobble,
        instructions_per_byte: None,
        cache_misses_per_byte: None,
    };
    let runs = if impossible.is_some() { Vec::new() } else { [0.93, 1.0, 1.08].map(run).into() };
    let failed = *id == "iceoryx2" && receivers == 8;
    let failures = if failed { vec!["a receiver did not come".to_owned()] } else { Vec::new() };
    let oversubscribed = receivers + senders > 4;
    let mechanism = (*id).to_owned();
    Point { mechanism, bytes, receivers, senders, oversubscribed, impossible, failures, runs }
}

#[expect(clippy::cast_precision_loss, reason = "small figures")]
fn latencies() -> Vec<Latency> {
    let sizes = [1, 64, 1024, 4096, 102_400, 1_048_576_u64];
    let latency = |(id, _, _, base, byte): &(&str, &str, Kind, f64, f64), bytes: u64| {
        let impossible = (*id == "system_v_queue" && bytes > 8192)
            .then(|| "a message is at most 8192 bytes".to_owned());
        let middle = base * 2.0 + 60.0 + byte * bytes as f64;
        let of = |factor: f64| {
            let runs = [0.97, 1.0, 1.1].map(|wobble| middle * factor * wobble);
            if impossible.is_some() { Vec::new() } else { runs.to_vec() }
        };
        let (p50_ns, p99_ns) = (of(1.0), of(2.5));
        Latency {
            mechanism: (*id).to_owned(),
            bytes,
            oversubscribed: false,
            impossible,
            p50_ns,
            p99_ns,
        }
    };
    MECHANISMS.iter().flat_map(|m| sizes.iter().map(move |size| latency(m, *size))).collect()
}

fn counts(receivers: u32) -> Vec<Count> {
    let n = f64::from(receivers);
    let count = |(id, _, kind, ..): &(&str, &str, Kind, f64, f64)| {
        let is_kernel = *kind == Kind::Kernel;
        let is_direct = matches!(*id, "zimp" | "corewire_copy" | "corewire_in_place" | "iceoryx2");
        Count {
            mechanism: (*id).to_owned(),
            bytes: 64,
            receivers,
            impossible: (*id == "posix_queue").then(|| "the limit was reached".to_owned()),
            send_copies: if is_direct { 0.0 } else { n },
            receive_copies: if *kind == Kind::InPlace { 0.0 } else { n },
            send_calls: if is_kernel { n } else { 0.0 },
            receive_calls: if is_kernel { n * 1.014 } else { 0.0 },
            yields: if receivers > 1 && !is_kernel { 0.5 } else { 0.0 },
        }
    };
    MECHANISMS.iter().map(count).collect()
}

fn model() -> Vec<Model> {
    let counts = [1, 2, 4, 8, 16, 32, 64, 128, 255_u32];
    let row = |ring: &str, receivers: u32| {
        let n = f64::from(receivers);
        let (transfers, serialised, time) = match ring {
            "barrelfish_mp" => (n, 0.0, 45.0 * n),
            "zimp" => (2.0, n + 1.0, 60.0 + 50.0 * n),
            _ => (0.02 * n, 0.0, 40.0 + 0.3 * n),
        };
        Model {
            ring: ring.to_owned(),
            receivers,
            sender_transfers: transfers,
            receiver_transfers: 1.5,
            invalidations: n,
            read_modify_writes: serialised,
            stream_ns: time,
        }
    };
    let rings = ["barrelfish_mp", "zimp", "corewire"];
    rings.into_iter().flat_map(|ring| counts.map(|count| row(ring, count))).collect()
}
