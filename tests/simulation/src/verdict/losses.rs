//! Which lost writes a fault of the run explains, and which repetitions these explain.

use std::collections::BTreeSet;

use history::{Answer, Operation, Repetition, RepetitionKind, Report};

use crate::world::Run;

impl Run {
    /// Lost writes, and effects that are wrong, without those that a fault explains.
    pub(super) fn unexplained(&self, report: &Report) -> Vec<String> {
        let (known, others): (Vec<_>, Vec<_>) = report.lost_writes.iter().partition(|write| write.is_known);
        let losing: BTreeSet<&str> = known.iter().map(|write| write.operation.call.key()).collect();
        let mut unexplained: Vec<_> = others.iter().map(ToString::to_string).collect();
        let mut repeated = BTreeSet::new();
        for wrong in &report.wrong_effects {
            let key = &*wrong.key;
            let is_explained = losing.contains(key)
                && match wrong.repetition {
                    Some(Repetition { fence, kind: RepetitionKind::NotTold }) => self.is_first_after_loss(key, fence),
                    // A seed loses writes once. After that, one effect more is right.
                    Some(Repetition { fence, kind: RepetitionKind::TooMany }) => {
                        self.is_after_loss(key, fence) && repeated.insert(key)
                    }
                    None => false,
                };
            if !is_explained {
                unexplained.push(wrong.to_string());
            }
        }
        unexplained
    }

    /// Whether the claims of all earlier effects were lost before this claim.
    fn is_first_after_loss(&self, key: &str, fence: u64) -> bool {
        let effects = self.effects.iter().map(|counted| &counted.effect);
        let mut earlier = effects.filter(|effect| effect.key == key && effect.fence < fence);
        earlier.all(|effect| self.is_lost_before(key, effect.fence, fence))
    }

    fn is_after_loss(&self, key: &str, fence: u64) -> bool {
        self.acquire_of(key, fence).is_some_and(|call| call.losses.iter().any(|loss| call.ends_us() >= loss.at_us))
    }

    /// Whether the claim with this fence may have been lost before the one with the fence `next` was acquired.
    pub(super) fn is_lost_before(&self, key: &str, fence: u64, next: u64) -> bool {
        let (Some(claim), Some(next)) = (self.acquire_of(key, fence), self.acquire_of(key, next)) else { return false };
        let executed_us = claim.invoked_us..=claim.ends_us();
        claim.losses.iter().any(|loss| loss.may_include(&executed_us) && next.ends_us() >= loss.at_us)
    }

    /// The call that acquired the claim with this fence.
    pub(super) fn acquire_of(&self, key: &str, fence: u64) -> Option<&Operation> {
        let is_claim =
            |call: &&Operation| matches!(call.answer, Answer::Acquired { fence: acquired, .. } if acquired == fence);
        self.history.keys.get(key)?.iter().find(is_claim)
    }
}
