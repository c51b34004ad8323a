//! Redis 8 on the simulated network, as far as the scripts and the client library use it.
//!
//! - `resp`: the protocol
//! - `keyspace`: the records, and the commands on them
//! - `script`, `structs`: executes the scripts that it is sent, in Lua 5.1
//! - `server`: one server
//! - `cluster`: which server of a cluster serves a slot

mod cluster;
mod keyspace;
mod resp;
mod script;
mod server;
mod structs;

pub use cluster::Cluster;
pub use script::remove;
pub use server::Server;
