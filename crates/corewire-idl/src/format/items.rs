//! Tokens and comments in one list, with the line feeds between them.

use crate::lexer::{CommentKind, Kind, Tokens};
use crate::source::{Source, Span};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    Token(Kind),
    /// A comment in a line between tokens: `/* x */`.
    SoftComment,
    /// A comment after which the line ends.
    HardComment,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'a> {
    pub(super) kind: ItemKind,
    pub(super) text: &'a str,
    /// Line feeds between the item before and this one.
    pub(super) feeds: usize,
}

impl Item<'_> {
    pub(super) fn is(&self, mark: u8) -> bool {
        self.kind == ItemKind::Token(Kind::Mark(mark))
    }

    pub(super) const fn is_comment(&self) -> bool {
        matches!(self.kind, ItemKind::SoftComment | ItemKind::HardComment)
    }

    /// Whether this is `word`, which Flounder reads in any case.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.kind == ItemKind::Token(Kind::Name) && self.text.eq_ignore_ascii_case(word)
    }
}

/// All items of a file, the last one [`Kind::End`].
pub(super) fn items<'a>(source: &'a Source, tokens: &Tokens) -> Vec<Item<'a>> {
    let mut items = Vec::with_capacity(tokens.tokens.len() + tokens.comments.len());
    let mut comments = tokens.comments.iter().peekable();
    let mut end = 0;
    let mut add = |kind, span: Span| {
        let text = source.slice(span);
        let feeds = source.slice(Span::new(end, span.start)).matches('\n').count();
        end = span.end;
        items.push(Item { kind, text, feeds });
    };
    for (index, token) in tokens.tokens.iter().enumerate() {
        while let Some(comment) = comments.next_if(|comment| comment.before <= index) {
            let kind = match comment.kind {
                CommentKind::Block => ItemKind::SoftComment,
                CommentKind::Line | CommentKind::Documentation => ItemKind::HardComment,
            };
            add(kind, comment.span);
        }
        add(ItemKind::Token(token.kind), token.span);
    }
    for at in 0..items.len().saturating_sub(1) {
        let next = &items[at + 1];
        let ends_line = next.feeds > 0 || next.kind == ItemKind::Token(Kind::End);
        let item = &mut items[at];
        if item.kind == ItemKind::SoftComment && (ends_line || item.text.contains('\n')) {
            item.kind = ItemKind::HardComment;
        }
    }
    items
}
