//! What a work sees of its session: what earlier messages have left, and the limits of its transaction.

use idempotent_sqs_postgres::{DatabaseError, Transaction};

/// What a work sees of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) pid: i32,
    /// The id of its transaction.
    pub(crate) transaction: i64,
    /// Everything that an earlier message may have left.
    pub(crate) state: Vec<String>,
    pub(crate) isolation: String,
    /// How long a statement may wait for a lock, ms.
    pub(crate) lock_ms: i64,
    /// How long a statement may take, ms.
    pub(crate) statement_ms: i64,
    /// How long the transaction may be idle, ms.
    pub(crate) idle_ms: i64,
}

/// The user; the settings that works change; temporary tables, channels, cursors, locks, statements prepared by SQL,
/// and whether a sequence was used.
pub(crate) const STATE: &str = "ARRAY[current_user, session_user, current_setting('TimeZone'), \
     coalesce(current_setting('app.tenant', true), ''), current_setting('search_path'), \
     (SELECT count(*)::text FROM pg_class WHERE relnamespace = pg_my_temp_schema()), \
     (SELECT count(*)::text FROM pg_listening_channels()), \
     (SELECT count(*)::text FROM pg_cursors WHERE is_holdable), \
     (SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), \
     (SELECT count(*)::text FROM pg_prepared_statements WHERE from_sql), \
     public.is_set()::text, current_setting('application_name')]::text[] AS state";

/// Whether the session has used a sequence.
pub(crate) const IS_SET: &str = "CREATE SEQUENCE numbers; \
     CREATE FUNCTION is_set() RETURNS boolean LANGUAGE plpgsql AS \
       $$ BEGIN PERFORM lastval(); RETURN true; EXCEPTION WHEN OTHERS THEN RETURN false; END $$;";

impl Session {
    /// Reads the session of this transaction.
    pub(crate) async fn of(transaction: &Transaction) -> Result<Self, DatabaseError> {
        let ms = |setting: &str| format!("(extract(epoch FROM current_setting('{setting}')::interval) * 1000)::bigint");
        let [lock, statement, idle] =
            ["lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"].map(ms);
        let query = format!(
            "SELECT pg_backend_pid() AS pid, pg_current_xact_id()::text::bigint AS transaction, {STATE}, \
             current_setting('transaction_isolation') AS isolation, \
             {lock} AS lock_ms, {statement} AS statement_ms, {idle} AS idle_ms"
        );
        let row = transaction.query(&query, &[]).await?.pop().expect("the query has a row");
        Ok(Self {
            pid: row.get("pid"),
            transaction: row.get("transaction"),
            state: row.get("state"),
            isolation: row.get("isolation"),
            lock_ms: row.get("lock_ms"),
            statement_ms: row.get("statement_ms"),
            idle_ms: row.get("idle_ms"),
        })
    }
}
