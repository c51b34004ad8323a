//! A function of your own: a work, and the wiring. This one's work does nothing, and says so.

use idempotent_sqs::config::Config;
use idempotent_sqs::message::Message;
use idempotent_sqs::store::Claim;
use idempotent_sqs::work::{Work, WorkError};

struct Noop;

impl Work for Noop {
    async fn run(&self, _claim: &Claim, _message: &Message) -> Result<Vec<u8>, WorkError> {
        Ok(b"nothing was done, gladly".to_vec())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    lambda_runtime::tracing::init_default_subscriber();
    Config::from_env()?.handler(Noop)?.serve().await
}
