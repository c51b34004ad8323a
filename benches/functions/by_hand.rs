//! The transactions of the ledger, written by hand: the same statements with the same driver and concurrency, without
//! Redis and without time limits of transactions.
//!
//! With `INBOX=false` only the bookings run. The sequence of each account is then the only protection against a
//! redelivery.

use std::sync::Mutex;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use futures_util::{StreamExt, TryStreamExt, stream};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde::Deserialize;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

/// The inbox's statement without its guard: the inbox sends it before the reply to its BEGIN.
const INSERT: &str = "INSERT INTO idempotency_inbox (namespace, key, fingerprint, fence, attempts) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (namespace, key) DO NOTHING";

/// The inbox's statement without the error that it raises if it affects no row.
const FINISH: &str = "UPDATE idempotency_inbox SET result = $3 \
     WHERE namespace = $1 AND key = $2 AND xmin = pg_current_xact_id()::xid";

/// The ledger's statement.
const APPLY: &str = "WITH applied AS ( \
       UPDATE ledger_account SET balance = balance + $5::bigint, last_sequence_id = $6 \
        WHERE account_id = $3 AND last_sequence_id < $6 \
          AND balance::numeric + $5::bigint BETWEEN lowest_balance AND 9223372036854775807 \
       RETURNING balance) \
     INSERT INTO ledger_audit \
       (outcome, idempotency_key, message_id, account_id, event_id, sequence_id, type, amount, fence, balance) \
     SELECT 'APPLIED', $1, $2, $3, $4, $6, $7, $8, $9, balance FROM applied RETURNING balance";

/// A payment on an account.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payment {
    event_id: String,
    account_id: String,
    amount: i64,
    sequence_id: i64,
    r#type: String,
}

/// A connection and its prepared statements.
struct Connection {
    client: Client,
    apply: Statement,
    /// `INSERT` and `FINISH`, if there is an inbox.
    inbox: Option<(Statement, Statement)>,
}

/// The idle connections.
type Connections = Mutex<Vec<Connection>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::tracing::init_default_subscriber();
    let concurrency: usize = std::env::var("BATCH_CONCURRENCY")?.parse()?;
    let url = std::env::var("DATABASE_URL")?;
    let has_inbox = std::env::var("INBOX").map_or(true, |inbox| inbox != "false");
    let mut connections = Vec::new();
    for _ in 0..concurrency {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        tokio::spawn(connection);
        let inbox = if has_inbox { Some((client.prepare(INSERT).await?, client.prepare(FINISH).await?)) } else { None };
        connections.push(Connection { apply: client.prepare(APPLY).await?, client, inbox });
    }
    let connections = Mutex::new(connections);
    lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| process(event.payload, &connections, concurrency)))
        .await
}

async fn process(event: SqsEvent, connections: &Connections, concurrency: usize) -> Result<SqsBatchResponse, Error> {
    stream::iter(event.records)
        .map(|message| async {
            let idle = connections.lock().map_err(|_| "a thread panicked")?.pop();
            let mut connection = idle.ok_or("all connections are in use")?;
            book(&mut connection, message).await?;
            connections.lock().map_err(|_| "a thread panicked")?.push(connection);
            Ok::<_, Error>(())
        })
        .buffer_unordered(concurrency)
        .try_collect::<()>()
        .await?;
    Ok(SqsBatchResponse::default())
}

async fn book(Connection { client, apply, inbox }: &mut Connection, message: SqsMessage) -> Result<(), Error> {
    let Payment { event_id, account_id, amount, sequence_id, r#type } =
        &serde_json::from_str(&message.body.unwrap_or_default())?;
    let id = message.message_id.unwrap_or_default();
    let change = if r#type == "DEBIT" { -amount } else { *amount };
    let transaction = client.transaction().await?;
    if let Some((insert, _)) = inbox {
        let fingerprint = [0_u8; 16].as_slice();
        let row: [&(dyn ToSql + Sync); 5] = [&"by hand", event_id, &fingerprint, &0_i64, &1_i16];
        if transaction.execute(&*insert, &row).await? == 0 {
            return Ok(());
        }
    }
    let parameters: [&(dyn ToSql + Sync); 9] =
        [event_id, &id, account_id, event_id, &change, sequence_id, r#type, amount, &0_i64];
    let balance: i64 = transaction.query_one(&*apply, &parameters).await?.get("balance");
    if let Some((_, finish)) = inbox {
        let result = format!(r#"{{"outcome":"APPLIED","balance":{balance}}}"#).into_bytes();
        transaction.execute(&*finish, &[&"by hand", event_id, &result]).await?;
    }
    transaction.commit().await?;
    Ok(())
}
