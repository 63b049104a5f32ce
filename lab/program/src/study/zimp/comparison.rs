//! Shows machines side by side: Figures 6 and 38 to 45 of the paper, and the same for corewire.

use super::page::{around, factors, of_ratios, stem_of};
use super::results::Zimp;
use crate::study::mechanisms::About;
use crate::study::page::units::{and, bytes, gain, nanoseconds, plural, rate};
use crate::study::page::{Figure, NONE, Page, Series, Table, about};
use crate::study::results::{Results, sorted};

/// The name of a machine, and its results at the most frequent distance of its cores.
type Named = (String, Results<Zimp>);

/// The throughput of `over` is divided by that of `under`.
#[derive(Debug, Clone, Copy)]
struct Pair {
    over: &'static str,
    under: &'static str,
    heading: &'static str,
    /// The paper's figures of several machines: a size, and the number of the figure.
    figures: &'static [(u64, u32)],
}

const ZIMP: Pair = Pair {
    over: "zimp",
    under: "barrelfish_mp",
    heading: "ZIMP over Barrelfish MP",
    figures: &[
        (1, 38),
        (64, 39),
        (128, 6),
        (512, 40),
        (1024, 41),
        (4096, 42),
        (10_240, 43),
        (102_400, 44),
        (1_048_576, 45),
    ],
};
const COREWIRE: Pair = Pair {
    over: "corewire_copy",
    under: "zimp",
    heading: "corewire copying out over ZIMP",
    figures: &[],
};

/// The page for several machines, each with its name.
pub(crate) fn page(all: &[Named]) -> Page {
    let here = |(name, results): &Named| (name.clone(), results.at_most_frequent());
    let all: &Vec<Named> = &all.iter().map(here).collect();
    let names: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    Page::bare(include_str!("comparison.md"))
        .value("count", plural(all.len(), "machine"))
        .value("names", and(&names))
        .block("machines", machines(all))
        .value("zimp", with_one(all, ZIMP))
        .block("zimp_figures", figures(all, ZIMP))
        .block("zimp_ratios", ratios(all, ZIMP))
        .value("corewire", with_one(all, COREWIRE))
        .block("corewire_figures", figures(all, COREWIRE))
        .block("corewire_ratios", ratios(all, COREWIRE))
        .block("rates", [64, 4096].map(|size| rates(all, size)).to_vec())
}

fn machines(all: &[Named]) -> Table {
    let facts = |(_, results): &Named| {
        let runs = format!("{} of {} s", results.body.runs, results.body.run_s);
        let line = results.distances().first().and_then(|distance| distance.line_ns);
        let line = line.map_or(NONE.to_owned(), |(least, most)| {
            format!("{} to {}", nanoseconds(least), nanoseconds(most))
        });
        let own = [("Runs", runs), ("A bare cache line, one way", line)];
        let own = own.map(|(name, text)| vec![name.to_owned(), text]);
        [about(&results.machine), own.to_vec()].concat()
    };
    let facts: Vec<Vec<Vec<String>>> = all.iter().map(facts).collect();
    let names = facts.first().into_iter().flatten().map(|fact| fact[0].clone());
    let rows = names.enumerate().map(|(at, name)| {
        std::iter::once(name).chain(facts.iter().map(|facts| facts[at][1].clone())).collect()
    });
    let head = std::iter::once(String::new()).chain(all.iter().map(|(name, _)| name.clone()));
    Table { head: head.collect(), rows: rows.collect(), ..Table::default() }.prose()
}

/// A sentence with the ratio of each machine with 1 receiver.
fn with_one(all: &[Named], pair: Pair) -> String {
    let found = all.iter().filter_map(|(name, results)| {
        let ratio = |size| Some((size, results.body.ratio(pair.over, pair.under, size, 1)?));
        let (size, ratio) = [128, 64].into_iter().find_map(ratio)?;
        Some(format!("{} on {name} ({})", gain(ratio), bytes(size)))
    });
    let found = around(found, |found| format!("Here, with 1 receiver: {}.", and(found)));
    found.unwrap_or_else(|| "No machine has results of both mechanisms with 1 receiver.".to_owned())
}

/// A figure for each size, with a line for each machine.
fn figures(all: &[Named], pair: Pair) -> Vec<Figure> {
    let sizes = sorted(all.iter().flat_map(|(_, results)| results.body.all_sizes()));
    let figure = |size: u64| {
        let line = |(at, (name, results)): (usize, &Named)| {
            Series::nth(at, name, factors(&results.body, pair.over, pair.under, size))
        };
        let number = pair.figures.iter().find(|(known, _)| *known == size);
        let place = number.map_or(String::new(), |(_, number)| format!("Figure {number}: "));
        let stem = format!("{}-by-machine-{}", pair.over.replace('_', "-"), stem_of(size));
        let heading = format!("{place}{}, {} messages", pair.heading, bytes(size));
        let caption = "Ratio of the two throughputs by number of receivers, one line for each machine. 2\u{d7} \
                       is the paper\u{2019}s +100 %.";
        let series = all.iter().enumerate().map(line).collect();
        of_ratios(series, "Factor", (stem, heading), caption)
    };
    sizes.into_iter().filter_map(figure).collect()
}

/// The ratios with 1 receiver, including sizes without a figure.
fn ratios(all: &[Named], pair: Pair) -> Table {
    let sizes = sorted(all.iter().flat_map(|(_, results)| results.body.sizes(1)));
    let names = (|size: &u64| bytes(*size), |(name, _): &Named| name.clone());
    let table = Table::matrix("Message size", &sizes, all, names, |size, (_, results)| {
        results.body.ratio(pair.over, pair.under, *size, 1).map(gain)
    });
    table.captioned(format!("{}, 1 receiver", pair.heading))
}

/// The throughput of every mechanism that a machine has.
fn rates(all: &[Named], size: u64) -> Table {
    let mut mechanisms: Vec<&About> = Vec::new();
    for mechanism in all.iter().flat_map(|(_, results)| &results.body.mechanisms) {
        if !mechanisms.iter().any(|known| known.id == mechanism.id) {
            mechanisms.push(mechanism);
        }
    }
    let names = (|it: &&About| it.name.clone(), |(name, _): &Named| name.clone());
    let table = Table::matrix("Messages received", &mechanisms, all, names, |it, (_, results)| {
        results.body.rate(&it.id, size, 1).map(rate)
    });
    table.captioned(format!("{} messages", bytes(size)))
}
