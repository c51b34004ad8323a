//! Payments, a line of JSON each in a file. The same work as in `examples/axum`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::time::Duration;

use idempotent_sqs::{Claim, Work, WorkError};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

/// The body of a message.
#[derive(Debug, Deserialize)]
pub(crate) struct PaymentRequest {
    /// In cents.
    amount: u64,
    /// ISO 4217.
    currency: String,
}

/// A payment that was made.
#[derive(Debug, Deserialize, Serialize)]
struct Payment {
    amount: u64,
    currency: String,
    key: String,
    fence: u64,
    attempt: u8,
    is_recovery: bool,
}

/// The file of all payments. In place of a payment provider.
#[derive(Debug)]
pub(crate) struct Payments {
    path: PathBuf,
    /// How long a payment takes.
    duration: Duration,
}

impl Work<PaymentRequest> for Payments {
    async fn run(&self, claim: &Claim, request: &PaymentRequest) -> Result<Vec<u8>, WorkError> {
        request.check()?;
        sleep(self.duration).await;
        self.make(&Payment {
            amount: request.amount,
            currency: request.currency.clone(),
            key: claim.key().as_str().to_owned(),
            fence: claim.fence().0,
            attempt: claim.attempt(),
            is_recovery: claim.is_recovery(),
        })?;
        Ok(Vec::new())
    }

    /// An earlier attempt may have paid.
    async fn recover(&self, claim: &Claim, request: &PaymentRequest) -> Result<Vec<u8>, WorkError> {
        if self.has(claim.key().as_str()).map_err(WorkError::retryable)? {
            return Ok(Vec::new());
        }
        self.run(claim, request).await
    }
}

impl PaymentRequest {
    fn check(&self) -> Result<(), WorkError> {
        if self.amount == 0 {
            return Err(WorkError::permanent("the amount is 0"));
        }
        if self.currency.len() != 3 || !self.currency.bytes().all(|letter| letter.is_ascii_uppercase()) {
            return Err(WorkError::permanent("the currency does not have three letters, such as EUR"));
        }
        Ok(())
    }
}

impl Payments {
    pub(crate) fn new(path: PathBuf, duration: Duration) -> Self {
        Self { path, duration }
    }

    /// Appends the line in one write, so that a killed process leaves no half of it.
    fn make(&self, payment: &Payment) -> Result<(), WorkError> {
        let mut line = serde_json::to_vec(payment).map_err(WorkError::permanent)?;
        line.push(b'\n');
        let file = OpenOptions::new().create(true).append(true).open(&self.path);
        // Nothing is written yet.
        let mut file = file.map_err(WorkError::retryable)?;
        file.write_all(&line).map_err(WorkError::uncertain)
    }

    /// Whether the payment with this key was made.
    fn has(&self, key: &str) -> io::Result<bool> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        for line in BufReader::new(file).lines() {
            // A damaged line is no payment.
            let Ok(payment) = serde_json::from_str::<Payment>(&line?) else { continue };
            if payment.key == key {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
