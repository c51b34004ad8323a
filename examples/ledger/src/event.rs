//! Parses payment events. The errors name the invalid fields and never contain their values.

use serde_json::Value;

/// A payment on an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Two events with the same id are the same payment.
    pub(crate) id: String,
    pub(crate) account_id: String,
    /// Minor units (cents), at least 1.
    pub(crate) amount: i64,
    /// Position among the events of the account, from 1.
    pub(crate) sequence_id: i64,
    pub(crate) kind: Kind,
}

/// Whether the balance decreases or increases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Debit,
    Credit,
}

/// The fields of an event. Those that are missing or invalid are `None`.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    pub(crate) event_id: Option<String>,
    pub(crate) account_id: Option<String>,
    pub(crate) amount: Option<i64>,
    pub(crate) sequence_id: Option<i64>,
    pub(crate) kind: Option<Kind>,
}

impl Event {
    /// Parses a message body. The error names all invalid fields.
    pub(crate) fn parse(body: &str) -> Result<Self, String> {
        let fields = Fields::parse(body).ok_or("the body is not a JSON object")?;
        match fields {
            Fields {
                event_id: Some(id),
                account_id: Some(account_id),
                amount: Some(amount),
                sequence_id: Some(sequence_id),
                kind: Some(kind),
            } => Ok(Self { id, account_id, amount, sequence_id, kind }),
            incomplete => Err(incomplete.errors().join("; ")),
        }
    }

    /// The change of the balance.
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

impl Fields {
    /// Returns `None` if the body is not a JSON object.
    pub(crate) fn parse(body: &str) -> Option<Self> {
        let Ok(Value::Object(event)) = serde_json::from_str(body) else { return None };
        let text = |name| event.get(name)?.as_str().filter(|text| is_id(text)).map(str::to_owned);
        let positive = |name| event.get(name)?.as_i64().filter(|number| *number > 0);
        let kind = match event.get("type").and_then(Value::as_str) {
            Some("DEBIT") => Some(Kind::Debit),
            Some("CREDIT") => Some(Kind::Credit),
            Some(_) | None => None,
        };
        Some(Self {
            event_id: text("eventId"),
            account_id: text("accountId"),
            amount: positive("amount"),
            sequence_id: positive("sequenceId"),
            kind,
        })
    }

    fn errors(&self) -> Vec<&'static str> {
        let errors = [
            (self.event_id.is_none(), "eventId is not a string of 1 to 200 bytes"),
            (self.account_id.is_none(), "accountId is not a string of 1 to 200 bytes"),
            (self.amount.is_none(), "amount is not a whole number of minor units from 1 to 9223372036854775807"),
            (self.sequence_id.is_none(), "sequenceId is not a whole number from 1 to 9223372036854775807"),
            (self.kind.is_none(), "type is neither DEBIT nor CREDIT"),
        ];
        errors.into_iter().filter(|(is_invalid, _)| *is_invalid).map(|(_, error)| error).collect()
    }
}

/// A `text` of PostgreSQL cannot contain NUL, and ids are indexed, which limits their length.
fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 200 && !text.contains('\0')
}
