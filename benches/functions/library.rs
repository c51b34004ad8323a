//! A function with this library and work that does nothing, or that takes `WORK_MS` if it is set.

use benches::work_timer::WorkTimer;
use idempotent_sqs::{Claim, Config, Message, Work, WorkError};

struct Noop(Option<WorkTimer>);

impl Work<Message> for Noop {
    async fn run(&self, _claim: &Claim, _message: &Message) -> Result<Vec<u8>, WorkError> {
        if let Some(timer) = &self.0 {
            timer.wait().await;
        }
        // 24 bytes, as in the functions that it is compared with.
        Ok(b"the order was dispatched".to_vec())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    lambda_runtime::tracing::init_default_subscriber();
    Config::from_env()?.handler(Noop(WorkTimer::from_env()?))?.serve().await
}
