//! `report.html`: the results of a study beside the claims of the paper.
//!
//! The words of a page are a template beside the code of its study; every figure in them is computed from the results, so
//! that the page describes this machine, not the machine of the developers. A template is text:
//!
//! ```text
//! # Title
//! The first paragraph, {with} values.
//!
//! ## anchor: Heading of a section
//! A paragraph. One that has nothing but an empty {value} is left out.
//!
//! {{block}}
//!
//! {{block | A paragraph for a page where this block is empty.}}
//!
//! > What the paper claims.
//! = {what} was found here.
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `chart`, `svg`, `labels`, `look` | figures |
//! | `table` | tables |
//! | `units`, `escape` | figures and text for readers |

mod chart;
mod escape;
mod labels;
pub(crate) mod look;
mod svg;
mod table;
pub(crate) mod units;

use std::collections::BTreeMap;

pub(crate) use chart::{Axis, Chart, Figure, Mark, Series};
pub(crate) use table::{NONE, Table, times, with_span};

use super::distances::{Distance, Lines};
use super::results::{Body, Machine, Results};
use escape::escape;
use svg::{Format, Place};
use units::{and, bytes, nanoseconds, plural};

/// Sentences at the head of a page: at most so many.
const SHORT_MAX: usize = 5;

/// A part of a page.
#[derive(Debug, Clone)]
pub(crate) enum Block {
    Figures(Vec<Figure>),
    Tables(Vec<Table>),
    List(Vec<String>),
    /// A table that the reader opens, under this text.
    Folded(String, Table),
}

impl From<Vec<Figure>> for Block {
    fn from(figures: Vec<Figure>) -> Self {
        Self::Figures(figures)
    }
}

impl From<Option<Figure>> for Block {
    fn from(figure: Option<Figure>) -> Self {
        Self::Figures(figure.into_iter().collect())
    }
}

impl From<Table> for Block {
    fn from(table: Table) -> Self {
        Self::Tables(vec![table])
    }
}

impl From<Vec<Table>> for Block {
    fn from(tables: Vec<Table>) -> Self {
        Self::Tables(tables)
    }
}

impl From<Vec<String>> for Block {
    fn from(items: Vec<String>) -> Self {
        Self::List(items)
    }
}

/// A page whose template is being filled.
#[derive(Debug)]
pub(crate) struct Page {
    template: &'static str,
    values: BTreeMap<&'static str, String>,
    blocks: BTreeMap<&'static str, Block>,
}

impl Page {
    /// A page that has the values and blocks of all pages: `{processor}`, `{cores}`, and `{{machine}}` with a table of the
    /// machine, and of `facts` about the study.
    pub(crate) fn of<B: Body>(
        template: &'static str,
        results: &Results<B>,
        facts: &[(&str, String)],
    ) -> Self {
        let machine = &results.machine;
        let mut rows = about(machine);
        rows.push(row("corewire", results.version.clone()));
        rows.push(row("Began", results.began.replace('T', " ").replace('Z', " UTC")));
        rows.extend(facts.iter().map(|(name, text)| row(name, text.clone())));
        let machine_table = Table { rows, is_prose: true, ..Table::default() };
        Self { template, values: BTreeMap::new(), blocks: BTreeMap::new() }
            .value("processor", &machine.processor)
            .value("cores", plural(machine.cores, "core"))
            .block("machine", machine_table)
    }

    /// A page for no machine in particular.
    pub(crate) fn bare(template: &'static str) -> Self {
        Self { template, values: BTreeMap::new(), blocks: BTreeMap::new() }
    }

    /// Gives a value.
    pub(crate) fn value(mut self, name: &'static str, text: impl Into<String>) -> Self {
        debug_assert!(self.template.contains(&format!("{{{name}}}")), "no page shows {name}");
        self.values.insert(name, text.into());
        self
    }

    /// Gives a block.
    pub(crate) fn block(mut self, name: &'static str, block: impl Into<Block>) -> Self {
        self.blocks.insert(name, block.into());
        self
    }

    /// Gives the sentences of "In short", the most important first. Only a few are shown.
    pub(crate) fn short(self, mut sentences: Vec<String>) -> Self {
        sentences.truncate(SHORT_MAX);
        self.block("short", sentences)
    }

    /// The page as HTML that needs no other files.
    pub(crate) fn html(&self) -> String {
        let (head, rest) = self.template.split_once("\n## ").unwrap_or((self.template, ""));
        let (title, lead) = head.split_once('\n').unwrap_or((head, ""));
        let title = escape(&self.filled(title.trim_start_matches("# ")));
        let (mut links, mut body) = (String::new(), String::new());
        for section in rest.split("\n## ").filter(|section| !section.is_empty()) {
            let (head, text) = section.split_once('\n').unwrap_or((section, ""));
            let (anchor, heading) = head.split_once(": ").unwrap_or((head, head));
            let heading = escape(&self.filled(heading));
            links += &format!("<a href=\"#{anchor}\">{heading}</a>\n");
            body += &format!(
                "<section id=\"{anchor}\">\n<h2>{heading}</h2>\n{}</section>\n",
                self.body(text, "p")
            );
        }
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n\
             {}<nav aria-label=\"Contents\">\n{links}</nav>\n{body}</main>\n</body>\n</html>\n",
            include_str!("page.css"),
            self.body(lead, "p class=\"lead\"")
        )
    }

    /// The SVG of every figure of the page, with the stem of its file name.
    pub(crate) fn plots(&self) -> Vec<(String, String)> {
        let mut plots = Vec::new();
        for name in
            self.template.split("{{").skip(1).filter_map(|rest| rest.split(['}', ' ']).next())
        {
            if let Some(Block::Figures(figures)) = self.blocks.get(name) {
                let plot = |figure: &Figure| {
                    (figure.stem.clone(), svg::draw(figure, Format::Wide, Place::File))
                };
                plots.extend(figures.iter().map(plot));
            }
        }
        plots
    }

    /// A line of the template with its values, which are text, whatever they hold.
    fn filled(&self, text: &str) -> String {
        let mut pieces = text.split('{');
        let mut filled = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let (name, rest) = piece.split_once('}').unwrap_or((piece, ""));
            let value = self.values.get(name);
            filled += value.unwrap_or_else(|| panic!("no value {name} is given: {text}"));
            filled += rest;
        }
        filled.trim().replace('\n', " ")
    }

    /// Paragraphs and blocks as HTML.
    fn body(&self, text: &str, tag: &str) -> String {
        let end = tag.split(' ').next().unwrap_or(tag);
        let paragraph = |text: &str| format!("<{tag}>{}</{end}>\n", escape(text));
        let mut html = String::new();
        for part in text.split("\n\n").map(str::trim).filter(|part| !part.is_empty()) {
            if let Some(claim) = part.strip_prefix("> ") {
                let (paper, here) = claim.split_once("\n=").unwrap_or((claim, ""));
                html += &one_claim(&self.filled(paper), &self.filled(here));
                continue;
            }
            let block = part.strip_prefix("{{").and_then(|part| part.strip_suffix("}}"));
            let (block, otherwise) = match block {
                Some(block) => {
                    let (name, otherwise) = block.split_once(" | ").unwrap_or((block, ""));
                    let block = self.blocks.get(name);
                    let block = block.unwrap_or_else(|| panic!("no block {name} is given"));
                    (block.html(name), otherwise)
                }
                None => (String::new(), part),
            };
            match (&block[..], self.filled(otherwise)) {
                ("", otherwise) if otherwise.is_empty() => {}
                ("", otherwise) => html += &paragraph(&otherwise),
                _ => html += &block,
            }
        }
        html.replace("</dl>\n<dl class=\"claims\">\n", "")
    }
}

/// What a paper claims, and what was found here.
fn one_claim(paper: &str, here: &str) -> String {
    let here = if here.is_empty() { "not measured in this run." } else { here };
    let (paper, here) = (escape(paper), escape(here));
    format!(
        "<dl class=\"claims\">\n<div><dt><b>The paper:</b> {paper}</dt><dd><b>Here:</b> {here}</dd></div>\n</dl>\n"
    )
}

impl Block {
    /// The block as HTML; empty if there is nothing to show.
    fn html(&self, name: &str) -> String {
        match self {
            Self::Figures(figures) => figures.iter().map(figure).collect(),
            Self::Tables(tables) => {
                tables.iter().filter(|table| !table.rows.is_empty()).map(Table::html).collect()
            }
            Self::List(items) if items.is_empty() => String::new(),
            Self::List(items) => {
                let list: String =
                    items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect();
                let list = format!("<ul>\n{list}</ul>\n");
                if name == "short" {
                    format!("<div class=\"short\">\n<h2>In short</h2>\n{list}</div>\n")
                } else {
                    list
                }
            }
            Self::Folded(_, table) if table.rows.is_empty() || table.head.len() < 2 => {
                String::new()
            }
            Self::Folded(summary, table) => {
                format!(
                    "<details><summary>{}</summary>{}</details>\n",
                    escape(summary),
                    table.html()
                )
            }
        }
    }
}

/// A figure with both of its pictures, wide and narrow.
fn figure(figure: &Figure) -> String {
    let [wide, narrow] =
        [Format::Wide, Format::Narrow].map(|format| svg::draw(figure, format, Place::Page));
    format!(
        "<figure id=\"{}\">\n<h3>{}</h3>\n<div class=\"plot\">{wide}{narrow}</div>\n\
         <figcaption>{}</figcaption>\n</figure>\n",
        escape(&figure.stem),
        escape(&figure.heading),
        escape(&figure.caption),
    )
}

fn row(name: &str, text: String) -> Vec<String> {
    vec![name.to_owned(), text]
}

/// What there is to say of a machine: names and texts.
pub(crate) fn about(machine: &Machine) -> Vec<Vec<String>> {
    let or = |text: &Option<String>, none: &str| text.clone().unwrap_or_else(|| none.to_owned());
    vec![
        row("Processor", machine.processor.clone()),
        row("Cores", cores(machine)),
        row("Caches", caches(machine)),
        row("Memory", bytes(machine.memory_bytes)),
        row("Kernel", machine.kernel.clone()),
        row("Hypervisor", or(&machine.hypervisor, "none")),
        row("Hardware counters", or(&machine.counters_absent, "readable")),
    ]
}

/// The cores of a machine and its sockets.
fn cores(machine: &Machine) -> String {
    format!("{} in {}", plural(machine.cores, "core"), plural(machine.sockets, "socket"))
}

/// The caches of a machine, separated by semicolons.
fn caches(machine: &Machine) -> String {
    let cache = |cache: &super::results::Cache| {
        let shared = match cache.shared_by {
            0 | 1 => String::new(),
            processors => format!(", shared by {processors}"),
        };
        let kind = if cache.kind == "unified" { "" } else { &cache.kind };
        format!("L{} {kind} {}{shared}", cache.level, bytes(cache.bytes)).replace("  ", " ")
    };
    machine.caches.iter().map(cache).collect::<Vec<_>>().join("; ")
}

/// At which distance of the cores the figures of a page were measured: the first of `distances`, which are those of all
/// runs. `each` is what a line is timed before and after.
pub(crate) fn whereabouts(distances: &[Distance], each: &str) -> String {
    let Some(shown) = distances.first() else {
        return "The cores were moved in the middle of every run, so no figures can be compared."
            .to_owned();
    };
    let Some((least, most)) = shown.line_ns else { return String::new() };
    let line = format!("between {} and {} one way", nanoseconds(least), nanoseconds(most));
    let (here, of) = (shown.runs, shown.of);
    if here == of {
        return format!(
            "A bare cache line takes {line}, before and after each {each}, so the cores were not moved."
        );
    }
    format!(
        "The host moved the cores during the study, as shared hosts do. Figures from different places of the cores \
         cannot be compared. So a bare cache line is timed before and after each {each}: of {of} such times, the \
         page shows the {here} at which the line took {line}."
    )
}

/// The same for a page that shows all runs, since there is one of each: says as well which of them were at another distance.
/// `runs` are their names and the times of a line around them.
pub(crate) fn whereabouts_of_all(distances: &[Distance], runs: &[(String, Lines)]) -> String {
    if runs.iter().all(|(_, line_ns)| line_ns.is_none()) {
        return String::new();
    }
    let elsewhere = runs.iter().filter_map(|(what, line_ns)| {
        let [before, after] = (*line_ns)?.map(nanoseconds);
        let is_here = distances.first().is_some_and(|home| home.has(*line_ns));
        (!is_here).then(|| format!("{what} ({before} before, {after} after)"))
    });
    let elsewhere: Vec<String> = elsewhere.collect();
    let here = whereabouts(distances, "run");
    if elsewhere.is_empty() {
        return here;
    }
    format!(
        "{here} At other distances there are only: {}. The page shows them, too, but their times cannot be compared with \
         others; ratios within such a run can, since its blocks alternate.",
        and(&elsewhere)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = "# A <page>\nOn {machine}.\n\n{{short}}\n\n## one: First\n{empty}\n\n{{list | None.}}\n\n\
                            > It is\nfast.\n= {found}\n\n> It is small.\n= {empty}";

    fn page(items: &[&str]) -> String {
        let items: Vec<String> = items.iter().map(|&item| item.to_owned()).collect();
        let page = Page::bare(TEMPLATE)
            .value("machine", "this & {that}")
            .value("empty", "")
            .value("found", "so it is.")
            .block("list", items.clone());
        page.short(vec!["x".to_owned(); 9]).html()
    }

    #[test]
    fn a_template_is_filled_and_what_is_empty_is_left_out() {
        let html = page(&["1 < 2"]);
        assert!(html.contains("<h1>A &lt;page&gt;</h1>\n<p class=\"lead\">On this &amp; {that}.</p>\n<div class=\"short\">"));
        assert!(html.contains("<h2>First</h2>\n<ul>\n<li>1 &lt; 2</li>\n</ul>\n<dl class=\"claims\">\n<div><dt><b>The paper:</b> It is fast.</dt>"));
        assert!(html.contains("<dd><b>Here:</b> so it is.</dd></div>\n<div>"));
        assert!(
            html.contains(
                "<dd><b>Here:</b> not measured in this run.</dd></div>\n</dl>\n</section>"
            )
        );
        assert_eq!(html.matches("<li>x</li>").count(), SHORT_MAX);
        assert!(page(&[]).contains("<h2>First</h2>\n<p>None.</p>\n<dl"));
    }

    #[test]
    #[should_panic(expected = "no value machine is given: On {machine}.")]
    fn a_value_that_is_missing_is_noticed() {
        Page::bare("# A page\nOn {machine}.").html();
    }
}
