//! Table I of the paper, with the counts of this study.

use crate::study::results::{Count, Results};

use super::page::{Table, paragraph};
use super::units::{bytes, plural, round};
use super::{facts, look};

/// The largest datagram that UDP carries, according to the paper.
const DATAGRAM: u64 = 65_507;

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    SendCopies,
    ReceiveCopies,
    SendCalls,
    ReceiveCalls,
    Yields,
}

impl Line {
    fn name(self) -> &'static str {
        match self {
            Self::SendCopies => "Copies for sending",
            Self::ReceiveCopies => "Copies for receiving",
            Self::SendCalls => "System calls for sending",
            Self::ReceiveCalls => "System calls for receiving",
            Self::Yields => "Yields of the processor",
        }
    }

    fn of(self, count: &Count) -> f64 {
        match self {
            Self::SendCopies => count.send_copies,
            Self::ReceiveCopies => count.receive_copies,
            Self::SendCalls => count.send_calls,
            Self::ReceiveCalls => count.receive_calls,
            Self::Yields => count.yields,
        }
    }

    /// The value in Table I, if the paper has the mechanism.
    fn paper(self, mechanism: &str, size: u64, receivers: u32) -> Option<u64> {
        let n = u64::from(receivers);
        let is_copy = matches!(self, Self::SendCopies | Self::ReceiveCopies);
        match (mechanism, self) {
            (_, Self::Yields) => None,
            ("zimp", Self::ReceiveCopies) => Some(n),
            ("zimp", _) => Some(0),
            ("barrelfish_mp", _) => Some(if is_copy { n } else { 0 }),
            ("udp", _) if !is_copy => Some(n * size.div_ceil(DATAGRAM)),
            ("unix_datagram" | "tcp" | "udp" | "pipe" | "system_v_queue" | "posix_queue", _) => {
                Some(n)
            }
            _ => None,
        }
    }
}

/// A table for each size and number of receivers that was counted, and the cost of a system call.
pub(crate) fn html(results: &Results) -> String {
    let cases = facts::sorted(results.counts.iter().map(|count| (count.bytes, count.receivers)));
    let tables: String =
        cases.iter().map(|(size, receivers)| table(results, *size, *receivers)).collect();
    let lead = if tables.is_empty() {
        paragraph("Copies and system calls were not counted in this run.")
    } else {
        paragraph(
            "Counts for one message that goes to all receivers, summed over the receivers. Below each count \
             is the value in Table I of the paper, if it has the mechanism. A copy is a copy of the \
             message that one of the processes or the kernel makes.",
        )
    };
    lead + &tables + &system_call(results)
}

fn table(results: &Results, size: u64, receivers: u32) -> String {
    let counts: Vec<&Count> = results
        .mechanisms
        .iter()
        .filter_map(|mechanism| {
            results.counts.iter().find(|count| {
                (count.mechanism.as_str(), count.bytes, count.receivers)
                    == (mechanism.id.as_str(), size, receivers)
            })
        })
        .collect();
    let names = counts
        .iter()
        .map(|count| look::short_name(&count.mechanism, &facts::name(results, &count.mechanism)));
    let head = std::iter::once(format!("N = {receivers}")).chain(names).collect();
    let did_yield = counts.iter().any(|count| count.impossible.is_none() && count.yields > 0.0);
    let lines = [Line::SendCopies, Line::ReceiveCopies, Line::SendCalls, Line::ReceiveCalls];
    let lines = lines.into_iter().chain(did_yield.then_some(Line::Yields));
    let rows = lines
        .map(|line| {
            let cells = counts.iter().map(|count| cell(line, count));
            std::iter::once(line.name().to_owned()).chain(cells).collect()
        })
        .collect();
    let caption = format!("{} messages to {}", bytes(size), plural(receivers, "receiver"));
    Table { head, rows, is_prose: false }.html(&caption)
}

fn cell(line: Line, count: &Count) -> String {
    let measured = match count.impossible {
        Some(_) => "\u{2013}".to_owned(),
        None => round((line.of(count) * 100.0).round() / 100.0),
    };
    match line.paper(&count.mechanism, count.bytes, count.receivers) {
        Some(paper) => format!("{measured}\npaper: {paper}"),
        None => measured,
    }
}

fn system_call(results: &Results) -> String {
    let Some(call) = &results.system_call else {
        return paragraph("The cost of a system call was not measured in this run.");
    };
    let ratio = call.system_call_ns / call.function_ns;
    let times = if ratio.is_finite() && ratio > 0.0 {
        format!("{} times as much", round(ratio))
    } else {
        "an unknown factor".to_owned()
    };
    paragraph(&format!(
        "A system call that does nothing takes {} ns here, a function call that does nothing \
         {} ns: {times}. The paper: 14 times as many cycles.",
        round(call.system_call_ns),
        round(call.function_ns),
    ))
}
