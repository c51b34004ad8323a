//! Code that the benchmarks and the functions they measure share.
//!
//! - `figures`: medians and percentiles, and how numbers are written
//! - `table`, `page`: Markdown tables, and the sections of `docs/bench.md` that hold them
//! - `server`: a redis-server process and its statistics
//! - `precise`, `work_timer`: waits that are exact to microseconds

#![allow(missing_docs, reason = "used only by this package")]
#![allow(clippy::missing_errors_doc, clippy::must_use_candidate, reason = "as above")]

pub mod figures;
pub mod page;
pub mod precise;
pub mod server;
pub mod table;
pub mod work_timer;

/// The result of a step that can fail in many ways. The error is printed.
pub type Fallible<T> = Result<T, Box<dyn std::error::Error>>;
