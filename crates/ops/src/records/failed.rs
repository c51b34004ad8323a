//! `failed`: lists FAILED records.

use idempotent_sqs::idempotency::Key;
use idempotent_sqs::stores::redis::records::{RecordStateView, RecordView, Records, RecordsError};
use serde_json::json;

use super::scan_progress::ScanProgress;
use crate::format;
use crate::output::{self, CommandOutput};

pub(crate) async fn run(records: &Records, limit: usize, max_keys: u64) -> Result<CommandOutput, RecordsError> {
    let mut failed: Vec<(Key, RecordView)> = Vec::new();
    let mut scan = ScanProgress::start(records, max_keys).await?;
    while failed.len() < limit
        && let Some(page) = scan.next().await?
    {
        failed.extend(page.records.into_iter().filter(|(_, view)| matches!(view.state, RecordStateView::Failed(_))));
    }
    let is_cut_off = failed.len() > limit;
    failed.truncate(limit);
    let list = failed.iter().map(|(key, view)| {
        let mut record = output::json(view);
        record["key"] = key.as_str().into();
        record
    });
    let json = json!({
        "namespace": records.namespace(),
        "failed": list.collect::<Vec<_>>(),
        "keys_scanned": scan.keys_scanned(),
        "complete": scan.is_complete() && !is_cut_off,
    });
    // The other notes say that there may be more.
    let is_only_limited = is_cut_off && scan.is_complete();
    let limited = if is_only_limited { "the list stopped at --limit: there are more records\n" } else { "" };
    Ok(CommandOutput::new(true, table(&failed) + limited + &scan.note(), json))
}

fn table(failed: &[(Key, RecordView)]) -> String {
    if failed.is_empty() {
        return "no FAILED records\n".to_owned();
    }
    let header = ["KEY", "FAILURE", "ATTEMPTS", "AGE", "FENCE"].map(str::to_owned);
    let lines = failed.iter().map(|(key, view)| {
        let failure = match view.state {
            RecordStateView::Failed(failure) => output::failure(failure),
            RecordStateView::Processing { .. } | RecordStateView::Completed { .. } => "",
        };
        let (attempts, fence) = (view.attempts.to_string(), view.fence.to_string());
        [format::text(key.as_str()), failure.to_owned(), attempts, format::duration(view.age), fence]
    });
    format::columns(&std::iter::once(header).chain(lines).collect::<Vec<_>>())
}
