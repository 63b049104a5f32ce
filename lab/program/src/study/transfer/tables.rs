//! The tables of the page: set-up, memory, overlap, and one message to all.

use corewire_transfer::mechanisms::PairLink;

use super::decisions::cost_of;
use super::one_to_all::{Road, SIZES};
use super::pair::{CELL_BYTES, CELLS};
use super::plan::MIDDLE_BYTES;
use super::printed::{QUEUE, nemesis};
use super::results::{Key, Measure, State, Transfer};
use super::set_up::{PRIVATE, SHARABLE};
use super::ways::Id;
use crate::study::page::units::{bytes, nanoseconds, plural, round};
use crate::study::page::{NONE, Table, with_span};
use crate::study::results::sorted;

const MIDDLE: u64 = MIDDLE_BYTES as u64;
/// Processes for which memory is counted.
pub(super) const PROCESSES: u64 = 64;

/// Table III.
pub(super) fn set_up(found: &Transfer) -> Table {
    let cost = |id: Id, measure| cost_of(found, id, measure);
    // Its copies make no difference to the set-up.
    let is_shown = |id: &Id| *id != Id::PrintedStreaming && cost(*id, Measure::SetUp).is_some();
    let cell =
        |measure: Measure| move |id: &Id| cost(*id, measure).map_or(NONE.to_owned(), nanoseconds);
    let faults = |id: &Id| match cost(*id, Measure::Faults) {
        Some(time) if time > 0.0 => nanoseconds(time),
        Some(_) => "none".to_owned(),
        None => NONE.to_owned(),
    };
    let paper = |id: &Id| match id {
        Id::PrintedBuffer | Id::PrintedQueue => "10.9 and 5.1 \u{b5}s",
        Id::KernelPut | Id::KernelGet => "2.8 and 1.4 \u{b5}s",
        Id::NetworkPut | Id::NetworkGet => "4.5 and 212.4 \u{b5}s",
        Id::Ptrace => "0 and 0 \u{b5}s",
        _ => NONE,
    };
    let what = |id: &Id| match id {
        Id::PrintedBuffer | Id::PrintedQueue => "a System V segment of 20 KiB",
        Id::SharedBuffer | Id::MessageQueue => {
            "memory of one end (memfd), and a map of the other end\u{2019}s"
        }
        Id::Window | Id::Mapped => "a segment for 1 MiB",
        Id::NetworkPut | Id::NetworkGet => "1 MiB registered with libfabric",
        _ => "1 MiB registered: no system call",
    };
    let region = |id: &Id| if id.is_region_specific() { "yes" } else { "no" }.to_owned();
    let (each, all) = (|id: &Id| memory_of(*id).0, |id: &Id| memory_of(*id).1);
    Table::of_columns(
        Id::all().filter(is_shown),
        &[
            ("", &|id| id.name().to_owned()),
            ("Set-up", &|id| format!("{}\n{}", cell(Measure::SetUp)(id), what(id))),
            ("Page faults", &faults),
            ("Tear-down", &cell(Measure::TearDown)),
            ("The paper", &|id| paper(id).to_owned()),
            ("Region specific", &region),
            ("Memory", &each),
            ("Of 64 processes", &all),
        ],
    )
}

/// The memory that a mechanism needs, and that of many processes.
fn memory_of(id: Id) -> (String, String) {
    let pairs = PROCESSES * (PROCESSES - 1) / 2;
    let each_pair = |size: u64| (format!("{} for a pair", bytes(size)), bytes(pairs * size));
    match id {
        // One direction needs the buffers once.
        Id::PrintedBuffer | Id::PrintedStreaming => each_pair(2 * 20 * 1024),
        Id::PrintedQueue => {
            let options = nemesis(QUEUE);
            let each = options.bytes() as u64 / u64::from(options.processes);
            (format!("{} for a process", bytes(each)), bytes(PROCESSES * each))
        }
        Id::SharedBuffer | Id::MessageQueue => {
            let sizes = PairLink::sizes(CELLS, CELL_BYTES);
            let Ok(sizes) = sizes else { return (NONE.to_owned(), NONE.to_owned()) };
            each_pair(2 * sizes.segment_bytes())
        }
        Id::Window | Id::Mapped => ("that of the messages".to_owned(), NONE.to_owned()),
        _ => ("none".to_owned(), "none".to_owned()),
    }
}

/// Memory that others can map (IV-B).
pub(super) fn memory(found: &Transfer) -> Table {
    let price = |way: &str, size: u64| {
        found.point(&Key::new(Measure::Allocate, way, size, State::Touched))?.spread()
    };
    let gain = |size: &u64| {
        let more = price(SHARABLE, *size)?.median - price(PRIVATE, *size)?.median;
        let saved = found.time(Id::KernelGet, *size, State::Cold)?
            - found.time(Id::Window, *size, State::Cold)?;
        Some(if saved <= 0.0 {
            "never".to_owned()
        } else {
            format!("after {}", plural(round((more / saved).ceil().max(0.0)), "transfer"))
        })
    };
    Table::of_columns(
        found.sizes_of(Measure::Allocate),
        &[
            ("Made, touched and freed", &|size| bytes(*size)),
            ("Of this process alone (malloc)", &|size| {
                with_span(price(PRIVATE, *size), nanoseconds)
            }),
            ("Sharable (memfd)", &|size| with_span(price(SHARABLE, *size), nanoseconds)),
            ("Has paid against kernel gets", &|size| gain(size).unwrap_or_else(|| NONE.to_owned())),
        ],
    )
}

/// Buffers that are made for each message (II-A).
pub(super) fn demand(found: &Transfer) -> Table {
    let made = |size: &u64| {
        let key = Key::new(Measure::OnDemand, Id::SharedBuffer.text(), *size, State::Cold);
        found.point(&key)?.spread()
    };
    let ready = |size: &u64| found.time(Id::SharedBuffer, *size, State::Cold);
    Table::of_columns(
        found.sizes_of(Measure::OnDemand),
        &[
            ("Message through the library\u{2019}s shared buffer", &|size| bytes(*size)),
            ("Rings made for it", &|size| with_span(made(size), nanoseconds)),
            ("Rings that are there", &|size| ready(size).map_or(NONE.to_owned(), nanoseconds)),
        ],
    )
}

/// What is hidden (IV-A).
pub(super) fn overlap(found: &Transfer) -> Table {
    let cell = |measure: Measure| {
        move |id: &Id| {
            let key = Key::new(measure, id.text(), MIDDLE, State::Cold);
            let spread = found.point(&key).and_then(|point| point.spread());
            with_span(spread, |share| format!("{} %", round(100.0 * share)))
        }
    };
    let is_shown = |id: &Id| found.hidden(Measure::RemoteOverlap, *id).is_some();
    let local = |id: &Id| match id {
        Id::KernelPut | Id::NetworkPut => "sender".to_owned(),
        _ => "receiver".to_owned(),
    };
    Table::of_columns(
        Id::all().filter(is_shown),
        &[
            ("", &|id| id.name().to_owned()),
            ("Starts the copy", &local),
            ("The other side computes", &cell(Measure::RemoteOverlap)),
            ("This side computes", &cell(Measure::LocalOverlap)),
        ],
    )
}

/// One message to all: a table for each size.
pub(super) fn one_to_all(found: &Transfer) -> Vec<Table> {
    let counts = sorted(found.of(Measure::OneToAll).map(|point| point.key.count));
    let table = |size: usize| {
        let key = |road: Road, count: u64| {
            let key = Key::new(Measure::OneToAll, road.text(), size as u64, State::Touched);
            key.of_parts(count, 0)
        };
        let names =
            (|road: &Road| road.name().to_owned(), |count: &u64| plural(*count, "receiver"));
        let table = Table::matrix("", &Road::ALL, &counts, names, |road, count| {
            let spread = found.point(&key(*road, *count))?.spread()?;
            let ratio = found.ratio(&key(*road, *count), &key(Road::ChannelInPlace, *count));
            let note = ratio
                .filter(|_| *road != Road::ChannelInPlace)
                .map(|ratio| format!("\n{}\u{d7} the channel in place", round(ratio.median)));
            Some(nanoseconds(spread.median) + &note.unwrap_or_default())
        });
        table.captioned(format!("{}, written by the sender and read by all", bytes(size as u64)))
    };
    if counts.is_empty() { Vec::new() } else { SIZES.map(table).into() }
}
