//! The result of an invocation, and which messages it deletes.

use std::collections::HashSet;

use serde_json::Value;

/// How an invocation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvocationResult {
    /// The function returned these bytes.
    Returned(Vec<u8>),
    /// It returned an error, or its process died.
    Failed,
    /// The function was stopped at its timeout.
    TimedOut,
}

/// Which of these messageIds a response keeps in the queue. The others are to be deleted.
///
/// AWS does not document JSON that is not an object, nor a `batchItemFailures` that is not a list. Here the first
/// deletes every message, because it contains no list, and the second deletes none.
///
/// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html#sqs-batchfailurereporting-conditions>
///
/// # Errors
/// The reason why no message is to be deleted.
pub(super) fn retained<'a>(response: &[u8], message_ids: &HashSet<&'a str>) -> Result<HashSet<&'a str>, String> {
    if response.is_empty() {
        return Ok(HashSet::new());
    }
    let response: Value =
        serde_json::from_slice(response).map_err(|error| format!("the response is not JSON: {error}"))?;
    let failures = match response.get("batchItemFailures") {
        None | Some(Value::Null) => return Ok(HashSet::new()),
        Some(Value::Array(failures)) => failures,
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            return Err("batchItemFailures is not a list".into());
        }
    };
    let named = failures.iter().map(|failure| {
        let Some(named) = failure.get("itemIdentifier").and_then(Value::as_str) else {
            return Err(format!("{failure} has no itemIdentifier"));
        };
        message_ids.get(named).copied().ok_or_else(|| format!("the itemIdentifier {named:?} is not in the batch"))
    });
    named.collect()
}
