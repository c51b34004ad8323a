//! Objects of large responses, some of which cannot be read or written, or only slowly.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use harness::torture::tally::lock;
use idempotent_sqs::idempotency::{Location, ObjectError, ObjectStore};
use idempotent_sqs_testing::MemoryObjectStore;
use tokio::time::sleep;

use crate::logs;

/// Longer than some services wait for the store.
const SLOW: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(crate) struct Objects {
    store: MemoryObjectStore,
    calls: AtomicUsize,
    /// The requests whose object was read.
    pub(crate) read: Mutex<BTreeSet<usize>>,
}

impl Objects {
    /// Makes one of six calls fail, and three of them slow.
    async fn call(&self) -> Result<(), ObjectError> {
        match self.calls.fetch_add(1, Ordering::Relaxed) % 6 {
            2 => Err(ObjectError::unavailable("planned")),
            1 | 3 | 5 => {
                sleep(SLOW).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl ObjectStore for Objects {
    fn get<'a>(&'a self, location: &'a Location, max_bytes: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        Box::pin(async move {
            self.call().await?;
            let object = self.store.get(location, max_bytes).await;
            lock(&self.read).extend(logs::request().filter(|_| object.is_ok()));
            object
        })
    }

    fn put<'a>(&'a self, location: &'a Location, bytes: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async move {
            self.call().await?;
            self.store.put(location, bytes).await
        })
    }
}
