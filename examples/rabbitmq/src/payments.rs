//! Payments, a line of JSON each in a file. The same work as in `examples/axum`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
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
        match self.find(claim.key().as_str()).map_err(WorkError::retryable)? {
            None => self.run(claim, request).await,
            Some(payment) if (payment.amount, &payment.currency) == (request.amount, &request.currency) => {
                Ok(Vec::new())
            }
            // Redis lost the record of another payment with this key.
            Some(_) => Err(WorkError::permanent("the key was used for another payment")),
        }
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

    /// Appends the line in one write, so that a killed process leaves no half of it. The file is locked, because its last
    /// line may be incomplete while another process appends it.
    fn make(&self, payment: &Payment) -> Result<(), WorkError> {
        let file = OpenOptions::new().create(true).read(true).append(true).open(&self.path);
        // Nothing is written yet.
        let mut file = file.map_err(WorkError::retryable)?;
        file.lock().map_err(WorkError::retryable)?;
        let line = line(&mut file, payment).map_err(WorkError::retryable)?;
        file.write_all(&line).map_err(WorkError::uncertain)
    }

    /// The first payment with this key.
    fn find(&self, key: &str) -> io::Result<Option<Payment>> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        for line in BufReader::new(file).split(b'\n') {
            // A damaged line is no payment. It may end within a character.
            let Ok(payment) = serde_json::from_slice::<Payment>(&line?) else { continue };
            if payment.key == key {
                return Ok(Some(payment));
            }
        }
        Ok(None)
    }
}

/// The line of a payment. It begins with a line end if the last line of the file has none: a full disk may have cut it
/// off.
fn line(file: &mut File, payment: &Payment) -> io::Result<Vec<u8>> {
    let mut line = if ends_in_a_line(file)? { Vec::new() } else { vec![b'\n'] };
    serde_json::to_writer(&mut line, payment)?;
    line.push(b'\n');
    Ok(line)
}

fn ends_in_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == [b'\n'])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]

    use std::{fs, thread};

    use idempotent_sqs::{Delivery, Idempotency, Key, MemoryStore, Outcome, Policy, work_fn};

    use super::*;

    fn payment(key: &str) -> Payment {
        Payment { amount: 1250, currency: "EUR".into(), key: key.into(), fence: 1, attempt: 1, is_recovery: false }
    }

    fn keys(payments: &Payments) -> [bool; 2] {
        ["zahlung_ä", "zahlung_ü"].map(|key| payments.find(key).unwrap().is_some())
    }

    /// Redis has lost the record of a payment, and its key is used for another one, whose first attempt is uncertain.
    #[tokio::test]
    async fn a_recovery_under_the_key_of_another_payment_fails_permanently_and_pays_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("payments");
        let payments = Payments::new(path.clone(), Duration::ZERO);
        payments.make(&payment("k")).unwrap();
        let lines = fs::read_to_string(&path).unwrap();
        let delivery = Delivery::new(Key::new("k").unwrap());
        for (amount, currency, is_the_same) in [(99, "EUR", false), (1250, "USD", false), (1250, "EUR", true)] {
            let request = PaymentRequest { amount, currency: currency.into() };
            let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
            let uncertain = work_fn(|_, _: &PaymentRequest| async { Err(WorkError::uncertain("killed")) });
            idempotency.run(&delivery, &uncertain, &request).await.unwrap();
            let outcome = idempotency.run(&delivery, &payments, &request).await.unwrap().outcome;
            let is_right = if is_the_same {
                matches!(outcome, Outcome::Done { .. })
            } else {
                let expected = "the key was used for another payment";
                matches!(&outcome, Outcome::FailedPermanently { error, .. } if error.to_string() == expected)
            };
            assert!(is_right, "{amount} {currency}: {outcome:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), lines, "nothing was paid");
        }
    }

    /// The threads stand for processes that share the file.
    #[test]
    fn payments_that_are_made_at_the_same_time_have_a_line_each() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("payments");
        let payments = Payments::new(path.clone(), Duration::ZERO);
        let make = || (0..5000).for_each(|_| payments.make(&payment("k")).unwrap());
        thread::scope(|scope| [scope.spawn(make), scope.spawn(make)].map(|made| made.join().unwrap()));
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 10_000);
    }

    /// A full disk cuts off a line at any byte, also within a character.
    #[test]
    fn a_payment_after_a_line_that_was_cut_off_is_found_by_its_recovery() {
        let whole = serde_json::to_string(&payment("zahlung_ü")).unwrap();
        for length in 0..=whole.len() {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("payments");
            fs::write(&path, &whole.as_bytes()[..length]).unwrap();
            let payments = Payments::new(path.clone(), Duration::ZERO);
            assert_eq!(keys(&payments), [false, length == whole.len()], "{length}");
            payments.make(&payment("zahlung_ä")).unwrap();
            assert_eq!(keys(&payments), [true, length == whole.len()], "{length}");
            payments.make(&payment("zahlung_ü")).unwrap();
            assert_eq!(keys(&payments), [true, true], "{length}");
            let lines = fs::read(&path).unwrap().split(|byte| *byte == b'\n').count();
            assert_eq!(lines, if length == 0 { 3 } else { 4 }, "a line for each payment, and the damaged one");
        }
    }
}
