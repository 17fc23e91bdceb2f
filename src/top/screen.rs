//! Draws `top`. Enters: a picture and the state of the screen. Leaves: cells of the terminal. Control characters never
//! reach it: texts of a picture are printable, and what is typed is drawn without them.

use super::keys::{KEYS, State};
use super::picture::{Picture, SHOWN};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

/// The smallest terminal that everything fits on.
const COLUMNS_MIN: u16 = 40;
const ROWS_MIN: u16 = 10;
/// Lines for the views, the heading and the keys, and fewest for the rows.
const LINES_BESIDE: usize = 3;
const SHOWN_MIN: usize = 3;
/// Most vCPUs or threads above the rows.
const LOADS_MAX: usize = 8;
/// Most notes above the rows.
const NOTES_MAX: usize = 2;
/// The oldest picture that needs no remark (seconds).
const AGE_SECONDS_MAX: u64 = 3;
/// Cells of a bar.
const BAR_CELLS: usize = 20;

/// Draws a picture; `None` before the first.
pub fn draw(frame: &mut Frame<'_>, state: &mut State, picture: Option<&Picture>) {
    let area = frame.area();
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        let text = format!("too small: {COLUMNS_MIN}x{ROWS_MIN}; q quits");
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let empty = Picture::default();
    let shown = picture.unwrap_or(&empty);
    let head = head(shown, state, area.height);
    let [top, tabs, heading, rows, bottom] = Layout::vertical([
        Constraint::Length(head.len() as u16),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(head), top);
    frame.render_widget(Paragraph::new(views(state)), tabs);
    let title = shown.heading.as_str().underlined();
    frame.render_widget(Paragraph::new(title), heading);
    draw_rows(frame, state, picture, rows);
    frame.render_widget(Paragraph::new(last_line(state)), bottom);
    if state.shows_keys {
        draw_keys(frame, area);
    }
}

/// What is recorded, the load, the cost and the first notes.
fn head<'p>(picture: &'p Picture, state: &State, height: u16) -> Vec<Line<'p>> {
    let mut title = vec![
        "uniprof top  ".bold(),
        picture.subject.as_str().bold(),
        format!(
            "  last {:.1} s  {} samples",
            picture.seconds, picture.samples
        )
        .into(),
    ];
    if state.query.is_paused {
        title.push("  PAUSED".bold().yellow());
    }
    if picture.ended.is_some() {
        title.push("  ENDED".bold().red());
    }
    let stays = state.query.is_paused || picture.ended.is_some();
    if !stays && state.age_seconds > AGE_SECONDS_MAX {
        let age = format!("  {} s ago: reading images", state.age_seconds);
        title.push(age.yellow());
    }
    let mut lines = vec![Line::from(title)];
    if let Some(ended) = &picture.ended {
        lines.push(format!("ended: {ended}").red().into());
    }
    let room = (usize::from(height) / 4).min(LOADS_MAX);
    let loads = &picture.loads;
    let going_on = loads.iter().filter(|load| load.state != "ended");
    let shown: Vec<_> = going_on.take(room).collect();
    for load in &shown {
        let full = (load.busy * BAR_CELLS as f64).round() as usize;
        let full = full.min(BAR_CELLS);
        lines.push(Line::from(vec![
            "█".repeat(full).green(),
            "·".repeat(BAR_CELLS - full).dim(),
            format!(
                " {:>5.1}% {:<8} {}",
                load.busy * 100.0,
                load.state,
                load.name
            )
            .into(),
        ]));
    }
    if let Some(more @ 1..) = loads.len().checked_sub(shown.len()) {
        lines.push(format!("… and {more} more: 3").dim().into());
    }
    lines.push(picture.cost.as_str().into());
    let notes = picture.notes.iter().take(NOTES_MAX);
    lines.extend(notes.map(|note| Line::from(note.as_str().dim())));
    if let Some(more @ 1..) = picture.notes.len().checked_sub(NOTES_MAX) {
        lines.push(format!("… and {more} more notes: 4").dim().into());
    }
    // The rows come first: what is left out here, the keys 3 and 4 show.
    lines.truncate(usize::from(height).saturating_sub(LINES_BESIDE + SHOWN_MIN));
    lines
}

/// The names of the views, and what is left out of them.
fn views(state: &State) -> Line<'_> {
    let names = SHOWN.iter().enumerate().flat_map(|(number, (name, _))| {
        let text = format!(" {} {name} ", number + 1);
        let style = if number == state.query.view {
            Style::new().reversed()
        } else {
            Style::new()
        };
        [Span::styled(text, style), " ".into()]
    });
    let mut spans: Vec<Span<'_>> = names.collect();
    let rules = [
        ("focus", &state.query.focus),
        ("thread", &state.query.thread),
        ("search", &state.search),
    ];
    for (name, rule) in rules {
        if let Some(rule) = rule {
            spans.push(format!(" {name} /{}/", rule.as_str()).yellow());
        }
    }
    spans.into()
}

fn draw_rows(frame: &mut Frame<'_>, state: &mut State, picture: Option<&Picture>, area: Rect) {
    state.page = usize::from(area.height);
    let Some(picture) = picture else {
        frame.render_widget(Paragraph::new("waiting for samples …".dim()), area);
        return;
    };
    // Another view was asked for, and its rows are on their way.
    if picture.view != state.query.view {
        return;
    }
    let rows = &picture.rows;
    if rows.is_empty() {
        let text = "no samples in the window: nothing ran, or nothing matches".dim();
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let row = state.row.min(rows.len().saturating_sub(1));
    let first = row.saturating_sub(state.page.saturating_sub(1));
    let shown = rows.iter().enumerate().skip(first).take(state.page);
    let lines = shown.map(|(number, text)| {
        let is_match = |rule: &regex::Regex| rule.is_match(text);
        let mut style = Style::new();
        if state.search.as_ref().is_some_and(is_match) {
            style = style.yellow().bold();
        }
        if number == row {
            style = style.reversed();
        }
        Line::styled(text.as_str(), style)
    });
    let lines: Vec<Line<'_>> = lines.collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn last_line(state: &State) -> Line<'_> {
    if let Some((purpose, text)) = &state.typed {
        let typed = format!("{}: {text}", purpose.name());
        let message = format!("█  {}", state.message).red();
        return vec![typed.bold(), message].into();
    }
    if state.message.is_empty() {
        let keys = "? keys  / search  f focus  t threads  p pause  w save  q quit";
        return keys.dim().into();
    }
    state.message.as_str().bold().into()
}

fn draw_keys(frame: &mut Frame<'_>, area: Rect) {
    let width = area.width.min(76);
    let height = area.height.min(KEYS.len() as u16 + 2);
    let place = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    let lines = KEYS.map(|(key, what)| Line::from(format!(" {key:<20} {what}")));
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(" keys ");
    frame.render_widget(Paragraph::new(lines.to_vec()).block(block), place);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use uniprof_report::profile::load::TaskLoad;
    use uprof::Task;

    fn drawn(width: u16, height: u16, state: &mut State, picture: Option<&Picture>) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state, picture)).unwrap();
        terminal.backend().to_string()
    }

    fn picture() -> Picture {
        let loads = (0..40).map(|vcpu| TaskLoad {
            task: Task { space: 0, vcpu },
            name: format!("vcpu {vcpu}"),
            busy: 2.0,
            running: 7,
            state: "running",
        });
        Picture {
            subject: "web".into(),
            loads: loads.collect(),
            notes: vec!["a note".into(); 9],
            heading: "self  function".into(),
            rows: (0..99).map(|row| format!("function {row}")).collect(),
            ..Picture::default()
        }
    }

    #[test]
    fn any_size_is_drawn() {
        let picture = picture();
        for (width, height) in [(1, 1), (39, 50), (200, 9), (40, 10), (80, 24), (500, 3)] {
            for shows_keys in [false, true] {
                let mut state = State {
                    shows_keys,
                    ..State::default()
                };
                let text = drawn(width, height, &mut state, Some(&picture));
                let fits = width >= COLUMNS_MIN && height >= ROWS_MIN;
                assert_eq!(
                    text.contains("uniprof top") && !shows_keys,
                    fits && !shows_keys
                );
                drawn(width, height, &mut state, None);
            }
        }
    }

    #[test]
    fn rows_are_on_the_smallest_terminal_too() {
        let picture = Picture {
            ended: Some("it exited".into()),
            ..picture()
        };
        let mut state = State::default();
        let text = drawn(COLUMNS_MIN, ROWS_MIN, &mut state, Some(&picture));
        assert!(text.contains("function 2"), "{text}");
        assert!(text.contains("uniprof top"), "{text}");
    }

    #[test]
    fn the_marked_row_is_on_the_screen() {
        let picture = picture();
        for row in [0, 5, 98, 1000] {
            let mut state = State {
                row,
                ..State::default()
            };
            let text = drawn(80, 24, &mut state, Some(&picture));
            assert!(
                text.contains(&format!("function {}", row.min(98))),
                "{text}"
            );
        }
    }

    #[test]
    fn no_control_character_reaches_the_terminal() {
        let picture = Picture {
            subject: "a\x1b[2Jb".into(),
            rows: vec!["x\x1b]0;title\x07\u{9b}31m\ny".into()],
            ..Picture::default()
        };
        let mut state = State {
            message: "m\x1b[31m".into(),
            ..State::default()
        };
        let text = drawn(80, 24, &mut state, Some(&picture));
        let is_control = |letter: char| letter.is_control() && letter != '\n';
        assert!(!text.contains(is_control), "{text:?}");
    }
}
