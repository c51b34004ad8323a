//! Whether each result is kept where its size says, and an object for as long as its record names it.

use std::fmt::Write as _;
use std::time::Duration;

use history::Claim;
use idempotent_sqs::idempotency::{MAX_RESULT_BYTES, StoredResult};
use sha2::{Digest, Sha256};

use crate::function::{RESULTS_BUCKET, RESULTS_PREFIX};
use crate::objects::Write;
use crate::work::{Attempt, receipt};
use crate::world::Run;

use super::invocations::{CLOCK_US, is_during};
use super::objects::{is_late, is_too_long};

/// Longest time of one write: docs/envelopes.md.
const LONGEST_WRITE: Duration = Duration::from_secs(5);

impl Run {
    /// Objects that are not the result of a run that was done, or that a later one replaced; and writes that take too long.
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
            if is_late(&self.plan, call, ends_us.saturating_add(CLOCK_US))
                || is_too_long(&self.plan, call, LONGEST_WRITE)
            {
                wrong.push(format!("this write of a result takes longer than its claim, or 5 seconds: {call:?}"));
            }
            let others = self.objects.writes.iter().filter(|other| other.call.name == call.name);
            if others.count() > 1 {
                wrong.push(format!("this object is written twice: {call:?}"));
            }
        }
        wrong
    }

    /// How the record of this claim keeps the result of its run: in the record, or its object if that was written.
    pub(super) fn expected_result(&self, claim: &Claim) -> StoredResult<Vec<u8>> {
        let (result, name) = (receipt(&self.plan, claim.fence), name_of(&claim.request.key, claim.fence));
        let most = self.plan.objects.as_ref().map_or(4096, |objects| objects.result_max_bytes);
        let is_written = |write: &Write| write.call.name == name && write.is_acknowledged;
        if result.len() <= most {
            StoredResult::Inline(result)
        } else if self.objects.writes.iter().any(is_written) {
            StoredResult::Object(format!("s3://{RESULTS_BUCKET}/{name}").into_bytes())
        } else {
            StoredResult::NotKept
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
