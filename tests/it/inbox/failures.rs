use std::sync::Mutex;

use idempotent_sqs::record::{Failure, MessageTag, Owner};
use idempotent_sqs::store::{Acquire, Attempt};
use idempotent_sqs::work::WorkErrorKind;

use super::*;
use crate::support::postgres::{database, until_count};
use crate::support::soon;

const CLEAN: Failure = Failure { uncertain: false, permanent: false };
const FOR_GOOD: Failure = Failure { uncertain: false, permanent: true };

fn failure(report: &Report) -> (Failure, String) {
    match &report.outcome {
        Outcome::WorkFailed { failure, error } => (*failure, error.to_string()),
        other => panic!("{other:?}"),
    }
}

/// A work whose last statement is this one.
fn also(base: &Base, statement: &'static str) -> Inbox<Pay> {
    inbox(Pay { also: Some(statement), ..Pay::default() }, database(&base.url()))
}

#[tokio::test]
async fn a_failed_work_leaves_neither_an_effect_nor_a_row() {
    let base = base().await;
    let failures: [(fn() -> WorkError, Failure); 3] = [
        (|| WorkError::retryable("not now"), CLEAN),
        (|| WorkError::permanent("no such account"), FOR_GOOD),
        (|| WorkError::uncertain("no answer from elsewhere"), Failure { uncertain: true, permanent: false }),
    ];
    for (fails, expected) in failures {
        let inbox = inbox(Pay { fails: Some(fails), ..Pay::default() }, database(&base.url()));
        assert_eq!(failure(&run(&flushed(), &inbox).await).0, expected);
        assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
    }
    done(&run(&flushed(), &inbox(Pay::default(), database(&base.url()))).await);
}

#[tokio::test]
async fn a_panic_and_a_work_that_is_cut_off_leave_nothing_either() {
    let base = base().await;
    let panics = Pay { fails: Some(|| panic!("as told")), ..Pay::default() };
    let hangs = Pay { after: Some(Arc::default()), ..Pay::default() };
    let short = delivery("pay_1").deadline(Deadline::within(SECOND));
    for work in [panics, hangs] {
        let inbox = inbox(work, database(&base.url()));
        let report = flushed().run(&short, &inbox, &Message::default()).await.unwrap();
        assert!(failure(&report).0.uncertain);
        let open =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in %'";
        until_count(&base, open, 0).await;
        assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
    }
}

#[tokio::test]
async fn wrong_data_and_violated_constraints_are_for_good_and_do_not_quote_values() {
    let base = base().await;
    base.client.batch_execute("ALTER TABLE effects ADD CONSTRAINT no_fees CHECK (key NOT LIKE 'fee%')").await.unwrap();
    let report = run(&flushed(), &also(&base, "INSERT INTO effects VALUES ('fee of 4711', 1)")).await;
    let (kind, reason) = failure(&report);
    assert_eq!(kind, FOR_GOOD);
    assert!(reason.contains("23514") && reason.contains("no_fees") && !reason.contains("4711"), "{reason}");
    let (kind, reason) = failure(&run(&flushed(), &also(&base, "SELECT 'card 4711'::text::integer")).await);
    assert_eq!(kind, FOR_GOOD);
    assert!(reason.contains("22P02") && !reason.contains("4711"), "{reason}");
}

#[tokio::test]
async fn a_serialization_failure_is_a_clean_retry() {
    let base = base().await;
    let fails = "DO $$ BEGIN RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001'; END $$";
    let (kind, reason) = failure(&run(&flushed(), &also(&base, fails)).await);
    assert_eq!(kind, CLEAN);
    assert!(reason.contains("40001"), "{reason}");
    // It may show only when the commit is asked for.
    base.client
        .batch_execute(
            "CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'late' USING ERRCODE \
             = '40001'; END $$; CREATE CONSTRAINT TRIGGER late AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION late()",
        )
        .await
        .unwrap();
    let (kind, reason) = failure(&run(&flushed(), &inbox(Pay::default(), database(&base.url()))).await);
    assert_eq!(kind, CLEAN, "{reason}");
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
}

#[tokio::test]
async fn of_two_in_a_deadlock_one_is_done_and_the_other_retried_clean() {
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
    let (kind, reason) = failure(failed[0]);
    assert_eq!(kind, CLEAN);
    assert!(reason.contains("40P01"), "{reason}");
}

/// Locks one row, waits, and locks another.
struct Locks {
    locks: [&'static str; 2],
    gate: Arc<Gate>,
}

impl TransactionalWork for Locks {
    async fn run(&self, transaction: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        let lock = "UPDATE effects SET fence = fence + 1 WHERE key = $1";
        transaction.execute(lock, &[&self.locks[0]]).await?;
        self.gate.pass().await;
        transaction.execute(lock, &[&self.locks[1]]).await?;
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_lock_within_the_work_is_waited_for_no_longer_than_the_settings_say() {
    let base = base().await;
    for statement in ["INSERT INTO effects VALUES ('a', 0)", "BEGIN", "UPDATE effects SET fence = 1"] {
        base.client.batch_execute(statement).await.unwrap();
    }
    let mut short = crate::support::postgres::settings(&base.url());
    short.timeout = Duration::from_millis(200);
    let work = Pay { also: Some("UPDATE effects SET fence = 2 WHERE key = 'a'"), ..Pay::default() };
    let (kind, reason) = failure(&soon(run(&flushed(), &inbox(work, Database::new(&short)))).await);
    assert_eq!(kind, CLEAN);
    assert!(reason.contains("55P03"), "{reason}");
}

#[tokio::test]
async fn the_server_ends_a_statement_at_the_deadline() {
    let base = base().await;
    let inbox = also(&base, "SELECT pg_sleep(600)");
    let short = delivery("pay_1").deadline(Deadline::within(2 * SECOND));
    let report = soon(flushed().run(&short, &inbox, &Message::default())).await.unwrap();
    assert!(matches!(report.outcome, Outcome::WorkFailed { .. }), "{report:?}");
    let asleep =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_sleep(600)'";
    until_count(&base, asleep, 0).await;
}

#[tokio::test]
async fn a_refusal_is_noted_although_the_work_is_undone() {
    let base = base().await;
    base.client.batch_execute("CREATE TABLE refusals (key text NOT NULL, why text NOT NULL)").await.unwrap();
    let inbox = inbox(Refuses::default(), database(&base.url()));
    let idempotency = flushed();
    assert_eq!(failure(&run(&idempotency, &inbox).await).0, FOR_GOOD);
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
    let noted = base.client.query_one("SELECT key, why FROM refusals", &[]).await.unwrap();
    assert_eq!((noted.get(0), noted.get(1)), ("pay_1", "no such account"));
}

#[tokio::test]
async fn a_failure_is_not_final_before_it_is_noted() {
    let base = base().await;
    let inbox = inbox(Refuses::default(), database(&base.url()));
    let idempotency = flushed();
    // There is no table to note it in.
    assert_eq!(failure(&run(&idempotency, &inbox).await).0, CLEAN);
    base.client.batch_execute("CREATE TABLE refusals (key text NOT NULL, why text NOT NULL)").await.unwrap();
    assert_eq!(failure(&run(&idempotency, &inbox).await).0, FOR_GOOD);
    assert_eq!(base.count("SELECT count(*) FROM refusals").await, 1);
    assert_eq!(inbox_runs(&inbox), 2);
}

fn inbox_runs(inbox: &Inbox<Refuses>) -> usize {
    inbox.work().0.lock().unwrap().len()
}

/// Has an effect, refuses after all, and notes why.
#[derive(Default)]
struct Refuses(Mutex<Vec<u64>>);

impl TransactionalWork for Refuses {
    async fn run(&self, transaction: &Transaction, claim: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        self.0.lock().unwrap().push(claim.fence().0);
        transaction.execute("INSERT INTO effects VALUES ('undone', 0)", &[]).await?;
        Err(WorkError::permanent("no such account"))
    }

    async fn refused(
        &self,
        transaction: &Transaction,
        claim: &Claim,
        _: &Message,
        why: &WorkError,
    ) -> Result<(), WorkError> {
        let note = "INSERT INTO refusals VALUES ($1, $2)";
        transaction.execute(note, &[&claim.key().as_str(), &why.to_string()]).await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_work_that_ends_its_transaction_by_itself_is_found_out() {
    for end in ["ROLLBACK", "COMMIT"] {
        let base = base().await;
        let (kind, reason) = failure(&run(&flushed(), &also(&base, end)).await);
        assert!(kind.uncertain && reason.contains("by itself"), "{end}: {reason}");
    }
}

#[tokio::test]
async fn a_statement_whose_table_has_changed_costs_one_attempt() {
    let base = base().await;
    let inbox = also(&base, "SELECT * FROM effects");
    done(&deliver(&flushed(), &inbox, "before").await);
    base.client.batch_execute("ALTER TABLE effects ADD note text").await.unwrap();
    let idempotency = flushed();
    let (kind, reason) = failure(&run(&idempotency, &inbox).await);
    assert!(kind == CLEAN && reason.contains("0A000"), "{reason}");
    done(&run(&idempotency, &inbox).await);
}

#[tokio::test]
async fn an_error_that_the_work_passes_over_undoes_it_all_the_same() {
    let base = base().await;
    let inbox = inbox(Careless, database(&base.url()));
    let (kind, reason) = failure(&run(&flushed(), &inbox).await);
    assert_eq!(kind, CLEAN);
    assert!(reason.contains("25P02"), "{reason}");
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
}

/// Does not look at what its statement came to.
struct Careless;

impl TransactionalWork for Careless {
    async fn run(&self, transaction: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        let _ = transaction.execute("INSERT INTO effects VALUES ('a', 0)", &[]).await;
        let _ = transaction.execute("INSERT INTO effects VALUES (NULL, 0)", &[]).await;
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn without_the_heart_an_inbox_answers_as_any_work() {
    let base = base().await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    for (payload, result) in [("12.50 EUR", true), ("12.50 EUR", true), ("99.00 EUR", false)] {
        let answer = inbox.run(&claim(payload).await, &Message::default()).await;
        match answer {
            Ok(receipt) => assert!(result && receipt == b"receipt of pay_1"),
            Err(error) => assert!(!result && error.kind() == WorkErrorKind::Permanent, "{error}"),
        }
    }
    assert_eq!(base.count(EFFECTS).await, 1);
}

async fn claim(payload: &str) -> Claim {
    let attempt = Attempt {
        key: Key::new("pay_1").unwrap(),
        owner: Owner::random(),
        fingerprint: Fingerprint::of(payload.as_bytes()),
        message: MessageTag::of("message-1"),
        lease: TIME,
        longest_lease: Duration::from_secs(901),
        retention: TIME,
        max_attempts: 5,
    };
    match MemoryStore::default().acquire(attempt).await.unwrap() {
        Acquire::Acquired(claim) => claim,
        other => panic!("{other:?}"),
    }
}
