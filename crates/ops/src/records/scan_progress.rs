//! A bounded scan that shows its progress on a terminal.

use idempotent_sqs::stores::redis::records::{Records, RecordsError, Scan, ScanPage};

use crate::format;
use crate::progress::ProgressLine;

/// A scan with a limit. If stderr is a terminal, it shows how many keys were scanned.
pub(crate) struct ScanProgress<'a> {
    scan: Scan<'a>,
    /// Number of keys in Redis; `None` if the Redis user may not read it.
    total_keys: Option<u64>,
    max_keys: u64,
    keys_scanned: u64,
    line: ProgressLine,
}

impl<'a> ScanProgress<'a> {
    /// Starts a scan of about `max_keys` keys.
    pub(crate) async fn start(records: &'a Records, max_keys: u64) -> Result<Self, RecordsError> {
        let total_keys = match records.keys().await {
            Ok(keys) => Some(keys),
            Err(RecordsError::NotPermitted(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { scan: records.scan().await?, total_keys, max_keys, keys_scanned: 0, line: ProgressLine::new() })
    }

    /// The next page, or `None` at the end of the records or at the limit.
    pub(crate) async fn next(&mut self) -> Result<Option<ScanPage>, RecordsError> {
        if self.keys_scanned >= self.max_keys {
            return Ok(None);
        }
        let Some(page) = self.scan.next().await? else { return Ok(None) };
        self.keys_scanned += page.keys_scanned;
        let text = format!("scanned about {} keys", self.scanned_of_total());
        self.line.show(&text);
        Ok(Some(page))
    }

    /// About how many keys Redis has scanned.
    pub(crate) fn keys_scanned(&self) -> u64 {
        self.keys_scanned.min(self.total_keys.unwrap_or(u64::MAX))
    }

    fn scanned_of_total(&self) -> String {
        let scanned = format::count(self.keys_scanned());
        self.total_keys.map_or(scanned.clone(), |total| format!("{scanned} of {}", format::count(total)))
    }

    /// Whether the scan covered every record.
    pub(crate) fn is_complete(&self) -> bool {
        self.scan.is_finished() && !self.scan.may_lack_records()
    }

    /// A note if records may be missing; empty if the scan is complete.
    pub(crate) fn note(&self) -> String {
        if self.scan.may_lack_records() {
            return "a server was restarted or failed over, or slots of the cluster have moved, during the scan, so records \
                    may be missing: run the command again\n"
                .to_owned();
        }
        if self.scan.is_finished() {
            return String::new();
        }
        format!("the scan stopped after about {} keys: there may be more records\n", self.scanned_of_total())
    }
}
