//! Objects in this process's memory: for tests, without S3.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use futures_util::future::{BoxFuture, ready};

use crate::object::{ObjectError, Objects, Place};

/// [`Objects`] for tests. They end with this process.
#[derive(Debug, Default)]
pub struct MemoryObjects {
    objects: Mutex<HashMap<Place, Vec<u8>>>,
}

impl MemoryObjects {
    /// The places that have an object, in no order.
    pub fn places(&self) -> Vec<Place> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}

impl Objects for MemoryObjects {
    fn get<'a>(&'a self, place: &'a Place, max_bytes: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(ready(match objects.get(place) {
            Some(bytes) if bytes.len() > max_bytes => Err(ObjectError::TooLarge { max_bytes }),
            Some(bytes) => Ok(bytes.clone()),
            None => Err(ObjectError::Gone),
        }))
    }

    fn put<'a>(&'a self, place: &'a Place, bytes: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).insert(place.clone(), bytes);
        Box::pin(ready(Ok(())))
    }
}
