//! What S3 returns for an object.
//!
//! Errors of S3: <https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>. Delete markers:
//! <https://docs.aws.amazon.com/AmazonS3/latest/userguide/DeleteMarker.html>

use history::{ObjectAnswer, ObjectBody, StoredPayload};

/// The setting `PAYLOAD_MAX_BYTES` of the functions.
pub(in crate::torture) const LIMIT: usize = 3000;

/// An object, and the answers to the requests for it.
#[derive(Debug)]
pub(in crate::torture) struct Plan {
    pub(in crate::torture) name: Name,
    pub(in crate::torture) text: Text,
    /// The answers to the first requests.
    pub(in crate::torture) first: &'static [Reply],
    /// The answer to all others.
    pub(in crate::torture) then: Reply,
    /// Whether the key of the message is an attribute. Otherwise it is in the payload.
    pub(in crate::torture) has_attribute: bool,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::torture) enum Name {
    Plain,
    /// Characters that are escaped in a URL.
    Escaped,
    /// Empty segments.
    Slashes,
    /// A name in a bucket that is not allowed.
    OtherBucket,
    /// Its segments lead to another bucket.
    Above,
    /// Its segments lead to another object.
    Beside,
    /// It has a segment that a URL does not keep.
    Dot,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::torture) enum Text {
    Short,
    Empty,
    /// As large as a payload may be.
    Largest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::torture) enum Reply {
    /// The object, with its length.
    Whole,
    /// The object in chunks.
    Chunked,
    /// The object up to the end of the connection.
    UntilClosed,
    /// The object, until the work was done. Then it does not exist.
    DeletedOnceDone,
    NotText,
    /// One byte more than a payload may have.
    TooLarge,
    /// The same, in chunks.
    TooLargeInChunks,
    /// The same, and further bytes without an end.
    Endless,
    /// The head of a large object, and few of its bytes.
    Slow,
    /// The body ends before its length.
    CutOff,
    /// The body ends before its last chunk.
    CutOffInChunks,
    Error(u16, &'static str),
    /// The current version of the object is a delete marker.
    DeleteMarker,
    /// To an object in another bucket.
    Redirect(u16),
    Reset,
    HalfAHead,
    /// No answer before the end of the invocation.
    Silent,
}

const READABLE: Plan =
    Plan { name: Name::Plain, text: Text::Short, first: &[], then: Reply::Whole, has_attribute: true };

const fn first(first: &'static [Reply]) -> Plan {
    Plan { first, ..READABLE }
}

const fn then(then: Reply) -> Plan {
    Plan { then, ..READABLE }
}

const fn named(name: Name) -> Plan {
    Plan { name, ..READABLE }
}

const SLOW_DOWN: Reply = Reply::Error(503, "SlowDown");
const TOO_MANY: Reply = Reply::Error(429, "TooManyRequests");
const MISSING: Reply = Reply::Error(404, "NoSuchKey");
/// It says nothing about the object.
const NO_BUCKET: Reply = Reply::Error(404, "NoSuchBucket");

pub(in crate::torture) const PLANS: &[Plan] = &[
    READABLE,
    Plan { text: Text::Empty, ..READABLE },
    Plan { then: Reply::Chunked, text: Text::Largest, ..named(Name::Slashes) },
    first(&[SLOW_DOWN]),
    named(Name::Above),
    first(&[SLOW_DOWN; 4]),
    then(MISSING),
    first(&[Reply::Redirect(307)]),
    then(Reply::TooLarge),
    first(&[Reply::Reset; 6]),
    Plan { has_attribute: false, ..first(&[SLOW_DOWN; 2]) },
    then(Reply::DeletedOnceDone),
    first(&[Reply::Error(403, "AccessDenied")]),
    named(Name::OtherBucket),
    first(&[Reply::CutOff]),
    then(Reply::Endless),
    first(&[TOO_MANY, Reply::Error(500, "InternalError")]),
    then(Reply::NotText),
    Plan { text: Text::Largest, ..named(Name::Escaped) },
    first(&[TOO_MANY; 3]),
    named(Name::Beside),
    then(Reply::DeleteMarker),
    first(&[Reply::HalfAHead, Reply::Reset]),
    Plan { text: Text::Empty, ..then(Reply::Chunked) },
    first(&[Reply::Redirect(301)]),
    first(&[NO_BUCKET, SLOW_DOWN, NO_BUCKET]),
    then(Reply::TooLargeInChunks),
    Plan { first: &[SLOW_DOWN], name: Name::Escaped, ..then(MISSING) },
    first(&[Reply::Silent]),
    Plan { has_attribute: false, ..then(MISSING) },
    first(&[Reply::CutOffInChunks]),
    named(Name::Dot),
    first(&[Reply::Error(400, "ExpiredToken")]),
    Plan { has_attribute: false, ..then(Reply::TooLarge) },
    then(Reply::Slow),
    Plan { text: Text::Largest, ..then(Reply::UntilClosed) },
    first(&[Reply::Error(599, "Unknown"), Reply::Error(502, "BadGateway")]),
];

impl Plan {
    /// The answer to the request of this number, from 0.
    pub(super) fn reply(&self, request: usize, is_done: bool) -> Reply {
        match self.first.get(request).copied().unwrap_or(self.then) {
            Reply::DeletedOnceDone if is_done => MISSING,
            Reply::DeletedOnceDone => Reply::Whole,
            reply => reply,
        }
    }

    pub(in crate::torture) fn payload(&self) -> StoredPayload {
        match (self.name, self.then) {
            (Name::OtherBucket, _) => StoredPayload::NotAllowed,
            (Name::Above | Name::Beside | Name::Dot, _) => StoredPayload::OtherName,
            (_, Reply::DeletedOnceDone) => StoredPayload::DeletedOnceDone,
            (_, MISSING | Reply::DeleteMarker) => StoredPayload::Missing,
            (_, Reply::Whole | Reply::Chunked | Reply::UntilClosed) => StoredPayload::Text,
            _ => StoredPayload::Unreadable,
        }
    }

    /// Whether the key of the message has a record in the end.
    pub(in crate::torture) fn has_record(&self) -> bool {
        self.has_attribute || self.payload() == StoredPayload::Text
    }
}

impl Reply {
    pub(super) fn answer(self) -> ObjectAnswer {
        let (status, body) = match self {
            Self::Whole | Self::Chunked | Self::UntilClosed | Self::DeletedOnceDone => (Some(200), ObjectBody::Text),
            Self::NotText | Self::TooLarge | Self::TooLargeInChunks | Self::Endless | Self::Slow => {
                (Some(200), ObjectBody::Unreadable)
            }
            Self::CutOff | Self::CutOffInChunks => (Some(200), ObjectBody::Incomplete),
            MISSING | Self::DeleteMarker => (Some(404), ObjectBody::Missing),
            Self::Error(status, _) | Self::Redirect(status) => (Some(status), ObjectBody::Text),
            Self::Reset | Self::HalfAHead | Self::Silent => (None, ObjectBody::Incomplete),
        };
        ObjectAnswer { status, body }
    }
}
