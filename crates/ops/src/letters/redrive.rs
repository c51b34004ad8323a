//! `redrive`: sends letters back to their source queues, and deletes each one once SQS has accepted it.

use std::collections::HashSet;
use std::error::Error;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Interval, interval};

use super::Session;
use super::arguments::ChangeArguments;
use super::destinations::Destinations;
use super::error::CallError;
use super::filter::Filter;
use super::letter::Letter;
use super::report::{Outcome, Report, in_both_queues};
use super::resend::{self, KeyChange};
use super::scan::{Scan, Stop};
use super::sent::Sent;
use crate::format;
use crate::output::CommandOutput;
use crate::progress::ProgressLine;

/// Why a letter is not sent after an interrupt.
const INTERRUPTED: &str = "interrupted";

/// The options of `redrive`.
pub(crate) struct Redrive {
    pub(crate) to: Option<String>,
    pub(crate) as_is: bool,
    /// Sends per second.
    pub(crate) rate: u32,
}

/// A redrive in progress.
struct Run<'a> {
    session: &'a Session,
    scan: Scan<'a>,
    destinations: Destinations<'a>,
    as_is: bool,
    is_dry: bool,
    rate: Interval,
    report: Report,
    sent: Sent,
    /// FIFO: groups of which no more letters are sent, because the order would be lost.
    blocked_groups: HashSet<String>,
    /// Number of messages with another key that SQS accepted, or in a dry run that would be sent.
    new_keys: u64,
}

pub(crate) async fn run(
    session: &Session,
    filter: &Filter,
    change: &ChangeArguments,
    Redrive { to, as_is, rate }: Redrive,
) -> Result<CommandOutput, Box<dyn Error>> {
    let mut run = Run {
        session,
        scan: session.scan(),
        destinations: Destinations::new(&session.queue, to),
        as_is,
        is_dry: change.dry_run,
        rate: interval(Duration::from_secs(1) / rate),
        report: Report::default(),
        sent: Sent::default(),
        blocked_groups: HashSet::new(),
        new_keys: 0,
    };
    let limit = change.limit.unwrap_or(usize::MAX);
    let ended = run.redrive(filter, limit).await;
    let end = run.scan.end(*ended.as_ref().unwrap_or(&Stop::Failure)).await;
    let notes = match run.new_keys {
        0 => String::new(),
        keys => format!(
            "{} with a new idempotency key: the function does not find their records
",
            format::count(keys)
        ),
    };
    let json = json!({
        "queue_url": session.queue.url,
        "dry_run": change.dry_run,
        "new_keys": run.new_keys,
    });
    run.report.output(json, &end, &notes, ended.err())
}

impl Run<'_> {
    async fn redrive(&mut self, filter: &Filter, limit: usize) -> Result<Stop, CallError> {
        let (mut line, total) = (ProgressLine::new(), format::count(self.session.counts.visible));
        while self.report.len() < limit
            && let Some(letter) = self.scan.next().await?
        {
            let is_later = self.is_later(&letter);
            if is_later {
                // This machine's clock may be ahead, so that a later letter of the group would be sent.
                self.blocked_groups.extend(self.group(&letter));
            }
            if !filter.matches(&letter, self.session.started) {
                continue;
            }
            if is_later {
                self.report.add_later();
                continue;
            }
            if !self.letter(&letter).await {
                return Ok(Stop::Failure);
            }
            line.show(&format!("redriven {} of about {total}", format::count(self.sent.len() as u64)));
        }
        Ok(if self.report.len() < limit { Stop::ScanEnded } else { Stop::Limit })
    }

    /// Whether the letter was not in the queue when the run started.
    fn is_later(&self, letter: &Letter) -> bool {
        self.sent.contains(letter) || letter.is_later_than(self.session.started)
    }

    /// The message group of a letter, if the queue keeps its order.
    fn group(&self, letter: &Letter) -> Option<String> {
        letter.group().filter(|_| self.session.queue.is_fifo()).map(str::to_owned)
    }

    /// Redrives one letter. Returns whether the run continues.
    async fn letter(&mut self, letter: &Letter) -> bool {
        let group = self.group(letter);
        if group.as_ref().is_some_and(|group| self.blocked_groups.contains(group)) {
            self.report.add(letter, Outcome::NotSent, "an earlier letter of its group was not sent");
            return true;
        }
        let (outcome, detail) = self.send_and_delete(letter).await;
        self.report.add(letter, outcome, detail);
        if matches!(outcome, Outcome::NotSent | Outcome::MaybeSent) {
            self.blocked_groups.extend(group);
        }
        // If letters cannot be deleted, each send would add another one to both queues.
        !matches!(outcome, Outcome::NotDeleted | Outcome::MaybeDeleted)
    }

    async fn send_and_delete(&mut self, letter: &Letter) -> (Outcome, String) {
        let mut interrupt = self.session.interrupt.clone();
        let to = tokio::select! {
            to = self.scan.hold_during(self.destinations.of(letter)) => to,
            () = interrupt.wait() => Err(INTERRUPTED.to_owned()),
        };
        let to = match to {
            Ok(to) => to,
            Err(reason) => return (Outcome::NotSent, reason),
        };
        let key = KeyChange::of(letter, &to, &self.session.keys, self.as_is);
        let detail = match key {
            KeyChange::None => to.url.clone(),
            KeyChange::Added(attribute) => format!("{}, with {attribute}", to.url),
            KeyChange::New => format!("{}, with a new key", to.url),
        };
        let new_keys = u64::from(key == KeyChange::New);
        if self.is_dry {
            self.new_keys += new_keys;
            return (Outcome::WouldRedrive, detail);
        }
        let is_held = async {
            self.rate.tick().await;
            self.scan.still_holds(letter).await
        };
        let is_held = tokio::select! {
            is_held = is_held => is_held,
            () = interrupt.wait() => return (Outcome::NotSent, INTERRUPTED.to_owned()),
        };
        if !is_held {
            return (Outcome::NotSent, "its visibility timeout could not be extended".to_owned());
        }
        // The next send is at least a period after the start of this one, also if an extension delayed it.
        self.rate.reset();
        // From here on, the letter could be in both queues if the calls were not awaited.
        match self.scan.hold_during(to.send(resend::message(letter, &to, key))).await {
            Ok(id) => {
                self.destinations.accepted(&to);
                self.new_keys += new_keys;
                self.sent.add(letter, key, Some(id), self.scan.progress());
            }
            Err(error) => {
                self.destinations.failed(&to);
                if !error.is_refused {
                    self.sent.add(letter, key, None, self.scan.progress());
                }
                let outcome = if error.is_refused { Outcome::NotSent } else { Outcome::MaybeSent };
                return (outcome, error.to_string());
            }
        }
        match self.scan.delete(letter).await {
            Ok(()) => (Outcome::Redriven, detail),
            Err(error) => (Outcome::of_failed_delete(&error), in_both_queues(&to.url, &error)),
        }
    }
}
