//! The work: one request to the receiver. Each run is recorded, as the work knows it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idempotent_sqs::{Claim, Message, Work, WorkError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use crate::network::{self, address};
use crate::receiver;
use crate::rng::Rng;

/// A run of the work.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an observation of its own")]
pub struct Attempt {
    pub key: String,
    pub fence: u64,
    pub is_recovery: bool,
    /// Whether it returned that it had no effect.
    pub is_clean: bool,
    /// Whether it returned that it had its effect.
    pub is_done: bool,
    /// Whether it ran after its claim had ended.
    pub is_late: bool,
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
            "done" => Ok(b"receipt".to_vec()),
            "unavailable" => Err(WorkError::unavailable("the receiver is overloaded")),
            "busy" => Err(WorkError::busy("the receiver processes another request")),
            "failed" => Err(WorkError::retryable("the receiver did nothing")),
            "permanent" => Err(WorkError::permanent("the receiver rejects this payload")),
            _ => Err(WorkError::uncertain("the receiver did not reply")),
        }
    }

    fn begin(&self, claim: &Claim) -> usize {
        let (key, fence, is_recovery) = (claim.key().stored().into_owned(), claim.fence().0, claim.is_recovery());
        let is_late = Instant::now() > claim.ends();
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.push(Attempt { key, fence, is_recovery, is_clean: false, is_done: false, is_late });
        attempts.len() - 1
    }
}

impl Work<Message> for Call {
    async fn run(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        let number = self.begin(claim);
        let result = self.call(claim, message).await;
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let uncertain = |error: &WorkError| error.kind() == idempotent_sqs::idempotency::WorkErrorKind::Uncertain;
        attempts[number].is_done = result.is_ok();
        attempts[number].is_clean = result.as_ref().is_err_and(|error| !uncertain(error));
        attempts[number].is_late |= Instant::now() > claim.ends();
        result
    }
}
