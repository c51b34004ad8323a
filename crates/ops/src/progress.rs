//! A line on a terminal that shows the progress.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// A line of stderr that is overwritten, and cleared when dropped. Without a terminal it shows nothing.
pub(crate) struct ProgressLine {
    is_terminal: bool,
    written: Option<Instant>,
}

/// Shortest time between two updates.
const UPDATE_INTERVAL: Duration = Duration::from_millis(100);

impl ProgressLine {
    pub(crate) fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), written: None }
    }

    pub(crate) fn show(&mut self, text: &str) {
        if self.is_terminal && self.written.is_none_or(|written| written.elapsed() >= UPDATE_INTERVAL) {
            self.written = Some(Instant::now());
            // If the terminal is closed, the progress is not needed.
            let _ = write!(io::stderr(), "\r{text}\x1b[K");
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.written.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
