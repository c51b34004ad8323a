//! Recorded histories in which one answer is changed.

use std::time::Duration;

use harness::redis::Redis;
use history::{Allowances, Answer, Call, History, LostTo, Operation, Verdict, verdict};

use crate::contention::contend;

/// Another answer.
fn edited(answer: &Answer) -> Option<Answer> {
    match answer.clone() {
        Answer::Acquired { fence, attempt, recovery } if fence % 2 == 0 => {
            Some(Answer::Acquired { fence, attempt: attempt + 1, recovery })
        }
        Answer::Acquired { fence, attempt, recovery } => Some(Answer::Acquired { fence, attempt, recovery: !recovery }),
        Answer::Duplicate { fence, attempts, result } => Some(Answer::Duplicate { fence: fence + 1, attempts, result }),
        Answer::Conflict { remains_ms } => Some(Answer::Conflict { remains_ms: remains_ms + 500 }),
        Answer::Mismatch => Some(Answer::Failed),
        Answer::Failed => Some(Answer::Mismatch),
        Answer::Recorded => Some(Answer::Lost(LostTo::Completed)),
        Answer::Lost(_) => Some(Answer::Recorded),
        Answer::NotARecord | Answer::NotExecuted | Answer::Unknown => None,
    }
}

fn is_linearizable(operations: &[Operation]) -> bool {
    matches!(verdict(operations, Allowances::REAL.without_repeats()), Verdict::Linearizable { .. })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_answer_of_a_recorded_history_that_is_changed_is_found() {
    let redis = Redis::start().await;
    let directory = tempfile::tempdir().unwrap();
    contend(1, &redis.url(), directory.path(), Duration::from_millis(600)).await;
    let history = History::read(directory.path()).unwrap();
    let mut edits = 0;
    for operations in history.keys.values() {
        assert!(is_linearizable(operations));
        // What is not known exactly may explain another answer: a call without an answer, and the ms of an expiry.
        let is_exact =
            |operation: &Operation| operation.returned_us.is_some() && operation.call.request().retention_ms >= 60_000;
        if !operations.iter().all(is_exact) {
            continue;
        }
        for at in (0..operations.len()).step_by(3) {
            // The answer to a call that settles may be that of another order.
            let overlaps = |other: &Operation| {
                other.invoked_us <= operations[at].ends_us() && other.ends_us() >= operations[at].invoked_us
            };
            let is_alone = operations.iter().filter(|other| overlaps(other)).count() == 1;
            if let Some(answer) = edited(&operations[at].answer)
                && (is_alone || matches!(operations[at].call, Call::Acquire { .. }))
            {
                let mut changed = operations.clone();
                changed[at].answer = answer;
                assert!(!is_linearizable(&changed), "{}, which was {:?}", changed[at], operations[at].answer);
                edits += 1;
            }
        }
    }
    assert!(edits > 20, "only {edits} answers were changed");
}
