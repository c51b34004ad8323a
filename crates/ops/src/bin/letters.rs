//! The operator's tool `letters`: shows, redrives and deletes the messages in a dead-letter queue.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    idempotent_sqs_ops::letters::main().await
}
