//! The page of the study. Every sentence with a figure is computed.

use corewire_harness::statistics::Spread;

use crate::study::page::units::{Quantity, and, nanoseconds, plural, round};
use crate::study::page::{
    Axis, Chart, Figure, NONE, Page, Table, times, whereabouts_of_all, with_span,
};
use crate::study::results::{About, Results, name_of};

use super::results::{Calls, Dynamic, Interfaces, WayOf};

/// How the thesis measures a driver on one core, and on two.
const SAME_CORE: &str = "lmp";
const APART: &str = "ump";

/// The page for one machine.
pub(super) fn of(results: &Results<Interfaces>) -> Page {
    let found = &results.body;
    let rounds = plural(found.rounds, "round");
    let effort = format!("{}: {rounds}", results.effort);
    let calls = found.calls.iter().map(|calls| (beside(found, calls), calls.line_ns));
    let types = |it: &Dynamic| (format!("types by {}", found.way(&it.way)), it.line_ns);
    let runs: Vec<_> = calls.chain(found.dynamic.iter().map(types)).collect();
    Page::of(include_str!("page.md"), results, &[("Effort", effort)])
        .value("rounds", rounds)
        .value("whereabouts", whereabouts_of_all(&results.distances(), &runs))
        .short(in_short(found, &results.at_most_frequent().body.calls))
        .block("calls", calls_figure(found))
        .block("calls_table", calls_table(found))
        .block("types", types_figure(found))
        .block("types_table", types_table(found))
        .block("dynamic", dynamic_table(found))
        .block("absent", absent(found))
        .block("rivals", About::settings(&found.rivals, "Beside"))
}

fn beside(found: &Interfaces, calls: &Calls) -> String {
    format!("{} beside {}", found.way(&calls.way), name_of(&found.rivals, &calls.rival))
}

fn median(times: &[f64]) -> Option<f64> {
    Some(Spread::of(times.iter().copied())?.median)
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}

/// The thesis' ways beside each rival, the way that gains least, and what dynamic arrays cost. Times are those of `here`, at
/// one distance of the cores.
fn in_short(found: &Interfaces, here: &[Calls]) -> Vec<String> {
    let compared = |calls: &Calls| {
        let rival = name_of(&found.rivals, &calls.rival);
        Some(format!("{} of the time of one by {rival}", percent(calls.ratio?.median)))
    };
    let of_way = |(way, place): (&str, &str)| {
        let calls = || found.calls.iter().filter(|calls| calls.way == way);
        let times = here.iter().filter(|calls| calls.way == way);
        let time = Spread::of(times.filter_map(|calls| median(&calls.call_ns)))?;
        let shares: Vec<String> = calls().filter_map(compared).collect();
        let (time, shares) = (nanoseconds(time.median), and(&shares));
        Some(format!("A call {place} takes {time} by {}: {shares}.", found.way(way)))
    };
    let places = [(APART, "between two cores"), (SAME_CORE, "on one core")];
    let mut sentences: Vec<String> = places.into_iter().filter_map(of_way).collect();
    let measured = found.calls.iter().filter_map(|calls| Some((calls.ratio?.median, calls)));
    if let Some((ratio, calls)) = measured.max_by(|one, other| one.0.total_cmp(&other.0)) {
        let (beside, ratio) = (beside(found, calls), percent(ratio));
        sentences.push(format!("A call gains least, or loses, for {beside}: {ratio} of its time."));
    }
    let range = |of: fn(&Dynamic) -> Spread| {
        let Spread { min, max, .. } = Spread::of(found.dynamic.iter().map(|it| of(it).median))?;
        Some(format!("{} to {}", round(min), round(max)))
    };
    let dynamic = range(|it| it.hundred_to_fixed).zip(range(|it| it.thousand_to_hundred));
    sentences.extend(dynamic.map(|(hundred, thousand)| {
        format!(
            "A dynamic array of 100 bytes takes {hundred} times as long as the same bytes of fixed size, and one of \
             1000 bytes {thousand} times as long as one of 100, depending on the way."
        )
    }));
    sentences
}

/// Calls beside their rivals: the medians of the comparisons.
fn calls_figure(found: &Interfaces) -> Option<Figure> {
    let dots = |is_it: &dyn Fn(&Calls, &WayOf) -> bool, times: fn(&Calls) -> &[f64]| {
        [true, false].map(|same_core| {
            let ways = found.ways.iter().filter(|way| way.same_core == same_core);
            let calls = ways.flat_map(|way| found.calls.iter().map(move |calls| (calls, way)));
            let own = calls.filter(|(calls, way)| calls.way == way.id && is_it(calls, way));
            Some(Spread::of(own.filter_map(|(calls, _)| median(times(calls))))?.median)
        })
    };
    let mut drivers: Vec<&str> = found.ways.iter().map(|way| &way.driver[..]).collect();
    drivers.dedup();
    let own = drivers.into_iter().map(|driver| {
        let name = format!("corewire, {driver}");
        (name, dots(&|_, way| way.driver == driver, |calls| &calls.call_ns))
    });
    let rivals = found.rivals.iter().map(|rival| {
        (rival.name.clone(), dots(&|calls, _| calls.rival == rival.id, |calls| &calls.rival_ns))
    });
    let x = Axis::new("Round trip of a call with 8 bytes", Quantity::Nanoseconds);
    Chart::of_rows(x, ["same core", "cores apart"], own.chain(rivals)).figure(
        ("calls", "A call with 8 bytes"),
        "Round trips on a logarithmic scale; less is better.",
    )
}

/// The types in their order.
fn types(found: &Interfaces) -> Vec<&str> {
    let mut names = Vec::new();
    for kind in &found.types {
        if !names.contains(&&kind.name[..]) {
            names.push(&kind.name);
        }
    }
    names
}

/// The thesis' Figure 5.1.
fn types_figure(found: &Interfaces) -> Option<Figure> {
    let rows = types(found).into_iter().map(|name| {
        let dot = |way| median(found.round_trips(way, name)?);
        (name.to_owned(), [SAME_CORE, APART].map(dot))
    });
    let x = Axis::new("Round trip", Quantity::Nanoseconds);
    let names = [SAME_CORE, APART].map(|way| found.way(way));
    Chart::of_rows(x, names, rows).figure(
        ("types", "The thesis\u{2019} types of messages (Figure 5.1)"),
        "Round trips on a logarithmic scale, by the drivers that the thesis measures on one core and on two; less is \
         better. fixed100 is not in the thesis: as many bytes as buffer100, in arguments of fixed size.",
    )
}

pub(super) fn calls_table(found: &Interfaces) -> Table {
    let count = |count: Option<f64>| count.map_or(NONE.to_owned(), round);
    let table = Table::of_columns(
        &found.calls,
        &[
            ("Way", &|calls| found.way(&calls.way).to_owned()),
            ("Beside", &|calls| name_of(&found.rivals, &calls.rival).to_owned()),
            ("Call", &|calls| times(&calls.call_ns)),
            ("Rival", &|calls| times(&calls.rival_ns)),
            ("Ratio", &|calls| with_span(calls.ratio, |ratio| format!("{ratio:.4}"))),
            ("Allocations", &|calls| count(calls.call_allocations)),
            ("Rival\u{2019}s", &|calls| count(calls.rival_allocations)),
        ],
    );
    table.captioned("A call with 8 bytes beside one of a rival")
}

fn types_table(found: &Interfaces) -> Table {
    let ways: Vec<&WayOf> = found.ways.iter().filter(|way| way.impossible.is_none()).collect();
    let names = (|name: &&str| (*name).to_owned(), |way: &&WayOf| way.name.clone());
    let cell = |name: &&str, way: &&WayOf| found.round_trips(&way.id, name).map(times);
    Table::matrix("Type", &types(found), &ways, names, cell).captioned("Round trips by each driver")
}

pub(super) fn dynamic_table(found: &Interfaces) -> Table {
    let factor = |ratio: Spread| with_span(Some(ratio), |ratio| format!("{ratio:.3}"));
    let table = Table::of_columns(
        &found.dynamic,
        &[
            ("Way", &|it| found.way(&it.way).to_owned()),
            ("buffer100 / fixed100", &|it| factor(it.hundred_to_fixed)),
            ("buffer1000 / buffer100", &|it| factor(it.thousand_to_hundred)),
        ],
    );
    table.captioned("Dynamic arrays: 100 bytes to the same of fixed size, and 1000 bytes to 100")
}

/// What is missing, and why.
pub(super) fn absent(found: &Interfaces) -> Vec<String> {
    let ways = found.ways.iter().flat_map(|way| {
        let whys = way.impossible.iter().chain(&way.failures);
        whys.map(|why| format!("{}: {why}.", way.name))
    });
    let calls = found.calls.iter();
    let calls =
        calls.filter_map(|it| Some(format!("{}: {}.", beside(found, it), it.failure.as_ref()?)));
    About::gaps(&found.rivals).into_iter().chain(ways).chain(calls).collect()
}
