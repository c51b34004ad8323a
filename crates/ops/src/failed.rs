//! `failed`: the FAILED records, as many as are asked for.

use idempotent_sqs::idempotency::Key;
use idempotent_sqs::stores::redis::records::{Records, RecordsError, Standing, View};
use serde_json::json;

use super::progress::Progress;
use super::report::{self, Report};
use super::show;

pub(crate) async fn run(records: &Records, limit: usize, keys: u64) -> Result<Report, RecordsError> {
    let mut found: Vec<(Key, View)> = Vec::new();
    let mut progress = Progress::start(records, keys).await?;
    while found.len() < limit
        && let Some(page) = progress.next().await?
    {
        found.extend(page.records.into_iter().filter(|(_, view)| matches!(view.standing, Standing::Failed(_))));
    }
    found.truncate(limit);
    let list = found.iter().map(|(key, view)| {
        let mut record = report::json(view);
        record["key"] = key.as_str().into();
        record
    });
    let json = json!({
        "namespace": records.namespace(),
        "failed": list.collect::<Vec<_>>(),
        "keys_looked_at": progress.looked_at(),
        "complete": progress.is_complete(),
    });
    Ok(Report { done: true, text: table(&found) + &progress.caveat(), json })
}

fn table(found: &[(Key, View)]) -> String {
    if found.is_empty() {
        return "no FAILED records\n".to_owned();
    }
    let header = ["KEY", "FAILURE", "ATTEMPTS", "AGE", "FENCE"].map(str::to_owned);
    let lines = found.iter().map(|(key, view)| {
        let failure = match view.standing {
            Standing::Failed(failure) => report::failure(failure),
            Standing::Processing { .. } | Standing::Completed { .. } => "",
        };
        let (attempts, fence) = (view.attempts.to_string(), view.fence.to_string());
        [show::text(key.as_str()), failure.to_owned(), attempts, show::span(view.age), fence]
    });
    show::columns(&std::iter::once(header).chain(lines).collect::<Vec<_>>())
}
