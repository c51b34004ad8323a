//! The ledger: payment events on accounts, in any order, and their audit. Test names are sentences.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other answer must fail the test")]
#![allow(clippy::unchecked_time_subtraction, reason = "tests subtract known times")]

mod binary;
#[path = "../../src/event.rs"]
mod event;
mod identity;
#[path = "../../src/ledger.rs"]
#[allow(clippy::module_inception, reason = "the name in the function")]
mod ledger;
mod model;
mod torture;

use std::num::NonZeroU32;
use std::time::Duration;

use idempotent_sqs::sqs::{Batch, BatchSettings, Disposition, KeySource, MessageOutcome, MessageReport};
use idempotent_sqs::{Deadline, Idempotency, MemoryStore, Message, Policy};
use idempotent_sqs_postgres::{Database, DatabaseSettings, Inbox, InboxSettings};
use serde_json::json;

use harness::postgres::{Base, connect};
use harness::with;
use ledger::Ledger;

/// A database with the tables of the inbox and of the ledger, and these accounts, with a balance of 0.
async fn books(accounts: &[&str]) -> Base {
    let base = Base::with_inbox().await;
    open_accounts(&base, accounts).await;
    base
}

async fn open_accounts(base: &Base, accounts: &[&str]) {
    base.client.batch_execute(include_str!("../../sql/ledger.sql")).await.unwrap();
    for account in accounts {
        base.client.execute("INSERT INTO ledger_account VALUES ($1)", &[account]).await.unwrap();
    }
}

#[tokio::test]
async fn the_tables_can_be_created_again_beside_an_open_transaction() {
    let base = books(&[]).await;
    let booking = "BEGIN; INSERT INTO ledger_audit (outcome, idempotency_key, message_id, fence) \
                   VALUES ('APPLIED', 'pay_1', 'm1', 1)";
    base.client.batch_execute(booking).await.unwrap();
    let operator = connect(base.port, &base.name).await;
    // Any wait for a lock fails.
    let again = include_str!("../../sql/ledger.sql");
    operator.batch_execute(&format!("SET lock_timeout = 1; BEGIN; {again}; COMMIT")).await.unwrap();
}

fn inbox(base: &Base) -> Inbox<Ledger> {
    let settings = with!(InboxSettings::new("ledger"), cleanup_one_in = NonZeroU32::MAX);
    let database = DatabaseSettings::new(base.url().parse().unwrap());
    Inbox::new(Ledger, Database::new(&with!(database, timeout = Duration::from_secs(5))), settings)
}

/// A batch on an empty store.
fn batch(base: &Base) -> Batch<MemoryStore, Inbox<Ledger>> {
    let settings =
        with!(BatchSettings::default(), keys = vec![KeySource::Body("/eventId".into()), KeySource::MessageId]);
    Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), inbox(base), settings)
}

fn payment(event: &str, account: &str, kind: &str, amount: i64, sequence: i64) -> String {
    json!({ "eventId": event, "accountId": account, "amount": amount, "sequenceId": sequence, "type": kind })
        .to_string()
}

/// Processes these bodies one after another, each in its own message.
async fn book(base: &Base, bodies: &[String]) -> Vec<MessageReport> {
    let batch = batch(base);
    let mut reports = Vec::new();
    for (number, body) in bodies.iter().enumerate() {
        let message = with!(Message::default(), id = format!("m{number}"), body = Some(body.clone()));
        reports.extend(batch.run(&[message], Deadline::within(Duration::from_secs(60))).await.unwrap());
    }
    reports
}

/// Outcome and reason of each row of the audit, oldest first.
async fn audit(base: &Base) -> Vec<(String, String)> {
    let rows =
        base.client.query("SELECT outcome, coalesce(reason, '') FROM ledger_audit ORDER BY id", &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

async fn balance(base: &Base, account: &str) -> (i64, i64) {
    let query = "SELECT balance, last_sequence_id FROM ledger_account WHERE account_id = $1";
    let row = base.client.query_one(query, &[&account]).await.unwrap();
    (row.get(0), row.get(1))
}

/// Whether the message failed permanently, now or before.
fn is_final_failure(report: &MessageReport) -> bool {
    report.failed_permanently || report.outcome == MessageOutcome::Failed
}

#[tokio::test]
async fn credits_and_debits_are_booked_and_audited() {
    let base = books(&["a"]).await;
    let bodies = [payment("e1", "a", "CREDIT", 1250, 1), payment("e2", "a", "DEBIT", 250, 2)];
    for report in book(&base, &bodies).await {
        assert_eq!(report.disposition, Disposition::Done, "{}", report.reason);
    }
    assert_eq!(balance(&base, "a").await, (1000, 2));
    let row = base.client.query_one("SELECT * FROM ledger_audit WHERE event_id = 'e2'", &[]).await.unwrap();
    let texts =
        ["outcome", "idempotency_key", "message_id", "account_id", "type"].map(|name| row.get::<_, String>(name));
    assert_eq!(texts, ["APPLIED", "e2", "m1", "a", "DEBIT"]);
    assert_eq!(["amount", "sequence_id", "balance"].map(|name| row.get::<_, i64>(name)), [250, 2, 1000]);
    assert_eq!(row.get::<_, Option<String>>("reason"), None);
}

#[tokio::test]
async fn a_late_event_is_acknowledged_and_audited_and_changes_nothing() {
    let base = books(&["a"]).await;
    let bodies = [
        payment("e2", "a", "CREDIT", 500, 2),
        payment("e1", "a", "CREDIT", 100, 1),
        payment("e2 again", "a", "CREDIT", 500, 2),
    ];
    for report in book(&base, &bodies).await {
        assert_eq!(report.disposition, Disposition::Done, "{}", report.reason);
    }
    assert_eq!(balance(&base, "a").await, (500, 2));
    let outcomes: Vec<_> = audit(&base).await.into_iter().map(|(outcome, _)| outcome).collect();
    assert_eq!(outcomes, ["APPLIED", "IGNORED", "IGNORED"]);
}

#[tokio::test]
async fn an_event_that_cannot_be_booked_is_refused_permanently_and_audited_with_its_reason() {
    let base = books(&["a", "rich"]).await;
    base.client
        .batch_execute("UPDATE ledger_account SET balance = 9223372036854775800 WHERE account_id = 'rich'")
        .await
        .unwrap();
    let whole = |name: &str, value: serde_json::Value| {
        let mut event: serde_json::Value = serde_json::from_str(&payment("e", "a", "CREDIT", 5, 1)).unwrap();
        event["eventId"] = format!("bad {name} {value}").into();
        event[name] = value;
        event.to_string()
    };
    let refused = [
        (payment("e1", "nobody", "CREDIT", 5, 1), "the account does not exist"),
        (payment("e2", "a", "DEBIT", 5, 1), "below the lowest balance"),
        (payment("e3", "a", "DEBIT", i64::MAX, 1), "below the lowest balance"),
        (payment("e4", "rich", "CREDIT", 8, 1), "would exceed 9223372036854775807"),
        (payment("e5", "rich", "CREDIT", i64::MAX, 1), "would exceed 9223372036854775807"),
        (payment("e6", "a", "REFUND", 5, 1), "type is neither DEBIT nor CREDIT"),
        (payment("e7", "a", "CREDIT", 0, 1), "amount is not a whole number"),
        (payment("e8", "a", "CREDIT", -5, 1), "amount is not a whole number"),
        (payment("e9", "a", "CREDIT", 5, 0), "sequenceId is not a whole number"),
        (whole("amount", json!(12.5)), "amount is not a whole number"),
        (whole("amount", json!("12")), "amount is not a whole number"),
        (whole("amount", json!(9_223_372_036_854_775_808_u64)), "amount is not a whole number"),
        (whole("sequenceId", json!(1e30)), "sequenceId is not a whole number"),
        (whole("accountId", json!("a\0b")), "accountId is not a string"),
        (whole("accountId", json!(null)), "accountId is not a string"),
        (r#"{"amount": "secret"}"#.into(), "eventId is not a string of 1 to 200 bytes; accountId is not a string"),
        ("secret".into(), "not a JSON object"),
        ("[1]".into(), "not a JSON object"),
    ];
    let bodies: Vec<_> = refused.iter().map(|(body, _)| body.clone()).collect();
    let reports = book(&base, &bodies).await;
    let noted = audit(&base).await;
    assert_eq!(noted.len(), refused.len());
    for ((report, (body, expected)), (outcome, reason)) in reports.iter().zip(&refused).zip(noted) {
        assert!(is_final_failure(report), "{body}: {}", report.reason);
        assert!(report.reason.contains(expected) && reason.contains(expected), "{body}: {} / {reason}", report.reason);
        assert!(!report.reason.contains("secret"));
        assert_eq!(outcome, "REFUSED");
    }
    assert_eq!((balance(&base, "a").await, balance(&base, "rich").await.1), ((0, 0), 0));
    assert_eq!(
        base.count("SELECT count(*) FROM idempotency_inbox").await,
        0,
        "refused events have no row in the inbox"
    );
}

#[tokio::test]
async fn an_account_can_be_overdrawn_to_its_lowest_balance() {
    let base = books(&[]).await;
    base.client
        .batch_execute("INSERT INTO ledger_account (account_id, lowest_balance) VALUES ('a', -500)")
        .await
        .unwrap();
    let bodies = [payment("e1", "a", "DEBIT", 500, 1), payment("e2", "a", "DEBIT", 1, 2)];
    let reports = book(&base, &bodies).await;
    assert_eq!(reports[0].disposition, Disposition::Done);
    assert!(is_final_failure(&reports[1]), "{}", reports[1].reason);
    assert_eq!(balance(&base, "a").await, (-500, 1));
}

#[tokio::test]
async fn a_refused_event_is_booked_when_it_is_redriven_after_the_account_was_opened() {
    let base = books(&[]).await;
    let batch = batch(&base);
    let message =
        |id: &str| [with!(Message::default(), id = id.into(), body = Some(payment("e1", "a", "CREDIT", 5, 1)))];
    let deadline = || Deadline::within(Duration::from_secs(60));
    for _ in 0..3 {
        let reports = batch.run(&message("m1"), deadline()).await.unwrap();
        assert!(is_final_failure(&reports[0]), "{}", reports[0].reason);
    }
    base.client.batch_execute("INSERT INTO ledger_account VALUES ('a')").await.unwrap();
    let reports = batch.run(&message("redriven"), deadline()).await.unwrap();
    assert_eq!(reports[0].disposition, Disposition::Done, "{}", reports[0].reason);
    assert_eq!(balance(&base, "a").await, (5, 1));
    let outcomes: Vec<_> = audit(&base).await.into_iter().map(|(outcome, _)| outcome).collect();
    assert_eq!(outcomes, ["REFUSED", "APPLIED"]);
}
