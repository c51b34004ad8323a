//! The rows of the inbox, and the statements on them. `sql/inbox.sql` creates the table.

use std::borrow::Cow;

use futures_util::future::try_join;

use idempotent_sqs::idempotency::{AcquireRequest, Claim, Fence, Fingerprint, Owner};

use super::InboxSettings;
use crate::database::types::ToSql;
use crate::database::{DatabaseError, Row, Transaction, TransactionStatements, interval_seconds};

/// The transaction of the work.
pub(super) const RUN: TransactionStatements = TransactionStatements { first: INSERT, last: SET_RESULT };

/// Deletes expired rows.
pub(super) const CLEAN_UP: TransactionStatements = TransactionStatements { first: DELETE_EXPIRED, last: NO_OP };

/// Records a permanent failure, after the transaction of the work was rolled back. Finds the row if another owner has
/// committed it since.
pub(super) const RECORD_FAILURE: TransactionStatements = TransactionStatements { first: FIND, last: NO_OP };

/// The first transaction that inserts the row does the work. A second one waits here until the first has ended. A row
/// that has expired and is not deleted yet is replaced, unless it is unfinished. With a short retention, the row of
/// this claim itself may have expired when the outcome of its commit is looked up, so it is kept. A row that is visible
/// and kept is found first, because ON CONFLICT DO UPDATE would lock it.
///
/// The statement is sent together with BEGIN. If BEGIN fails, for example because an operator cancels it, the statement
/// would run and commit outside a transaction. To prevent that, BEGIN also sets `idempotent_sqs.begun`. Without it,
/// `attempts` is NULL, which violates a constraint.
const INSERT: &str = "INSERT INTO idempotency_inbox (namespace, key, fingerprint, fence, attempts) \
     SELECT $1::text, $2::text, $3::bytea, $4::bigint, \
       CASE WHEN current_setting('idempotent_sqs.begun', true) = 'yes' THEN $5::smallint END \
     WHERE NOT EXISTS (SELECT FROM idempotency_inbox WHERE namespace = $1 AND key = $2 \
       AND (done_at >= now() - make_interval(secs => $6) OR result IS NULL OR fence = $4)) \
     ON CONFLICT (namespace, key) DO UPDATE \
     SET fingerprint = excluded.fingerprint, fence = excluded.fence, attempts = excluded.attempts, result = NULL, \
       done_at = excluded.done_at \
     WHERE idempotency_inbox.done_at < now() - make_interval(secs => $6) AND idempotency_inbox.result IS NOT NULL \
       AND idempotency_inbox.fence <> excluded.fence";

/// Affects the row only if this transaction inserted or replaced it.
///
/// If the work has executed COMMIT or ROLLBACK, the setting `idempotent_sqs.begun` is not set. The statement then
/// affects no row and returns no error. In a transaction that the work has begun since, an error would hide that the
/// first transaction has ended.
///
/// If a policy or a trigger prevents the update of the row, the statement divides by zero, so that no effect is
/// committed without its result.
///
/// The driver refuses to send a statement if the values have other types than its parameters, but it would still send
/// the COMMIT. So the types are part of the statement. If the column `result` has another type, preparing the statement
/// at the BEGIN fails, because the arguments of `coalesce` must have one type. An assignment alone would convert the
/// bytes to a text that cannot be read as bytes.
const SET_RESULT: &str = "WITH updated AS ( \
       UPDATE idempotency_inbox SET result = coalesce($3::bytea, result) \
       WHERE namespace = $1::text AND key = $2::text AND xmin = pg_current_xact_id()::xid RETURNING 1 \
     ) \
     SELECT 1 / count(*) FROM updated \
     HAVING count(*) = 1 OR current_setting('idempotent_sqs.begun', true) = 'yes'";

/// As for [`INSERT`], an expired row does not count.
const FIND: &str = "SELECT FROM idempotency_inbox WHERE namespace = $1 AND key = $2 \
     AND (done_at >= now() - make_interval(secs => $3) OR result IS NULL)";

const READ: &str = "SELECT fingerprint, fence, result FROM idempotency_inbox WHERE namespace = $1 AND key = $2";

/// By `ctid`, because DELETE has no LIMIT, and by `tableoid`, because partitions of a table may have rows with the same
/// `ctid`. Skips rows that another cleanup has locked, and unfinished rows, which an operator has to settle.
const DELETE_EXPIRED: &str = "WITH expired AS ( \
       SELECT tableoid, ctid FROM idempotency_inbox \
       WHERE namespace = $1 AND done_at < now() - make_interval(secs => $2) AND result IS NOT NULL \
       ORDER BY done_at LIMIT $3 FOR UPDATE SKIP LOCKED \
     ) \
     DELETE FROM idempotency_inbox \
     WHERE ctid = ANY (ARRAY(SELECT ctid FROM expired)) AND (tableoid, ctid) IN (SELECT tableoid, ctid FROM expired)";

const NO_OP: &str = "SELECT 1";

/// The rows of one consumer.
#[derive(Debug)]
pub(super) struct InboxTable {
    namespace: String,
    retention_seconds: f64,
}

/// A row to insert.
pub(super) struct NewRow<'a> {
    namespace: &'a str,
    key: Cow<'a, str>,
    fingerprint: &'a [u8],
    fence: i64,
    attempts: i16,
    retention_seconds: f64,
}

/// State of the row of a key and payload.
#[derive(Debug)]
pub(super) enum RowState {
    /// There is no row.
    Absent,
    /// The work is done.
    Done { result: Vec<u8>, fence: i64 },
    /// The row was committed without a result, by a COMMIT of the work.
    Unfinished,
    /// The row has the fingerprint of another payload.
    OtherPayload,
}

impl InboxTable {
    pub(super) fn new(settings: &InboxSettings) -> Self {
        Self { namespace: settings.namespace.clone(), retention_seconds: interval_seconds(settings.retention) }
    }

    /// The row of the work of this claim.
    pub(super) fn row<'a>(&'a self, claim: &'a Claim) -> NewRow<'a> {
        NewRow { fence: fence_column(claim.fence()), attempts: claim.attempt().into(), ..self.probe(claim.request()) }
    }

    /// A row that is inserted only to check whether one exists, and is rolled back.
    pub(super) fn probe<'a>(&'a self, request: &'a AcquireRequest) -> NewRow<'a> {
        let (key, fingerprint) = (request.key.stored(), request.fingerprint.as_bytes());
        let Self { namespace, retention_seconds } = self;
        NewRow { namespace, key, fingerprint, fence: 0, attempts: 0, retention_seconds: *retention_seconds }
    }

    /// A row under a key that no message has, for a check that is rolled back.
    pub(super) fn row_of_check(&self) -> NewRow<'_> {
        let key = Cow::Owned(format!("check:{}{}", Owner::random(), Owner::random()));
        let Self { namespace, retention_seconds } = self;
        NewRow { namespace, key, fingerprint: &[], fence: 0, attempts: 0, retention_seconds: *retention_seconds }
    }

    /// Updates and reads the row of a check, in one round trip once the statements are prepared.
    pub(super) async fn check(&self, transaction: &Transaction, row: &NewRow<'_>) -> Result<(), DatabaseError> {
        let (result, key) = (Vec::new(), [&self.namespace as &(dyn ToSql + Sync), &row.key]);
        let update = row.with_result(&result);
        let (_, rows) = try_join(transaction.execute(SET_RESULT, &update), transaction.query(READ, &key)).await?;
        rows.iter().try_for_each(|row| row_state(row, &Fingerprint::of(b"")).map(drop))
    }

    /// Reads the row that could not be inserted because it exists.
    pub(super) async fn read(
        &self,
        transaction: &Transaction,
        request: &AcquireRequest,
    ) -> Result<RowState, DatabaseError> {
        let Some(row) = transaction.query_first(READ, &[&self.namespace, &request.key.stored()]).await? else {
            return Ok(RowState::Absent);
        };
        row_state(&row, &request.fingerprint)
    }
}

/// What a row means for a payload with this fingerprint.
fn row_state(row: &Row, payload: &Fingerprint) -> Result<RowState, DatabaseError> {
    let fingerprint: &[u8] = row.try_get("fingerprint")?;
    let (fence, result): (_, Option<_>) = (row.try_get("fence")?, row.try_get("result")?);
    // This crate writes 16 bytes. Any other value agrees with no payload.
    if !fingerprint.try_into().map_or(Fingerprint::of(b""), Fingerprint::from_bytes).agrees_with(payload) {
        return Ok(RowState::OtherPayload);
    }
    // The row of an open transaction is not visible, so a row without a result was committed so.
    Ok(result.map_or(RowState::Unfinished, |result| RowState::Done { result, fence }))
}

impl NewRow<'_> {
    pub(super) fn parameters(&self) -> [&(dyn ToSql + Sync); 6] {
        [&self.namespace, &self.key, &self.fingerprint, &self.fence, &self.attempts, &self.retention_seconds]
    }

    pub(super) fn parameters_of_find(&self) -> [&(dyn ToSql + Sync); 3] {
        [&self.namespace, &self.key, &self.retention_seconds]
    }

    pub(super) fn with_result<'a>(&'a self, result: &'a Vec<u8>) -> [&'a (dyn ToSql + Sync); 3] {
        [&self.namespace, &self.key, result]
    }
}

/// The fence as a column. In microseconds since 1970 it is far below the limit.
pub(super) fn fence_column(fence: Fence) -> i64 {
    i64::try_from(fence.0).unwrap_or(i64::MAX)
}
