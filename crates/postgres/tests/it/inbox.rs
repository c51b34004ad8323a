//! The inbox: works whose effects are rows of a database.

/// Commits whose replies are lost, and attempts that are used up.
mod commits;
/// A connection that breaks or goes silent, a server that restarts, TLS, and who gets in.
mod connections;
/// Keys and namespaces in a database that is not of UTF-8.
mod encoding;
/// What goes wrong within the transaction, and how it is told.
mod failures;
/// What goes wrong and is not the message's fault.
mod no_attempt;
/// Once: two runners, crashes at every step, a commit without an answer.
mod once;
/// How many connections there are, and who waits for one.
mod pool;
/// Failures for good, and their notes.
mod refusals;
/// Old rows, keys of every kind, and the migration.
mod rows;
/// What a session keeps from one message to the next.
mod sessions;
/// Rows that a work has committed by itself.
mod unfinished;
/// The store forgets, is wrong about the time, or is out of reach.
mod without_redis;

use harness::with;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use idempotent_sqs::idempotency::{
    Attempt, Claim, Deadline, Delivery, Failure, Fingerprint, Idempotency, Key, Outcome, Policy, Report, Store,
    StoreError, Work, WorkError,
};
use idempotent_sqs::sqs::Message;
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_postgres::{Database, Inbox, InboxSettings, Transaction, TransactionalWork};
use tokio::sync::Notify;
use tokio::time::Instant;

use harness::postgres::{Base, database};

const SECOND: Duration = Duration::from_secs(1);

/// What an invocation has by default here.
const TIME: Duration = Duration::from_secs(60);

const ROWS: &str = "SELECT count(*) FROM idempotency_inbox";
const EFFECTS: &str = "SELECT count(*) FROM effects";

/// A database with the inbox, and with a table that holds as many rows as there were effects.
async fn base() -> Base {
    let base = Base::with_inbox().await;
    base.client.batch_execute("CREATE TABLE effects (key text NOT NULL, fence bigint NOT NULL)").await.unwrap();
    base
}

/// A work that takes effect in the table of effects, before or after which it may be held or may fail.
#[derive(Clone, Default)]
struct Pay {
    before: Option<Arc<Gate>>,
    after: Option<Arc<Gate>>,
    fails: Option<fn() -> WorkError>,
    also: Option<&'static str>,
}

/// A place where a work waits until it is let go.
#[derive(Default)]
struct Gate {
    reached: Notify,
    open: Notify,
}

impl Gate {
    async fn pass(&self) {
        self.reached.notify_one();
        self.open.notified().await;
    }
}

impl TransactionalWork<Message> for Pay {
    async fn run(&self, transaction: &Transaction, claim: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        if let Some(gate) = &self.before {
            gate.pass().await;
        }
        let fence = i64::try_from(claim.fence().0).unwrap();
        transaction
            .execute("INSERT INTO effects (key, fence) VALUES ($1, $2)", &[&claim.key().as_str(), &fence])
            .await?;
        if let Some(statement) = self.also {
            transaction.execute(statement, &[]).await?;
        }
        if let Some(gate) = &self.after {
            gate.pass().await;
        }
        match self.fails {
            Some(fails) => Err(fails()),
            None => Ok(format!("receipt of {}", claim.key()).into_bytes()),
        }
    }
}

fn settings() -> InboxSettings {
    // No step of cleaning unless a test asks for it.
    with!(InboxSettings::default(), namespace = "payments".into(), clean_one_in = NonZeroU32::MAX)
}

fn inbox<W>(work: W, database: Database) -> Inbox<W> {
    Inbox::new(work, database, settings())
}

fn on<S: Store>(store: S) -> Idempotency<S> {
    Idempotency::new(store, Policy::default())
}

/// A store without memories.
fn flushed() -> Idempotency<MemoryStore> {
    on(MemoryStore::default())
}

fn delivery(key: &str) -> Delivery {
    Delivery::new(Key::new(key).unwrap())
        .fingerprint(Fingerprint::of(b"12.50 EUR"))
        .message_id("message-1")
        .deadline(Deadline::within(TIME))
}

async fn run<S: Store, W: Work>(idempotency: &Idempotency<S>, work: &W) -> Report {
    deliver(idempotency, work, "pay_1").await
}

async fn try_run<S: Store, W: Work>(idempotency: &Idempotency<S>, work: &W) -> Result<Report, StoreError> {
    idempotency.run(&delivery("pay_1"), work, &Message::default()).await
}

/// A delivery of this key.
async fn deliver<S: Store, W: Work>(idempotency: &Idempotency<S>, work: &W, key: &str) -> Report {
    idempotency.run(&delivery(key), work, &Message::default()).await.unwrap()
}

fn done(report: &Report) -> &[u8] {
    match &report.outcome {
        Outcome::Done { result } => result,
        other => panic!("{other:?}"),
    }
}

fn duplicate(report: &Report) -> &[u8] {
    match &report.outcome {
        Outcome::Duplicate { result: Some(result) } => result,
        other => panic!("{other:?}"),
    }
}

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
