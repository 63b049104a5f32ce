//! The terminal: what is drawn, and what keys do.

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line as TextLine;
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::lines::{COLUMNS, Line};
use super::rates::{Look, Watcher};
use super::view::{Sort, View};
use crate::failure::Failure;
use crate::units;

/// Widths of the columns, unless a cell needs more. The first takes the room that is left.
const WIDTHS: [u16; 9] = [12, 7, 6, 7, 6, 7, 7, 6, 6];
/// Up to this width, what is said of a service beside its name comes before columns of less importance.
const NAME_WIDTH: u16 = 28;
/// Which columns a narrow terminal keeps, the most important first: name, msg/s, lag, bytes/s, pid,
/// drops, deaths, waits/s, wakes/s.
const KEPT: [usize; 9] = [0, 2, 4, 3, 1, 7, 8, 5, 6];
const KEYS: [&str; 8] = [
    "q quit",
    "space pause",
    "s sort",
    "r reverse",
    "/ filter",
    "enter parts",
    "a all",
    "j k scroll",
];
/// What the column of each place is sorted by.
const SORTS: [Option<Sort>; 9] = [
    Some(Sort::Name),
    None,
    Some(Sort::Messages),
    Some(Sort::Bytes),
    Some(Sort::Lag),
    Some(Sort::Waits),
    Some(Sort::Wakes),
    Some(Sort::Drops),
    Some(Sort::Deaths),
];

/// Longest time until a finished look is shown.
const LOOKS_WITHIN: Duration = Duration::from_millis(20);

/// The result of a look.
type Seen = Result<Look, Failure>;

/// A thread that looks when it is asked to.
struct Looks {
    ask: Sender<()>,
    seen: Receiver<Seen>,
}

/// Starts that thread. A stopped process can delay a look, and keys must work meanwhile.
fn looking(mut watcher: Watcher) -> Looks {
    let (ask, asked) = channel();
    let (see, seen) = channel();
    std::thread::spawn(move || while asked.recv().is_ok() && see.send(watcher.look()).is_ok() {});
    Looks { ask, seen }
}

/// The state of the screen.
pub(super) struct Screen {
    pub(super) view: View,
    look: Look,
    place: String,
    interval: Duration,
    is_paused: bool,
    /// The user is typing the filter.
    is_typing: bool,
    is_over: bool,
    table: TableState,
}

impl Screen {
    pub(super) fn new(view: View, place: String, interval: Duration) -> Self {
        Self {
            view,
            look: Look::default(),
            place,
            interval,
            is_paused: false,
            is_typing: false,
            is_over: false,
            table: TableState::default(),
        }
    }

    /// Runs until the user quits.
    pub(super) fn run(mut self, watcher: Watcher) -> Result<(), Failure> {
        let refused = |why: &str| {
            Failure::other(format!("top needs a terminal ({why}); top --once does not"))
        };
        if !std::io::stdout().is_terminal() {
            return Err(refused("standard output is not one"));
        }
        let terminal = ratatui::try_init();
        let outcome = match terminal {
            Ok(mut terminal) => self.run_in(&mut terminal, watcher),
            Err(error) => Err(refused(&error.to_string())),
        };
        ratatui::restore();
        outcome
    }

    fn run_in(
        &mut self,
        terminal: &mut ratatui::DefaultTerminal,
        watcher: Watcher,
    ) -> Result<(), Failure> {
        let failed =
            |error: std::io::Error| Failure::other(format!("the terminal failed: {error}"));
        let looks = looking(watcher);
        let mut next = Instant::now();
        let mut is_looking = false;
        while !self.is_over {
            if is_looking && let Ok(seen) = looks.seen.try_recv() {
                self.look = seen?;
                is_looking = false;
            }
            if Instant::now() >= next {
                if !self.is_paused && !is_looking {
                    is_looking = looks.ask.send(()).is_ok();
                }
                next = Instant::now() + self.interval;
            }
            terminal.draw(|frame| self.draw(frame)).map_err(failed)?;
            let left = next.saturating_duration_since(Instant::now());
            let left = if is_looking { left.min(LOOKS_WITHIN) } else { left };
            if event::poll(left).map_err(failed)?
                && let Event::Key(key) = event::read().map_err(failed)?
                && key.kind == KeyEventKind::Press
            {
                self.press(key);
            }
        }
        Ok(())
    }

    fn press(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            self.is_over = true;
            return;
        }
        if self.is_typing {
            match key.code {
                KeyCode::Char(c) => self.view.filter.push(c),
                KeyCode::Backspace => drop(self.view.filter.pop()),
                KeyCode::Esc => {
                    self.view.filter.clear();
                    self.is_typing = false;
                }
                KeyCode::Enter => self.is_typing = false,
                _ => {}
            }
            return;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => self.is_over = true,
            KeyCode::Char(' ' | 'p') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => self.view.sort = self.view.sort.next(),
            KeyCode::Char('r') => self.view.is_reversed = !self.view.is_reversed,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Enter => self.view.shows_parts = !self.view.shows_parts,
            KeyCode::Char('a') => self.view.shows_all = !self.view.shows_all,
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(20),
            KeyCode::PageUp => self.scroll(-20),
            _ => {}
        }
    }

    fn scroll(&mut self, lines: isize) {
        let last = self.view.lines(&self.look).len().saturating_sub(1);
        let offset = self.table.offset().saturating_add_signed(lines).min(last);
        *self.table.offset_mut() = offset;
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)])
                .areas(frame.area());
        let lines = self.view.lines(&self.look);
        let columns = columns(&lines, body.width, self.view.sort);
        let hidden = COLUMNS.len() - columns.len();
        frame.render_widget(Paragraph::new(self.title(hidden, head.width)), head);
        if lines.is_empty() {
            frame.render_widget(Paragraph::new(self.view.nothing(&self.place)), body);
        } else {
            let widths = columns.iter().map(|column| Constraint::Length(column.width));
            let rows = lines.iter().map(|line| row(line, &columns));
            let table = Table::new(rows, widths).header(self.header(&columns)).column_spacing(1);
            frame.render_stateful_widget(table, body, &mut self.table);
        }
        let foot_text = match (&self.look.unseen[..], self.is_typing) {
            (_, true) => format!("filter: {}_   enter keeps it, esc clears it", self.view.filter),
            ([first, ..], false) => format!("cannot be seen: {first}"),
            ([], false) => keys(foot.width),
        };
        frame.render_widget(Paragraph::new(foot_text).style(dim()), foot);
    }

    /// The first line: as much of it as fits, the most important parts first.
    fn title(&self, hidden: usize, width: u16) -> TextLine<'static> {
        let Look { services, channels, endpoints, monitors, groups, windows, owners, .. } =
            &self.look;
        let is_shown = |name: &str| self.view.shows_all || owners.of_part(name).is_none();
        let channels = || channels.iter().filter(|channel| is_shown(&channel.name));
        let receivers = channels().map(|channel| channel.receivers.len()).sum();
        let endpoints = endpoints.iter().filter(|endpoint| is_shown(&endpoint.name)).count();
        let paused = if self.is_paused { " PAUSED" } else { "" };
        let counts = [
            (services.len(), "service", "services"),
            (channels().count(), "channel", "channels"),
            (receivers, "receiver", "receivers"),
            (endpoints, "endpoint", "endpoints"),
            (monitors.len(), "monitor", "monitors"),
            (groups.len(), "group", "groups"),
            (windows.len(), "window", "windows"),
        ];
        let mut counts = counts
            .into_iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, one, many)| units::counted(count, one, many));
        let first = counts.next().unwrap_or_else(|| "nothing".to_owned());
        let mut text = format!("corewire{paused}: {first}");
        let more = units::counted(hidden, "more column", "more columns");
        let others = [
            (hidden > 0).then_some(more),
            (!self.view.filter.is_empty() && !self.is_typing)
                .then(|| format!("named *{}*", self.view.filter)),
            Some(format!("every {}", seconds(self.interval))),
        ];
        for part in counts.chain(others.into_iter().flatten()) {
            if text.chars().count() + 2 + part.chars().count() <= usize::from(width) {
                text.push_str(", ");
                text.push_str(&part);
            }
        }
        TextLine::styled(text, Style::new().add_modifier(Modifier::BOLD))
    }

    fn header(&self, columns: &[Column]) -> Row<'static> {
        Row::new(columns.iter().map(|column| {
            let (title, is_number) = COLUMNS[column.index];
            let is_chosen = SORTS[column.index] == Some(self.view.sort);
            let style = match is_chosen {
                true => Style::new().add_modifier(Modifier::REVERSED),
                false => Style::new().add_modifier(Modifier::UNDERLINED),
            };
            Cell::new(aligned(title.to_owned(), is_number)).style(style)
        }))
    }
}

/// A column that is shown.
struct Column {
    /// Its place in [`COLUMNS`].
    index: usize,
    width: u16,
}

/// The columns that fit, in order, each as wide as its longest cell. The first one is always there and
/// takes the room that is left, up to its longest name; of the others, that which is sorted by is kept
/// first. A number is never cut: its column is left out instead.
fn columns(lines: &[Line], width: u16, sort: Sort) -> Vec<Column> {
    let longest = |index: usize| {
        let cells = lines.iter().filter_map(|line| line.cells.get(index));
        let longest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        u16::try_from(longest).unwrap_or(u16::MAX).max(WIDTHS[index])
    };
    let sorted_by = SORTS.iter().position(|&of| of == Some(sort)).unwrap_or(0);
    let named = lines.iter().filter(|line| line.says_more);
    let named = named.filter_map(|line| line.cells.first()).map(|name| name.chars().count()).max();
    let name = u16::try_from(named.unwrap_or(0)).unwrap_or(u16::MAX);
    let name = name.min(NAME_WIDTH).min(width / 2 + 3).max(WIDTHS[0]);
    let mut columns = vec![Column { index: 0, width: name }];
    let mut left = width.saturating_sub(name);
    for index in [sorted_by].into_iter().chain(KEPT) {
        let wanted = longest(index).saturating_add(1);
        if wanted <= left && columns.iter().all(|column| column.index != index) {
            left -= wanted;
            columns.push(Column { index, width: wanted - 1 });
        }
    }
    columns.sort_by_key(|column| column.index);
    columns[0].width = longest(0).min(name + left);
    columns
}

/// The keys that fit.
fn keys(width: u16) -> String {
    let mut text = String::new();
    for key in KEYS {
        let gap = if text.is_empty() { "" } else { "  " };
        if text.len() + gap.len() + key.len() > usize::from(width) {
            break;
        }
        text.push_str(gap);
        text.push_str(key);
    }
    text
}

fn row(line: &Line, columns: &[Column]) -> Row<'static> {
    let cells = columns.iter().map(|column| {
        let cell = line.cells.get(column.index).cloned().unwrap_or_default();
        let (_, is_number) = COLUMNS[column.index];
        let cell = if is_number { cell } else { shortened(cell, column.width) };
        Cell::new(aligned(cell, is_number))
    });
    let style = match (line.is_bad, line.is_part) {
        (true, _) => Style::new().fg(Color::Yellow),
        (false, true) => dim(),
        (false, false) => Style::new(),
    };
    Row::new(cells).style(style)
}

/// A name that fits the width; if it had to be cut, that shows.
fn shortened(name: String, width: u16) -> String {
    let width = usize::from(width);
    if name.chars().count() <= width {
        return name;
    }
    name.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn aligned(text: String, is_number: bool) -> TextLine<'static> {
    let alignment = if is_number { Alignment::Right } else { Alignment::Left };
    TextLine::raw(text).alignment(alignment)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn seconds(interval: Duration) -> String {
    format!("{} s", (interval.as_secs_f64() * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::top::rates::{Channel, Rates, Receiver};

    fn busy() -> Vec<Channel> {
        let rates = Rates {
            messages_per_s: 234_567_890.0,
            bytes_per_s: 18.9e9,
            estimated_bytes_per_s: 1.0,
            waits_per_s: 12.0,
            wakes_per_s: 12_345.0,
        };
        let receiver = |row| Receiver {
            row,
            pid: 4_194_303,
            rates,
            lag: 16_384,
            drops: 0,
            is_asleep: row == 1,
        };
        ["prices", "a-channel-with-a-very-long-name-that-does-not-fit"]
            .map(|name| Channel {
                name: name.into(),
                pid: 4_194_304,
                senders: 1,
                sent: 1 << 40,
                rates,
                lag: 16_384,
                drops: 0,
                deaths: 3,
                receivers_max: 64,
                receivers: vec![receiver(0), receiver(1)],
            })
            .into()
    }

    fn drawn(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(line).collect()
    }

    fn screen() -> Screen {
        let view = View {
            sort: Sort::Messages,
            is_reversed: false,
            filter: String::new(),
            shows_parts: true,
            shows_all: false,
        };
        let mut screen = Screen::new(view, "/run".into(), Duration::from_secs(1));
        screen.look.channels = busy();
        screen
    }

    // Keeps P58.
    #[test]
    fn everything_fits_a_small_terminal_and_a_large_one() {
        for (width, height) in [(80, 24), (200, 50)] {
            let lines = drawn(&mut screen(), width, height);
            let all = lines.join("\n");
            for word in ["prices", "msg/s", "deaths", "235M", "~18.9G", "12.3k", "row 1, asleep"] {
                assert!(all.contains(word), "{word} is not on a screen of {width}:\n{all}");
            }
            assert!(lines[0].starts_with("corewire: 2 channels, 4 receivers, every 1 s"), "{all}");
            assert!(lines.last().unwrap().trim_end().ends_with("scroll"), "{all}");
        }
    }

    #[test]
    fn a_narrow_terminal_shows_fewer_columns_and_whole_numbers() {
        let mut screen = screen();
        let whole = ["4194304", "4194303", "235M", "~18.9G", "16.4k", "12.3k", "12", "3"];
        let mut shown = Vec::new();
        for width in 1..=90 {
            let lines = drawn(&mut screen, width, 8);
            let is_there = |title: &&str| lines[1].contains(*title);
            let titles: Vec<_> = COLUMNS.map(|(title, _)| title).into_iter().skip(1).collect();
            let count = titles.iter().filter(|title| is_there(title)).count();
            shown.push(count);
            for line in &lines[2..6] {
                let is_number =
                    |word: &&str| word.starts_with(|c: char| c == '~' || c.is_numeric());
                // The number of a receiver's row is part of its name.
                let numbers = line.split_whitespace().filter(is_number);
                let mut numbers = numbers.filter(|word| !["0", "1", "1,"].contains(word));
                assert!(numbers.all(|number| whole.contains(&number)), "{width}: {lines:?}");
            }
        }
        assert!(shown.is_sorted() && shown[11] == 0 && shown[79] == 8, "{shown:?}");
        assert_eq!(shown[49], 5);
        let lines = drawn(&mut screen, 50, 8);
        assert_eq!(lines[0].trim_end(), "corewire: 2 channels, 4 receivers, 3 more columns");
        for title in ["name", "pid", "msg/s", "bytes/s", "lag", "drops"] {
            assert!(lines[1].contains(title), "{title} is not in {lines:?}");
        }
        assert!(
            lines[2].starts_with("a-channel-wi… ") && lines[2].contains(" 4194304 "),
            "{lines:?}"
        );
        assert!(lines[7].starts_with("q quit") && lines[7].trim_end().ends_with("filter"));
        // The column that is sorted by stays.
        screen.view.sort = Sort::Wakes;
        assert!(drawn(&mut screen, 30, 8)[1].contains("wakes/s"));
        assert!(drawn(&mut screen, 90, 8)[0].contains("every 1 s  "));
        assert!(drawn(&mut screen, 72, 8)[0].contains("every 1 s  "));
        assert!(drawn(&mut screen, 71, 8)[0].contains("4 receivers, 1 more column, every 1 s"));
    }

    #[test]
    fn keys_sort_filter_pause_and_quit() {
        let mut screen = screen();
        let press = |screen: &mut Screen, code| screen.press(KeyEvent::from(code));
        press(&mut screen, KeyCode::Char('s'));
        assert_eq!(screen.view.sort, Sort::Bytes);
        press(&mut screen, KeyCode::Char(' '));
        press(&mut screen, KeyCode::Enter);
        "/pri".chars().for_each(|c| press(&mut screen, KeyCode::Char(c)));
        press(&mut screen, KeyCode::Enter);
        let all = drawn(&mut screen, 80, 24).join("\n");
        assert!(all.contains("corewire PAUSED: ") && all.contains("named *pri*"), "{all}");
        assert!(all.contains("prices") && !all.contains("very-long") && !all.contains("row"));
        press(&mut screen, KeyCode::Char('q'));
        assert!(screen.is_over);
    }

    #[test]
    fn no_channels_are_said_so() {
        let mut screen = screen();
        screen.look.channels.clear();
        assert!(
            drawn(&mut screen, 80, 24)[1]
                .starts_with("No services, channels, endpoints or windows in /run.")
        );
    }
}
