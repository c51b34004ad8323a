//! What a request was answered.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};

use crate::request::IDEMPOTENCY_KEY;
use crate::response::{RECEIPT, UNPROTECTED};
use crate::service::Reply;

/// The problem of a request whose response was not kept.
pub(crate) const NOT_KEPT: &str = "response-not-kept";

const TYPES: &str = "https://docs.rs/idempotent-sqs-http/latest/idempotent_sqs_http/#";

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The service returned an error.
    Error(&'static str),
    /// Of a run of the handler.
    Receipt { request: usize, is_replayed: bool, is_omitted: bool, reply: Reply },
    /// Of a handler that ran without the layer.
    Unprotected(Reply),
    /// The layer's own, with the last part of its type.
    Problem { status: u16, kind: String, retry_after: Option<u64> },
    /// Not of the layer, nor of the handler.
    Unknown(Reply),
}

impl Answer {
    /// The answer, and the key in it.
    pub(crate) fn of(reply: Result<Reply, &'static str>) -> (Self, Option<HeaderValue>) {
        match reply {
            Ok(mut reply) => {
                let key = reply.headers.remove(IDEMPOTENCY_KEY);
                (Self::of_reply(reply), key)
            }
            Err(error) => (Self::Error(error), None),
        }
    }

    fn of_reply(mut reply: Reply) -> Self {
        if let Some(request) = reply.headers.get(RECEIPT) {
            let request = request.to_str().unwrap().parse().unwrap();
            let mut is_marked = |name| reply.headers.remove(name).is_some_and(|value| value == "true");
            let (is_replayed, is_omitted) = (is_marked("idempotent-replayed"), is_marked("idempotent-body-omitted"));
            return Self::Receipt { request, is_replayed, is_omitted, reply };
        }
        if reply.headers.contains_key(UNPROTECTED) {
            return Self::Unprotected(reply);
        }
        Self::of_problem(&reply).unwrap_or(Self::Unknown(reply))
    }

    /// Problem details have a type and their status, and no header but these.
    fn of_problem(reply: &Reply) -> Option<Self> {
        let problem: serde_json::Value = serde_json::from_slice(&reply.body).ok()?;
        let kind = problem["type"].as_str()?.strip_prefix(TYPES)?.to_owned();
        let mut headers: HeaderMap = reply.headers.clone();
        let is_problem = headers.remove(CONTENT_TYPE).is_some_and(|value| value == "application/problem+json");
        let retry_after = headers.remove(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let is_whole = is_problem && headers.is_empty() && problem["status"] == reply.status;
        is_whole.then_some(Self::Problem { status: reply.status, kind, retry_after })
    }

    /// Its status, if it has one.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Error(_) => None,
            Self::Receipt { reply, .. } | Self::Unprotected(reply) | Self::Unknown(reply) => Some(reply.status),
            Self::Problem { status, .. } => Some(*status),
        }
    }

    /// For the counts of a run.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Error(_) => "error".to_owned(),
            Self::Receipt { is_replayed: true, is_omitted: true, .. } => "replayed without its body".to_owned(),
            Self::Receipt { is_replayed: true, .. } => "replayed".to_owned(),
            Self::Receipt { reply, .. } => reply.status.to_string(),
            Self::Unprotected(_) => "unprotected".to_owned(),
            Self::Problem { kind, .. } => kind.clone(),
            Self::Unknown(_) => "unknown".to_owned(),
        }
    }
}
