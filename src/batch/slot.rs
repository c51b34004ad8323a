//! Room for one message's work. It is free again when the work ends, so that the next message starts
//! while this one is recorded.

use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::message::Message;
use crate::store::{Attempt, Claim};
use crate::work::{Work, WorkError, Worked};

/// A work that has its slot, and leaves it at its end.
pub(super) struct InSlot<'a, W> {
    work: &'a W,
    slot: Mutex<Option<SemaphorePermit<'a>>>,
}

impl<'a, W> InSlot<'a, W> {
    /// Wait for one of `slots`.
    ///
    /// ## Cancel safety
    /// A dropped future has no slot, and its place in the queue goes to the next.
    pub(super) async fn enter(slots: &'a Semaphore, work: &'a W) -> Self {
        // Nobody closes the slots.
        Self { work, slot: Mutex::new(slots.acquire().await.ok()) }
    }
}

impl<W: Work> Work for InSlot<'_, W> {
    async fn run(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        self.work.run(claim, message).await
    }

    async fn recover(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        self.work.recover(claim, message).await
    }

    async fn attempt(&self, claim: &Claim, message: &Message) -> Result<Worked, WorkError> {
        let worked = self.work.attempt(claim, message).await;
        drop(self.slot.lock().unwrap_or_else(PoisonError::into_inner).take());
        worked
    }

    async fn recorded(&self, attempt: &Attempt, until: Instant) -> Result<Option<Vec<u8>>, WorkError> {
        self.work.recorded(attempt, until).await
    }

    fn keeps_record(&self) -> bool {
        self.work.keeps_record()
    }
}
