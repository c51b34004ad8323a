//! The bookings: a balance, the sequence that it is at, and the audit of it, all in one transaction.

use idempotent_sqs::{Claim, Message, WorkError};
use idempotent_sqs_postgres::database::{Parameters, Row};
use idempotent_sqs_postgres::{Transaction, TransactionalWork};

use super::event::{Event, Kind, Parts};

/// Books payment events. An event that is overtaken by a later one of its account is ignored.
#[derive(Debug)]
pub(crate) struct Ledger;

/// One statement, so that the usual case is one round trip. The sum is taken where it cannot overflow.
const APPLY: &str = "WITH applied AS ( \
       UPDATE ledger_account SET balance = balance + $5::bigint, last_sequence_id = $6 \
        WHERE account_id = $3 AND last_sequence_id < $6 \
          AND balance::numeric + $5::bigint BETWEEN lowest_balance AND 9223372036854775807 \
       RETURNING balance) \
     INSERT INTO ledger_audit \
       (outcome, idempotency_key, message_id, account_id, event_id, sequence_id, type, amount, fence, balance) \
     SELECT 'APPLIED', $1, $2, $3, $4, $6, $7, $8, $9, balance FROM applied RETURNING balance";

/// Locks the account, so that what is found here stays so.
const WHY_NOT: &str = "SELECT last_sequence_id < $2 AS is_next, \
       balance::numeric + $3::bigint >= lowest_balance AS is_covered, \
       balance::numeric + $3::bigint <= 9223372036854775807 AS fits \
     FROM ledger_account WHERE account_id = $1 FOR UPDATE";

const NOTE: &str = "INSERT INTO ledger_audit \
       (outcome, reason, idempotency_key, message_id, account_id, event_id, sequence_id, type, amount, fence) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING";

const OVERTAKEN: &str = "a later event of the account was applied before";

impl TransactionalWork<Message> for Ledger {
    async fn run(&self, transaction: &Transaction, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        let event = Event::read(message.body()).map_err(WorkError::permanent)?;
        if let Some(balance) = apply(transaction, claim, message, &event).await? {
            return Ok(applied(balance));
        }
        match why_not(transaction, &event).await? {
            WhyNot::Overtaken => {
                note(transaction, claim, message, "IGNORED", OVERTAKEN).await?;
                Ok(br#"{"outcome":"IGNORED"}"#.to_vec())
            }
            WhyNot::Hopeless(reason) => Err(WorkError::permanent(reason)),
            // The account was changed after the first look, and is locked since the second.
            WhyNot::NoMore => match apply(transaction, claim, message, &event).await? {
                Some(balance) => Ok(applied(balance)),
                None => Err(WorkError::retryable("the account was changed in between")),
            },
        }
    }

    async fn refused(
        &self,
        transaction: &Transaction,
        claim: &Claim,
        message: &Message,
        why: &WorkError,
    ) -> Result<(), WorkError> {
        note(transaction, claim, message, "REFUSED", &why.to_string()).await
    }
}

/// Why an event was not applied.
enum WhyNot {
    /// The account is past it.
    Overtaken,
    /// It would not be applied later either.
    Hopeless(&'static str),
    /// It would be applied now.
    NoMore,
}

/// The new balance, or `None` where it was not applied.
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

async fn why_not(transaction: &Transaction, event: &Event) -> Result<WhyNot, WorkError> {
    let Event { account_id, sequence_id, .. } = event;
    let row = transaction.query_first(WHY_NOT, &[account_id, sequence_id, &event.change()]).await?;
    let Some(row) = row else { return Ok(WhyNot::Hopeless("there is no such account")) };
    let holds = |name: &str| Row::get::<_, bool>(&row, name);
    Ok(match (holds("is_next"), holds("is_covered"), holds("fits")) {
        (false, _, _) => WhyNot::Overtaken,
        (true, false, _) => WhyNot::Hopeless("the account would be overdrawn"),
        (true, true, false) => WhyNot::Hopeless("the balance would be more than can be counted"),
        (true, true, true) => WhyNot::NoMore,
    })
}

/// What the event says of itself is noted as far as it can be read.
async fn note(
    transaction: &Transaction,
    claim: &Claim,
    message: &Message,
    outcome: &str,
    reason: &str,
) -> Result<(), WorkError> {
    let Parts { event_id, account_id, amount, sequence_id, kind } = Parts::read(message.body()).unwrap_or_default();
    let (key, kind, fence) = (claim.key().stored(), kind.map(Kind::as_str), fence(claim));
    let parameters: Parameters<'_> =
        &[&outcome, &reason, &key, &message.id, &account_id, &event_id, &sequence_id, &kind, &amount, &fence];
    transaction.execute(NOTE, parameters).await?;
    Ok(())
}

fn applied(balance: i64) -> Vec<u8> {
    format!(r#"{{"outcome":"APPLIED","balance":{balance}}}"#).into_bytes()
}

/// In microseconds since 1970 it is far from the limit.
fn fence(claim: &Claim) -> i64 {
    i64::try_from(claim.fence().0).unwrap_or(i64::MAX)
}
