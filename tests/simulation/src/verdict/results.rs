//! Whether each result is kept where its size says, and an object for as long as its record names it.

use std::fmt::Write as _;
use std::time::Duration;

use history::{Call, Claim};
use idempotent_sqs::idempotency::{MAX_RESULT_BYTES, StoredResult};
use sha2::{Digest, Sha256};

use crate::callers::{Answered, CALLER};
use crate::function::{RESULTS_BUCKET, RESULTS_PREFIX};
use crate::objects::{self, Read, ReadAnswer};
use crate::work::{Attempt, receipt};
use crate::world::Run;

use super::invocations::{CLOCK_US, is_during};
use super::objects::{is_late, is_too_long};

/// Longest time to read or write a result: docs/envelopes.md.
const LONGEST: Duration = Duration::from_secs(5);

impl Run {
    /// Objects that are not the result of a run that was done, or that a later one replaced; and writes that take too
    /// long.
    pub(super) fn wrong_results(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let Some(objects) = &self.plan.objects else { return wrong };
        for write in &self.objects.writes {
            let call = &write.call;
            let is_own = |run: &&Attempt| {
                let has_name = call.bucket == RESULTS_BUCKET && call.name == name_of(&run.key, run.fence);
                has_name && run.is_done() && run.process == call.process && run.ran_us <= call.began_us
            };
            let run = self.attempts.iter().find(is_own);
            let is_result = run.is_some_and(|run| write.bytes == receipt(&self.plan, run.fence));
            let is_large = (objects.result_max_bytes + 1..=MAX_RESULT_BYTES).contains(&write.bytes.len());
            if !is_result || !is_large || !objects.keeps_results {
                wrong.push(format!("this object is not the large result of a run: {call:?}"));
            }
            let claim = run.and_then(|run| self.acquire_of(&run.key, run.fence));
            let claim_ends_us = claim.map_or(u64::MAX, |claim| self.claim_ends_us(claim));
            let mut invocations = self.invocations.iter();
            let invoked =
                invocations.find(|invoked| invoked.process == call.process && is_during(call.began_us, invoked));
            let ends_us = invoked.map_or(u64::MAX, |invoked| self.work_ends_us(invoked)).min(claim_ends_us);
            if is_late(&self.plan, call, ends_us.saturating_add(CLOCK_US)) || is_too_long(&self.plan, call, LONGEST) {
                wrong.push(format!("this write of a result takes longer than its claim, or 5 seconds: {call:?}"));
            }
            let others = self.objects.writes.iter().filter(|other| other.call.name == call.name);
            if others.count() > 1 {
                wrong.push(format!("this object is written twice: {call:?}"));
            }
        }
        wrong
    }

    /// Results that callers got and that are not those of their records, and calls that take too long.
    pub(super) fn wrong_answers(&self) -> Vec<String> {
        let is_right = |answered: &Answered| {
            let settle = answered.remaining.saturating_sub(Duration::from_millis(300));
            // Two calls of Redis and a poll of the clock.
            let longest = settle.min(LONGEST) + Duration::from_millis(100);
            let calls = self.history.keys.get(&answered.key).into_iter().flatten();
            let mut kept = calls.filter_map(|call| match &call.call {
                Call::Complete { result, .. } => Some(result.to_stored()),
                Call::Acquire { .. } | Call::Fail { .. } | Call::Release { .. } => None,
            });
            answered.took <= longest
                && kept.any(|kept| match kept {
                    StoredResult::Inline(result) => answered.result == Some(result),
                    StoredResult::Object(location) => {
                        let reads = || self.reads_by_caller(&location);
                        // S3 may fail, but a caller that reads objects asks it.
                        let is_tried = reads().next().is_some() == answered.has_objects;
                        is_tried && answered.result == self.read_by_caller(reads(), answered)
                    }
                    StoredResult::NotKept => answered.result.is_none(),
                })
        };
        let wrong = self.after.answered.iter().filter(|answered| !is_right(answered));
        let wrong = wrong.map(|answered| format!("{}: a caller got another result: {answered:?}", answered.key));
        // No result is deleted.
        let is_missed = |read: &&Read| matches!(read.answer, Some(ReadAnswer::NotFound | ReadAnswer::TooLarge));
        let missed = self.objects.reads.iter().filter(|read| read.call.process == CALLER).filter(is_missed);
        wrong.chain(missed.map(|read| format!("a caller did not find a result: {read:?}"))).collect()
    }

    /// The reads of callers at this location.
    fn reads_by_caller(&self, location: &[u8]) -> impl Iterator<Item = &Read> {
        let is_at = move |call: &objects::Call| location == format!("s3://{}/{}", call.bucket, call.name).as_bytes();
        self.objects.reads.iter().filter(move |read| read.call.process == CALLER && is_at(&read.call))
    }

    /// What a caller got by these reads, if it could.
    fn read_by_caller<'a>(&self, mut reads: impl Iterator<Item = &'a Read>, answered: &Answered) -> Option<Vec<u8>> {
        let read = reads.find(|read| read.answer == Some(ReadAnswer::Payload)).filter(|_| answered.has_objects)?;
        let writes = self.objects.writes.iter();
        writes.filter(|write| write.call.name == read.call.name).map(|write| write.bytes.clone()).next_back()
    }

    /// Whether the record of this claim keeps the result of its run: in the record, or as its object if that was
    /// written.
    pub(super) fn is_expected_result(&self, claim: &Claim, kept: &StoredResult<Vec<u8>>) -> bool {
        let (result, name) = (receipt(&self.plan, claim.fence), name_of(&claim.request.key, claim.fence));
        let (most, has_objects) =
            self.plan.objects.as_ref().map_or((4096, false), |plan| (plan.result_max_bytes, plan.keeps_results));
        let mut writes = self.objects.writes.iter().filter(|write| write.call.name == name).peekable();
        let is_tried = writes.peek().is_some();
        let is_written = writes.any(|write| write.is_acknowledged);
        match kept {
            StoredResult::Inline(kept) => result.len() <= most && *kept == result,
            StoredResult::Object(location) => {
                *location == format!("s3://{RESULTS_BUCKET}/{name}").as_bytes() && is_written
            }
            StoredResult::NotKept => {
                let is_for_object = has_objects && result.len() <= MAX_RESULT_BYTES;
                result.len() > most && !is_written && is_tried == is_for_object
            }
        }
    }
}

/// The name of the object of a result, by the key of its record: docs/envelopes.md, without the namespace.
fn name_of(key: &str, fence: u64) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    let segment = if key.chars().all(is_plain) {
        key.to_owned()
    } else {
        Sha256::digest(key).iter().fold("sha256:".to_owned(), |mut text, byte| {
            let _written = write!(text, "{byte:02x}");
            text
        })
    };
    format!("{RESULTS_PREFIX}{segment}/{fence}")
}
