//! What the tables have in the end. Times are by the monotonic clock, µs.

use harness::postgres::Client;
use idempotent_sqs_postgres::database::Row;

use super::servers::ARCHIVE;

#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    /// All changes of the inbox, in order, apart from the rows that were there before.
    pub(crate) changes: Vec<Change>,
    /// Its rows.
    pub(crate) rows: Vec<InboxRow>,
    pub(crate) effects: Vec<Inserted>,
    pub(crate) failures: Vec<Inserted>,
    /// Rows of another consumer that were changed or deleted, and those that were there before and must be there still.
    pub(crate) changed_others: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) kind: ChangeKind,
    pub(crate) row: InboxRow,
    pub(crate) transaction: i64,
    /// When its transaction began, and was committed.
    pub(crate) begun_us: u64,
    pub(crate) committed_us: u64,
    /// The name of its session.
    pub(crate) by: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Insert,
    Update,
    Delete,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InboxRow {
    pub(crate) namespace: String,
    pub(crate) key: String,
    pub(crate) fingerprint: Vec<u8>,
    pub(crate) fence: i64,
    pub(crate) attempts: i16,
    pub(crate) result: Option<Vec<u8>>,
    /// By the wall clock, µs since 1970.
    pub(crate) done_at_us: i64,
}

/// A row that a work has inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inserted {
    /// The number of its run.
    pub(crate) run: usize,
    pub(crate) transaction: i64,
    pub(crate) committed_us: u64,
    /// Why the work had failed.
    pub(crate) why: Option<String>,
}

impl Tables {
    /// Reads the tables. `ahead_us` is what the wall clock is ahead of the monotonic clock.
    pub(crate) async fn read(client: &Client, ahead_us: u64) -> Self {
        let rows = async |query: &str| client.query(query, &[]).await.unwrap();
        let us = |row: &Row, column: &str| u64::try_from(row.get::<_, i64>(column)).unwrap().saturating_sub(ahead_us);
        let inserted = |row: &Row| Inserted {
            run: usize::try_from(row.get::<_, i64>("run")).unwrap(),
            transaction: row.get("transaction"),
            committed_us: us(row, "committed_us"),
            why: row.get("why"),
        };
        let change = |row: &Row| Change {
            kind: match row.get("change") {
                "INSERT" => ChangeKind::Insert,
                "UPDATE" => ChangeKind::Update,
                _ => ChangeKind::Delete,
            },
            row: InboxRow::of(row),
            transaction: row.get("transaction"),
            begun_us: us(row, "begun_us"),
            committed_us: us(row, "committed_us"),
            by: row.get("by"),
        };
        let others = format!(
            "SELECT namespace || ' ' || key || ' was changed or deleted' FROM (TABLE others EXCEPT TABLE \
             idempotency_inbox) changed WHERE namespace = '{ARCHIVE}' OR key NOT LIKE 'expired-%'"
        );
        Self {
            changes: rows(CHANGES).await.iter().map(change).collect(),
            rows: rows(ROWS).await.iter().map(InboxRow::of).collect(),
            effects: rows(EFFECTS).await.iter().map(inserted).collect(),
            failures: rows(FAILURES).await.iter().map(inserted).collect(),
            changed_others: rows(&others).await.iter().map(|row| row.get(0)).collect(),
        }
    }
}

impl InboxRow {
    fn of(row: &Row) -> Self {
        Self {
            namespace: row.get("namespace"),
            key: row.get("key"),
            fingerprint: row.get("fingerprint"),
            fence: row.get("fence"),
            attempts: row.get("attempts"),
            result: row.get("result"),
            done_at_us: row.get("done_at_us"),
        }
    }
}

/// The rows that are copied in steps have no owner.
const CHANGES: &str = "SELECT change, (changed).namespace, (changed).key, (changed).fingerprint, (changed).fence, \
       (changed).attempts, (changed).result, (extract(epoch FROM (changed).done_at) * 1000000)::bigint AS done_at_us, \
       transaction::text::bigint AS transaction, (extract(epoch FROM begun_at) * 1000000)::bigint AS begun_us, \
       (extract(epoch FROM pg_xact_commit_timestamp(transaction::xid)) * 1000000)::bigint AS committed_us, by \
     FROM changes WHERE (changed).namespace <> 'bulk' AND (change = 'DELETE' OR (changed).key NOT LIKE 'expired-%') \
     ORDER BY at";

const ROWS: &str = "SELECT *, (extract(epoch FROM done_at) * 1000000)::bigint AS done_at_us FROM idempotency_inbox \
     WHERE namespace <> 'bulk' AND key NOT LIKE 'expired-%' \
       AND (namespace, key) NOT IN (SELECT namespace, key FROM others)";

const EFFECTS: &str = "SELECT run, transaction::text::bigint AS transaction, NULL::text AS why, \
       (extract(epoch FROM pg_xact_commit_timestamp(transaction::xid)) * 1000000)::bigint AS committed_us FROM effects";

const FAILURES: &str = "SELECT run, transaction::text::bigint AS transaction, why, \
       (extract(epoch FROM pg_xact_commit_timestamp(transaction::xid)) * 1000000)::bigint AS committed_us FROM failures";
