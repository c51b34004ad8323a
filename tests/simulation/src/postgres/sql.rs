//! Parses statements with `sqlparser`, resolves their names and types, and executes them.
//!
//! - `commands`: statements without tables, such as `BEGIN` and `SET`
//! - `statements`, `bind`, `functions`, `source`: resolve names and types
//! - `plan`: what they result in
//! - `run`, `eval`, `write`: execute it

mod bind;
pub(super) mod commands;
pub(super) mod eval;
mod functions;
pub(super) mod plan;
pub(super) mod run;
mod source;
pub(super) mod statements;
pub(super) mod write;
