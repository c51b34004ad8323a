use std::sync::Mutex;

use idempotent_sqs::record::{Failure, MessageTag, Owner};
use idempotent_sqs::store::{Acquire, Attempt};
use idempotent_sqs::work::WorkErrorKind;

use super::*;
use crate::support::postgres::{database, until_count};
use crate::support::{soon, until};

const CLEAN: Failure = Failure { uncertain: false, permanent: false };
const FOR_GOOD: Failure = Failure { uncertain: false, permanent: true };

fn failure(report: &Report) -> (Failure, String) {
    match &report.outcome {
        Outcome::WorkFailed { failure, error } => (*failure, error.to_string()),
        other => panic!("{other:?}"),
    }
}

/// The reason of a failure that is not the message's own, and that is no attempt.
fn unavailable(report: &Report) -> String {
    match &report.outcome {
        Outcome::Unavailable { error } => error.to_string(),
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

/// What a statement or a commit fails with where the message is not at fault: contention, a database that goes down
/// or is overloaded, and a statement that an operator has cancelled.
const NOT_ITS_OWN: [&str; 15] = [
    "08006", "25006", "40001", "40P01", "53100", "53200", "53300", "55P03", "57014", "57P01", "57P02", "57P03",
    "57P04", "58000", "58030",
];

fn raises(code: &str) -> String {
    format!("RAISE EXCEPTION 'as told' USING ERRCODE = '{code}'")
}

#[tokio::test]
async fn contention_and_a_database_in_trouble_are_no_attempt_and_leave_no_doubt() {
    let (base, idempotency) = (base().await, flushed());
    for code in NOT_ITS_OWN {
        let fails: &'static str = format!("DO $$ BEGIN {}; END $$", raises(code)).leak();
        let reason = unavailable(&run(&idempotency, &also(&base, fails)).await);
        assert!(reason.contains(code), "{reason}");
    }
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
    let report = run(&idempotency, &inbox(Pay::default(), database(&base.url()))).await;
    done(&report);
    assert_eq!((report.attempt, report.recovery), (Some(1), false));
}

/// Has each row of the table of effects fail the commit with this.
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
async fn what_is_no_attempt_within_the_work_is_none_at_its_commit_either() {
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
    assert_eq!((report.attempt, report.recovery), (Some(1), false));
}

#[tokio::test]
async fn a_session_that_is_ended_in_mid_work_is_no_attempt() {
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
    assert_eq!((report.attempt, report.recovery), (Some(1), false));
}

#[tokio::test]
async fn a_statement_that_an_operator_cancels_is_no_attempt() {
    let base = base().await;
    let asleep =
        "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_sleep(600)' AND state = 'active'";
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
async fn an_insert_of_the_row_that_an_operator_cancels_is_no_attempt_and_no_conflict() {
    let base = base().await;
    base.client
        .batch_execute("BEGIN; INSERT INTO idempotency_inbox VALUES ('payments', 'pay_1', '', 1, 1, '')")
        .await
        .unwrap();
    let operator = crate::support::postgres::connect(base.port, &base.name).await;
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
async fn of_two_in_a_deadlock_one_is_done_and_the_other_made_no_attempt() {
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
    let reason = unavailable(&soon(run(&flushed(), &inbox(work, Database::new(&short)))).await);
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

#[tokio::test]
async fn a_constraint_that_is_checked_at_the_commit_is_for_good_and_noted() {
    let base = base().await;
    let deferred = "CREATE TABLE accounts (key text PRIMARY KEY); \
                    ALTER TABLE effects ADD CONSTRAINT of_an_account FOREIGN KEY (key) REFERENCES accounts \
                    DEFERRABLE INITIALLY DEFERRED; CREATE TABLE refusals (key text NOT NULL, why text NOT NULL)";
    base.client.batch_execute(deferred).await.unwrap();
    let inbox = inbox(Refuses { fails: None, ..Refuses::default() }, database(&base.url()));
    let (kind, reason) = failure(&run(&flushed(), &inbox).await);
    assert_eq!(kind, FOR_GOOD);
    assert!(reason.contains("23503") && reason.contains("of_an_account"), "{reason}");
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
    let noted = base.client.query_one("SELECT key, why FROM refusals", &[]).await.unwrap();
    assert_eq!((noted.get(0), noted.get::<_, &str>(1)), ("pay_1", &*reason));
}

#[tokio::test]
async fn a_note_that_can_never_be_made_leaves_the_failure_for_another_attempt() {
    let base = base().await;
    let never = "CREATE TABLE refusals (key text NOT NULL, why text NOT NULL CHECK (why = 'never'))";
    base.client.batch_execute(never).await.unwrap();
    let (kind, reason) = failure(&run(&flushed(), &inbox(Refuses::default(), database(&base.url()))).await);
    assert_eq!(kind, CLEAN);
    assert!(reason.contains("23514"), "{reason}");
}

#[tokio::test]
async fn a_work_that_another_has_done_before_its_refusal_is_noted_is_a_duplicate() {
    let base = base().await;
    let mut settings = crate::support::postgres::settings(&base.url());
    settings.connections = std::num::NonZeroUsize::MIN;
    let (one_connection, gates) = (Database::new(&settings), [Arc::new(Gate::default()), Arc::new(Gate::default())]);
    let held = |gate: &Arc<Gate>, fails| Pay { after: Some(gate.clone()), fails, ..Pay::default() };
    let refuses = inbox(held(&gates[0], Some(|| WorkError::permanent("no such account"))), one_connection.clone());
    // It has the connection next, so that the note waits for it.
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

fn inbox_runs(inbox: &Inbox<Refuses>) -> usize {
    inbox.work().runs.lock().unwrap().len()
}

/// Has an effect, refuses after all unless its commit does, and notes why.
struct Refuses {
    runs: Mutex<Vec<u64>>,
    fails: Option<fn() -> WorkError>,
}

impl Default for Refuses {
    fn default() -> Self {
        Self { runs: Mutex::default(), fails: Some(|| WorkError::permanent("no such account")) }
    }
}

impl TransactionalWork for Refuses {
    async fn run(&self, transaction: &Transaction, claim: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        self.runs.lock().unwrap().push(claim.fence().0);
        transaction.execute("INSERT INTO effects VALUES ('undone', 0)", &[]).await?;
        self.fails.map_or(Ok(Vec::new()), |fails| Err(fails()))
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
async fn a_statement_whose_table_has_changed_is_prepared_anew_and_costs_no_attempt() {
    let base = base().await;
    let inbox = also(&base, "SELECT * FROM effects");
    done(&deliver(&flushed(), &inbox, "before").await);
    base.client.batch_execute("ALTER TABLE effects ADD note text").await.unwrap();
    let idempotency = flushed();
    let reason = unavailable(&run(&idempotency, &inbox).await);
    assert!(reason.contains("prepared anew"), "{reason}");
    let report = run(&idempotency, &inbox).await;
    done(&report);
    assert_eq!(report.attempt, Some(1));
}

#[tokio::test]
async fn a_statement_that_the_server_does_not_support_is_the_works_own_fault() {
    let base = base().await;
    let (kind, reason) = failure(&run(&flushed(), &also(&base, "SELECT count(*) FROM effects FOR UPDATE")).await);
    assert!(kind == CLEAN && reason.contains("0A000"), "{reason}");
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
