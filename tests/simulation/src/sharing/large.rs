//! Records with large results.

use futures_util::future::join_all;
use history::Rng;
use idempotent_sqs::idempotency::{Acquire, Settled, Store, StoredResult};

use super::{RECORDS, Sharer};
use crate::connections::Exchange;

/// Size that records of a call have at most, and that calls in flight have at most, without what each call has besides:
/// the text of its script, and its records' owners and fences.
const BYTES_PER_CALL: usize = 512 << 10;
const BYTES_IN_FLIGHT: usize = 2 << 20;
const BESIDES: usize = 16 << 10;

impl Sharer {
    /// Results share a call up to its size, and wait for others up to the size of all calls.
    pub(super) async fn complete_with_large_results(&self, rng: &mut Rng) -> Vec<String> {
        let burst = self.burst("large", RECORDS).await;
        let mut wrong = Vec::from_iter(burst.wrong_answers());
        let before = self.calls().len();
        let result = |rng: &mut Rng| vec![b'r'; usize::try_from(rng.draw(50..600)).unwrap_or_default() << 10];
        let acquired = burst.answers.into_iter().filter_map(|answer| match answer {
            Ok(Acquire::Acquired(claim)) => Some((claim, result(rng))),
            _ => None,
        });
        let claims: Vec<_> = acquired.collect();
        let completes = claims.iter().map(|(claim, result)| self.store.complete(claim, StoredResult::Inline(result)));
        for settled in join_all(completes).await {
            if !matches!(settled, Ok(Settled::Recorded)) {
                wrong.push(format!("not recorded: {settled:?}"));
            }
        }
        let calls = self.calls().split_off(before);
        for call in &calls {
            if call.records.len() > 1 && call.bytes > BYTES_PER_CALL + BESIDES {
                wrong.push(format!("a call of {} records and {} bytes", call.records.len(), call.bytes));
            }
            let is_in_flight = |other: &&Exchange| {
                other.sent_us <= call.sent_us && other.answered_us.is_none_or(|answered| answered > call.sent_us)
            };
            let in_flight: usize = calls.iter().filter(is_in_flight).map(|call| call.bytes).sum();
            if in_flight > BYTES_IN_FLIGHT + BESIDES {
                wrong.push(format!("{in_flight} bytes in flight"));
            }
        }
        if !calls.iter().any(|call| call.records.len() > 1) {
            wrong.push("no results shared a call".to_owned());
        }
        wrong
    }
}
