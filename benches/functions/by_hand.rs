//! What the ledger is held against: the same transactions, statement by statement, made by hand with the same
//! driver, as many at once. There is no Redis, and nothing ends a transaction but its client.
//!
//! With `INBOX=false` they are the bookings alone: a redelivery is only kept off by its account's sequence.

#[allow(dead_code, reason = "only what is read is of use here")]
#[path = "../../src/bin/ledger/event.rs"]
mod event;

use std::sync::Mutex;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use event::{Event, Kind};
use futures_util::{StreamExt, TryStreamExt, stream};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

/// As the inbox's own, which is sent before its begin is known to have succeeded, and guards against that.
const INSERT: &str = "INSERT INTO idempotency_inbox (namespace, key, fingerprint, fence, attempts) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (namespace, key) DO NOTHING";

/// Likewise.
const FINISH: &str = "UPDATE idempotency_inbox SET result = $3 \
     WHERE namespace = $1 AND key = $2 AND xmin = pg_current_xact_id()::xid";

/// As the ledger's own.
const APPLY: &str = "WITH applied AS ( \
       UPDATE ledger_account SET balance = balance + $5::bigint, last_sequence_id = $6 \
        WHERE account_id = $3 AND last_sequence_id < $6 \
          AND balance::numeric + $5::bigint BETWEEN lowest_balance AND 9223372036854775807 \
       RETURNING balance) \
     INSERT INTO ledger_audit \
       (outcome, idempotency_key, message_id, account_id, event_id, sequence_id, type, amount, fence, balance) \
     SELECT 'APPLIED', $1, $2, $3, $4, $6, $7, $8, $9, balance FROM applied RETURNING balance";

/// A connection, and what is prepared on it.
struct Connection {
    client: Client,
    apply: Statement,
    /// To insert into the inbox, and to finish there, if there is to be one.
    inbox: Option<(Statement, Statement)>,
}

/// Those that nobody is using now.
type Connections = Mutex<Vec<Connection>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::tracing::init_default_subscriber();
    let at_once: usize = std::env::var("BATCH_CONCURRENCY")?.parse()?;
    let url = std::env::var("DATABASE_URL")?;
    let has_inbox = std::env::var("INBOX").map_or(true, |inbox| inbox != "false");
    let mut connections = Vec::new();
    for _ in 0..at_once {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        tokio::spawn(connection);
        let inbox = if has_inbox { Some((client.prepare(INSERT).await?, client.prepare(FINISH).await?)) } else { None };
        connections.push(Connection { apply: client.prepare(APPLY).await?, client, inbox });
    }
    let connections = Mutex::new(connections);
    lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| answer(event.payload, &connections, at_once))).await
}

async fn answer(event: SqsEvent, connections: &Connections, at_once: usize) -> Result<SqsBatchResponse, Error> {
    stream::iter(event.records)
        .map(|message| async {
            let taken = connections.lock().map_err(|_| "a thread panicked")?.pop();
            let mut connection = taken.ok_or("a connection for each that is at work")?;
            book(&mut connection, message).await?;
            connections.lock().map_err(|_| "a thread panicked")?.push(connection);
            Ok::<_, Error>(())
        })
        .buffer_unordered(at_once)
        .try_collect::<()>()
        .await?;
    Ok(SqsBatchResponse::default())
}

async fn book(Connection { client, apply, inbox }: &mut Connection, message: SqsMessage) -> Result<(), Error> {
    let event = Event::read(&message.body.unwrap_or_default())?;
    let id = message.message_id.unwrap_or_default();
    let kind = match event.kind {
        Kind::Debit => "DEBIT",
        Kind::Credit => "CREDIT",
    };
    let Event { id: event_id, account_id, amount, sequence_id, .. } = &event;
    let transaction = client.transaction().await?;
    if let Some((insert, _)) = inbox {
        let nothing_to_compare = [0_u8; 16].as_slice();
        let row: [&(dyn ToSql + Sync); 5] = [&"by hand", event_id, &nothing_to_compare, &0_i64, &1_i16];
        if transaction.execute(&*insert, &row).await? == 0 {
            return Ok(());
        }
    }
    let change = event.change();
    let parameters: [&(dyn ToSql + Sync); 9] =
        [event_id, &id, account_id, event_id, &change, sequence_id, &kind, amount, &0_i64];
    let balance: i64 = transaction.query_one(&*apply, &parameters).await?.get("balance");
    if let Some((_, finish)) = inbox {
        let result = format!(r#"{{"outcome":"APPLIED","balance":{balance}}}"#).into_bytes();
        transaction.execute(&*finish, &[&"by hand", event_id, &result]).await?;
    }
    transaction.commit().await?;
    Ok(())
}
