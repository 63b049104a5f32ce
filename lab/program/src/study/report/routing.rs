//! The page of `study routing`. As on the other pages, every sentence with a figure is computed.

use corewire_harness::statistics::{Spread, median};

use crate::study::routing::results::{Results, TypeOf, ratio};

use super::chart::{Axis, Chart, Dots, Figure, Mark, Picture, Row, Series};
use super::error::Error;
use super::escape::escape;
use super::page::{self, Section, Table, list, paragraph};
use super::svg::{Format, Place};
use super::units::{Quantity, bytes, nanoseconds, plural};
use super::{look, machine};

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

/// The page for one machine.
pub(crate) fn render(results: &Results) -> Result<String, Error> {
    let title = "Calls through monitors: circuits on this machine";
    let short = in_short(results);
    let short = match short.is_empty() {
        true => String::new(),
        false => format!("<div class=\"short\">\n<h2>In short</h2>\n{}</div>\n", list(&short)),
    };
    let lead = format!("<p class=\"lead\">{}</p>\n{short}", escape(&summary(results)));
    let [types, hops, budgets] =
        [figures(types(results))?, figures(hops(results))?, figures(budgets(results))?];
    let sections = [
        Section::new("machine", "The machine", machine_table(results)),
        Section::new("reading", "How to read", how_to_read(results)),
        Section::new("types", "Types of messages (section 5.2.1)", types + &types_table(results)),
        Section::new("hops", "Number of hops (section 5.2.2)", hops + &hops_table(results)),
        Section::new("placed", "The thesis\u{2019} placement", placed(results)),
        Section::new("budgets", "How long a monitor polls", budgets + &budgets_table(results)),
        Section::new("counts", "What multiplexing saves (section 1.1.2)", counts(results)),
        Section::new("claims", "The thesis\u{2019} statements", claims(results)),
    ];
    Ok(page::page(title, &lead, &sections))
}

/// The SVG of every figure, with the stem of its file name.
pub(crate) fn plots(results: &Results) -> Result<Vec<(String, String)>, Error> {
    [types(results), hops(results), budgets(results)]
        .into_iter()
        .flatten()
        .map(|figure| {
            let picture = page::picture(&figure, Format::Wide, Place::File)?;
            Ok((figure.stem, picture))
        })
        .collect()
}

fn figures(figure: Option<Figure>) -> Result<String, Error> {
    figure.map_or_else(|| Ok(String::new()), |figure| page::figure(&figure))
}

fn of(times: &[f64]) -> Option<f64> {
    Spread::of(times.iter().copied()).map(|it| it.median)
}

fn summary(results: &Results) -> String {
    format!(
        "A client calls a service whose memory it does not share: monitors forward the frames, on {} ({}). The \
         experiments are those of the thesis \u{201c}A Routing and Forwarding Subsystem for a Multicore Operating \
         System\u{201d} (Grest), with its protocol as it is printed beside corewire\u{2019}s.",
        results.machine.processor,
        plural(results.machine.cores, "core"),
    )
}

fn in_short(results: &Results) -> Vec<String> {
    let mut sentences = Vec::new();
    let ratios = |monitors| {
        let all = results.types.iter().filter_map(move |kind| kind.to_direct(monitors));
        Spread::of(all.map(|it| it.median))
    };
    for monitors in [1, 2] {
        if let Some(Spread { min, max, .. }) = ratios(monitors) {
            sentences.push(format!(
                "Through {}, a call takes {min:.1} to {max:.1} times as long as without, depending on the message.",
                plural(monitors, "monitor"),
            ));
        }
    }
    let printed = results.types.iter().filter_map(TypeOf::to_printed).map(|it| it.median);
    if let Some(Spread { min, max, .. }) = Spread::of(printed) {
        sentences.push(format!(
            "It takes {min:.2} to {max:.2} of the time of the thesis\u{2019} protocol over the same rings, through two \
             monitors.",
        ));
    }
    if let Some(placed) = &results.placed {
        let found =
            [("the sum of its parts", placed.parts_ns()), ("D-Bus", placed.dbus_ns.clone())];
        for (words, under) in found {
            if let Some(it) = ratio(&placed.circuit_ns, &under) {
                sentences.push(format!(
                    "In the thesis\u{2019} placement it takes {:.2} of the time of {words} ({:.2} to {:.2}).",
                    it.median, it.min, it.max
                ));
            }
        }
    }
    sentences
}

fn machine_table(results: &Results) -> String {
    let run = [
        ("corewire", results.version.clone()),
        ("Began", machine::moment(&results.began)),
        ("Effort", format!("{}: {}", results.effort, plural(results.rounds, "round"))),
        ("D-Bus", results.dbus_absent.clone().unwrap_or_else(|| "measured".to_owned())),
    ];
    machine::table(&results.machine, &run)
}

fn how_to_read(results: &Results) -> String {
    let [before, after] = results.line_ns;
    paragraph(&format!(
        "Each figure is a round trip: the median of {} of blocks of about 10 ms. Blocks that are compared alternate, \
         and a ratio is the median of the ratios of all rounds, with the smallest and the largest. Between the two \
         cores a bare cache line took {} before and {} after.",
        plural(results.rounds, "round"),
        nanoseconds(before),
        nanoseconds(after),
    )) + &paragraph(
        "Types and hops are measured with every party polling, as if it had a core of its own: client, monitors and \
         service are in two threads, and neighbours on the way are always in different ones. The thesis\u{2019} \
         placement has a process for each party, which sleeps when it has nothing to do. Without monitors a call is \
         started and waited for in the same way as through monitors.",
    )
}

fn row(name: &str, dots: [Option<f64>; 2]) -> Row {
    let look = look::of_mechanism("corewire");
    Row { name: name.to_owned(), short: look::clip(name, 14), look, dots }
}

/// The thesis' Figure 5.1.
fn types(results: &Results) -> Option<Figure> {
    let rows = results.types.iter().map(|kind| {
        row(&kind.name, [of(&kind.direct_ns), kind.monitors_ns.get(1).and_then(|times| of(times))])
    });
    let rows: Vec<Row> = rows.collect();
    let names = ["direct".to_owned(), "two monitors".to_owned()];
    let axis = Axis::new("round trip", Quantity::Nanoseconds);
    let heading = "Direct and through two monitors (Figure 5.1)".to_owned();
    let caption =
        "Round trips on a logarithmic scale; less is better. fixed100 is not in the thesis."
            .to_owned();
    let picture = Picture::Dots(Dots { axis, names, rows });
    (!results.types.is_empty()).then(|| Figure {
        stem: "types".to_owned(),
        heading,
        caption,
        picture,
    })
}

fn mark(x: f64, times: &[f64]) -> Option<Mark> {
    let Spread { median, min, max } = Spread::of(times.iter().copied())?;
    Some(Mark { x, y: median, span: Some((min, max)), hollow: false })
}

/// The thesis' Figure 5.4.
fn hops(results: &Results) -> Option<Figure> {
    let shown = ["empty", "payload64_8", "buffer100", "buffer1000"];
    let kinds = results.types.iter().filter(|kind| shown.contains(&kind.name.as_str()));
    let series = kinds.enumerate().map(|(at, kind)| {
        let marks = (1_u32..).zip(&kind.monitors_ns);
        let marks = marks.map(|(monitors, times)| mark(monitors.into(), times)).collect();
        let (name, short) = (kind.name.clone(), kind.name.clone());
        Series { name, short, look: look::nth(at), marks }
    });
    let x = Axis::new("Monitors on the way", Quantity::Count);
    let y = Axis::new("Round trip", Quantity::Nanoseconds);
    let chart = Chart { x, y, series: series.collect(), reference: None }.shown()?;
    Some(Figure {
        stem: "hops".to_owned(),
        heading: "One to four monitors (Figure 5.4)".to_owned(),
        caption: "Thin bars reach from the smallest to the largest. Both axes are logarithmic; less is better."
            .to_owned(),
        picture: Picture::Lines(chart),
    })
}

fn budgets(results: &Results) -> Option<Figure> {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let marks = results.budgets.iter().map(|it| mark(it.poll_ns.max(100) as f64, &it.circuit_ns));
    let series = Series {
        name: "circuit through two monitors".to_owned(),
        short: "circuit".to_owned(),
        look: look::of_mechanism("corewire"),
        marks: marks.collect(),
    };
    let x = Axis::new("A monitor polls for", Quantity::Nanoseconds);
    let y = Axis::new("Round trip", Quantity::Nanoseconds);
    let chart = Chart { x, y, series: vec![series], reference: None }.shown()?;
    Some(Figure {
        stem: "budgets".to_owned(),
        heading: "Round trip against polling".to_owned(),
        caption: "The first point is a monitor that sleeps at once. Both axes are logarithmic; less is better.".to_owned(),
        picture: Picture::Lines(chart),
    })
}

fn with_span(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    format!("{}\n{} to {}", nanoseconds(median), nanoseconds(min), nanoseconds(max))
}

fn time(times: &[f64]) -> String {
    Spread::of(times.iter().copied()).map_or_else(none, with_span)
}

fn none() -> String {
    "\u{2013}".to_owned()
}

fn factor(spread: Option<Spread>) -> String {
    spread.map_or_else(none, |it| format!("{:.2}\n{:.2} to {:.2}", it.median, it.min, it.max))
}

fn thesis(name: &str) -> Option<&'static [f64; 5]> {
    THESIS.iter().find(|(of, _)| *of == name).map(|(_, row)| row)
}

fn types_table(results: &Results) -> String {
    let head = [
        "Type",
        "Direct",
        "1 monitor",
        "to direct",
        "2 monitors",
        "to direct",
        "thesis, to direct",
        "as printed, 2 monitors",
        "ours to it",
    ];
    let rows = results.types.iter().map(|kind| {
        let through = |monitors: usize| {
            kind.monitors_ns.get(monitors - 1).map_or_else(none, |times| time(times))
        };
        let thesis =
            thesis(&kind.name).map_or_else(none, |row| format!("{:.1}", row[TWO] / row[UMP]));
        vec![
            kind.name.clone(),
            time(&kind.direct_ns),
            through(1),
            factor(kind.to_direct(1)),
            through(2),
            factor(kind.to_direct(2)),
            thesis,
            time(&kind.printed_ns),
            factor(kind.to_printed()),
        ]
    });
    let head = head.map(str::to_owned).into();
    Table { head, rows: rows.collect(), is_prose: false }
        .html("Round trips of the thesis\u{2019} types.")
}

fn hops_table(results: &Results) -> String {
    let head =
        ["Type", "1", "2", "3", "4", "4 to 2", "thesis, 4 to 2", "a monitor more, to direct"];
    let rows = results.types.iter().map(|kind| {
        let times = |at: usize| kind.monitors_ns.get(at).map_or_else(none, |times| time(times));
        let more = match &kind.monitors_ns[..] {
            [one, .., last] if kind.monitors_ns.len() > 1 => {
                let steps = kind.monitors_ns.len() - 1;
                #[expect(clippy::cast_precision_loss, reason = "a few monitors")]
                let each = one.iter().zip(last).map(|(one, last)| (last - one) / steps as f64);
                ratio(&each.collect::<Vec<_>>(), &kind.direct_ns)
            }
            _ => None,
        };
        let four = kind.monitors_ns.get(3).zip(kind.monitors_ns.get(1));
        let thesis =
            thesis(&kind.name).map_or_else(none, |row| format!("{:.2}", row[4] / row[TWO]));
        vec![
            kind.name.clone(),
            times(0),
            times(1),
            times(2),
            times(3),
            factor(four.and_then(|(four, two)| ratio(four, two))),
            thesis,
            factor(more),
        ]
    });
    let head = head.map(str::to_owned).into();
    Table { head, rows: rows.collect(), is_prose: false }
        .html("Round trips through one to four monitors.")
}

fn placed(results: &Results) -> String {
    let Some(placed) = &results.placed else {
        return paragraph("There is only one processor.");
    };
    let parts = placed.parts_ns();
    let rows = [
        ("circuit through two monitors", &placed.circuit_ns),
        ("its parts: two times the way on one core, and one between cores", &parts),
        ("on one core alone (lmp)", &placed.lmp_ns),
        ("between cores alone (ump)", &placed.ump_ns),
        ("a relay of SEQPACKET sockets, as many processes", &placed.relay_ns),
        ("D-Bus, the daemon on the client\u{2019}s core", &placed.dbus_ns),
    ];
    let rows = rows.map(|(name, times)| {
        vec![name.to_owned(), time(times), factor(ratio(&placed.circuit_ns, times))]
    });
    let head = ["Way", "Round trip of 8 bytes", "circuit to it"].map(str::to_owned).into();
    paragraph(
        "Client and monitor 0 share one core, monitor 1 and the service another one. The thesis calls two LMP and one \
         UMP message the best case of a multi-hop message (page 31).",
    ) + &Table { head, rows: rows.into(), is_prose: false }.html("The thesis\u{2019} placement.")
}

fn budgets_table(results: &Results) -> String {
    let rows = results.budgets.iter().map(|it| {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let poll = nanoseconds(it.poll_ns as f64);
        vec![poll, time(&it.circuit_ns)]
    });
    let head = ["A monitor polls for", "Round trip of 8 bytes"].map(str::to_owned).into();
    paragraph(
        "The same placement. The thesis prints one budget, 20,000 cycles, which are 7.1 \u{b5}s on its machine.",
    ) + &Table { head, rows: rows.collect(), is_prose: false }.html("Round trip against polling.")
}

fn counts(results: &Results) -> String {
    let rows = results.counts.iter().map(|it| {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let saved = it.direct_bytes as f64 / it.monitor_bytes as f64;
        vec![
            it.processes.to_string(),
            it.direct_channels.to_string(),
            bytes(it.direct_bytes),
            it.monitor_channels.to_string(),
            bytes(it.monitor_bytes),
            format!("{saved:.1}"),
        ]
    });
    let head = [
        "Processes",
        "Channels, each to each",
        "Memory",
        "Channels to a monitor",
        "Memory, with circuits",
        "Times less",
    ];
    let head = head.map(str::to_owned).into();
    paragraph(
        "Counted, not measured: each process is connected with each other one, by a pair of rings of 256 lines, or by a \
         circuit through one monitor, which takes 217 bytes there (measured with 100,000 circuits) and reserves 256 for \
         frames that wait. The thesis counts six channels for four cores without circuits, and three with them.",
    ) + &Table { head, rows: rows.collect(), is_prose: false }.html("Channels and memory.")
}

/// Statements of the thesis, and what they are here.
fn claims(results: &Results) -> String {
    let kind = |name: &str| results.types.iter().find(|kind| kind.name == name);
    let smallest = |monitors| {
        let all = results.types.iter().filter_map(move |kind| kind.to_direct(monitors));
        Spread::of(all.map(|it| it.median))
    };
    let mut rows = Vec::new();
    let mut add = |claim: &str, place: &str, there: &str, here: Option<(String, bool)>| {
        if let Some((here, holds)) = here {
            let verdict = if holds { "holds here" } else { "does not hold here" };
            rows.push([claim, place, there, &here, verdict].map(str::to_owned).to_vec());
        }
    };
    add(
        "A routed message takes considerably longer than a direct one",
        "page 31",
        "1.6 to 34.8 times",
        smallest(2).map(|it| (format!("{:.1} to {:.1} times", it.min, it.max), it.min >= 2.0)),
    );
    let best = results.placed.as_ref().and_then(|it| ratio(&it.circuit_ns, &it.parts_ns()));
    add(
        "The best case, two messages on one core and one between cores, is not reached",
        "page 31",
        "1.7 to 2.7 times as long, for nine types of ten",
        best.map(|it| (format!("{:.2} times as long", it.median), it.median > 1.0)),
    );
    let dynamic = kind("buffer100").zip(kind("fixed100"));
    let dynamic = dynamic
        .and_then(|(buffer, fixed)| ratio(buffer.monitors_ns.get(1)?, fixed.monitors_ns.get(1)?));
    add(
        "A dynamic array takes longer than the same bytes in fixed arguments",
        "page 32",
        "11.9 times by UMP, for 100 bytes beside 64",
        dynamic.map(|it| (format!("{:.2} times through two monitors", it.median), it.median > 1.0)),
    );
    let more =
        kind("empty").and_then(|kind| ratio(kind.monitors_ns.get(3)?, kind.monitors_ns.get(1)?));
    add(
        "The number of hops hardly matters",
        "page 34",
        "four hops take 1.26 to 1.34 times as long as two",
        more.map(|it| {
            (format!("{:.2} times as long, empty messages", it.median), it.median <= 1.1)
        }),
    );
    let times = results.budgets.iter().filter_map(|it| of(&it.circuit_ns)).collect::<Vec<_>>();
    let spread = Spread::of(times.iter().copied());
    add(
        "How a monitor is scheduled affects the round trip",
        "page 33",
        "one budget is printed",
        spread.map(|it| {
            (
                format!("{:.2} times between the slowest and the fastest budget", it.max / it.min),
                it.max / it.min > 1.1,
            )
        }),
    );
    let printed = median(results.types.iter().filter_map(TypeOf::to_printed).map(|it| it.median));
    if rows.is_empty() {
        return paragraph("Nothing was measured.");
    }
    let head = ["The thesis", "Where", "There", "Here", ""].map(str::to_owned).into();
    paragraph(&format!(
        "With every party polling, hops are all that there is: context switches, which dominate in the thesis, are not \
         part of the way. The median of all types takes {printed:.2} of the time of the protocol as printed.",
    )) + &Table { head, rows, is_prose: true }.html("")
}
