//! The paper's claims about its figures, each with the result of this study.

use crate::study::results::Results;

use super::escape::escape;
use super::facts::{self, extremes, mean, ratio, ratios};
use super::units::{and, bytes, gain, plural};

/// The kernel mechanisms that the paper measured.
const PAPERS: [&str; 6] = ["unix_datagram", "tcp", "udp", "pipe", "system_v_queue", "posix_queue"];
/// The paper's 1 MB, which is 1 MiB here.
const MEGABYTE: u64 = 1 << 20;

/// A claim of the paper and the result of this study.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    paper: &'static str,
    here: Option<String>,
}

/// The claims as HTML.
pub(crate) fn html(claims: &[Claim]) -> String {
    let items: String = claims
        .iter()
        .map(|claim| {
            let here = claim.here.as_deref().unwrap_or("not measured in this run.");
            format!(
                "<div><dt><b>The paper:</b> {}</dt><dd><b>Here:</b> {}</dd></div>\n",
                escape(claim.paper),
                escape(here)
            )
        })
        .collect();
    format!("<dl class=\"claims\">\n{items}</dl>\n")
}

/// Claims about Figure 2.
pub(crate) fn one_receiver(results: &Results) -> Vec<Claim> {
    vec![
        Claim {
            paper: "ZIMP and Barrelfish MP outperform all other mechanisms, except that others \
                    outperform Barrelfish MP with 1 MB messages.",
            here: rings_over_kernel(results, 1),
        },
        Claim {
            paper: "with 1 receiver, Barrelfish MP is slightly faster than ZIMP below 1 kB (+15 % on \
                    average); above, ZIMP is (+5 % with 4 kB, +46 % with 1 MB).",
            here: zimp_by_size(results),
        },
        Claim {
            paper: "Barrelfish MP outperforms TCP by 1400 % with 1 B and by 32 % with 1 MB, since large \
                    messages exceed the cache (66 times as many misses per byte).",
            here: at_sizes(results, ("barrelfish_mp", "tcp"), 1, [1, MEGABYTE]),
        },
        Claim {
            paper: "TCP is 3 to 22 % less efficient than UDP below 1 kB; above 65 kB it outperforms UDP \
                    by 36 to 64 %.",
            here: tcp_and_udp(results),
        },
        Claim {
            paper: "pipes, System V and POSIX queues are comparable; with 1 receiver, System V \
                    outperforms POSIX by 2 to 34 %.",
            here: system_v_over_posix(results),
        },
    ]
}

/// Claims about Figure 3.
pub(crate) fn most_receivers(results: &Results) -> Vec<Claim> {
    let most = facts::receiver_counts(results).last().copied().filter(|count| *count > 1);
    vec![
        Claim {
            paper: "with 23 receivers, ZIMP drastically outperforms Barrelfish MP (+515 % with 64 B, \
                    +236 % with 1 MB).",
            here: most.and_then(|most| {
                at_sizes(results, ("zimp", "barrelfish_mp"), most, [64, 4096, MEGABYTE])
            }),
        },
        Claim {
            paper: "with more than 2 receivers and below 1 MB, pipes, System V and POSIX queues differ \
                    by 0.2 to 20 %, 6 % on average.",
            here: queues_apart(results),
        },
        Claim {
            paper: "ZIMP and Barrelfish MP outperform the kernel's mechanisms with 23 receivers, too.",
            here: most.and_then(|most| rings_over_kernel(results, most)),
        },
    ]
}

/// Claims about Figures 4 and 5.
pub(crate) fn by_receivers(results: &Results) -> Vec<Claim> {
    let small = [1, 64].into_iter().find_map(|size| over_tcp(results, size));
    let large = [MEGABYTE, 102_400, 4096].into_iter().find_map(|size| over_tcp(results, size));
    vec![
        Claim {
            paper: "with 1 B messages, ZIMP's improvement over TCP grows from 1150 % with 1 receiver to \
                    19 000 % with 23.",
            here: small,
        },
        Claim {
            paper: "with 1 MB messages, it grows from 94 % to 333 %: the more receivers, the larger the \
                    improvement.",
            here: large,
        },
    ]
}

/// Claims about Figure 6.
pub(crate) fn hardware(results: &Results) -> Vec<Claim> {
    let counts = |size: &u64| facts::receivers_of(results, *size).len();
    let size = [64, 128].into_iter().filter(|size| counts(size) > 0).max_by_key(counts);
    let here = size.and_then(|size| {
        let by_receivers = facts::receivers_of(results, size).into_iter().filter_map(|count| {
            let ratio = ratio(results, "zimp", "barrelfish_mp", size, count)?;
            Some(format!(
                "{} with {}{}",
                gain(ratio),
                plural(count, "receiver"),
                crowd(results, count)
            ))
        });
        let found: Vec<String> = by_receivers.collect();
        (!found.is_empty()).then(|| format!("{} messages: {}.", bytes(size), and(&found)))
    });
    vec![Claim {
        paper: "with 128 B messages, ZIMP's improvement over Barrelfish MP is much the same on three \
                machines with more than 1 receiver (standard deviation below 9 % on average); with 1 \
                receiver it is \u{2212}7.7 % on one and above +4.9 % on the others.",
        here,
    }]
}

fn crowd(results: &Results, receivers: u32) -> &'static str {
    if facts::is_oversubscribed(results, receivers) { " (oversubscribed)" } else { "" }
}

fn rings_over_kernel(results: &Results, receivers: u32) -> Option<String> {
    let of = |ring: &str| -> Option<String> {
        let beside_kernel =
            |size: &u64| PAPERS.iter().any(|id| results.rate(id, *size, receivers).is_some());
        let rated = facts::sizes(results, receivers).into_iter().filter(beside_kernel);
        let rated: Vec<(u64, f64)> =
            rated.filter_map(|size| Some((size, results.rate(ring, size, receivers)?))).collect();
        let behind = rated.iter().filter(|(size, rate)| {
            let kernel = PAPERS.iter().filter_map(|id| results.rate(id, *size, receivers));
            kernel.into_iter().any(|other| other > *rate)
        });
        let behind: Vec<String> = behind.map(|(size, _)| bytes(*size)).collect();
        let name = facts::name(results, ring);
        match (rated.is_empty(), behind.is_empty()) {
            (true, _) => None,
            (_, true) => Some(format!("{name} outperforms all of them at every size")),
            _ => Some(format!("{name} outperforms all of them except at {}", and(&behind))),
        }
    };
    let found: Vec<String> = ["zimp", "barrelfish_mp"].into_iter().filter_map(of).collect();
    let (with, crowd) = (plural(receivers, "receiver"), crowd(results, receivers));
    (!found.is_empty()).then(|| format!("with {with}{crowd}, {}.", found.join("; ")))
}

fn zimp_by_size(results: &Results) -> Option<String> {
    let small = mean(&ratios(results, ("barrelfish_mp", "zimp"), 1, |size| size < 1000));
    let small = small
        .map(|ratio| format!("Barrelfish MP against ZIMP {} on average below 1 kB", gain(ratio)));
    let large = [4096, MEGABYTE].into_iter().filter_map(|size| {
        let ratio = ratio(results, "zimp", "barrelfish_mp", size, 1)?;
        Some(format!("ZIMP against Barrelfish MP {} with {}", gain(ratio), bytes(size)))
    });
    let all: Vec<String> = small.into_iter().chain(large).collect();
    (!all.is_empty()).then(|| format!("{}.", all.join("; ")))
}

fn at_sizes<const SIZES: usize>(
    results: &Results,
    (over, under): (&str, &str),
    receivers: u32,
    sizes: [u64; SIZES],
) -> Option<String> {
    let gains: Vec<String> = sizes
        .into_iter()
        .filter_map(|size| {
            let ratio = ratio(results, over, under, size, receivers)?;
            Some(format!("{} with {}", gain(ratio), bytes(size)))
        })
        .collect();
    let (over, under) = (facts::name(results, over), facts::name(results, under));
    let (with, crowd) = (plural(receivers, "receiver"), crowd(results, receivers));
    (!gains.is_empty())
        .then(|| format!("with {with}{crowd}, {over} against {under}: {}.", and(&gains)))
}

fn tcp_and_udp(results: &Results) -> Option<String> {
    let small = ratios(results, ("tcp", "udp"), 1, |size| size < 1000);
    let large = ratios(results, ("tcp", "udp"), 1, |size| size > 65_507);
    let part = |found: &[f64], where_: &str| Some(format!("{} {where_}", between(found)?));
    let parts = [part(&small, "below 1 kB"), part(&large, "above 65 kB")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("TCP against UDP, 1 receiver: {}.", and(&parts)))
}

fn system_v_over_posix(results: &Results) -> Option<String> {
    let found = between(&ratios(results, ("system_v_queue", "posix_queue"), 1, |_| true))?;
    Some(format!("System V against POSIX queues, 1 receiver: {found}."))
}

fn between(ratios: &[f64]) -> Option<String> {
    let (low, high) = extremes(ratios)?;
    let (low, high) = (gain(low), gain(high));
    Some(if low == high { low } else { format!("{low} to {high}") })
}

fn queues_apart(results: &Results) -> Option<String> {
    let ids = ["pipe", "system_v_queue", "posix_queue"];
    let mut apart = Vec::new();
    for receivers in facts::receiver_counts(results).into_iter().filter(|count| *count > 2) {
        for size in facts::sizes(results, receivers).into_iter().filter(|size| *size < MEGABYTE) {
            let rates: Vec<f64> =
                ids.iter().filter_map(|id| results.rate(id, size, receivers)).collect();
            let spread = extremes(&rates).filter(|(low, _)| rates.len() > 1 && *low > 0.0);
            apart.extend(spread.map(|(low, high)| (high / low - 1.0) * 100.0));
        }
    }
    let (low, high) = extremes(&apart)?;
    let mean = mean(&apart)?;
    Some(format!(
        "the fastest of the three is {low:.0} to {high:.0} % ahead of the slowest, {mean:.0} % on average."
    ))
}

fn over_tcp(results: &Results, size: u64) -> Option<String> {
    let counts = facts::receivers_of(results, size);
    let found: Vec<String> = [counts.first(), counts.last().filter(|_| counts.len() > 1)]
        .into_iter()
        .flatten()
        .filter_map(|count| {
            let ratio = ratio(results, "zimp", "tcp", size, *count)?;
            let crowd = crowd(results, *count);
            Some(format!("{} with {}{crowd}", gain(ratio), plural(*count, "receiver")))
        })
        .collect();
    (found.len() > 1).then(|| format!("with {} messages, {}.", bytes(size), found.join(", ")))
}
