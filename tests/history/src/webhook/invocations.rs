//! Whether invocations fail, and whether their messages are delivered again, as docs/faults.md says.

use std::ops::RangeInclusive;

use super::run::delay_s;
use super::{Delivery, Invoked, Received, hash};
use crate::event::Answer;
use crate::history::History;

/// How much later than the message with its key and payload an in-batch duplicate is delivered again, seconds: 5 to 15,
/// of which both delays are rounded.
const DUPLICATE_SEPARATION_S: RangeInclusive<u64> = 4..=16;

/// How much later than the end of the lease a conflict is delivered again at most, seconds.
const CONFLICT_JITTER_S: u64 = 2;

/// How many invocations may time out in a run without deliveries. One more may for each hundred deliveries: a busy
/// machine causes a few.
const TIMEOUTS: usize = 3;

impl Received {
    /// What is wrong with deliveries apart from their runs. A malformed record affects no other message, and is
    /// delivered again. An invocation fails only if the store is unavailable, and delays its messages.
    pub(super) fn wrong_invocations(&self, history: &History) -> impl Iterator<Item = String> {
        self.deliveries.iter().filter_map(|delivery| {
            let expected = delay_s(None, delivery.receive_count);
            let is_expected = delivery.visibility_s.is_some_and(|after_s| expected.contains(&after_s));
            let why = match &delivery.invocation {
                Invoked::Error(error) if !error.contains("the idempotency store is unavailable") => {
                    "an invocation failed, although the store was available".to_owned()
                }
                Invoked::NotNamed if delivery.is_malformed => "a malformed record was acknowledged".to_owned(),
                Invoked::Named if delivery.is_malformed && !is_expected => {
                    format!("a malformed record is not delivered again in {expected:?} s")
                }
                Invoked::Error(_) if !is_expected && !self.is_apart(delivery) && !is_after_lease(delivery, history) => {
                    format!("a failed invocation is not repeated in {expected:?} s")
                }
                _ => return None,
            };
            Some(format!("{}: {why}: {delivery:?}", delivery.key))
        })
    }

    /// The function responds before the end of its invocation, whatever else does not respond.
    pub(super) fn wrong_timeouts(&self) -> Option<String> {
        let timeouts = self.timeouts;
        (timeouts > TIMEOUTS + self.deliveries.len() / 100)
            .then(|| format!("{timeouts} invocations timed out, whose processes were not stopped"))
    }

    /// Whether it is delivered again as an in-batch duplicate of another message of its invocation.
    fn is_apart(&self, delivery: &Delivery) -> bool {
        let mut others = self.deliveries.iter().filter(|other| {
            (other.process, other.begun_us, &other.key, &other.body)
                == (delivery.process, delivery.begun_us, &delivery.key, &delivery.body)
                && other.message_id != delivery.message_id
        });
        others.any(|other| {
            let apart_s = delivery.visibility_s.zip(other.visibility_s).and_then(|(own, other)| own.checked_sub(other));
            apart_s.is_some_and(|apart_s| DUPLICATE_SEPARATION_S.contains(&apart_s))
        })
    }
}

/// Whether it is delivered again after the lease that it was in conflict with.
fn is_after_lease(delivery: &Delivery, history: &History) -> bool {
    let meanwhile = delivery.begun_us..=delivery.ended_us;
    history.keys.get(&delivery.key).into_iter().flatten().any(|operation| {
        let Answer::Conflict { remains_ms } = operation.answer else { return false };
        let remains_s = remains_ms / 1000..=remains_ms.div_ceil(1000) + CONFLICT_JITTER_S;
        operation.call.request().message == hash(&delivery.message_id)
            && meanwhile.contains(&operation.invoked_us)
            && delivery.visibility_s.is_some_and(|after_s| remains_s.contains(&after_s))
    })
}
