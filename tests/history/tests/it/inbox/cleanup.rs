//! Cleanups beside the owners, while other transactions hold expired rows and while deletions are slow.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::postgres::Base;
use harness::torture::tally::lock;
use harness::with;
use history::monotonic_us;
use idempotent_sqs_postgres::{Database, DatabaseSettings, Inbox, InboxSettings};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::kind::{INVOICES, PAYMENTS};
use super::tally::{Span, Took};
use super::world::World;

/// The name of its sessions.
pub(crate) const HOUSEKEEPER: &str = "housekeeper";

/// A cleanup deletes at most twice this number.
pub(crate) const CLEANUP_ONE_IN: u32 = 5;

/// Longest time of a cleanup that waits for nothing.
const QUICK: Duration = Duration::from_millis(700);

/// How long rows are locked.
const LOCKED: Duration = Duration::from_millis(1300);

#[derive(Debug)]
pub(crate) struct Housekeeper {
    inboxes: [Inbox<()>; 2],
    /// What the cleanups returned.
    pub(crate) deleted: Mutex<Vec<u64>>,
}

impl Housekeeper {
    pub(crate) fn of(base: &Base) -> Self {
        let url = format!("{}?application_name={HOUSEKEEPER}", base.url());
        let database = Database::new(&DatabaseSettings::new(url.parse().unwrap()));
        let inbox = |namespace| {
            let cleanup_one_in = NonZeroU32::new(CLEANUP_ONE_IN).unwrap();
            let settings = with!(InboxSettings::new(namespace), cleanup_one_in = cleanup_one_in);
            Inbox::new((), database.clone(), settings)
        };
        Self { inboxes: [PAYMENTS, INVOICES].map(inbox), deleted: Mutex::default() }
    }

    /// Deletes expired rows while another transaction holds the oldest ones. Others are deleted at once.
    pub(crate) async fn work_beside_a_lock(&self, world: &World) {
        let session = world.operator.session().await;
        let expired = "INSERT INTO idempotency_inbox \
             SELECT namespace, 'expired-' || clock_timestamp() || n, '', n, 1, '', \
               now() - interval '30 days' - n * interval '1 second' \
             FROM generate_series(1, 40) n, (VALUES ('payments'), ('invoices')) consumers (namespace)";
        let oldest = "BEGIN; SELECT FROM idempotency_inbox WHERE key LIKE 'expired-%' \
             ORDER BY done_at LIMIT 30 FOR UPDATE SKIP LOCKED";
        if session.batch_execute(expired).await.is_err() || session.batch_execute(oldest).await.is_err() {
            return;
        }
        let locked_us = monotonic_us();
        for inbox in &self.inboxes {
            let begun_us = monotonic_us();
            match inbox.delete_expired().await {
                Ok(deleted) => {
                    lock(&self.deleted).push(deleted);
                    let limit_us = u64::try_from(QUICK.as_micros()).unwrap();
                    let (what, until_us) = ("a cleanup beside a lock", monotonic_us());
                    lock(&world.tally.took).push(Took { what, from_us: begun_us, until_us, limit_us });
                }
                Err(error) => world.tally.fault(format!("cleanup: it failed beside a lock: {error:?}")),
            }
        }
        let held = Duration::from_micros(monotonic_us() - locked_us);
        if held > QUICK {
            sleep(LOCKED.saturating_sub(held)).await;
        }
        let _ = session.batch_execute("ROLLBACK").await;
    }
}

/// Makes the deletions of owners slow now and then, until the returned task is dropped. Works wait for them only
/// shortly.
pub(crate) fn delete_slowly(world: &Arc<World>) -> JoinSet<()> {
    let (world, mut tasks) = (Arc::clone(world), JoinSet::new());
    tasks.spawn(async move {
        loop {
            sleep(Duration::from_millis(900)).await;
            let from_us = monotonic_us();
            world.operator.execute("INSERT INTO slow_deletes VALUES (20)").await;
            sleep(Duration::from_millis(250)).await;
            // The server may be down.
            while !world.operator.execute("DELETE FROM slow_deletes").await {
                sleep(Duration::from_millis(10)).await;
            }
            lock(&world.tally.slow_deletes).push(Span::since(from_us));
        }
    });
    tasks
}
