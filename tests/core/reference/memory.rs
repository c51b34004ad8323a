//! The memory store.

use super::*;

/// The first difference. The store's clock never jumps back and nothing is evicted. Its fences come from another clock,
/// so they are compared by claim, and each owner settles its last claim.
pub(super) async fn difference_in_memory(sequence: &Sequence) -> Option<String> {
    let store = MemoryStore::default();
    let mut reference = Expectation::new(sequence);
    let mut claims: HashMap<(u8, u8), Vec<Claim>> = HashMap::new();
    let mut fences: HashMap<(u8, Fence), Fence> = HashMap::new();
    for step in &sequence.steps {
        reference.expired();
        match step {
            Step::Pass(us) => {
                // Leases end on whole milliseconds of each clock, and the clocks differ by a fraction of one.
                let ms = u64::try_from(us / 1000).unwrap_or(0);
                reference.pass(i64::try_from(ms * 1000).unwrap());
                tokio::time::advance(Duration::from_millis(ms)).await;
            }
            Step::Evict(_) | Step::Forget(_) => {}
            Step::Acquire(asks) => {
                for ask in asks {
                    let granted = reference.granted(*ask);
                    let expected = reference.acquire(*ask);
                    let is_new = reference.granted(*ask) > granted;
                    let answer = store.acquire(reference.attempt(*ask)).await.unwrap();
                    let fence = |fence: &Fence| fences.get(&(ask.key, *fence));
                    let same = match (&expected, &answer) {
                        (
                            AcquireAnswer::Acquired { fence: own, attempts, recovery },
                            Acquire::Acquired(claim) | Acquire::AcquiredStale(claim),
                        ) => {
                            (*attempts, *recovery) == (claim.attempt(), claim.is_recovery())
                                && (is_new || fence(own) == Some(&claim.fence()))
                        }
                        (
                            AcquireAnswer::Duplicate { fence: own, attempts, result },
                            Acquire::Duplicate { fence: f, attempts: a, result: r },
                        ) => a == attempts && r == result && fence(own).is_none_or(|known| known == f),
                        (AcquireAnswer::Conflict { remains }, Acquire::Conflict { lease_remains }) => {
                            remains.abs_diff(*lease_remains) <= Duration::from_millis(1)
                        }
                        (AcquireAnswer::Mismatch, Acquire::Mismatch) | (AcquireAnswer::Failed, Acquire::Failed) => true,
                        _ => false,
                    };
                    if !same {
                        return Some(format!("at {ask:?}: the store returned {answer:?}, the protocol {expected:?}"));
                    }
                    if let (
                        AcquireAnswer::Acquired { fence, .. },
                        Acquire::Acquired(claim) | Acquire::AcquiredStale(claim),
                    ) = (expected, answer)
                        && is_new
                    {
                        fences.insert((ask.key, fence), claim.fence());
                        claims.entry((ask.key, ask.owner)).or_default().push(claim);
                    }
                }
            }
            Step::Release(settles) => {
                for settle in settles.iter().map(|settle| Settle { by_first: false, ..*settle }) {
                    let (at, granted) = reference.claim(settle);
                    let claim = at.map(|at| &claims[&(settle.key, settle.owner)][at]);
                    let attempt = reference.attempt(granted.ask);
                    let expected = reference.release(settle);
                    let answer = store.release(&attempt, claim).await.unwrap();
                    if answer != expected {
                        return Some(format!(
                            "at {settle:?}: the store returned {answer:?}, the protocol {expected:?}"
                        ));
                    }
                }
            }
            Step::Complete(settles) | Step::Fail(settles) => {
                for settle in settles.iter().map(|settle| Settle { by_first: false, ..*settle }) {
                    let (at, granted) = reference.claim(settle);
                    let claim = match at {
                        Some(at) => &claims[&(settle.key, settle.owner)][at],
                        None => &{
                            let Granted { ask, fence, attempt: number, recovery } = granted;
                            match Acquire::claimed(reference.attempt(ask), fence, number, recovery) {
                                Acquire::Acquired(claim) => claim,
                                other => panic!("{other:?}"),
                            }
                        },
                    };
                    let (expected, answer) = if matches!(step, Step::Complete(_)) {
                        let kept = result(settle.how);
                        (reference.complete(settle), store.complete(claim, kept.as_deref()).await.unwrap())
                    } else {
                        (reference.fail(settle), store.fail(claim, failure(settle.how)).await.unwrap())
                    };
                    if answer != expected {
                        return Some(format!(
                            "at {settle:?}: the store returned {answer:?}, the protocol {expected:?}"
                        ));
                    }
                }
            }
        }
    }
    None
}
