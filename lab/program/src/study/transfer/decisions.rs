//! Table V: the summary, and what it means for programs on this machine. All of it is computed.

use super::copies::routines;
use super::one_to_all::{Road, SIZES};
use super::plan::{LONG_BYTES, MIDDLE_BYTES};
use super::queries::impact;
use super::results::{Key, Measure, State, Transfer};
use super::set_up::SYSTEM_V;
use super::ways::{Id, Sides};
use crate::study::page::units::{bytes, nanoseconds, plural, round};
use crate::study::page::{NONE, Table};
use crate::study::results::sorted;

const MIDDLE: u64 = MIDDLE_BYTES as u64;
const LONG: u64 = LONG_BYTES as u64;
/// Mechanisms whose times differ by less are named together.
const ALIKE: f64 = 1.05;
/// A side that hides at least this share of its computation can overlap.
const HIDES: f64 = 0.5;

/// What to use for something.
struct Advice {
    what: String,
    then: String,
}

/// The fastest of some candidates, with those that are as fast; and the next one.
fn fastest(mut all: Vec<(String, f64)>) -> Option<String> {
    all.sort_by(|one, other| one.1.total_cmp(&other.1));
    let least = all.first()?.1;
    let alike = all.iter().take_while(|(_, time)| *time <= least * ALIKE).count();
    let said = |(name, time): &(String, f64)| format!("{name} ({})", nanoseconds(*time));
    let best: Vec<String> = all.iter().take(alike).map(said).collect();
    let next = all.get(alike).map(|next| format!("; then {}", said(next)));
    Some(best.join(" or ") + &next.unwrap_or_default())
}

/// The candidates among the mechanisms of which `may` is true.
fn among(
    found: &Transfer,
    size: u64,
    state: State,
    may: impl Fn(Id) -> bool,
) -> Vec<(String, f64)> {
    let all = Id::all().filter(|&id| may(id) && !id.is_printed());
    all.filter_map(|id| Some((id.name().to_owned(), found.time(id, size, state)?))).collect()
}

/// Whether the other side may compute meanwhile.
fn leaves(found: &Transfer, id: Id) -> bool {
    found.hidden(Measure::RemoteOverlap, id).is_some_and(|share| share >= HIDES)
}

/// What to use for what.
pub(super) fn table(found: &Transfer) -> Table {
    let mut all = Vec::new();
    let mut add = |what: String, then: Option<String>| {
        all.extend(then.map(|then| Advice { what, then }));
    };
    let is_shown = |size: &u64| [1, 4 << 10, 64 << 10, 1 << 20, 4 << 20].contains(size);
    let sizes: Vec<u64> = found.sizes.iter().copied().filter(is_shown).collect();
    for &size in &sizes {
        let own = |id: Id| !id.needs_own_memory();
        add(
            format!("{} from anywhere to anywhere, written before and read after", bytes(size)),
            fastest(among(found, size, State::Touched, own)),
        );
    }
    for &size in sizes.iter().rev().take(2) {
        let no_rights = |id: Id| id.permission() == "none" && !id.needs_own_memory();
        add(
            format!("{} between processes that may not reach each other", bytes(size)),
            fastest(among(found, size, State::Touched, no_rights)),
        );
    }
    add(
        "1 MiB that its sender writes in memory made for it".to_owned(),
        fastest(among(found, MIDDLE, State::Touched, |_| true)),
    );
    add(
        "1 MiB while the other side computes".to_owned(),
        fastest(among(found, MIDDLE, State::Cold, |id| leaves(found, id))),
    );
    if let Some(&least) = found.sizes.first() {
        add(
            format!("{} of another process, without its help", bytes(least)),
            fastest(among(found, least, State::Cold, |id| {
                id.sides() == Sides::One && !matches!(id, Id::NetworkPut | Id::NetworkGet)
            })),
        );
    }
    for (measure, side) in [(Measure::SourceLines, "sender"), (Measure::TargetLines, "receiver")] {
        add(format!("4 MiB, the data in the {side}\u{2019}s cache kept"), gentlest(found, measure));
    }
    for size in SIZES.map(|size| size as u64) {
        for count in sorted(found.of(Measure::OneToAll).map(|it| it.key.count)) {
            let what = format!("{} to {}", bytes(size), plural(count, "receiver"));
            add(what, fastest(roads(found, size, count)));
        }
    }
    for (state, reader) in
        [(State::Cold, "nobody reads soon"), (State::Shared, "another core reads next")]
    {
        for size in found.sizes_of(Measure::Copy).into_iter().filter(is_shown) {
            let all = routines().into_iter().filter_map(|routine| {
                let key = Key::new(Measure::Copy, routine.name(), size, state);
                Some((routine.name().to_owned(), found.median(&key)?))
            });
            add(format!("a copy of {} that {reader}", bytes(size)), fastest(all.collect()));
        }
    }
    Table::of_columns(
        all,
        &[("For", &|it: &Advice| it.what.clone()), ("Use", &|it| it.then.clone())],
    )
    .prose()
}

fn roads(found: &Transfer, size: u64, count: u64) -> Vec<(String, f64)> {
    let all = Road::ALL.into_iter().filter_map(|road| {
        let key = Key::new(Measure::OneToAll, road.text(), size, State::Touched);
        Some((road.name().to_owned(), found.median(&key.of_parts(count, 0))?))
    });
    all.collect()
}

/// The mechanism that takes the least from the cache of a side.
fn gentlest(found: &Transfer, measure: Measure) -> Option<String> {
    let mut all: Vec<(Id, f64)> = Id::all()
        .filter(|id| !id.is_printed())
        .filter_map(|id| Some((id, found.share(measure, id, LONG)?)))
        .collect();
    all.sort_by(|one, other| one.1.total_cmp(&other.1));
    let low = all.iter().filter(|(_, share)| impact(*share) == "low");
    let mut low = low.map(|(id, _)| *id).collect::<Vec<_>>();
    if low.is_empty() {
        low.extend(all.first().map(|(id, _)| *id));
    }
    let times =
        low.into_iter().map(|id| Some((id.name().to_owned(), found.time(id, LONG, State::Cold)?)));
    fastest(times.flatten().collect())
}

/// Throughput in the paper's megabytes of 1024 x 1024 bytes.
#[expect(clippy::cast_precision_loss, reason = "a message")]
pub(super) fn megabytes(size: u64, time_ns: f64) -> f64 {
    size as f64 / f64::from(1 << 20) / (time_ns / 1e9)
}

/// Table V of the paper.
pub(super) fn summary(found: &Transfer) -> Table {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    let with = |here: Option<String>, paper: Option<String>| {
        or_none(here.map(|here| match paper {
            Some(paper) => format!("{here}\npaper: {paper}"),
            None => here,
        }))
    };
    let latency = |id: &Id| {
        let paper = id.paper_latency_us().map(|us| nanoseconds(us * 1e3));
        with(found.latency(*id).map(nanoseconds), paper)
    };
    let throughput = |id: &Id| {
        let time = found.time(*id, MIDDLE, State::Cold);
        let here = time.map(|time| format!("{} MB/s", round(megabytes(MIDDLE, time))));
        with(here, id.paper_throughput_mb().map(|mb| format!("{} MB/s", round(mb))))
    };
    let touched = |id: &Id| {
        let time = found.time(*id, MIDDLE, State::Touched);
        or_none(time.map(|time| format!("{} MB/s", round(megabytes(MIDDLE, time)))))
    };
    let cost =
        |measure: Measure| move |id: &Id| or_none(cost_of(found, *id, measure).map(nanoseconds));
    let cache = |id: &Id| {
        let here = found.shares(*id).map(|shares| shares.map(impact).join(", "));
        with(here, id.paper_impact().map(str::to_owned))
    };
    let hides = |measure: Measure| {
        move |id: &Id| {
            or_none(found.hidden(measure, *id).map(|share| format!("{} %", round(100.0 * share))))
        }
    };
    let passive = |id: &Id| match id.sides() {
        Sides::One if leaves(found, *id) => "yes".to_owned(),
        Sides::One if found.hidden(Measure::RemoteOverlap, *id).is_none() => NONE.to_owned(),
        _ => "with a thread".to_owned(),
    };
    Table::of_columns(
        Id::all().filter(|id| found.latency(*id).is_some()),
        &[
            ("", &|id| id.name().to_owned()),
            ("Latency", &latency),
            ("1 MiB", &throughput),
            ("Written and read", &touched),
            ("Set-up", &cost(Measure::SetUp)),
            ("Tear-down", &cost(Measure::TearDown)),
            ("Cache impact", &cache),
            ("Hidden, remote", &hides(Measure::RemoteOverlap)),
            ("Hidden, local", &hides(Measure::LocalOverlap)),
            ("Passive mode", &passive),
            ("Rights", &|id| id.permission().to_owned()),
        ],
    )
}

/// What a part of the set-up costs: of the mechanisms as printed that of the paper's own call, and for kernel copies the
/// same in both directions.
pub(super) fn cost_of(found: &Transfer, id: Id, measure: Measure) -> Option<f64> {
    let way = match id {
        Id::PrintedBuffer | Id::PrintedStreaming | Id::PrintedQueue => SYSTEM_V.to_owned(),
        Id::SharedBuffer | Id::MessageQueue => Id::SharedBuffer.text(),
        Id::KernelPut | Id::KernelGet | Id::BothSides => Id::KernelGet.text(),
        Id::NetworkPut | Id::NetworkGet => Id::NetworkGet.text(),
        Id::Window | Id::Mapped => Id::Mapped.text(),
        Id::Ptrace | Id::Nothing => id.text(),
    };
    found.cost(measure, &way)
}
