//! Opens the streams of the client library of PostgreSQL.

use std::io;

use idempotent_sqs_postgres::database::simulation::{Stream, dial_with};
use tokio_postgres::config::Host;

use crate::network;

/// From now on, the connections of this process lead to hosts of the simulated network: to `server.client`.
pub fn dial_postgres() {
    dial_with(|config| {
        Box::pin(async move {
            let [Host::Tcp(host)] = config.get_hosts() else { return Err(io::ErrorKind::InvalidInput.into()) };
            Ok(Box::new(network::connect(host).await?) as Box<dyn Stream>)
        })
    });
}
