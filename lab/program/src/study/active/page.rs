//! The page of the study. Every sentence with a figure is computed.

use corewire_harness::statistics::Spread;

use crate::study::page::units::{Quantity, bytes, nanoseconds, plural, rate, round};
use crate::study::page::{Axis, Chart, Figure, Mark, NONE, Page, Series, Table, whereabouts};
use crate::study::results::{About, Results, sorted};

use super::results::{Active, Case, Point, Repeat, Slow, SlowFound};
use super::slow::{COMPUTES, Way};
use super::styles::Style;

/// What curves of untouched data show.
const UNTOUCHED: &str = " Nobody reads or writes a loan here: no data moves, and its curve shows what a message costs, \
                         whatever its size.";
/// Sizes in the tables of Figure 4, if they were measured.
const SHOWN: [usize; 9] = [8, 64, 512, 4096, 32_768, 65_536, 262_144, 1_048_576, 4_194_304];

/// The page for one machine: the results at the most frequent distance of its cores.
pub(super) fn of(results: &Results<Active>) -> Page {
    let here = &results.at_most_frequent();
    let found = &here.body;
    let (runs, time) = (plural(found.runs, "run"), nanoseconds(found.run_s * 1e9));
    let effort = format!("{}: {runs} of {time} for each point", here.effort);
    let crowd = match found.oversubscribed {
        true => {
            "Both processes had to share one core, so the figures show how well they take turns."
        }
        false => "Each process has a core of its own.",
    };
    let compared = |figure| {
        let cell =
            |it: Spread| format!("{}\n{} to {}", round(it.median), round(it.min), round(it.max));
        let caption = "Medians, and how many times as fast as the passive style";
        compared(found, figure, caption, cell)
    };
    let arrivals = |touched| medians(found, Repeat::Arrivals, touched).captioned(data(touched));
    let failures = found.failures.iter().map(|why| format!("A run failed: {why}."));
    Page::of(include_str!("page.md"), here, &[("Effort", effort)])
        .value("crowd", crowd)
        .value("whereabouts", whereabouts(&results.distances(), "point"))
        .value("computes", nanoseconds(COMPUTES.as_secs_f64() * 1e9))
        .value("factors", factors(found).join(" "))
        .short(in_short(found))
        .block("trips", figures(found, Repeat::Trips))
        .block("trip_ratios", compared(Repeat::Trips))
        .block("transactions", figures(found, Repeat::Transactions))
        .block("transaction_ratios", compared(Repeat::Transactions))
        .block("slow", slow(found))
        .block("refusals", refusals(found))
        .block("arrivals", figures(found, Repeat::Arrivals))
        .block("arrival_times", both(arrivals))
        .block("copies", copies(found))
        .block("absent", failures.collect::<Vec<_>>())
        .block("styles", About::settings(&found.styles, "Style"))
}

/// What is printed in the end.
pub(super) fn summary(found: &Active) -> Vec<Table> {
    let cell = |it: Spread| round(it.median);
    let random = "transactions per second, random sizes";
    let mut tables = compared(found, Repeat::Transactions, random, cell);
    tables.extend(compared(found, Repeat::Trips, "throughput one way", cell));
    let trips = ranged(&found.passive_round_trips, round);
    let trips = Table { rows: vec![vec![trips]], ..Table::default() };
    tables.push(trips.captioned("round trips of a bare line in a passive transaction of 8 B"));
    let caption = format!("bursts to a receiver that computes for {COMPUTES:?} after each message");
    tables.push(slow(found).captioned(caption));
    tables.push(refusals(found).captioned("until the sender knows that there is no room"));
    if !found.failures.is_empty() {
        let rows = found.failures.iter().map(|why| vec![why.clone()]).collect();
        tables.push(Table { rows, ..Table::default() }.captioned("runs that failed"));
    }
    tables
}

/// One for untouched data, and one for data that is written and read.
fn both<T>(one: impl Fn(bool) -> T) -> Vec<T> {
    [false, true].map(one).into()
}

const fn data(touched: bool) -> &'static str {
    if touched { "Written before and read after" } else { "With data untouched" }
}

/// The median of figures, with the smallest and the largest one.
fn ranged(figures: &[f64], words: fn(f64) -> String) -> String {
    Spread::of(figures.iter().copied()).map_or(NONE.to_owned(), |it| {
        format!("{} ({} to {})", words(it.median), words(it.min), words(it.max))
    })
}

/// How many times as many transactions as the passive style the active ones make, up to the smallest limit and the largest.
fn factors(found: &Active) -> Vec<String> {
    let figure = Repeat::Transactions;
    let ends = |style, touched| {
        let of = |bytes: usize| {
            let ratio = round(found.ratio(figure, Case { style, bytes, touched })?.median);
            Some(format!("{ratio} (up to {})", size(bytes)))
        };
        let mut all = sizes(found, figure).into_iter().filter_map(of);
        let first = all.next()?;
        Some(all.next_back().map_or(first.clone(), |last| format!("{first} to {last}")))
    };
    let sentence = |(touched, when)| {
        let [active, loan] = [Style::Active, Style::ActiveLoan].map(|style| ends(style, touched));
        Some(format!(
            "A sender that does not ask for a buffer first makes {} times as many transactions, if {when}; with a loan {}.",
            active?, loan?
        ))
    };
    let touched = "messages are written before they are sent and read after they are received";
    let data = [(true, touched), (false, "nobody touches the data")];
    data.into_iter().filter_map(sentence).collect()
}

fn in_short(found: &Active) -> Vec<String> {
    let median = |figures: &[f64]| Some(Spread::of(figures.iter().copied())?.median);
    let trips = median(&found.passive_round_trips).map(|trips| {
        let trips = round(trips);
        format!(
            "A passive transaction of 8 B, which is two round trips of short messages, takes {trips} round trips of a \
             bare cache line."
        )
    });
    let nack = found.refusals.iter().find(|it| it.call == "try_send");
    let nack = nack.and_then(|nack| median(&nack.knows_ns)).map(|time| {
        let time = nanoseconds(time);
        format!("A sender whose receiver has no room knows it after {time}: no message is needed to refuse one.")
    });
    factors(found).into_iter().chain(trips).chain(nack).collect()
}

/// One figure for untouched data, and one for data that is written and read.
fn figures(found: &Active, repeat: Repeat) -> Vec<Figure> {
    let (stem, heading, x, y) = match repeat {
        Repeat::Trips => (
            "figure-4",
            "Figure 4: throughput of a message there and back",
            "Message size",
            "Bytes per second, one way",
        ),
        Repeat::Transactions => (
            "figure-5",
            "Figure 5: transactions with random sizes",
            "Largest message",
            "Transactions per second",
        ),
        Repeat::Arrivals => (
            "arrivals",
            "Where a message arrives: in place, in memory of the receiver, in pages",
            "Message size",
            "Time of a transaction",
        ),
    };
    #[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
    let mark = |point: &Point| {
        let Spread { median, min, max } = point.p50_ns()?;
        let bytes = point.case.bytes;
        let [y, one, other] = [median, min, max].map(|time| repeat.figure(bytes, time));
        Some(Mark { span: Some((one.min(other), one.max(other))), ..Mark::at(bytes as f64, y) })
    };
    let figure = |touched| {
        let series = repeat.styles().iter().map(|style| {
            let points = found.points(repeat).iter();
            let own = points.filter(|it| (it.case.style, it.case.touched) == (*style, touched));
            Series::of(&style.text(), style.name(), own.map(mark).collect())
        });
        let (x, y) = (Axis::new(x, Quantity::Bytes), Axis::new(y, repeat.quantity()));
        let chart = Chart { x, y, series: series.collect(), reference: None };
        let (which, words, note) = match touched {
            false => ("untouched", "data untouched", UNTOUCHED),
            true => ("touched", "written before, read after", ""),
        };
        let caption = format!(
            "Median of the runs; thin bars reach from the slowest to the fastest. Both axes are logarithmic.{note}"
        );
        chart.figure((format!("{stem}-{which}"), format!("{heading}, {words}")), caption)
    };
    both(figure).into_iter().flatten().collect()
}

fn size(figure: usize) -> String {
    bytes(figure as u64)
}

/// The sizes in tables of a figure.
fn sizes(found: &Active, repeat: Repeat) -> Vec<usize> {
    let cases = found.points(repeat).iter().map(|point| point.case);
    let compared = cases.filter(|case| repeat.styles().contains(&case.style));
    let sizes = sorted(compared.map(|case| case.bytes)).into_iter();
    sizes.filter(|size| repeat != Repeat::Trips || SHOWN.contains(size)).collect()
}

/// The medians of all styles.
fn medians(found: &Active, repeat: Repeat, touched: bool) -> Table {
    let corner = if repeat == Repeat::Arrivals { "A transaction" } else { "" };
    let names = (|style: &Style| style.name().to_owned(), |bytes: &usize| size(*bytes));
    Table::matrix(corner, repeat.styles(), &sizes(found, repeat), names, |&style, &bytes| {
        let time = found.point(repeat, Case { style, bytes, touched })?.p50_ns()?.median;
        Some(repeat.quantity().tick(repeat.figure(bytes, time)))
    })
}

/// The medians, and how many times as fast as the passive style the other styles are.
fn compared(
    found: &Active,
    figure: Repeat,
    caption: &str,
    cell: fn(Spread) -> String,
) -> Vec<Table> {
    let others = [Style::Active, Style::ActiveLoan, Style::PrePosted];
    let sizes = sizes(found, figure);
    both(|touched| {
        let names = (|it: &Style| format!("{} / passive", it.name()), |bytes: &usize| size(*bytes));
        let ratios = Table::matrix("", &others, &sizes, names, |&style, &bytes| {
            found.ratio(figure, Case { style, bytes, touched }).map(cell)
        });
        let mut table = medians(found, figure, touched);
        table.rows.extend(ratios.rows);
        table.captioned(format!("{caption}. {}", data(touched)))
    })
}

#[expect(clippy::cast_precision_loss, reason = "few messages")]
fn slow(found: &Active) -> Table {
    let way = |slow: &&Slow| match slow.shape.way {
        Way::Grants => "grants".to_owned(),
        Way::PrePosted => plural(slow.shape.buffers, "posted buffer"),
    };
    let median = |figure: fn(&SlowFound) -> f64, words: fn(f64) -> String| {
        move |slow: &&Slow| {
            let spread = Spread::of(slow.runs.iter().map(figure));
            spread.map_or(NONE.to_owned(), |it| words(it.median))
        }
    };
    let kibibytes = |figure: f64| format!("{} KiB", round(figure / 1024.0));
    Table::of_columns(
        &found.slow,
        &[
            ("", &way),
            ("Memory", &|slow| bytes(slow.memory_bytes)),
            ("Sent before the first wait", &median(|it| it.accepted_messages, round)),
            ("Bytes of them", &median(|it| it.accepted_bytes, kibibytes)),
            ("Waits", &median(|it| it.waits, round)),
            ("Blocked", &median(|it| it.blocked_ns, nanoseconds)),
            ("Messages per second", &median(|it| it.messages as f64 * 1e9 / it.done_ns, rate)),
        ],
    )
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52 ns")]
fn refusals(found: &Active) -> Table {
    Table::of_columns(
        &found.refusals,
        &[
            ("Call", &|refusal| match refusal.limit_ns {
                None => refusal.call.clone(),
                Some(limit) => format!("{}, {}", refusal.call, nanoseconds(limit as f64)),
            }),
            ("Until the sender knows", &|refusal| ranged(&refusal.knows_ns, nanoseconds)),
        ],
    )
}

/// What the receiver copies in the active runs.
fn copies(found: &Active) -> Table {
    let points = found.transactions.iter().map(|point| ("random, up to", point));
    let points = points.chain(found.arrivals.iter().map(|point| ("all", point)));
    let points = points.filter(|(_, Point { case, runs })| {
        case.style.is_active() && case.touched && !runs.is_empty()
    });
    Table::of_columns(
        points,
        &[
            ("", &|(_, point)| point.case.style.name().to_owned()),
            ("Sizes", &|(sizes, point)| format!("{sizes} {}", size(point.case.bytes))),
            ("In place", &|(_, it)| format!("{} %", round(100.0 * it.median(|run| run.in_place)))),
            ("Copied after arrival", &|(_, it)| {
                format!("{} B", round(it.median(|run| run.copied_bytes)))
            }),
        ],
    )
}
