//! S3 as the function reaches it: it is slow, and sometimes unavailable.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use history::Rng;
use idempotent_sqs::idempotency::{Location, ObjectError, ObjectStore};
use tokio::time::sleep;

use crate::producers::BUCKET;
use crate::trace::event;

/// The payloads that are not in their messages, by name.
pub struct Objects {
    payloads: BTreeMap<String, String>,
    rng: Mutex<Rng>,
    faults_ended: AtomicBool,
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ObjectError>> + Send + 'a>>;

impl Objects {
    pub fn new(payloads: BTreeMap<String, String>, rng: Rng) -> Self {
        Self { payloads, rng: Mutex::new(rng), faults_ended: AtomicBool::new(false) }
    }

    /// From now on S3 is available.
    pub fn end_faults(&self) {
        self.faults_ended.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

impl ObjectStore for Objects {
    fn get<'a>(&'a self, location: &'a Location, _max_bytes: usize) -> Answer<'a, Vec<u8>> {
        Box::pin(async move {
            let (delay, fails) = {
                let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
                (rng.ms(5..100), rng.happens(150) && !self.faults_ended.load(Ordering::Relaxed))
            };
            sleep(delay).await;
            event(|| format!("S3: {}, fails: {fails}", location.name));
            match self.payloads.get(&location.name).filter(|_| location.bucket == BUCKET) {
                _ if fails => Err(ObjectError::unavailable("S3 is overloaded")),
                Some(payload) => Ok(payload.clone().into_bytes()),
                None => Err(ObjectError::NotFound),
            }
        })
    }

    fn put<'a>(&'a self, _location: &'a Location, _bytes: Vec<u8>) -> Answer<'a, ()> {
        unreachable!("results are kept in records")
    }
}
