//! The operator's tool `records`: shows, counts and removes idempotency records.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    idempotent_sqs_ops::records::main().await
}
