//! What a command did with each letter.

use std::error::Error;

use serde_json::{Value, json};

use super::error::CallError;
use super::letter::Letter;
use super::scan::ScanEnd;
use crate::format;
use crate::output::CommandOutput;

/// What `redrive` or `delete` did, in order.
#[derive(Default)]
pub(crate) struct Report {
    lines: Vec<Line>,
    /// Number of matching letters that came into the queue during the run.
    later: u64,
}

struct Line {
    id: String,
    key: Option<String>,
    outcome: Outcome,
    detail: String,
}

/// What was done with one letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was sent to this queue, and deleted.
    Redriven,
    /// It would be sent to this queue.
    WouldRedrive,
    /// It was deleted.
    Deleted,
    /// It would be deleted.
    WouldDelete,
    /// It was not sent, for this reason.
    NotSent,
    /// It may have been sent; the send has no reply, for this reason. It was not deleted.
    MaybeSent,
    /// It was not deleted, for this reason. `redrive` has sent it.
    NotDeleted,
    /// It may have been deleted; the delete has no reply, for this reason. `redrive` has sent it.
    MaybeDeleted,
}

impl Outcome {
    /// That of a delete which failed.
    pub(crate) fn of_failed_delete(error: &CallError) -> Self {
        if error.is_refused { Self::NotDeleted } else { Self::MaybeDeleted }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Redriven => "REDRIVEN",
            Self::WouldRedrive => "WOULD_REDRIVE",
            Self::Deleted => "DELETED",
            Self::WouldDelete => "WOULD_DELETE",
            Self::NotSent => "NOT_SENT",
            Self::MaybeSent => "MAYBE_SENT",
            Self::NotDeleted => "NOT_DELETED",
            Self::MaybeDeleted => "MAYBE_DELETED",
        }
    }

    fn is_failure(self) -> bool {
        matches!(self, Self::NotSent | Self::MaybeSent | Self::NotDeleted | Self::MaybeDeleted)
    }

    fn is_dry_run(self) -> bool {
        matches!(self, Self::WouldRedrive | Self::WouldDelete)
    }

    /// In the summary.
    fn words(self) -> &'static str {
        match self {
            Self::Redriven => "redriven",
            Self::WouldRedrive => "would be redriven",
            Self::Deleted => "deleted",
            Self::WouldDelete => "would be deleted",
            Self::NotSent => "not sent",
            Self::MaybeSent => "may have been sent, and not deleted",
            Self::NotDeleted => "not deleted",
            Self::MaybeDeleted => "may have been deleted",
        }
    }
}

/// The detail of a letter that was sent to this queue, and not deleted.
pub(crate) fn in_both_queues(to: &str, error: &CallError) -> String {
    let is = if error.is_refused { "is" } else { "may be" };
    format!("sent to {to}, and {is} in both queues: {error}")
}

impl Report {
    pub(crate) fn add(&mut self, letter: &Letter, outcome: Outcome, detail: impl Into<String>) {
        let (id, key) = (letter.id().to_owned(), letter.key.clone());
        self.lines.push(Line { id, key, outcome, detail: detail.into() });
    }

    /// Counts a letter that is left in the queue, because it was not there when the run started.
    pub(crate) fn add_later(&mut self) {
        self.later += 1;
    }

    /// Corrects the line of a letter that was deleted and is in the queue again.
    fn delete_failed(&mut self, id: &str, error: &CallError) {
        let lines = self.lines.iter_mut().filter(|line| line.id == id);
        for line in lines {
            line.detail =
                if line.outcome == Outcome::Redriven { in_both_queues(&line.detail, error) } else { error.to_string() };
            line.outcome = Outcome::of_failed_delete(error);
        }
    }

    /// Number of letters, without the later ones.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// The output: a line for each letter that was not changed, and the totals. `notes`: complete lines. `failure`: the
    /// call that ended the command. What was done before it must be known, because letters were sent or deleted.
    ///
    /// # Errors
    /// The failure if nothing was done before it.
    pub(crate) fn output(
        &mut self,
        mut json: Value,
        end: &ScanEnd,
        notes: &str,
        failure: Option<CallError>,
    ) -> Result<CommandOutput, Box<dyn Error>> {
        let failure = match failure {
            Some(failure) if self.lines.is_empty() => return Err(end.explain(failure)),
            failure => failure,
        };
        for (id, error) in &end.undeleted {
            self.delete_failed(id, error);
        }
        json["letters"] = self.lines.iter().map(Line::json).collect();
        json["arrived_during_run"] = self.later.into();
        end.add_to(&mut json);
        let later = match self.later {
            0 => String::new(),
            later => format!("{} arrived during the run and stay in the queue\n", format::count(later)),
        };
        let text = self.table() + &self.summary() + notes + &later + &end.note();
        let failed = self.lines.iter().any(|line| line.outcome.is_failure());
        let success = !failed && end.is_success();
        Ok(CommandOutput::new(success, text, json).with_error(failure))
    }

    fn table(&self) -> String {
        let shown = self.lines.iter().filter(|line| line.outcome.is_failure() || line.outcome.is_dry_run());
        let shown: Vec<_> = shown.map(Line::cells).collect();
        if shown.is_empty() {
            return String::new();
        }
        let header = ["MESSAGE ID", "KEY", "RESULT", ""].map(str::to_owned);
        format::columns(&std::iter::once(header).chain(shown).collect::<Vec<_>>())
    }

    fn summary(&self) -> String {
        let mut totals: Vec<(Outcome, u64)> = Vec::new();
        for line in &self.lines {
            match totals.iter_mut().find(|(outcome, _)| *outcome == line.outcome) {
                Some((_, number)) => *number += 1,
                None => totals.push((line.outcome, 1)),
            }
        }
        let totals: Vec<_> =
            totals.iter().map(|(outcome, number)| format!("{} {}", format::count(*number), outcome.words())).collect();
        if totals.is_empty() { "no letters\n".to_owned() } else { totals.join(", ") + "\n" }
    }
}

impl Line {
    fn cells(&self) -> [String; 4] {
        let key = self.key.as_deref().map_or("-".to_owned(), format::text);
        [format::text(&self.id), key, self.outcome.words().to_owned(), format::text(&self.detail)]
    }

    fn json(&self) -> Value {
        json!({ "message_id": self.id, "key": self.key, "result": self.outcome.as_str(), "detail": self.detail })
    }
}
