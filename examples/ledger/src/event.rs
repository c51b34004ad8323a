//! A payment event, read strictly: what is not as it should be is named, and never quoted.

use serde_json::Value;

/// A payment on an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// What makes two events the same.
    pub(crate) id: String,
    pub(crate) account_id: String,
    /// Minor units, above 0.
    pub(crate) amount: i64,
    /// Grows from event to event of an account, from 1.
    pub(crate) sequence_id: i64,
    pub(crate) kind: Kind,
}

/// Which way the money goes, as seen by the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Debit,
    Credit,
}

/// What an event says, each part of it only where it is as it should be.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) event_id: Option<String>,
    pub(crate) account_id: Option<String>,
    pub(crate) amount: Option<i64>,
    pub(crate) sequence_id: Option<i64>,
    pub(crate) kind: Option<Kind>,
}

impl Event {
    /// The event in this body, or a sentence on all that is wrong with it.
    pub(crate) fn read(body: &str) -> Result<Self, String> {
        let parts = Parts::read(body).ok_or("the event is not a JSON object")?;
        match parts {
            Parts {
                event_id: Some(id),
                account_id: Some(account_id),
                amount: Some(amount),
                sequence_id: Some(sequence_id),
                kind: Some(kind),
            } => Ok(Self { id, account_id, amount, sequence_id, kind }),
            incomplete => Err(incomplete.faults().join("; ")),
        }
    }

    /// What it adds to the balance.
    pub(crate) fn change(&self) -> i64 {
        match self.kind {
            Kind::Debit => -self.amount,
            Kind::Credit => self.amount,
        }
    }
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Debit => "DEBIT",
            Self::Credit => "CREDIT",
        }
    }
}

impl Parts {
    /// `None` where it is not an object of JSON.
    pub(crate) fn read(body: &str) -> Option<Self> {
        let Ok(Value::Object(event)) = serde_json::from_str(body) else { return None };
        let text = |name| event.get(name)?.as_str().filter(|text| is_id(text)).map(str::to_owned);
        let whole = |name| event.get(name)?.as_i64().filter(|number| *number > 0);
        let kind = match event.get("type").and_then(Value::as_str) {
            Some("DEBIT") => Some(Kind::Debit),
            Some("CREDIT") => Some(Kind::Credit),
            Some(_) | None => None,
        };
        Some(Self {
            event_id: text("eventId"),
            account_id: text("accountId"),
            amount: whole("amount"),
            sequence_id: whole("sequenceId"),
            kind,
        })
    }

    fn faults(&self) -> Vec<&'static str> {
        let faults = [
            (self.event_id.is_none(), "eventId is no text of 1 to 200 bytes"),
            (self.account_id.is_none(), "accountId is no text of 1 to 200 bytes"),
            (self.amount.is_none(), "amount is no whole number of minor units above 0 that fits 64 bits"),
            (self.sequence_id.is_none(), "sequenceId is no whole number above 0 that fits 64 bits"),
            (self.kind.is_none(), "type is neither DEBIT nor CREDIT"),
        ];
        faults.into_iter().filter(|(is_one, _)| *is_one).map(|(_, fault)| fault).collect()
    }
}

/// PostgreSQL's text holds no NUL, and an id of the ledger's is an entry of an index.
fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 200 && !text.contains('\0')
}
