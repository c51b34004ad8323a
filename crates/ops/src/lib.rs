//! The operator's tools of `idempotent-sqs`, as programs. The modules `format`, `output` and `progress` are shared by them.
//!
//! This library has no other use, and its interface changes without notice.

mod format;
mod output;
mod progress;
pub mod records;
