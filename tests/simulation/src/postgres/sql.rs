//! Parses statements with `sqlparser`, resolves their names and types, and executes them.
//!
//! - `commands`: statements without tables, such as `BEGIN` and `SET`
//! - `statements`, `changes`, `bind`, `pairs`, `functions`, `source`: resolve names and types
//! - `plan`: what they result in
//! - `run`, `write`, `acquire`: execute it
//! - `eval`, `operators`: evaluate expressions

mod acquire;
mod bind;
mod changes;
pub(super) mod commands;
pub(super) mod eval;
mod functions;
mod operators;
mod pairs;
pub(super) mod plan;
pub(super) mod run;
mod source;
pub(super) mod statements;
pub(super) mod write;
