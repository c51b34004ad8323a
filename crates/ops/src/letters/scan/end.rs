//! The end of a scan: which letters it did not return, and why.

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::error::CallError;
use super::super::hidden::{self, Held};
use super::Scan;
use crate::format;
use crate::output;

/// Longest time to ask how many letters remain. The letters stay hidden meanwhile: visible ones would count.
const LAST_COUNT: Duration = Duration::from_secs(3);

/// Why a command receives no more letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The scan returned no other letter.
    ScanEnded,
    /// The command has as many letters as `--limit` allows, or the one that it needs.
    Limit,
    /// A call to SQS failed.
    Failure,
}

/// Why a scan receives no more letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastReceive {
    /// It could receive more.
    None,
    /// No letter was visible.
    Empty,
    /// The scan holds as many letters as it can.
    Full,
    /// SQS delivered only letters that the scan has, several times in a row.
    Repeated,
}

/// How a scan ended.
pub(crate) struct ScanEnd {
    pub(crate) interrupted: bool,
    pub(crate) stop: Stop,
    pub(crate) last_receive: LastReceive,
    /// Approximate number of letters of a FIFO queue that wait for others of their groups. `None` if SQS did not say.
    pub(crate) blocked: Option<u64>,
    /// Approximate number of letters that another consumer had received before, or since then if it has left none.
    pub(crate) in_flight_at_start: u64,
    /// Number of letters whose visibility timeouts could not be extended, and that were not received again.
    pub(crate) lost: usize,
    /// The ids of letters that a standard queue delivered again after their deletes, and why another delete failed.
    pub(crate) undeleted: HashMap<String, CallError>,
    /// Whether a receive had no reply, so that letters of it may be hidden. It may have been repeated.
    pub(crate) was_repeated: bool,
    /// Number of letters that could not be made visible again.
    pub(crate) still_hidden: usize,
    /// After which they are visible.
    pub(crate) visibility_timeout: Duration,
}

impl Scan<'_> {
    /// Makes every letter visible again that was not deleted.
    pub(crate) async fn end(self, stop: Stop) -> ScanEnd {
        // A FIFO queue counts letters as visible although they cannot be received while earlier letters of their group
        // are in flight. If this scan has received no letter, another consumer may have all of them.
        let may_be_blocked = self.queue.is_fifo() && !self.held.is_empty();
        let counts = if may_be_blocked || self.seen.is_empty() {
            Some(timeout(LAST_COUNT, self.queue.counts()).await)
        } else {
            None
        };
        let in_flight = match &counts {
            // After a receive without a reply, they may be its letters.
            Some(Ok(Ok(counts))) if self.seen.is_empty() && !self.was_repeated => counts.in_flight,
            Some(_) | None => 0,
        };
        let visible = match &counts {
            Some(Ok(Ok(counts))) if may_be_blocked => Some(counts.visible),
            Some(Err(_) | Ok(Err(_))) => None,
            Some(Ok(Ok(_))) | None => Some(0),
        };
        // Those that `lose` dropped with an earlier one of their group, and that were not received again: that one may have
        // been, while they were hidden.
        let dropped = self.held.keys().filter(|id| !self.seen.contains(*id)).count() as u64;
        // Those that are visible again may be another consumer's.
        let hidden: Vec<_> =
            self.held.values().chain(self.lost.values()).filter(|held| Held::is_hidden(held)).collect();
        let still_hidden = hidden::make_visible(self.queue, &hidden).await;
        ScanEnd {
            interrupted: self.interrupt.is_set(),
            stop,
            last_receive: self.last_receive,
            blocked: visible.map(|visible| dropped + visible),
            in_flight_at_start: self.in_flight_at_start.max(in_flight),
            lost: self.lost.len(),
            undeleted: self.undeleted,
            was_repeated: self.was_repeated,
            still_hidden,
            visibility_timeout: self.queue.visibility_timeout,
        }
    }
}

impl ScanEnd {
    /// Whether the scan returned every letter, as far as SQS shows.
    fn is_complete(&self) -> bool {
        let has_all = self.blocked == Some(0) && self.in_flight_at_start == 0 && self.lost == 0 && !self.was_repeated;
        self.last_receive == LastReceive::Empty && has_all
    }

    /// Whether it was not interrupted, lost no letter, and left none hidden, as far as it is known.
    pub(crate) fn is_success(&self) -> bool {
        !self.interrupted && self.lost == 0 && !self.was_repeated && self.still_hidden == 0
    }

    /// A line for each reason why letters may be missing.
    pub(crate) fn note(&self) -> String {
        let mut lines = Vec::new();
        if self.interrupted {
            lines.push("interrupted: the other letters stay in the queue".to_owned());
        } else {
            lines.extend(match self.stop {
                Stop::Limit => Some("stopped at --limit: there may be more letters".to_owned()),
                Stop::Failure => Some("stopped after a failed call: there may be more letters".to_owned()),
                Stop::ScanEnded => match self.last_receive {
                    LastReceive::None | LastReceive::Empty => None,
                    LastReceive::Full => {
                        Some("stopped at the largest number of letters that can be held: there may be more".to_owned())
                    }
                    LastReceive::Repeated => {
                        Some("stopped because SQS delivered the same letters again: there may be more".to_owned())
                    }
                },
            });
        }
        match self.blocked {
            Some(0) => {}
            Some(blocked) => {
                let count = format::count(blocked);
                lines.push(format!("about {count} more: a FIFO queue shows only the first ones of each message group"));
            }
            None => lines.push("SQS did not say how many more letters there are".to_owned()),
        }
        if self.in_flight_at_start > 0 {
            let count = format::count(self.in_flight_at_start);
            lines.push(format!(
                "about {count} more were in flight: another consumer or an earlier command received them"
            ));
        }
        lines.into_iter().map(|line| line + "\n").collect::<String>() + &self.hidden_note()
    }

    /// A line for each reason why letters may be hidden, or were not.
    pub(crate) fn hidden_note(&self) -> String {
        let (mut lines, hidden) = (Vec::new(), format::duration(self.visibility_timeout));
        if self.lost > 0 {
            lines.push(format!("{} could not be kept hidden: another consumer may have received them\n", self.lost));
        }
        if self.was_repeated {
            lines.push(format!("a receive had no reply: letters of it may be hidden, for at most {hidden}\n"));
        }
        if self.still_hidden > 0 {
            let count = self.still_hidden;
            lines.push(format!("{count} could not be made visible again: they are after at most {hidden}\n"));
        }
        lines.concat()
    }

    /// The error of a call, and which letters may be hidden.
    pub(crate) fn explain(&self, error: CallError) -> Box<dyn Error> {
        match self.hidden_note().trim_end() {
            "" => error.into(),
            note => format!("{error}\n{note}").into(),
        }
    }

    /// Adds its fields to a JSON object.
    pub(crate) fn add_to(&self, json: &mut Value) {
        output::extend(
            json,
            json!({
                "complete": self.is_complete(),
                "interrupted": self.interrupted,
                "blocked": self.blocked,
                "in_flight_at_start": self.in_flight_at_start,
                "lost": self.lost,
                "receive_repeated": self.was_repeated,
                "still_hidden": self.still_hidden,
            }),
        );
    }
}
