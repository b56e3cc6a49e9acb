//! The terminal in full-screen mode; its state is restored, whichever thread ends the mode.

use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use std::io;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

/// Whether the terminal is in full-screen mode; several threads may share it, and the first one
/// that leaves ends the mode.
#[derive(Clone, Debug)]
pub(crate) struct Screen(Arc<Mutex<bool>>);

/// How often and how long somebody waits for the end of a drawing: a terminal that takes
/// nothing keeps nobody from leaving.
const PATIENCE: (u32, Duration) = (50, Duration::from_millis(10));

impl Screen {
    /// Takes the terminal.
    pub(super) fn open() -> io::Result<Self> {
        enable_raw_mode()?;
        execute!(io::stderr(), EnterAlternateScreen, cursor::Hide)?;
        Ok(Self(Arc::new(Mutex::new(true))))
    }

    pub(crate) fn is_drawn_on(&self) -> bool {
        *self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Draws, unless full-screen mode has ended; it does not end during the drawing.
    pub(super) fn draw(&self, draw: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let open = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if *open { draw() } else { Ok(()) }
    }

    /// Makes the terminal what it was.
    pub(crate) fn leave(&self) {
        let mut open = None;
        for _ in 0..PATIENCE.0 {
            match self.0.try_lock() {
                Ok(guard) => open = Some(guard),
                Err(TryLockError::Poisoned(guard)) => open = Some(guard.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::sleep(PATIENCE.1),
            }
            if open.is_some() {
                break;
            }
        }
        if open.as_ref().is_none_or(|open| **open) {
            let _ = execute!(io::stderr(), LeaveAlternateScreen, cursor::Show);
            let _ = disable_raw_mode();
        }
        if let Some(open) = &mut open {
            **open = false;
        }
    }
}
