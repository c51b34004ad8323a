//! The operator of the database: a session by which a run sees, and disturbs, the transactions of the owners.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::postgres::{Client, connect};
use harness::torture::tally::lock;
use idempotent_sqs_postgres::database::Row;
use tokio::sync::RwLock;
use tokio::time::{Instant, sleep};

/// Longest wait for something that another process does.
const PATIENCE: Duration = Duration::from_millis(1500);

#[derive(Debug)]
pub(crate) struct Operator {
    port: u16,
    database: String,
    client: Mutex<Arc<Client>>,
    /// Written while the server is restarted. No session is opened meanwhile.
    is_up: RwLock<()>,
}

impl Operator {
    pub(crate) async fn of(port: u16, database: &str) -> Self {
        let client = Mutex::new(Arc::new(connect(port, database).await));
        Self { port, database: database.to_owned(), client, is_up: RwLock::default() }
    }

    /// A further session.
    pub(crate) async fn session(&self) -> Client {
        let _is_up = self.is_up.read().await;
        connect(self.port, &self.database).await
    }

    /// Restarts the server.
    pub(crate) async fn restart(&self, restart: impl Future<Output = ()>) {
        let is_up = self.is_up.write().await;
        restart.await;
        drop(is_up);
        self.reconnect().await;
    }

    /// Replaces its session.
    pub(crate) async fn reconnect(&self) {
        let client = self.session().await;
        *lock(&self.client) = Arc::new(client);
    }

    /// The rows of a query. Empty while the server is down.
    pub(crate) async fn rows(&self, query: &str) -> Vec<Row> {
        let client = Arc::clone(&lock(&self.client));
        client.query_typed(query, &[]).await.unwrap_or_default()
    }

    /// Executes a statement. Returns whether it succeeded.
    pub(crate) async fn execute(&self, statements: &str) -> bool {
        let client = Arc::clone(&lock(&self.client));
        client.batch_execute(statements).await.is_ok()
    }

    /// Waits until the query has a row whose first column is true. Returns whether that is so in time.
    pub(crate) async fn until(&self, query: &str, limit: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            if self.rows(query).await.first().is_some_and(|row| row.get::<_, Option<bool>>(0) == Some(true)) {
                return true;
            }
            sleep(Duration::from_millis(4)).await;
        }
        false
    }

    /// Waits until this transaction is committed.
    pub(crate) async fn until_committed(&self, transaction: i64) -> bool {
        self.until(&format!("SELECT pg_xact_status('{transaction}') = 'committed'"), PATIENCE).await
    }

    /// Waits until this transaction is committed or rolled back.
    pub(crate) async fn until_over(&self, transaction: i64, limit: Duration) -> bool {
        self.until(&format!("SELECT pg_xact_status('{transaction}') <> 'in progress'"), limit).await
    }

    /// Waits until this session sleeps in a statement.
    pub(crate) async fn until_asleep(&self, pid: i32) -> bool {
        let asleep = format!("SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = {pid}");
        self.until(&asleep, PATIENCE).await
    }

    /// Waits until another session waits for this transaction.
    pub(crate) async fn until_awaited(&self, transaction: i64, limit: Duration) -> bool {
        let awaited = format!(
            "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND transactionid = '{}'",
            transaction % (1 << 32)
        );
        self.until(&awaited, limit).await
    }
}
