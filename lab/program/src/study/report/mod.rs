//! `report.html`: the results of a study beside the claims of the paper.
//!
//! Every sentence with a figure is computed from the results, so that the page describes this machine,
//! not the machine of the developers.

mod absent;
pub(crate) mod active;
mod chart;
mod claims;
pub(crate) mod collectives;
mod comparison;
mod conclude;
mod costs;
mod dots;
mod error;
mod escape;
mod facts;
mod improvement;
pub(crate) mod interfaces;
mod labels;
mod look;
mod machine;
mod model;
pub(crate) mod nemesis;
mod page;
mod plot;
pub(crate) mod protocols;
pub(crate) mod routing;
mod scale;
mod senders;
mod svg;
mod table_one;
mod throughput;
mod units;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

use crate::study::results::Results;

use chart::Figure;
use claims::Claim;
use error::Error;
pub(crate) use error::Error as PageError;
use page::{Section, paragraph};
use svg::{Format, Place};

/// The page for one machine.
pub(crate) fn render(results: &Results) -> Result<String, Error> {
    let title = "Message passing between cores: ZIMP\u{2019}s benchmark on this machine";
    let short = conclude::in_short(results);
    let short = if short.is_empty() {
        String::new()
    } else {
        format!("<div class=\"short\">\n<h2>In short</h2>\n{}</div>\n", page::list(&short))
    };
    let summary = escape::escape(&conclude::summary(results));
    let lead = format!("<p class=\"lead\">{summary}</p>\n{short}");
    let mut sections = vec![
        Section::new("machine", "The machine", machine::html(results)),
        Section::new("reading", "How to read", machine::how_to_read(results)),
    ];
    sections.extend(papers_figures(results)?);
    sections.extend(further_figures(results)?);
    sections.extend(words(results));
    Ok(page::page(title, &lead, &sections))
}

/// The page for several machines side by side, each with its name.
pub(crate) fn render_comparison(all: &[(String, Results)]) -> Result<String, Error> {
    comparison::render(all)
}

/// The SVG of every figure of the page, with the stem of its file name.
pub(crate) fn plots(results: &Results) -> Result<Vec<(String, String)>, Error> {
    let throughput = throughput::with_one_receiver(results).into_iter();
    let figures = throughput
        .chain(throughput::with_more_receivers(results))
        .chain(improvement::over_others(results))
        .chain(improvement::over_barrelfish(results))
        .chain(senders::figures(results))
        .chain(costs::latency(results))
        .chain(costs::processor_time(results))
        .chain(model::figures(results));
    figures
        .map(|figure| {
            let picture = page::picture(&figure, Format::Wide, Place::File)?;
            Ok((figure.stem, picture))
        })
        .collect()
}

/// The figures of the paper's section IV-B, redrawn.
fn papers_figures(results: &Results) -> Result<Vec<Section>, Error> {
    let claimed = |claims: &[Claim], figures: &[Figure], missing: &str| {
        let figures = figures_or(figures, missing)?;
        Ok::<String, Error>(claims::html(claims) + &figures)
    };
    let one = claimed(
        &claims::one_receiver(results),
        &throughput::with_one_receiver(results),
        "Figure 2 needs at least two message sizes with 1 receiver; this run has fewer.",
    )? + &numbers(results, 1);
    let more = claimed(
        &claims::most_receivers(results),
        &throughput::with_more_receivers(results),
        "Figure 3 and Appendix A need at least two message sizes with several receivers; this run has \
         fewer.",
    )?;
    let receivers = claimed(
        &claims::by_receivers(results),
        &improvement::over_others(results),
        "Figures 4 and 5 need several numbers of receivers; this run has one.",
    )?;
    let barrelfish: Vec<Figure> = improvement::over_barrelfish(results).into_iter().collect();
    let hardware = claimed(
        &claims::hardware(results),
        &barrelfish,
        "Figure 6 needs ZIMP and Barrelfish MP with several numbers of receivers; this run does not have both.",
    )?;
    Ok(vec![
        Section::new("size", "Message size (Figure 2)", one),
        Section::new("more", "More receivers (Figure 3, Appendix A)", more),
        Section::new("receivers", "Number of receivers (Figures 4 and 5, Appendix B)", receivers),
        Section::new("hardware", "Hardware (Figure 6, Appendix C)", hardware),
    ])
}

/// Sections on results that the paper's micro-benchmark does not show.
fn further_figures(results: &Results) -> Result<Vec<Section>, Error> {
    let senders = figures_or(
        &senders::figures(results),
        "This run has no throughput of several senders to draw.",
    )?;
    let latency: Vec<Figure> = costs::latency(results).into_iter().collect();
    let latency = figures_or(&latency, "This run has too few latencies to draw.")?;
    let time = figures_or(
        &costs::processor_time(results),
        "This run has no processor time at 64 B or 4 KiB with 1 receiver.",
    )?;
    let model = model::html(results)?;
    Ok(vec![
        Section::new("senders", "Several senders", senders),
        Section::new("latency-section", "Latency", latency),
        Section::new("cost", "Processor time per message", time + &costs::counters(results)),
        Section::new("losses", "Lost messages", costs::losses(results)),
        Section::new("table-one", "Copies and system calls (Table I)", table_one::html(results)),
        Section::new("model", "Coherence model", model),
    ])
}

fn words(results: &Results) -> Vec<Section> {
    let conclusions = conclude::in_full(results);
    let conclusions = if conclusions.is_empty() {
        paragraph("This run has too few results for conclusions.")
    } else {
        page::list(&conclusions)
    };
    vec![
        Section::new("absent", "What could not be measured here", machine::not_measured(results)),
        Section::new("conclusion", "What to conclude", conclusions),
        Section::new("mechanisms", "How each mechanism was set up", machine::mechanisms(results)),
    ]
}

fn figures_or(figures: &[Figure], missing: &str) -> Result<String, Error> {
    if figures.is_empty() { Ok(paragraph(missing)) } else { page::figures(figures) }
}

fn numbers(results: &Results, receivers: u32) -> String {
    let table = throughput::numbers(results, receivers);
    if table.rows.is_empty() || table.head.len() < 2 {
        return String::new();
    }
    page::folded("The medians as a table", &table.html(""))
}
