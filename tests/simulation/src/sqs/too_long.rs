//! Visibility timeouts that SQS refuses: it accepts 12 hours since the receive, and Lambda throttled some invocations
//! for hours. <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html>

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;

use harness::sqs::Call;
use history::monotonic_us;
use serde_json::{Value, json};

use super::{SdkCall, VisibilityChange};

/// Longest visibility timeout since the receive, s.
const LONGEST_S: u64 = 12 * 3600;

/// Whether SQS refuses this change.
pub fn is_too_long(change: &VisibilityChange) -> bool {
    is_refused(&change.receipt_handle, change.after.as_secs())
}

/// Whether SQS refuses these seconds for this receipt handle. One message in three was received long before its
/// invocation.
fn is_refused(receipt_handle: &str, after_s: u64) -> bool {
    let mut hash = DefaultHasher::new();
    receipt_handle.hash(&mut hash);
    let hash = hash.finish();
    let waited_s = if hash.is_multiple_of(3) { hash / 3 % LONGEST_S } else { 0 };
    waited_s + after_s > LONGEST_S
}

/// Removes the entries of a call that SQS refuses, and returns the errors of them.
pub(super) fn take(call: &mut Call) -> Vec<Value> {
    let Some(entries) = call.input["Entries"].as_array_mut() else { return Vec::new() };
    let is_refused = |entry: &Value| {
        let handle = entry["ReceiptHandle"].as_str().unwrap_or_default();
        is_refused(handle, entry["VisibilityTimeout"].as_u64().unwrap_or_default())
    };
    let (refused, accepted) = mem::take(entries).into_iter().partition(is_refused);
    *entries = accepted;
    let error = |entry: Value| {
        let message = "Total VisibilityTimeout for the message is beyond the limit [43200 seconds].";
        json!({ "Id": entry["Id"], "Code": "InvalidParameterValue", "Message": message, "SenderFault": true })
    };
    Vec::into_iter(refused).map(error).collect()
}

/// The changes of a call that its output says are refused, at the time of the reply.
pub(super) fn refused<'a>(call: &'a SdkCall, output: &'a Value) -> impl Iterator<Item = VisibilityChange> + 'a {
    let has_failed = output["Failed"].as_array().is_some_and(|failed| !failed.is_empty());
    let refused = call.changes().filter(move |change| has_failed && is_too_long(change));
    refused.map(|change| VisibilityChange { at_us: monotonic_us(), ..change })
}
