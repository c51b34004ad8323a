//! A request that waits for its record, and can be withdrawn until it starts.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// A request that starts at most once.
#[derive(Debug)]
pub(crate) struct PendingRequest<T>(Mutex<State<T>>);

/// Exits: `Waiting` to `Withdrawn` or `Started`, `Started` to `Ended`.
#[derive(Debug)]
enum State<T> {
    /// For the reply of the store.
    Waiting(T),
    /// The store did not reply in time.
    Withdrawn,
    Started,
    Ended(Instant),
}

impl<T> PendingRequest<T> {
    pub(crate) fn new(request: T) -> Self {
        Self(Mutex::new(State::Waiting(request)))
    }

    /// The request, to run it. The run ends when the guard is dropped.
    pub(crate) fn start(&self) -> Option<(T, Running<'_, T>)> {
        Some((self.leave(State::Started)?, Running(self)))
    }

    /// The request, to answer it without the store.
    pub(crate) fn withdraw(&self) -> Option<T> {
        self.leave(State::Withdrawn)
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        matches!(*self.0.lock().unwrap_or_else(PoisonError::into_inner), State::Withdrawn)
    }

    /// When the run ended: it returned, panicked or was cancelled.
    pub(crate) fn ended(&self) -> Option<Instant> {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Ended(at) => Some(at),
            State::Waiting(_) | State::Withdrawn | State::Started => None,
        }
    }

    /// Only the first caller gets the request.
    fn leave(&self, next: State<T>) -> Option<T> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, next) {
            State::Waiting(request) => Some(request),
            left @ (State::Withdrawn | State::Started | State::Ended(_)) => {
                *state = left;
                None
            }
        }
    }
}

/// A run of the request.
pub(crate) struct Running<'a, T>(&'a PendingRequest<T>);

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = State::Ended(Instant::now());
    }
}
