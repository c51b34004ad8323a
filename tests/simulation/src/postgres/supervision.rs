//! Executes a statement, which timeouts, operators and the end of the stream may end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::connection::Connection;
use super::error::{Result, SqlError};
use super::execution::{Core, forever};
use super::session::{terminated, transaction_timeout};
use super::sql::eval::Surroundings;
use super::sql::plan::Statement;
use super::sql::run::Run;
use super::sql::write::Outcome;
use super::value::Value;
use crate::lock;

impl Core {
    /// Executes a statement, which timeouts and operators may end.
    pub(super) async fn supervise(
        &mut self,
        statement: &Statement,
        parameters: &[Value],
        hangs: bool,
        connection: &mut Connection,
    ) -> Result<Outcome> {
        let began = Instant::now();
        let deadline = self.settings.timeout("statement_timeout").map(|timeout| began + timeout);
        let (transaction_ends, signals) = (self.transaction_ends, Arc::clone(&self.signals));
        let check_interval = self.settings.timeout("client_connection_check_interval");
        let until = |time: Option<Instant>| async move {
            match time {
                Some(time) => sleep_until(time).await,
                None => forever().await,
            }
        };
        lock(&self.server.shared).tables.running += 1;
        let outcome = tokio::select! {
            biased;
            outcome = self.execute_sql(statement, parameters), if !hangs => outcome,
            () = signals.end.notified() => Err(terminated()),
            () = signals.cancel.notified() => Err(canceled("canceling statement due to user request")),
            () = until(transaction_ends) => Err(transaction_timeout()),
            () = until(deadline) => Err(canceled("canceling statement due to statement timeout")),
            () = connection.gone(check_interval) => Err(SqlError::fatal("08006", "connection to client lost")),
        };
        let mut shared = lock(&self.server.shared);
        shared.tables.running = shared.tables.running.saturating_sub(1);
        let context = shared.end_wait(self.pid);
        outcome.map_err(|error| SqlError { context, ..error })
    }

    async fn execute_sql(&mut self, statement: &Statement, parameters: &[Value]) -> Result<Outcome> {
        let Some(transaction) = &mut self.transaction else {
            return Err(SqlError::fatal("XX000", "there is no transaction"));
        };
        if let Some(kind) = statement.writes
            && transaction.is_read_only
        {
            let message = format!("cannot execute {kind} in a read-only transaction");
            return Err(SqlError::new("25006", message).by("PreventCommandIfReadOnly"));
        }
        transaction.command += 1;
        let (surroundings, snapshot, now_us) = {
            let mut shared = lock(&self.server.shared);
            if statement.needs_xid {
                transaction.xid(&mut shared.tables);
            }
            let surroundings = Surroundings {
                transaction_us: transaction.began_us,
                statement_us: shared.now_us(),
                pid: self.pid,
                user: self.user.clone(),
                database: self.database.clone(),
                version: shared.version.clone(),
                settings: self.settings.clone(),
                activity: shared.activity(),
                prepared: self
                    .prepared
                    .iter()
                    // A pooler has names of its own.
                    .map(|(name, of)| [if shared.is_pooled { "PGBOUNCER_1" } else { name }, &of.parsed.text])
                    .map(|row| row.map(Value::text).into())
                    .collect(),
                sleeps_us: AtomicU64::new(0),
                advisory_locks: self.advisory_locks.into(),
            };
            (surroundings, shared.tables.snapshot(transaction.xid, transaction.command), shared.now_us())
        };
        let mut run = Run {
            shared: &self.server.shared,
            transaction,
            surroundings: &surroundings,
            parameters,
            snapshot,
            now_us,
            lock_timeout: self.settings.timeout("lock_timeout"),
            with: Vec::new(),
        };
        let outcome = run.execute(statement).await;
        // They are not released by a rollback.
        self.advisory_locks = surroundings.advisory_locks.load(Ordering::Relaxed);
        let outcome = outcome?;
        let sleeps = Duration::from_micros(surroundings.sleeps_us.load(Ordering::Relaxed));
        if !sleeps.is_zero() {
            sleep(sleeps).await;
        }
        Ok(outcome)
    }
}

fn canceled(message: &str) -> SqlError {
    SqlError::new("57014", message).by("ProcessInterrupts")
}
