//! Permanent failures, and their records by `TransactionalWork::refused`.

use super::*;
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};
use std::sync::Mutex;

#[tokio::test]
async fn a_permanent_failure_is_recorded_although_the_work_is_rolled_back() {
    let base = base().await;
    base.client.batch_execute("CREATE TABLE refusals (key text NOT NULL, why text NOT NULL)").await.unwrap();
    let inbox = inbox(Refuses::default(), database(&base.url()));
    let idempotency = flushed();
    assert_eq!(failure(&run(&idempotency, &inbox).await).0, PERMANENT);
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
    let noted = base.client.query_one("SELECT key, why FROM refusals", &[]).await.unwrap();
    assert_eq!((noted.get(0), noted.get(1)), ("pay_1", "no such account"));
}

#[tokio::test]
async fn a_permanent_failure_is_recorded_although_the_key_has_an_expired_row() {
    let base = base().await;
    base.client.batch_execute("CREATE TABLE refusals (key text NOT NULL, why text NOT NULL)").await.unwrap();
    done(&run(&flushed(), &inbox(Pay::default(), database(&base.url()))).await);
    base.client.batch_execute("UPDATE idempotency_inbox SET done_at = now() - interval '29 days'").await.unwrap();
    let inbox = inbox(Refuses::default(), database(&base.url()));
    assert_eq!(failure(&run(&flushed(), &inbox).await).0, PERMANENT);
    assert_eq!(base.count("SELECT count(*) FROM refusals").await, 1);
}

#[tokio::test]
async fn a_permanent_failure_is_final_only_when_it_is_recorded() {
    let base = base().await;
    let inbox = inbox(Refuses::default(), database(&base.url()));
    let idempotency = flushed();
    // The table for failures is missing.
    assert_eq!(failure(&run(&idempotency, &inbox).await).0, CLEAN);
    base.client.batch_execute("CREATE TABLE refusals (key text NOT NULL, why text NOT NULL)").await.unwrap();
    assert_eq!(failure(&run(&idempotency, &inbox).await).0, PERMANENT);
    assert_eq!(base.count("SELECT count(*) FROM refusals").await, 1);
    assert_eq!(inbox_runs(&inbox), 2);
}

#[tokio::test]
async fn a_deferred_constraint_that_fails_the_commit_is_a_permanent_failure_and_recorded() {
    let base = base().await;
    let deferred = "CREATE TABLE accounts (key text PRIMARY KEY); \
                    ALTER TABLE effects ADD CONSTRAINT of_an_account FOREIGN KEY (key) REFERENCES accounts \
                    DEFERRABLE INITIALLY DEFERRED; CREATE TABLE refusals (key text NOT NULL, why text NOT NULL)";
    base.client.batch_execute(deferred).await.unwrap();
    let inbox = inbox(Refuses { fails: None, ..Refuses::default() }, database(&base.url()));
    let (kind, reason) = failure(&run(&flushed(), &inbox).await);
    assert_eq!(kind, PERMANENT);
    assert!(reason.contains("23503") && reason.contains("of_an_account"), "{reason}");
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
    let noted = base.client.query_one("SELECT key, why FROM refusals", &[]).await.unwrap();
    assert_eq!((noted.get(0), noted.get::<_, &str>(1)), ("pay_1", &*reason));
}

#[tokio::test]
async fn a_failure_that_cannot_be_recorded_leaves_the_message_for_another_attempt() {
    let base = base().await;
    let never = "CREATE TABLE refusals (key text NOT NULL, why text NOT NULL CHECK (why = 'never'))";
    base.client.batch_execute(never).await.unwrap();
    let (kind, reason) = failure(&run(&flushed(), &inbox(Refuses::default(), database(&base.url()))).await);
    assert_eq!(kind, CLEAN);
    assert!(reason.contains("23514"), "{reason}");
}

#[tokio::test]
async fn a_failure_that_cannot_be_recorded_now_is_not_counted() {
    let base = base().await;
    let unrecorded = Refuses { unrecorded: Some(|| WorkError::unavailable("no audit log")), ..Refuses::default() };
    assert_eq!(unavailable(&run(&flushed(), &inbox(unrecorded, database(&base.url()))).await), "no audit log");
}

#[tokio::test]
async fn a_work_that_another_owner_does_before_its_failure_is_recorded_is_a_duplicate() {
    let base = base().await;
    let mut settings = database_settings(&base.url());
    settings.connections = std::num::NonZeroUsize::MIN;
    let (one_connection, gates) = (Database::new(&settings), [Arc::new(Gate::default()), Arc::new(Gate::default())]);
    let held = |gate: &Arc<Gate>, fails| Pay { after: Some(gate.clone()), fails, ..Pay::default() };
    let refuses = inbox(held(&gates[0], Some(|| WorkError::permanent("no such account"))), one_connection.clone());
    // Gets the connection next, so that the recording of the failure waits for it.
    let delays = inbox(held(&gates[1], None), one_connection);
    let quick = inbox(Pay::default(), database(&base.url()));
    let stores = [flushed(), flushed(), flushed()];
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let (report, ()) = soon(Box::pin(async {
        tokio::join!(run(&stores[0], &refuses), async {
            gates[0].reached.notified().await;
            let (delaying, ()) = tokio::join!(deliver(&stores[1], &delays, "pay_2"), async {
                let (other, ()) = tokio::join!(run(&stores[2], &quick), async {
                    until_count(&base, waiting, 1).await;
                    gates[0].open.notify_one();
                });
                done(&other);
                gates[1].open.notify_one();
            });
            done(&delaying);
        })
    }))
    .await;
    assert_eq!(duplicate(&report), b"receipt of pay_1");
}

#[tokio::test]
async fn a_failure_that_the_store_cannot_record_is_recorded_again_by_the_next_delivery() {
    let base = base().await;
    base.client.batch_execute("CREATE TABLE refusals (key text NOT NULL, why text NOT NULL)").await.unwrap();
    let inbox = inbox(Refuses::default(), database(&base.url()));
    let store = FaultyStore::new(MemoryStore::default());
    let idempotency = on(&store);
    store.always(StoreCall::Settle, Some(Fault::Refused));
    let short = || delivery("pay_1").deadline(Deadline::within(SECOND));
    let first = idempotency.run(&short(), &inbox, &Message::default()).await.unwrap();
    assert!(matches!(first.outcome, Outcome::Unsettled { .. }), "{first:?}");
    store.always(StoreCall::Settle, None);
    // Until the lease has ended.
    tokio::time::sleep(3 * SECOND).await;
    assert!(failure(&run(&idempotency, &inbox).await).0.permanent);
    assert_eq!(base.count("SELECT count(*) FROM refusals").await, 2);
}

fn inbox_runs(inbox: &Inbox<Refuses>) -> usize {
    inbox.work().runs.lock().unwrap().len()
}

#[tokio::test]
async fn a_permanent_failure_is_not_final_if_record_failure_executes_rollback() {
    let base = base().await;
    base.client.batch_execute("CREATE TABLE refusals (key text NOT NULL, why text NOT NULL)").await.unwrap();
    let refuses = Refuses { also: Some("ROLLBACK"), ..Refuses::default() };
    let report = run(&flushed(), &inbox(refuses, database(&base.url()))).await;
    assert!(!failure(&report).0.permanent, "{report:?}");
    assert_eq!(base.count("SELECT count(*) FROM refusals").await, 0);
}

/// Takes effect, then fails permanently, unless its commit is to fail. Records the failure.
struct Refuses {
    runs: Mutex<Vec<u64>>,
    fails: Option<fn() -> WorkError>,
    /// Why the failure cannot be recorded.
    unrecorded: Option<fn() -> WorkError>,
    /// A statement that it executes after that.
    also: Option<&'static str>,
}

impl Default for Refuses {
    fn default() -> Self {
        let fails: fn() -> WorkError = || WorkError::permanent("no such account");
        Self { runs: Mutex::default(), fails: Some(fails), unrecorded: None, also: None }
    }
}

impl TransactionalWork<Message> for Refuses {
    async fn run(&self, transaction: &Transaction, claim: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        self.runs.lock().unwrap().push(claim.fence().0);
        transaction.execute("INSERT INTO effects VALUES ('undone', 0)", &[]).await?;
        self.fails.map_or(Ok(Vec::new()), |fails| Err(fails()))
    }

    async fn record_failure(
        &self,
        transaction: &Transaction,
        claim: &Claim,
        _: &Message,
        why: &WorkError,
    ) -> Result<(), WorkError> {
        if let Some(unrecorded) = self.unrecorded {
            return Err(unrecorded());
        }
        let note = "INSERT INTO refusals VALUES ($1, $2)";
        transaction.execute(note, &[&claim.key().as_str(), &why.to_string()]).await?;
        if let Some(also) = self.also {
            transaction.execute(also, &[]).await?;
        }
        Ok(())
    }
}
