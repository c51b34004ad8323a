//! Catches panics in code of the program: the work, its errors, and its own record and object store.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;

/// The result of the call. `None` if it panics.
pub(crate) fn catch<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).map_err(discard).ok()
}

/// The output of the future. `None` if it panics, also in a destructor of what it owns.
pub(crate) fn catch_async<T>(future: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    AssertUnwindSafe(future).catch_unwind().map(|output| output.map_err(discard).ok())
}

/// Drops the payload of a caught panic. Its destructor is code of the program too, and may panic again.
fn discard(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        mem::forget(again);
    }
}

/// An error of the program, which may be dropped anywhere: a panic in its destructor is caught.
pub(super) struct ProgramError(Option<Box<dyn Error + Send + Sync>>);

impl ProgramError {
    pub(super) fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(Some(error.into()))
    }

    pub(super) fn get_ref(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.0.as_deref()
    }
}

impl Drop for ProgramError {
    fn drop(&mut self) {
        let error = self.0.take();
        let _caught = catch(|| drop(error));
    }
}

impl fmt::Debug for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |error| fmt::Debug::fmt(error, f))
    }
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |error| fmt::Display::fmt(error, f))
    }
}

impl Error for ProgramError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.as_ref()?.source()
    }
}
