//! Rows that the work committed without a result, with its own COMMIT.

use super::sessions::Sql;
use super::*;
use idempotent_sqs::idempotency::{Fence, WorkErrorKind};
use idempotent_sqs_testing::attempt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep_until;

/// Part of the reason: which rows the operator has to settle.
const REASON: &str = "result IS NULL";

/// The outcomes of the work.
const ENDS: [Option<fn() -> WorkError>; 5] = [
    None,
    Some(|| WorkError::retryable("not now")),
    Some(|| WorkError::unavailable("not now")),
    Some(|| WorkError::uncertain("no answer from elsewhere")),
    Some(|| WorkError::permanent("no such account")),
];

/// A work that takes effect, executes COMMIT, and then succeeds or fails.
fn commits_by_itself(fails: Option<fn() -> WorkError>) -> Pay {
    Pay { also: Some("COMMIT"), fails, ..Pay::default() }
}

fn uncertain(report: &Report) -> String {
    match &report.outcome {
        Outcome::Failed { error, uncertain: true } => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Commits a row without a result.
async fn leave_unfinished(base: &Base) {
    run(&flushed(), &inbox(commits_by_itself(None), database(&base.url()))).await;
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (1, 1));
}

#[tokio::test]
async fn a_work_that_executes_commit_is_uncertain_and_never_runs_again() {
    for end in ENDS {
        let base = base().await;
        let reason = uncertain(&run(&flushed(), &inbox(commits_by_itself(end), database(&base.url()))).await);
        assert!(reason.contains("the work executed COMMIT or ROLLBACK"), "{reason}");
        // The store is empty again.
        for _ in 0..2 {
            let reason = uncertain(&run(&flushed(), &inbox(Pay::default(), database(&base.url()))).await);
            assert!(reason.contains(REASON), "{reason}");
        }
        assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (1, 1));
    }
}

#[tokio::test]
async fn a_work_that_executes_commit_is_uncertain_also_if_its_session_is_read_only_then() {
    let base = base().await;
    let trigger = "CREATE FUNCTION read_only_from_now_on() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                     PERFORM set_config('default_transaction_read_only', 'on', false); RETURN NULL; END $$; \
                   CREATE TRIGGER read_only AFTER INSERT ON effects EXECUTE FUNCTION read_only_from_now_on()";
    base.client.batch_execute(trigger).await.unwrap();
    let reason = uncertain(&run(&flushed(), &inbox(commits_by_itself(None), database(&base.url()))).await);
    assert!(reason.contains("the work executed COMMIT or ROLLBACK"), "{reason}");
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (1, 1));
}

#[tokio::test]
async fn a_work_that_executes_rollback_is_uncertain_and_runs_again_as_a_recovery() {
    for end in ENDS {
        let (base, idempotency) = (base().await, flushed());
        let rolls_back = Pay { also: Some("ROLLBACK"), fails: end, ..Pay::default() };
        let reason = uncertain(&run(&idempotency, &inbox(rolls_back, database(&base.url()))).await);
        assert!(reason.contains("the work executed COMMIT or ROLLBACK"), "{reason}");
        let next = run(&idempotency, &inbox(Pay::default(), database(&base.url()))).await;
        assert!(next.recovery && !done(&next).is_empty());
    }
}

#[tokio::test]
async fn a_work_that_executes_commit_and_fails_just_before_its_deadline_is_uncertain() {
    let base = base().await;
    let inbox = inbox(CommitsAndFailsLate, database(&base.url()));
    let request = with!(attempt("pay_1"), lease = SECOND);
    let claim = Claim::of_completed_work(request, Fence(1), 1);
    let error = OwnRecord::<Message>::attempt(&inbox, &claim, &Message::default()).await.unwrap_err();
    assert_eq!(error.kind(), WorkErrorKind::Uncertain, "{error}");
    assert!(error.to_string().contains("not now"), "{error}");
    assert_eq!(base.count(ROWS).await, 1);
}

/// Executes COMMIT, and fails when there is no time left to ask the server whether it has.
struct CommitsAndFailsLate;

impl TransactionalWork<Message> for CommitsAndFailsLate {
    async fn run(&self, transaction: &Transaction, claim: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        transaction.execute("COMMIT", &[]).await?;
        sleep_until(claim.ends() - Duration::from_millis(10)).await;
        Err(WorkError::retryable("not now"))
    }
}

#[tokio::test]
async fn a_work_that_executes_rollback_is_uncertain_if_the_server_does_not_say_that_it_has() {
    let base = base().await;
    // Makes the query fail that shows whether the transaction has ended.
    let statements = vec![
        "ROLLBACK",
        "CREATE SCHEMA shadow",
        "CREATE FUNCTION shadow.current_setting(text, boolean) RETURNS text LANGUAGE sql AS 'SELECT (1 / 0)::text'",
        "SET search_path = shadow, pg_catalog, public",
    ];
    let work = Sql(statements, Some(|| WorkError::permanent("no such account")));
    let inbox = inbox(work, database(&base.url()));
    let claim = Claim::of_completed_work(attempt("pay_1"), Fence(1), 1);
    let error = OwnRecord::<Message>::attempt(&inbox, &claim, &Message::default()).await.unwrap_err();
    assert_eq!(error.kind(), WorkErrorKind::Uncertain, "{error}");
    let text = error.to_string();
    assert!(text.contains("did not say") && text.contains("no such account"), "{text}");
}

/// The error of the question makes the COMMIT roll back, which is no error.
#[tokio::test]
async fn a_work_is_uncertain_if_the_server_does_not_say_at_its_commit_whether_the_transaction_still_exists() {
    let base = base().await;
    let statements = vec![
        "INSERT INTO effects VALUES ('pay_1', 1)",
        "CREATE SCHEMA shadow",
        "CREATE FUNCTION shadow.current_setting(text, boolean) RETURNS text LANGUAGE plpgsql AS \
         'BEGIN RAISE EXCEPTION ''no''; END'",
        "SET LOCAL search_path = shadow, pg_catalog, public",
    ];
    let report = run(&flushed(), &inbox(Sql(statements, None), database(&base.url()))).await;
    assert!(uncertain(&report).contains("did not say"), "{report:?}");
    assert_eq!(base.count(EFFECTS).await, 0);
}

#[tokio::test]
async fn a_work_that_executes_rollback_is_uncertain_whatever_it_executes_then() {
    let fail_the_last_one = ["DEALLOCATE ALL", "SET search_path = pg_temp", "SET default_transaction_read_only = on"];
    for then in [&fail_the_last_one[..], &["BEGIN"]].concat() {
        let (base, idempotency) = (base().await, flushed());
        let statements = vec!["ROLLBACK", "INSERT INTO effects VALUES ('pay_1', 1)", then];
        let inbox = inbox(Sql(statements, None), database(&base.url()));
        for is_recovery in [false, true] {
            let report = run(&idempotency, &inbox).await;
            let reason = uncertain(&report);
            assert!(reason.contains("the work executed COMMIT or ROLLBACK"), "{then}: {reason}");
            assert_eq!(report.recovery, is_recovery, "{then}");
        }
    }
}

#[tokio::test]
async fn after_the_last_attempt_the_reason_still_names_the_unfinished_row() {
    let base = base().await;
    let idempotency = Idempotency::new(MemoryStore::default(), with!(Policy::default(), max_attempts = 2));
    leave_unfinished(&base).await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    for _ in 0..2 {
        uncertain(&run(&idempotency, &inbox).await);
    }
    // The attempts are used up, so the store alone would fail it without a reason.
    match run(&idempotency, &inbox).await.outcome {
        Outcome::FailedPermanently { error, .. } | Outcome::Unavailable { error } => {
            assert!(error.to_string().contains(REASON), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(base.count(EFFECTS).await, 1);
}

#[tokio::test]
async fn the_result_of_an_unfinished_row_is_an_uncertain_error() {
    let base = base().await;
    leave_unfinished(&base).await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    let attempt = with!(attempt("pay_1"), fingerprint = Fingerprint::of(b"12.50 EUR"));
    let error = OwnRecord::<Message>::recorded(&inbox, &attempt, Instant::now() + TIME).await.unwrap_err();
    assert_eq!(error.kind(), WorkErrorKind::Uncertain);
    assert!(error.to_string().contains(REASON), "{error}");
}

#[tokio::test]
async fn another_payload_under_the_key_of_an_unfinished_row_is_a_mismatch() {
    let base = base().await;
    leave_unfinished(&base).await;
    let other = delivery("pay_1").fingerprint(Fingerprint::of(b"99.00 EUR"));
    let report =
        flushed().run(&other, &inbox(Pay::default(), database(&base.url())), &Message::default()).await.unwrap();
    assert!(matches!(report.outcome, Outcome::Mismatch), "{report:?}");
}

/// Executes the statement of docs/inbox.md that begins with these words, with the key of the tests.
async fn settle_as_documented(base: &Base, begins: &str) {
    let page = std::fs::read_to_string(workspace("docs/inbox.md")).unwrap();
    let statement = page.lines().find(|line| line.starts_with(begins)).unwrap().replace("'e-1'", "'pay_1'");
    assert_eq!(base.client.execute(&statement, &[]).await.unwrap(), 1, "{statement}");
}

#[tokio::test]
async fn an_operator_settles_an_unfinished_row_by_setting_a_result_or_deleting_it() {
    let base = base().await;
    leave_unfinished(&base).await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    settle_as_documented(&base, "UPDATE idempotency_inbox").await;
    assert_eq!(duplicate(&run(&flushed(), &inbox).await), b"");
    settle_as_documented(&base, "DELETE FROM idempotency_inbox").await;
    done(&run(&flushed(), &inbox).await);
    assert_eq!(base.count(EFFECTS).await, 2);
}

#[tokio::test]
async fn an_old_row_that_is_settled_with_a_result_outlives_the_next_cleanup() {
    let base = base().await;
    leave_unfinished(&base).await;
    base.client.batch_execute("UPDATE idempotency_inbox SET done_at = now() - interval '29 days'").await.unwrap();
    settle_as_documented(&base, "UPDATE idempotency_inbox").await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    assert_eq!(inbox.delete_expired().await.unwrap(), 0);
    assert_eq!(duplicate(&run(&flushed(), &inbox).await), b"");
    assert_eq!(base.count(EFFECTS).await, 1);
}

#[tokio::test]
async fn a_row_with_an_empty_result_is_finished() {
    let base = base().await;
    let inbox = inbox(Silent, database(&base.url()));
    assert_eq!(done(&run(&flushed(), &inbox).await), b"");
    assert_eq!(duplicate(&run(&flushed(), &inbox).await), b"");
}

/// Returns an empty result.
struct Silent;

impl TransactionalWork<Message> for Silent {
    async fn run(&self, _: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn an_unfinished_row_is_kept_beyond_its_retention() {
    let base = base().await;
    leave_unfinished(&base).await;
    base.client.batch_execute("UPDATE idempotency_inbox SET done_at = now() - interval '29 days'").await.unwrap();
    assert_eq!(inbox(Pay::default(), database(&base.url())).delete_expired().await.unwrap(), 0);
    uncertain(&run(&flushed(), &inbox(Pay::default(), database(&base.url()))).await);
}

/// A proxy to the server that turns each BEGIN into a syntax error.
async fn without_begins(base: &Base) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (port, server_port) = (listener.local_addr().unwrap().port(), base.port);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", server_port)).await.unwrap();
            let ((mut requests, mut to_client), (mut replies, mut to_server)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut replies, &mut to_client).await });
            tokio::spawn(async move {
                let mut chunk = vec![0; 65_536];
                while let Ok(length @ 1..) = requests.read(&mut chunk).await {
                    let chunk = &mut chunk[..length];
                    if let Some(at) = chunk.windows(5).position(|word| word == b"BEGIN") {
                        chunk[at..at + 5].copy_from_slice(b"NEVER");
                    }
                    to_server.write_all(chunk).await.unwrap();
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn a_begin_that_fails_leaves_no_row() {
    let base = base().await;
    let port = without_begins(&base).await;
    let idempotency = flushed();
    let error = try_run(&idempotency, &inbox(Pay::default(), database(&base.url_by(port)))).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
    done(&run(&idempotency, &inbox(Pay::default(), database(&base.url()))).await);
}

#[tokio::test]
async fn another_payload_runs_once_an_operator_has_deleted_the_unfinished_row() {
    let base = base().await;
    leave_unfinished(&base).await;
    let idempotency = Idempotency::new(MemoryStore::default(), with!(Policy::default(), max_attempts = 2));
    let inbox = inbox(Pay::default(), database(&base.url()));
    let other = delivery("pay_1").fingerprint(Fingerprint::of(b"99.00 EUR"));
    for _ in 0..3 {
        let report = idempotency.run(&other, &inbox, &Message::default()).await.unwrap();
        assert!(matches!(report.outcome, Outcome::Mismatch), "{report:?}");
    }
    base.client.batch_execute("DELETE FROM idempotency_inbox").await.unwrap();
    let report = idempotency.run(&other, &inbox, &Message::default()).await.unwrap();
    assert!(matches!(report.outcome, Outcome::Done { .. }), "{report:?}");
}
