//! The notifications of S3.

use sha2::{Digest, Sha256};

use super::{Form, Payment, Place};
use crate::sent::hex;

/// Values of a notification, in one of which an imitation differs. The first one is the sequencer or the id of the
/// request; some have neither.
const OF_S3: [&str; 4] = ["0055AED6", "e", "orders", "Put"];

/// What a notification of S3 says.
pub(super) struct S3Event {
    /// Its sequencer, or the id of its request.
    pub(super) sequence: Option<String>,
    /// Whether it has the id of its request, and no sequencer.
    pub(super) has_request: bool,
    pub(super) e_tag: String,
    pub(super) bucket: String,
    pub(super) name: String,
    pub(super) object: String,
}

impl S3Event {
    /// Whether only the sequencer or the request is that of another event.
    pub(super) fn is_later(&self) -> bool {
        self.sequence.as_ref().is_some_and(|sequence| sequence != OF_S3[0])
    }

    /// The key of a notification with a sequencer or a request, a hash of what identifies it: docs/envelopes.md.
    pub(super) fn id(&self) -> Option<String> {
        let identity = [self.sequence.as_ref()?, &self.name, &self.bucket, &self.object];
        let form = |text: &String| [&[b'"', u8::try_from(text.len()).unwrap_or_default()], text.as_bytes()].concat();
        let mut forms: Vec<u8> = identity.into_iter().flat_map(form).collect();
        // It has no version.
        forms.push(b'n');
        Some(format!("s3-{}", &hex(&Sha256::digest(forms))[..32]))
    }
}

impl Payment {
    pub(super) fn s3_event(&self, has_extras: bool) -> S3Event {
        let [sequence, e_tag, bucket, name] = OF_S3;
        let imitated = self.imitated.unwrap_or(self.number);
        let field =
            |name: &'static str| if self.form == Form::S3Twice { name.to_owned() } else { self.field(name, &OF_S3) };
        // These are not compared. So an imitation differs in them only if they are part of its key.
        let has_sequence = has_extras && imitated.is_multiple_of(2) && self.place == Place::Nowhere;
        let e_tag = match field(sequence) {
            differs if differs != sequence && !has_sequence => differs,
            _ => field(e_tag),
        };
        S3Event {
            sequence: has_sequence.then(|| field(sequence)),
            has_request: imitated.is_multiple_of(4),
            e_tag,
            bucket: field(bucket),
            name: field(name),
            object: format!("payment-{imitated}"),
        }
    }
}
