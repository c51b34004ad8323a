//! The tests that every store must pass.
