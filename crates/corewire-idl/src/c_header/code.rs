//! Lines of C.

/// A line, as `format!` makes it.
macro_rules! line {
    ($code:expr, $($format:tt)*) => {
        $code.line(&format!($($format)*))
    };
}
pub(super) use line;

/// Text with the indentation of its blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    pub(super) text: String,
    depth: usize,
}

impl Code {
    pub(super) const fn new() -> Self {
        Self { text: String::new(), depth: 0 }
    }

    pub(super) fn line(&mut self, line: &str) {
        if !line.is_empty() {
            self.text.extend(std::iter::repeat_n("    ", self.depth));
            self.text.push_str(line);
        }
        self.text.push('\n');
    }

    /// A line that begins a block.
    pub(super) fn open(&mut self, line: &str) {
        self.line(line);
        self.depth += 1;
    }

    pub(super) fn close(&mut self, line: &str) {
        self.end();
        self.line(line);
    }

    /// Ends a block without a line.
    pub(super) fn end(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// A block, unless it is empty.
    pub(super) fn block(&mut self, head: &str, body: &Self) {
        if !body.text.is_empty() {
            self.open(head);
            body.text.lines().for_each(|line| self.line(line));
            self.close("}");
        }
    }

    /// A function.
    pub(super) fn function(&mut self, head: &str, body: &Self) {
        self.line(head);
        self.block("{", body);
        self.line("");
    }

    /// A text in which these words stand for others. A line that is one of the words stands for any number of lines.
    pub(super) fn template(&mut self, text: &str, words: &[(&str, &str)]) {
        for line in text.lines() {
            let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
            match words.iter().find(|(word, _)| rest == *word) {
                Some((_, lines)) => lines.lines().for_each(|one| line!(self, "{indent}{one}")),
                None => {
                    let replace = |line: String, (word, by): &(&str, &str)| line.replace(word, by);
                    self.line(&words.iter().fold(line.to_owned(), replace));
                }
            }
        }
        self.line("");
    }

    /// Lines of documentation, if there are any.
    pub(super) fn docs(&mut self, lines: &[String]) {
        match lines {
            [] => {}
            [only] => self.line(&format!("/** {} */", harmless(only))),
            lines => {
                self.line("/**");
                for line in lines {
                    self.line(format!(" * {}", harmless(line)).trim_end());
                }
                self.line(" */");
            }
        }
    }
}

/// Text that does not end the comment in which it is, and of which no compiler warns.
pub(super) fn harmless(text: &str) -> String {
    let is_shown = |letter: &char| {
        !letter.is_control()
            && !matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let text = text.trim().chars().filter(is_shown).collect::<String>();
    let mut text = text.replace("??", "? ?");
    // Twice, since `*/*/` and `/*/*` overlap.
    for _ in 0..2 {
        text = text.replace("*/", "* /").replace("/*", "/ *");
    }
    // It would join the next line.
    text.trim_end_matches('\\').to_owned()
}

/// A literal of C.
pub(super) fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' | b'?' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("\\{other:03o}")),
        }
    }
    out.push('"');
    out
}
