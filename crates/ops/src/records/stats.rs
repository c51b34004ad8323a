//! `stats`: counts the records by state, estimates their memory, and checks the server's settings.

use futures_util::future::try_join_all;
use idempotent_sqs::idempotency::Key;
use idempotent_sqs::stores::redis::records::{
    Lease, RecordStateView, RecordView, Records, RecordsError, ScanPage, ServerInfo,
};
use serde_json::{Value, json};

use super::scan_progress::ScanProgress;
use crate::format;
use crate::output::{self, CommandOutput};

/// Number of records whose memory is measured. SCAN returns keys in the order of their hashes, so the first ones are a
/// fair sample.
const SAMPLE_SIZE: usize = 500;

#[derive(Default)]
struct Counts {
    processing: u64,
    leases_ended: u64,
    completed: u64,
    failed: u64,
    uncertain: u64,
    permanent: u64,
    not_records: u64,
    oldest_processing: Option<(Key, RecordView)>,
    memory: MemorySample,
}

/// The measured records, and their memory in bytes.
#[derive(Default)]
struct MemorySample {
    records: usize,
    bytes: u64,
    /// Whether the Redis user lacks the permission for MEMORY USAGE.
    not_permitted: bool,
}

pub(crate) async fn run(records: &Records, max_keys: u64) -> Result<CommandOutput, RecordsError> {
    let mut counts = Counts::default();
    let mut scan = ScanProgress::start(records, max_keys).await?;
    while let Some(page) = scan.next().await? {
        counts.memory.measure(records, &page).await?;
        counts.add(page);
    }
    let server = if_permitted(records.server().await)?;
    let memory = counts.memory_bytes();
    let json = json!({
        "namespace": records.namespace(),
        "keys_scanned": scan.keys_scanned(),
        "complete": scan.is_complete(),
        "processing": counts.processing,
        "leases_ended": counts.leases_ended,
        "oldest_processing": counts.oldest_processing.as_ref().map(|(key, view)| {
            let mut oldest = output::json(view);
            oldest["key"] = key.as_str().into();
            oldest
        }),
        "completed": counts.completed,
        "failed": counts.failed,
        "failed_uncertain": counts.uncertain,
        "failed_permanent": counts.permanent,
        "not_records": counts.not_records,
        "memory": memory.map(|bytes| json!({ "bytes": bytes, "records_measured": counts.memory.records })),
        "server": server.as_ref().map(server_json),
    });
    let mut rows = vec![("namespace", format::text(records.namespace()))];
    rows.extend(counts.rows());
    rows.extend(server_rows(server.as_ref()));
    Ok(CommandOutput::new(true, format::rows(&rows) + &scan.note(), json))
}

/// The reply, or `None` if the Redis user lacks the permission. The rest of the statistics is still useful.
fn if_permitted<T>(reply: Result<T, RecordsError>) -> Result<Option<T>, RecordsError> {
    match reply {
        Ok(reply) => Ok(Some(reply)),
        Err(RecordsError::NotPermitted(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

impl MemorySample {
    /// Average memory of a record, in bytes.
    fn average(&self) -> Option<u64> {
        self.bytes.checked_div(self.records as u64)
    }

    async fn measure(&mut self, records: &Records, page: &ScanPage) -> Result<(), RecordsError> {
        if self.not_permitted {
            return Ok(());
        }
        let unmeasured = page.records.iter().take(SAMPLE_SIZE - self.records);
        let sizes = if_permitted(try_join_all(unmeasured.map(|(key, _)| records.memory(key))).await)?;
        self.not_permitted = sizes.is_none();
        for bytes in sizes.into_iter().flatten().flatten() {
            self.records += 1;
            self.bytes += bytes;
        }
        Ok(())
    }
}

impl Counts {
    fn add(&mut self, page: ScanPage) {
        self.not_records += page.not_records;
        for (key, view) in page.records {
            match view.state {
                RecordStateView::Processing { recovery: _, lease } => {
                    self.processing += 1;
                    self.leases_ended += u64::from(matches!(lease, Lease::Ended(_)));
                    // Not by age, which is measured at a different time for each page.
                    if self.oldest_processing.as_ref().is_none_or(|(_, oldest)| view.fence < oldest.fence) {
                        self.oldest_processing = Some((key, view));
                    }
                }
                RecordStateView::Completed { .. } => self.completed += 1,
                RecordStateView::Failed(failure) => {
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

    /// Estimated memory of all records, in bytes.
    fn memory_bytes(&self) -> Option<u64> {
        Some(self.memory.average()? * self.records())
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let count = format::count;
        let (ended, uncertain, permanent) = (count(self.leases_ended), count(self.uncertain), count(self.permanent));
        let oldest = self.oldest_processing.as_ref().map(|(key, view)| match view.state {
            RecordStateView::Processing { recovery: _, lease } => {
                let (key, age) = (format::text(key.as_str()), format::duration(view.age));
                format!("{key}, claimed {age} ago, lease {}", output::lease(lease))
            }
            RecordStateView::Completed { .. } | RecordStateView::Failed(_) => String::new(),
        });
        let memory = self.memory_bytes().zip(self.memory.average()).map(|(total, average)| {
            let (total, average) = (format::bytes(total), format::bytes(average));
            format!("about {total}: {average} per record, from a sample of {}", self.memory.records)
        });
        let no_memory =
            if self.memory.not_permitted { "unknown: the Redis user may not run MEMORY USAGE" } else { "none" };
        vec![
            ("PROCESSING", format!("{}, of which {ended} with an ended lease", count(self.processing))),
            ("  oldest", oldest.unwrap_or("none".to_owned())),
            ("COMPLETED", count(self.completed)),
            ("FAILED", format!("{}, of which {uncertain} uncertain, {permanent} permanent", count(self.failed))),
            ("not records", count(self.not_records)),
            ("memory", memory.unwrap_or(no_memory.to_owned())),
        ]
    }
}

fn server_rows(server: Option<&ServerInfo>) -> Vec<(&'static str, String)> {
    let Some(server) = server else {
        return vec![("server", "unknown: the Redis user may not run INFO".to_owned())];
    };
    let limit = server.limit_bytes.map_or("no limit shown".to_owned(), |limit| format!("of {}", format::bytes(limit)));
    let policies: Vec<_> = server.eviction_policies.iter().map(String::as_str).collect();
    let evicted = format::count(server.evicted_keys);
    let mut rows = vec![
        ("server", format!("{} in use, {limit}", format::bytes(server.used_bytes))),
        ("eviction", format!("{}; {evicted} keys evicted since the server started", policies.join(", "))),
    ];
    rows.extend(server.findings.iter().map(|finding| ("finding", finding.clone())));
    rows
}

fn server_json(server: &ServerInfo) -> Value {
    json!({
        "bytes_in_use": server.used_bytes,
        "bytes_limit": server.limit_bytes,
        "maxmemory_policy": server.eviction_policies,
        "evicted_keys": server.evicted_keys,
        "findings": server.findings,
    })
}
