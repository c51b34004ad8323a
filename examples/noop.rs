//! A minimal Lambda function whose work does nothing.

use idempotent_sqs::{Claim, Config, Message, Work, WorkError};

struct Noop;

impl Work<Message> for Noop {
    async fn run(&self, _claim: &Claim, _message: &Message) -> Result<Vec<u8>, WorkError> {
        Ok(b"nothing done".to_vec())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    lambda_runtime::tracing::init_default_subscriber();
    Config::from_env()?.handler(Noop)?.serve().await
}
