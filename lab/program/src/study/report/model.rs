//! The results of the coherence model, for more receivers than available machines have.

use crate::study::results::{Model, Results};

use super::chart::{Axis, Chart, Figure, Mark, Picture, Series};
use super::error::Error;
use super::page::{self, Table, paragraph};
use super::units::{Quantity, nanoseconds, round};
use super::{facts, look};

/// The model's rings, and the mechanisms whose looks they use.
const RINGS: [(&str, &str); 3] =
    [("barrelfish_mp", "barrelfish_mp"), ("zimp", "zimp"), ("corewire", "corewire_copy")];
/// The numbers of receivers that a long table is reduced to.
const SHOWN: [u32; 10] = [1, 2, 3, 4, 8, 16, 32, 64, 128, 255];

/// The plot and the tables, or a statement that the model was not run.
pub(crate) fn html(results: &Results) -> Result<String, Error> {
    if results.model.is_empty() {
        return Ok(paragraph("The coherence model was not run."));
    }
    let lead = paragraph(
        "The model simulates each access of each process to each cache line, for messages of 48 bytes. It \
         does not depend on this machine. Lines are the cache lines that a core fetches (of the \
         receivers, the one that fetches most). Read-modify-writes happen one after the other, in \
         whichever process. The times are those of the model's clocks, not of this machine.",
    );
    let tables: String = RINGS.iter().map(|(ring, _)| table(results, ring)).collect();
    let figures: Vec<Figure> = figures(results);
    Ok(lead + &page::figures(&figures)? + &tables)
}

/// The time from one message to the next, by number of receivers.
pub(crate) fn figures(results: &Results) -> Vec<Figure> {
    let series = RINGS.iter().map(|(ring, mechanism)| {
        let marks = rows(results, ring).into_iter().map(|row| {
            let x = f64::from(row.receivers);
            Some(Mark { x, y: row.stream_ns, span: None, hollow: false })
        });
        let name = ring_name(results, ring);
        let short = look::clip(&name, 13);
        Series { name, short, look: look::of_mechanism(mechanism), marks: marks.collect() }
    });
    let x = Axis::new("Receivers", Quantity::Count);
    let y = Axis::new("Time per message (model)", Quantity::Nanoseconds);
    let chart = Chart { x, y, series: series.collect(), reference: None }.shown();
    let figure = chart.map(|chart| Figure {
        stem: "coherence-model".to_owned(),
        heading: "Coherence model: time per message by receivers".to_owned(),
        caption:
            "Time from one send to the next in a stream of 48-byte messages, on the model's clocks. \
                  Lower is better."
                .to_owned(),
        picture: Picture::Lines(chart),
    });
    figure.into_iter().collect()
}

/// The model's row for a ring and a number of receivers.
pub(crate) fn row<'a>(results: &'a Results, ring: &str, receivers: u32) -> Option<&'a Model> {
    results.model.iter().find(|row| (row.ring.as_str(), row.receivers) == (ring, receivers))
}

fn rows<'a>(results: &'a Results, ring: &str) -> Vec<&'a Model> {
    let mut rows: Vec<&Model> = results.model.iter().filter(|row| row.ring == ring).collect();
    rows.sort_by_key(|row| row.receivers);
    rows
}

fn ring_name(results: &Results, ring: &str) -> String {
    match ring {
        "corewire" => "corewire".to_owned(),
        other => facts::name(results, other),
    }
}

fn table(results: &Results, ring: &str) -> String {
    let all = rows(results, ring);
    let is_short = all.len() <= 14;
    let shown = all.into_iter().filter(|row| is_short || SHOWN.contains(&row.receivers));
    let rows: Vec<Vec<String>> = shown
        .map(|row| {
            let counts = [
                row.sender_transfers,
                row.receiver_transfers,
                row.invalidations,
                row.read_modify_writes,
            ];
            let cells = counts.map(round).into_iter().chain([nanoseconds(row.stream_ns)]);
            std::iter::once(row.receivers.to_string()).chain(cells).collect()
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = [
        "Receivers",
        "Lines to sender",
        "Lines to receiver",
        "Invalida\u{ad}tions",
        "Read-modify-writes",
        "Time",
    ];
    let head = head.map(str::to_owned).into();
    Table { head, rows, is_prose: false }
        .html(&format!("{}, per message", ring_name(results, ring)))
}
