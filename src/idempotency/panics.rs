//! Catches panics in code of the program: the work, its errors, and its own record and object store.

use std::any::Any;
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
