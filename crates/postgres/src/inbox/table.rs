//! The rows of the inbox, and the statements on them. The table is made by `sql/inbox.sql`.

use std::borrow::Cow;

use crate::database::types::ToSql;
use crate::database::{DatabaseError, Frame, Transaction};
use idempotent_sqs::idempotency::{Attempt, Claim, Fence, Fingerprint};

/// The work of a claim.
pub(super) const WORK: Frame = Frame { opening: INSERT, closing: FINISH };

/// A look at the table and each of its columns, and at no row. It has the namespace, for its characters.
pub(super) const LOOK: Frame = Frame {
    opening: "SELECT namespace, key, fingerprint, fence, attempts, result, done_at FROM idempotency_inbox \
              WHERE namespace = $1 AND false",
    closing: NOTHING,
};

/// A step in the removal of old rows.
pub(super) const REMOVAL: Frame = Frame { opening: REMOVE, closing: NOTHING };

/// A transaction after one that was undone. Its opening touches the row that another owner may have committed since.
pub(super) const NOTE: Frame = Frame { opening: FIND, closing: NOTHING };

/// Whoever inserts first does the work. A second one waits here until the first has committed or not.
///
/// It is sent together with the begin of its transaction. Where that was refused, such as by an operator's cancel,
/// it would commit by itself, so it fails then: a count of attempts is not NULL.
const INSERT: &str = "INSERT INTO idempotency_inbox (namespace, key, fingerprint, fence, attempts) \
     VALUES ($1, $2, $3, $4, CASE WHEN current_setting('idempotent_sqs.begun', true) = 'yes' THEN $5::smallint END) \
     ON CONFLICT (namespace, key) DO NOTHING";

/// The row has to be this very transaction's own: a work that ended its transaction has lost it.
const FINISH: &str = "UPDATE idempotency_inbox SET result = $3 \
     WHERE namespace = $1 AND key = $2 AND xmin = pg_current_xact_id()::xid";

const FIND: &str = "SELECT FROM idempotency_inbox WHERE namespace = $1 AND key = $2";

const READ: &str = "SELECT fingerprint, fence, result FROM idempotency_inbox WHERE namespace = $1 AND key = $2";

/// By place, as a DELETE takes no LIMIT. Rows that another such step is at are passed over, and unfinished ones
/// are left to an operator.
const REMOVE: &str = "DELETE FROM idempotency_inbox WHERE ctid = ANY (ARRAY( \
     SELECT ctid FROM idempotency_inbox \
     WHERE namespace = $1 AND done_at < now() - make_interval(secs => $2) AND result IS NOT NULL \
     ORDER BY done_at LIMIT $3 FOR UPDATE SKIP LOCKED))";

const NOTHING: &str = "SELECT 1";

/// The rows of one consumer.
#[derive(Debug)]
pub(super) struct InboxTable {
    pub(super) namespace: String,
}

/// A row as it is inserted.
pub(super) struct NewRow<'a> {
    namespace: &'a str,
    key: Cow<'a, str>,
    fingerprint: &'a [u8],
    fence: i64,
    attempts: i16,
}

/// What the inbox says of a key and payload.
#[derive(Debug)]
pub(super) enum Recorded {
    /// There is no row.
    Nothing,
    /// The work is done.
    Done { result: Vec<u8>, fence: i64 },
    /// A row was committed without its result: the work ended its transaction by itself.
    Unfinished,
    /// The row is of another payload.
    OtherPayload,
}

impl InboxTable {
    pub(super) fn row<'a>(&'a self, claim: &'a Claim) -> NewRow<'a> {
        NewRow { fence: stored(claim.fence()), attempts: claim.attempt().into(), ..self.trial(claim.asked()) }
    }

    /// A row that is inserted to see whether another is there, and is never committed.
    pub(super) fn trial<'a>(&'a self, attempt: &'a Attempt) -> NewRow<'a> {
        let (key, fingerprint) = (attempt.key.stored(), attempt.fingerprint.as_bytes());
        NewRow { namespace: &self.namespace, key, fingerprint, fence: 0, attempts: 0 }
    }

    /// What the row says that was there before.
    pub(super) async fn read(&self, transaction: &Transaction, attempt: &Attempt) -> Result<Recorded, DatabaseError> {
        let Some(row) = transaction.query_first(READ, &[&self.namespace, &attempt.key.stored()]).await? else {
            return Ok(Recorded::Nothing);
        };
        let fingerprint = row.get::<_, &[u8]>("fingerprint").try_into().map(Fingerprint::from_bytes);
        // One that is not of 16 bytes was not written here; it agrees with none.
        if !fingerprint.unwrap_or(Fingerprint::of(b"")).agrees_with(&attempt.fingerprint) {
            return Ok(Recorded::OtherPayload);
        }
        // Of a transaction under way the row would not be seen.
        Ok(match row.get("result") {
            Some(result) => Recorded::Done { result, fence: row.get("fence") },
            None => Recorded::Unfinished,
        })
    }
}

impl NewRow<'_> {
    pub(super) fn parameters(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.namespace, &self.key, &self.fingerprint, &self.fence, &self.attempts]
    }

    /// Where it is.
    pub(super) fn place(&self) -> [&(dyn ToSql + Sync); 2] {
        [&self.namespace, &self.key]
    }

    pub(super) fn finished<'a>(&'a self, result: &'a Vec<u8>) -> [&'a (dyn ToSql + Sync); 3] {
        [&self.namespace, &self.key, result]
    }
}

/// In microseconds since 1970 it is far from the limit.
pub(super) fn stored(fence: Fence) -> i64 {
    i64::try_from(fence.0).unwrap_or(i64::MAX)
}
