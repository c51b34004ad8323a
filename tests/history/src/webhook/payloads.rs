//! Whether payloads in S3 were requested, and their messages delivered again or moved to the dead-letter queue, as
//! docs/envelopes.md says for the answers.

use serde::{Deserialize, Serialize};

use super::run::delay_s;
use super::{Delivery, Invoked, Received, is_answered};
use crate::history::{History, Operation};

/// Most requests for one payload in one delivery.
const TRIES: usize = 3;

/// How long an invocation has time for its messages at least, µs: three quarters of two seconds. The rest is tolerance.
const WORK_US: u64 = 1_200_000;

/// The pointer of a message to its payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    /// Bucket and name of the object.
    pub object: String,
    /// What it points to.
    pub payload: StoredPayload,
}

/// What a pointer points to, apart from times when S3 does not return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredPayload {
    /// Text.
    Text,
    /// Text that is deleted after the work was done.
    DeletedOnceDone,
    /// An object that does not exist.
    Missing,
    /// An object that is too large, or not text.
    Unreadable,
    /// An object in a bucket that the function may not read.
    NotAllowed,
    /// A name whose segments `.` and `..` are of another object, perhaps in another bucket.
    OtherName,
}

/// One request for an object, as S3 received it, and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectCall {
    /// Bucket and name of the object.
    pub object: String,
    /// The number of the process. `None` if it is not signed by one.
    pub process: Option<usize>,
    /// When it arrived, by the monotonic clock, µs.
    pub at_us: u64,
    /// The answer.
    pub answer: ObjectAnswer,
}

/// The answer of S3 to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectAnswer {
    /// `None` if there is no whole head of a response.
    pub status: Option<u16>,
    /// The body.
    pub body: ObjectBody,
}

/// The body of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectBody {
    /// Complete, text, and not larger than `PAYLOAD_MAX_BYTES`.
    Text,
    /// Not text, or larger than `PAYLOAD_MAX_BYTES`.
    Unreadable,
    /// The error `NoSuchKey`, or a delete marker: the object does not exist.
    Missing,
    /// It breaks off.
    Incomplete,
}

/// What the answer to a request means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Text,
    Missing,
    Unreadable,
    Refused,
    Unavailable,
    /// Nothing says whether it is requested again.
    Incomplete,
}

impl ObjectAnswer {
    fn meaning(self) -> Meaning {
        match (self.status, self.body) {
            (Some(200), ObjectBody::Text) => Meaning::Text,
            (Some(200), ObjectBody::Unreadable) => Meaning::Unreadable,
            (Some(200), ObjectBody::Incomplete) => Meaning::Incomplete,
            (Some(404), ObjectBody::Missing) => Meaning::Missing,
            (None | Some(429 | 500..), _) => Meaning::Unavailable,
            (Some(_), _) => Meaning::Refused,
        }
    }
}

impl StoredPayload {
    /// Whether a request for it may be sent.
    const fn may_be_requested(self) -> bool {
        !matches!(self, Self::NotAllowed | Self::OtherName)
    }
}

impl Received {
    /// What is wrong with the requests for payloads, and with the deliveries of their messages.
    pub(super) fn wrong_payloads(&self, history: &History) -> Vec<String> {
        let pointers = || self.deliveries.iter().filter_map(|delivery| delivery.pointer.as_ref());
        let is_known = |call: &ObjectCall| {
            call.process.is_some() && pointers().any(|to| to.object == call.object && to.payload.may_be_requested())
        };
        let strays = self.object_calls.iter().filter(|call| !is_known(call));
        let strays = strays
            .map(|call| format!("this request to S3 is not signed, or is for no payload that may be read: {call:?}"));
        let wrong = self.deliveries.iter().filter_map(|delivery| {
            let (pointer, calls) = (delivery.pointer.as_ref()?, self.object_calls_of(delivery)?);
            let why = self.wrong_payload(delivery, pointer, &calls, history)?;
            Some(format!("{}: {why}: {pointer:?}, {calls:?}, {delivery:?}", delivery.key))
        });
        strays.chain(wrong).collect()
    }

    /// The requests for the payload of this delivery, in order. `None` if the invocation did not return, or if they may
    /// be those of another delivery.
    fn object_calls_of(&self, delivery: &Delivery) -> Option<Vec<&ObjectCall>> {
        let Delivery { message_id, process, begun_us, ended_us, .. } = delivery;
        let is_other = |other: &&Delivery| other.message_id == *message_id && other.process == *process;
        // An invocation that timed out may go on.
        let is_near = |other: &Delivery| {
            other.begun_us == *begun_us || other.begun_us < *begun_us && !is_ended(&other.invocation)
        };
        let near = self.deliveries.iter().filter(is_other).filter(|other| is_near(other)).count();
        if near > 1 || delivery.is_malformed || !is_answered(&delivery.invocation) {
            return None;
        }
        let object = &delivery.pointer.as_ref()?.object;
        let is_own = |call: &&ObjectCall| {
            call.object == *object && call.process == Some(*process) && (*begun_us..=*ended_us).contains(&call.at_us)
        };
        Some(self.object_calls.iter().filter(is_own).collect())
    }

    fn wrong_payload(
        &self,
        delivery: &Delivery,
        pointer: &Pointer,
        calls: &[&ObjectCall],
        history: &History,
    ) -> Option<String> {
        let meanings: Vec<Meaning> = calls.iter().map(|call| call.answer.meaning()).collect();
        let is_named = delivery.invocation == Invoked::Named;
        let is_tried_again = |meaning: &Meaning| matches!(meaning, Meaning::Unavailable | Meaning::Incomplete);
        let is_late = delivery.ended_us - delivery.begun_us >= WORK_US;
        let (last, before) = match meanings.split_last() {
            Some((last, before)) => (Some(*last), before),
            None => (None, &*meanings),
        };
        if calls.len() > TRIES || !before.iter().all(is_tried_again) {
            return Some("the payload was requested again without need".to_owned());
        }
        match last {
            Some(Meaning::Text) => None,
            Some(Meaning::Unavailable) if calls.len() < TRIES && !is_late => {
                Some("the payload was not requested again".to_owned())
            }
            Some(Meaning::Unavailable | Meaning::Incomplete | Meaning::Refused) => {
                let expected = delay_s(None, delivery.receive_count);
                let is_expected = delivery.visibility_s.is_some_and(|after_s| expected.contains(&after_s));
                (!is_named || !is_expected)
                    .then(|| format!("the message is not delivered again in {expected:?} s, as S3 is unavailable"))
            }
            None if pointer.payload.may_be_requested() => {
                (!is_named).then(|| "the message was acknowledged, and its payload was not requested".to_owned())
            }
            Some(Meaning::Missing | Meaning::Unreadable) | None => {
                let is_done =
                    || history.keys.get(&delivery.key).is_some_and(|all| all.iter().any(Operation::shows_completion));
                let is_moved = self.has_letter(&delivery.message_id);
                (!is_named && !is_moved && !is_done())
                    .then(|| "the message was acknowledged without its payload".to_owned())
            }
        }
    }

    /// Whether S3 has returned the payload of this delivery before this time, µs, or it has none there.
    pub(super) fn has_payload(&self, delivery: &Delivery, until_us: u64) -> bool {
        delivery.pointer.as_ref().is_none_or(|pointer| {
            self.object_calls.iter().any(|call| {
                call.object == pointer.object
                    && call.process == Some(delivery.process)
                    && (delivery.begun_us..=until_us).contains(&call.at_us)
                    && call.answer.meaning() == Meaning::Text
            })
        })
    }
}

/// Whether the function had ended an invocation when it returned.
fn is_ended(invocation: &Invoked) -> bool {
    *invocation != Invoked::Unknown
}
