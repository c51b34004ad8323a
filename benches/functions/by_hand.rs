//! What the ledger is held against: the same bookings, each in a transaction made by hand with the same
//! driver, as many at once. There is no inbox and no Redis, so that a redelivery is only kept off by its
//! account's sequence.

#[allow(dead_code, reason = "only what is read is of use here")]
#[path = "../../src/bin/ledger/event.rs"]
mod event;

use std::sync::Mutex;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use event::{Event, Kind};
use futures_util::{StreamExt, TryStreamExt, stream};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use tokio_postgres::{Client, NoTls, Statement};

/// As the ledger's own.
const APPLY: &str = "WITH applied AS ( \
       UPDATE ledger_account SET balance = balance + $5::bigint, last_sequence_id = $6 \
        WHERE account_id = $3 AND last_sequence_id < $6 \
          AND balance::numeric + $5::bigint BETWEEN lowest_balance AND 9223372036854775807 \
       RETURNING balance) \
     INSERT INTO ledger_audit \
       (outcome, idempotency_key, message_id, account_id, event_id, sequence_id, type, amount, fence, balance) \
     SELECT 'APPLIED', $1, $2, $3, $4, $6, $7, $8, $9, balance FROM applied RETURNING balance";

/// Connections that nobody is using now, each with the statement prepared on it.
type Connections = Mutex<Vec<(Client, Statement)>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::tracing::init_default_subscriber();
    let at_once: usize = std::env::var("BATCH_CONCURRENCY")?.parse()?;
    let url = std::env::var("DATABASE_URL")?;
    let mut connections = Vec::new();
    for _ in 0..at_once {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        tokio::spawn(connection);
        let statement = client.prepare(APPLY).await?;
        connections.push((client, statement));
    }
    let connections = Mutex::new(connections);
    lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| answer(event.payload, &connections, at_once))).await
}

async fn answer(event: SqsEvent, connections: &Connections, at_once: usize) -> Result<SqsBatchResponse, Error> {
    stream::iter(event.records)
        .map(|message| async {
            let taken = connections.lock().map_err(|_| "a thread panicked")?.pop();
            let (mut client, statement) = taken.ok_or("a connection for each that is at work")?;
            book(&mut client, &statement, message).await?;
            connections.lock().map_err(|_| "a thread panicked")?.push((client, statement));
            Ok::<_, Error>(())
        })
        .buffer_unordered(at_once)
        .try_collect::<()>()
        .await?;
    Ok(SqsBatchResponse::default())
}

async fn book(client: &mut Client, statement: &Statement, message: SqsMessage) -> Result<(), Error> {
    let event = Event::read(&message.body.unwrap_or_default())?;
    let id = message.message_id.unwrap_or_default();
    let kind = match event.kind {
        Kind::Debit => "DEBIT",
        Kind::Credit => "CREDIT",
    };
    let Event { id: event_id, account_id, amount, sequence_id, .. } = &event;
    let transaction = client.transaction().await?;
    transaction
        .query_one(
            statement,
            &[event_id, &id, account_id, event_id, &event.change(), sequence_id, &kind, amount, &0_i64],
        )
        .await?;
    transaction.commit().await?;
    Ok(())
}
