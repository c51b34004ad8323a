//! A scan with an end, and a line on its progress where somebody watches.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use idempotent_sqs::stores::redis::records::{Page, Records, RecordsError, Scan};

use super::show;

/// How far a scan has come, and where it ends.
pub(crate) struct Progress<'a> {
    scan: Scan<'a>,
    /// How many keys Redis has, where it may be asked.
    there: Option<u64>,
    most: u64,
    looked_at: u64,
    line: Option<Line>,
}

impl<'a> Progress<'a> {
    /// A scan that looks at about `most` keys.
    pub(crate) async fn start(records: &'a Records, most: u64) -> Result<Self, RecordsError> {
        let there = match records.keys().await {
            Ok(keys) => Some(keys),
            Err(RecordsError::NotPermitted(_)) => None,
            Err(error @ (RecordsError::Unavailable(_) | RecordsError::OneOfMany)) => return Err(error),
        };
        let line = io::stderr().is_terminal().then(Line::default);
        Ok(Self { scan: records.scan().await?, there, most, looked_at: 0, line })
    }

    /// The next page, or `None` at the end of the records or of what may be looked at.
    pub(crate) async fn next(&mut self) -> Result<Option<Page>, RecordsError> {
        if self.looked_at >= self.most {
            return Ok(None);
        }
        let Some(page) = self.scan.next().await? else { return Ok(None) };
        self.looked_at += page.looked_at;
        let shown = self.looked_at();
        let of = self.there.map_or_else(String::new, |there| format!(" of {}", show::count(there)));
        if let Some(line) = &mut self.line {
            line.show(&format!("looked at about {}{of} keys", show::count(shown)));
        }
        Ok(Some(page))
    }

    /// About how many keys Redis has looked at.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at.min(self.there.unwrap_or(u64::MAX))
    }

    /// Whether every record was met.
    pub(crate) fn is_complete(&self) -> bool {
        self.scan.is_over() && !self.scan.has_moved()
    }

    /// What is to be said of the records that were not met; nothing where all were.
    pub(crate) fn caveat(&self) -> String {
        if self.scan.has_moved() {
            return "slots of the cluster moved meanwhile, so some records may be missing: try again\n".to_owned();
        }
        if self.scan.is_over() {
            return String::new();
        }
        let of = self.there.map_or_else(String::new, |there| format!(" of {}", show::count(there)));
        format!("it ended after about {}{of} keys: more records may be there\n", show::count(self.looked_at()))
    }
}

/// One line of a terminal, written again and again, and gone with its owner.
#[derive(Default)]
struct Line {
    written: Option<Instant>,
}

/// Often enough to see that it goes on.
const BETWEEN: Duration = Duration::from_millis(100);

impl Line {
    fn show(&mut self, text: &str) {
        if self.written.is_none_or(|written| written.elapsed() >= BETWEEN) {
            self.written = Some(Instant::now());
            // A terminal that is gone needs no progress.
            let _ = write!(io::stderr(), "\r{text}\x1b[K");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.written.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
