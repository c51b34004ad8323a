//! `noop` with a work that takes `WORK_MS`.

#[path = "clock.rs"]
mod clock;

use clock::Clock;
use idempotent_sqs::config::Config;
use idempotent_sqs::sqs::Message;
use idempotent_sqs::idempotency::{Claim, Work, WorkError};

struct Waiting(Option<Clock>);

impl Work<Message> for Waiting {
    async fn run(&self, _claim: &Claim, _message: &Message) -> Result<Vec<u8>, WorkError> {
        if let Some(clock) = &self.0 {
            clock.work().await;
        }
        Ok(b"nothing was done, slowly".to_vec())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    lambda_runtime::tracing::init_default_subscriber();
    Config::from_env()?.handler(Waiting(Clock::from_env()?))?.serve().await
}
