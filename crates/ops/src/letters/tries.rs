//! The tries of a call that the SDK repeats.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_sqs::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_sqs::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_sqs::error::BoxError;

use super::hidden::HiddenUntil;

/// Counts the tries of a call that the SDK repeats, and keeps when a visibility timeout ends that begins with the last.
#[derive(Clone, Debug)]
pub(super) struct Tries {
    number: Arc<AtomicU32>,
    hidden_until: Arc<Mutex<HiddenUntil>>,
    visibility_timeout: Duration,
}

impl Intercept for Tries {
    fn name(&self) -> &'static str {
        "Tries"
    }

    fn read_before_attempt(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.number.fetch_add(1, Ordering::Relaxed);
        *self.hidden_until.lock().unwrap_or_else(PoisonError::into_inner) = HiddenUntil::after(self.visibility_timeout);
        Ok(())
    }
}

impl Tries {
    pub(super) fn new(visibility_timeout: Duration) -> Self {
        let hidden_until = Arc::new(Mutex::new(HiddenUntil::after(visibility_timeout)));
        Self { number: Arc::default(), hidden_until, visibility_timeout }
    }

    pub(super) fn were_several(&self) -> bool {
        self.number.load(Ordering::Relaxed) > 1
    }

    pub(super) fn hidden_until(&self) -> HiddenUntil {
        *self.hidden_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
