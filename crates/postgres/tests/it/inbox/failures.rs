//! Errors of the work and of its statements.

use super::*;
use std::pin::pin;

use idempotent_sqs::idempotency::{Acquire, WorkErrorKind};
use idempotent_sqs_testing::attempt;

#[tokio::test]
async fn a_failed_work_leaves_no_effect_and_no_row() {
    let base = base().await;
    let failures: [(fn() -> WorkError, Failure); 3] = [
        (|| WorkError::retryable("not now"), CLEAN),
        (|| WorkError::permanent("no such account"), PERMANENT),
        (|| WorkError::uncertain("no answer from elsewhere"), UNCERTAIN),
    ];
    for (fails, expected) in failures {
        let inbox = inbox(Pay { fails: Some(fails), ..Pay::default() }, database(&base.url()));
        assert_eq!(failure(&run(&flushed(), &inbox).await).0, expected);
        assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
    }
    done(&run(&flushed(), &inbox(Pay::default(), database(&base.url()))).await);
}

#[tokio::test]
async fn a_work_that_panics_or_is_cancelled_leaves_no_effect_and_no_row() {
    let base = base().await;
    let panics = Pay { fails: Some(|| panic!("as told")), ..Pay::default() };
    let hangs = Pay { after: Some(Arc::default()), ..Pay::default() };
    for work in [panics, hangs] {
        let inbox = inbox(work, database(&base.url()));
        let short = delivery("pay_1").deadline(Deadline::within(SECOND));
        let report = flushed().run(&short, &inbox, &Message::default()).await.unwrap();
        assert!(failure(&report).0.uncertain);
        let open =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in %'";
        until_count(&base, open, 0).await;
        assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
    }
}

#[tokio::test]
async fn wrong_data_and_violated_constraints_are_permanent_and_their_errors_quote_no_values() {
    let base = base().await;
    base.client.batch_execute("ALTER TABLE effects ADD CONSTRAINT no_fees CHECK (key NOT LIKE 'fee%')").await.unwrap();
    let report = run(&flushed(), &also(&base, "INSERT INTO effects VALUES ('fee of 4711', 1)")).await;
    let (kind, reason) = failure(&report);
    assert_eq!(kind, PERMANENT);
    assert!(reason.contains("23514") && reason.contains("no_fees") && !reason.contains("4711"), "{reason}");
    let (kind, reason) = failure(&run(&flushed(), &also(&base, "SELECT 'card 4711'::text::integer")).await);
    assert_eq!(kind, PERMANENT);
    assert!(reason.contains("22P02") && !reason.contains("4711"), "{reason}");
}

/// Inserts this number of rows with one statement, which has a parameter for each.
struct InsertRows(usize);

impl TransactionalWork<Message> for InsertRows {
    async fn run(&self, transaction: &Transaction, _claim: &Claim, _message: &Message) -> Result<Vec<u8>, WorkError> {
        let rows: Vec<_> = (1..=self.0).map(|number| format!("(${number}, 1)")).collect();
        let keys = vec![&"card 4711" as _; self.0];
        transaction.execute(&format!("INSERT INTO effects VALUES {}", rows.join(", ")), &keys).await?;
        Ok(Vec::new())
    }
}

/// The connection is intact: it is no outage, which would hold up other messages.
#[tokio::test]
async fn a_statement_that_cannot_be_sent_is_a_permanent_failure() {
    let base = base().await;
    done(&run(&flushed(), &inbox(InsertRows(65_535), database(&base.url()))).await);
    let too_many = delivery("pay_2");
    let inbox = inbox(InsertRows(65_536), database(&base.url()));
    let reports = [
        flushed().run(&too_many, &inbox, &Message::default()).await.unwrap(),
        flushed().run(&too_many, &also(&base, "SET LOCAL app.tenant = 'a\0b'"), &Message::default()).await.unwrap(),
    ];
    for report in reports {
        let (kind, reason) = failure(&report);
        assert!(kind == PERMANENT && !reason.contains("4711"), "{reason}");
    }
}

#[tokio::test]
async fn an_error_that_a_function_raises_quotes_no_values_whatever_its_sqlstate() {
    let base = base().await;
    for code in ["P0001", "23514", "40001", "57P01", "XX001"] {
        let raise = format!("DO $$ BEGIN RAISE 'card 4711' USING ERRCODE = '{code}'; END $$").leak();
        let report = run(&flushed(), &also(&base, raise)).await;
        let reason = match &report.outcome {
            Outcome::Unavailable { error } => error.to_string(),
            _ => failure(&report).1,
        };
        assert!(reason.contains(code) && !reason.contains("4711"), "{reason}");
    }
}

#[tokio::test]
async fn an_error_that_comes_from_another_server_quotes_no_values() {
    let base = base().await;
    let extension = base.client.batch_execute("CREATE EXTENSION dblink").await;
    extension.expect("dblink is installed: some systems have it in the package postgresql-contrib");
    let relay = format!(
        "SELECT dblink_exec('host=127.0.0.1 port={} dbname={} user=app gssencmode=disable', \
         $raise$ DO $$ BEGIN RAISE 'card 4711' USING ERRCODE = '23514'; END $$ $raise$)",
        base.port, base.name
    );
    let (kind, reason) = failure(&run(&flushed(), &also(&base, relay.leak())).await);
    assert!(kind == PERMANENT && reason.contains("23514") && !reason.contains("4711"), "{reason}");
}

#[tokio::test]
async fn the_server_ends_a_statement_at_the_deadline() {
    let base = base().await;
    let inbox = also(&base, "SELECT pg_sleep(600)");
    let short = delivery("pay_1").deadline(Deadline::within(2 * SECOND));
    let report = soon(flushed().run(&short, &inbox, &Message::default())).await.unwrap();
    assert!(matches!(report.outcome, Outcome::Failed { .. }), "{report:?}");
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                  AND query LIKE 'SELECT pg_sleep(600)%'";
    until_count(&base, asleep, 0).await;
}

#[tokio::test]
async fn the_server_ends_a_statement_of_a_frozen_process_at_the_deadline() {
    let base = base().await;
    let (inbox, idempotency, message) = (also(&base, "SELECT pg_sleep(600)"), flushed(), Message::default());
    let short = delivery("pay_1").deadline(Deadline::within(2 * SECOND));
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' \
                  AND query LIKE 'SELECT pg_sleep(600)%'";
    let mut frozen = pin!(idempotency.run(&short, &inbox, &message));
    tokio::select! {
        ended = &mut frozen => panic!("{ended:?}"),
        () = until_count(&base, asleep, 1) => {}
    }
    // From here on the future is not polled, as if the process were frozen.
    until_count(&base, asleep, 0).await;
}

#[tokio::test]
async fn an_unsupported_statement_is_a_retryable_failure() {
    let base = base().await;
    let (kind, reason) = failure(&run(&flushed(), &also(&base, "SELECT count(*) FROM effects FOR UPDATE")).await);
    assert!(kind == CLEAN && reason.contains("0A000"), "{reason}");
}

#[tokio::test]
async fn a_work_that_makes_its_transaction_read_only_is_a_retryable_failure() {
    let base = base().await;
    for statement in ["SET TRANSACTION READ ONLY", "SET LOCAL transaction_read_only = on"] {
        let report = run(&flushed(), &also(&base, statement)).await;
        let (kind, reason) = failure(&report);
        assert!(kind == CLEAN && reason.contains("made its transaction read-only"), "{reason}");
    }
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
}

#[tokio::test]
async fn an_error_that_the_work_ignores_still_rolls_back() {
    let base = base().await;
    let inbox = inbox(Careless, database(&base.url()));
    let (kind, reason) = failure(&run(&flushed(), &inbox).await);
    assert_eq!(kind, CLEAN);
    assert!(reason.contains("25P02"), "{reason}");
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
}

/// Ignores the errors of its statements.
struct Careless;

impl TransactionalWork<Message> for Careless {
    async fn run(&self, transaction: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        let _ = transaction.execute("INSERT INTO effects VALUES ('a', 0)", &[]).await;
        let _ = transaction.execute("INSERT INTO effects VALUES (NULL, 0)", &[]).await;
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn without_the_core_an_inbox_is_a_work_like_any_other() {
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
    let attempt = with!(attempt("pay_1"), fingerprint = Fingerprint::of(payload.as_bytes()), lease = TIME);
    match MemoryStore::default().acquire(attempt).await.unwrap() {
        Acquire::Acquired(claim) => claim,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_error_of_the_server_quotes_no_values_of_parameters() {
    struct Find(&'static str, &'static str);
    impl TransactionalWork<Message> for Find {
        async fn run(&self, transaction: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
            transaction.query(self.0, &[&self.1]).await?;
            Ok(Vec::new())
        }
    }
    let base = base().await;
    let function = "CREATE FUNCTION lookup(customer text) RETURNS text LANGUAGE plpgsql AS \
        $$ DECLARE found text; BEGIN EXECUTE 'SELECT name FROM customer_' || customer INTO found; RETURN found; END $$";
    base.client.batch_execute(function).await.unwrap();
    let error = async |statement, value| {
        let report = run(&flushed(), &inbox(Find(statement, value), database(&base.url()))).await;
        match &report.outcome {
            Outcome::Unavailable { error } => error.to_string(),
            _ => failure(&report).1,
        }
    };
    for (statement, value, code) in [
        ("SELECT to_tsquery('simple', $1)", "erika mustermann", "42601"),
        ("SELECT $1::text::regclass::text", "mustermann", "42P01"),
        ("SELECT jsonb_path_query('{}', $1::text::jsonpath)", "$.mustermann mustermann", "42601"),
        ("SELECT set_config($1, '1', true)", "mustermann", "42704"),
        ("SELECT lookup($1)", "mustermann", "42P01"),
        ("SELECT pg_read_file($1)", "/mustermann", "58P01"),
        // The server may read this directory, or not.
        ("SELECT pg_read_file($1)", "/root/mustermann", "PostgreSQL returned error"),
    ] {
        let error = error(statement, value).await;
        assert!(error.contains(code) && !error.contains("mustermann"), "{statement}: {error}");
    }
    // What the statement itself says is displayed.
    for (statement, part) in [
        ("SELECT name FROM customers WHERE id = $1", "relation \"customers\" does not exist"),
        ("SELECT nmae FROM pg_class WHERE relname = $1::text", "column \"nmae\" does not exist"),
        ("SELECT FORM $1::text", "syntax error at or near"),
        (
            "INSERT INTO effects VALUES ($1, 1) ON CONFLICT (fence) DO NOTHING",
            "there is no unique or exclusion constraint",
        ),
    ] {
        let error = error(statement, "mustermann").await;
        assert!(error.contains(part), "{statement}: {error}");
    }
}
