//! The terminal while it is drawn on, which is left as it was, whoever leaves it.

use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the terminal is drawn on; several may hold it, and whoever leaves first does.
#[derive(Clone, Debug)]
pub(crate) struct Screen(Arc<AtomicBool>);

impl Screen {
    /// Takes the terminal.
    pub(super) fn open() -> io::Result<Self> {
        enable_raw_mode()?;
        execute!(io::stderr(), EnterAlternateScreen, cursor::Hide)?;
        Ok(Self(Arc::new(AtomicBool::new(true))))
    }

    pub(crate) fn is_drawn_on(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Makes the terminal what it was.
    pub(crate) fn leave(&self) {
        if self.0.swap(false, Ordering::AcqRel) {
            let _ = execute!(io::stderr(), LeaveAlternateScreen, cursor::Show);
            let _ = disable_raw_mode();
        }
    }
}
