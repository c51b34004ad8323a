//! The work: starts a durable execution whose name is derived from the message's key.

use std::error::Error;
use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use aws_sdk_lambda::Client;
use aws_sdk_lambda::error::{ConnectorError, SdkError};
use aws_sdk_lambda::operation::invoke::InvokeError;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::InvocationType;
use hyper_util::client::legacy;
use idempotent_sqs::idempotency::error_chain;
use idempotent_sqs::{Claim, Message, Work, WorkError};

/// Starts an execution of one durable function.
pub(crate) struct Start {
    lambda: Client,
    /// ARN or name of the function, with a version or an alias.
    function: String,
    namespace: String,
}

impl Start {
    pub(crate) fn new(lambda: Client, function: String, namespace: String) -> Self {
        Self { lambda, function, namespace }
    }
}

/// A recovery is the same call: while Lambda keeps an execution of this name, it starts no other.
impl Work<Message> for Start {
    /// Returns the ARN of the execution.
    async fn run(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        let started = self
            .lambda
            .invoke()
            .function_name(&self.function)
            .invocation_type(InvocationType::Event)
            .durable_execution_name(execution_name(&self.namespace, claim.key().as_str()))
            .payload(Blob::new(message.body()))
            .send()
            .await
            .map_err(|error| work_error(&error))?;
        Ok(started.durable_execution_arn().unwrap_or_default().into())
    }
}

/// A name of 64 characters, the most that Lambda accepts. Keys may be longer and have other characters. Names are
/// unique in an account and region, and keys in a namespace, which has no colon.
fn execution_name(namespace: &str, key: &str) -> String {
    let hash = digest(&SHA256, format!("{namespace}:{key}").as_bytes());
    hash.as_ref().iter().fold(String::new(), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

/// What an error means for the message.
fn work_error(error: &SdkError<InvokeError>) -> WorkError {
    let reason = error_chain(error);
    if error.as_service_error().is_some_and(is_refused) {
        WorkError::permanent(reason)
    } else if may_have_started(error) {
        WorkError::uncertain(reason)
    } else {
        // A throttle, a missing right or function, no connection: the same for all messages, and not their fault.
        WorkError::unavailable(reason)
    }
}

/// Whether the name has an execution with another payload, or Lambda cannot accept the payload.
fn is_refused(error: &InvokeError) -> bool {
    matches!(
        error,
        InvokeError::DurableExecutionAlreadyStartedException(_)
            | InvokeError::InvalidRequestContentException(_)
            | InvokeError::RequestTooLargeException(_)
            | InvokeError::SerializedRequestEntityTooLargeException(_)
    )
}

/// Whether Lambda failed, or its response was lost.
fn may_have_started(error: &SdkError<InvokeError>) -> bool {
    match error {
        SdkError::ConstructionFailure(_) => false,
        SdkError::ServiceError(failed) => failed.raw().status().is_server_error(),
        SdkError::DispatchFailure(failure) => failure.as_connector_error().is_none_or(may_be_sent),
        SdkError::TimeoutError(_) | SdkError::ResponseError(_) | _ => true,
    }
}

/// Whether a request that failed in the connector may have been sent. Without a connection it was not: the name was not
/// found, the host was not reached in time, or the TLS handshake failed.
fn may_be_sent(failure: &ConnectorError) -> bool {
    let mut cause = failure.source();
    while let Some(error) = cause {
        if error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect) {
            return false;
        }
        cause = error.source();
    }
    !failure.is_user()
}
