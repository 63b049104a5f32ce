use super::fixture::{self, SIZES};
use super::*;

const HEADINGS: [&str; 16] = [
    "In short",
    "The machine",
    "How to read",
    "Figure 2: throughput by message size, 1 receiver",
    "Figure 2 in bytes",
    "Figure 3: throughput by message size, 8 receivers",
    "Figure 11: throughput by message size, 3 receivers",
    "Figure 31: ZIMP over each mechanism, 64 B messages",
    "Figure 35, beside it: corewire copying out over each mechanism, 4 KiB messages",
    "Figures 6 and 38\u{2013}45",
    "Several senders: 64 B messages to 1 receiver",
    "One-way latency by message size",
    "Processor time per message, 64 B, 1 receiver",
    "Coherence model: time per message by receivers",
    "What could not be measured here",
    "What to conclude",
];

fn assert_sound(page: &str) {
    for wrong in ["NaN", "inf ", ">inf", "-inf", "<script", "http://", "https://", "url("] {
        let found = page.find(wrong).map(|at| &page[at.saturating_sub(60)..at + 20]);
        assert_eq!(found, None, "{wrong} in the page");
    }
    assert_eq!(page.matches("<figure").count(), page.matches("</figure>").count());
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
}

#[test]
fn the_page_has_every_figure_and_needs_nothing_else() {
    let page = render(&fixture::results()).unwrap();
    for heading in HEADINGS {
        assert!(page.contains(&escape::escape(heading)), "no {heading}");
    }
    assert_sound(&page);
    assert!(page.contains("&lt;test&gt;") && !page.contains("<test>"));
    assert_eq!(page.matches("<svg class=\"wide\"").count(), page.matches("<figure").count());
}

#[test]
fn a_run_without_results_has_a_page() {
    let page = render(&fixture::empty()).unwrap();
    assert_sound(&page);
    assert!(!page.contains("<svg"));
    assert!(plots(&fixture::empty()).unwrap().is_empty());
    assert_sound(&render_comparison(&[]).unwrap());
}

#[test]
fn a_single_size_is_no_line() {
    let mut results = fixture::results();
    results.points.retain(|point| point.bytes == 64 && point.receivers == 1);
    let page = render(&results).unwrap();
    assert_sound(&page);
    assert!(page.contains("Figure 2 needs at least two message sizes"));
}

#[test]
fn figures_that_cannot_be_shown_are_left_out() {
    let mut results = fixture::results();
    for run in results.points.iter_mut().flat_map(|point| &mut point.runs) {
        run.messages_per_s = 0.0;
        run.sender_cpu_ns = f64::NAN;
    }
    for latency in &mut results.latencies {
        latency.p50_ns = vec![f64::INFINITY];
    }
    assert_sound(&render(&results).unwrap());
}

#[test]
fn each_plot_stands_alone() {
    let plots = plots(&fixture::results()).unwrap();
    let stems: std::collections::BTreeSet<&str> =
        plots.iter().map(|(stem, _)| stem.as_str()).collect();
    assert_eq!(stems.len(), plots.len(), "two plots of one name");
    assert!(stems.contains("figure-2") && stems.contains("figure-6") && stems.contains("latency"));
    for (stem, svg) in &plots {
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{stem}");
        assert!(svg.contains("font-family") && svg.contains("<title>"), "{stem}");
        assert!(!svg.contains("NaN") && svg.matches("<svg").count() == 1, "{stem}");
    }
}

#[test]
fn labels_of_a_plot_do_not_overlap() {
    for (stem, svg) in plots(&fixture::full()).unwrap() {
        let mut places: Vec<(String, f64)> = svg
            .lines()
            .filter(|line| line.starts_with("<text"))
            .filter(|line| !line.contains("text-anchor"))
            .filter_map(|line| {
                let of = |name: &str| Some(line.split_once(name)?.1.split_once('"')?.0.to_owned());
                Some((of(" x=\"")?, of(" y=\"")?.parse().ok()?))
            })
            .collect();
        places.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
        for two in places.windows(2).filter(|two| two[0].0 == two[1].0) {
            assert!(two[1].1 - two[0].1 >= 12.0, "{stem}: labels at {two:?}");
        }
    }
}

#[test]
fn a_full_run_has_all_of_the_papers_figures() {
    let page = render(&fixture::full()).unwrap();
    assert_sound(&page);
    for number in (2..=6).chain(10..=30).chain(31..=37) {
        let has_one = [":", ",", " in", "s"]
            .iter()
            .any(|end| page.contains(&format!("Figure {number}{end}")));
        assert!(has_one || number == 6, "no figure {number}");
    }
    assert!(page.len() < 8_000_000, "{} bytes", page.len());
}

#[test]
fn impossible_points_are_named_once_for_each_reason() {
    let sentences = absent::of(&fixture::results());
    let system_v = "System V message queues, throughput (10 KiB, 100 KiB, 1 MiB; 1 receiver): a message \
                    is at most 8192 bytes.";
    assert!(sentences.iter().any(|sentence| sentence == system_v), "{sentences:#?}");
}

#[test]
fn machines_stand_side_by_side() {
    let mut other = fixture::results();
    other.points.retain(|point| point.receivers < 8);
    let page = render_comparison(&[
        ("four-cores".to_owned(), fixture::results()),
        ("other & more".to_owned(), other),
    ])
    .unwrap();
    assert_sound(&page);
    assert!(page.contains("Figure 39: ZIMP over Barrelfish MP, 64\u{a0}B messages"));
    assert!(page.contains("corewire copying out over ZIMP, 4\u{a0}KiB messages"));
    assert!(page.contains("other &amp; more"));
    assert!(SIZES.contains(&64));
}
