//! Panics of a command.

use std::any::Any;
use std::error::Error;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use idempotent_sqs::credentials::NO_CERTIFICATES;

use crate::output::CommandOutput;

/// Runs a command. A panic is an error, because the AWS SDK panics if no certificate can be loaded.
pub(crate) async fn caught(
    command: impl Future<Output = Result<CommandOutput, Box<dyn Error>>>,
) -> Result<CommandOutput, Box<dyn Error>> {
    let output = AssertUnwindSafe(command).catch_unwind().await;
    output.unwrap_or_else(|panic| Err(reason(&*panic).into()))
}

/// What the panic says, and what to do if the AWS SDK found no certificate.
fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no reason");
    if text.contains("certificates") {
        return format!("the AWS SDK panicked: {NO_CERTIFICATES}");
    }
    format!("the command panicked: {text}")
}
