//! The operator's tools of `idempotent-sqs`, as programs. They share the modules `format`, `output`, `panics`
//! and `progress`.
//!
//! This library has no other use, and its interface changes without notice.

mod format;
pub mod letters;
mod output;
mod panics;
mod progress;
pub mod records;
