//! What a function's answer means to an event source mapping.

use std::collections::HashSet;

use serde_json::Value;

/// How an invocation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The function returned these bytes.
    Returned(Vec<u8>),
    /// It returned an error, or its process died.
    Failed,
    /// It was cut off at the function's timeout.
    TimedOut,
}

/// Which of these messageIds an answer keeps in the queue; the others are to be deleted.
///
/// AWS does not say what becomes of JSON that is no object, or of a `batchItemFailures` that is no
/// list. Here the first deletes every message, as there is no list in it, and the second none.
///
/// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html#sqs-batchfailurereporting-conditions>
///
/// # Errors
/// Why none is to be deleted.
pub(super) fn kept<'a>(answer: &[u8], message_ids: &HashSet<&'a str>) -> Result<HashSet<&'a str>, String> {
    if answer.is_empty() {
        return Ok(HashSet::new());
    }
    let answer: Value = serde_json::from_slice(answer).map_err(|error| format!("the answer is not JSON: {error}"))?;
    let failures = match answer.get("batchItemFailures") {
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
