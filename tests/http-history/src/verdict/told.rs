//! Whether each answer is what the store answered to the same request.

use idempotent_sqs_http::StoreOutage;

use crate::answer::{Answer, NOT_KEPT};
use crate::clients::Sent;
use crate::kind::Serves;
use crate::runs::Run;
use crate::service::GRACE;
use crate::store::{Asked, Told};
use crate::verdict::Seen;

impl Seen {
    /// What is wrong with the answer to the request of this number, by what the store answered. `own` is its run.
    pub(crate) fn wrong_by_store(&self, number: usize, sent: &Sent, own: Option<&Run>) -> Option<&'static str> {
        if let Some(run) = self.unprotected_run(number) {
            // What the store answers later does not count, nor what a busy machine takes notice of later.
            let is_told = |asked: &Asked| match asked.told {
                Told::Duplicate { .. } | Told::Conflict { .. } => asked.to + GRACE + self.late < run.from,
                Told::OtherValue => asked.to <= run.from,
                _ => false,
            };
            return self.asked_for(number).any(is_told).then_some("it ran without the store, which had answered");
        }
        let answered = sent.answered.as_ref()?;
        let at = sent.at + answered.after;
        let asked: Vec<&Asked> = self.asked_for(number).filter(|asked| asked.to <= at).collect();
        let last = asked.last().map(|asked| asked.told);
        let was_done = asked.iter().any(|asked| matches!(asked.told, Told::Duplicate { .. }));
        let is_right = match &answered.answer {
            Answer::Receipt { is_replayed: true, .. } => was_done,
            Answer::Problem { kind, .. } => match kind.as_str() {
                NOT_KEPT => was_done && !(sent.kind.has_objects && self.read.contains(&number)),
                "in-flight" => matches!(last, Some(Told::Conflict { .. })),
                "mismatch" => last == Some(Told::Mismatch),
                "failed-before" if own.is_none() => {
                    last == Some(Told::Failed)
                        || sent.kind.parks && matches!(last, Some(Told::Acquired { is_recovery: true, .. }))
                }
                "not-started" => matches!(last, None | Some(Told::Acquired { .. })),
                "store-unavailable" => {
                    // Only a reply that comes too late leaves the store out of reach, or an acquire when the object is
                    // read.
                    let was_final = |asked: &&Asked| {
                        matches!(asked.told, Told::Duplicate { .. } | Told::Mismatch | Told::Failed)
                            && asked.to + GRACE + self.late < at
                    };
                    // The acquire that reads an object may have been cut off.
                    let is_reading = sent.kind.has_objects && asked.len() == 1;
                    let is_final = !is_reading && asked.last().is_some_and(was_final);
                    !is_final && !self.must_run_unprotected(number, sent, was_done)
                }
                _ => true,
            },
            _ => true,
        };
        (!is_right).then_some("another answer than the store gave")
    }

    /// What is wrong with the acquires of the request of this number.
    pub(crate) fn wrong_acquires(&self, number: usize, sent: &Sent) -> Option<&'static str> {
        if self.asked_for(number).any(|asked| asked.keeping != sent.kind.keeping()) {
            return Some("its record is kept otherwise than its service says");
        }
        let mut after =
            self.asked_for(number).skip_while(|asked| !matches!(asked.told, Told::Duplicate { .. })).skip(1);
        (after.next().is_some() && !sent.kind.has_objects)
            .then_some("the store was asked again, although there is no object to read")
    }

    /// `StoreOutage::RunUnprotected`: whether a request that was told that the store is out of reach must have run
    /// instead.
    fn must_run_unprotected(&self, number: usize, sent: &Sent, was_done: bool) -> bool {
        let Some(answered) = &sent.answered else { return false };
        let forbids = |asked: &Asked| matches!(asked.told, Told::OtherValue | Told::Conflict { .. });
        let is_late = sent.deadline.is_some_and(|deadline| sent.at + answered.after >= deadline.work);
        sent.kind.store_outage == StoreOutage::RunUnprotected
            && sent.kind.serves == Serves::Handler
            && !(self.asked_for(number).any(forbids) || was_done || is_late)
    }
}
