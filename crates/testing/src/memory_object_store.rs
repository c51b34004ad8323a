//! An object store in the memory of this process, for tests without S3.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use futures_util::future::{BoxFuture, ready};

use idempotent_sqs::idempotency::{Location, ObjectError, ObjectStore};

/// [`ObjectStore`] in memory, for tests.
#[derive(Debug, Default)]
pub struct MemoryObjectStore {
    objects: Mutex<HashMap<Location, Vec<u8>>>,
}

impl MemoryObjectStore {
    /// The locations of all objects, in no particular order.
    pub fn locations(&self) -> Vec<Location> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}

impl ObjectStore for MemoryObjectStore {
    fn get<'a>(&'a self, location: &'a Location, max_bytes: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(ready(match objects.get(location) {
            Some(bytes) if bytes.len() > max_bytes => Err(ObjectError::TooLarge { max_bytes }),
            Some(bytes) => Ok(bytes.clone()),
            None => Err(ObjectError::NotFound),
        }))
    }

    fn put<'a>(&'a self, location: &'a Location, bytes: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).insert(location.clone(), bytes);
        Box::pin(ready(Ok(())))
    }
}
