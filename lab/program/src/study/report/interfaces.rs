//! The page of `study interfaces`. As on the other pages, every sentence with a figure is computed.

use corewire_harness::statistics::{Spread, median};

use crate::study::interfaces::results::{Calls, Dynamic, Results, WayOf};

use super::chart::{Axis, Dots, Figure, Picture, Row};
use super::error::Error;
use super::escape::escape;
use super::page::{self, Section, Table, list, paragraph};
use super::svg::{Format, Place};
use super::units::{Quantity, nanoseconds, plural, round};
use super::{look, machine};

/// How the thesis measures a driver on one core, and on two.
const SAME_CORE: &str = "lmp";
const APART: &str = "ump";

/// The page for one machine.
pub(crate) fn render(results: &Results) -> Result<String, Error> {
    let title = "Calls between processes: generated code on this machine";
    let short = in_short(results);
    let short = match short.is_empty() {
        true => String::new(),
        false => format!("<div class=\"short\">\n<h2>In short</h2>\n{}</div>\n", list(&short)),
    };
    let lead = format!("<p class=\"lead\">{}</p>\n{short}", escape(&summary(results)));
    let [calls, types] = [figures(calls(results))?, figures(types(results))?];
    let sections = [
        Section::new("machine", "The machine", machine_table(results)),
        Section::new("reading", "How to read", how_to_read(results)),
        Section::new("calls", "Calls", calls + &calls_table(results)),
        Section::new("types", "Types of messages (section 5.2)", types + &types_table(results)),
        Section::new("absent", "What could not be measured here", absent(results)),
        Section::new("settings", "Settings", settings(results)),
    ];
    Ok(page::page(title, &lead, &sections))
}

/// The SVG of every figure, with the stem of its file name.
pub(crate) fn plots(results: &Results) -> Result<Vec<(String, String)>, Error> {
    [calls(results), types(results)]
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

fn summary(results: &Results) -> String {
    format!(
        "A client calls a service in another process through code that corewire generates from an interface file, on \
         {} ({}). The same call goes through D-Bus and gRPC, and the types of messages are those of the thesis \
         \u{201c}A Routing and Forwarding Subsystem for a Multicore Operating System\u{201d} (Grest).",
        results.machine.processor,
        plural(results.machine.cores, "core"),
    )
}

fn in_short(results: &Results) -> Vec<String> {
    let of = |calls: &Calls| {
        let ratio = calls.ratio?;
        Some(format!(
            "A call by {} takes {} of the time of one by {} ({} to {} in {}).",
            way_name(results, &calls.way),
            percent(ratio.median),
            rival_name(results, &calls.rival),
            percent(ratio.min),
            percent(ratio.max),
            plural(calls.call_ns.len(), "round"),
        ))
    };
    let mut sentences: Vec<String> = results.calls.iter().filter_map(of).collect();
    sentences.extend(results.dynamic.iter().map(|it| {
        format!(
            "By {}, a dynamic array of 100 bytes takes {} times as long as the same bytes of fixed size, and one of \
             1000 bytes {} times as long as one of 100.",
            way_name(results, &it.way),
            round(it.hundred_to_fixed.median),
            round(it.thousand_to_hundred.median),
        )
    }));
    sentences
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}

fn way_name<'a>(results: &'a Results, id: &'a str) -> &'a str {
    results.ways.iter().find(|way| way.id == id).map_or(id, |way| &way.name)
}

fn rival_name<'a>(results: &'a Results, id: &'a str) -> &'a str {
    results.rivals.iter().find(|rival| rival.id == id).map_or(id, |rival| &rival.name)
}

fn machine_table(results: &Results) -> String {
    let run = [
        ("corewire", results.version.clone()),
        ("Began", machine::moment(&results.began)),
        ("Effort", format!("{}: {}", results.effort, plural(results.rounds, "round"))),
    ];
    machine::table(&results.machine, &run)
}

fn how_to_read(results: &Results) -> String {
    let lines = results.calls.iter().filter_map(|calls| calls.line_ns);
    let lines = lines.chain(results.dynamic.iter().filter_map(|it| it.line_ns));
    let line = Spread::of(lines.flatten()).map_or_else(String::new, |line| {
        format!(
            " Between the two cores a bare cache line takes {} to {} one way.",
            nanoseconds(line.min),
            nanoseconds(line.max)
        )
    });
    paragraph(&format!(
        "Each figure is a round trip: the median of {} of blocks of about 10 ms. Blocks that are compared alternate, \
         and a ratio is the median of the ratios of all rounds, with the smallest and the largest. Client and service \
         are pinned, to one core or to one each.{line}",
        plural(results.rounds, "round")
    )) + &paragraph(
        "A call with 8 bytes sends a number, which comes back. Each reply is compared with what was sent. Allocations \
         are those of the caller\u{2019}s thread.",
    )
}

fn row(name: &str, id: &str, dots: [Option<f64>; 2]) -> Row {
    Row { name: name.to_owned(), short: look::clip(name, 14), look: look::of_mechanism(id), dots }
}

/// Calls beside their rivals; `None` without any.
fn calls(results: &Results) -> Option<Figure> {
    let time = |times: &[f64]| Spread::of(times.iter().copied()).map(|it| it.median);
    let at = |same_core: bool| {
        let ways = results.ways.iter().filter(move |way| way.same_core == same_core);
        ways.map(|way| way.id.as_str()).collect::<Vec<_>>()
    };
    let of_driver = |driver: &str, same_core: bool| {
        let is_it = |way: &&WayOf| way.driver == driver && way.same_core == same_core;
        let way = results.ways.iter().find(is_it)?;
        let times = results.calls.iter().filter(|calls| calls.way == way.id);
        let times: Vec<f64> = times.filter_map(|calls| time(&calls.call_ns)).collect();
        (!times.is_empty()).then(|| median(times))
    };
    let of_rival = |rival: &str, same_core: bool| {
        let found = at(same_core).into_iter().filter_map(|way| results.calls_of(way, rival));
        let times: Vec<f64> = found.filter_map(|calls| time(&calls.rival_ns)).collect();
        (!times.is_empty()).then(|| median(times))
    };
    let mut drivers: Vec<&str> = results.ways.iter().map(|way| way.driver.as_str()).collect();
    drivers.dedup();
    let drivers = drivers.into_iter().map(|driver| {
        let dots = [of_driver(driver, true), of_driver(driver, false)];
        row(&format!("corewire, {driver}"), "corewire", dots)
    });
    let rivals = results.rivals.iter().map(|rival| {
        let dots = [of_rival(&rival.id, true), of_rival(&rival.id, false)];
        row(&rival.name, &rival.id, dots)
    });
    let rows = drivers.chain(rivals).filter(|row| row.dots.iter().any(Option::is_some));
    let rows: Vec<Row> = rows.collect();
    let names = ["same core".to_owned(), "cores apart".to_owned()];
    let axis = Axis::new("round trip of a call with 8 bytes", Quantity::Nanoseconds);
    let heading = "A call with 8 bytes".to_owned();
    let caption = "Round trips on a logarithmic scale; less is better.".to_owned();
    figure("calls", heading, caption, Dots { axis, names, rows })
}

/// The thesis' Figure 5.1; `None` without its drivers.
fn types(results: &Results) -> Option<Figure> {
    let rows = type_names(results).into_iter().map(|name| {
        let of = |way| results.round_trip_ns(way, name).map(|it| it.median);
        row(name, "corewire", [of(SAME_CORE), of(APART)])
    });
    let rows: Vec<Row> = rows.collect();
    let names = [SAME_CORE, APART].map(|way| way_name(results, way).to_owned());
    let axis = Axis::new("round trip", Quantity::Nanoseconds);
    let heading = "The thesis\u{2019} types of messages (Figure 5.1)".to_owned();
    let caption = "Round trips on a logarithmic scale, by the drivers that the thesis measures on one core and on two; \
                   less is better. fixed100 is not in the thesis: as many bytes as buffer100, in arguments of fixed size."
        .to_owned();
    figure("types", heading, caption, Dots { axis, names, rows })
}

fn figure(stem: &str, heading: String, caption: String, dots: Dots) -> Option<Figure> {
    let has_dots = dots.rows.iter().flat_map(|row| row.dots).any(|dot| dot.is_some());
    let picture = Picture::Dots(dots);
    has_dots.then(|| Figure { stem: stem.to_owned(), heading, caption, picture })
}

/// The types in their order.
fn type_names(results: &Results) -> Vec<&str> {
    let mut names = Vec::new();
    for kind in &results.types {
        if !names.contains(&kind.name.as_str()) {
            names.push(kind.name.as_str());
        }
    }
    names
}

fn calls_table(results: &Results) -> String {
    let head = ["Way", "Beside", "Call", "Rival", "Ratio", "Allocations", "Rival\u{2019}s"];
    let time = |times: &[f64]| {
        Spread::of(times.iter().copied()).map_or_else(|| "\u{2013}".to_owned(), with_span)
    };
    let count = |count: Option<f64>| count.map_or_else(|| "\u{2013}".to_owned(), round);
    let row = |calls: &Calls| {
        let ratio = calls.ratio.map_or_else(
            || "\u{2013}".to_owned(),
            |it| format!("{:.3}\n{:.3} to {:.3}", it.median, it.min, it.max),
        );
        vec![
            way_name(results, &calls.way).to_owned(),
            rival_name(results, &calls.rival).to_owned(),
            time(&calls.call_ns),
            time(&calls.rival_ns),
            ratio,
            count(calls.call_allocations),
            count(calls.rival_allocations),
        ]
    };
    let rows = results.calls.iter().map(row).collect();
    let head = head.map(str::to_owned).into();
    Table { head, rows, is_prose: false }.html("A call with 8 bytes beside one of a rival.")
}

fn with_span(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    format!("{}\n{} to {}", nanoseconds(median), nanoseconds(min), nanoseconds(max))
}

fn types_table(results: &Results) -> String {
    type Part = fn(&Dynamic) -> Spread;
    let ways: Vec<&WayOf> = results.ways.iter().filter(|way| way.impossible.is_none()).collect();
    let head = ["Type".to_owned()].into_iter();
    let head = head.chain(ways.iter().map(|way| way.name.clone())).collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for name in type_names(results) {
        let cell = |way: &&WayOf| {
            let time = results.round_trip_ns(&way.id, name);
            time.map_or_else(|| "\u{2013}".to_owned(), with_span)
        };
        rows.push([name.to_owned()].into_iter().chain(ways.iter().map(cell)).collect());
    }
    let parts: [(&str, Part); 2] = [
        ("buffer100 / fixed100", |it| it.hundred_to_fixed),
        ("buffer1000 / buffer100", |it| it.thousand_to_hundred),
    ];
    for (words, of) in parts {
        let cell = |way: &&WayOf| {
            let found = results.dynamic.iter().find(|it| it.way == way.id).map(of);
            found.map_or_else(
                || "\u{2013}".to_owned(),
                |it| format!("{:.2}\n{:.2} to {:.2}", it.median, it.min, it.max),
            )
        };
        rows.push([words.to_owned()].into_iter().chain(ways.iter().map(cell)).collect());
    }
    Table { head, rows, is_prose: false }.html("Round trips by each driver.")
}

fn absent(results: &Results) -> String {
    let missing =
        |name: &str, why: &Option<String>| why.as_ref().map(|why| format!("{name}: {why}."));
    let rivals = results.rivals.iter().filter_map(|it| missing(&it.name, &it.impossible));
    let ways = results.ways.iter().filter_map(|it| missing(&it.name, &it.impossible));
    let calls = results.calls.iter().filter_map(|it| {
        let name = format!("{} by {}", rival_name(results, &it.rival), way_name(results, &it.way));
        missing(&name, &it.failure)
    });
    let items: Vec<String> = rivals.chain(ways).chain(calls).collect();
    if items.is_empty() {
        return paragraph("Everything that was requested was measured.");
    }
    list(&items)
}

fn settings(results: &Results) -> String {
    let own = [
        ("local", "A queue between two threads of one process."),
        ("lmp", "An endpoint whose client sleeps at once; the service has its default wait."),
        ("ump", "An endpoint with its default wait on both sides."),
    ];
    let own = own.map(|(name, settings)| vec![name.to_owned(), settings.to_owned()]).into_iter();
    let rivals = results.rivals.iter().map(|it| vec![it.name.clone(), it.settings.clone()]);
    let head = ["System", "Settings"].map(str::to_owned).into();
    Table { head, rows: own.chain(rivals).collect(), is_prose: true }.html("")
}
