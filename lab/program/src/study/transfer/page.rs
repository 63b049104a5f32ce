//! The page of the study. Every sentence with a figure is computed.

use super::arena::CACHES;
use super::decisions::{self, megabytes};
use super::figures;
use super::plan::MIDDLE_BYTES;
use super::queries::{HIGH, MEDIUM};
use super::results::{Claim, State, Transfer};
use super::tables::{self, PROCESSES};
use super::ways::Id;
use crate::study::page::units::{bytes, nanoseconds, plural, round};
use crate::study::page::{NONE, Page, Table, whereabouts};
use crate::study::results::{About, Results};

const MIDDLE: u64 = MIDDLE_BYTES as u64;

/// The page for one machine, at the most frequent distance of its cores.
pub(super) fn of(results: &Results<Transfer>) -> Page {
    let here = &results.at_most_frequent();
    let found = &here.body;
    let (runs, blocks) = (plural(found.runs, "run"), plural(found.rounds, "block"));
    let effort = format!("{}: {runs}, {blocks} of each point in each run", here.effort);
    let crowd = match found.oversubscribed {
        true => {
            "Both processes had to share one core, so the figures show how well they take turns."
        }
        false => "Each of the two processes has a core of its own.",
    };
    let last = here.machine.caches.iter().map(|cache| (cache.level, cache.bytes)).max();
    let level = match last {
        Some((level, size)) if level > 2 && size > 2 * found.arena_bytes => format!(
            "All of this memory fits in the last-level cache of {}, so \u{201c}cold\u{201d} is not in memory, but in \
             that cache.",
            bytes(size)
        ),
        _ => String::new(),
    };
    let gaps = About::gaps(&found.mechanisms).into_iter();
    let gaps = gaps.chain(found.failures.iter().map(|why| format!("A run failed: {why}.")));
    let misses = match &here.machine.counters_absent {
        Some(why) => format!("Figure 5 by counters: missing, because {}.", why.trim_end_matches('.')),
        None => "Counted misses are those of the last-level cache, which the kernel names in the same way everywhere; the \
                 paper\u{2019}s second-level cache was its last."
            .to_owned(),
    };
    let card = "The network interface of the paper: missing, because there is no card (verbs) behind the loopback \
                interface; what stands for it is labelled so."
        .to_owned();
    let kaput = "Kaput itself: missing, because it is a module for Linux 2.6.10; its copies are system calls since Linux 3.2, \
                 and those stand for it."
        .to_owned();
    let gaps: Vec<String> = gaps.chain([misses, card, kaput]).collect();
    Page::of(include_str!("page.md"), here, &[("Effort", effort)])
        .value("crowd", crowd)
        .value("whereabouts", whereabouts(&results.distances(), "group of points"))
        .value("arena", bytes(found.arena_bytes))
        .value("caches", CACHES.to_string())
        .value("level", level)
        .value("iterations", iterations(found))
        .value("holding", holding(found))
        .value("best", best(found))
        .value("lines", round(super::cache::user_lines(found.cache_bytes)))
        .value("user", bytes(found.cache_bytes / 2))
        .value("medium", round(100.0 * MEDIUM))
        .value("high", round(100.0 * HIGH))
        .value("processes", PROCESSES.to_string())
        .short(in_short(found))
        .block("claims", claims(&found.claims))
        .block("decisions", decisions::table(found))
        .block("summary", decisions::summary(found))
        .block("copies", figures::copies(found))
        .block("buffers", figures::buffers(found))
        .block("out", figures::routines_of_pipe(found))
        .block("latencies", figures::latencies(found))
        .block("transfers", figures::transfers(found))
        .block("times", figures::times(found))
        .block("set_up", tables::set_up(found))
        .block("memory", tables::memory(found))
        .block("demand", tables::demand(found))
        .block("cache", figures::cache(found))
        .block("impacts", figures::impacts(found))
        .block("overlap", tables::overlap(found))
        .block("all", tables::one_to_all(found))
        .block("absent", gaps)
        .block("mechanisms", About::settings(&found.mechanisms, "Mechanism"))
}

/// What is printed in the end.
pub(super) fn summary(found: &Transfer) -> Vec<Table> {
    let mut tables = vec![figures::latencies(found).captioned("Table II: latency")];
    tables.extend(figures::times(found));
    let of = |claim: &Claim| {
        claim.holds.map_or("not measured", |holds| if holds { "holds" } else { "does not hold" })
    };
    let verdicts = Table::of_columns(
        &found.claims,
        &[
            ("Where", &|claim| claim.place.clone()),
            ("Here", &|claim| of(claim).to_owned()),
            ("The paper says", &|claim| claim.paper.clone()),
        ],
    );
    tables.push(verdicts.prose().captioned(holding(found).trim_end_matches('.')));
    let failures = found.failures.iter().map(|why| vec![why.clone()]);
    let failures = Table { rows: failures.collect(), ..Table::default() };
    tables.push(failures.captioned("runs that failed"));
    tables
}

/// How many claims hold.
fn holding(found: &Transfer) -> String {
    let measured: Vec<bool> = found.claims.iter().filter_map(|claim| claim.holds).collect();
    let hold = measured.iter().filter(|holds| **holds).count();
    match measured.len() {
        0 => String::new(),
        all => format!(
            "Of {all} claims of the paper that could be checked, {hold} hold on this machine."
        ),
    }
}

fn claims(all: &[Claim]) -> Table {
    let verdict = |claim: &&Claim| match claim.holds {
        Some(true) => "holds here".to_owned(),
        Some(false) => "does not hold here".to_owned(),
        None => "not measured".to_owned(),
    };
    let here = |claim: &&Claim| claim.here.clone().unwrap_or_else(|| NONE.to_owned());
    let figure = |claim: &&Claim| match &claim.figure[..] {
        "" => NONE.to_owned(),
        figure => figure.to_owned(),
    };
    Table::of_columns(
        all,
        &[
            ("Where", &|claim| claim.place.clone()),
            ("The paper says", &|claim| claim.paper.clone()),
            ("Its figure", &figure),
            ("Here", &here),
            ("So it", &verdict),
        ],
    )
    .prose()
}

fn in_short(found: &Transfer) -> Vec<String> {
    let fastest = |size, state| {
        let own = Id::all().filter(|id| !id.needs_own_memory() && !id.is_printed());
        let times = own.filter_map(|id| Some((id, found.time(id, size, state)?)));
        times.min_by(|one, other| one.1.total_cmp(&other.1))
    };
    let sizes = [64 << 10, MIDDLE, 4 << 20].into_iter().filter(|size| found.sizes.contains(size));
    let best = sizes.filter_map(|size| {
        let (cold, touched) = (fastest(size, State::Cold)?, fastest(size, State::Touched)?);
        Some(format!(
            "Fastest for {} from any memory to any memory: {} ({}, {} MB/s); written before and read after: {} ({}).",
            bytes(size),
            cold.0.name(),
            nanoseconds(cold.1),
            round(megabytes(size, cold.1)),
            touched.0.name(),
            nanoseconds(touched.1)
        ))
    });
    let holding = Some(holding(found)).filter(|text| !text.is_empty());
    let latency = found.sizes.first().and_then(|&size| {
        let (id, time) = fastest(size, State::Cold)?;
        let (size, name, time) = (bytes(size), id.name(), nanoseconds(time));
        Some(format!("Fastest for {size} from any memory to any memory: {name} ({time})."))
    });
    holding.into_iter().chain(latency).chain(best).collect()
}

/// How often transfers were repeated.
fn iterations(found: &Transfer) -> String {
    let all: Vec<(u64, u64)> =
        found.sizes.iter().copied().zip(found.iterations.iter().copied()).collect();
    let (Some(&(_, most)), Some(&(longest, least))) = (all.first(), all.last()) else {
        return String::new();
    };
    let full = all.iter().take_while(|(_, count)| *count == most).last();
    let full = full.map_or(String::new(), |(size, _)| format!(" up to {}", bytes(*size)));
    match most == least {
        true => format!("There are {most} iterations of each size."),
        false => format!(
            "There are {most} iterations of each size{full}, and fewer of longer messages: {least} of {}.",
            bytes(longest)
        ),
    }
}

/// The best sizes of Figure 3.
fn best(found: &Transfer) -> String {
    let all = figures::best_parts(found).into_iter().map(|(name, size, time)| {
        let rate = round(megabytes(super::plan::LONG_BYTES as u64, time));
        format!("{name} with {size} ({rate} MB/s)")
    });
    let all: Vec<String> = all.collect();
    if all.is_empty() {
        return String::new();
    }
    format!("Fastest for 4 MiB: {}.", all.join(", "))
}
