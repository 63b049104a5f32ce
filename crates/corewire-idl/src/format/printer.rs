//! Prints the items of a file that is known to be right, statement by statement.

use super::items::{Item, ItemKind};
use crate::lexer::Kind;

const WIDTH: usize = 100;

const INDENT: usize = 4;

pub(super) fn print(items: &[Item<'_>]) -> String {
    let mut printer =
        Printer { items, at: 0, out: String::new(), level: 0, feed: false, plain_until: 0 };
    printer.block(true);
    if !printer.out.is_empty() && !printer.out.ends_with('\n') {
        printer.out.push('\n');
    }
    printer.out
}

struct Printer<'a> {
    items: &'a [Item<'a>],
    at: usize,
    out: String,
    level: usize,
    /// The next item begins a new line, unless it is a comment that stands in the same line in the file.
    feed: bool,
    /// Comments before this item lead no statement. Found once for all of them.
    plain_until: usize,
}

/// How a statement is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Flat,
    /// Each element of its list has a line of its own.
    Broken,
}

impl<'a> Printer<'a> {
    /// Statements up to a closing brace, which is not consumed, or up to the end of the file.
    fn block(&mut self, top: bool) {
        let mut first = true;
        loop {
            let item = self.items[self.at];
            if item.kind == ItemKind::Token(Kind::End) || item.is(b'}') && !top {
                return;
            }
            let leads = item.kind == ItemKind::SoftComment && self.leads_statement();
            if item.is_comment() && !leads {
                let trails = item.feeds == 0 && !self.out.is_empty();
                if trails {
                    self.out.push(' ');
                } else {
                    self.line(item.feeds > 1 && !first);
                }
                self.comment(item.text);
                self.at += 1;
                first &= trails;
            } else {
                self.line(item.feeds > 1 && !first);
                self.statement();
                first = false;
            }
        }
    }

    /// Whether the comment here stands in one line with the beginning of a statement.
    fn leads_statement(&mut self) -> bool {
        if self.at < self.plain_until {
            return false;
        }
        let rest = self.items[self.at..].iter();
        let soft = rest.take_while(|item| item.kind == ItemKind::SoftComment).count();
        let next = self.items[(self.at + soft).min(self.items.len() - 1)];
        let end = next.is(b'}') || next.kind == ItemKind::Token(Kind::End);
        if next.is_comment() || end {
            self.plain_until = self.at + soft;
        }
        self.at >= self.plain_until
    }

    fn statement(&mut self) {
        self.feed = false;
        let (end, block) = self.extent();
        if !block {
            let form = if self.is_flat(end) { Form::Flat } else { Form::Broken };
            self.pieces(end, form);
            return;
        }
        self.pieces(end, Form::Flat);
        self.feed = false;
        self.level += 1;
        self.block(false);
        self.level -= 1;
        self.line(false);
        // What stands behind the brace: a name and a semicolon, or less.
        let mut end = self.at + 1;
        let mut ahead = end;
        while let Some(item) = self.items.get(ahead) {
            ahead += 1;
            match item.kind {
                ItemKind::Token(Kind::Mark(b';')) => {
                    end = ahead;
                    break;
                }
                ItemKind::Token(Kind::Name) if !item.is_word("interface") => {}
                ItemKind::SoftComment | ItemKind::HardComment => {}
                ItemKind::Token(_) => break,
            }
        }
        self.feed = false;
        self.pieces(end, Form::Flat);
    }

    /// Where the statement that begins here ends, and whether that is the brace of a block.
    fn extent(&self) -> (usize, bool) {
        let tokens = (self.at..self.items.len()).filter(|at| !self.items[*at].is_comment());
        let head = tokens.take(2).map(|at| self.items[at]).collect::<Vec<_>>();
        let block = match head.as_slice() {
            [first, ..] if self.level == 0 && first.is_word("interface") => true,
            [first, second] => {
                let aggregate = second.is_word("struct") || second.is_word("union");
                first.is_word("typedef") && aggregate && self.third_is_brace()
            }
            _ => false,
        };
        let annotation = head.first().is_some_and(|first| first.is(b'@'));
        let mut depth = 0_usize;
        for at in self.at..self.items.len() {
            match self.items[at].kind {
                ItemKind::Token(Kind::Mark(b'{')) if block => return (at + 1, true),
                ItemKind::Token(Kind::Mark(b'(' | b'{')) => depth += 1,
                ItemKind::Token(Kind::Mark(b')' | b'}')) => {
                    depth = depth.saturating_sub(1);
                    if annotation && depth == 0 {
                        return (at + 1, false);
                    }
                }
                ItemKind::Token(Kind::Mark(b';')) if depth == 0 => return (at + 1, false),
                ItemKind::Token(Kind::End) => return (at, false),
                _ => {}
            }
        }
        (self.items.len() - 1, false)
    }

    fn third_is_brace(&self) -> bool {
        let mut tokens = self.items[self.at..].iter().filter(|item| !item.is_comment());
        tokens.nth(2).is_some_and(|item| item.is(b'{'))
    }

    fn is_flat(&self, end: usize) -> bool {
        let items = &self.items[self.at..end];
        if items.iter().any(|item| item.kind == ItemKind::HardComment) {
            return false;
        }
        let mut width = self.level * INDENT;
        let mut parentheses = 0;
        for (at, item) in items.iter().enumerate() {
            let space = at > 0 && space(&items[at - 1], item, parentheses > 0);
            width += item.text.chars().count() + usize::from(space);
            parentheses += usize::from(item.is(b'('));
        }
        width <= WIDTH
    }

    /// Prints everything up to `end`.
    fn pieces(&mut self, end: usize, form: Form) {
        let mut depth = 0_usize;
        let mut list = None;
        let mut parentheses = 0_usize;
        let start = self.at;
        while self.at < end {
            let item = self.items[self.at];
            let opens = [b'(', b'[', b'<', b'{'].iter().any(|mark| item.is(*mark));
            let closes = [b')', b']', b'>', b'}'].iter().any(|mark| item.is(*mark));
            let is_list = form == Form::Broken && depth == 0 && list.is_none();
            if closes {
                depth = depth.saturating_sub(1);
                if list == Some(depth) && form == Form::Broken {
                    self.feed |= !self.out.ends_with(['(', '{']);
                    list = None;
                }
            }
            let deeper = depth > 0 || self.at > start && !closes;
            let level = self.level + usize::from(deeper);
            self.piece(item, start, level, parentheses > 0);
            if opens {
                if is_list && (item.is(b'(') || item.is(b'{')) {
                    list = Some(depth);
                    let next = self.items.get(self.at + 1);
                    self.feed |= next.is_some_and(|next| !next.is(b')'));
                }
                depth += 1;
            }
            if item.is(b'(') {
                parentheses += 1;
            } else if item.is(b')') {
                parentheses = parentheses.saturating_sub(1);
            }
            if item.is(b',') && form == Form::Broken && list.is_some_and(|list| list + 1 == depth) {
                self.feed = true;
            }
            self.at += 1;
        }
    }

    /// Prints one item of a statement, with what stands between it and the item before.
    fn piece(&mut self, item: Item<'_>, start: usize, level: usize, in_parentheses: bool) {
        let first = self.at == start;
        if item.kind == ItemKind::HardComment {
            if item.feeds == 0 && !first {
                self.out.push(' ');
            } else if !first {
                self.line_at(level);
            }
            self.comment(item.text);
            self.feed = true;
            return;
        }
        if self.feed {
            self.line_at(level);
            self.feed = false;
        } else if !first && space(&self.items[self.at - 1], &item, in_parentheses) {
            self.out.push(' ');
        }
        self.out.push_str(item.text);
    }

    /// Begins a line, after an empty one if `gap`.
    fn line(&mut self, gap: bool) {
        self.line_at(self.level);
        if gap {
            let indent = self.level * INDENT;
            self.out.truncate(self.out.len() - indent);
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent));
        }
    }

    fn line_at(&mut self, level: usize) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.out.extend(std::iter::repeat_n(' ', level * INDENT));
    }

    /// Lines of a comment that begin with a star are aligned below the first one; others stay.
    fn comment(&mut self, text: &str) {
        if !text.contains('\n') {
            return self.out.push_str(text.trim_end());
        }
        let line = self.out.rsplit('\n').next().unwrap_or_default();
        let indent = line.len() - line.trim_start_matches(' ').len();
        for (at, line) in text.split('\n').enumerate() {
            let trimmed = line.trim();
            if at == 0 {
                self.out.push_str(line.trim_end());
            } else if trimmed.starts_with('*') {
                self.out.push('\n');
                self.out.extend(std::iter::repeat_n(' ', indent + 1));
                self.out.push_str(trimmed);
            } else {
                self.out.push('\n');
                self.out.push_str(line.trim_end());
            }
        }
    }
}

/// Whether a space stands between two items of one line.
fn space(before: &Item<'_>, item: &Item<'_>, in_parentheses: bool) -> bool {
    if before.is_comment() || item.is_comment() {
        return true;
    }
    let is = |item: &Item<'_>, marks: &[u8]| marks.iter().any(|mark| item.is(*mark));
    if is(before, b"([<@-") || is(item, b",;)]>([<") {
        return false;
    }
    // In annotations, as Barrelfish's files have it.
    let equals = is(before, b"=") || is(item, b"=");
    !(equals && in_parentheses)
}
