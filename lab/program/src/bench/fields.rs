//! The keys of `--json`: what `--help` lists, and what a run must have.

use corewire_harness::report::Report;

use corewire_harness::failure::Failure;

/// A key, and what it is. Capitals stand for what differs, such as `types_WAY_TYPE_ns`. `+` at its end: there are such keys
/// with `_min` and `_max`, too. `?`: not every run has it.
type Field = (&'static str, &'static str);
/// The keys of a benchmark.
pub(super) type Fields = &'static [&'static [Field]];

/// The keys of every benchmark.
const ALL: &[Field] = &[
    ("line_ns", "a bare cache line, one way; null with one core"),
    ("distance", "one core, two cores, or changed"),
];

/// Those of benchmarks with processes of their own.
const CREW: &[Field] = &[
    ("cores", "processors that the processes may use"),
    ("processes", "how many there are"),
    ("oversubscribed", "whether they are more than the processors"),
];

const ONE_CORE: &[Field] = &[
    ("one_core_rounds?", "rounds between two hyperthreads of one core"),
    ("one_core_ratio?", "the median ratio of those; null without"),
];

pub(super) const LATENCY: Fields = &[
    &[
        ("bytes", "of a message"),
        ("rounds", "of the baseline and the measurement in turn"),
        ("raw_line_one_way_ns", "a bare cache line, one way"),
        ("one_way_ns_p50", "a message, one way"),
        ("one_way_ns_p99", "the same, one in a hundred"),
        ("ratio+", "the p50 to the bare line of the same round"),
    ],
    ONE_CORE,
    CREW,
];

pub(super) const ZIMP: Fields = &[
    &[
        ("bytes", "of a message"),
        ("rounds", "of both in turn"),
        ("zimp_one_way_ns_p50", "ZIMP as published, one way"),
        ("one_way_ns_p50", "a channel, one way"),
        ("ratio+", "ZIMP to the channel of the same round"),
        ("model_ratio?", "the same on the model of a machine; up to 48 bytes"),
    ],
    CREW,
];

pub(super) const STREAM: Fields = &[
    &[
        ("bytes", "of a message"),
        ("receivers", "how many"),
        ("slots", "of the ring"),
        ("copy", "whether messages are copied in"),
        ("rounds", "of the baseline and the measurement in turn"),
        ("messages_per_s", "of the channel"),
        ("baseline_messages_per_s", "of the bare loop"),
        ("gb_per_s", "of the channel, in 10^9 bytes"),
        ("baseline_gb_per_s", "of the bare loop"),
        ("baseline_buffers?", "of the best bare loop; for messages that fit no slot"),
        ("baseline_gb_per_s_by_buffers?", "an object: of each number of buffers"),
        ("ratio+", "to the bare loop of the same round"),
    ],
    ONE_CORE,
    CREW,
];

pub(super) const ENDPOINT: Fields = &[
    &[
        ("bytes", "of a message one way"),
        ("rounds", "of the baseline and the measurement in turn"),
        ("raw_line_one_way_ns", "a bare cache line, one way"),
        ("one_way_ns_p50", "a matched message, one way"),
        ("one_way_ns_p99", "the same, one in a hundred"),
        ("ratio+", "the p50 to the bare line of the same round"),
        ("empty_poll_ns_1_peer", "a look that finds nothing, with one peer"),
        ("empty_poll_ns_64_peers", "with 64 idle peers"),
        ("empty_poll_ratio", "of these two"),
        ("same_core_seqpacket_ns", "a round trip on one core, by a SEQPACKET socket"),
        ("same_core_ns", "by endpoints"),
        ("same_core_ratio+", "to the socket of the same round"),
        ("hot_ns_p50?", "from a peer that talks; this and the next seven not with --quick"),
        ("hot_ns_p99?", "the same, one in a hundred"),
        ("silent_ns_p50?", "from one of 63 peers that were silent for a second"),
        ("silent_ns_p99?", "the same, one in a hundred"),
        ("silent_messages?", "how many these are"),
        ("silent_ratio_p99?", "of the two p99"),
        ("announced_ns_p50?", "from one of 96 peers, which announces it"),
        ("announced_ns_p99?", "the same, one in a hundred"),
        ("bare_pair_messages_per_s", "back to back, a bare ring of 256 slots"),
        ("stream_messages_per_s", "back to back, endpoints"),
        ("stream_ratio+", "of these two in the same round"),
        ("many_senders", "processes that send to one receiver"),
        ("many_messages_per_s", "of all of them"),
        ("many_slowest_to_mean", "messages of the slowest of them to the mean"),
        ("many_processor_ns_per_message", "processor time of a message"),
        ("one_processor_ns_per_message", "the same with one sender on the receiver's core"),
        ("many_processor_ratio", "of these two"),
    ],
    CREW,
];

pub(super) const CIRCUIT: Fields = &[&[
    ("rounds", "of all ways in turn"),
    ("placement", "where client, monitors and service of calls and stream are"),
    ("direct_BYTES_ns", "a call of 8, 96 and 1000 bytes by a ring"),
    ("direct_waiting_8_ns", "the same of 8 bytes, where both wait adaptively"),
    ("monitors_COUNT_BYTES_ns", "by a circuit through 1, 2 and 3 monitors"),
    ("monitors_COUNT_BYTES_ratio+", "to the ring of the same round"),
    ("direct_messages_per_s", "32 bytes one way by a ring"),
    ("monitor_messages_per_s", "through one monitor"),
    ("stream_ratio+", "of these two in the same round"),
    ("placement_of_CIRCUITS", "where the parties of these are"),
    ("random_COUNT_of_CIRCUITS_ns", "a call by one of 1,000 and of 100,000 circuits"),
    ("random_COUNT_of_CIRCUITS_ratio+", "to the ring of the same round"),
    ("circuits", "how many are opened"),
    ("setup_s", "in which time"),
    ("teardown_s", "and closed"),
    ("monitor_NUMBER_bytes_each", "memory of a circuit at each monitor"),
    ("monitor_NUMBER_after_ratio", "memory after all were closed to that before"),
    ("monitor_NUMBER_given_back_percent", "of the memory of circuits"),
    ("idle_percent", "processor time of both monitors, with idle circuits"),
    ("bind_us", "binding while nothing else happens"),
    ("bind_p99_us", "one in a hundred"),
    ("bind_flooded_us", "binding while links are flooded"),
    ("bind_flooded_p99_us", "one in a hundred"),
    ("bind_flooded_p99_ratio", "flooded to idle"),
    ("flood_messages_per_s", "of the flood, 32 bytes each"),
]];

pub(super) const COLLECTIVE: Fields = &[
    &[
        ("members", "how many"),
        ("rounds", "of the line and all calls in turn"),
        ("line_one_way_ns?", "a bare cache line, if each member has a processor"),
        (
            "CALL_ns",
            "barrier, allreduce_8, broadcast_8, all_to_all_8 and both first for 65536 bytes",
        ),
        ("CALL_ratio+?", "to the line, up to 8 bytes and if each member has a processor"),
    ],
    CREW,
];

pub(super) const INTERFACE: Fields = &[
    &[
        ("rounds", "of all in turn"),
        ("by_hand_BYTES_ns", "a round trip of 8 and 48 bytes by hand"),
        ("call_BYTES_ns", "a generated call"),
        ("call_BYTES_ratio+", "of these two in the same round"),
        ("by_hand_messages_per_s", "8 bytes one way by hand"),
        ("one_way_messages_per_s", "generated"),
        ("stream_ratio+", "of these two in the same round"),
        ("call_SIDE_allocations", "of a call, at client and service"),
        ("one_way_SIDE_allocations", "of a message"),
        ("same_core_seqpacket_ns", "a round trip on one core by a SEQPACKET socket"),
        ("same_core_call_ns", "a call by lmp"),
        ("same_core_ratio+", "to the socket of the same round"),
        ("types_WAY_TYPE_ns", "a call with each type of papers/003, by each driver"),
        ("types_WAY_dynamic_BYTES_ratio+", "an array of changing length to one of fixed length"),
    ],
    CREW,
];

pub(super) const LARGE: Fields = &[
    &[
        ("rounds", "of all ways in turn"),
        (
            "both_sides_ratio+",
            "1 MiB that is in no cache: pulled by the receiver alone to both sides",
        ),
        ("pipe_ratio+", "through cells to both sides"),
        ("by_size", "an array: bytes, and for each state of the memory the times and ratios"),
        ("bare_pull_us", "1 MiB, a bare copy by the kernel"),
        ("absent_us", "1 MiB, while its sender computes for 1 ms"),
        ("absent_ratio+", "to the bare copy"),
        ("sender_pays_us", "what that costs the sender"),
        ("computing_receiver_us", "1 MiB, the wait of a receiver that has computed for 1 ms"),
        ("progress_thread_us", "with a progress thread"),
        ("progress_thread_ratio+", "of these two"),
    ],
    CREW,
];

pub(super) const POLICY: Fields = &[
    &[
        ("bytes", "of a message"),
        ("slots", "of the rings"),
        ("rounds", "of all policies in turn"),
        ("block_messages_per_s", "delivered under block"),
        ("overwrite_messages_per_s", "under overwrite"),
        ("evict_messages_per_s", "under evict"),
        ("overwrite_missed", "messages that were overwritten, in all"),
        ("overwrite_delivered_ratio", "delivered under overwrite, to block"),
        ("evict_ratio", "delivered under evict, to block"),
        ("ratio+", "sent under overwrite and accounted for, to block"),
    ],
    CREW,
];

pub(super) const SHARED: Fields = &[
    &[
        ("bytes", "of a message"),
        ("slots", "of the rings"),
        ("rounds", "of all in turn"),
        ("bare_claims_messages_per_s", "a bare loop of compare-and-swaps"),
        ("shared_messages_per_s", "a shared channel, each message by itself"),
        ("ratio+", "of these two in the same round"),
        ("one_sender_messages_per_s", "a channel of one sender"),
        ("shared_batches_messages_per_s", "a shared channel, in batches of 16"),
        ("batch_ratio+", "of these two in the same round"),
    ],
    CREW,
];

pub(super) const WAKE: Fields = &[
    &[
        ("after_IDLE_us_bare_futex_ns_p50", "a bare futex after 60 and 1000 us of sleep"),
        ("after_IDLE_us_wake_ns_p50", "a message"),
        ("after_IDLE_us_wake_ns_p99", "the same, one in a hundred"),
        ("after_IDLE_us_ratio", "of the two p50"),
    ],
    CREW,
];

pub(super) const DEATH: Fields = &[&[
    ("deaths", "of each kind and load"),
    (
        "LOAD_bare_ms_p50",
        "a bare process descriptor; idle, and loaded with two spinning processes a processor",
    ),
    ("LOAD_bare_ms_p99", "one in a hundred"),
    ("LOAD_ms_p50", "a receiver of a channel"),
    ("LOAD_ms_p99", "one in a hundred"),
    ("LOAD_ratio_p99", "of the p99 to the bare one"),
    ("LOAD_call_ms_p50", "a call by a ring"),
    ("LOAD_call_ms_p99", "one in a hundred"),
    ("LOAD_call_ratio_p99", "of the p99 to the bare one"),
    ("LOAD_call_sock_ms_p50", "a call by a socket"),
    ("LOAD_call_sock_ms_p99", "one in a hundred"),
    ("LOAD_call_sock_ratio_p99", "of the p99 to the bare one"),
]];

pub(super) const IDLE: Fields =
    &[&[("receivers", "how many"), ("cpu_percent", "of a processor, all together")]];

pub(super) const TOP: Fields = &[
    &[
        ("channels", "how many are busy"),
        ("rounds", "of a second with top and one without"),
        ("m_per_s", "millions of messages on all channels, without top"),
        ("ratio+", "with top to without"),
        ("cpu_percent", "of a processor, by top"),
    ],
    CREW,
];

/// What `--help` says behind the options.
pub(super) fn help(example: &str, fields: Fields) -> String {
    let mut text = format!("Example:\n  corewire bench {example}\n\n--json prints one object:\n");
    for (key, words) in [fields, &[ALL]].concat().into_iter().flatten() {
        let has_spread = key.contains('+');
        let key = key.trim_end_matches(['+', '?']);
        let more = if has_spread { "; also _min, _max" } else { "" };
        text.push_str(&format!("  {key:<34} {words}{more}\n"));
    }
    text
}

/// Compares the keys of a run with these.
///
/// # Errors
/// A key is in one of both only.
pub(super) fn check(report: &Report, fields: &[&'static [Field]]) -> Result<(), Failure> {
    let fields = || [fields, &[ALL]].concat().into_iter().flatten();
    let has = |pattern: &str| report.keys().any(|key| is_like(pattern, key));
    for (field, _) in fields() {
        let pattern = field.trim_end_matches(['+', '?']);
        if !field.ends_with('?') && !has(pattern) {
            return Err(Failure::other(format!("the benchmark has measured no {pattern}")));
        }
    }
    let is_listed = |key: &str| {
        fields().any(|(field, _)| {
            let pattern = field.trim_end_matches(['+', '?']);
            let ends = if field.contains('+') { &["", "_min", "_max"][..] } else { &[""] };
            ends.iter().any(|end| key.strip_suffix(end).is_some_and(|key| is_like(pattern, key)))
        })
    };
    match report.keys().find(|key| !is_listed(key)) {
        Some(key) => Err(Failure::other(format!("{key} is not among the keys of the benchmark"))),
        None => Ok(()),
    }
}

/// Whether a key is one of a pattern, in which capitals stand for letters, digits and `_`.
fn is_like(pattern: &str, key: &str) -> bool {
    let at = pattern.find(|letter: char| letter.is_ascii_uppercase());
    let Some(at) = at else { return pattern == key };
    let (begin, rest) = pattern.split_at(at);
    let Some(key) = key.strip_prefix(begin) else { return false };
    let rest = rest.trim_start_matches(|letter: char| letter.is_ascii_uppercase());
    (1..=key.len()).any(|length| is_like(rest, &key[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capitals_stand_for_what_differs() {
        assert!(is_like("types_WAY_TYPE_ns", "types_ump_same_core_payload32_1_ns"));
        assert!(!is_like("types_WAY_TYPE_ns", "types_ump_ns"));
        assert!(is_like("ratio", "ratio") && !is_like("ratio", "ratio_min"));
        assert!(is_like("CALL_ns", "barrier_ns") && !is_like("CALL_ns", "_ns"));
    }

    #[test]
    fn a_key_too_many_and_one_that_is_missing_are_named() {
        let mut report = Report::default();
        for key in ["line_ns", "distance", "ratio", "ratio_min", "ratio_max"] {
            report.value(key, 1);
        }
        const FEW: &[Field] = &[("ratio+", "of something"), ("more?", "sometimes")];
        check(&report, &[FEW]).unwrap();
        let missing = check(&report, &[FEW, IDLE[0]]).unwrap_err();
        assert!(missing.message.contains("measured no receivers"), "{missing:?}");
        report.value("other", 1);
        let other = check(&report, &[FEW]).unwrap_err();
        assert!(other.message.starts_with("other is not among"), "{other:?}");
    }
}
