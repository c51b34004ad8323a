//! The rows of the inbox, and the statements on them. The table is made by `sql/inbox.sql`.

use std::borrow::Cow;

use crate::database::types::ToSql;
use crate::database::{DatabaseError, Frame, Transaction};
use crate::record::Fingerprint;
use crate::store::Claim;

/// The work of a claim.
pub(super) const WORK: Frame = Frame { opening: INSERT, closing: FINISH };

/// A look at the table and each of its columns, and at no row.
pub(super) const LOOK: Frame = Frame {
    opening: "SELECT namespace, key, fingerprint, fence, attempts, result, done_at FROM idempotency_inbox WHERE false",
    closing: NOTHING,
};

/// A step in the removal of old rows.
pub(super) const REMOVAL: Frame = Frame { opening: REMOVE, closing: NOTHING };

/// A transaction that has nothing to do with the inbox.
pub(super) const NOTE: Frame = Frame { opening: NOTHING, closing: NOTHING };

/// Whoever inserts first does the work. A second one waits here until the first has committed or not.
const INSERT: &str = "INSERT INTO idempotency_inbox (namespace, key, fingerprint, fence, attempts) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (namespace, key) DO NOTHING";

/// The row has to be this very transaction's own: a work that ended its transaction has lost it.
const FINISH: &str = "UPDATE idempotency_inbox SET result = $3 \
     WHERE namespace = $1 AND key = $2 AND xmin = pg_current_xact_id()::xid";

const KNOWN: &str = "SELECT fingerprint, result FROM idempotency_inbox WHERE namespace = $1 AND key = $2";

/// By place, as a DELETE takes no LIMIT. Rows that another such step is at are passed over.
const REMOVE: &str = "DELETE FROM idempotency_inbox WHERE ctid = ANY (ARRAY( \
     SELECT ctid FROM idempotency_inbox WHERE namespace = $1 AND done_at < now() - make_interval(secs => $2) \
     ORDER BY done_at LIMIT $3 FOR UPDATE SKIP LOCKED))";

const NOTHING: &str = "SELECT 1";

/// The rows of one consumer.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) namespace: String,
}

/// A row as it is inserted.
pub(super) struct Row<'a> {
    namespace: &'a str,
    key: Cow<'a, str>,
    fingerprint: &'a [u8],
    fence: i64,
    attempts: i16,
}

/// A row that is there.
pub(super) struct Known {
    pub(super) fingerprint: Fingerprint,
    pub(super) result: Vec<u8>,
}

impl Table {
    pub(super) fn row<'a>(&'a self, claim: &'a Claim) -> Row<'a> {
        Row {
            namespace: &self.namespace,
            key: claim.key().stored(),
            fingerprint: claim.asked().fingerprint.as_bytes(),
            // In microseconds since 1970 it is far from the limit.
            fence: i64::try_from(claim.fence().0).unwrap_or(i64::MAX),
            attempts: claim.attempt().into(),
        }
    }

    pub(super) async fn known(&self, transaction: &Transaction, claim: &Claim) -> Result<Option<Known>, DatabaseError> {
        let row = transaction.query_first(KNOWN, &[&self.namespace, &claim.key().stored()]).await?;
        Ok(row.map(|row| {
            let fingerprint = row.get::<_, &[u8]>("fingerprint").try_into().map(Fingerprint::from_bytes);
            let result = row.get::<_, Option<Vec<u8>>>("result");
            // One that is not of 16 bytes was not written here; it agrees with none.
            Known { fingerprint: fingerprint.unwrap_or(Fingerprint::of(b"")), result: result.unwrap_or_default() }
        }))
    }
}

impl Row<'_> {
    pub(super) fn parameters(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.namespace, &self.key, &self.fingerprint, &self.fence, &self.attempts]
    }

    pub(super) fn finished<'a>(&'a self, result: &'a Vec<u8>) -> [&'a (dyn ToSql + Sync); 3] {
        [&self.namespace, &self.key, result]
    }
}
