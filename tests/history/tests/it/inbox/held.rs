//! A transaction of neither owner that has inserted the row of a key.

use std::sync::Arc;
use std::time::Duration;

use harness::postgres::Client;
use harness::torture::tally::lock;
use history::monotonic_us;
use idempotent_sqs::Key;

use super::plan::Held;
use super::tally::{Message, Span};
use super::world::World;

/// Longest wait for a delivery that waits for the row.
const AWAITED: Duration = Duration::from_millis(600);

pub(crate) struct HeldRow {
    message: Message,
    from_us: u64,
    client: Option<Client>,
}

impl HeldRow {
    /// Inserts the row of this message, unless it exists.
    pub(crate) async fn insert(world: &Arc<World>, message: &Message, held: Held) -> Option<Self> {
        let (from_us, client) = (monotonic_us(), world.operator.session().await);
        let key = Key::new(&message.key).unwrap().stored().into_owned();
        client.batch_execute("BEGIN; SET LOCAL lock_timeout = 100").await.ok()?;
        let insert = "INSERT INTO idempotency_inbox VALUES ($1, $2, '', 0, 0)";
        client.execute(insert, &[&message.namespace, &key]).await.ok()?;
        let id: i64 = client.query_one("SELECT pg_current_xact_id()::text::bigint", &[]).await.ok()?.get(0);
        // Other deliveries may wait too.
        lock(&world.tally.held).push((message.clone(), Span { from_us, until_us: u64::MAX }));
        let message = message.clone();
        if held == Held::Kept {
            return Some(Self { message, from_us, client: Some(client) });
        }
        let shared = Arc::clone(world);
        let of_watcher = Self { message: message.clone(), from_us, client: Some(client) };
        world.watch(async move {
            if shared.operator.until_awaited(id, AWAITED).await && held == Held::Cancelled {
                let waiting = format!(
                    "SELECT pg_cancel_backend(pid) FROM pg_locks WHERE NOT granted AND transactionid = '{}'",
                    id % (1 << 32)
                );
                shared.operator.rows(&waiting).await;
            }
            of_watcher.release(&shared).await;
        });
        None
    }

    /// Rolls back.
    pub(crate) async fn release(mut self, world: &World) {
        if let Some(client) = self.client.take() {
            let _ = client.batch_execute("ROLLBACK").await;
        }
        let mut held = lock(&world.tally.held);
        let is_this = |(message, span): &&mut (Message, Span)| *message == self.message && span.from_us == self.from_us;
        if let Some((_, span)) = held.iter_mut().find(is_this) {
            span.until_us = monotonic_us();
        }
    }
}
