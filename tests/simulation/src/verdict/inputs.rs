//! Whether each run has the key and the payload of its message, and each payload its fingerprint; and whether malformed
//! records affect only their own messages.

use std::collections::{BTreeMap, BTreeSet};

use history::Hex;
use idempotent_sqs::sqs::{AttributeValue, DeadLetter, MessageAttribute};
use serde_json::Value;

use crate::producers::POINTER_ATTRIBUTES;
use crate::sent::Sent;
use crate::work::Attempt;
use crate::world::Run;

impl Run {
    /// What is wrong with what runs of the work were passed.
    pub(super) fn wrong_inputs(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut fingerprints: BTreeMap<u64, BTreeSet<Hex<16>>> = BTreeMap::new();
        for run in &self.attempts {
            if self.expected_key(&run.message_id).as_ref() != Some(&run.key) {
                wrong.push(format!("{}: this is not the key of the message: {run:?}", run.key));
            }
            let Some(sent) = self.sent(&run.message_id) else { continue };
            if !is_equal(&run.input, &sent.input) {
                wrong.push(format!("{}: not {:?}: {run:?}", run.key, sent.input));
            }
            if attributes_of(run) != work_attributes(sent) {
                wrong.push(format!("{}: not the attributes {:?}: {run:?}", run.key, work_attributes(sent)));
            }
            if run.fingerprint != Hex([0; 16]) {
                fingerprints.entry(sent.same_content.unwrap_or(sent.payment)).or_default().insert(run.fingerprint);
            }
        }
        let mut payments = BTreeMap::new();
        for (payment, fingerprints) in fingerprints {
            // A payload may contain its key, and so differ under another one.
            if !self.plan.has_forms && fingerprints.len() > 1 {
                wrong.push(format!("payment {payment} has several fingerprints: {fingerprints:?}"));
            }
            for fingerprint in fingerprints {
                if let Some(other) = payments.insert(fingerprint, payment) {
                    wrong.push(format!("payments {other} and {payment} have the same fingerprint"));
                }
            }
        }
        wrong
    }

    /// Messages whose record was malformed, or not named, and that ran or were acknowledged nevertheless.
    pub(super) fn wrong_malformed(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for invoked in &self.invocations {
            let ran = |id: &String| self.runs_of(invoked).any(|run| run.message_id == *id);
            let is_retained = |id: &String| invoked.retained.as_ref().is_none_or(|retained| retained.contains(id));
            for id in invoked.malformed.messages.iter().filter(|id| ran(id) || !is_retained(id)) {
                wrong.push(format!("{id}: its record was malformed, and it ran or is not delivered again"));
            }
            if invoked.malformed.has_unnamed {
                let ids: Vec<_> = invoked.messages.iter().map(|message| &message.message_id).collect();
                if invoked.retained.is_some() || ids.iter().any(|id| ran(id)) {
                    wrong.push(format!("a record of {ids:?} had no messageId, and the invocation succeeded"));
                }
            }
        }
        wrong
    }
}

/// The attributes that a run was passed. A dead letter that was moved back has its reason too, and an event may have
/// one that cannot be read.
fn attributes_of(run: &Attempt) -> BTreeMap<String, MessageAttribute> {
    let mut attributes = run.attributes.clone();
    attributes.retain(|name, attribute| name != DeadLetter::ATTRIBUTE && attribute.value != AttributeValue::Unreadable);
    attributes
}

/// The attributes of a message, without those of the pointer if its payload is in S3.
fn work_attributes(sent: &Sent) -> BTreeMap<String, MessageAttribute> {
    let is_of_pointer = |name: &str| sent.object.is_some() && POINTER_ATTRIBUTES.contains(&name);
    let attributes = sent.attributes.clone().into_iter();
    attributes.filter(|(name, _)| !is_of_pointer(name)).collect()
}

/// Whether two bodies are the same text, or the same JSON.
fn is_equal(body: &str, other: &str) -> bool {
    let json = |text| serde_json::from_str::<Value>(text).ok();
    body == other || json(body).is_some_and(|body| json(other) == Some(body))
}
