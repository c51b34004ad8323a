//! `delete`: deletes letters.

use std::error::Error;

use serde_json::json;

use super::Session;
use super::arguments::ChangeArguments;
use super::error::CallError;
use super::filter::Filter;
use super::report::{Outcome, Report};
use super::scan::{Scan, Stop};
use crate::format;
use crate::output::CommandOutput;
use crate::progress::ProgressLine;

pub(crate) async fn run(
    session: &Session,
    filter: &Filter,
    change: &ChangeArguments,
) -> Result<CommandOutput, Box<dyn Error>> {
    let (mut scan, mut report) = (session.scan(), Report::default());
    let limit = change.limit.unwrap_or(usize::MAX);
    let ended = delete(&mut scan, session, filter, change.dry_run, limit, &mut report).await;
    let end = scan.end(*ended.as_ref().unwrap_or(&Stop::Failure)).await;
    report.output(json!({ "queue_url": session.queue.url, "dry_run": change.dry_run }), &end, "", ended.err())
}

async fn delete(
    scan: &mut Scan<'_>,
    session: &Session,
    filter: &Filter,
    dry_run: bool,
    limit: usize,
    report: &mut Report,
) -> Result<Stop, CallError> {
    let (mut line, total) = (ProgressLine::new(), format::count(session.counts.visible));
    let mut interrupt = session.interrupt.clone();
    while report.len() < limit
        && let Some(letter) = scan.next().await?
    {
        if !filter.matches(&letter, session.started) {
            continue;
        }
        if letter.is_later_than(session.started) {
            report.add_later();
            continue;
        }
        if dry_run {
            report.add(&letter, Outcome::WouldDelete, "");
            continue;
        }
        let deleted = tokio::select! {
            deleted = scan.delete(&letter) => deleted,
            () = interrupt.last_call() => Err(CallError::not_awaited()),
        };
        match deleted {
            Ok(()) => report.add(&letter, Outcome::Deleted, ""),
            Err(error) => {
                report.add(&letter, Outcome::of_failed_delete(&error), error.to_string());
                // The next ones would most likely fail for the same reason.
                return Ok(Stop::Failure);
            }
        }
        line.show(&format!("deleted {} of about {total}", format::count(report.len() as u64)));
    }
    Ok(if report.len() < limit { Stop::ScanEnded } else { Stop::Limit })
}
