//! What the handler is told.

use idempotent_sqs::idempotency::Fence;
use idempotent_sqs::{Claim, Key};
use tokio::time::Instant;

/// The attempt that the handler runs in, an extension of its request.
///
/// In axum it is the argument `Extension<IdempotentRequest>`. A request without a key, and one that runs without the
/// store by [`StoreOutage::RunUnprotected`](crate::StoreOutage::RunUnprotected), does not have it: for these, take
/// `Option<Extension<IdempotentRequest>>`, or axum answers 500.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct IdempotentRequest {
    /// The key of the record, which is different for each principal. Pass it to the services that the handler calls. It
    /// has the hash of the [`Principal`](crate::Principal) in it.
    pub key: Key,
    /// The key as the client sent it, without quotes.
    pub client_key: String,
    /// A number that grows with each attempt at the key. Pass it to a resource that rejects lower ones.
    pub fence: Fence,
    /// The number of this attempt, from 1.
    pub attempt: u8,
    /// Whether an earlier attempt may have taken effect: its process died, it was cancelled at its deadline, it
    /// panicked, it returned an error, its response broke off, it answered with a 5xx other than 503 or an unknown
    /// status, or its release could not be recorded. With [`ServerErrors::Keep`](crate::ServerErrors::Keep) such a 5xx
    /// is kept instead.
    pub is_recovery: bool,
    /// When the handler is cancelled.
    pub ends: Instant,
}

impl IdempotentRequest {
    pub(crate) fn new(claim: &Claim, client_key: String) -> Self {
        let (key, fence, attempt) = (claim.key().clone(), claim.fence(), claim.attempt());
        Self { key, client_key, fence, attempt, is_recovery: claim.is_recovery(), ends: claim.ends() }
    }
}
