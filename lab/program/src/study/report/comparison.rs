//! Shows machines side by side: Figures 6 and 38 to 45 of the paper, and the same for corewire.

use crate::study::results::{Mechanism, Results};

use super::chart::{Figure, Picture, Series};
use super::error::Error;
use super::escape::escape;
use super::page::{self, Section, Table, paragraph};
use super::throughput::oversubscribed_note;
use super::units::{and, bytes, gain, plural, rate};
use super::{facts, improvement, look, machine};

/// The name and the results of one machine.
type Named = (String, Results);

/// The throughput of `over` is divided by that of `under`.
#[derive(Debug, Clone, Copy)]
struct Pair {
    over: &'static str,
    under: &'static str,
    heading: &'static str,
}

const ZIMP: Pair =
    Pair { over: "zimp", under: "barrelfish_mp", heading: "ZIMP over Barrelfish MP" };
const COREWIRE: Pair =
    Pair { over: "corewire_copy", under: "zimp", heading: "corewire copying out over ZIMP" };

/// The sizes in the paper's figures of several machines, and the numbers of the figures.
const FIGURES: [(u64, u32); 9] = [
    (1, 38),
    (64, 39),
    (128, 6),
    (512, 40),
    (1024, 41),
    (4096, 42),
    (10_240, 43),
    (102_400, 44),
    (1_048_576, 45),
];

/// The page for several machines, as HTML.
pub(crate) fn render(all: &[Named]) -> Result<String, Error> {
    let labels: Vec<String> = all.iter().map(|(label, _)| label.clone()).collect();
    let lead = format!(
        "The micro-benchmark of the paper \u{201c}ZIMP: Efficient Inter-core Communications on Manycore \
         Machines\u{201d} on {}: {}.",
        plural(all.len(), "machine"),
        and(&labels)
    );
    let lead = format!("<p class=\"lead\">{}</p>\n", escape(&lead));
    let claim = "The paper: above 1 receiver, the three machines' curves lie close together (standard \
                 deviation below 9 % on average, 128 B messages); with 1 receiver ZIMP's improvement is \
                 \u{2212}7.7 % on one machine and above +4.9 % on the others.";
    let zimp = paragraph(claim) + &found(all, ZIMP) + &drawn(all, ZIMP)? + &ratios(all, ZIMP);
    let corewire = found(all, COREWIRE) + &drawn(all, COREWIRE)? + &ratios(all, COREWIRE);
    let throughput: String = [64, 4096].into_iter().map(|size| rates(all, size)).collect();
    let sections = [
        Section::new("machines", "The machines", machines(all)),
        Section::new("zimp", "ZIMP over Barrelfish MP (Figures 6 and 38\u{2013}45)", zimp),
        Section::new("corewire", "corewire copying out over ZIMP", corewire),
        Section::new("throughput", "Throughput, 1 receiver", throughput),
    ];
    Ok(page::page("Message passing between cores: machines side by side", &lead, &sections))
}

fn machines(all: &[Named]) -> String {
    let labels = all.iter().map(|(label, _)| label.clone());
    let head = std::iter::once(String::new()).chain(labels).collect();
    let row = |name: &str, of: fn(&Results) -> String| {
        let cells = all.iter().map(|(_, results)| of(results));
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    let rows = vec![
        row("Processor", |results| results.machine.processor.clone()),
        row("Cores", |results| machine::cores(&results.machine)),
        row("Caches", |results| machine::caches(&results.machine)),
        row("Memory", |results| bytes(results.machine.memory_bytes)),
        row("Kernel", |results| results.machine.kernel.clone()),
        row("Hypervisor", |results| {
            results.machine.hypervisor.clone().unwrap_or_else(|| "none".to_owned())
        }),
        row("Runs", |results| format!("{} of {} s", results.runs, results.run_s)),
    ];
    Table { head, rows, is_prose: true }.html("")
}

/// A sentence with the ratio of each machine with 1 receiver.
fn found(all: &[Named], pair: Pair) -> String {
    let found = all.iter().filter_map(|(label, results)| {
        let size = [128, 64]
            .into_iter()
            .find(|size| facts::ratio(results, pair.over, pair.under, *size, 1).is_some())?;
        let ratio = facts::ratio(results, pair.over, pair.under, size, 1)?;
        Some(format!("{} on {label} ({})", gain(ratio), bytes(size)))
    });
    let found: Vec<String> = found.collect();
    match found.as_slice() {
        [] => paragraph("No machine has results of both mechanisms with 1 receiver."),
        _ => paragraph(&format!("Here, with 1 receiver: {}.", and(&found))),
    }
}

fn drawn(all: &[Named], pair: Pair) -> Result<String, Error> {
    let sizes = facts::sorted(all.iter().flat_map(|(_, results)| facts::all_sizes(results)));
    let figures: Vec<Figure> =
        sizes.into_iter().filter_map(|size| figure(all, pair, size)).collect();
    if figures.is_empty() {
        return Ok(paragraph(
            "No machine has results of both mechanisms with several numbers of receivers.",
        ));
    }
    page::figures(&figures)
}

fn figure(all: &[Named], pair: Pair, size: u64) -> Option<Figure> {
    let series = all.iter().enumerate().map(|(at, (label, results))| Series {
        name: label.clone(),
        short: label.clone(),
        look: look::nth(at),
        marks: improvement::marks(results, (pair.over, pair.under), size),
    });
    let chart = improvement::chart(series.collect(), "Factor")?;
    let crowd = oversubscribed_note(chart.marks().any(|mark| mark.hollow));
    let number = improvement::papers_figure(&FIGURES, size).filter(|_| pair.over == ZIMP.over);
    let place = number.map(|number| format!("Figure {number}: ")).unwrap_or_default();
    let (heading, size_text) = (pair.heading, bytes(size));
    let over = pair.over.replace('_', "-");
    Some(Figure {
        stem: format!("{over}-by-machine-{}", improvement::stem_of(size)),
        heading: format!("{place}{heading}, {size_text} messages"),
        caption: format!(
            "Ratio of the two throughputs by number of receivers, one line for each machine. 2\u{d7} is \
             the paper's +100 %.{crowd}"
        ),
        picture: Picture::Lines(chart),
    })
}

/// A table of the ratios with 1 receiver, including sizes without a figure.
fn ratios(all: &[Named], pair: Pair) -> String {
    let sizes = facts::sorted(all.iter().flat_map(|(_, results)| facts::sizes(results, 1)));
    let labels = all.iter().map(|(label, _)| label.clone());
    let head = std::iter::once("Message size".to_owned()).chain(labels).collect();
    let row = |size: u64| {
        let ratios =
            all.iter().map(|(_, results)| facts::ratio(results, pair.over, pair.under, size, 1));
        let cells = ratios.map(|ratio| ratio.map_or("\u{2013}".to_owned(), gain));
        std::iter::once(bytes(size)).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = sizes.into_iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    Table { head, rows, is_prose: false }.html(&format!("{}, 1 receiver", pair.heading))
}

fn rates(all: &[Named], size: u64) -> String {
    let mut mechanisms: Vec<&Mechanism> = Vec::new();
    for mechanism in all.iter().flat_map(|(_, results)| &results.mechanisms) {
        if !mechanisms.iter().any(|known| known.id == mechanism.id) {
            mechanisms.push(mechanism);
        }
    }
    let labels = all.iter().map(|(label, _)| label.clone());
    let head = std::iter::once("Messages received".to_owned()).chain(labels).collect();
    let rows = mechanisms
        .into_iter()
        .map(|mechanism| {
            let rates = all.iter().map(|(_, results)| results.rate(&mechanism.id, size, 1));
            let cells = rates.map(|found| found.map_or("\u{2013}".to_owned(), rate));
            std::iter::once(mechanism.name.clone()).chain(cells).collect()
        })
        .collect();
    Table { head, rows, is_prose: false }.html(&format!("{} messages", bytes(size)))
}
