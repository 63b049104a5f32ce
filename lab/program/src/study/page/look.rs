//! The look of each line. Lines differ in colour, dash and marker; any two of these suffice to tell
//! them apart.
//!
//! corewire's lines are bold, those of the papers' rings are thinner, those of the kernel are thin and
//! greyish. The strong colours are those of Okabe and Ito, dark enough for text.

/// The look of one line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Look {
    /// The colour of the line, its markers and its label.
    pub(crate) colour: &'static str,
    /// The width, in units of the plot.
    pub(crate) width: f64,
    /// SVG's `stroke-dasharray`; empty for a solid line.
    pub(crate) dash: &'static str,
    /// The shape of its points.
    pub(crate) marker: Marker,
}

/// The shape of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    Circle,
    Square,
    Diamond,
    Up,
    Down,
}

const fn look(colour: &'static str, width: f64, dash: &'static str, marker: Marker) -> Look {
    Look { colour, width, dash, marker }
}

/// The look of a mechanism, and its name in narrow plots.
const MECHANISMS: [(&str, &str, Look); 50] = [
    ("unix_datagram", "Unix", look("#6e6e6e", 1.3, "", Marker::Square)),
    ("tcp", "TCP", look("#7a6440", 1.3, "6 3", Marker::Up)),
    ("udp", "UDP", look("#8a5a78", 1.3, "2 2", Marker::Down)),
    ("pipe", "pipe", look("#47697a", 1.3, "", Marker::Diamond)),
    ("named_pipe", "FIFO", look("#4b7a72", 1.3, "6 3", Marker::Circle)),
    ("shared_memory_semaphores", "shm+sem", look("#647038", 1.3, "8 2 2 2", Marker::Square)),
    ("system_v_queue", "System V", look("#8a5b48", 1.3, "2 2", Marker::Up)),
    ("posix_queue", "POSIX", look("#5f5f8a", 1.3, "8 2 2 2", Marker::Down)),
    ("barrelfish_mp", "Barrelf. MP", look("#a8467f", 2.0, "", Marker::Diamond)),
    ("barrelfish_ump", "Barrelf. UMP", look("#00785a", 2.0, "6 3", Marker::Up)),
    ("zimp", "ZIMP", look("#c25400", 2.2, "", Marker::Square)),
    ("corewire_copy", "cw copying", look("#0072b2", 3.4, "", Marker::Circle)),
    ("corewire_in_place", "cw in place", look("#111111", 3.4, "", Marker::Circle)),
    ("library", "library", look("#5b3fa0", 2.6, "8 2 2 2", Marker::Down)),
    ("iceoryx2", "iceoryx2", look("#8f6200", 2.0, "6 3", Marker::Down)),
    ("corewire", "corewire", look("#111111", 3.4, "", Marker::Circle)),
    ("nemesis", "Nemesis", look("#c25400", 2.2, "", Marker::Square)),
    ("nemesis_queues", "N. queues", look("#a8467f", 2.0, "", Marker::Diamond)),
    ("nemesis_plain", "N. plain", look("#00785a", 2.0, "6 3", Marker::Up)),
    ("nemesis_receiver", "N. receiver's", look("#647038", 1.6, "2 2", Marker::Down)),
    ("nemesis_global", "N. global", look("#7a6440", 1.6, "8 2 2 2", Marker::Square)),
    ("libfabric_shm", "libfabric", look("#0072b2", 2.2, "6 3", Marker::Up)),
    ("open_mpi", "Open MPI", look("#8f6200", 2.2, "", Marker::Down)),
    ("active", "active", look("#111111", 3.4, "", Marker::Circle)),
    ("active_loan", "loan", look("#0072b2", 3.4, "", Marker::Diamond)),
    ("passive", "passive", look("#c25400", 2.2, "", Marker::Square)),
    ("pre_posted", "pre-posted", look("#00785a", 2.2, "6 3", Marker::Up)),
    ("pooled", "pooled", look("#c25400", 2.2, "", Marker::Square)),
    ("allocated", "allocated", look("#a8467f", 2.2, "6 3", Marker::Down)),
    ("dbus", "D-Bus", look("#c25400", 2.2, "", Marker::Square)),
    ("grpc", "gRPC", look("#00785a", 2.2, "6 3", Marker::Up)),
    ("floor", "floor", look("#6e6e6e", 1.6, "2 2", Marker::Diamond)),
    ("own", "own", look("#c25400", 2.2, "", Marker::Square)),
    ("own_messages", "own, messages", look("#a8467f", 2.2, "2 2", Marker::Square)),
    ("ucx", "UCX", look("#00785a", 2.2, "6 3", Marker::Up)),
    ("shm", "ofi shm", look("#0072b2", 2.2, "8 2 2 2", Marker::Down)),
    ("scatter", "pages", look("#00785a", 2.2, "2 2", Marker::Up)),
    ("printed_buffer", "buffer, printed", look("#c25400", 2.0, "6 3", Marker::Square)),
    ("printed_streaming", "streaming", look("#8f6200", 1.8, "2 2", Marker::Square)),
    ("shared_buffer", "buffer", look("#c25400", 2.6, "", Marker::Square)),
    ("printed_queue", "queue, printed", look("#a8467f", 2.0, "6 3", Marker::Diamond)),
    ("message_queue", "queue", look("#a8467f", 2.6, "", Marker::Diamond)),
    ("ptrace", "ptrace", look("#6e6e6e", 1.6, "", Marker::Down)),
    ("kernel_put", "put", look("#0072b2", 2.0, "6 3", Marker::Up)),
    ("kernel_get", "get", look("#0072b2", 2.6, "", Marker::Up)),
    ("both_sides", "both sides", look("#111111", 3.2, "", Marker::Circle)),
    ("window", "window", look("#00785a", 2.6, "", Marker::Circle)),
    ("mapped", "mapped", look("#00785a", 2.0, "6 3", Marker::Circle)),
    ("network_put", "net put", look("#7a6440", 1.6, "6 3", Marker::Down)),
    ("network_get", "net get", look("#7a6440", 1.6, "2 2", Marker::Down)),
];

/// The looks of lines for machines or sizes instead of mechanisms.
const OTHERS: [Look; 10] = [
    look("#0072b2", 2.4, "", Marker::Circle),
    look("#c25400", 2.0, "6 3", Marker::Square),
    look("#00785a", 2.0, "", Marker::Up),
    look("#a8467f", 2.0, "2 2", Marker::Diamond),
    look("#111111", 2.0, "8 2 2 2", Marker::Down),
    look("#8f6200", 2.0, "", Marker::Square),
    look("#2a7fb0", 2.0, "6 3", Marker::Up),
    look("#6e6e6e", 2.0, "", Marker::Diamond),
    look("#7d3c98", 2.0, "2 2", Marker::Circle),
    look("#647038", 2.0, "6 3", Marker::Down),
];

/// The look of a mechanism; an unknown mechanism is grey, as those of the kernel.
pub(crate) fn of_mechanism(id: &str) -> Look {
    let known = MECHANISMS.iter().find(|(known, ..)| *known == id);
    known.map_or(MECHANISMS[0].2, |(.., look)| *look)
}

/// The name of a mechanism in narrow plots.
pub(crate) fn short_name(id: &str, name: &str) -> String {
    let known = MECHANISMS.iter().find(|(known, ..)| *known == id);
    known.map_or_else(|| clip(name, 12), |(_, short, _)| (*short).to_owned())
}

/// The look of line `at` in a plot whose lines are not mechanisms.
pub(crate) fn nth(at: usize) -> Look {
    OTHERS[at % OTHERS.len()]
}

/// The text, shortened to `letters` letters.
pub(crate) fn clip(text: &str, letters: usize) -> String {
    // The text in brackets is an explanation that the page gives elsewhere.
    let is_long = |text: &str| text.chars().count() > letters;
    let text = text.split_once(" (").filter(|_| is_long(text)).map_or(text, |(name, _)| name);
    if !is_long(text) {
        return text.to_owned();
    }
    let kept: String = text.chars().take(letters.saturating_sub(1)).collect();
    format!("{}\u{2026}", kept.trim_end())
}
