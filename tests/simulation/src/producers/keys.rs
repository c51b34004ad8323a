//! The keys of messages, and where the function finds them.

use super::{Form, Payment, Place, Producer};
use crate::sent::SentKey;

/// Zeros that are written instead of an exponent, at most: docs of `Number::write_canonical`.
const MAX_ZEROS: usize = 20;

/// A key that is a number, as the function writes it.
fn numeral(number: u64, seed: u64) -> String {
    let (zeros, more) = ("0".repeat(MAX_ZEROS), "0".repeat(MAX_ZEROS - 1));
    match (number / 3 + seed) % 9 {
        _ if number == 0 => "0".to_owned(),
        0 => format!("-{number}7"),
        1 => format!("0.{number}7"),
        2 => format!("-0.{zeros}{number}7"),
        3 => format!("{number}7{zeros}"),
        4 => format!("{number}7e21"),
        5 => format!("{number}7e-99"),
        6 => format!("{number}.{more}7"),
        7 => format!("-{number}7e99999"),
        _ => format!("{number}7"),
    }
}

impl Producer<'_> {
    /// The text of a key. In a cluster, keys share a few slots, so several keys of a batch are in a slot that moves.
    pub(super) fn name(&mut self, number: u64) -> String {
        let tag = if self.plan.servers > 1 { format!("{{{}}}", number % 3) } else { String::new() };
        let choice = self.rng.draw(0..12);
        if self.plan.has_rare && number.is_multiple_of(3) {
            return numeral(number, self.plan.seed);
        }
        if self.plan.has_extras && self.extras.happens(200) {
            let start = *self.extras.pick(&["sha256:", "dead-letter:", "nul-\0-"]);
            return format!("{start}{number}");
        }
        match choice {
            0 if self.plan.has_forms => (1000 + number).to_string(),
            1 if self.plan.has_forms => format!("dead-letter:{number}"),
            2 if self.plan.has_forms => format!("pay-{number}-{}", "ö".repeat(120)),
            _ => format!("pay-{number}{tag}"),
        }
    }

    /// Where the function finds the key: by default in the attribute or the messageId, and in plans with forms also in
    /// the payload or the deduplicationId, which is passed with its group.
    pub(super) fn key(&self, number: u64, payment: Payment, key: &str) -> SentKey {
        let Payment { number: paid, form, place, object, forwarded, .. } = payment;
        let is_json = !matches!(form, Form::Text | Form::BrokenJson);
        match place {
            // It is no notification, so its attributes are not those of the message.
            _ if form == Form::SnsTwice && self.plan.fifo => SentKey::DeduplicationId,
            _ if form == Form::SnsTwice => SentKey::MessageId,
            // A notification in the payload may have another key.
            Place::Attribute if object.is_unreadable() && !payment.has_key_beside_pointer() => SentKey::Unusable,
            Place::Attribute => SentKey::Text(key.to_owned()),
            Place::Bytes => SentKey::Unusable,
            // The key may be in the payload.
            _ if self.plan.has_forms && (object.is_unreadable() || form == Form::BrokenJson) => SentKey::Unusable,
            Place::Payload if is_json => SentKey::Text(key.to_owned()),
            Place::Flag if is_json => SentKey::Unusable,
            _ if self.plan.fifo && self.plan.has_forms => SentKey::DeduplicationId,
            _ => match form {
                Form::Sns | Form::InS3FromSns => SentKey::Text(format!("notification-{paid}")),
                Form::EventBridge => SentKey::Text(format!("event-{paid}")),
                Form::S3Notification if let Some(id) = payment.s3_event(self.plan.has_extras).id() => SentKey::Text(id),
                // These have no id of their own.
                _ if forwarded > 0 => SentKey::Text(format!("forwarded-{number}-0")),
                _ => SentKey::MessageId,
            },
        }
    }
}
