//! What an operator does in the database: a transaction of another program that holds a row, and the faults of all.

use std::sync::Arc;
use std::time::Duration;

use history::Rng;
use tokio::time::{Instant, sleep};

use super::caller::fingerprint;
use super::world::{Disturbance, Fault, World};
use crate::lock;
use crate::postgres::session;

/// The fence of rows that the operator has written.
pub const FENCE: i64 = 7;

/// A row that a transaction of the operator holds.
pub struct HeldRow {
    pub consumer: &'static str,
    pub key: String,
    pub payload: u64,
    pub lasts: Duration,
    pub commits: bool,
}

/// The host of the operator, whose way to the server is not disturbed.
pub const OPERATOR: &str = "operator";

/// The result of its rows.
pub fn result(key: &str) -> Vec<u8> {
    format!("{key} by the operator").into_bytes()
}

impl HeldRow {
    /// Holds the row, and then ends the transaction.
    pub async fn hold(self, world: Arc<World>) {
        let Some(session) = session(OPERATOR).await else { return };
        let insert = "INSERT INTO idempotency_inbox (namespace, key, fingerprint, fence, attempts, result) \
                      VALUES ($1, $2, $3, $4, 1, $5)";
        let fingerprint = fingerprint(self.payload);
        let from = Instant::now();
        let held = async {
            session.batch_execute("BEGIN").await?;
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&self.consumer, &self.key, &fingerprint.as_bytes().as_slice(), &FENCE, &result(&self.key)];
            session.execute(insert, &parameters).await?;
            sleep(self.lasts).await;
            session.batch_execute(if self.commits { "COMMIT" } else { "ROLLBACK" }).await
        };
        // The row may exist already.
        let _held: Result<(), tokio_postgres::Error> = held.await;
        lock(&world.held).push((self.consumer, self.key, from, Instant::now()));
    }
}

/// Disturbs all callers, again and again.
pub async fn disturb(world: Arc<World>, mut rng: Rng) {
    for number in 0_u64.. {
        sleep(rng.ms(500..4000)).await;
        let server = &world.server;
        let (fault, lasts) = match rng.draw(0..6) {
            0 | 1 => (Fault::Down, rng.ms(1..900)),
            2 => (Fault::Down, Duration::ZERO),
            3 => (Fault::Cancelled, Duration::ZERO),
            4 => (Fault::ReadOnly, rng.ms(1..400)),
            _ => (Fault::Password, Duration::ZERO),
        };
        let from = Instant::now();
        lock(&world.disturbances).push(Disturbance { fault, from, until: from + lasts });
        match fault {
            Fault::Down if lasts.is_zero() => server.end_sessions(),
            Fault::Down => {
                server.stop();
                sleep(lasts).await;
                server.listen();
            }
            Fault::Cancelled => server.cancel_statements(),
            Fault::ReadOnly => {
                server.set_read_only(true);
                sleep(lasts).await;
                server.set_read_only(false);
            }
            Fault::Password => world.passwords.replace(&format!("password {number}")),
        }
    }
}
