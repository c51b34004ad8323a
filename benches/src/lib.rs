//! Shared parts of the benchmarks.
