//! The page of `study nemesis`: the results of a study beside the claims of the paper. As on the other
//! page, every sentence with a figure is computed.

use corewire_harness::statistics::Spread;

use crate::study::distances::Distance;
use crate::study::nemesis::results::{Data, Instructions, Point, Polling, Results, Ring, Wire};

use super::chart::{Axis, Chart, Figure, Mark, Picture, Series};
use super::error::Error;
use super::escape::escape;
use super::page::{self, Section, Table, list, paragraph};
use super::svg::{Format, Place};
use super::units::{Quantity, and, bytes, nanoseconds, plural, round};
use super::{look, machine};

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
pub(crate) fn render(results: &Results) -> Result<String, Error> {
    let distances = results.distances();
    let everywhere = results;
    let results = &results.at_most_frequent();
    let title = "Message passing between two cores: Nemesis\u{2019} experiments on this machine";
    let lead = format!("<p class=\"lead\">{}</p>\n", escape(&summary(results)));
    let mut short = ahead(results);
    for distance in distances.iter().skip(1) {
        let Some((least, most)) = distance.line_ns else { continue };
        let times = [least, most].map(nanoseconds);
        let there = ahead(&everywhere.at(distance)).into_iter();
        short.extend(there.map(|sentence| {
            format!("Where a bare line takes {} to {} one way: {sentence}", times[0], times[1])
        }));
    }
    let lead = match short.is_empty() {
        true => lead,
        false => {
            format!("{lead}<div class=\"short\">\n<h2>In short</h2>\n{}</div>\n", list(&short))
        }
    };
    let latency = figures(&latency(results), "This run has too few sizes to draw.")?;
    let bandwidth = figures(&bandwidth(results), "This run has too few sizes to draw.")?;
    let polling = figures(&polling_figures(results), "The model has not been run.")?;
    let sections = [
        Section::new("machine", "The machine", machine_table(results)),
        Section::new("reading", "How to read", how_to_read(results, &distances)),
        Section::new("latency", "Latency (Figure 4)", latency + &numbers(results)),
        Section::new("bandwidth", "Bandwidth (Figure 5)", bandwidth),
        Section::new("optimisations", "Each optimisation", optimisations(results)),
        Section::new("rings", "Rings of processes", rings(results)),
        Section::new("instructions", "Instructions (section 4.1.2)", instructions(results)),
        Section::new(
            "polling",
            "Polling for messages of many peers",
            polling_words(results) + &polling,
        ),
        Section::new("absent", "What could not be measured here", absent(results)),
        Section::new("wires", "Settings", settings(results)),
    ];
    Ok(page::page(title, &lead, &sections))
}

/// The SVG of every figure, with the stem of its file name.
pub(crate) fn plots(results: &Results) -> Result<Vec<(String, String)>, Error> {
    let results = &results.at_most_frequent();
    let all = latency(results).into_iter().chain(bandwidth(results));
    all.chain(polling_figures(results))
        .map(|figure| {
            let picture = page::picture(&figure, Format::Wide, Place::File)?;
            Ok((figure.stem, picture))
        })
        .collect()
}

fn figures(all: &[Figure], missing: &str) -> Result<String, Error> {
    if all.is_empty() { Ok(paragraph(missing)) } else { page::figures(all) }
}

fn name<'a>(results: &'a Results, id: &'a str) -> &'a str {
    let wire = results.wires.iter().find(|wire| wire.id == id);
    wire.map_or(id, |wire| wire.name.as_str())
}

fn summary(results: &Results) -> String {
    let machine = &results.machine;
    let intro = format!(
        "This repeats the intranode experiments of the paper \u{201c}Design and Evaluation of Nemesis: a \
         Scalable, Low-Latency, Message-Passing Communication Subsystem\u{201d} (Buntinas, Mercier and Gropp) \
         on {} ({}). A time is half of the time for a message there and back between two processes.",
        machine.processor,
        plural(machine.cores, "core"),
    );
    let times = results.wires.iter().filter_map(|wire| {
        let time = nanoseconds(results.one_way_ns(&wire.id, 8, Data::WARM)?);
        Some(format!("{time} through {}", wire.name))
    });
    let times: Vec<String> = times.collect();
    if times.is_empty() {
        return intro;
    }
    format!("{intro} A message of 8 B takes {}.", and(&times))
}

/// Compares corewire with the libraries in common use.
fn ahead(results: &Results) -> Vec<String> {
    let mut sentences = Vec::new();
    for rival in RIVALS {
        for data in Data::ALL {
            let ratios: Vec<(u64, f64)> = results
                .sizes()
                .into_iter()
                .filter_map(|size| {
                    let own = results.one_way_ns(OWN, size, data)?;
                    Some((size, results.one_way_ns(rival, size, data)? / own))
                })
                .collect();
            let Some(worst) = ratios.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)) else {
                continue;
            };
            let Some(best) = ratios.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)) else {
                continue;
            };
            let behind: Vec<String> =
                ratios.iter().filter(|(_, ratio)| *ratio <= 1.0).map(|it| bytes(it.0)).collect();
            let buffers = data.words();
            let (who, count) = (name(results, rival), ratios.len());
            let range = format!(
                "{who} takes {} to {} times as long (the most at {}, the least at {})",
                round(worst.1),
                round(best.1),
                bytes(best.0),
                bytes(worst.0)
            );
            sentences.push(match behind.len() {
                0 => format!(
                    "With {buffers} corewire is ahead of {who} at all {count} sizes: {range}."
                ),
                few => format!(
                    "With {buffers} corewire is not ahead of {who} at {few} of {count} sizes ({}): {range}.",
                    and(&behind)
                ),
            });
        }
    }
    sentences
}

fn machine_table(results: &Results) -> String {
    let runs = plural(results.runs, "run");
    let run = [
        ("corewire", results.version.clone()),
        ("Began", machine::moment(&results.began)),
        (
            "Effort",
            format!(
                "{}: {runs} of {} for each size",
                results.effort,
                nanoseconds(results.run_s * 1e9)
            ),
        ),
    ];
    machine::table(&results.machine, &run)
}

fn how_to_read(results: &Results, distances: &[Distance]) -> String {
    let crowd = match results.oversubscribed {
        true => {
            "Both processes had to share one core, so the figures show how well they take turns."
        }
        false => "Each process has a core of its own.",
    };
    let how = format!(
        "One process sends a message, and the other sends one of the same size back. Each figure is half of \
         the round-trip time: the median of the medians of its runs ({}). {crowd} A message is sent from a buffer of \
         the sender and received into a buffer of the receiver, matched by tag and sender. Warm buffers are the \
         same for each message; cold buffers move through {} of memory, which is more than a core\u{2019}s own \
         caches hold, but not more than all caches of a large machine. Messages that are written and read are written \
         by each sender before it sends them and read by each receiver, within the measured time; the others are only \
         carried.",
        runs(results),
        bytes(results.cold_bytes),
    );
    paragraph(&how)
        + &whereabouts(results, distances).map_or_else(String::new, |words| paragraph(&words))
}

/// The number of runs of the points.
fn runs(results: &Results) -> String {
    let counts = || results.points.iter().map(|point| point.runs.len()).filter(|&count| count > 0);
    let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    if least == most { plural(most, "run") } else { format!("{least} to {}", plural(most, "run")) }
}

/// The distance of the cores, and what it means for the figures.
fn whereabouts(results: &Results, distances: &[Distance]) -> Option<String> {
    let Some(shown) = distances.first() else {
        let has_runs = results.points.iter().any(|point| !point.runs.is_empty());
        return has_runs.then(|| {
            "The cores were moved in the middle of every run, so no figures can be compared."
                .to_owned()
        });
    };
    let (least, most) = shown.line_ns?;
    let line = format!("between {} and {} one way", nanoseconds(least), nanoseconds(most));
    let (here, of) = (shown.runs, shown.of);
    Some(if here == of {
        format!(
            "A bare cache line takes {line}, before and after each size, so the cores were not moved."
        )
    } else {
        format!(
            "The host moved the cores during the study, as shared hosts do. Figures from different places of the cores \
             cannot be compared. So a bare cache line is timed before and after each size: of {of} such runs, the \
             page shows the {here} in which the line took {line}."
        )
    })
}

/// Figure 4.
fn latency(results: &Results) -> Vec<Figure> {
    let shown = |point: &Point| point.bytes <= LATENCY_MAX;
    let axis = || Axis::new("One-way latency", Quantity::Nanoseconds);
    let about = ("figure-4", "Figure 4: latency of small messages");
    by_size(results, about, &[Data::WARM, Data::COLD], axis, shown, |_, time| time)
}

/// Figure 5.
fn bandwidth(results: &Results) -> Vec<Figure> {
    let axis = || Axis::new("Bytes per second, one way", Quantity::ByteRate);
    #[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
    let rate = |bytes: u64, time: f64| bytes as f64 / (time / 1e9);
    let about = ("figure-5", "Figure 5: bandwidth");
    let mut figures = by_size(results, about, &Data::ALL, axis, |_| true, rate);
    figures.iter_mut().for_each(|figure| figure.caption.push_str(RENDEZVOUS));
    figures
}

/// One figure for each kind of `data`.
fn by_size(
    results: &Results,
    (stem, heading): (&str, &str),
    data: &[Data],
    y: impl Fn() -> Axis,
    is_shown: impl Fn(&Point) -> bool,
    figure: impl Fn(u64, f64) -> f64,
) -> Vec<Figure> {
    let one = |data: Data| {
        let series = results.wires.iter().map(|wire| {
            let own = results
                .points
                .iter()
                .filter(|point| point.wire == wire.id && point.data == data && is_shown(point));
            line(wire, own.map(|point| mark(point, &figure)).collect())
        });
        let x = Axis::new("Message size", Quantity::Bytes);
        let chart = Chart { x, y: y(), series: series.collect(), reference: None }.shown()?;
        Some(Figure {
            stem: format!("{stem}-{}", data.stem()),
            heading: format!("{heading}, {}", data.words()),
            caption: format!(
                "Median of {}; thin bars reach from the smallest to the largest. Both axes are logarithmic.",
                runs(results)
            ),
            picture: Picture::Lines(chart),
        })
    };
    data.iter().filter_map(|&data| one(data)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
fn mark(point: &Point, figure: &impl Fn(u64, f64) -> f64) -> Option<Mark> {
    let Spread { median, min, max } = point.p50_ns()?;
    let [y, one, other] = [median, min, max].map(|time| figure(point.bytes, time));
    let span = (one.min(other), one.max(other));
    Some(Mark { x: point.bytes as f64, y, span: Some(span), hollow: false })
}

fn line(wire: &Wire, marks: Vec<Option<Mark>>) -> Series {
    Series {
        name: wire.name.clone(),
        short: look::short_name(&wire.id, &wire.name),
        look: look::of_mechanism(&wire.id),
        marks,
    }
}

/// The medians as tables.
fn numbers(results: &Results) -> String {
    let one = |data: Data| {
        let sizes = shown_sizes(results);
        let head = std::iter::once("One way".to_owned()).chain(sizes.iter().map(|it| bytes(*it)));
        let row = |wire: &Wire| {
            let cells = sizes.iter().map(|&size| {
                let time = results.one_way_ns(&wire.id, size, data);
                time.map_or("\u{2013}".to_owned(), nanoseconds)
            });
            std::iter::once(wire.name.clone()).chain(cells).collect()
        };
        let rows = results.wires.iter().map(row).collect();
        let table = Table { head: head.collect(), rows, is_prose: false };
        table.html(&format!("With {}", data.words()))
    };
    Data::ALL.map(one).concat()
}

fn shown_sizes(results: &Results) -> Vec<u64> {
    let sizes = results.sizes();
    SHOWN.into_iter().filter(|size| sizes.contains(size)).collect()
}

/// The effect of each optimisation of the paper on this machine.
fn optimisations(results: &Results) -> String {
    let pairs = [
        ("Fastboxes (section 3.2; the paper: 500 ns less)", QUEUES, NEMESIS),
        ("Shadow head (section 3.1; the paper: 200 ns less)", PLAIN, QUEUES),
        ("Free queue at the sender, not the receiver", "nemesis_receiver", QUEUES),
        ("Free queue at the sender, not one for all", "nemesis_global", QUEUES),
        ("corewire\u{2019}s pair rings, not Nemesis with everything", NEMESIS, OWN),
    ];
    let sizes = shown_sizes(results);
    let rows = pairs.into_iter().map(|(what, without, with)| {
        let cells = sizes.iter().map(|&size| {
            let of = |wire: &str| results.one_way_ns(wire, size, Data::WARM);
            match of(without).zip(of(with)) {
                Some((without, with)) => format!("{:+.0} ns", with - without),
                None => "\u{2013}".to_owned(),
            }
        });
        std::iter::once(what.to_owned()).chain(cells).collect()
    });
    let head = std::iter::once("With it".to_owned()).chain(sizes.iter().map(|it| bytes(*it)));
    let table = Table { head: head.collect(), rows: rows.collect(), is_prose: false };
    paragraph(
        "The time of a message with an optimisation minus the time without it, one way with warm buffers. \
         Negative values are gains.",
    ) + &table.html("")
}

/// Rings of as many processes as there are cores for, and of more.
fn rings(results: &Results) -> String {
    let intro = paragraph(
        "Each process passes a message of 8 bytes on to the next one. The processes are not bound to processors. With \
         more processes than processors, the time of a round shows how a mechanism waits: a process that polls keeps \
         the process that must act from running.",
    );
    let row = |ring: &Ring| {
        let time = match (Spread::of(ring.round_ns.iter().copied()), &ring.failure) {
            (Some(round), _) => format!(
                "{} ({} to {})",
                nanoseconds(round.median),
                nanoseconds(round.min),
                nanoseconds(round.max)
            ),
            (None, Some(why)) => why.clone(),
            (None, None) => "not measured".to_owned(),
        };
        vec![results.name_of(&ring.wire).to_owned(), ring.processes.to_string(), time]
    };
    let rows: Vec<_> = results.rings.iter().map(row).collect();
    if rows.is_empty() {
        return paragraph("This run has no rings.");
    }
    let head = ["Wire", "Processes", "A round"].map(str::to_owned).into();
    intro + &Table { head, rows, is_prose: false }.html("")
}

fn instructions(results: &Results) -> String {
    if let Some(why) = &results.instructions_absent {
        return paragraph(&format!("Instructions could not be counted here: {why}."));
    }
    let words = |operation: &str| {
        match operation {
            "pair_enqueue" => "corewire: write a slot of a pair ring, nothing else",
            "pair_dequeue" => "corewire: read a slot, nothing else",
            "nemesis_enqueue" => "Nemesis: put a cell into a queue",
            "nemesis_dequeue" => "Nemesis: take a cell out of a queue",
            "send" => "corewire: Endpoint::send of 8 bytes",
            "receive" => "corewire: Endpoint::receive_into of 8 bytes, matched",
            _ => "",
        }
        .to_owned()
    };
    let row = |counted: &Instructions| {
        let paper = counted.paper.map_or("\u{2013}".to_owned(), |paper| paper.to_string());
        vec![words(&counted.operation), round(counted.instructions), paper]
    };
    let head = ["", "Instructions", "In the paper"].map(str::to_owned).into();
    let rows = results.instructions.iter().map(row).collect();
    let table = Table { head, rows, is_prose: false };
    paragraph(
        "Counted instruction by instruction, for 16 operations in a row. As in the paper, a message is there before \
         its receive is called. The counts include a share of the work that is done once for several operations. \
         The paper\u{2019}s send and receive are those of MPI over Nemesis, on another instruction set; its \
         enqueue and dequeue are bare.",
    ) + &table.html("")
}

fn polling_words(results: &Results) -> String {
    let of = |ring: &str, all_send: bool| {
        let row = results
            .polling
            .iter()
            .filter(|row| (row.ring.as_str(), row.all_send) == (ring, all_send));
        row.max_by_key(|row| row.peers)
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
    let sentences: Vec<String> = [false, true].into_iter().filter_map(sentence).collect();
    paragraph(
        "The rings\u{2019} own source on a model of coherent caches: one message at a time from one of many peers to \
         a receiver that polls for messages of all of them.",
    ) + &list(&sentences)
}

fn polling_figures(results: &Results) -> Vec<Figure> {
    let one = |all_send: bool| {
        let rings = [(OWN, "corewire", OWN), (NEMESIS, "Nemesis, queue", QUEUES)];
        let rings = rings.into_iter().chain([("fastboxes", "Nemesis, fastboxes", NEMESIS)]);
        let series = rings.map(|(ring, name, look)| {
            let rows =
                results.polling.iter().filter(|row| row.ring == ring && row.all_send == all_send);
            let mark = |row: &Polling| {
                let (x, y) = (f64::from(row.peers), row.message_ns);
                Some(Mark { x, y, span: None, hollow: false })
            };
            let short = look::short_name(look, name);
            let marks = rows.map(mark).collect();
            Series { name: name.to_owned(), short, look: look::of_mechanism(look), marks }
        });
        let x = Axis::new("Peers", Quantity::Count);
        let y = Axis::new("Time per message", Quantity::Nanoseconds);
        let chart = Chart { x, y, series: series.collect(), reference: None }.shown()?;
        let (stem, who) = match all_send {
            true => ("polling-all", "all send in turn"),
            false => ("polling-one", "one sends"),
        };
        Some(Figure {
            stem: stem.to_owned(),
            heading: format!("Coherence model: a message from one of many peers, {who}"),
            caption: "Time from one message to the next, one at a time, on the model\u{2019}s clocks. Lower is better."
                .to_owned(),
            picture: Picture::Lines(chart),
        })
    };
    [false, true].into_iter().filter_map(one).collect()
}

fn absent(results: &Results) -> String {
    let whys = results.wires.iter().flat_map(|wire| {
        let whys = wire.impossible.iter().chain(&wire.failures);
        whys.map(|why| format!("{}: {why}.", wire.name))
    });
    let none = results.instructions_absent.iter().map(|why| format!("Instructions: {why}."));
    let items: Vec<String> = whys.chain(none).collect();
    if items.is_empty() {
        return paragraph("Everything that was requested was measured.");
    }
    paragraph("These are gaps in the figures, not zeros.") + &list(&items)
}

fn settings(results: &Results) -> String {
    let row = |wire: &Wire| vec![wire.name.clone(), format!("{}.", wire.settings)];
    let head = ["Through", "Settings"].map(str::to_owned).into();
    let rows = results.wires.iter().map(row).collect();
    Table { head, rows, is_prose: true }.html("")
}
