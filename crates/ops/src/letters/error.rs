//! Errors of calls to SQS, and whether a call may have taken effect.

use std::error::Error;
use std::fmt;

use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::operation::get_queue_url::GetQueueUrlError;
use idempotent_sqs::idempotency::error_chain;

use super::interrupt::LAST_CALL;
use super::tries::Tries;

/// The codes of the errors of a lookup that would fail again. Some endpoints, such as simulators, have no codes of the
/// query protocol, which the SDK prefers.
const LASTING: [&str; 4] =
    ["AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "AccessDenied", "AccessDeniedException"];

/// A queue that was not found by its ARN.
pub(crate) struct LookupError {
    pub(crate) reason: String,
    /// Whether it will not be found later either: it does not exist, or a permission is missing.
    pub(crate) is_lasting: bool,
}

/// A call that failed.
#[derive(Debug)]
pub(crate) struct CallError {
    action: &'static str,
    reason: String,
    /// Whether SQS refused the call, or it was not made, so that it had no effect. Otherwise it may have taken effect.
    pub(crate) is_refused: bool,
}

impl LookupError {
    pub(super) fn new(error: &SdkError<GetQueueUrlError>) -> Self {
        let is_lasting = error.code().is_some_and(|code| LASTING.contains(&code));
        Self { reason: CallError::new("GetQueueUrl", error).to_string(), is_lasting }
    }
}

impl CallError {
    /// The delete of a letter that was visible again by then. With an old receipt handle, "the request will succeed, but
    /// the message might not be deleted":
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html>
    pub(crate) fn not_held() -> Self {
        let reason = "its visibility timeout could not be extended, so another consumer may have received it";
        Self { action: "DeleteMessage", reason: reason.to_owned(), is_refused: false }
    }

    /// The delete of a letter that was not begun, because the command was interrupted.
    pub(crate) fn interrupted() -> Self {
        Self { action: "DeleteMessage", reason: "not called after the interrupt".to_owned(), is_refused: true }
    }

    /// A delete that was no longer awaited after an interrupt.
    pub(crate) fn not_awaited() -> Self {
        let reason = format!("no reply within {} s of the interrupt", LAST_CALL.as_secs());
        Self { action: "DeleteMessage", reason, is_refused: false }
    }

    /// The error of a call that the SDK repeats: an earlier try may have taken effect.
    pub(super) fn repeated<E: ProvideErrorMetadata + Error + 'static>(
        action: &'static str,
        error: &SdkError<E>,
        tries: &Tries,
    ) -> Self {
        Self { is_refused: !tries.any_unanswered(), ..Self::new(action, error) }
    }

    pub(super) fn new<E: ProvideErrorMetadata + Error + 'static>(action: &'static str, error: &SdkError<E>) -> Self {
        let reason = match (error.code(), error.message()) {
            (Some(code), message) => format!("{code}: {}", message.unwrap_or("no message")),
            (None, _) => error_chain(error),
        };
        let is_refused = match error {
            SdkError::ServiceError(error) => error.raw().status().is_client_error(),
            SdkError::ConstructionFailure(_) => true,
            SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ResponseError(_) | _ => false,
        };
        Self { action, reason, is_refused }
    }
}

impl Error for CallError {}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SQS {}: {}", self.action, self.reason)
    }
}
