//! What the fingerprint of a message is computed from.

use std::str::FromStr;

use super::envelope::{self, Form};
use super::json::{Value, is_pointer};
use super::payload::Payload;
use crate::idempotency::Fingerprint;

/// The part of the payload that the fingerprint is computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FingerprintSource {
    /// The whole payload, without the fields in which deliveries of the same notification differ.
    Body,
    /// The values at these JSON Pointers in the payload.
    Pointers(Vec<String>),
    /// No fingerprint: payloads are not compared. A record without one agrees with every payload as long as it lives,
    /// also under a later setting.
    None,
}

/// The kind of content, which is hashed before it, so that content of two kinds never has the same fingerprint.
/// Records store these hashes, so a number must never change its meaning.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum ContentKind {
    /// A payload that is not JSON.
    Text = 1,
    /// A JSON payload in its canonical form.
    Json = Fingerprint::JSON,
    /// The values at some pointers of a JSON payload.
    Pointers = 3,
    /// The fields of an EventBridge event that are the same whenever it is sent.
    EventBridge = 4,
    /// The fields of an S3 notification that are the same whenever it is sent.
    S3 = 5,
}

impl FingerprintSource {
    /// The fingerprint of this payload. JSON is compared by value: numbers by their exact decimal value, regardless of
    /// the order of keys, white space and escapes. Other text is compared byte by byte and never equals JSON.
    #[must_use]
    pub fn compute(&self, payload: &Payload<'_>) -> Fingerprint {
        if *self == Self::None {
            return Fingerprint::NONE;
        }
        let Some(json) = payload.json() else {
            return Fingerprint::of_kind(ContentKind::Text as u8, payload.text().as_bytes());
        };
        let json = json.value();
        match self {
            Self::Pointers(pointers) => values_at(ContentKind::Pointers, [json], pointers),
            Self::Body | Self::None => match payload.form() {
                Form::Plain => Fingerprint::of_kind(ContentKind::Json as u8, json.canonical()),
                Form::EventBridge => values_at(ContentKind::EventBridge, [json], &envelope::EVENT_BRIDGE_CONTENT),
                Form::S3 => {
                    let records = json.get("Records").into_iter().flat_map(Value::items);
                    values_at(ContentKind::S3, records, &envelope::S3_CONTENT)
                }
            },
        }
    }
}

/// The fingerprint of the values at these pointers in each of these objects.
fn values_at<'a>(
    kind: ContentKind,
    objects: impl IntoIterator<Item = Value<'a>>,
    pointers: &[impl AsRef<str>],
) -> Fingerprint {
    let mut values = Vec::new();
    for object in objects {
        object.append_at(pointers, &mut values);
    }
    Fingerprint::of_kind(kind as u8, &values)
}

/// The text is not a [`FingerprintSource`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a fingerprint source: use body, body:/json/pointer,/another or none; a pointer has ~0 for each ~ and ~1 \
     for each / of a name"
)]
pub struct FingerprintSourceError(String);

impl FromStr for FingerprintSource {
    type Err = FingerprintSourceError;

    fn from_str(source: &str) -> Result<Self, FingerprintSourceError> {
        match source.split_once(':') {
            None if source == "body" => Ok(Self::Body),
            None if source == "none" => Ok(Self::None),
            Some(("body", pointers)) if pointers.split(',').map(str::trim).all(is_pointer) => {
                Ok(Self::Pointers(pointers.split(',').map(|pointer| pointer.trim().into()).collect()))
            }
            Some(_) | None => Err(FingerprintSourceError(source.to_owned())),
        }
    }
}
