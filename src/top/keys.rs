//! What keys do in `top`. Enters: keys, and the picture that they are about. Leaves: what is to be done, and the state
//! of the screen.

use super::picture::{Picture, Query, SHOWN};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use regex::{Regex, RegexBuilder};

/// The keys, for the help.
pub const KEYS: [(&str, &str); 12] = [
    ("1 2 3 4, Tab", "functions, call tree, threads, notes"),
    ("↑ ↓ PgUp PgDn Home", "move through the rows"),
    ("/", "search rows: a regular expression"),
    ("n N", "next and previous match"),
    ("f", "focus: only stacks with a matching function"),
    ("t", "only vCPUs or threads whose name matches"),
    ("Esc", "no search, no focus, all threads"),
    ("p, Space", "pause the picture; the recording goes on"),
    ("+ -", "a longer or shorter window"),
    ("w", "write what is shown into top-N.uprof"),
    ("?", "these keys"),
    ("q, Ctrl-C", "quit"),
];

/// Shortest and longest window (seconds).
pub const WINDOW_SECONDS: [u64; 2] = [1, 600];
/// Longest text that can be typed (letters).
const TYPED_MAX: usize = 200;

/// What a text that is typed is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Search,
    Focus,
    Thread,
}

impl Purpose {
    /// The name, before the text.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Search => "search",
            Purpose::Focus => "focus",
            Purpose::Thread => "thread",
        }
    }
}

/// What is to be done after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing but to draw.
    Draw,
    /// Another picture is needed.
    Ask,
    /// The window has another length.
    Resize,
    Save,
    Quit,
}

/// The state of the screen.
#[derive(Debug, Default)]
pub struct State {
    /// What is asked of the stream.
    pub query: Query,
    /// Rows that match are marked.
    pub search: Option<Regex>,
    /// The number of the marked row.
    pub row: usize,
    /// Rows that fit on the screen.
    pub page: usize,
    /// What is being typed.
    pub typed: Option<(Purpose, String)>,
    pub shows_keys: bool,
    /// How old the picture is (seconds).
    pub age_seconds: u64,
    /// The last message.
    pub message: String,
}

impl State {
    /// Takes a key. `picture` is what is on the screen.
    pub fn press(&mut self, key: KeyEvent, picture: &Picture) -> Action {
        // A terminal sends Esc and a key in quick succession as Alt and that key.
        if key.modifiers.contains(KeyModifiers::ALT) {
            let first = self.press(KeyEvent::from(KeyCode::Esc), picture);
            return match self.press(KeyEvent::from(key.code), picture) {
                Action::Draw => first,
                second => second,
            };
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && key.code == KeyCode::Char('c') {
            return Action::Quit;
        }
        self.message.clear();
        if self.shows_keys {
            self.shows_keys = false;
            return Action::Draw;
        }
        match self.typed.take() {
            Some((purpose, text)) => self.type_key(key.code, purpose, text, picture),
            None if is_control => Action::Draw,
            None => self.command(key.code, picture),
        }
    }

    fn type_key(
        &mut self,
        key: KeyCode,
        purpose: Purpose,
        mut text: String,
        picture: &Picture,
    ) -> Action {
        match key {
            KeyCode::Esc => return Action::Draw,
            KeyCode::Enter => return self.apply(purpose, text, picture),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(letter) if text.chars().count() < TYPED_MAX => text.push(letter),
            _ => {}
        }
        self.typed = Some((purpose, text));
        Action::Draw
    }

    /// Applies a typed expression; an empty one is none.
    fn apply(&mut self, purpose: Purpose, text: String, picture: &Picture) -> Action {
        let built = RegexBuilder::new(&text)
            .case_insensitive(purpose == Purpose::Search)
            .build();
        let rule = match built {
            Ok(rule) => Some(rule).filter(|_| !text.is_empty()),
            Err(error) => {
                let why = error.to_string();
                let why = why.lines().last().unwrap_or_default();
                self.message = format!("{text} is no regular expression: {why}");
                self.typed = Some((purpose, text));
                return Action::Draw;
            }
        };
        match purpose {
            Purpose::Search => {
                self.search = rule;
                if self.search.is_some() && !self.find(picture, 0, true) {
                    self.message = format!("no row matches {text}");
                }
                return Action::Draw;
            }
            Purpose::Focus => self.query.focus = rule,
            Purpose::Thread => self.query.thread = rule,
        }
        Action::Ask
    }

    fn command(&mut self, key: KeyCode, picture: &Picture) -> Action {
        let last = picture.rows.len().saturating_sub(1);
        let page = self.page.max(1);
        match key {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('w') => return Action::Save,
            KeyCode::Char('?') => self.shows_keys = true,
            KeyCode::Char('/') => self.typed = Some((Purpose::Search, String::new())),
            KeyCode::Char('f') => self.typed = Some((Purpose::Focus, String::new())),
            KeyCode::Char('t') => self.typed = Some((Purpose::Thread, String::new())),
            KeyCode::Char('n') => drop(self.find(picture, 1, true)),
            KeyCode::Char('N') => drop(self.find(picture, 1, false)),
            KeyCode::Char('p' | ' ') => {
                self.query.is_paused = !self.query.is_paused;
                return Action::Ask;
            }
            KeyCode::Char('+' | '=') => return self.set_window(self.query.window_seconds * 2),
            KeyCode::Char('-') => return self.set_window(self.query.window_seconds / 2),
            KeyCode::Char(digit @ '1'..='4') => return self.show(digit as usize - '1' as usize),
            KeyCode::Tab => return self.show((self.query.view + 1) % SHOWN.len()),
            KeyCode::Esc => {
                self.search = None;
                self.query.focus = None;
                self.query.thread = None;
                return Action::Ask;
            }
            KeyCode::Up => self.row = self.row.saturating_sub(1),
            KeyCode::Down => self.row = (self.row + 1).min(last),
            KeyCode::PageUp => self.row = self.row.saturating_sub(page),
            KeyCode::PageDown => self.row = (self.row + page).min(last),
            KeyCode::Home => self.row = 0,
            KeyCode::End => self.row = last,
            _ => {}
        }
        Action::Draw
    }

    fn show(&mut self, view: usize) -> Action {
        self.query.view = view;
        self.row = 0;
        Action::Ask
    }

    fn set_window(&mut self, seconds: u64) -> Action {
        let [least, most] = WINDOW_SECONDS;
        self.query.window_seconds = seconds.clamp(least, most);
        Action::Resize
    }

    /// Goes to the next match, `from` rows on; around the end. Returns whether there is one.
    fn find(&mut self, picture: &Picture, from: usize, forwards: bool) -> bool {
        let (Some(rule), count) = (&self.search, picture.rows.len()) else {
            return false;
        };
        let row = self.row.min(count.saturating_sub(1));
        let found = (from..count + from).find_map(|step| {
            let steps = step % count;
            let at = if forwards {
                (row + steps) % count
            } else {
                (row + count - steps) % count
            };
            rule.is_match(&picture.rows[at]).then_some(at)
        });
        self.row = found.unwrap_or(self.row);
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(state: &mut State, picture: &Picture, keys: &str) -> Action {
        let codes = keys.chars().map(|letter| match letter {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            letter => KeyCode::Char(letter),
        });
        let actions = codes.map(|code| state.press(KeyEvent::from(code), picture));
        actions.last().unwrap_or(Action::Draw)
    }

    fn picture() -> Picture {
        Picture {
            rows: ["alpha", "beta", "Alpine", "gamma"]
                .map(String::from)
                .into(),
            ..Picture::default()
        }
    }

    #[test]
    fn a_search_goes_around() {
        let (mut state, picture) = (State::default(), picture());
        let mut rows = Vec::new();
        for keys in ["/alp\n", "n", "n", "N", "N"] {
            assert_eq!(press(&mut state, &picture, keys), Action::Draw);
            rows.push(state.row);
        }
        assert_eq!(rows, [0, 2, 0, 2, 0]);
        press(&mut state, &picture, "/delta\n");
        assert_eq!(
            (state.row, state.message.as_str()),
            (0, "no row matches delta")
        );
        let empty = Picture::default();
        press(&mut state, &empty, "nN/x\n");
    }

    #[test]
    fn what_is_no_expression_can_be_typed_again() {
        let (mut state, picture) = (State::default(), picture());
        press(&mut state, &picture, "f(\n");
        assert!(
            state.message.contains("no regular expression"),
            "{}",
            state.message
        );
        assert!(state.query.focus.is_none());
        assert_eq!(press(&mut state, &picture, "x)\n"), Action::Ask);
        assert_eq!(state.query.focus.as_ref().map(Regex::as_str), Some("(x)"));
        assert_eq!(press(&mut state, &picture, "\x1b"), Action::Ask);
        assert!(state.query.focus.is_none());
    }

    #[test]
    fn keys_that_are_typed_do_nothing_else() {
        let (mut state, picture) = (State::default(), picture());
        assert_eq!(press(&mut state, &picture, "/qw?p"), Action::Draw);
        assert!(!state.query.is_paused && !state.shows_keys);
        assert_eq!(press(&mut state, &picture, "\x1bq"), Action::Quit);
    }

    #[test]
    fn escape_and_a_key_in_quick_succession_are_both() {
        let (mut state, picture) = (State::default(), picture());
        press(&mut state, &picture, "fx\n");
        let key = KeyEvent::new(KeyCode::Char('2'), KeyModifiers::ALT);
        assert_eq!(state.press(key, &picture), Action::Ask);
        assert!(state.query.focus.is_none() && state.query.view == 1);
    }

    #[test]
    fn a_window_has_a_shortest_and_a_longest_length() {
        let (mut state, picture) = (State::default(), picture());
        state.query.window_seconds = 10;
        press(&mut state, &picture, &"+".repeat(20));
        assert_eq!(state.query.window_seconds, WINDOW_SECONDS[1]);
        press(&mut state, &picture, &"-".repeat(20));
        assert_eq!(state.query.window_seconds, WINDOW_SECONDS[0]);
    }
}
