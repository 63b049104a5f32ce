//! The page of the study. Every sentence with a figure is computed.

use corewire_harness::statistics::Spread;

use super::results::{Budget, Routing, TypeOf};
use crate::study::page::units::{Quantity, bytes, nanoseconds, plural};
use crate::study::page::{
    Axis, Chart, Figure, Mark, NONE, Page, Series, Table, times, whereabouts_of_all, with_span,
};
use crate::study::results::{Results, ratios};

/// The thesis' round trips in cycles at 2.8 GHz: LMP, UMP to the next core, and through two, three and four monitors.
const THESIS: [(&str, [f64; 5]); 10] = [
    ("empty", [3325.0, 1618.0, 22004.0, 25185.0, 27871.0]),
    ("payload32_1", [3765.0, 1566.0, 22005.0, 25191.0, 28017.0]),
    ("payload32_4", [3616.0, 1666.0, 23597.0, 26627.0, 29705.0]),
    ("payload32_8", [3983.0, 1609.0, 23690.0, 27357.0, 30700.0]),
    ("payload64_1", [3549.0, 1557.0, 22518.0, 25774.0, 28693.0]),
    ("payload64_4", [3772.0, 1587.0, 24031.0, 27649.0, 30794.0]),
    ("payload64_8", [4085.0, 2005.0, 26597.0, 31117.0, 35739.0]),
    ("buffer1", [5865.0, 2076.0, 23564.0, 26990.0, 30119.0]),
    ("buffer100", [10607.0, 23911.0, 37755.0, 62867.0, 62651.0]),
    ("buffer1000", [386_475.0, 41321.0, 1_437_771.0, 1_501_359.0, 1_530_413.0]),
];
/// Places in a row of it.
const UMP: usize = 1;
const TWO: usize = 2;

/// The types of its Figure 5.4.
const HOPS: [&str; 4] = ["empty", "payload64_8", "buffer100", "buffer1000"];

/// The page for one machine.
pub(super) fn of(results: &Results<Routing>) -> Page {
    let found = &results.body;
    let rounds = plural(found.rounds, "round");
    let facts = [
        ("Effort", format!("{}: {rounds}", results.effort)),
        ("D-Bus", found.dbus_absent.clone().unwrap_or_else(|| "measured".to_owned())),
    ];
    let line = found.line_ns.map(|line| line.map(nanoseconds)).map(|[before, after]| {
        format!(
            "Between the two cores a bare cache line took {before} before the types and {after} after."
        )
    });
    let budget = |it: &Budget| (format!("polling for {}", polling(it)), it.line_ns);
    let mut runs = vec![("the types".to_owned(), found.line_ns)];
    runs.extend(found.placed.iter().map(|it| ("the placement".to_owned(), it.line_ns)));
    runs.extend(found.budgets.iter().map(budget));
    let printed = spread(found.types.iter().filter_map(TypeOf::to_printed)).map(|it| {
        format!(
            "The median of all types takes {:.2} of the time of the protocol as printed.",
            it.median
        )
    });
    let [routed, parts, dynamic, hops, scheduled] =
        claims(found, &results.at_most_frequent().body.budgets).map(verdict);
    Page::of(include_str!("page.md"), results, &facts)
        .value("rounds", rounds)
        .value("line", line.unwrap_or_default())
        .value("whereabouts", whereabouts_of_all(&results.distances(), &runs))
        .value("printed", printed.unwrap_or_default())
        .value("routed", routed)
        .value("parts", parts)
        .value("dynamic", dynamic)
        .value("more_hops", hops)
        .value("scheduled", scheduled)
        .short(in_short(found))
        .block("types", types_figure(found))
        .block("types_table", types_table(found))
        .block("hops", hops_figure(found))
        .block("hops_table", hops_table(found))
        .block("placed", placed_table(found))
        .block("budgets", budgets_figure(found))
        .block("budgets_table", budgets_table(found))
        .block("counts", counts(found))
        .block("absent", absent(found))
}

/// The spread of the medians.
fn spread(all: impl Iterator<Item = Spread>) -> Option<Spread> {
    Spread::of(all.map(|it| it.median))
}

/// How many times as long the types take through so many monitors.
fn to_direct(found: &Routing, monitors: usize) -> Option<Spread> {
    spread(found.types.iter().filter_map(|kind| kind.to_direct(monitors)))
}

fn in_short(found: &Routing) -> Vec<String> {
    let monitors = [1, 2].into_iter().filter_map(|monitors| {
        let Spread { min, max, .. } = to_direct(found, monitors)?;
        let monitors = plural(monitors, "monitor");
        Some(format!(
            "Through {monitors}, a call takes {min:.1} to {max:.1} times as long as without, depending on the message."
        ))
    });
    let mut sentences: Vec<String> = monitors.collect();
    sentences.extend(spread(found.types.iter().filter_map(TypeOf::to_printed)).map(|it| {
        format!(
            "It takes {:.2} to {:.2} of the time of the thesis\u{2019} protocol over the same rings, through two \
             monitors.",
            it.min, it.max
        )
    }));
    let placed = found.placed.iter().flat_map(|placed| {
        let beside =
            [("the sum of its parts", placed.parts_ns()), ("D-Bus", placed.dbus_ns.clone())];
        beside.map(|(words, under)| (words, ratios(&placed.circuit_ns, &under)))
    });
    sentences.extend(placed.filter_map(|(words, ratio)| {
        let Spread { median, min, max } = ratio?;
        Some(format!(
            "In the thesis\u{2019} placement it takes {median:.2} of the time of {words} ({min:.2} to {max:.2})."
        ))
    }));
    sentences
}

/// The thesis' Figure 5.1.
fn types_figure(found: &Routing) -> Option<Figure> {
    let median = |times: &[f64]| Some(Spread::of(times.iter().copied())?.median);
    let row = |kind: &TypeOf| (kind.name.clone(), [&kind.direct_ns, kind.through(2)].map(median));
    let x = Axis::new("Round trip", Quantity::Nanoseconds);
    Chart::of_rows(x, ["direct", "two monitors"], found.types.iter().map(row)).figure(
        ("types", "Direct and through two monitors (Figure 5.1)"),
        "Round trips on a logarithmic scale; less is better. fixed100 is not in the thesis.",
    )
}

fn mark(x: f64, times: &[f64]) -> Option<Mark> {
    let Spread { median, min, max } = Spread::of(times.iter().copied())?;
    Some(Mark { span: Some((min, max)), ..Mark::at(x, median) })
}

/// The thesis' Figure 5.4.
fn hops_figure(found: &Routing) -> Option<Figure> {
    let kinds = found.types.iter().filter(|kind| HOPS.contains(&&kind.name[..]));
    let series = kinds.enumerate().map(|(at, kind)| {
        let marks = (1_u32..).zip(&kind.monitors_ns);
        let marks = marks.map(|(monitors, times)| mark(monitors.into(), times));
        Series::nth(at, &kind.name, marks.collect())
    });
    let x = Axis::new("Monitors on the way", Quantity::Count);
    let y = Axis::new("Round trip", Quantity::Nanoseconds);
    Chart { x, y, series: series.collect(), reference: None }.figure(
        ("hops", "One to four monitors (Figure 5.4)"),
        "Thin bars reach from the smallest to the largest. Both axes are logarithmic; less is better.",
    )
}

fn budgets_figure(found: &Routing) -> Option<Figure> {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let marks = found.budgets.iter().map(|it| mark(it.poll_ns.max(100) as f64, &it.circuit_ns));
    let series = Series::of("corewire", "circuit through two monitors", marks.collect());
    let series = vec![Series { short: "circuit".to_owned(), ..series }];
    let x = Axis::new("A monitor polls for", Quantity::Nanoseconds);
    let y = Axis::new("Round trip", Quantity::Nanoseconds);
    Chart { x, y, series, reference: None }.figure(
        ("budgets", "Round trip against polling"),
        "The first point is a monitor that sleeps at once. Both axes are logarithmic; less is better.",
    )
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn polling(budget: &Budget) -> String {
    nanoseconds(budget.poll_ns as f64)
}

fn factor(ratio: Option<Spread>) -> String {
    with_span(ratio, |ratio| format!("{ratio:.2}"))
}

/// A figure that is computed from a row of the thesis' table.
fn thesis(kind: &TypeOf, of: impl Fn(&[f64; 5]) -> String) -> String {
    let row = THESIS.iter().find(|(name, _)| *name == kind.name);
    row.map_or(NONE.to_owned(), |(_, row)| of(row))
}

fn types_table(found: &Routing) -> Table {
    let table = Table::of_columns(
        &found.types,
        &[
            ("Type", &|kind| kind.name.clone()),
            ("Direct", &|kind| times(&kind.direct_ns)),
            ("1 monitor", &|kind| times(kind.through(1))),
            ("to direct", &|kind| factor(kind.to_direct(1))),
            ("2 monitors", &|kind| times(kind.through(2))),
            ("to direct", &|kind| factor(kind.to_direct(2))),
            ("thesis, to direct", &|kind| {
                thesis(kind, |row| format!("{:.1}", row[TWO] / row[UMP]))
            }),
            ("as printed, 2 monitors", &|kind| times(&kind.printed_ns)),
            ("ours to it", &|kind| factor(kind.to_printed())),
        ],
    );
    table.captioned("Round trips of the thesis\u{2019} types")
}

fn hops_table(found: &Routing) -> Table {
    let table = Table::of_columns(
        &found.types,
        &[
            ("Type", &|kind| kind.name.clone()),
            ("1", &|kind| times(kind.through(1))),
            ("2", &|kind| times(kind.through(2))),
            ("3", &|kind| times(kind.through(3))),
            ("4", &|kind| times(kind.through(4))),
            ("4 to 2", &|kind| factor(ratios(kind.through(4), kind.through(2)))),
            ("thesis, 4 to 2", &|kind| thesis(kind, |row| format!("{:.2}", row[4] / row[TWO]))),
            ("a monitor more, to direct", &|kind| factor(kind.more())),
        ],
    );
    table.captioned("Round trips through one to four monitors")
}

/// All types beside a direct call and beside the protocol as printed, for the terminal.
pub(super) fn ratios_table(found: &Routing) -> Table {
    let ratio = |it: Option<Spread>| Some(format!("{:.2}", it?.median));
    let (names, columns) = (|kind: &TypeOf| kind.name.clone(), [1, 2, 3, 4, 0]);
    let head = |monitors: &usize| match monitors {
        0 => "2, to printed".to_owned(),
        _ => monitors.to_string(),
    };
    let cell = |kind: &TypeOf, monitors: &usize| match monitors {
        0 => ratio(kind.to_printed()),
        _ => ratio(kind.to_direct(*monitors)),
    };
    let table = Table::matrix("Monitors", &found.types, &columns, (names, head), cell);
    table.captioned("Round trips to direct; to the protocol as printed")
}

pub(super) fn placed_table(found: &Routing) -> Table {
    let Some(placed) = &found.placed else { return Table::default() };
    let rows = [
        ("circuit through two monitors", &placed.circuit_ns),
        ("its parts: two times the way on one core, and one between cores", &placed.parts_ns()),
        ("on one core alone (lmp)", &placed.lmp_ns),
        ("between cores alone (ump)", &placed.ump_ns),
        ("a relay of SEQPACKET sockets, as many processes", &placed.relay_ns),
        ("D-Bus, the daemon on the client\u{2019}s core", &placed.dbus_ns),
    ];
    let table = Table::of_columns(
        rows,
        &[
            ("Way", &|(name, _)| (*name).to_owned()),
            ("Round trip of 8 bytes", &|(_, all)| times(all)),
            ("circuit to it", &|(_, all)| factor(ratios(&placed.circuit_ns, all))),
        ],
    );
    table.captioned("The thesis\u{2019} placement")
}

fn budgets_table(found: &Routing) -> Table {
    let table = Table::of_columns(
        &found.budgets,
        &[
            ("A monitor polls for", &|it| polling(it)),
            ("Round trip of 8 bytes", &|it| times(&it.circuit_ns)),
        ],
    );
    table.captioned("Round trip against polling")
}

fn counts(found: &Routing) -> Table {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let saved = |direct: u64, monitor: u64| format!("{:.1}", direct as f64 / monitor as f64);
    let table = Table::of_columns(
        &found.counts,
        &[
            ("Processes", &|it| it.processes.to_string()),
            ("Channels, each to each", &|it| it.direct_channels.to_string()),
            ("Memory", &|it| bytes(it.direct_bytes)),
            ("Channels to a monitor", &|it| it.monitor_channels.to_string()),
            ("Memory, with circuits", &|it| bytes(it.monitor_bytes)),
            ("Times less", &|it| saved(it.direct_bytes, it.monitor_bytes)),
        ],
    );
    table.captioned("Channels and memory")
}

/// What is missing, and why.
pub(super) fn absent(found: &Routing) -> Vec<String> {
    let dbus = found.dbus_absent.iter().map(|why| format!("D-Bus: {why}"));
    dbus.chain(found.failures.iter().cloned()).map(|why| format!("{why}.")).collect()
}

/// What was found for each statement of the thesis, in the order of the page, and whether it holds. `budgets` are those at one
/// distance of the cores.
fn claims(found: &Routing, budgets: &[Budget]) -> [Option<(String, bool)>; 5] {
    let kind = |name: &str| found.types.iter().find(|kind| kind.name == name);
    let long = |ratio: f64| format!("{ratio:.2} times as long");
    let placed = found.placed.as_ref().and_then(|it| ratios(&it.circuit_ns, &it.parts_ns()));
    let dynamic = kind("buffer100").zip(kind("fixed100"));
    let dynamic = dynamic.and_then(|(buffer, fixed)| ratios(buffer.through(2), fixed.through(2)));
    let more = kind("empty").and_then(|kind| ratios(kind.through(4), kind.through(2)));
    let budgets = budgets.iter().filter_map(|it| Spread::of(it.circuit_ns.iter().copied()));
    let budgets = spread(budgets).map(|it| it.max / it.min);
    [
        to_direct(found, 2).map(|Spread { min, max, .. }| {
            (format!("{min:.1} to {max:.1} times as long"), min >= 2.0)
        }),
        placed.map(|it| (long(it.median), it.median > 1.0)),
        dynamic.map(|it| (long(it.median) + " through two monitors", it.median > 1.0)),
        more.map(|it| (long(it.median) + ", for empty messages", it.median <= 1.1)),
        budgets.map(|it| (long(it) + " with the slowest budget as with the fastest", it > 1.1)),
    ]
}

fn verdict(found: Option<(String, bool)>) -> String {
    let Some((here, holds)) = found else { return String::new() };
    format!("{here}: it {} here.", if holds { "holds" } else { "does not hold" })
}
