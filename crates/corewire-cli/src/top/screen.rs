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

use super::rates::{Channel, Watcher};
use super::view::{COLUMNS, Line, Sort, View};
use crate::failure::Failure;
use crate::units;

/// Widths of the columns but the first.
const WIDTHS: [u16; 8] = [7, 6, 7, 6, 7, 7, 6, 6];
const KEYS: &str = "q quit  space pause  s sort  r reverse  / filter  enter receivers  j k scroll";

/// How soon what was seen is shown.
const LOOKS_WITHIN: Duration = Duration::from_millis(20);

/// What one look came to.
type Seen = Result<(Vec<Channel>, Vec<String>), Failure>;

/// Looks that are taken when asked for.
struct Looks {
    ask: Sender<()>,
    seen: Receiver<Seen>,
}

/// On a thread of its own: a process that is stopped keeps a look waiting, and keys must not.
fn looking(mut watcher: Watcher) -> Looks {
    let (ask, asked) = channel();
    let (see, seen) = channel();
    std::thread::spawn(move || while asked.recv().is_ok() && see.send(watcher.look()).is_ok() {});
    Looks { ask, seen }
}

/// The state of the screen.
pub(super) struct Screen {
    pub(super) view: View,
    channels: Vec<Channel>,
    /// Why channels cannot be seen.
    unseen: Vec<String>,
    place: String,
    interval: Duration,
    is_paused: bool,
    /// The filter is being typed.
    is_typing: bool,
    is_over: bool,
    table: TableState,
}

impl Screen {
    pub(super) fn new(view: View, place: String, interval: Duration) -> Self {
        Self {
            view,
            channels: Vec::new(),
            unseen: Vec::new(),
            place,
            interval,
            is_paused: false,
            is_typing: false,
            is_over: false,
            table: TableState::default(),
        }
    }

    /// Runs until the user has enough.
    pub(super) fn run(mut self, watcher: Watcher) -> Result<(), Failure> {
        let refused =
            |why: &str| Failure::other(format!("top needs a terminal ({why}); --once does not"));
        if !std::io::stdout().is_terminal() {
            return Err(refused("standard output is none"));
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
        let failed = |error: std::io::Error| Failure::other(format!("the terminal: {error}"));
        let looks = looking(watcher);
        let mut next = Instant::now();
        let mut is_looking = false;
        while !self.is_over {
            if is_looking && let Ok(seen) = looks.seen.try_recv() {
                (self.channels, self.unseen) = seen?;
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
            KeyCode::Enter => self.view.shows_receivers = !self.view.shows_receivers,
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(20),
            KeyCode::PageUp => self.scroll(-20),
            _ => {}
        }
    }

    fn scroll(&mut self, lines: isize) {
        let last = self.view.lines(&self.channels).len().saturating_sub(1);
        let offset = self.table.offset().saturating_add_signed(lines).min(last);
        *self.table.offset_mut() = offset;
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)])
                .areas(frame.area());
        frame.render_widget(Paragraph::new(self.title()), head);
        let lines = self.view.lines(&self.channels);
        if lines.is_empty() {
            frame.render_widget(Paragraph::new(self.view.nothing(&self.place)), body);
        } else {
            let widths = std::iter::once(name_width(&lines, body.width))
                .chain(WIDTHS)
                .map(Constraint::Length);
            let rows = lines.iter().map(row);
            let table = Table::new(rows, widths).header(self.header()).column_spacing(1);
            frame.render_stateful_widget(table, body, &mut self.table);
        }
        let foot_text = match (&self.unseen[..], self.is_typing) {
            (_, true) => format!("filter: {}_   enter keeps it, esc clears it", self.view.filter),
            ([first, ..], false) => format!("cannot be seen: {first}"),
            ([], false) => KEYS.to_owned(),
        };
        frame.render_widget(Paragraph::new(foot_text).style(dim()), foot);
    }

    fn title(&self) -> TextLine<'static> {
        let receivers = self.channels.iter().map(|channel| channel.receivers.len()).sum();
        let mut text = format!(
            "corewire: {}, {}, every {}",
            units::counted(self.channels.len(), "channel", "channels"),
            units::counted(receivers, "receiver", "receivers"),
            seconds(self.interval),
        );
        if !self.view.filter.is_empty() && !self.is_typing {
            text.push_str(&format!(", named *{}*", self.view.filter));
        }
        if self.is_paused {
            text.push_str(", PAUSED");
        }
        TextLine::styled(text, Style::new().add_modifier(Modifier::BOLD))
    }

    fn header(&self) -> Row<'static> {
        let cells = COLUMNS.iter().zip([
            Some(Sort::Name),
            None,
            Some(Sort::Messages),
            Some(Sort::Bytes),
            Some(Sort::Lag),
            Some(Sort::Waits),
            Some(Sort::Wakes),
            Some(Sort::Drops),
            Some(Sort::Deaths),
        ]);
        Row::new(cells.map(|(&(title, is_number), sort)| {
            let is_chosen = sort == Some(self.view.sort);
            let style = match is_chosen {
                true => Style::new().add_modifier(Modifier::REVERSED),
                false => Style::new().add_modifier(Modifier::UNDERLINED),
            };
            Cell::new(aligned(title.to_owned(), is_number)).style(style)
        }))
    }
}

/// As wide as the longest name, if there is room.
fn name_width(lines: &[Line], width: u16) -> u16 {
    let others = WIDTHS.iter().map(|width| width + 1).sum::<u16>();
    let names = lines.iter().filter_map(|line| line.cells.first());
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    let longest = u16::try_from(longest).unwrap_or(u16::MAX);
    longest.clamp(12, width.saturating_sub(others).max(12))
}

fn row(line: &Line) -> Row<'static> {
    let cells = line.cells.iter().zip(COLUMNS);
    let cells = cells.map(|(cell, (_, is_number))| Cell::new(aligned(cell.clone(), is_number)));
    let style = match (line.is_bad, line.is_receiver) {
        (true, _) => Style::new().fg(Color::Yellow),
        (false, true) => dim(),
        (false, false) => Style::new(),
    };
    Row::new(cells).style(style)
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
    use crate::top::rates::{Rates, Receiver};

    fn busy() -> Vec<Channel> {
        let rates = Rates {
            messages_per_s: 234_567_890.0,
            bytes_per_s: 18.9e9,
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
            shows_receivers: true,
        };
        let mut screen = Screen::new(view, "/run".into(), Duration::from_secs(1));
        screen.channels = busy();
        screen
    }

    #[test]
    fn everything_fits_a_small_terminal_and_a_large_one() {
        for (width, height) in [(80, 24), (200, 50)] {
            let lines = drawn(&mut screen(), width, height);
            let all = lines.join("\n");
            for word in ["prices", "msg/s", "deaths", "235M", "18.9G", "12.3k", "row 1, asleep"] {
                assert!(all.contains(word), "{word} is not on a screen of {width}:\n{all}");
            }
            assert!(lines[0].starts_with("corewire: 2 channels, 4 receivers, every 1 s"), "{all}");
            assert!(lines.last().unwrap().trim_end().ends_with("scroll"), "{all}");
        }
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
        assert!(all.contains("named *pri*, PAUSED"), "{all}");
        assert!(all.contains("prices") && !all.contains("very-long") && !all.contains("row"));
        press(&mut screen, KeyCode::Char('q'));
        assert!(screen.is_over);
    }

    #[test]
    fn no_channels_are_said_so() {
        let mut screen = screen();
        screen.channels.clear();
        assert!(drawn(&mut screen, 80, 24)[1].starts_with("No channels in /run."));
    }
}
