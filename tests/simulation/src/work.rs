//! The work: one request to the receiver. Each run is recorded, as the work knows it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use history::{Hex, Rng, monotonic_us};
use idempotent_sqs::{Claim, Message, Work, WorkError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::network::{self, address};
use crate::receiver;

/// A run of the work.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub key: String,
    pub fence: u64,
    pub fingerprint: Hex<16>,
    pub is_recovery: bool,
    /// The message and its payload.
    pub message_id: String,
    pub body: String,
    /// Whether it returned that it had no effect.
    pub is_clean: bool,
    /// Whether it returned that it had its effect.
    pub is_done: bool,
    /// When it ran last, µs by the monotonic clock.
    pub ran_us: u64,
}

/// The runs of all processes. Clones share it.
pub type Attempts = Arc<Mutex<Vec<Attempt>>>;

/// The work of a process.
pub struct Call {
    /// The process of the function.
    pub client: String,
    /// How often of 1000 times it panics, after its request was sent.
    pub panics: (u64, Mutex<Rng>),
    pub attempts: Attempts,
}

/// What the work with this claim returns.
pub fn receipt(fence: u64) -> Vec<u8> {
    format!("receipt of {fence}").into_bytes()
}

impl Call {
    async fn call(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        const TIMEOUT: Duration = Duration::from_millis(800);
        let connected = timeout(TIMEOUT, network::connect(&address(receiver::NAME, &self.client))).await;
        let mut stream = connected.map_err(WorkError::unavailable)?.map_err(WorkError::unavailable)?;
        let recovery = if claim.is_recovery() { "recovery" } else { "first" };
        let request = format!("{} {} {recovery} {}\n", claim.key().stored(), claim.fence().0, message.body());
        let mut reply = String::new();
        let exchange = async {
            stream.write_all(request.as_bytes()).await?;
            let (rate, rng) = &self.panics;
            let panics = rng.lock().unwrap_or_else(PoisonError::into_inner).happens(*rate);
            assert!(!panics, "the work panics");
            stream.read_to_string(&mut reply).await
        };
        timeout(2 * TIMEOUT, exchange).await.map_err(WorkError::uncertain)?.map_err(WorkError::uncertain)?;
        match &*reply {
            "done" => Ok(receipt(claim.fence().0)),
            "unavailable" => Err(WorkError::unavailable("the receiver is overloaded")),
            "busy" => Err(WorkError::busy("the receiver processes another request")),
            "failed" => Err(WorkError::retryable("the receiver did nothing")),
            "permanent" => Err(WorkError::permanent("the receiver rejects this payload")),
            _ => Err(WorkError::uncertain("the receiver did not reply")),
        }
    }

    fn begin(&self, claim: &Claim, message: &Message) -> usize {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.push(Attempt {
            key: claim.key().stored().into_owned(),
            fence: claim.fence().0,
            fingerprint: Hex(*claim.request().fingerprint.as_bytes()),
            is_recovery: claim.is_recovery(),
            message_id: message.id.clone(),
            body: message.body().to_owned(),
            is_clean: false,
            is_done: false,
            ran_us: monotonic_us(),
        });
        attempts.len() - 1
    }
}

impl Work<Message> for Call {
    async fn run(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        let number = self.begin(claim, message);
        let result = self.call(claim, message).await;
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let uncertain = |error: &WorkError| error.kind() == idempotent_sqs::idempotency::WorkErrorKind::Uncertain;
        attempts[number].is_done = result.is_ok();
        attempts[number].is_clean = result.as_ref().is_err_and(|error| !uncertain(error));
        attempts[number].ran_us = monotonic_us();
        result
    }
}
