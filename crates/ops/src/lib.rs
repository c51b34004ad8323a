//! The operator's tools of `idempotent-sqs`, as programs. They share the modules `format`, `output`, `panics`
//! and `progress`.
//!
//! Only the programs and the simulation use this library, and its interface changes without notice.

mod format;
pub mod letters;
mod output;
mod panics;
mod progress;
pub mod records;
