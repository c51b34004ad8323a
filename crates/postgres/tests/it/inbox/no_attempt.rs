//! Errors that do not count as an attempt.

use super::*;
use std::num::NonZeroUsize;

use idempotent_sqs::sqs::{Batch, BatchSettings, KeySource};

/// SQLSTATEs of errors that are not the message's fault: contention, a server that stops or is overloaded, and a
/// statement that an operator cancels.
const NOT_ITS_OWN: [&str; 15] = [
    "08006", "25006", "40001", "40P01", "53100", "53200", "53300", "55P03", "57014", "57P01", "57P02", "57P03",
    "57P04", "58000", "58030",
];

fn raises(code: &str) -> String {
    format!("RAISE EXCEPTION 'as told' USING ERRCODE = '{code}'")
}

#[tokio::test]
async fn contention_and_an_unavailable_database_are_not_counted_and_cause_no_recovery() {
    let (base, idempotency) = (base().await, flushed());
    for code in NOT_ITS_OWN {
        let fails: &'static str = format!("DO $$ BEGIN {}; END $$", raises(code)).leak();
        let reason = unavailable(&run(&idempotency, &also(&base, fails)).await);
        assert!(reason.contains(code), "{reason}");
    }
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
    let report = run(&idempotency, &inbox(Pay::default(), database(&base.url()))).await;
    done(&report);
    assert_eq!((report.attempts, report.recovery), (Some(1), false));
}

/// Lets each row of `effects` fail the commit with this SQLSTATE.
async fn fail_commits(base: &Base, code: &str) {
    let late = format!(
        "CREATE OR REPLACE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; END $$; \
         DROP TRIGGER IF EXISTS late ON effects; CREATE CONSTRAINT TRIGGER late AFTER INSERT ON effects \
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()",
        raises(code)
    );
    base.client.batch_execute(&late).await.unwrap();
}

#[tokio::test]
async fn errors_that_are_not_counted_in_the_work_are_not_counted_at_the_commit() {
    let (base, idempotency) = (base().await, flushed());
    let inbox = inbox(Pay::default(), database(&base.url()));
    for code in ["40001", "40P01", "57014"] {
        fail_commits(&base, code).await;
        let reason = unavailable(&run(&idempotency, &inbox).await);
        assert!(reason.contains(code), "{reason}");
    }
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
    base.client.batch_execute("DROP TRIGGER late ON effects").await.unwrap();
    let report = run(&idempotency, &inbox).await;
    done(&report);
    assert_eq!((report.attempts, report.recovery), (Some(1), false));
}

#[tokio::test]
async fn a_session_that_is_terminated_during_the_work_is_not_counted() {
    let base = base().await;
    let (gate, idempotency) = (Arc::new(Gate::default()), flushed());
    let held = inbox(Pay { before: Some(gate.clone()), ..Pay::default() }, database(&base.url()));
    for _ in 0..7 {
        let (report, ()) = soon(async {
            tokio::join!(run(&idempotency, &held), async {
                gate.reached.notified().await;
                let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                           WHERE datname = current_database() AND state LIKE 'idle in %'";
                base.client.execute(end, &[]).await.unwrap();
                gate.open.notify_one();
            })
        })
        .await;
        unavailable(&report);
    }
    let report = run(&idempotency, &inbox(Pay::default(), database(&base.url()))).await;
    done(&report);
    assert_eq!((report.attempts, report.recovery), (Some(1), false));
}

#[tokio::test]
async fn a_statement_that_an_operator_cancels_is_not_counted() {
    let base = base().await;
    // Before it sleeps, a session that has only parsed the statement ignores the cancellation.
    let asleep = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep' \
                  AND query LIKE 'SELECT pg_sleep(600)%'";
    let (slow, idempotency) = (also(&base, "SELECT pg_sleep(600)"), flushed());
    let (report, ()) = soon(async {
        tokio::join!(run(&idempotency, &slow), async {
            until_count(&base, &format!("SELECT count(*) {asleep}"), 1).await;
            base.client.execute(&format!("SELECT pg_cancel_backend(pid) {asleep}"), &[]).await.unwrap();
        })
    })
    .await;
    let reason = unavailable(&report);
    assert!(reason.contains("57014"), "{reason}");
}

#[tokio::test]
async fn an_insert_of_the_row_that_an_operator_cancels_is_not_counted_and_no_conflict() {
    let base = base().await;
    base.client
        .batch_execute("BEGIN; INSERT INTO idempotency_inbox VALUES ('payments', 'pay_1', '', 1, 1, '')")
        .await
        .unwrap();
    let operator = connect(base.port, &base.name).await;
    let (inbox, idempotency) = (inbox(Pay::default(), database(&base.url())), flushed());
    let (report, ()) = soon(async {
        tokio::join!(run(&idempotency, &inbox), async {
            let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity \
                          WHERE datname = current_database() AND wait_event_type = 'Lock'";
            until(|| async { operator.query_one(cancel, &[]).await.unwrap().get::<_, i64>(0) == 1 }).await;
        })
    })
    .await;
    let reason = unavailable(&report);
    assert!(reason.contains("57014"), "{reason}");
}

#[tokio::test]
async fn of_two_works_in_a_deadlock_one_is_done_and_the_other_is_not_counted() {
    let base = base().await;
    base.client.batch_execute("INSERT INTO effects VALUES ('a', 0), ('b', 0)").await.unwrap();
    let (first_gate, second_gate) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let work =
        |locks: [&'static str; 2], gate: &Arc<Gate>| inbox(Locks { locks, gate: gate.clone() }, database(&base.url()));
    let (first, second) = (work(["a", "b"], &first_gate), work(["b", "a"], &second_gate));
    let (one, other) = (flushed(), flushed());
    let reports = soon(async {
        let (first, second, ()) =
            tokio::join!(deliver(&one, &first, "first"), deliver(&other, &second, "second"), async {
                tokio::join!(first_gate.reached.notified(), second_gate.reached.notified());
                first_gate.open.notify_one();
                second_gate.open.notify_one();
            });
        [first, second]
    })
    .await;
    let (done, failed): (Vec<_>, Vec<_>) =
        reports.iter().partition(|report| matches!(report.outcome, Outcome::Done { .. }));
    assert_eq!((done.len(), failed.len()), (1, 1), "{reports:?}");
    let reason = unavailable(failed[0]);
    assert!(reason.contains("40P01"), "{reason}");
}

/// Locks one row, waits, and locks another one.
struct Locks {
    locks: [&'static str; 2],
    gate: Arc<Gate>,
}

impl TransactionalWork<Message> for Locks {
    async fn run(&self, transaction: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        let lock = "UPDATE effects SET fence = fence + 1 WHERE key = $1";
        transaction.execute(lock, &[&self.locks[0]]).await?;
        self.gate.pass().await;
        transaction.execute(lock, &[&self.locks[1]]).await?;
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_lock_wait_in_the_work_ends_after_the_timeout_of_the_settings() {
    let base = base().await;
    for statement in ["INSERT INTO effects VALUES ('a', 0)", "BEGIN", "UPDATE effects SET fence = 1"] {
        base.client.batch_execute(statement).await.unwrap();
    }
    let mut short = database_settings(&base.url());
    short.timeout = Duration::from_millis(200);
    let work = Pay { also: Some("UPDATE effects SET fence = 2 WHERE key = 'a'"), ..Pay::default() };
    let reason = unavailable(&soon(run(&flushed(), &inbox(work, Database::new(&short)))).await);
    assert!(reason.contains("55P03"), "{reason}");
}

#[tokio::test]
async fn a_statement_whose_table_has_changed_is_prepared_again_and_the_attempt_is_not_counted() {
    let base = base().await;
    let inbox = also(&base, "SELECT * FROM effects");
    done(&deliver(&flushed(), &inbox, "before").await);
    base.client.batch_execute("ALTER TABLE effects ADD note text").await.unwrap();
    let idempotency = flushed();
    let reason = unavailable(&run(&idempotency, &inbox).await);
    assert!(reason.contains("prepared again"), "{reason}");
    let report = run(&idempotency, &inbox).await;
    done(&report);
    assert_eq!(report.attempts, Some(1));
}

#[tokio::test]
async fn a_lock_on_the_table_of_the_inbox_is_not_counted_and_leaves_no_statement_that_waits() {
    let base = base().await;
    let short = with!(database_settings(&base.url()), timeout = Duration::from_millis(200));
    let locks = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND wait_event_type = 'Lock'";
    // The statements of the inbox are prepared already, or are to be.
    for is_prepared in [true, false] {
        let (inbox, idempotency) = (inbox(Pay::default(), Database::new(&short)), flushed());
        if is_prepared {
            done(&deliver(&idempotency, &inbox, "before").await);
        }
        base.client.batch_execute("BEGIN; LOCK TABLE idempotency_inbox IN SHARE MODE").await.unwrap();
        let reason = unavailable(&soon(run(&idempotency, &inbox)).await);
        assert!(reason.contains("55P03"), "{reason}");
        assert_eq!(base.count(locks).await, 0);
        base.client.batch_execute("COMMIT").await.unwrap();
        let report = run(&idempotency, &inbox).await;
        assert!(matches!(report.outcome, Outcome::Done { .. } | Outcome::Duplicate { .. }), "{report:?}");
        assert_eq!((report.attempts, report.recovery), (Some(1), false));
    }
}

/// A store in which the first of two messages has failed permanently.
async fn after_a_failure(base: &Base) -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::default());
    let refuses = Pay { fails: Some(|| WorkError::permanent("no such account")), ..Pay::default() };
    run_messages(&store, inbox(refuses, database(&base.url())), &["first"]).await;
    store
}

/// Runs these messages, one at a time, and returns their reasons.
async fn run_messages(store: &Arc<MemoryStore>, inbox: Inbox<Pay>, ids: &[&str]) -> Vec<String> {
    let settings = with!(BatchSettings::default(), keys = vec![KeySource::MessageId], concurrency = NonZeroUsize::MIN);
    let messages: Vec<_> = ids.iter().map(|id| Message::new(*id, "{}")).collect();
    let batch = Batch::new(on(Arc::clone(store)), inbox, settings);
    let reports = batch.run(&messages, Deadline::within(TIME)).await.unwrap();
    reports.into_iter().map(|report| report.reason.into_owned()).collect()
}

#[tokio::test]
async fn a_locked_row_of_a_failed_message_does_not_hold_up_the_other_messages_of_its_batch() {
    let base = base().await;
    let store = after_a_failure(&base).await;
    let lock = "BEGIN; INSERT INTO idempotency_inbox VALUES ('payments', 'first', '', 1, 1)";
    base.client.batch_execute(lock).await.unwrap();
    let short = with!(database_settings(&base.url()), timeout = Duration::from_millis(200));
    let reasons = run_messages(&store, inbox(Pay::default(), Database::new(&short)), &["first", "second"]).await;
    assert!(reasons[0].contains("55P03"), "{reasons:?}");
    assert_eq!(reasons[1], "done", "{reasons:?}");
}

#[tokio::test]
async fn a_failed_message_without_a_connection_does_not_hold_up_the_other_messages_of_its_batch() {
    let base = base().await;
    let user = format!("limited_{}", base.name);
    let limit =
        format!("CREATE ROLE {user} LOGIN CONNECTION LIMIT 0; GRANT ALL ON idempotency_inbox, effects TO {user}");
    base.client.batch_execute(&limit).await.unwrap();
    let store = after_a_failure(&base).await;
    let limited = database(&base.url().replace("app@", &format!("{user}@")));
    let reasons = run_messages(&store, inbox(Pay::default(), limited), &["first", "second"]).await;
    // Each has tried.
    assert!(reasons.iter().all(|reason| reason.contains("53300")), "{reasons:?}");
}
