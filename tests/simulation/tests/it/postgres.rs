//! The simulated PostgreSQL.

use idempotent_sqs::idempotency::Work as _;
use idempotent_sqs::{Claim, WorkError};
use idempotent_sqs_postgres::{Database, DatabaseSettings, Inbox, InboxSettings, Transaction, TransactionalWork};
use simulation::deterministic;
use simulation::postgres::{Server, dial_postgres};

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

fn inbox(server: &str) -> Inbox<Effect> {
    dial_postgres();
    let url = format!("postgres://app@{server}.function/inbox?sslmode=disable").parse().unwrap();
    Inbox::new(Effect, Database::new(&DatabaseSettings::new(url)), InboxSettings::new("consumer"))
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
