//! The figures of the page.

use corewire_harness::statistics::Spread;

use super::copies;
use super::plan::LONG_BYTES;
use super::queries::impact;
use super::results::{Key, Measure, Point, State, Transfer};
use super::transfers;
use super::ways::Id;
use crate::study::page::units::{Quantity, bytes, nanoseconds, plural, round};
use crate::study::page::{Axis, Chart, Figure, Mark, NONE, Series, Table, with_span};

/// Sizes in tables.
const SHOWN: [u64; 7] = [1, 512, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20];

#[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
fn of(size: u64) -> f64 {
    size as f64
}

/// Bytes per second of a point, with the slowest and the fastest run.
fn rate(point: &Point, x: u64) -> Option<Mark> {
    let Spread { median, min, max } = point.spread()?;
    let [y, high, low] = [median, min, max].map(|time| of(point.key.bytes) / (time / 1e9));
    Some(Mark { span: Some((low, high)), ..Mark::at(of(x), y) })
}

fn chart(x: &str, y: &str, series: Vec<Series>) -> Chart {
    let (x, y) = (Axis::new(x, Quantity::Bytes), Axis::new(y, Quantity::ByteRate));
    Chart { x, y, series, reference: None }
}

/// Figure 2: one for each state of the data.
pub(super) fn copies(found: &Transfer) -> Vec<Figure> {
    let figure = |state: State| {
        let line = |(at, routine): (usize, corewire_ring::copying::Routine)| {
            let own = found
                .of(Measure::Copy)
                .filter(|point| (point.key.state, &point.key.way[..]) == (state, routine.name()));
            Series::nth(at, routine.name(), own.map(|point| rate(point, point.key.bytes)).collect())
        };
        let series = copies::routines().into_iter().enumerate().map(line).collect();
        let (stem, words) = match state {
            State::Warm => ("warm", "the same buffers each time"),
            State::Shared => ("shared", "another core reads the copy next, in the same time"),
            _ => ("cold", "buffers in no private cache, as in the paper"),
        };
        let heading = format!("Figure 2: copy routines, {words}");
        let chart = chart("Bytes of a copy", "Bytes per second", series);
        chart.figure((format!("figure-2-{stem}"), heading), "Both axes are logarithmic.")
    };
    copies::STATES.into_iter().filter_map(figure).collect()
}

/// Figure 3: by number and size of buffers, and by size of cells.
pub(super) fn buffers(found: &Transfer) -> Vec<Figure> {
    let line = |at: usize, name: &str, id: Id, count: Option<u64>| {
        let way = id.text();
        let own = found.of(Measure::Pipe).filter(|point| {
            point.key.way == way && count.is_none_or(|count| count == point.key.count)
        });
        Series::nth(at, name, own.map(|point| rate(point, point.key.part_bytes)).collect())
    };
    let printed = [1, 2, 4, 8].into_iter().enumerate();
    let printed = printed.map(|(at, count)| {
        let name = if count == 1 { "1 buffer".to_owned() } else { format!("{count} buffers") };
        line(at, &name, Id::PrintedBuffer, Some(count))
    });
    let buffers = chart("Bytes of a buffer", "Bytes per second, 4 MiB", printed.collect());
    let cells = vec![
        line(0, "queue, as printed", Id::PrintedQueue, None),
        line(1, "message queue", Id::MessageQueue, None),
        line(2, "shared buffer", Id::SharedBuffer, None),
    ];
    let cells = chart("Bytes of a cell", "Bytes per second, 4 MiB", cells);
    let of_buffers = "Figure 3: the shared buffer as printed, by size and number of its buffers";
    let of_cells = "Figure 3: message queues by the size of their cells, and the library\u{2019}s shared buffer";
    let figures = [
        buffers.figure(("figure-3-buffers", of_buffers), "Both axes are logarithmic."),
        cells.figure(
            ("figure-3-cells", of_cells),
            "As printed, all cells of a process wait in one queue; the library has one ring for each pair.",
        ),
    ];
    figures.into_iter().flatten().collect()
}

/// What copies out of two buffers of 8 KiB, in Figure 3.
pub(super) fn routines_of_pipe(found: &Transfer) -> Table {
    let rows = copies::routines().into_iter().filter_map(|routine| {
        let key = Key::new(Measure::Pipe, routine.name(), LONG_BYTES as u64, State::Cold);
        Some((routine.name(), found.point(&key.of_parts(2, 8 << 10))?.spread()?))
    });
    let cell = |spread: Spread| {
        with_span(Some(spread), |time| {
            Quantity::ByteRate.tick(of(LONG_BYTES as u64) / (time / 1e9))
        })
    };
    Table::of_columns(
        rows,
        &[
            ("Copies out by", &|(name, _)| (*name).to_owned()),
            ("4 MiB", &|(_, spread)| cell(*spread)),
        ],
    )
}

/// The fastest form of each mechanism in Figure 3: its name, its buffers or cells, and its time.
pub(super) fn best_parts(found: &Transfer) -> Vec<(&'static str, String, f64)> {
    let best = |name, id: Id| {
        let way = id.text();
        let points = found.of(Measure::Pipe).filter(|point| point.key.way == way);
        let times = points.filter_map(|point| Some((&point.key, point.spread()?.median)));
        let (key, time) = times.min_by(|one, other| one.1.total_cmp(&other.1))?;
        let size = bytes(key.part_bytes);
        let parts = match id {
            Id::PrintedBuffer => format!("{} of {size}", plural(key.count, "buffer")),
            _ => format!("cells of {size}"),
        };
        Some((name, parts, time))
    };
    let all = [
        best("the shared buffer as printed", Id::PrintedBuffer),
        best("the message queue as printed", Id::PrintedQueue),
        best("the library\u{2019}s shared buffer", Id::SharedBuffer),
        best("the library\u{2019}s message queue", Id::MessageQueue),
    ];
    all.into_iter().flatten().collect()
}

/// The words for a state of the data.
pub(super) const fn words(state: State) -> &'static str {
    match state {
        State::Touched => "written before and read after",
        State::Warm => "the same buffers each time, untouched",
        _ => "cold and untouched",
    }
}

/// Figure 4: one for each state of the data.
pub(super) fn transfers(found: &Transfer) -> Vec<Figure> {
    let figure = |state: State| {
        let line = |id: Id| {
            let way = id.text();
            let own = found.of(Measure::Transfer);
            let own = own.filter(|point| (point.key.state, &point.key.way) == (state, &way));
            let marks = own.map(|point| rate(point, point.key.bytes)).collect();
            Series::of(&way, id.name(), marks)
        };
        let chart = chart("Message size", "Bytes per second", Id::all().map(line).collect());
        let heading = format!("Figure 4: bandwidth, {}", words(state));
        let caption = "Median of all blocks; thin bars reach from the slowest to the fastest run. Both axes are logarithmic.";
        chart.figure((format!("figure-4-{}", state.text()), heading), caption)
    };
    transfers::STATES.into_iter().filter_map(figure).collect()
}

/// The times of Figure 4, and how they compare with the fastest.
pub(super) fn times(found: &Transfer) -> Vec<Table> {
    let shown: Vec<u64> = found.sizes.iter().copied().filter(|size| SHOWN.contains(size)).collect();
    let ids: Vec<Id> = Id::all().collect();
    let table = |state: State| {
        let names = (|id: &Id| id.name().to_owned(), |size: &u64| bytes(*size));
        Table::matrix("One way", &ids, &shown, names, |id, size| {
            let key = |id: Id| Key::new(Measure::Transfer, id.text(), *size, state);
            let time = found.median(&key(*id))?;
            let ratio = match id {
                Id::KernelGet => None,
                _ => found.ratio(&key(*id), &key(Id::KernelGet)),
            };
            let note = ratio.map(|ratio| format!("\n{}\u{d7} kernel get", round(ratio.median)));
            Some(nanoseconds(time) + &note.unwrap_or_default())
        })
        .captioned(format!("Times, {}", words(state)))
    };
    let measured = found.sizes_of(Measure::Transfer);
    if measured.is_empty() { Vec::new() } else { transfers::STATES.map(table).into() }
}

/// Table II.
pub(super) fn latencies(found: &Transfer) -> Table {
    let Some(&least) = found.sizes.first() else { return Table::default() };
    let spread = |id: Id, state| {
        found.point(&Key::new(Measure::Transfer, id.text(), least, state))?.spread()
    };
    let all = std::iter::once(Id::Nothing).chain(Id::all());
    let all = all.filter(|id| spread(*id, State::Cold).is_some());
    let paper = |id: &Id| {
        id.paper_latency_us().map_or(NONE.to_owned(), |us| format!("{} \u{b5}s", round(us)))
    };
    Table::of_columns(
        all,
        &[
            ("", &|id| id.name().to_owned()),
            (&format!("{}, cold", bytes(least)), &|id| {
                with_span(spread(*id, State::Cold), nanoseconds)
            }),
            ("Written and read", &|id| with_span(spread(*id, State::Touched), nanoseconds)),
            ("Warm", &|id| with_span(spread(*id, State::Warm), nanoseconds)),
            ("The paper", &paper),
        ],
    )
}

/// Figure 5: one for each side.
pub(super) fn cache(found: &Transfer) -> Vec<Figure> {
    let sides = [
        (
            Measure::SourceLines,
            "source",
            "Figure 5: lines that the source\u{2019}s user buffer lost, estimated",
        ),
        (
            Measure::TargetLines,
            "destination",
            "Figure 5: lines that the destination\u{2019}s user buffer lost, estimated",
        ),
    ];
    let figure = |(measure, stem, heading): (Measure, &str, &str)| {
        let line = |id: Id| {
            let way = id.text();
            let own = found.of(measure).filter(|point| point.key.way == way);
            // A logarithmic axis has no zero.
            let mark = |point: &Point| {
                Some(Mark::at(of(point.key.bytes), point.spread()?.median.max(1.0)))
            };
            Series::of(&way, id.name(), own.map(mark).collect())
        };
        let y = Axis::new("Lines that are not in the cache any more", Quantity::Count);
        let x = Axis::new("Message size", Quantity::Bytes);
        let series = Id::all().map(line).collect();
        let chart = Chart { x, y, series, reference: None };
        let caption =
            "Estimated from times. Less than one line is drawn as one. Both axes are logarithmic.";
        chart.figure((format!("figure-5-{stem}"), heading), caption)
    };
    sides.into_iter().filter_map(figure).collect()
}

/// Table IV.
pub(super) fn impacts(found: &Transfer) -> Table {
    let all = std::iter::once(Id::Nothing).chain(Id::all());
    let cell = |measure: Measure| {
        move |id: &Id| {
            let key = Key::new(measure, id.text(), LONG_BYTES as u64, State::Cold);
            let Some(lines) = found.median(&key) else { return NONE.to_owned() };
            let share = found.share(measure, *id, LONG_BYTES as u64).unwrap_or_default();
            format!("{}\n{} lines, {} %", impact(share), round(lines), round(100.0 * share))
        }
    };
    let counted = |measure: Measure| {
        move |id: &Id| {
            let key = Key::new(measure, id.text(), LONG_BYTES as u64, State::Cold);
            found.median(&key).map_or(NONE.to_owned(), round)
        }
    };
    let source = |id: &Id| found.shares(*id).is_some();
    let all: Vec<Id> = all.filter(source).collect();
    let mut table = Table::of_columns(
        all,
        &[
            ("", &|id| id.name().to_owned()),
            ("Source", &cell(Measure::SourceLines)),
            ("Destination", &cell(Measure::TargetLines)),
            ("The paper", &|id| id.paper_impact().unwrap_or(NONE).to_owned()),
            ("Counted misses, source", &counted(Measure::SourceMisses)),
            ("Counted misses, destination", &counted(Measure::TargetMisses)),
        ],
    );
    // Without counters the last two columns are empty.
    if found.of(Measure::TargetMisses).next().is_none() {
        table.head.truncate(4);
        table.rows.iter_mut().for_each(|row| row.truncate(4));
    }
    table
}
