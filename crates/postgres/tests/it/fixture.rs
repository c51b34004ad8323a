//! A database with the inbox, work with an effect in it, and deliveries.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use idempotent_sqs::idempotency::{
    Deadline, Delivery, Failure, Fingerprint, Idempotency, Key, Outcome, Policy, Report, Store, StoreError, Work,
};
use idempotent_sqs::{Claim, MemoryStore, Message, WorkError};
use idempotent_sqs_postgres::{Database, DatabaseSettings, Inbox, InboxSettings, Transaction, TransactionalWork};
use tokio::sync::Notify;

use harness::postgres::Base;
use harness::with;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Time of an invocation.
pub(crate) const TIME: Duration = Duration::from_secs(60);

pub(crate) const ROWS: &str = "SELECT count(*) FROM idempotency_inbox";
pub(crate) const EFFECTS: &str = "SELECT count(*) FROM effects";

/// A database with the tables of the inbox, and the table `effects`, which has a row for each effect.
pub(crate) async fn base() -> Base {
    let base = Base::with_inbox().await;
    base.client.batch_execute("CREATE TABLE effects (key text NOT NULL, fence bigint NOT NULL)").await.unwrap();
    base
}

/// A work that inserts a row into `effects`.
#[derive(Clone, Default)]
pub(crate) struct Pay {
    /// Waits here before the effect.
    pub(crate) before: Option<Arc<Gate>>,
    /// Waits here after the effect.
    pub(crate) after: Option<Arc<Gate>>,
    /// Fails with this error after the effect.
    pub(crate) fails: Option<fn() -> WorkError>,
    /// Executes this statement after the effect.
    pub(crate) also: Option<&'static str>,
}

/// Where the work waits until the test opens it.
#[derive(Default)]
pub(crate) struct Gate {
    pub(crate) reached: Notify,
    pub(crate) open: Notify,
}

impl Gate {
    pub(crate) async fn pass(&self) {
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

/// A database that is used over this URL.
pub(crate) fn database(url: &str) -> Database {
    Database::new(&database_settings(url))
}

pub(crate) fn database_settings(url: &str) -> DatabaseSettings {
    with!(DatabaseSettings::new(url.parse().unwrap()), timeout = 5 * SECOND)
}

/// No attempt removes old rows, unless a test changes `cleanup_one_in`.
pub(crate) fn settings() -> InboxSettings {
    with!(InboxSettings::new("payments"), cleanup_one_in = NonZeroU32::MAX)
}

pub(crate) fn inbox<W>(work: W, database: Database) -> Inbox<W> {
    Inbox::new(work, database, settings())
}

pub(crate) fn on<S: Store>(store: S) -> Idempotency<S> {
    Idempotency::new(store, Policy::default())
}

/// An empty store.
pub(crate) fn flushed() -> Idempotency<MemoryStore> {
    on(MemoryStore::default())
}

pub(crate) fn delivery(key: &str) -> Delivery {
    Delivery::new(Key::new(key).unwrap())
        .fingerprint(Fingerprint::of(b"12.50 EUR"))
        .message_id("message-1")
        .deadline(Deadline::within(TIME))
}

pub(crate) async fn run<S: Store, W: Work<Message>>(idempotency: &Idempotency<S>, work: &W) -> Report {
    deliver(idempotency, work, "pay_1").await
}

pub(crate) async fn try_run<S: Store, W: Work<Message>>(
    idempotency: &Idempotency<S>,
    work: &W,
) -> Result<Report, StoreError> {
    idempotency.run(&delivery("pay_1"), work, &Message::default()).await
}

/// Runs the work for a delivery of this key.
pub(crate) async fn deliver<S: Store, W: Work<Message>>(idempotency: &Idempotency<S>, work: &W, key: &str) -> Report {
    idempotency.run(&delivery(key), work, &Message::default()).await.unwrap()
}

pub(crate) fn done(report: &Report) -> &[u8] {
    match &report.outcome {
        Outcome::Done { result } => result,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn duplicate(report: &Report) -> &[u8] {
    match &report.outcome {
        Outcome::Duplicate { result: Some(result) } => result,
        other => panic!("{other:?}"),
    }
}

pub(crate) const CLEAN: Failure = Failure { uncertain: false, permanent: false };

pub(crate) const UNCERTAIN: Failure = Failure { uncertain: true, permanent: false };

pub(crate) const PERMANENT: Failure = Failure { uncertain: false, permanent: true };

pub(crate) fn failure(report: &Report) -> (Failure, String) {
    let (error, uncertain, permanent) = match &report.outcome {
        Outcome::Failed { error, uncertain } => (error, *uncertain, false),
        Outcome::FailedPermanently { error, uncertain } => (error, *uncertain, true),
        other => panic!("{other:?}"),
    };
    (Failure { uncertain, permanent }, error.to_string())
}

/// The reason of an attempt that is not counted, because the message is not at error.
pub(crate) fn unavailable(report: &Report) -> String {
    match &report.outcome {
        Outcome::Unavailable { error } => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// An inbox whose work also executes this statement.
pub(crate) fn also(base: &Base, statement: &'static str) -> Inbox<Pay> {
    inbox(Pay { also: Some(statement), ..Pay::default() }, database(&base.url()))
}
