//! `stats`: how many records there are, what they take, and whether their server is fit for them.

use futures_util::future::try_join_all;
use idempotent_sqs::idempotency::Key;
use idempotent_sqs::stores::redis::records::{Lease, Page, Records, RecordsError, Server, Standing, View};
use serde_json::{Value, json};

use super::progress::Progress;
use super::report::{self, Report};
use super::show;

/// Records whose memory is asked for. Redis gives records in an order that their hashes make, so the
/// first to come are a fair sample.
const SAMPLE: usize = 500;

#[derive(Default)]
struct Count {
    processing: u64,
    leases_ended: u64,
    completed: u64,
    failed: u64,
    uncertain: u64,
    permanent: u64,
    foreign: u64,
    oldest: Option<(Key, View)>,
    sample: Sample,
}

/// Records that were measured, and the bytes they take.
#[derive(Default)]
struct Sample {
    records: usize,
    bytes: u64,
    /// The Redis user may not ask.
    refused: bool,
}

pub(crate) async fn run(records: &Records, keys: u64) -> Result<Report, RecordsError> {
    let mut count = Count::default();
    let mut progress = Progress::start(records, keys).await?;
    while let Some(page) = progress.next().await? {
        count.sample.measure(records, &page).await?;
        count.add(page);
    }
    let server = permitted(records.server().await)?;
    let json = json!({
        "namespace": records.namespace(),
        "keys_looked_at": progress.looked_at(),
        "complete": progress.is_complete(),
        "processing": count.processing,
        "leases_ended": count.leases_ended,
        "oldest_processing": count.oldest.as_ref().map(|(key, view)| {
            let mut oldest = report::json(view);
            oldest["key"] = key.as_str().into();
            oldest
        }),
        "completed": count.completed,
        "failed": count.failed,
        "failed_uncertain": count.uncertain,
        "failed_permanent": count.permanent,
        "foreign": count.foreign,
        "memory": count.memory().map(|bytes| json!({ "bytes": bytes, "records_measured": count.sample.records })),
        "server": server.as_ref().map(server_json),
    });
    let mut rows = vec![("namespace", show::text(records.namespace()))];
    rows.extend(count.rows());
    rows.extend(server_rows(server.as_ref()));
    Ok(Report { done: true, text: show::rows(&rows) + &progress.caveat(), json })
}

/// The answer, or nothing where it was the rights that lacked: what is left is worth having.
fn permitted<T>(answer: Result<T, RecordsError>) -> Result<Option<T>, RecordsError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(RecordsError::NotPermitted(_)) => Ok(None),
        Err(error @ (RecordsError::Unavailable(_) | RecordsError::OneOfMany)) => Err(error),
    }
}

impl Sample {
    /// Bytes that a record takes.
    fn each(&self) -> Option<u64> {
        self.bytes.checked_div(self.records as u64)
    }

    async fn measure(&mut self, records: &Records, page: &Page) -> Result<(), RecordsError> {
        if self.refused {
            return Ok(());
        }
        let wanted = page.records.iter().take(SAMPLE - self.records);
        let sizes = permitted(try_join_all(wanted.map(|(key, _)| records.memory(key))).await)?;
        self.refused = sizes.is_none();
        for bytes in sizes.into_iter().flatten().flatten() {
            self.records += 1;
            self.bytes += bytes;
        }
        Ok(())
    }
}

impl Count {
    fn add(&mut self, page: Page) {
        self.foreign += page.foreign;
        for (key, view) in page.records {
            match view.standing {
                Standing::Processing { recovery: _, lease } => {
                    self.processing += 1;
                    self.leases_ended += u64::from(matches!(lease, Lease::Ended(_)));
                    // Not by age, which counts to the moment of each one's look.
                    if self.oldest.as_ref().is_none_or(|(_, oldest)| view.fence < oldest.fence) {
                        self.oldest = Some((key, view));
                    }
                }
                Standing::Completed { .. } => self.completed += 1,
                Standing::Failed(failure) => {
                    self.failed += 1;
                    self.uncertain += u64::from(failure.uncertain);
                    self.permanent += u64::from(failure.permanent);
                }
            }
        }
    }

    fn records(&self) -> u64 {
        self.processing + self.completed + self.failed
    }

    /// Bytes, by the records that were measured.
    fn memory(&self) -> Option<u64> {
        Some(self.sample.each()? * self.records())
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let Self { processing, leases_ended, completed, failed, uncertain, permanent, foreign, .. } = self;
        let number = |number: &u64| show::count(*number);
        let (ended, uncertain, permanent) = (number(leases_ended), number(uncertain), number(permanent));
        let oldest = self.oldest.as_ref().map(|(key, view)| match view.standing {
            Standing::Processing { recovery: _, lease } => {
                let (key, age) = (show::text(key.as_str()), show::span(view.age));
                format!("{key}, claimed {age} ago, lease: {}", report::lease(lease))
            }
            Standing::Completed { .. } | Standing::Failed(_) => String::new(),
        });
        let measured = &self.sample;
        let memory = self.memory().zip(measured.each()).map(|(all, each)| {
            let (all, each) = (show::bytes(all), show::bytes(each));
            format!("about {all}: {each} each, by {} that were measured", measured.records)
        });
        let unknown = if measured.refused { "not known: the user may not run MEMORY USAGE" } else { "none" };
        vec![
            ("PROCESSING", format!("{}, of which {ended} with an ended lease", number(processing))),
            ("  oldest", oldest.unwrap_or("none".to_owned())),
            ("COMPLETED", number(completed)),
            ("FAILED", format!("{}, of which {uncertain} uncertain, {permanent} permanent", number(failed))),
            ("not records", number(foreign)),
            ("memory", memory.unwrap_or(unknown.to_owned())),
        ]
    }
}

fn server_rows(server: Option<&Server>) -> Vec<(&'static str, String)> {
    let Some(server) = server else {
        return vec![("server", "not known: the user may not run INFO".to_owned())];
    };
    let limit =
        if server.limit == 0 { "no limit is shown".to_owned() } else { format!("of {}", show::bytes(server.limit)) };
    let policies: Vec<_> = server.eviction.iter().map(String::as_str).collect();
    let evicted = show::count(server.evicted);
    let mut rows = vec![
        ("server", format!("{} in use, {limit}", show::bytes(server.used))),
        ("eviction", format!("{}; {evicted} keys evicted since its start", policies.join(", "))),
    ];
    rows.extend(server.findings.iter().map(|finding| ("finding", finding.clone())));
    rows
}

fn server_json(server: &Server) -> Value {
    json!({
        "bytes_in_use": server.used,
        "bytes_limit": (server.limit > 0).then_some(server.limit),
        "maxmemory_policy": server.eviction,
        "evicted_keys": server.evicted,
        "findings": server.findings,
    })
}
