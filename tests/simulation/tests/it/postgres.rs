//! The simulated PostgreSQL.

mod client;
mod compared;
mod scripts;

use idempotent_sqs::idempotency::Work as _;
use idempotent_sqs::{Claim, MemoryStore, WorkError};
use idempotent_sqs_postgres::backfill::{Backfill, BackfillEnd, BackfillSettings, BackfillStart};
use idempotent_sqs_postgres::{Database, DatabaseSettings, Inbox, InboxSettings, Transaction, TransactionalWork};
use simulation::postgres::{Server, dial_postgres};

use client::Client;
use simulation::{deterministic, network};

/// Adds an effect.
struct Effect;

impl TransactionalWork<str> for Effect {
    async fn run(&self, transaction: &Transaction, claim: &Claim, input: &str) -> Result<Vec<u8>, WorkError> {
        let insert = "INSERT INTO effects (consumer, key, fence, payload) VALUES ($1, $2, $3, $4)";
        let fence = i64::try_from(claim.fence().0).unwrap_or(0);
        transaction.execute(insert, &[&"consumer", &claim.key().as_str(), &fence, &input]).await?;
        Ok(b"done".to_vec())
    }
}

fn database(server: &str) -> Database {
    dial_postgres();
    let url = format!("postgres://app@{server}.function/inbox?sslmode=disable").parse().unwrap();
    Database::new(&DatabaseSettings::new(url))
}

fn inbox(server: &str) -> Inbox<Effect> {
    Inbox::new(Effect, database(server), InboxSettings::new("consumer"))
}

#[tokio::test(start_paused = true)]
async fn the_work_of_an_inbox_takes_effect_once() {
    deterministic::begin();
    let server = Server::start("postgres-of-inbox");
    let inbox = inbox("postgres-of-inbox");
    inbox.check().await.unwrap();
    for _ in 0..2 {
        let claim = idempotent_sqs_testing::claim("pay_1");
        assert_eq!(inbox.run(&claim, "payload").await.unwrap(), b"done");
    }
    let (rows, effects) = (server.rows(), server.effects());
    assert_eq!((rows.len(), effects.len(), server.changes().len()), (1, 1, 1), "{rows:?} {effects:?}");
    assert_eq!((rows[0].row.key.as_str(), rows[0].row.result.as_deref()), ("pay_1", Some(&b"done"[..])));
    assert_eq!(rows[0].transaction, effects[0].transaction);
    assert_eq!(inbox.delete_expired().await.unwrap(), 0);
}

/// An inbox, its claim, and its server.
fn faulty(name: &str) -> (Inbox<Effect>, Server) {
    deterministic::begin();
    let server = Server::start(name);
    (inbox(name), server)
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_a_commit_loses_the_effect_and_one_after_it_does_not() {
    let (inbox, server) = faulty("postgres-that-crashes");
    for (key, before) in [("one", true), ("two", false)] {
        server.crash_at_commit(server.name(), before);
        inbox.run(&idempotent_sqs_testing::claim(key), "payload").await.unwrap_err();
        assert_eq!((server.effects().len(), server.open_transactions()), (usize::from(!before), 0), "{key}");
        server.listen();
    }
    inbox.run(&idempotent_sqs_testing::claim("two"), "payload").await.unwrap();
    assert_eq!(server.effects().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_statement_fails_as_it_was_told_to() {
    let (inbox, server) = faulty("postgres-that-fails");
    for (statement, sqlstate) in [("COMMIT", "40001"), ("INSERT INTO effects", "53200"), ("BEGIN", "57014")] {
        server.fail_next(server.name(), statement, sqlstate);
        let error = inbox.run(&idempotent_sqs_testing::claim("pay_1"), "payload").await.unwrap_err();
        assert!(error.to_string().contains(sqlstate), "{error}");
        assert!(server.effects().is_empty() && server.rows().is_empty(), "{statement}");
    }
    inbox.run(&idempotent_sqs_testing::claim("pay_1"), "payload").await.unwrap();
    assert_eq!(server.effects().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn sessions_are_ended_and_read_only_ones_write_nothing() {
    let (inbox, server) = faulty("postgres-with-an-operator");
    inbox.run(&idempotent_sqs_testing::claim("one"), "payload").await.unwrap();
    server.end_sessions();
    inbox.run(&idempotent_sqs_testing::claim("two"), "payload").await.unwrap();
    server.set_read_only(true);
    server.end_sessions();
    inbox.run(&idempotent_sqs_testing::claim("three"), "payload").await.unwrap_err();
    server.set_read_only(false);
    inbox.run(&idempotent_sqs_testing::claim("three"), "payload").await.unwrap();
    server.execute("DELETE FROM idempotency_inbox WHERE key = 'one'").await.unwrap();
    assert_eq!(server.execute("DELETE FROM nothing").await.unwrap_err().code, "42P01");
    assert_eq!((server.rows().len(), server.effects().len(), server.changes().len()), (2, 3, 4));
}

#[tokio::test(start_paused = true)]
async fn logins_and_too_many_sessions_are_refused() {
    let (inbox, server) = faulty("postgres-with-logins");
    server.configure("17.2", Some(|user: &str, password: &str| (user, password) == ("app", "secret")), 100);
    let error = inbox.check().await.unwrap_err().to_string();
    assert!(error.contains("password"), "{error}");
    let url = "postgres://app:secret@postgres-with-logins.function/inbox?sslmode=disable".parse().unwrap();
    let database = Database::new(&DatabaseSettings::new(url));
    let inbox = Inbox::new(Effect, database, InboxSettings::new("consumer"));
    inbox.check().await.unwrap();
    inbox.run(&idempotent_sqs_testing::claim("one"), "payload").await.unwrap();
    server.end_sessions();
    server.configure("17.2", None::<fn(&str, &str) -> bool>, 0);
    let error = inbox.check().await.unwrap_err().to_string();
    assert!(error.contains("53300"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_backfill_copies_the_rows() {
    let (inbox, server) = faulty("postgres-with-rows");
    for key in ["one", "two"] {
        inbox.run(&idempotent_sqs_testing::claim(key), "payload").await.unwrap();
    }
    server.execute("UPDATE idempotency_inbox SET done_at = 'infinity' WHERE key = 'one'").await.unwrap();
    let settings = BackfillSettings::new("consumer");
    let backfill = Backfill::new(MemoryStore::default(), database("postgres-with-rows"), settings);
    let (progress, end) = backfill.run(BackfillStart::Oldest, None, |_| ()).await.unwrap();
    assert_eq!((progress.copied, end), (2, BackfillEnd::Done));
}

#[tokio::test(start_paused = true)]
async fn since_version_17_a_transaction_has_a_timeout() {
    deterministic::begin();
    let server = Server::start("postgres-17");
    let begin = async || {
        let stream = network::connect(&network::address("postgres-17", "test")).await.unwrap();
        Client::begin(Box::new(stream), "test").await
    };
    let mut old = begin().await;
    old.send("BEGIN; SET LOCAL transaction_timeout = 300").await;
    assert_eq!(old.replies().await, "BEGIN, ERROR 42704, E");
    server.configure("17.2", None::<fn(&str, &str) -> bool>, 100);
    let (mut idle, mut busy) = (begin().await, begin().await);
    idle.send("BEGIN; SET LOCAL transaction_timeout = 300").await;
    assert_eq!((idle.replies().await, idle.replies().await), ("BEGIN, SET, T".into(), "FATAL 25P04, closed".into()));
    busy.send("BEGIN; SET LOCAL transaction_timeout = 300; SELECT pg_sleep(1)").await;
    assert_eq!(busy.replies().await, "BEGIN, SET, FATAL 25P04, closed");
    assert_eq!(server.sessions(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_host_that_accepts_writes_is_used() {
    deterministic::begin();
    dial_postgres();
    let (standby, primary) = (Server::start("postgres-standby"), Server::start("postgres-primary"));
    standby.set_read_only(true);
    let hosts = ["postgres-standby", "postgres-primary"].map(|host| network::address(host, "function")).join(",");
    let url = format!("postgres://app@{hosts}/inbox?sslmode=disable").parse().unwrap();
    let database = Database::new(&DatabaseSettings::new(url));
    let inbox = Inbox::new(Effect, database, InboxSettings::new("consumer"));
    inbox.run(&idempotent_sqs_testing::claim("one"), "payload").await.unwrap();
    assert_eq!((standby.effects().len(), primary.effects().len()), (0, 1));
}
