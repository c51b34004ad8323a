//! The BEGIN of a transaction, and the question whether the transaction still exists.

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::connection::Connection;
use super::error::has_sqlstate;
use super::{DatabaseError, MARGIN, before};
use crate::sqlstate;

/// The largest timeout of PostgreSQL, in milliseconds.
const MAX_MS: u64 = 2_147_483_647;

/// The BEGIN, with the timeouts by which the server itself ends the transaction. A timeout of 0 would disable it.
pub(super) fn begin_statement(connection: &Connection, lock_timeout: Duration, ends: Instant) -> String {
    let ms = |time: Duration| u64::try_from(time.as_millis()).map_or(MAX_MS, |ms| ms.clamp(1, MAX_MS));
    let now = Instant::now();
    let left = ms(ends.saturating_duration_since(now));
    let lock = ms(lock_timeout.min(before(ends, 2 * MARGIN).saturating_duration_since(now)));
    let transaction_timeout = if connection.has_transaction_timeout {
        format!("; SET LOCAL transaction_timeout = {left}")
    } else {
        String::new()
    };
    // With `client_connection_check_interval` the server detects a disconnected client during a statement. The
    // last setting shows whether a statement is executed within this transaction.
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {lock}; SET LOCAL statement_timeout = {left}; \
         SET LOCAL idle_in_transaction_session_timeout = {left}; SET LOCAL client_connection_check_interval = \
         {lock}{transaction_timeout}; SET LOCAL idempotent_sqs.begun = 'yes'"
    )
}

/// Whether the transaction that [`begin_statement`] began has ended. `None` if the server refuses to say so. If the session
/// has ended, it is not known either, and counts as not ended.
pub(super) async fn has_ended(client: &Client) -> Option<bool> {
    match client.simple_query("SELECT current_setting('idempotent_sqs.begun', true)").await {
        Ok(replies) => Some(!replies.iter().any(is_yes)),
        Err(error) => {
            // In an aborted transaction this query fails too, so the transaction still exists. Another error of the
            // server says nothing, such as that of a cancelled query.
            let is_aborted = has_sqlstate(&error, sqlstate::IN_FAILED_SQL_TRANSACTION);
            (is_aborted || DatabaseError::from(error).is_of_the_connection()).then_some(false)
        }
    }
}

fn is_yes(reply: &SimpleQueryMessage) -> bool {
    matches!(reply, SimpleQueryMessage::Row(row) if row.get(0) == Some("yes"))
}
