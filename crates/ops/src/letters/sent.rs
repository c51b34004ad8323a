//! What a redrive has sent, to recognize letters that come back.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasher;

use aws_sdk_sqs::primitives::Blob;

use super::letter::Letter;
use super::resend::{KeyChange, attributes};
use super::scan::Progress;

/// The messages that a run has sent. A letter of one of them came into the queue during the run: its message failed
/// again. Without this check, it would be sent again and again.
///
/// The clock of this machine is not used, because it may be ahead of SQS's.
#[derive(Default)]
pub(crate) struct Sent {
    /// The messageIds that SQS returned. The description of a letter and the redrive policy keep them.
    ids: HashSet<String>,
    /// The hash of each content that was sent, and how far the scan had come then: for letters whose original messageId
    /// is not known.
    contents: HashMap<u64, Progress>,
    /// Those of the sends without a reply: their messageIds are not known.
    unconfirmed: HashMap<u64, Progress>,
    hasher: RandomState,
}

impl Sent {
    /// Takes note of a message that was sent for this letter, or may have been, when the scan had come so far.
    pub(crate) fn add(&mut self, letter: &Letter, key: KeyChange, id: Option<String>, progress: Progress) {
        let content = self.content(letter, key);
        self.contents.entry(content).or_insert(progress);
        if id.is_none() {
            self.unconfirmed.entry(content).or_insert(progress);
        }
        self.ids.extend(id);
    }

    /// Number of messages that SQS accepted.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether this is a letter of a message that was sent.
    pub(crate) fn contains(&self, letter: &Letter) -> bool {
        let has_id = |id: &str| self.ids.contains(id);
        if has_id(letter.id()) || letter.original_id().is_some_and(has_id) {
            return true;
        }
        let contents = if letter.original_id().is_some() { &self.unconfirmed } else { &self.contents };
        // Another letter may have the same content. It was in the queue when that content was sent if it had been
        // received by then, or if it is older than the latest time that SQS had shown.
        let sent = contents.get(&self.content(letter, KeyChange::None));
        sent.is_some_and(|Progress { receives, shown }| letter.receive > *receives && letter.sent() >= *shown)
    }

    /// A hash of the body and the attributes of the message that is sent for this letter.
    fn content(&self, letter: &Letter, key: KeyChange) -> u64 {
        let attributes = attributes(letter, key).into_iter().map(|(name, value)| {
            let bytes = value.binary_value.map(Blob::into_inner);
            (name, (value.data_type, value.string_value, bytes))
        });
        self.hasher.hash_one((letter.message.body(), attributes.collect::<BTreeMap<_, _>>()))
    }
}
