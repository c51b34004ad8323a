//! From the outcome of a run to what the broker is told. A pure function.

use std::time::Duration;

use idempotent_sqs::idempotency::{StoreError, WorkErrorKind, backoff};
use idempotent_sqs::{Decision, Outcome, Report};

use crate::dead_letter::{DeadLetter, Reason};

/// What the broker is told about a message.
#[derive(Debug)]
pub(crate) enum Disposition {
    /// Its work is done.
    Ack,
    /// Deliver it again after this time.
    Delay(Duration),
    /// No further attempt can succeed.
    DeadLetter(DeadLetter),
}

/// What to do with a message that was delivered this often.
pub(crate) fn disposition(result: &Result<Report, StoreError>, deliveries: u32) -> Disposition {
    let Ok(report) = result else {
        // The store did not answer, and nothing ran.
        return Disposition::Delay(backoff(deliveries));
    };
    match report.decision(deliveries) {
        Decision::Ack => Disposition::Ack,
        Decision::Retry { after } => Disposition::Delay(after.unwrap_or_else(|| backoff(deliveries))),
        Decision::DeadLetter => {
            let (reason, detail) = reason(&report.outcome);
            Disposition::DeadLetter(DeadLetter { reason, detail, attempts: report.attempts })
        }
    }
}

/// Why a message is dead-lettered, and the details.
fn reason(outcome: &Outcome) -> (Reason, String) {
    if let Outcome::FailedPermanently { error, .. } = outcome {
        let is_permanent = error.kind() == WorkErrorKind::Permanent;
        let reason = if is_permanent { Reason::FailedPermanently } else { Reason::AttemptsUsedUp };
        return (reason, error.to_string());
    }
    if matches!(outcome, Outcome::Mismatch) {
        return (Reason::Mismatch, "the key was used for another payment".to_owned());
    }
    // `FailedBefore`: no other outcome is dead-lettered.
    (Reason::Failed, "an earlier delivery failed permanently, or used up the attempts".to_owned())
}

#[cfg(test)]
mod tests {
    use idempotent_sqs::{Claim, Delivery, Fingerprint, Idempotency, Key, MemoryStore, Policy, WorkError, work_fn};

    use super::*;

    type Attempt = fn() -> Result<Vec<u8>, WorkError>;

    const PAID: Attempt = || Ok(Vec::new());
    const CLEAN: Attempt = || Err(WorkError::retryable("no route"));
    const UNCERTAIN: Attempt = || Err(WorkError::uncertain("cut off"));
    const PERMANENT: Attempt = || Err(WorkError::permanent("the amount is 0"));

    /// What the broker is told after each of these attempts at one key.
    async fn told<const N: usize>(attempts: [Attempt; N]) -> [Disposition; N] {
        let mut policy = Policy::default();
        policy.max_attempts = 2;
        let idempotency = Idempotency::new(MemoryStore::default(), policy);
        let delivery = Delivery::new(Key::new("pay-1").unwrap());
        let mut told = Vec::new();
        for attempt in attempts {
            let work = work_fn(|_: &Claim, (): &()| async move { attempt() });
            told.push(disposition(&idempotency.run(&delivery, &work, &()).await, 1));
        }
        told.try_into().unwrap()
    }

    fn is_dead(disposition: &Disposition, reason: Reason, attempts: Option<u8>) -> bool {
        matches!(disposition, Disposition::DeadLetter(letter) if letter.reason == reason && letter.attempts == attempts)
    }

    #[tokio::test]
    async fn done_work_and_duplicates_are_acknowledged() {
        assert!(matches!(told([PAID, PAID]).await, [Disposition::Ack, Disposition::Ack]));
    }

    #[tokio::test]
    async fn failures_are_delayed_until_the_attempts_are_used_up() {
        let [first, last, later] = told([CLEAN, UNCERTAIN, PAID]).await;
        assert!(matches!(first, Disposition::Delay(delay) if delay >= Duration::from_secs(1)), "{first:?}");
        assert!(is_dead(&last, Reason::AttemptsUsedUp, Some(2)), "{last:?}");
        assert!(is_dead(&later, Reason::Failed, None), "{later:?}");
    }

    #[tokio::test]
    async fn a_permanent_failure_is_dead_lettered_at_once() {
        let [first] = told([PERMANENT]).await;
        assert!(is_dead(&first, Reason::FailedPermanently, Some(1)), "{first:?}");
    }

    #[tokio::test]
    async fn another_payload_under_the_same_key_is_dead_lettered() {
        let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
        let work = work_fn(|_: &Claim, (): &()| async { PAID() });
        let mut told = Vec::new();
        for payload in [b"1250", b"9900"] {
            let delivery = Delivery::new(Key::new("pay-1").unwrap()).fingerprint(Fingerprint::of(payload));
            told.push(disposition(&idempotency.run(&delivery, &work, &()).await, 1));
        }
        assert!(matches!(&told[..], [Disposition::Ack, other] if is_dead(other, Reason::Mismatch, None)), "{told:?}");
    }

    #[test]
    fn while_the_store_is_unavailable_messages_are_delayed_by_their_backoff() {
        let unavailable = || Err(StoreError::unavailable("no answer"));
        for (deliveries, range) in [(1, 1..=2), (2, 2..=4), (10, 450..=900)] {
            let Disposition::Delay(delay) = disposition(&unavailable(), deliveries) else { panic!("not delayed") };
            assert!(range.contains(&delay.as_secs()), "{deliveries}: {delay:?}");
        }
    }
}
