//! Books an event: updates the account and inserts an audit row, in one transaction.

use idempotent_sqs::{Claim, Message, WorkError};
use idempotent_sqs_postgres::database::{Parameters, Row};
use idempotent_sqs_postgres::{Transaction, TransactionalWork};

use super::event::{Event, Fields, Kind};

/// Books payment events. An event that arrives after a later event of its account is ignored.
#[derive(Debug)]
pub(crate) struct Ledger;

/// One statement, so that the usual case takes one round trip. The sum is a `numeric`, which cannot overflow.
const APPLY: &str = "WITH applied AS ( \
       UPDATE ledger_account SET balance = balance + $5::bigint, last_sequence_id = $6 \
        WHERE account_id = $3 AND last_sequence_id < $6 \
          AND balance::numeric + $5::bigint BETWEEN lowest_balance AND 9223372036854775807 \
       RETURNING balance) \
     INSERT INTO ledger_audit \
       (outcome, idempotency_key, message_id, account_id, event_id, sequence_id, type, amount, fence, balance) \
     SELECT 'APPLIED', $1, $2, $3, $4, $6, $7, $8, $9, balance FROM applied RETURNING balance";

/// Reads why an event was not applied, and locks the account, so that the reason cannot change before the commit.
const NOT_APPLIED: &str = "SELECT last_sequence_id < $2 AS is_next, \
       balance::numeric + $3::bigint >= lowest_balance AS is_covered, \
       balance::numeric + $3::bigint <= 9223372036854775807 AS fits \
     FROM ledger_account WHERE account_id = $1 FOR UPDATE";

const AUDIT: &str = "INSERT INTO ledger_audit \
       (outcome, reason, idempotency_key, message_id, account_id, event_id, sequence_id, type, amount, fence) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING";

const TOO_LATE: &str = "a later event of the account was applied before";

impl TransactionalWork<Message> for Ledger {
    async fn run(&self, transaction: &Transaction, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        let event = Event::parse(message.body()).map_err(WorkError::permanent)?;
        if let Some(balance) = apply(transaction, claim, message, &event).await? {
            return Ok(applied(balance));
        }
        match not_applied(transaction, &event).await? {
            NotApplied::TooLate => {
                audit(transaction, claim, message, "IGNORED", TOO_LATE).await?;
                Ok(br#"{"outcome":"IGNORED"}"#.to_vec())
            }
            NotApplied::Refused(reason) => Err(WorkError::permanent(reason)),
            // The account has changed since the first statement. It is locked by the second query.
            NotApplied::Applicable => match apply(transaction, claim, message, &event).await? {
                Some(balance) => Ok(applied(balance)),
                None => Err(WorkError::retryable("the account was changed by another transaction")),
            },
        }
    }

    async fn record_failure(
        &self,
        transaction: &Transaction,
        claim: &Claim,
        message: &Message,
        why: &WorkError,
    ) -> Result<(), WorkError> {
        audit(transaction, claim, message, "REFUSED", &why.to_string()).await
    }
}

/// Why an event was not applied.
enum NotApplied {
    /// A later event of the account was applied before.
    TooLate,
    /// The event is invalid for the account, for this reason.
    Refused(&'static str),
    /// There is no longer a reason: the event can be applied.
    Applicable,
}

/// Applies the event. Returns the new balance, or `None` if the event was not applied.
async fn apply(
    transaction: &Transaction,
    claim: &Claim,
    message: &Message,
    event: &Event,
) -> Result<Option<i64>, WorkError> {
    let Event { id, account_id, amount, sequence_id, kind } = event;
    let (key, change, kind, fence) = (claim.key().stored(), event.change(), kind.as_str(), fence(claim));
    let parameters: Parameters<'_> = &[&key, &message.id, account_id, id, &change, sequence_id, &kind, amount, &fence];
    Ok(transaction.query_first(APPLY, parameters).await?.map(|row| row.get("balance")))
}

async fn not_applied(transaction: &Transaction, event: &Event) -> Result<NotApplied, WorkError> {
    let Event { account_id, sequence_id, .. } = event;
    let row = transaction.query_first(NOT_APPLIED, &[account_id, sequence_id, &event.change()]).await?;
    let Some(row) = row else { return Ok(NotApplied::Refused("the account does not exist")) };
    let is = |name: &str| Row::get::<_, bool>(&row, name);
    Ok(match (is("is_next"), is("is_covered"), is("fits")) {
        (false, _, _) => NotApplied::TooLate,
        (true, false, _) => NotApplied::Refused("the balance would fall below the lowest balance of the account"),
        (true, true, false) => NotApplied::Refused("the balance would exceed 9223372036854775807 minor units"),
        (true, true, true) => NotApplied::Applicable,
    })
}

/// Inserts an audit row, with those fields of the event that are valid.
async fn audit(
    transaction: &Transaction,
    claim: &Claim,
    message: &Message,
    outcome: &str,
    reason: &str,
) -> Result<(), WorkError> {
    let Fields { event_id, account_id, amount, sequence_id, kind } = Fields::parse(message.body()).unwrap_or_default();
    let (key, kind, fence) = (claim.key().stored(), kind.map(Kind::as_str), fence(claim));
    let parameters: Parameters<'_> =
        &[&outcome, &reason, &key, &message.id, &account_id, &event_id, &sequence_id, &kind, &amount, &fence];
    transaction.execute(AUDIT, parameters).await?;
    Ok(())
}

fn applied(balance: i64) -> Vec<u8> {
    format!(r#"{{"outcome":"APPLIED","balance":{balance}}}"#).into_bytes()
}

/// The fence as a column. In microseconds since 1970 it is far below the limit.
fn fence(claim: &Claim) -> i64 {
    i64::try_from(claim.fence().0).unwrap_or(i64::MAX)
}
