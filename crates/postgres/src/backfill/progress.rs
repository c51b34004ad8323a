//! The counts of a run, how it ended, and its errors.

use std::time::Duration;

use idempotent_sqs::idempotency::StoreError;

use crate::database::DatabaseError;

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackfillProgress {
    /// Rows whose records were written.
    pub copied: u64,
    /// Rows whose records were COMPLETED before.
    pub already_completed: u64,
    /// Rows whose records are PROCESSING, or FAILED for another payload. The inbox row is read by that attempt or the
    /// next one.
    pub skipped: u64,
    /// Rows under whose keys the store has values that are not idempotency records.
    pub not_records: u64,
    /// Rows that are not sent yet. `None` if they could not be counted within the timeout.
    pub remaining: Option<u64>,
    /// Time since the start of the run.
    pub elapsed: Duration,
}

impl BackfillProgress {
    /// Rows that were sent to the store.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.copied + self.already_completed + self.skipped + self.not_records
    }

    /// Rows that were sent in a second, on average.
    #[must_use]
    pub fn rows_per_second(&self) -> u64 {
        let rate = u128::from(self.sent()) * 1_000 / self.elapsed.as_millis().max(1);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackfillEnd {
    /// All rows were sent.
    Done,
    /// The time was up. The next run continues.
    OutOfTime,
    /// A concurrent run has started over at the oldest row, and copies the remaining rows.
    Superseded,
}

impl BackfillEnd {
    /// For logs and summaries.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::OutOfTime => "out of time",
            Self::Superseded => "superseded",
        }
    }
}

/// Why a run failed. The next run continues where this one stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackfillError {
    /// A table is missing, or lacks a column.
    #[error(
        "the tables idempotency_inbox and idempotency_backfill are missing or outdated: run \
         crates/postgres/sql/inbox.sql with psql on the database of DATABASE_URL ({0})"
    )]
    TablesOutdated(DatabaseError),
    /// The user lacks a permission on a table.
    #[error(
        "the user of DATABASE_URL may not use the tables of the backfill: grant it SELECT on idempotency_inbox, and \
         SELECT, INSERT and UPDATE on idempotency_backfill ({0})"
    )]
    PermissionDenied(DatabaseError),
    /// Any other error of the database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store has lost records repeatedly during the run.
    #[error(
        "the store loses records while they are copied: set the maxmemory-policy of Redis to noeviction, and check \
         its memory"
    )]
    RecordsLost,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_all_rows_that_were_sent() {
        let mut progress = BackfillProgress {
            copied: 1_000,
            already_completed: 200,
            skipped: 30,
            not_records: 4,
            ..BackfillProgress::default()
        };
        assert_eq!(progress.sent(), 1_234);
        for (ms, rate) in [(500, 2_468), (1_000, 1_234), (3_000, 411), (0, 1_234_000)] {
            progress.elapsed = Duration::from_millis(ms);
            assert_eq!(progress.rows_per_second(), rate, "{ms} ms");
        }
    }
}
