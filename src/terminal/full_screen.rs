//! The terminal as one screen: keys without echo, and a screen that is gone afterwards.
//!
//! However the program ends, [`leave`] is called before: by the guard, by a panic, by who ends the process. Only
//! SIGKILL leaves the terminal as it is; `reset` restores it then.

use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{self, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_ON: AtomicBool = AtomicBool::new(false);
static PANICS: Once = Once::new();

/// The terminal is a full screen until this is dropped.
pub struct FullScreen(());

impl FullScreen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Those of the terminal.
    pub fn enter() -> io::Result<FullScreen> {
        PANICS.call_once(|| {
            let print = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                print(panic);
            }));
        });
        enable_raw_mode()?;
        IS_ON.store(true, Ordering::SeqCst);
        let screen = FullScreen(());
        execute!(stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
        Ok(screen)
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        leave();
    }
}

/// Whether the terminal is a full screen. A thread that panics ends that.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::SeqCst)
}

/// Restores the terminal, if it is a full screen.
pub fn leave() {
    if IS_ON.swap(false, Ordering::SeqCst) {
        // The terminal may be gone; there is nothing to restore then.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}
