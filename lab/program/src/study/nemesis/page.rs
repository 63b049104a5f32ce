//! The page of the study. Every sentence with a figure is computed.

use crate::study::page::units::{Quantity, and, bytes, nanoseconds, plural, round};
use crate::study::page::{
    Axis, Block, Chart, Figure, Mark, NONE, Page, Series, Table, whereabouts,
};
use crate::study::results::{About, Results, name_of};

use super::results::{Data, Nemesis, Point, Polling};

const OWN: &str = "corewire";
/// The forms of Nemesis: all optimisations, without fastboxes, and without the shadow head, too.
const NEMESIS: &str = "nemesis";
const QUEUES: &str = "nemesis_queues";
const PLAIN: &str = "nemesis_plain";
/// Libraries in common use.
const RIVALS: [&str; 2] = ["libfabric_shm", "open_mpi"];
/// How corewire carries the long messages of Figure 5.
const RENDEZVOUS: &str = " corewire carries messages of more than 128 KiB by rendezvous, as the paper suggests for large \
                          messages: they go from the sender\u{2019}s buffer straight to the receiver\u{2019}s, copied from both \
                          ends at once, where the kernel allows this; otherwise, and up to 128 KiB, through cells.";
/// The largest size in Figure 4.
const LATENCY_MAX: u64 = 1024;
/// Sizes in the tables, if they were measured.
const SHOWN: [u64; 10] = [0, 1, 8, 48, 64, 160, 512, 1024, 4096, 65_536];

/// The page for one machine: the results at the most frequent distance of its cores, and the
/// comparisons with libraries at the other distances.
pub(super) fn of(results: &Results<Nemesis>) -> Page {
    let distances = results.distances();
    let here = &results.at_most_frequent();
    let found = &here.body;
    let mut beside = beside_libraries(found, "");
    for distance in distances.iter().skip(1) {
        let Some((least, most)) = distance.line_ns else { continue };
        let times = [least, most].map(nanoseconds);
        let whence = format!("Where a bare line takes {} to {} one way: ", times[0], times[1]);
        beside.extend(beside_libraries(&results.at(distance).body, &whence));
    }
    let effort = format!(
        "{}: {} of {} for each size",
        here.effort,
        plural(found.runs, "run"),
        nanoseconds(found.run_s * 1e9)
    );
    let crowd = match found.oversubscribed {
        true => {
            "Both processes had to share one core, so the figures show how well they take turns."
        }
        false => "Each process has a core of its own.",
    };
    let optimisation = optimisations(found);
    let counts = Table::of_columns(
        &found.instructions,
        &[
            ("", &|count| operation(&count.operation).to_owned()),
            ("Instructions", &|count| round(count.instructions)),
            ("In the paper", &|count| {
                count.paper.map_or(NONE.to_owned(), |paper| paper.to_string())
            }),
        ],
    );
    let mut absent = About::gaps(&found.wires);
    absent.extend(found.instructions_absent.iter().map(|why| format!("Instructions: {why}.")));
    Page::of(include_str!("page.md"), here, &[("Effort", effort)])
        .value("times", times(found))
        .value("runs", runs(found))
        .value("crowd", crowd)
        .value("cold", bytes(found.cold_bytes))
        .value("whereabouts", whereabouts(&distances, "size"))
        .short(in_short(found))
        .block("beside", beside)
        .block("latency", latency(found))
        .block("numbers", Data::ALL.map(|data| numbers(here, data)).to_vec())
        .block("bandwidth", bandwidth(found))
        .block("optimisations", optimisation)
        .block("rings", found.rings())
        .block("instructions", counts)
        .block("polling_words", polling_words(found))
        .block(
            "polling",
            Block::Figures(
                [false, true].into_iter().filter_map(|all| polling(found, all)).collect(),
            ),
        )
        .block("absent", absent)
        .block("wires", About::settings(&found.wires, "Through"))
}

/// What 8 bytes take.
fn times(found: &Nemesis) -> String {
    let times = found.wires.iter().filter_map(|wire| {
        let time = nanoseconds(found.one_way_ns(&wire.id, 8, Data::WARM)?);
        Some(format!("{time} through {}", wire.name))
    });
    let times: Vec<String> = times.collect();
    if times.is_empty() {
        String::new()
    } else {
        format!("A message of 8 B takes {}.", and(&times))
    }
}

/// How many times as long a rival takes, by size.
fn to_rival(found: &Nemesis, rival: &str, data: Data) -> Vec<(u64, f64)> {
    let of = |size| {
        Some((size, found.one_way_ns(rival, size, data)? / found.one_way_ns(OWN, size, data)?))
    };
    found.sizes().into_iter().filter_map(of).collect()
}

/// One sentence for each library, and for Nemesis: how many times as long it takes, and where corewire is not ahead.
fn in_short(found: &Nemesis) -> Vec<String> {
    let sentence = |rival: &&str| {
        let all = Data::ALL.map(|data| to_rival(found, rival, data)).concat();
        let ahead = all.iter().filter(|(_, ratio)| *ratio > 1.0).count();
        let eight = to_rival(found, rival, Data::WARM).into_iter().find(|(size, _)| *size == 8);
        let eight = eight.map_or(String::new(), |(_, ratio)| {
            format!(" takes {} times as long as corewire for 8 B;", round(ratio))
        });
        let name = name_of(&found.wires, rival);
        let figures = plural(all.len(), "figure");
        (!all.is_empty())
            .then(|| format!("{name}{eight} corewire is ahead of it in {ahead} of {figures}."))
    };
    RIVALS.iter().chain(&[NEMESIS]).filter_map(sentence).collect()
}

/// Compares corewire with the libraries in common use.
fn beside_libraries(found: &Nemesis, whence: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    for (rival, data) in RIVALS.iter().flat_map(|rival| Data::ALL.map(|data| (rival, data))) {
        let ratios = to_rival(found, rival, data);
        let by_ratio = |a: &&(u64, f64), b: &&(u64, f64)| a.1.total_cmp(&b.1);
        let (Some(worst), Some(best)) =
            (ratios.iter().min_by(by_ratio), ratios.iter().max_by(by_ratio))
        else {
            continue;
        };
        let behind: Vec<String> =
            ratios.iter().filter(|(_, ratio)| *ratio <= 1.0).map(|it| bytes(it.0)).collect();
        let (who, count) = (name_of(&found.wires, rival), ratios.len());
        let how = match behind.len() {
            0 => format!("is ahead of {who} at all {count} sizes"),
            few => format!("is not ahead of {who} at {few} of {count} sizes ({})", and(&behind)),
        };
        sentences.push(format!(
            "{whence}With {} corewire {how}: {who} takes {} to {} times as long (the most at {}, the least at {}).",
            data.words(),
            round(worst.1),
            round(best.1),
            bytes(best.0),
            bytes(worst.0)
        ));
    }
    sentences
}

/// The number of runs of the points.
fn runs(found: &Nemesis) -> String {
    let counts = || found.points.iter().map(|point| point.runs.len()).filter(|&count| count > 0);
    let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    if least == most { plural(most, "run") } else { format!("{least} to {}", plural(most, "run")) }
}

/// Figure 4.
fn latency(found: &Nemesis) -> Vec<Figure> {
    let axis = Axis::new("One-way latency", Quantity::Nanoseconds);
    let about = ("figure-4", "Figure 4: latency of small messages", "");
    let figure = |data| by_size(found, about, data, &axis, LATENCY_MAX, |_, time| time);
    [Data::WARM, Data::COLD].into_iter().filter_map(figure).collect()
}

/// Figure 5.
fn bandwidth(found: &Nemesis) -> Vec<Figure> {
    let axis = Axis::new("Bytes per second, one way", Quantity::ByteRate);
    let about = ("figure-5", "Figure 5: bandwidth", RENDEZVOUS);
    let figure =
        |data| by_size(found, about, data, &axis, u64::MAX, |bytes, time| bytes / (time / 1e9));
    Data::ALL.into_iter().filter_map(figure).collect()
}

/// The figure for a kind of `data`, of messages up to `most` bytes. `of` computes a figure from size and time.
#[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
fn by_size(
    found: &Nemesis,
    (stem, heading, note): (&str, &str, &str),
    data: Data,
    y: &Axis,
    most: u64,
    of: impl Fn(f64, f64) -> f64,
) -> Option<Figure> {
    let mark = |point: &Point| {
        let spread = point.p50_ns()?;
        let x = point.bytes as f64;
        let [y, one, other] = [spread.median, spread.min, spread.max].map(|time| of(x, time));
        Some(Mark { span: Some((one.min(other), one.max(other))), ..Mark::at(x, y) })
    };
    let series = found.wires.iter().map(|wire| {
        let own = found.points.iter().filter(|point| (&point.wire, point.data) == (&wire.id, data));
        Series::of(
            &wire.id,
            &wire.name,
            own.filter(|point| point.bytes <= most).map(mark).collect(),
        )
    });
    let x = Axis::new("Message size", Quantity::Bytes);
    let chart = Chart { x, y: y.clone(), series: series.collect(), reference: None };
    let caption = format!(
        "Median of {}; thin bars reach from the smallest to the largest. Both axes are logarithmic.{note}",
        runs(found)
    );
    chart.figure(
        (format!("{stem}-{}", data.stem()), format!("{heading}, {}", data.words())),
        caption,
    )
}

fn shown_sizes(found: &Nemesis) -> Vec<u64> {
    let sizes = found.sizes();
    SHOWN.into_iter().filter(|size| sizes.contains(size)).collect()
}

/// The medians with a kind of data.
pub(super) fn numbers(results: &Results<Nemesis>, data: Data) -> Table {
    let found = &results.body;
    let names = (|wire: &About| wire.name.clone(), |size: &u64| bytes(*size));
    let time = |wire: &About, size: &u64| found.one_way_ns(&wire.id, *size, data).map(nanoseconds);
    Table::matrix("One way", &found.wires, &shown_sizes(found), names, time)
        .captioned(format!("With {}", data.words()))
}

/// The effect of each optimisation of the paper on this machine.
fn optimisations(found: &Nemesis) -> Table {
    let pairs = [
        ("Fastboxes (section 3.2; the paper: 500 ns less)", QUEUES, NEMESIS),
        ("Shadow head (section 3.1; the paper: 200 ns less)", PLAIN, QUEUES),
        ("Free queue at the sender, not the receiver", "nemesis_receiver", QUEUES),
        ("Free queue at the sender, not one for all", "nemesis_global", QUEUES),
        ("corewire\u{2019}s pair rings, not Nemesis with everything", NEMESIS, OWN),
    ];
    let names = (|(what, ..): &(&str, &str, &str)| (*what).to_owned(), |size: &u64| bytes(*size));
    Table::matrix("With it", &pairs, &shown_sizes(found), names, |(_, without, with), size| {
        let of = |wire: &str| found.one_way_ns(wire, *size, Data::WARM);
        Some(format!("{:+.0} ns", of(with)? - of(without)?))
    })
}

/// A counted operation, in words.
fn operation(name: &str) -> &'static str {
    match name {
        "pair_enqueue" => "corewire: write a slot of a pair ring, nothing else",
        "pair_dequeue" => "corewire: read a slot, nothing else",
        "nemesis_enqueue" => "Nemesis: put a cell into a queue",
        "nemesis_dequeue" => "Nemesis: take a cell out of a queue",
        "send" => "corewire: Endpoint::send of 8 bytes",
        "receive" => "corewire: Endpoint::receive_into of 8 bytes, matched",
        _ => "",
    }
}

fn polling_words(found: &Nemesis) -> Vec<String> {
    let of = |ring: &str, all_send: bool| {
        let rows = found
            .polling
            .iter()
            .filter(|row| (row.ring.as_str(), row.all_send) == (ring, all_send));
        rows.max_by_key(|row| row.peers)
    };
    let sentence = |all_send: bool| {
        let (own, queues, boxes) =
            (of(OWN, all_send)?, of(NEMESIS, all_send)?, of("fastboxes", all_send)?);
        Some(format!(
            "With {}, {}, a message takes {} through corewire, {} through Nemesis\u{2019} queue and {} through its \
             fastboxes, all of which the receiver polls.",
            plural(own.peers, "peer"),
            if all_send { "all of which send in turn" } else { "one of which sends" },
            nanoseconds(own.message_ns),
            nanoseconds(queues.message_ns),
            nanoseconds(boxes.message_ns),
        ))
    };
    [false, true].into_iter().filter_map(sentence).collect()
}

fn polling(found: &Nemesis, all_send: bool) -> Option<Figure> {
    let rings = [
        (OWN, "corewire", OWN),
        (NEMESIS, "Nemesis, queue", QUEUES),
        ("fastboxes", "Nemesis, fastboxes", NEMESIS),
    ];
    let series = rings.map(|(ring, name, look)| {
        let rows = found.polling.iter().filter(|row| row.ring == ring && row.all_send == all_send);
        let mark = |row: &Polling| Some(Mark::at(f64::from(row.peers), row.message_ns));
        Series::of(look, name, rows.map(mark).collect())
    });
    let x = Axis::new("Peers", Quantity::Count);
    let y = Axis::new("Time per message", Quantity::Nanoseconds);
    let (stem, who) =
        if all_send { ("polling-all", "all send in turn") } else { ("polling-one", "one sends") };
    let heading = format!("Coherence model: a message from one of many peers, {who}");
    let caption = "Time from one message to the next, one at a time, on the model\u{2019}s clocks. Lower is better.";
    Chart { x, y, series: series.into(), reference: None }.figure((stem, heading), caption)
}
