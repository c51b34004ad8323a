//! The tries of a call that the SDK repeats.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_sqs::config::interceptors::{BeforeTransmitInterceptorContextRef, FinalizerInterceptorContextRef};
use aws_sdk_sqs::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_sqs::error::BoxError;

use super::hidden::HiddenUntil;

/// Counts the tries of a call that may have taken effect without a reply, and keeps when a visibility timeout ends that
/// begins with the last try.
#[derive(Clone, Debug)]
pub(super) struct Tries {
    state: Arc<Mutex<State>>,
    visibility_timeout: Duration,
}

#[derive(Debug)]
struct State {
    /// Number of tries that were sent and have not been answered.
    unanswered: u32,
    hidden_until: HiddenUntil,
}

impl Intercept for Tries {
    fn name(&self) -> &'static str {
        "Tries"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let mut state = self.state();
        state.unanswered += 1;
        state.hidden_until = HiddenUntil::after(self.visibility_timeout);
        Ok(())
    }

    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let is_answered = match context.output_or_error() {
            Some(Ok(_)) => true,
            // As a call that is refused: SQS says that it had no effect.
            Some(Err(error)) if error.is_operation_error() => {
                context.response().is_some_and(|response| response.status().is_client_error())
            }
            Some(Err(_)) | None => false,
        };
        if is_answered {
            let mut state = self.state();
            state.unanswered = state.unanswered.saturating_sub(1);
        }
        Ok(())
    }
}

impl Tries {
    pub(super) fn new(visibility_timeout: Duration) -> Self {
        let state = State { unanswered: 0, hidden_until: HiddenUntil::after(visibility_timeout) };
        Self { state: Arc::new(Mutex::new(state)), visibility_timeout }
    }

    /// Whether a try may have taken effect without a reply that says so.
    pub(super) fn any_unanswered(&self) -> bool {
        self.state().unanswered > 0
    }

    pub(super) fn hidden_until(&self) -> HiddenUntil {
        self.state().hidden_until
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
