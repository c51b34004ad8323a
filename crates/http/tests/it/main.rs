//! The layer: first with requests in memory, then over real connections.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other answer must fail the test")]

mod api;
mod clients;
mod deadline;
mod endpoint;
mod headers;
mod kept;
mod keys;
mod logs;
mod recovery;
mod rejected;
mod sockets;
mod store;
mod without_body;
